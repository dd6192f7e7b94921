"""A follower reads the changes of one execution, and sends them to all of its open pages."""

from __future__ import annotations

import json
import time
from typing import Any

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.explain.status_view import may_be_queued
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.record_changes import (
    RecordChanges,
    find_untaken,
    read_changes,
    read_units,
)
from orchestrator.redis_rq.queued_units import read_status_view
from orchestrator.redis_rq.store import RedisStore
from orchestrator.web.live.delta import LiveView, last_moves
from orchestrator.web.live.frames import END, GONE, LAST_FRAMES, RELOAD, Frame, LivePage, make_frame

READ_EVERY_S = 0.25
REST = 9
"""After a read, an execution rests for this many times as long as the read took."""
LOOK_EVERY_S = 1.0
"""How often the leases of dispatched units are read: a worker takes a job without a commit."""
POLL_EVERY_S = 3.0
"""How often an execution is read of which no change is published."""
MAX_CATCH_UP = 2_000
"""A page that has missed more entries is loaded again."""


class Follower:
    """One execution with open pages. `newcomers` are yet to be brought up to date."""

    def __init__(self, client: Client, keys: Keys, execution: str) -> None:
        self._client, self._keys, self._execution = client, keys, execution
        self.pages: list[LivePage] = []
        self.newcomers: list[LivePage] = []
        self.is_changed = True
        self.read_at = self._look_at = 0.0
        self._view: LiveView | None = None

    @property
    def is_followed(self) -> bool:
        return bool(self.pages or self.newcomers)

    def is_due(self, now: float) -> bool:
        return now >= self.read_at and (self.is_changed or bool(self.newcomers) or now >= self._look_at)

    def send(self, frame: Frame) -> None:
        for page in (*self.pages, *self.newcomers):
            page.send(frame)

    def leave(self, page: LivePage) -> None:
        for pages in (self.pages, self.newcomers):
            if page in pages:
                pages.remove(page)

    def read(self) -> bool:
        """Read what has changed, and tell the pages; false if there is nothing more to follow."""
        started = time.monotonic()
        self.is_changed = False
        last = self._read_changes()
        if last is not None:
            self.send(last)
            return False
        ended = time.monotonic()
        self.read_at = ended + max(READ_EVERY_S, REST * (ended - started))
        is_watched = self._view is not None and bool(self._view.unreported)
        self._look_at = ended + (LOOK_EVERY_S if is_watched else POLL_EVERY_S)
        return True

    def _read_changes(self) -> Frame | None:
        """Read and send changes. Returns the last frame, if there can be no others after it."""
        view = self._view
        if view is None:
            try:
                view = self._view = self._load()
            except RecordNotFound:
                return GONE
        found = read_changes(self._client, self._keys, self._execution, view.position)
        if found.heading is None:
            return GONE
        if found.heading.created_at != view.created_at or found.length < view.position:
            return RELOAD  # another execution has replaced it
        changes = self._apply(view, found)
        for change in changes:
            frame = make_frame("change", change, view.position)
            for page in self.pages:
                page.send(frame)
        if view.is_final and changes:
            for page in self.pages:
                page.send(END)
        self._greet_newcomers(view)
        self.is_changed = found.length > view.position
        return None

    def _load(self) -> LiveView:
        """Read the position first: what is written in between is then read again."""
        with translate_errors():
            position: Any = self._client.llen(self._keys.history(self._execution))
        record = RedisStore(self._client, self._keys).load(self._execution)
        return LiveView(read_status_view(self._client, self._keys, record), position)

    def _apply(self, view: LiveView, found: RecordChanges) -> list[dict[str, Any]]:
        """Bring the view up to date, and return the changes for its pages."""
        assert found.heading is not None, "there is no record"
        changes = []
        if found.heading.version != view.version or found.entries:
            entries = [json.loads(text) for text in found.entries]
            # The start of a step is in the record, and not in the history.
            names = dict.fromkeys([*last_moves(entries), *view.unreported])
            units = read_units(self._client, self._keys, self._execution, names)
            asked = {unit: step for unit, step in units.items() if step is not None and may_be_queued(step)}
            untaken = find_untaken(self._client, self._keys, self._execution, asked)
            changes.append(view.apply(found.heading, entries, units, untaken))
        elif view.unreported:
            untaken = find_untaken(self._client, self._keys, self._execution, view.unreported)
            change = view.note_queued(untaken)
            changes += [] if change is None else [change]
        return changes

    def _greet_newcomers(self, view: LiveView) -> None:
        for page in self.newcomers:
            for frame in self._catch_up(view, page.after):
                page.send(frame)
                if frame in LAST_FRAMES:
                    break
            else:
                self.pages.append(page)
        self.newcomers = []

    def _catch_up(self, view: LiveView, after: int | None) -> list[Frame]:
        """What a page is told first, which shows the execution as of a position."""
        missed = 0 if after is None else view.position - after
        if missed < 0 or missed > MAX_CATCH_UP:
            return [RELOAD]
        entries: Any = []
        if missed:
            with translate_errors():
                entries = self._client.lrange(
                    self._keys.history(self._execution), view.position - missed, view.position - 1
                )
        change = view.since([json.loads(text) for text in entries])
        first = make_frame("change", {**change, "new_entries": missed}, view.position)
        return [first, END] if view.is_final else [first]
