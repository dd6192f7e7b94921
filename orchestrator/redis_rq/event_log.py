"""RedisEventLog: the event streams as one coordinator sees them.

Executions are spread over a few streams, and every stream has one coordinator that reads it, so that the
events of one execution meet its record in one cache. Who reads what follows from who is alive; two that
disagree for a moment share a stream and lose nothing but time, because every commit is guarded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from orchestrator.application.engine.create import reject_child
from orchestrator.application.engine.signals import MAX_KEPT_SIGNALS, too_many_signals
from orchestrator.application.errors import InvalidEvent, StoreError
from orchestrator.application.records.events import Event, ResultEvent, ScheduleEvent, SignalEvent
from orchestrator.backend.ports import Delivery, EventRef
from orchestrator.redis_rq.commit_args import Command, flatten_fields, reply_commands, schedule_hint_command
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.event_codec import (
    dumps,
    event_fields,
    loads,
    read_event,
    read_parent,
    reply_of,
    unreadable_result,
)
from orchestrator.redis_rq.keys import GROUP, Keys, OwnStreams, schedule_member
from orchestrator.redis_rq.scripts import Script
from orchestrator.redis_rq.store import RETENTION_S

logger = logging.getLogger(__name__)

DEAD_AFTER_MS = 5_000
CONSUMER_GONE_AFTER_MS = 3_600_000
GRACE_MS = 10_000
SETTLE_S = 8.0
"""After an outage those who hold leases beat again within a quarter of one; until then none is judged."""
MAX_FUTURE_MS = 86_400_000
SCHEDULE_RECHECK_MS = 60_000
SIGNAL_RETENTION_S = 86_400
MAX_SWEPT = 500
SUSPECT_AFTER_DELIVERIES = 2
"""An event that was read, taken over once and still not handled may be what killed both."""
MAX_QUEUED = 500_000
"""So many jobs may wait for workers before no execution is begun; a kilobyte each, and their inputs."""
MAX_DEAD_LETTERS = 100_000
DROP_BATCH_SIZE = 500
MAX_LETTER_FIELD_CHARS = 10_000

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
        max_queued: int = MAX_QUEUED,
        own_streams: OwnStreams | None = None,
    ) -> None:
        self._client, self._consumer, self._keys = client, consumer, keys or Keys()
        self._grace_ms, self._retention_ms, self._settle_s = grace_ms, retention_s * 1000, settle_s
        self._judge_after = 0.0
        self._max_queued, self._is_full = max_queued, False
        self._sweep, self._trim = Script(client, "sweep", "lease_in"), Script(client, "trim")
        self._keep_signal = Script(client, "keep_signal", "run_commands")
        self._dismissal = Script(client, "dismiss", "run_commands")
        self._home = own_streams or OwnStreams(self._keys)
        self._home.partitions = range(self._keys.partitions)
        self._streams = self._keys.streams(self._keys.partitions)

    # ---- reading

    def open(self) -> None:
        """Make the streams and their group, from their beginning: what was sent before us is not lost."""
        self._judge_after = time.monotonic() + self._settle_s
        self._make(self._streams)

    def _make(self, streams: Sequence[str]) -> None:
        with translate_errors():
            for stream in streams:
                try:
                    self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)
                except redis.exceptions.ResponseError as error:
                    if not str(error).startswith("BUSYGROUP"):
                        raise

    def read(self, count: int, block_ms: int) -> list[Delivery]:
        """New events; waits up to `block_ms` for the first of them. While too many jobs wait for workers, new
        starts are left where they are."""
        keys = self._keys
        streams = [*([] if self._is_full else [keys.starts]), *map(keys.events, self._home.partitions)]
        if not streams:
            time.sleep(block_ms / 1000)
            return []
        wanted: dict[Any, Any] = dict.fromkeys(streams, ">")
        with translate_errors():
            try:
                found: Any = self._client.xreadgroup(
                    GROUP, self._consumer, wanted, count=count, block=block_ms or None
                )
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith(_FLUSHED):
                    raise
                logger.error("the streams are gone, and all executions with them: somebody has flushed Redis")
                self.open()  # what comes from now on is still served
                return []
        # An entry without fields was deleted under us: there is nothing left of it to handle.
        return [
            self._delivery(stream, entry_id, fields)
            for stream, entries in found or ()
            for entry_id, fields in entries
            if fields
        ]

    def read_unfinished(self, count: int) -> Iterator[list[Delivery]]:
        """What this coordinator has read and not acknowledged: after an outage it begins with these."""
        for stream in self._streams:
            after = "-"
            while entries := self._pending(stream, after, count):
                yield from self._taken_over([(stream, entries)], 0)
                after = f"({entries[-1]['message_id']}"

    def _pending(self, stream: str, after: str, count: int) -> list[Any]:
        with translate_errors(), _nothing_if_flushed():
            found: list[Any] = self._client.xpending_range(
                stream, GROUP, after, "+", count, consumername=self._consumer
            )
            return found
        return []

    def reclaim(self, min_idle_ms: int, count: int) -> Iterator[list[Delivery]]:
        """Take over events that were read long ago and never acknowledged: their coordinator is gone."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for stream in self._streams:
                pipe.xpending_range(stream, GROUP, "-", "+", count, idle=min_idle_ms)
            pending: list[Any] = pipe.execute(raise_on_error=False)
        found = zip(self._streams, pending, strict=True)
        yield from self._taken_over([one for one in found if not isinstance(one[1], Exception)], min_idle_ms)

    def _taken_over(
        self, pending: Sequence[tuple[str, list[Any]]], min_idle_ms: int
    ) -> Iterator[list[Delivery]]:
        """Claimed when their turn has come, and only then delivered once more. Those that were delivered once
        come together. The others come behind them and each alone: one of them may have killed whoever handled
        it, and must not take the rest along."""
        suspects: list[tuple[str, Any]] = []
        for stream, entries in pending:
            trusted = [entry for entry in entries if entry["times_delivered"] < SUSPECT_AFTER_DELIVERIES]
            suspects += [
                (stream, entry) for entry in entries if entry["times_delivered"] >= SUSPECT_AFTER_DELIVERIES
            ]
            if found := self._claimed(stream, trusted, min_idle_ms):
                yield found
        for stream, entry in suspects:
            if found := self._claimed(stream, [entry], min_idle_ms):
                yield found

    def _claimed(self, stream: str, entries: Sequence[Any], min_idle_ms: int) -> list[Delivery]:
        """Those of them that are ours now; others may have been quicker."""
        counts = {entry["message_id"]: int(entry["times_delivered"]) + 1 for entry in entries}
        if not counts:
            return []
        with translate_errors(), _nothing_if_flushed():
            claimed: Any = self._client.xclaim(stream, GROUP, self._consumer, min_idle_ms, list(counts))
            found = {entry_id: fields for entry_id, fields in claimed if fields}
            self._let_go(stream, [entry_id for entry_id in counts if entry_id not in found])
            return [
                self._delivery(stream, entry_id, fields, counts[entry_id])
                for entry_id, fields in found.items()
            ]
        return []

    def _let_go(self, stream: str, entry_ids: Sequence[str]) -> None:
        """Acknowledge what was deleted from a stream: 6.2 would keep it pending for ever."""
        with self._client.pipeline(transaction=False) as pipe:
            for entry_id in entry_ids:
                pipe.xrange(stream, entry_id, entry_id)
            for entry_id, found in zip(entry_ids, pipe.execute(), strict=True):
                if not found:
                    self._client.xack(stream, GROUP, entry_id)

    def renew(self, deliveries: Sequence[Delivery], min_idle_ms: int) -> None:
        """Claimed by their ids alone they count as no further delivery. What somebody has taken from us a
        moment ago stays his."""
        held: dict[str, list[Any]] = {}
        for delivery in deliveries:
            held.setdefault(delivery.ref.stream, []).append(delivery.ref.entry_id)
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for stream, entry_ids in held.items():
                pipe.xclaim(stream, GROUP, self._consumer, min_idle_ms, entry_ids, justid=True)
            pipe.execute(raise_on_error=False)

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
        at_ms = at_ms if at_ms < now_ms + MAX_FUTURE_MS else now_ms
        return Delivery(EventRef(stream, entry_id), at_ms, event, problem, dict(fields), deliveries)

    # ---- answering

    def reject(self, delivery: Delivery, reason: str, answer: dict[str, Any] | None = None) -> None:
        """Move an event to the dead letters, with a reason, and acknowledge it; whoever waits for what it
        should have brought hears of it."""
        keys, ref = self._keys, delivery.ref
        shown = {name: value[:MAX_LETTER_FIELD_CHARS] for name, value in delivery.fields.items()}
        letter = {
            "reason": reason[:MAX_LETTER_FIELD_CHARS],
            "stream": ref.stream,
            "entry": ref.entry_id,
            "event": dumps(shown),
        }
        said: list[Command] = [
            ["XADD", keys.dead, "MAXLEN", "~", MAX_DEAD_LETTERS, "*", *flatten_fields(letter)],
            ["HINCRBY", keys.counters, "dead", 1],
        ]
        said += self._answering(delivery, answer or {"ok": False, "reason": reason})
        if isinstance(delivery.event, ScheduleEvent):  # its timer is gone, and nothing else would look again
            again_ms = max(delivery.at_ms, round(time.time() * 1000)) + SCHEDULE_RECHECK_MS
            said.append(["ZADD", keys.timers, again_ms, schedule_member(delivery.event.name)])
        told = _told(delivery, reason[:MAX_LETTER_FIELD_CHARS])
        if told is not None:
            said.append(
                ["XADD", keys.events_of(told.workflow_execution_id), "*", *flatten_fields(event_fields(told))]
            )
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
        return reply_commands(self._keys.answer(name), answer)

    def _dismiss(self, delivery: Delivery, said: Sequence[Command]) -> None:
        ref = delivery.ref
        args: Command = [GROUP, ref.entry_id]
        schedule = delivery.fields.get("schedule") if ref.stream == self._keys.starts else None
        hints = [] if schedule is None else [schedule_hint_command(schedule, self._keys)]
        for command in (*said, *hints):
            args += [len(command), *command]
        with translate_errors():
            self._dismissal([ref.stream], args)

    # ---- signals that come early

    def load_early_signals(self, execution_id: str) -> list[dict[str, Any]]:
        """StoreError for what nobody can have kept there: whoever starts this execution is told so."""
        key = self._keys.signals(execution_id)
        try:
            with translate_errors():
                found: Any = self._client.lrange(key, 0, -1)
            return [{"name": str(one["name"]), "payload": one["payload"]} for one in map(loads, found)]
        except (LookupError, ValueError, TypeError, RecursionError, redis.exceptions.ResponseError) as error:
            raise StoreError(f"the signals under {key} cannot be read, delete them: {error}") from error

    def keep_early_signal(self, delivery: Delivery) -> bool:
        event, keys = delivery.event, self._keys
        assert isinstance(event, SignalEvent)
        execution_id = event.workflow_execution_id
        if self._kept(execution_id) >= MAX_KEPT_SIGNALS:
            self.reject(delivery, str(too_many_signals(execution_id)))
            return True
        signal = dumps({"name": event.name, "payload": event.payload})
        args: Command = [signal, GROUP, delivery.ref.entry_id, SIGNAL_RETENTION_S]
        for command in self._answering(delivery, {"ok": True, "kept": True, "status": None}):
            args += [len(command), *command]
        with translate_errors():
            kept = self._keep_signal(
                [keys.execution(execution_id), keys.signals(execution_id), delivery.ref.stream], args
            )
        return bool(kept)

    def _kept(self, execution_id: str) -> int:
        with translate_errors():
            return int(self._client.llen(self._keys.signals(execution_id)))

    # ---- keeping house

    def sweep(self) -> int:
        """Raise what is due, say that we are alive, and settle who reads which stream."""
        keys = self._keys
        with translate_errors():
            raised, waiting, partitions, *alive = self._sweep(
                [
                    keys.leases,
                    keys.timers,
                    keys.sequences,
                    keys.coordinators,
                    keys.dispatched,
                    keys.max_partitions,
                ],
                [
                    keys.events(0)[:-1],
                    keys.partitions,
                    self._grace_ms,
                    MAX_SWEPT,
                    self._consumer,
                    DEAD_AFTER_MS,
                    int(time.monotonic() >= self._judge_after),
                ],
            )
        self._hold_intake(int(waiting))
        self._widen(int(partitions))
        me = alive.index(self._consumer)
        self._home.partitions = [n for n in range(int(partitions)) if n % len(alive) == me]
        return int(raised)

    def _widen(self, partitions: int) -> None:
        """There may be more streams than our setting says: it was lowered, or others have a higher one."""
        streams = self._keys.streams(partitions)
        self._make(streams[len(self._streams) :])
        self._streams = streams

    def _hold_intake(self, waiting: int) -> None:
        """Begin no execution while the workers do not keep up with those that run. Whoever asks why is told
        by a key, which is gone as soon as nobody renews it."""
        is_full = waiting >= self._max_queued
        if is_full != self._is_full:
            told = "no start is taken" if is_full else "starts are taken again"
            logger.warning("%d jobs wait for workers, of at most %d: %s", waiting, self._max_queued, told)
            with translate_errors():
                self._client.delete(self._keys.full)
        self._is_full = is_full
        if is_full:
            with translate_errors():
                self._client.set(self._keys.full, f"{waiting} of {self._max_queued}", px=DEAD_AFTER_MS)

    def trim(self) -> int:
        keys, dropped, over = self._keys, 0, DROP_BATCH_SIZE
        args = [len(self._streams), self._retention_ms, GROUP, CONSUMER_GONE_AFTER_MS, DROP_BATCH_SIZE]
        args += [keys.workflow(""), keys.history(""), keys.lines(""), keys.execution(""), keys.indexes]
        while over >= DROP_BATCH_SIZE:
            with translate_errors():
                entries, over = self._trim([*self._streams, keys.ended, keys.leaving], args)
            dropped += int(entries)
        return dropped

    def close(self) -> None:
        """Leave the streams to the others at once, instead of when we are found dead."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._keys.coordinators, self._consumer)
            for stream in self._streams:
                pipe.xpending_range(stream, GROUP, "-", "+", 1, consumername=self._consumer)
            _, *pending = pipe.execute(raise_on_error=False)
            for stream, left in zip(self._streams, pending, strict=True):
                if left == []:  # whoever has something pending is kept: it would be dropped with him
                    pipe.xgroup_delconsumer(stream, GROUP, self._consumer)
            pipe.execute(raise_on_error=False)


@contextmanager
def _nothing_if_flushed() -> Iterator[None]:
    """Whoever flushed this Redis, or put it back to before there was a group, left nothing pending; the next
    read makes the group anew."""
    try:
        yield
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith(_FLUSHED):
            raise


def _told(delivery: Delivery, reason: str) -> ResultEvent | None:
    """What an execution hears when an event that it waits for is refused. A result that nobody can read is a
    failure of its dispatch: without this word, whoever has no deadline would wait for ever."""
    parent = read_parent(delivery.fields)
    if parent is not None:
        return reject_child(parent, reason)
    return unreadable_result(delivery.fields, reason) if delivery.event is None else None
