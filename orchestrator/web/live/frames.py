"""Frames: server-sent events as bytes, and the queue of one open page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

Frame = bytes

QUEUE_SIZE = 64


def make_frame(kind: str, data: Mapping[str, Any], position: int | None = None) -> Frame:
    """A server-sent event. Its id is a position in the history. JSON in ASCII has no line breaks."""
    number = "" if position is None else f"id: {position}\n"
    return f"{number}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


RELOAD = make_frame("reload", {})
"""The page cannot be brought up to date by changes: it must be loaded again."""
GONE = make_frame("gone", {})
"""The execution was deleted."""
END = make_frame("end", {})
"""The execution has ended. It may be continued by a retry or a rerun."""
OFFLINE, ONLINE = make_frame("offline", {}), make_frame("online", {})
"""Redis is away, and is back."""

LAST_FRAMES = frozenset((RELOAD, GONE))


class LivePage:
    """One open page: a bounded queue of frames that the thread of the hub fills. `after` is the position in
    the history that the page shows; without one it begins now."""

    def __init__(self, execution: str, after: int | None = None) -> None:
        self.execution, self.after = execution, after
        self._loop = asyncio.get_running_loop()
        self._frames = asyncio.Queue[Frame](QUEUE_SIZE)

    def send(self, frame: Frame) -> None:
        """Add a frame, from any thread. A page that does not read its frames is told to load again."""
        with suppress(RuntimeError):  # the event loop has ended, and the page with it
            self._loop.call_soon_threadsafe(self._put, frame)

    async def next_frame(self) -> Frame:
        return await self._frames.get()

    def _put(self, frame: Frame) -> None:
        if not self._frames.full():
            self._frames.put_nowait(frame)
            return
        while not self._frames.empty():
            self._frames.get_nowait()
        self._frames.put_nowait(RELOAD)
