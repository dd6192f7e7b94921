"""A web server of a test: it keeps what it was asked, and answers as a function says.

with site(lambda asked: Reply(200, b"[1]", {"Content-Type": "application/json"})) as web:
    ...
    assert [asked.path for asked in web.asked] == ["/one"]
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from serving import serving


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    line: int
    """Which connection it came by."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """With `pieces` the content has no length: it is written until they end, and then the line is cut."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] | None = None


Answering = Callable[[Asked], Reply]


def said(value: Any, status: int = 200, **headers: str) -> Reply:
    """A reply in JSON."""
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answering: Answering, host: str) -> None:
        super().__init__((host, 0), _Handler)
        self.answering = answering
        self.asked: list[Asked] = []
        self.sent = 0
        self.lines = 0
        self.lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.lines += 1
            self.line = self.server.lines

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        asked = Asked(self.command, self.path, headers, body, self.line)
        with self.server.lock:
            self.server.asked.append(asked)
        reply = self.server.answering(asked)
        with suppress(OSError):  # whoever asked may be gone by now
            self._reply(reply)

    def _reply(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.pieces is None:
            self.send_header("Content-Length", str(len(reply.body)))
        else:
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD":
            return
        for piece in reply.pieces or (reply.body,):
            self.wfile.write(piece)
            self.server.sent += len(piece)

    do_GET = do_HEAD = do_OPTIONS = do_PUT = do_DELETE = do_POST = do_PATCH = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""


@contextmanager
def site(answering: Answering, host: str = "127.0.0.1", certificate: str | None = None) -> Iterator[Site]:
    """A site that serves beside the block; with a certificate (and its key, in one file) by https."""
    server = Site(answering, host)
    with serving(server, certificate):
        yield server
