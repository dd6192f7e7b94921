"""The connections of the executor `http`: kept for the next call, but only to whom they were judged for.

    thread -> event loop -> (scheme, host, port, address, trust) -> a pool of connections

A thread runs one event loop at a time, and connections belong to their loop. Under a worker that forks, a
loop lives for one step, and so do its connections; where many steps share a loop, they share them too.

httpx's clients are left out, and its transports used: a client keeps the cookies of one step for the next,
and writes whole URLs into the log.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    import httpx

MOST_KEPT = 32
IDLE_S = 30.0
MAX_KEEPALIVE_CONNECTIONS = 8
KEEPALIVE_EXPIRY_S = 5.0

_HERE = threading.local()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Whom a connection leads to. The name counts as well as the address, since it is what a certificate was
    checked for."""

    scheme: str
    host: str
    port: int
    address: str


@dataclass(slots=True)
class _Kept:
    transport: httpx.AsyncHTTPTransport
    used_at: float
    borrowers: int = 0


class Connections:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._kept: dict[tuple[Endpoint, ssl.SSLContext], _Kept] = {}
        self._life = self._until_the_loop_ends()

    @classmethod
    async def for_running_loop(cls) -> Connections:
        """Those of the running loop; those of another loop of this thread are dropped."""
        loop = asyncio.get_running_loop()
        found: Connections | None = getattr(_HERE, "connections", None)
        if found is None or found.loop is not loop:
            found = _HERE.connections = cls(loop)
            await anext(found._life)
        return found

    @asynccontextmanager
    async def transport_to(self, endpoint: Endpoint) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        """A transport that leads there and nowhere else."""
        trusted = _trusted_here()
        key = (endpoint, trusted)
        kept = self._kept.pop(key, None) or _Kept(_transport(trusted), self.loop.time())
        self._kept[key] = kept  # the last is the one that was used last
        kept.borrowers += 1
        try:
            await self._drop_surplus()
            yield kept.transport
        finally:
            kept.borrowers -= 1
            kept.used_at = self.loop.time()

    async def _drop_surplus(self) -> None:
        too_old = self.loop.time() - IDLE_S
        surplus = len(self._kept) - MOST_KEPT
        for key, kept in list(self._kept.items()):
            if not kept.borrowers and (surplus > 0 or kept.used_at < too_old):
                surplus -= 1
                del self._kept[key]
                await kept.transport.aclose()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes the generators that were begun in it: that is where we are told."""
        try:
            yield
        finally:
            for kept in self._kept.values():
                await kept.transport.aclose()
            self._kept.clear()


def _transport(trusted: ssl.SSLContext) -> httpx.AsyncHTTPTransport:
    """A connection for everybody who asks: how many steps run at once is for the worker to say."""
    import httpx

    limits = httpx.Limits(
        max_connections=None,
        max_keepalive_connections=MAX_KEEPALIVE_CONNECTIONS,
        keepalive_expiry=KEEPALIVE_EXPIRY_S,
    )
    return httpx.AsyncHTTPTransport(verify=trusted, trust_env=False, limits=limits)


def prepare_connections() -> None:
    """Load httpx and all certificates now: forks then have them."""
    with suppress(ImportError):
        _trusted_here()


def _trusted_here() -> ssl.SSLContext:
    return _trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _trusted(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Whom we trust; these two variables may name others, and reading all of them takes its time."""
    import httpx

    return httpx.create_ssl_context()
