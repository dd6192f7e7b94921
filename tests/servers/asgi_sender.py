"""Sends requests to an application in this process that no client would write: any path, method and header.

sender = AsgiSender(web.app(redis_url))
sender.send("GET", "/static/..%2fsecret", {"Host": "localhost"}).status
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

HOST = "localhost:8321"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


class Ask(NamedTuple):
    """A request. Its path is as in the request line, and its headers may come twice."""

    method: str
    path: str
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = {}
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def code(self) -> str:
        """The code of a problem; "" if it is none."""
        is_problem = self.header("content-type") == "application/problem+json"
        return str(json.loads(self.body)["code"]) if is_problem else ""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass
class AsgiSender:
    """`headers` go with every request; a header of a request itself comes instead of one of these."""

    application: ASGIApp
    headers: Mapping[str, str] = field(default_factory=dict)
    root_path: str = ""

    def send(self, method: str, path: str, headers: Any = (), body: bytes = b"") -> Answer:
        [answer] = self.send_all([Ask(method, path, headers, body)])
        return answer

    def send_all(self, asks: Iterable[Ask]) -> list[Answer]:
        return asyncio.run(self._send_all(list(asks)))

    async def _send_all(self, asks: Sequence[Ask]) -> list[Answer]:
        return [await self._send(ask) for ask in asks]

    async def _send(self, ask: Ask) -> Answer:
        given = list(ask.headers.items() if isinstance(ask.headers, Mapping) else ask.headers)
        names = {name.lower() for name, _ in given}
        own = [one for one in {"Host": HOST, **self.headers}.items() if one[0].lower() not in names]
        sent: list[Message] = []
        path, _, query = ask.path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": ask.method,
            "scheme": "http",
            "path": self.root_path + unquote(path),
            "raw_path": path.encode(),
            "root_path": self.root_path,
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode(), value.encode("utf-8", "surrogateescape"))
                for name, value in own + given
            ],
            "server": ("127.0.0.1", 8321),
            "client": ("127.0.0.1", 50_000),
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": ask.body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        return Answer(
            sent[0]["status"],
            [(name.decode().lower(), value.decode("latin-1")) for name, value in sent[0]["headers"]],
            b"".join(message.get("body", b"") for message in sent[1:]),
        )


def log_in(sender: AsgiSender, token: str, **headers: str) -> str:
    """The cookie of a login, as a header has it; "None" if it fails."""
    answer = sender.send("POST", "/login", {**FORM, **headers}, f"token={token}".encode())
    return str(answer.header("set-cookie")).partition(";")[0]
