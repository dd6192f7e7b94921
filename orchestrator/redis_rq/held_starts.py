"""HeldStarts: starts that wait until a full queue has room.

    starts ─▸ a coordinator builds the creation ─▸ its first jobs have room ───────────────▸ commit
                                                 └▸ a queue is full ─▸ held:<queue> ─▸ room ─▸ commit

A queue is full while `max_queued` jobs wait in it. The sweep finds that out, so the bound is not exact:
between two sweeps some hundred starts may pass. While starts are held for a queue, new ones for it are held
behind them.

A start is held by one script, which acknowledges it where it was read. It is then an entry of another stream,
with the same group: coordinators read it when the queue has room, and its creation acknowledges and deletes
it. So it is delivered again after a crash at any point, and never twice after its creation. It keeps the
entry id under which it was sent: its reply, its execution id and its history name that one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.backend.ports import Delivery, EventRef, Queue
from orchestrator.redis_rq.commit_args import Command, flatten_fields
from orchestrator.redis_rq.connection import Client, execute_pipeline, is_transient_text, translate_errors
from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.redis_rq.scripts import Call, Script

logger = logging.getLogger(__name__)

EXHAUSTED = "exhausted the last possible ID"
NOT_FULL = 2
"""What hold_start.lua returns for a queue that is not full."""
FULL_TTL_MS = 5_000
MAX_FULL_NAMED = 20
START_EVENT = "start_event"
"""The field of a held start with the entry id under which it was sent."""

Entries = tuple[str, list[tuple[str, dict[str, str]]]]
"""A stream, and entries of it."""
_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")


@dataclass(slots=True)
class _Load:
    """A queue that is full or has held starts: how many more starts this coordinator may create for it, and
    how many starts are held."""

    room: int
    held: int

    @property
    def is_closed(self) -> bool:
        """Whether a new start has to wait, for room or behind others."""
        return self.room <= 0 or self.held > 0


class HeldStarts:
    def __init__(self, client: Client, consumer: str, keys: Keys, max_queued: int) -> None:
        self._client, self._consumer, self._keys, self.max_queued = client, consumer, keys, max_queued
        self._script = Script(client, "hold_start", "errors")
        self._loads: dict[str, _Load] = {}
        self._streams: list[str] = []
        self._full: dict[str, int] = {}

    @property
    def has_full_queues(self) -> bool:
        return any(load.is_closed for load in self._loads.values())

    @property
    def streams(self) -> list[str]:
        """The streams of queues that were full or had held starts at the last sweep. They may not exist."""
        return self._streams

    # ---- what the sweep has found

    def update(self, limited: Sequence[str], coordinators: int) -> None:
        """Take over what the sweep has found about queues that are full or have held starts: the name, the
        number of jobs and the number of held starts of each, -1 for a key of another type. All coordinators
        share the room."""
        loads, full, streams = dict[str, _Load](), dict[str, int](), list[str]()
        for queue, waiting, held in zip(limited[0::3], limited[1::3], limited[2::3], strict=True):
            room = self.max_queued - int(waiting)
            loads[queue] = _Load(max(room // max(coordinators, 1), 1) if room > 0 else 0, max(int(held), 0))
            if int(held) >= 0:
                streams.append(self._keys.held(queue))
            if room <= 0:
                full[queue] = int(waiting)
        self._loads = loads
        self._streams = streams
        self._show(full)

    def _show(self, full: dict[str, int]) -> None:
        """Log which queues became full and which have room again. A key that expires shows the full ones to
        operators and producers."""
        for queue in sorted(full.keys() - self._full.keys()):
            jobs = f"{full[queue]} jobs wait, of at most {self.max_queued}"
            logger.warning("the queue %s is full (%s): starts for it are held", queue, jobs)
        for queue in sorted(self._full.keys() - full.keys()):
            logger.warning("the queue %s has room again: starts for it go on", queue)
        if self._full and not full:
            with translate_errors():
                self._client.delete(self._keys.intake_paused)
        self._full = full
        if full:
            deepest = sorted(full.items(), key=lambda one: (-one[1], one[0]))[:MAX_FULL_NAMED]
            names = (
                f"{self._keys.queue_name(queue)} ({jobs} of {self.max_queued})" for queue, jobs in deepest
            )
            with translate_errors():
                self._client.set(self._keys.intake_paused, ", ".join(names), px=FULL_TTL_MS)

    # ---- holding

    def hold(self, starts: Sequence[tuple[Delivery, Sequence[Queue]]]) -> list[bool]:
        """Hold the starts that need a full queue. One that cannot be held, because of the type of its
        key or because the stream takes no more entries, is created instead: it must not wait for a repair."""
        closed = [self._closed_queue(delivery, queues) for delivery, queues in starts]
        wanted = [
            (delivery, queue)
            for (delivery, _), queue in zip(starts, closed, strict=True)
            if queue is not None
        ]
        with translate_errors():
            replies = self._script.run([self._call(*one) for one in wanted]) if wanted else []
        results = iter([self._is_done(*one, *reply) for one, reply in zip(wanted, replies, strict=True)])
        return [queue is not None and next(results) for queue in closed]

    def _closed_queue(self, delivery: Delivery, queues: Sequence[Queue]) -> str | None:
        """The queue that a start has to wait for. One that it has waited for already does not count: it was
        read because there was room."""
        for name, priority in queues:
            queue = self._keys.queue(name, priority)
            load = self._loads.get(queue)
            if load is not None and load.is_closed and self._keys.held(queue) != delivery.ref.stream:
                return queue
        return None

    def _call(self, delivery: Delivery, queue: str) -> Call:
        keys, ref = self._keys, delivery.ref
        args: Command = [GROUP, ref.entry_id, delivery.sent_as.entry_id, keys.queue_name(queue)]
        args += [int(keys.is_held(ref.stream)), queue, *flatten_fields(delivery.fields)]
        return [ref.stream, keys.held(queue), keys.held_queues, keys.sequences], args

    def _is_done(self, delivery: Delivery, queue: str, status: int, error: str) -> bool:
        if is_transient_text(error) and EXHAUSTED not in error:
            raise Unavailable(f"Redis: {error}")
        extra = {"event": delivery.sent_as.entry_id}
        if error:
            logger.error("a start for the full queue %s cannot be held: %s", queue, error, extra=extra)
        elif status == 1:
            self._loads[queue].held += 1
            logger.info("held, because the queue %s is full", queue, extra=extra)
        return not error and status != NOT_FULL

    # ---- reading

    def read(self, count: int) -> list[Entries]:
        """The first held starts of each queue that has room, about `count` in all. Twice as many as new
        starts are read at a time, so that held starts become fewer while new ones arrive."""
        waiting = [(queue, load) for queue, load in self._loads.items() if load.room > 0 and load.held > 0]
        if not waiting:
            return []
        share = max(2 * count // len(waiting), 1)
        asked = [(queue, load, min(load.room, share)) for queue, load in waiting]
        with self._client.pipeline(transaction=False) as pipe:
            for queue, _, most in asked:
                pipe.xreadgroup(GROUP, self._consumer, {self._keys.held(queue): ">"}, count=most)
            replies = execute_pipeline(pipe)
        found: list[Entries] = []
        for (_, load, most), reply in zip(asked, replies, strict=True):
            streams: Any = [] if isinstance(reply, Exception) else reply or []
            entries = sum(len(entries) for _, entries in streams)
            load.room -= entries
            if entries < most:  # all others are read by other coordinators
                load.held = 0
            found += streams
        return found


def read_held_start(fields: Mapping[str, str], keys: Keys) -> tuple[EventRef | None, Mapping[str, str]]:
    """Where a held start was sent to, and its fields as they were sent."""
    entry_id = fields.get(START_EVENT, "")
    if not _ENTRY_ID.fullmatch(entry_id):
        return None, fields
    return EventRef(keys.starts, entry_id), {
        name: value for name, value in fields.items() if name != START_EVENT
    }
