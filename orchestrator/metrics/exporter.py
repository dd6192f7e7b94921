"""Serves the metrics over HTTP, with nothing but the standard library and prometheus-client."""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from orchestrator.metrics.reader import CONTENT_TYPE, MetricsReader

PATH = "/metrics"
REQUEST_TIMEOUT_S = 10
MAX_REQUESTS = 8
"""How many requests are served at once; others are answered with 503. A scrape takes some ms."""


class Exporter(ThreadingHTTPServer):
    """Serves `reader` on a socket that listens, until stop() is called."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, reader: MetricsReader) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.reader = listener, reader
        self.free = threading.BoundedSemaphore(MAX_REQUESTS)

    def stop(self) -> None:
        """End serve_forever(), which may run in this thread."""
        threading.Thread(target=self.shutdown).start()


class _Handler(BaseHTTPRequestHandler):
    server: Exporter
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "orchestrator-exporter", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._reply(HTTPStatus.NOT_FOUND, b"The metrics are at /metrics.\n")
        elif not self.server.free.acquire(blocking=False):
            self._reply(HTTPStatus.SERVICE_UNAVAILABLE, b"Too many requests at once.\n")
        else:
            try:
                body = self.server.reader.render()
            finally:
                self.server.free.release()
            self._reply(HTTPStatus.OK, body, CONTENT_TYPE)

    do_HEAD = do_GET

    def _reply(self, status: HTTPStatus, body: bytes, media: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape every few seconds is no news."""
