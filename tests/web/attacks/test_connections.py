"""Attacks by connections, on a real server: requests in requests, floods, and streams that never end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from orchestrator import web
from orchestrator.web.live import stream
from orchestrator.web.server import PageServer as OwnServer
from servers.event_stream import EventStream
from servers.page_server import PAGE, PageServer, serve
from worlds.documents import document
from worlds.page_users import ADA, USERS, WALL, bearer, write_users
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until

OPEN = document({"id": "ask", "wait": {"signal": "answer"}})
LIVE = "/executions/x1/live"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Site:
    """A page with users on a port, and the paths that reached the application."""

    def __init__(self, redis_url: str, tokens: str) -> None:
        self.page = web.app(redis_url, tokens=tokens)
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await self.page(scope, receive, send)

    @property
    def open_count(self) -> int:
        count: int = self.page.state.streams.open_count
        return count


@pytest.fixture
def guarded(redis_url: str, tmp_path: Path) -> Site:
    return Site(redis_url, str(write_users(tmp_path)))


@pytest.fixture
def server(guarded: Site) -> Iterator[PageServer]:
    with serve(guarded, http="h11", ws="none", interface="asgi3") as server:
        yield server


@pytest.fixture
def execution(world: RedisWorld) -> str:
    """An execution that waits for a signal."""
    return world.begin(world.coordinator(), OPEN, execution_id="x1")


def head(*lines: str, request: str = "POST /logout HTTP/1.1") -> bytes:
    form = "Content-Type: application/x-www-form-urlencoded"
    return "\r\n".join([request, "Host: localhost", form, *lines, "", ""]).encode("latin-1")


# ---- requests in requests

CHUNKED, END = "Transfer-Encoding: chunked", b"0\r\n\r\n"
AMBIGUOUS: dict[str, bytes] = {
    "two lengths": head(f"Content-Length: {len(END + SMUGGLED)}", CHUNKED) + END + SMUGGLED,
    "two lengths, of which one is 0": head("Content-Length: 0", CHUNKED) + END + SMUGGLED,
    "two encodings": head(CHUNKED, "Transfer-Encoding: identity") + END + SMUGGLED,
    "an unknown encoding": head("Transfer-Encoding: xchunked") + END + SMUGGLED,
    "chunked is not last": head("Transfer-Encoding: chunked, gzip") + END + SMUGGLED,
    "a space before the colon": head("Transfer-Encoding : chunked") + END + SMUGGLED,
    "two sizes": head("Content-Length: 0", "Content-Length: 5") + SMUGGLED,
    "two sizes in one": head("Content-Length: 0, 5") + SMUGGLED,
    "a size with a sign": head("Content-Length: +0") + SMUGGLED,
    "a size that is negative": head("Content-Length: -1") + SMUGGLED,
    "a size in hex": head("Content-Length: 0x0") + SMUGGLED,
    "a huge size": head("Content-Length: " + "9" * 30) + SMUGGLED,
    "a chunk with a sign": head(CHUNKED) + b"+0\r\n\r\n" + SMUGGLED,
    "a chunk with 0x": head(CHUNKED) + b"0x0\r\n\r\n" + SMUGGLED,
    "a chunk of an endless size": head(CHUNKED) + b"f" * 30 + b"\r\n" + SMUGGLED,
    "a header without a colon": head("Content-Length") + SMUGGLED,
    "a zero byte": head("X: a\0b") + SMUGGLED,
    "a line feed in a value": head("X: a\rContent-Length: 5") + SMUGGLED,
    "a space in the path": head(request="POST /logout HTTP/1.1 x") + SMUGGLED,
    "no version": b"GET /logout\r\n" + SMUGGLED,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SMUGGLED,
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_no_request_hides_another(server: PageServer, guarded: Site, kind: str) -> None:
    """The connection is closed after the first response, and the rest of it is not read as a request."""
    answer = server.send_raw(AMBIGUOUS[kind])

    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert "/smuggled" not in guarded.paths


def test_a_second_request_after_a_plain_one_is_served(server: PageServer, guarded: Site) -> None:
    """What the test above looks for would be found."""
    answer = server.send_raw(
        head("Content-Length: 0") + SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    )

    assert answer.count(b"HTTP/1.1 ") == 2
    assert "/smuggled" in guarded.paths


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "TLS/1.2"])
def test_a_connection_cannot_become_another(server: PageServer, upgrade: str) -> None:
    lines = (
        "Connection: Upgrade",
        f"Upgrade: {upgrade}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: YQ==",
    )
    with server.connect() as connection:
        connection.sendall(head(*lines, request=f"GET {LIVE} HTTP/1.1"))

        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")


# ---- floods


def test_headers_have_a_limit(server: PageServer, redis_url: str) -> None:
    for lines in (["X: " + "a" * 700_000], [f"X{n}: a" for n in range(100_000)], ["a" * 700_000]):
        assert b"HTTP/1.1 400 " in _send_all(server, head(*lines))
    assert b"HTTP/1.1 400 " in _send_all(server, head(request=f"GET /{'a' * 700_000} HTTP/1.1"))

    config = OwnServer(web.app(redis_url))._server.config
    assert (config.http, config.ws) == ("h11", "none"), "the tested server is the one of the command"


def _send_all(server: PageServer, request: bytes) -> bytes:
    """Like send_raw(), for a server that closes the connection before it has read everything."""
    with server.connect() as connection:
        try:
            connection.sendall(request)
            return connection.recv(65_536)
        except ConnectionError:
            return b"HTTP/1.1 400 (the connection was closed first)"


def test_a_login_of_many_megabytes_is_not_read(server: PageServer) -> None:
    """Without a token such bodies kept the event loop busy."""
    body = b"token=" + b"%41" * 2_000_000

    answer = _send_all(server, head(f"Content-Length: {len(body)}", request="POST /login HTTP/1.1"))

    assert b"413" in answer.split(b"\r\n")[0]


def test_idle_and_half_requests_leave_others_alone(server: PageServer) -> None:
    with ExitStack() as connections:
        for number in range(200):
            connection = connections.enter_context(server.connect())
            connection.sendall((b"", b"GET", head()[:-2], head("Content-Length: 10"))[number % 4])

        assert server.get("/executions", headers=bearer(ADA)).status_code == 200


# ---- streams


def open_raw(server: PageServer, *lines: str, token: str = WALL, method: str = "GET") -> socket.socket:
    """Open a stream; returns the connection when its headers have come."""
    connection = server.connect()
    lines = (f"Authorization: Bearer {token}", *lines)
    connection.sendall(head(*lines, request=f"{method} {LIVE} HTTP/1.1"))
    assert b" 200 " in connection.recv(65_536)
    return connection


def test_a_flood_of_streams_is_limited_for_each_user_and_in_all_and_frees_its_places(
    execution: str, server: PageServer, guarded: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_STREAMS_PER_USER", 20)
    monkeypatch.setattr(stream, "MAX_STREAMS", 21)

    flood = [open_raw(server) for _ in range(20)]
    assert server.get(LIVE, headers=bearer(WALL)).json()["code"] == "too_many_streams"
    with open_raw(server, token=ADA):
        assert server.get(LIVE, headers=bearer(ADA)).json()["code"] == "too_many_streams"
    for connection in flood:
        connection.close()

    wait_until(lambda: guarded.open_count == 0)
    with open_raw(server):
        assert guarded.open_count == 1


def test_a_stream_without_a_body_of_its_own_keeps_no_place(
    execution: str, server: PageServer, guarded: Site
) -> None:
    with open_raw(server, method="HEAD"):
        assert guarded.open_count == 0


def test_a_stream_ends_when_the_body_of_its_request_does_not_come(
    execution: str, server: PageServer, guarded: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing would notice that its client is gone, and its place were lost."""
    monkeypatch.setattr("orchestrator.web.access.guard.MAX_BODY_S", 0.1)

    with open_raw(server, "Content-Length: 10"):
        wait_until(lambda: guarded.open_count == 0)


@pytest.mark.parametrize("change", ["removed", "start:order"])
def test_a_stream_ends_with_the_rights_of_its_user(
    execution: str,
    server: PageServer,
    guarded: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.05)
    with EventStream(server.url + LIVE, headers=bearer(WALL)) as page:
        page.next("change")

        write_users(
            tmp_path, USERS.replace(*{"removed": (WALL, WALL[::-1])}.get(change, ("read ", f"{change} ")))
        )

        page.rest()
    wait_until(lambda: guarded.open_count == 0)


@pytest.mark.parametrize("position", ["-1", "1e3", "x", "1" * 13, "1 2", "\xb2", "0x1", "NaN", "1,2"])
def test_a_position_is_a_number(execution: str, server: PageServer, position: str) -> None:
    raw: dict[str, Any] = {**bearer(WALL), "Last-Event-ID": position.encode("latin-1")}

    assert server.get(LIVE, headers=raw).json()["code"] == "bad_query"


def test_a_stream_has_no_answer_for_another_origin(execution: str, server: PageServer) -> None:
    headers = {**bearer(WALL), "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}

    found = httpx.get(server.url + LIVE, headers={**headers, **PAGE}, trust_env=False)

    assert found.status_code == 403
