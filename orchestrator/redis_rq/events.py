"""RedisEventLog: the event streams as one coordinator sees them.

Executions are spread over a few streams, and every stream has one coordinator that reads it, so that the
events of one execution meet its record in one cache. Who reads what follows from who is alive; two that
disagree for a moment share a stream and lose nothing but time, because every commit is guarded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import redis

from orchestrator.application.beginnings import refused_child
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.events import Event, ResultEvent, ScheduleEvent, SignalEvent
from orchestrator.backend.ports import Delivery, EventRef
from orchestrator.redis_rq.codec import (
    dumps,
    event_fields,
    loads,
    read_event,
    read_parent,
    reply_of,
    unreadable_result,
)
from orchestrator.redis_rq.commits import Command, answer_commands, flat, hint_to
from orchestrator.redis_rq.connection import Client, translated
from orchestrator.redis_rq.keys import GROUP, Keys, schedule_member
from orchestrator.redis_rq.scripts import Script
from orchestrator.redis_rq.store import RETENTION_S

DEAD_AFTER_MS = 5_000
GONE_AFTER_MS = 3_600_000
GRACE_MS = 10_000
SETTLE_S = 8.0
"""After an outage those who hold leases beat again within a quarter of one; until then none is judged."""
FUTURE_MS = 86_400_000
LOOK_AGAIN_MS = 60_000
SIGNALS_KEPT_S = 86_400
SWEEP_AT_MOST = 500
DEAD_LETTERS_KEPT = 100_000
DROPPED_AT_ONCE = 500
SHOWN_OF_A_FIELD = 10_000

_FLUSHED = ("NOGROUP", "UNBLOCKED the stream key no longer exists")


class RedisEventLog:
    def __init__(
        self,
        client: Client,
        consumer: str,
        keys: Keys | None = None,
        grace_ms: int = GRACE_MS,
        retention_s: int = RETENTION_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._client, self._consumer, self._keys = client, consumer, keys or Keys()
        self._grace_ms, self._retention_ms, self._settle_s = grace_ms, retention_s * 1000, settle_s
        self._judge_after = 0.0
        self._sweep, self._trim = Script(client, "sweep"), Script(client, "trim")
        self._keep_signal = Script(client, "keep_signal", "run_commands")
        self._dismissal = Script(client, "dismiss", "run_commands")
        self._mine = list(range(self._keys.partitions))
        self._streams = [self._keys.starts, *map(self._keys.events, range(self._keys.partitions))]

    # ---- reading

    def open(self) -> None:
        """Make the streams and their group, from their beginning: what was sent before us is not lost."""
        self._judge_after = time.monotonic() + self._settle_s
        with translated():
            for stream in self._streams:
                try:
                    self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)
                except redis.exceptions.ResponseError as error:
                    if not str(error).startswith("BUSYGROUP"):
                        raise

    def read(self, count: int, block_ms: int) -> list[Delivery]:
        """New events; waits up to `block_ms` for the first of them."""
        streams = [self._keys.starts, *map(self._keys.events, self._mine)]
        wanted: dict[Any, Any] = dict.fromkeys(streams, ">")
        with translated():
            try:
                found: Any = self._client.xreadgroup(
                    GROUP, self._consumer, wanted, count=count, block=block_ms or None
                )
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith(_FLUSHED):
                    raise
                self.open()  # somebody flushed this Redis: what comes from now on is still served
                return []
        # An entry without fields was deleted under us: there is nothing left of it to handle.
        return [
            self._delivery(stream, entry_id, fields)
            for stream, entries in found or ()
            for entry_id, fields in entries
            if fields
        ]

    def unfinished(self, count: int) -> Iterator[Delivery]:
        """What this coordinator has read and not acknowledged: after an outage it begins with these."""
        for stream in self._streams:
            after = "-"
            while entries := self._pending(stream, after, count):
                yield from self._claimed(stream, entries, 0)
                after = f"({entries[-1]['message_id']}"

    def _pending(self, stream: str, after: str, count: int) -> list[Any]:
        with translated():
            found: list[Any] = self._client.xpending_range(
                stream, GROUP, after, "+", count, consumername=self._consumer
            )
        return found

    def reclaim(self, min_idle_ms: int, count: int) -> Iterator[Delivery]:
        """Take over events that were read long ago and never acknowledged: their coordinator is gone."""
        with translated(), self._client.pipeline(transaction=False) as pipe:
            for stream in self._streams:
                pipe.xpending_range(stream, GROUP, "-", "+", count, idle=min_idle_ms)
            pending: list[Any] = pipe.execute(raise_on_error=False)
        for stream, entries in zip(self._streams, pending, strict=True):
            if not isinstance(entries, Exception):
                yield from self._claimed(stream, entries, min_idle_ms)

    def _claimed(self, stream: str, entries: Sequence[Any], min_idle_ms: int) -> Iterator[Delivery]:
        """Each is claimed when its turn has come, and only then counts as delivered once more: an event that
        kills whoever handles it must not take those behind it along."""
        for entry in entries:
            entry_id = entry["message_id"]
            with translated():
                found: Any = self._client.xclaim(stream, GROUP, self._consumer, min_idle_ms, [entry_id])
                fields = next((fields for _, fields in found if fields), None)
                if fields is None:
                    self._let_go(stream, entry_id)
            if fields is not None:
                yield self._delivery(stream, entry_id, fields, int(entry["times_delivered"]) + 1)

    def _let_go(self, stream: str, entry_id: str) -> None:
        """Acknowledge what was deleted from a stream: 6.2 would keep it pending for ever."""
        if not self._client.xrange(stream, entry_id, entry_id):
            self._client.xack(stream, GROUP, entry_id)

    def _delivery(
        self, stream: str, entry_id: str, fields: Mapping[str, str], deliveries: int = 1
    ) -> Delivery:
        event: Event | None = None
        problem: str | None = None
        try:
            event = read_event(fields, is_start=stream == self._keys.starts)
        except InvalidEvent as error:
            problem = str(error)
        # Anybody can name an id; one from the future says nothing of the time.
        at_ms, now_ms = int(entry_id.partition("-")[0]), round(time.time() * 1000)
        at_ms = at_ms if at_ms < now_ms + FUTURE_MS else now_ms
        return Delivery(EventRef(stream, entry_id), at_ms, event, problem, dict(fields), deliveries)

    # ---- answering

    def reject(self, delivery: Delivery, reason: str, answer: dict[str, Any] | None = None) -> None:
        """Move an event to the dead letters, with a reason, and acknowledge it; whoever waits for what it
        should have brought hears of it."""
        keys, ref = self._keys, delivery.ref
        shown = {name: value[:SHOWN_OF_A_FIELD] for name, value in delivery.fields.items()}
        letter = {
            "reason": reason[:SHOWN_OF_A_FIELD],
            "stream": ref.stream,
            "entry": ref.entry_id,
            "event": dumps(shown),
        }
        said: list[Command] = [
            ["XADD", keys.dead, "MAXLEN", "~", DEAD_LETTERS_KEPT, "*", *flat(letter)],
            ["HINCRBY", keys.counters, "dead", 1],
        ]
        said += self._answering(delivery, answer or {"ok": False, "reason": reason})
        if isinstance(delivery.event, ScheduleEvent):  # its timer is gone, and nothing else would look again
            again_ms = max(delivery.at_ms, round(time.time() * 1000)) + LOOK_AGAIN_MS
            said.append(["ZADD", keys.timers, again_ms, schedule_member(delivery.event.name)])
        told = _told(delivery, reason[:SHOWN_OF_A_FIELD])
        if told is not None:
            said.append(["XADD", keys.events_of(told.workflow_execution_id), "*", *flat(event_fields(told))])
        self._dismiss(delivery, said)

    def answer(self, delivery: Delivery, answer: dict[str, Any]) -> None:
        """Acknowledge an event with an answer."""
        self._dismiss(delivery, self._answering(delivery, answer))

    def drop(self, delivery: Delivery) -> None:
        """Acknowledge an event that means nothing any more."""
        self._dismiss(delivery, [])

    def _answering(self, delivery: Delivery, answer: dict[str, Any]) -> list[Command]:
        """A start is answered under its own id, anything else under the name that it gave, if any."""
        is_start = delivery.ref.stream == self._keys.starts
        name = delivery.ref.entry_id if is_start else reply_of(delivery.fields)
        if name is None:
            return []
        return answer_commands(self._keys.answer(name), answer)

    def _dismiss(self, delivery: Delivery, said: Sequence[Command]) -> None:
        ref = delivery.ref
        args: Command = [GROUP, ref.entry_id]
        schedule = delivery.fields.get("schedule") if ref.stream == self._keys.starts else None
        hints = [] if schedule is None else [hint_to(schedule, self._keys)]
        for command in (*said, *hints):
            args += [len(command), *command]
        with translated():
            self._dismissal([ref.stream], args)

    # ---- signals that come early

    def kept_signals(self, execution_id: str) -> list[dict[str, Any]]:
        with translated():
            found: Any = self._client.lrange(self._keys.signals(execution_id), 0, -1)
        return [loads(signal) for signal in found]

    def keep_signal(self, delivery: Delivery) -> bool:
        event, keys = delivery.event, self._keys
        assert isinstance(event, SignalEvent)
        execution_id = event.workflow_execution_id
        signal = dumps({"name": event.name, "payload": event.payload})
        args: Command = [signal, GROUP, delivery.ref.entry_id, SIGNALS_KEPT_S]
        for command in self._answering(delivery, {"ok": True, "kept": True, "status": None}):
            args += [len(command), *command]
        with translated():
            kept = self._keep_signal(
                [keys.execution(execution_id), keys.signals(execution_id), delivery.ref.stream], args
            )
        return bool(kept)

    # ---- keeping house

    def tend(self) -> int:
        """Raise what is due, say that we are alive, and settle who reads which stream."""
        keys = self._keys
        with translated():
            raised, *alive = self._sweep(
                [keys.leases, keys.timers, keys.sequences, keys.coordinators, keys.dispatched],
                [
                    keys.events(0)[:-1],
                    keys.partitions,
                    self._grace_ms,
                    SWEEP_AT_MOST,
                    self._consumer,
                    DEAD_AFTER_MS,
                    int(time.monotonic() >= self._judge_after),
                ],
            )
        me = alive.index(self._consumer)
        self._mine = [n for n in range(keys.partitions) if n % len(alive) == me]
        return int(raised)

    def trim(self) -> int:
        keys, dropped, over = self._keys, 0, DROPPED_AT_ONCE
        args = [len(self._streams), self._retention_ms, GROUP, GONE_AFTER_MS, DROPPED_AT_ONCE]
        args += [keys.workflow(""), keys.history(""), keys.lines(""), keys.execution(""), keys.indexes]
        while over == DROPPED_AT_ONCE:
            with translated():
                entries, over = self._trim([*self._streams, keys.ended], args)
            dropped += int(entries)
        return dropped

    def close(self) -> None:
        """Leave the streams to the others at once, instead of when we are found dead."""
        with translated(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._keys.coordinators, self._consumer)
            for stream in self._streams:
                pipe.xpending_range(stream, GROUP, "-", "+", 1, consumername=self._consumer)
            _, *pending = pipe.execute(raise_on_error=False)
            for stream, left in zip(self._streams, pending, strict=True):
                if left == []:  # whoever has something pending is kept: it would be dropped with him
                    pipe.xgroup_delconsumer(stream, GROUP, self._consumer)
            pipe.execute(raise_on_error=False)


def _told(delivery: Delivery, reason: str) -> ResultEvent | None:
    """What an execution hears when an event that it waits for is refused. A result that nobody can read is a
    failure of its dispatch: without this word, whoever has no deadline would wait for ever."""
    parent = read_parent(delivery.fields)
    if parent is not None:
        return refused_child(parent, reason)
    return unreadable_result(delivery.fields, reason) if delivery.event is None else None
