"""Serves the application on a socket with uvicorn, and stops within a second.

Uvicorn waits for every response. Those with live updates never end by themselves, so they are closed first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

import uvicorn
from starlette.applications import Starlette

GRACE_S = 1
"""How long a stopping server waits for open requests. Live updates are ended at once."""


class PageServer:
    """The server of a page. It is asked to stop by stop(), also from a signal handler or another thread."""

    def __init__(self, application: Starlette, root_path: str = "", grace_s: int = GRACE_S) -> None:
        config = uvicorn.Config(
            application,
            log_config=None,
            log_level="warning",  # that it starts and stops is said by the command
            access_log=False,
            server_header=False,
            http="h11",  # it limits headers to 64 KiB; httptools, which uvicorn prefers, does not
            ws="none",
            lifespan="off",
            root_path=root_path,
            timeout_graceful_shutdown=grace_s,
        )
        self._server = _Server(config)

    def run(self, listener: socket) -> None:
        """Serve until stop() is called."""
        self._server.run(sockets=[listener])

    def stop(self) -> None:
        self._server.should_exit = True

    @contextmanager
    def beside(self, listener: socket) -> Iterator[None]:
        """Serve in a thread, while the block runs."""
        thread = threading.Thread(target=self.run, args=[listener], name="web", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(GRACE_S + 1)


class _Server(uvicorn.Server):
    """Uvicorn, without its signal handlers: those end the process by the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        application = self.config.app
        assert isinstance(application, Starlette)
        application.state.streams.close()
        await super().shutdown(sockets)
