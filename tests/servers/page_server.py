"""The web page of a test: our application, served by uvicorn in a thread of this process.

with serve(web.app(redis_url)) as site:
    site.get("/executions")
    site.send_raw(b"GET /../etc/passwd HTTP/1.1\\r\\n...")
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from worlds.waiting import PATIENCE_S, wait_until

PAGE = {"Accept": "text/html"}
"""The header by which a browser asks for a page; the API answers in JSON."""


@dataclass(frozen=True)
class PageServer:
    """An application on a port of this host. Requests do not follow redirects, and keep no cookies."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send one request on a connection of its own."""
        return httpx.request(method, self.url + path, timeout=PATIENCE_S, trust_env=False, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def send_raw(self, request: bytes) -> bytes:
        """Send these bytes, and return everything that comes until the server ends the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


Serve = Callable[..., PageServer]
"""Serves the application with options of web.app(): the fixture `serve_page`."""


@contextmanager
def serve(application: ASGIApp, **options: Any) -> Iterator[PageServer]:
    """Serve an application beside the block; `options` go to uvicorn."""
    defaults = {"log_config": None, "access_log": False, "lifespan": "off", "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(application, **{**defaults, **options}))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            assert server.started, "the server of the page does not start"
            yield PageServer(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the server of the page does not end"
