"""Somebody who is told by webhooks: an HTTP server that keeps what was posted, and answers as it is told.

with receiver(500, 500) as hooks:            # two failures, then 204
    ...
    assert [post.delivery for post in hooks.posts] == 3 * ["x#webhook#0"]
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from serving import serving

PATIENCE_S = 180.0


@dataclass(frozen=True)
class Post:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def delivery(self) -> str | None:
        return self.headers.get("orchestrator-delivery")


@dataclass(frozen=True)
class Answer:
    status: int = 204
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Receiver(ThreadingHTTPServer):
    """Answers as it was told, and with 204 after that. While it is `held` it answers nobody."""

    daemon_threads = True

    def __init__(self, *answers: int | Answer, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Handler)
        self.posts: list[Post] = []
        self.answers = [one if isinstance(one, Answer) else Answer(one) for one in answers]
        self.free = threading.Event()
        self.free.set()
        self.lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def hold(self) -> None:
        self.free.clear()

    def release(self) -> None:
        self.free.set()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        post = Post(
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(length),
        )
        with self.server.lock:
            self.server.posts.append(post)
            answer = self.server.answers.pop(0) if self.server.answers else Answer()
        self.server.free.wait(PATIENCE_S)
        with suppress(OSError):  # whoever asked may be gone by now
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.text.encode())))
            self.end_headers()
            self.wfile.write(answer.text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""


@contextmanager
def receiver(
    *answers: int | Answer, host: str = "127.0.0.1", certificate: str | None = None
) -> Iterator[Receiver]:
    """A receiver that serves beside the block; with a certificate (and its key, in one file) by https."""
    server = Receiver(*answers, host=host)
    with serving(server, certificate):
        try:
            yield server
        finally:
            server.release()
