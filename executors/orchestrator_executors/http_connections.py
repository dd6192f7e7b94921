"""The connections of the executor `http`: kept for later calls to the same checked endpoint.

    thread -> event loop -> (scheme, host, port, address, certificates) -> a pool of connections

A thread runs one event loop at a time, and connections belong to their loop. In a worker that forks, a loop
lives for one step, and so do its connections. Steps that share a loop share its connections too.

This uses the transports of httpx, not its clients: a client keeps the cookies of one step for the next, and
writes full URLs into the log.
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

MAX_TRANSPORTS = 32
IDLE_S = 30.0
MAX_KEEPALIVE_CONNECTIONS = 8
KEEPALIVE_EXPIRY_S = 5.0

_local = threading.local()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The other end of a connection: both the address and the host name, which the certificate has proved."""

    scheme: str
    host: str
    port: int
    address: str


@dataclass(slots=True)
class _PooledTransport:
    transport: httpx.AsyncHTTPTransport
    used_at: float
    borrowers: int = 0


class Connections:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pool: dict[tuple[Endpoint, ssl.SSLContext], _PooledTransport] = {}
        self._closer = self._close_with_loop()

    @classmethod
    async def for_running_loop(cls) -> Connections:
        """The connections of the running loop. Those of another loop of this thread are dropped."""
        loop = asyncio.get_running_loop()
        connections: Connections | None = getattr(_local, "connections", None)
        if connections is None or connections.loop is not loop:
            connections = _local.connections = cls(loop)
            await anext(connections._closer)
        return connections

    @asynccontextmanager
    async def transport_to(self, endpoint: Endpoint) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        """Borrow the transport for an endpoint; it is used for no other endpoint."""
        certificates = _trusted_certificates()
        key = (endpoint, certificates)
        pooled = self._pool.pop(key, None) or _PooledTransport(
            _create_transport(certificates), self.loop.time()
        )
        self._pool[key] = pooled  # the most recently used is last
        pooled.borrowers += 1
        try:
            await self._drop_surplus()
            yield pooled.transport
        finally:
            pooled.borrowers -= 1
            pooled.used_at = self.loop.time()

    async def _drop_surplus(self) -> None:
        """Close idle transports that are unused for IDLE_S or exceed MAX_TRANSPORTS, the oldest first."""
        idle_since = self.loop.time() - IDLE_S
        surplus = len(self._pool) - MAX_TRANSPORTS
        for key, pooled in list(self._pool.items()):
            if not pooled.borrowers and (surplus > 0 or pooled.used_at < idle_since):
                surplus -= 1
                del self._pool[key]
                await pooled.transport.aclose()

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close all transports when the loop ends: asyncio then closes the generators that it has started."""
        try:
            yield
        finally:
            for pooled in self._pool.values():
                await pooled.transport.aclose()
            self._pool.clear()


def _create_transport(certificates: ssl.SSLContext) -> httpx.AsyncHTTPTransport:
    """A transport without a limit on connections: the worker limits how many steps run at once."""
    import httpx

    limits = httpx.Limits(
        max_connections=None,
        max_keepalive_connections=MAX_KEEPALIVE_CONNECTIONS,
        keepalive_expiry=KEEPALIVE_EXPIRY_S,
    )
    return httpx.AsyncHTTPTransport(verify=certificates, trust_env=False, limits=limits)


def prepare_connections() -> None:
    """Load httpx and the certificates now, so that forks inherit them."""
    with suppress(ImportError):
        _trusted_certificates()


def _trusted_certificates() -> ssl.SSLContext:
    return _load_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _load_certificates(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Loading is slow, so it is cached by the two variables that httpx reads the certificates from."""
    import httpx

    return httpx.create_ssl_context()
