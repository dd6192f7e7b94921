"""A client of server-sent events, for tests of live updates.

with EventStream(site.url + "/executions/x1/live?after=0") as stream:
    change = stream.next("change")
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from worlds.waiting import PATIENCE_S


@dataclass(frozen=True)
class Event:
    kind: str
    data: Any
    id: str | None


@dataclass
class EventStream:
    """A stream that a test reads event by event. `comments` counts the heartbeats, `retry` is what the server
    asked for."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    comments: int = 0
    retry: int | None = None

    def __enter__(self) -> Self:
        timeout = httpx.Timeout(PATIENCE_S)
        self._client = httpx.Client(timeout=timeout, trust_env=False)
        self._response = self._client.send(
            self._client.build_request("GET", self.url, headers=self.headers), stream=True
        )
        assert self._response.status_code == 200, self._response.read()
        assert self._response.headers["content-type"].startswith("text/event-stream")
        self._events = self._read()
        return self

    def __exit__(self, *exception: object) -> None:
        self._response.close()
        self._client.close()

    def next(self, *kinds: str) -> Event:
        """The next event of one of these kinds; others before it are passed over."""
        for event in self._events:
            if event.kind in kinds:
                return event
        raise AssertionError(f"the stream has ended before {kinds}")

    def rest(self) -> list[Event]:
        """All events until the server ends the stream."""
        return list(self._events)

    def _read(self) -> Iterator[Event]:
        found: dict[str, str] = {}
        for line in self._response.iter_lines():
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "retry":
                self.retry = int(value)
            elif line:
                found[name] = value
            elif found:
                yield Event(found["event"], json.loads(found["data"]), found.get("id"))
                found = {}
