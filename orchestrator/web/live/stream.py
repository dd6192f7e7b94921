"""The stream of one page: a response that never ends by itself, with the changes of one execution.

    id:      the length of the history that the page then shows; a browser sends the last one when it connects
             again, in the header Last-Event-ID
    retry:   after how long it connects again, when a connection ends without a last event
    a comment every 15 s    shows that the connection is alive

It ends when the client is gone or is no longer a user, when this process stops, or after a last event:
`reload`, `gone`, and for programs `end`. That of a page stays open after `end`, because a retry or a rerun
continues the execution.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrator.web.access.guard import user_of
from orchestrator.web.instance import Instance, instance_of
from orchestrator.web.live.frames import END, LAST_FRAMES, Frame, LivePage
from orchestrator.web.live.hub import Hub
from orchestrator.web.problems import Problem

HEARTBEAT_S = 15.0
"""So often a stream shows that it is alive, and checks that its user still exists."""
RETRY_MS = 2_000
MAX_STREAMS, MAX_STREAMS_PER_USER = 1_000, 200
MAX_POSITION_DIGITS = 12


class Streams:
    """All open streams of the application, with their limits, and the hub of each instance."""

    def __init__(self) -> None:
        self._hubs: dict[str, Hub] = {}
        self._by_user: Counter[str] = Counter()
        self._open: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def hub_of(self, instance: Instance) -> Hub:
        if instance.name not in self._hubs:
            self._hubs[instance.name] = Hub(instance.redis, instance.keys)
        return self._hubs[instance.name]

    @contextmanager
    def count(self, user: str) -> Iterator[None]:
        """Count a stream while it is open. Raises Problem if there are too many."""
        if self._by_user.total() >= MAX_STREAMS or self._by_user[user] >= MAX_STREAMS_PER_USER:
            raise Problem(429, "too_many_streams", "too many pages with live updates are open")
        self._by_user[user] += 1
        try:
            yield
        finally:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]

    @property
    def open_count(self) -> int:
        return self._by_user.total()

    async def run(self, task: asyncio.Task[None]) -> None:
        """Wait for the task of a stream, which close() ends."""
        if self._is_closed:
            task.cancel()
        self._open.add(task)
        try:
            with suppress(asyncio.CancelledError):
                await task
        finally:
            self._open.discard(task)
            task.cancel()

    def close(self) -> None:
        """End every stream, also later ones: this process stops. A handler of signals may call it."""
        self._is_closed = True
        for task in list(self._open):
            task.get_loop().call_soon_threadsafe(task.cancel)


class EventStream(Response):
    """A response with the frames of a page, until one of `last` is sent or its request is not allowed any
    more."""

    def __init__(self, request: Request, page: LivePage, last: Sequence[Frame]) -> None:
        super().__init__(media_type="text/event-stream")
        self._request, self._page, self._last = request, page, frozenset(last)
        self._streams: Streams = request.app.state.streams
        self._hub = self._streams.hub_of(instance_of(request))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        headers.append((b"x-accel-buffering", b"no"))  # nginx would keep the events back
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        with self._streams.count(user_of(self._request).name):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            self._hub.join(self._page)
            sending = asyncio.create_task(self._send_frames(send))
            listening = asyncio.create_task(_wait_until_gone(receive, sending))
            try:
                await self._streams.run(sending)
            finally:
                listening.cancel()
                self._hub.leave(self._page)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_frames(self, send: Send) -> None:
        frame: Frame = f"retry: {RETRY_MS}\n\n".encode()
        checked_at = time.monotonic()
        while True:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            if frame in self._last:
                return
            try:
                frame = await asyncio.wait_for(self._page.next_frame(), HEARTBEAT_S)
            except TimeoutError:
                frame = b": alive\n\n"
            if time.monotonic() - checked_at >= HEARTBEAT_S:
                if not await self._is_allowed():
                    return
                checked_at = time.monotonic()

    async def _is_allowed(self) -> bool:
        """Whether the guard would still let the request pass: its token may have been removed meanwhile."""
        try:
            await self._request.app.state.policy.check(self._request)
        except Problem:
            return False
        return True


async def _wait_until_gone(receive: Receive, sending: asyncio.Task[None]) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Problem:
        pass  # the request has a body, which is too large or does not come
    finally:
        sending.cancel()


async def serve_page(request: Request) -> Response:
    """The stream of a page of an execution."""
    return await _open(request, sorted(LAST_FRAMES))


async def serve_program(request: Request) -> Response:
    """The same stream for programs; it ends with the execution."""
    return await _open(request, sorted({*LAST_FRAMES, END}))


async def _open(request: Request, last: Sequence[Frame]) -> Response:
    instance, streams = instance_of(request), request.app.state.streams
    after = _read_position(request)
    execution = await run_in_threadpool(_find_execution, instance, request.path_params["execution"])
    with streams.count(user_of(request).name):  # a problem is found before the response begins
        pass
    return EventStream(request, LivePage(execution, after), last)


def _find_execution(instance: Instance, execution_id: str) -> str:
    """The full id of an execution that exists."""
    full_id = instance.client.store.full_id(execution_id)
    instance.queries.version(full_id)
    return full_id


def _read_position(request: Request) -> int | None:
    """The position that the client has reached: that of the last event, or the one in the URL."""
    text = request.headers.get("last-event-id") or request.query_params.get("after", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_POSITION_DIGITS):
        raise Problem(400, "bad_query", "after and Last-Event-ID must be the id of an event, a number")
    return int(text)
