"""RedisEventLog: the event streams, as one coordinator reads them.

Executions are spread over a few streams. Each stream is read by one coordinator, so that its cache has the
records of the executions. Which coordinator reads which stream follows from the list of live coordinators.
Two coordinators that disagree for a moment read the same stream. That costs time, but loses nothing, because
every commit is guarded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis

from orchestrator.application.engine.create import reject_child
from orchestrator.application.engine.signals import (
    MAX_KEPT_SIGNAL_BYTES,
    MAX_KEPT_SIGNALS,
    too_many_signals,
)
from orchestrator.application.errors import StoreError
from orchestrator.application.records.events import ResultEvent, ScheduleEvent, SignalEvent, StartEvent
from orchestrator.application.records.metric_counts import REJECTED, SEPARATOR
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.backend.ports import Delivery, EventRef, Queue
from orchestrator.redis_rq.commit_args import (
    Command,
    flatten_fields,
    release_commands,
    reply_commands,
    schedule_hint_command,
)
from orchestrator.redis_rq.connection import Client, is_transient_text, translate_errors
from orchestrator.redis_rq.event_codec import (
    event_fields,
    read_event,
    read_parent,
    reply_of,
    unreadable_result,
)
from orchestrator.redis_rq.held_starts import HeldStarts, read_held_start
from orchestrator.redis_rq.json_codec import dumps, loads
from orchestrator.redis_rq.keys import GROUP, Keys, OwnStreams, schedule_member
from orchestrator.redis_rq.letter_limits import MAX_LETTER_REASON_CHARS, letter_fields
from orchestrator.redis_rq.read_size import QUIET_COUNT, ReadSize
from orchestrator.redis_rq.scripts import Script
from orchestrator.redis_rq.stream_health import MAX_FUTURE_MS, StreamHealth
from orchestrator.settings import GRACE_MS, MAX_QUEUED, RETENTION_S

logger = logging.getLogger(__name__)

DEAD_AFTER_MS = 5_000
CONSUMER_GONE_AFTER_MS = 3_600_000
LEASE_RECOVERY_S = 8.0
"""After an outage workers renew their leases within a quarter of a lease. Until then no lease is checked."""
SCHEDULE_RECHECK_MS = 60_000
SIGNAL_RETENTION_S = 86_400
MAX_SWEPT = 500
SUSPECT_AFTER_DELIVERIES = 2
"""An event that was read, reclaimed once and still not handled may have killed both coordinators."""
MAX_DEAD_LETTERS = 100_000
DROP_BATCH_SIZE = 500

_FLUSHED = ("NOGROUP", "UNBLOCKED the stream key no longer exists")


class RedisEventLog:
    def __init__(
        self,
        client: Client,
        consumer: str,
        keys: Keys | None = None,
        grace_ms: int = GRACE_MS,
        retention_s: int = RETENTION_S,
        lease_recovery_s: float = LEASE_RECOVERY_S,
        max_queued: int = MAX_QUEUED,
        own_streams: OwnStreams | None = None,
        quiet_count: int = QUIET_COUNT,
    ) -> None:
        self._client, self._consumer, self._keys = client, consumer, keys or Keys()
        self._grace_ms, self._retention_ms = grace_ms, retention_s * 1000
        self._lease_recovery_s, self._check_leases_at = lease_recovery_s, 0.0
        self._held_starts = HeldStarts(client, consumer, self._keys, max_queued)
        self._sweep, self._trim = (
            Script(client, "sweep", "errors", "job_lease"),
            Script(client, "trim", "stream_info"),
        )
        self._keep_signal = Script(client, "keep_signal", "errors", "run_commands")
        self._acknowledge_script = Script(client, "acknowledge", "errors", "run_commands")
        self._streams_health = StreamHealth(client, self._keys)
        self.next_timer_s: float | None = None
        self.has_secrets = False
        self.reads_starts = True
        self._sweep_errors: frozenset[str] = frozenset()
        self._own_streams = own_streams or OwnStreams(self._keys)
        self._own_streams.partitions = range(self._keys.partitions)
        self._streams = self._keys.streams(self._keys.partitions)
        self._read_size = ReadSize(len(self._streams), quiet_count)

    # ---- reading

    def open(self) -> None:
        """Create the streams and their group. The group starts at the first entry, so that events that were
        sent before are delivered."""
        self._check_leases_at = time.monotonic() + self._lease_recovery_s
        self._create_groups(self._streams)
        self._streams_health.heal(self._streams)

    def _create_groups(self, streams: Sequence[str]) -> None:
        with translate_errors():
            for stream in streams:
                try:
                    self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)
                except redis.exceptions.ResponseError as error:
                    if not str(error).startswith("BUSYGROUP"):
                        raise

    def read(self, count: int, block_ms: int) -> list[Delivery]:
        """New events; waits up to `block_ms` for the first of them. Held starts whose queue has room again
        come first."""
        count = self._read_size.limit(count)
        held = self._held_starts.read(count) if self.reads_starts else []
        starts = [self._keys.starts] if self.reads_starts else []
        wanted: dict[Any, Any] = dict.fromkeys([*starts, *self._own_streams.streams], ">")
        if not wanted:  # other coordinators read the streams of all events
            time.sleep(block_ms / 1000)
            return []
        with translate_errors():
            try:
                found: Any = self._client.xreadgroup(
                    GROUP, self._consumer, wanted, count=count, block=None if held else block_ms or None
                )
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith(_FLUSHED):
                    raise
                logger.error("the event streams and all executions are gone: Redis was flushed")
                self.open()  # new events are still served
                return []
        # An entry without fields was deleted meanwhile: there is nothing to handle.
        deliveries = [
            self._delivery(stream, entry_id, fields)
            for stream, entries in (*held, *(found or ()))
            for entry_id, fields in entries
            if fields
        ]
        self._read_size.adapt(deliveries)
        return deliveries

    def read_unfinished(self, count: int, held: Container[EventRef] = ()) -> Iterator[list[Delivery]]:
        """Events that this coordinator has read and not acknowledged: it handles them first after an
        outage."""
        for stream in self._streams:
            after = "-"
            while entries := self._pending(stream, after, count):
                yield from self._claim_in_batches([(stream, entries)], 0, held)
                after = f"({entries[-1]['message_id']}"

    def _pending(self, stream: str, after: str, count: int) -> list[Any]:
        with translate_errors(), _ignore_flushed():
            found: list[Any] = self._client.xpending_range(
                stream, GROUP, after, "+", count, consumername=self._consumer
            )
            return found
        return []

    def reclaim(
        self, min_idle_ms: int, count: int, held: Container[EventRef] = ()
    ) -> Iterator[list[Delivery]]:
        """Take over events that were read long ago and not acknowledged: their coordinator is gone."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for stream in self._streams:
                pipe.xpending_range(stream, GROUP, "-", "+", count, idle=min_idle_ms)
            pending: list[Any] = pipe.execute(raise_on_error=False)
        found = zip(self._streams, pending, strict=True)
        readable = [one for one in found if not isinstance(one[1], Exception)]
        yield from self._claim_in_batches(readable, min_idle_ms, held)

    def _claim_in_batches(
        self, pending: Sequence[tuple[str, list[Any]]], min_idle_ms: int, held: Container[EventRef]
    ) -> Iterator[list[Delivery]]:
        """Claim each batch when it is asked for: only then it counts as delivered once more. Events that were
        delivered once form batches per stream. The others follow, each alone: one of them may have killed its
        coordinator, and the rest must not die with it."""
        suspects: list[tuple[str, Any]] = []
        for stream, found_entries in pending:
            entries = [one for one in found_entries if EventRef(stream, one["message_id"]) not in held]
            trusted = [entry for entry in entries if entry["times_delivered"] < SUSPECT_AFTER_DELIVERIES]
            suspects += [
                (stream, entry) for entry in entries if entry["times_delivered"] >= SUSPECT_AFTER_DELIVERIES
            ]
            while trusted:
                count = self._read_size.limit(len(trusted))
                found = self._claim(stream, trusted[:count], min_idle_ms)
                del trusted[:count]
                self._read_size.adapt(found)
                if found:
                    yield found
        for stream, entry in suspects:
            if found := self._claim(stream, [entry], min_idle_ms):
                yield found

    def _claim(self, stream: str, entries: Sequence[Any], min_idle_ms: int) -> list[Delivery]:
        """Claim events; returns those that are ours now. Another coordinator may have been faster."""
        counts = {entry["message_id"]: int(entry["times_delivered"]) + 1 for entry in entries}
        if not counts:
            return []
        with translate_errors(), _ignore_flushed():
            claimed: Any = self._client.xclaim(stream, GROUP, self._consumer, min_idle_ms, list(counts))
            found = {entry_id: fields for entry_id, fields in claimed if fields}
            self._acknowledge_deleted(stream, [entry_id for entry_id in counts if entry_id not in found])
            return [
                self._delivery(stream, entry_id, fields, counts[entry_id])
                for entry_id, fields in found.items()
            ]
        return []

    def _acknowledge_deleted(self, stream: str, entry_ids: Sequence[str]) -> None:
        """Acknowledge entries that were deleted from a stream: Redis 6.2 would keep them pending for ever."""
        with self._client.pipeline(transaction=False) as pipe:
            for entry_id in entry_ids:
                pipe.xrange(stream, entry_id, entry_id)
            for entry_id, found in zip(entry_ids, pipe.execute(), strict=True):
                if not found:
                    self._client.xack(stream, GROUP, entry_id)

    def renew(self, deliveries: Sequence[Delivery], min_idle_ms: int) -> None:
        """Reset the idle time of events. Claimed with JUSTID they do not count as delivered again. An event
        that another coordinator has claimed meanwhile stays with it."""
        held: dict[str, list[Any]] = {}
        for delivery in deliveries:
            held.setdefault(delivery.ref.stream, []).append(delivery.ref.entry_id)
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for stream, entry_ids in held.items():
                pipe.xclaim(stream, GROUP, self._consumer, min_idle_ms, entry_ids, justid=True)
            pipe.execute(raise_on_error=False)

    def read_again(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            for delivery in deliveries:
                pipe.xrange(delivery.ref.stream, delivery.ref.entry_id, delivery.ref.entry_id)
            found: list[Any] = pipe.execute()
        return [
            self._delivery(one.ref.stream, one.ref.entry_id, entries[0][1], one.delivery_count)
            for one, entries in zip(deliveries, found, strict=True)
            if entries
        ]

    def _delivery(
        self, stream: str, entry_id: str, fields: Mapping[str, str], deliveries: int = 1
    ) -> Delivery:
        origin: EventRef | None = None
        keys, ref = self._keys, EventRef(stream, entry_id)
        if is_held := keys.is_held(stream):
            origin, fields = read_held_start(fields, keys)
        source = partial(read_event, fields, is_start=is_held or stream == keys.starts)
        # Any client can choose an entry id; the time of one in the far future is not used.
        sent_as, now_ms = origin or ref, round(time.time() * 1000)
        at_ms = int(sent_as.entry_id.partition("-")[0])
        at_ms = at_ms if at_ms < now_ms + MAX_FUTURE_MS else now_ms
        return Delivery(ref, at_ms, source, dict(fields), deliveries, origin)

    # ---- acknowledging

    def reject(
        self,
        delivery: Delivery,
        reason: str,
        reply: dict[str, Any] | None = None,
        kind: RejectionKind = RejectionKind.OTHER,
    ) -> None:
        """Move an event to the dead letters, with a reason, and acknowledge it. An execution that waits for
        the event gets a failure instead."""
        keys, sent_as = self._keys, delivery.sent_as
        letter = {
            "reason": reason[:MAX_LETTER_REASON_CHARS],
            "stream": sent_as.stream,
            "entry": sent_as.entry_id,
            **letter_fields(delivery.fields),
        }
        commands: list[Command] = [
            ["XADD", keys.dead_letters, "MAXLEN", "~", MAX_DEAD_LETTERS, "*", *flatten_fields(letter)],
            ["HINCRBY", keys.counters, "dead", 1],
        ]
        if sent_as.stream == keys.starts or isinstance(delivery.event, StartEvent):
            commands.append(["HINCRBY", keys.metrics, f"{REJECTED}{SEPARATOR}{kind}", 1])
        commands += self._reply_commands(delivery, reply or {"ok": False, "reason": reason})
        if isinstance(delivery.event, ScheduleEvent):  # its timer is gone, so the schedule needs a new one
            again_ms = max(delivery.at_ms, round(time.time() * 1000)) + SCHEDULE_RECHECK_MS
            commands.append(["ZADD", keys.timers, again_ms, schedule_member(delivery.event.name)])
        fragile: list[Command] = []
        failure = _failure_for_execution(delivery, reason[:MAX_LETTER_REASON_CHARS])
        if failure is not None:
            stream = keys.events_of(failure.workflow_execution_id)
            fragile.append(["XADD", stream, "*", *flatten_fields(event_fields(failure))])
        self._acknowledge(delivery, commands, fragile)

    def reply(self, delivery: Delivery, reply: dict[str, Any]) -> None:
        """Acknowledge an event and write its reply."""
        self._acknowledge(delivery, self._reply_commands(delivery, reply))

    def drop(self, delivery: Delivery) -> None:
        """Acknowledge an event that no longer has an effect."""
        self._acknowledge(delivery, [])

    def _reply_commands(self, delivery: Delivery, reply: dict[str, Any]) -> list[Command]:
        """Write a reply: to a start under its entry id, to another event under its `reply` field, if any."""
        sent_as = delivery.sent_as
        name = sent_as.entry_id if sent_as.stream == self._keys.starts else reply_of(delivery.fields)
        if name is None:
            return []
        return reply_commands(self._keys.reply(name), reply)

    def _acknowledge(
        self, delivery: Delivery, commands: Sequence[Command], fragile: Sequence[Command] = ()
    ) -> None:
        """Acknowledge an event and run commands. After an error of a fragile command the event stays pending;
        an error of another one is logged. The start of a schedule also gets its schedule checked."""
        ref, sent_as = delivery.ref, delivery.sent_as
        schedule = delivery.fields.get("schedule") if sent_as.stream == self._keys.starts else None
        hints = [] if schedule is None else [schedule_hint_command(schedule, self._keys)]
        is_held = self._keys.is_held(ref.stream)
        released = release_commands(ref, sent_as.entry_id, self._keys) if is_held else []
        args: Command = [GROUP, ref.entry_id, len(fragile) + len(hints)]
        for command in (*fragile, *hints, *commands, *released):
            args += [len(command), *command]
        with translate_errors():
            _, *errors = self._acknowledge_script([ref.stream], args)
        for error in errors:
            logger.error(
                "a reply or a dead letter cannot be written: %s", error, extra={"event": sent_as.entry_id}
            )

    # ---- full queues

    @property
    def has_full_queues(self) -> bool:
        return self._held_starts.has_full_queues

    def hold(self, starts: Sequence[tuple[Delivery, Sequence[Queue]]]) -> list[bool]:
        return self._held_starts.hold(starts)

    # ---- early signals

    def load_early_signals(self, execution_id: str) -> list[dict[str, Any]]:
        """The signals that arrived before an execution; StoreError for unreadable ones, which rejects the
        start."""
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
        signal = dumps({"name": event.name, "payload": event.payload})
        args: Command = [signal, GROUP, delivery.ref.entry_id, SIGNAL_RETENTION_S]
        args += [MAX_KEPT_SIGNALS, MAX_KEPT_SIGNAL_BYTES]
        for command in self._reply_commands(delivery, {"ok": True, "kept": True, "status": None}):
            args += [len(command), *command]
        with translate_errors():
            kept = self._keep_signal(
                [keys.execution(execution_id), keys.signals(execution_id), delivery.ref.stream], args
            )
        if kept < 0:
            self.reject(delivery, str(too_many_signals(execution_id)))
        return bool(kept)

    # ---- sweeping and trimming

    def sweep(self) -> int:
        """Publish what is due, send a heartbeat, and divide the streams among the live coordinators."""
        keys = self._keys
        with translate_errors():
            published, limited, partitions, next_timer_ms, errors, has_secrets, alive = self._sweep(
                [
                    keys.leases,
                    keys.timers,
                    keys.sequences,
                    keys.coordinators,
                    keys.max_partitions,
                    keys.held_queues,
                ],
                [
                    keys.events(0)[:-1],
                    keys.partitions,
                    self._grace_ms,
                    MAX_SWEPT,
                    self._consumer,
                    DEAD_AFTER_MS,
                    int(time.monotonic() >= self._check_leases_at),
                    self._held_starts.max_queued,
                    keys.held(""),
                    len(keys.queue("")),
                ],
            )
        self.next_timer_s = int(next_timer_ms) / 1000 if next_timer_ms else None
        self.has_secrets = has_secrets == "1"
        self._report_sweep_errors(errors)
        self._held_starts.update(limited, coordinators=len(alive))
        self._add_streams(int(partitions))
        if self._consumer in alive:
            position = alive.index(self._consumer)
            self._own_streams.partitions = [n for n in range(int(partitions)) if n % len(alive) == position]
        return int(published)

    def _report_sweep_errors(self, errors: Sequence[str]) -> None:
        """Log what a sweep could not do; the same errors once only, since a sweep comes every half second. A
        stream that takes no more entries is repaired."""
        if errors and any(map(is_transient_text, errors)):
            self._streams_health.heal(self._streams)
        unknown = dict.fromkeys(error for error in errors if error not in self._sweep_errors)
        for error in unknown:
            logger.error("the sweep for due timers and lost steps is incomplete: %s", error)
        self._sweep_errors = frozenset(errors)

    def _add_streams(self, partitions: int) -> None:
        """Read more streams than the setting says, if it was lowered or other coordinators have a higher
        one. The streams with held starts have their group already."""
        streams = self._keys.streams(partitions)
        self._create_groups([stream for stream in streams if stream not in self._streams])
        self._streams = [*streams, *self._held_starts.streams]

    def trim(self) -> int:
        """Delete what is no longer needed, and repair streams that take no more entries."""
        self._streams_health.heal(self._streams)
        keys, trimmed, deleted = self._keys, 0, DROP_BATCH_SIZE
        args = [len(self._streams), self._retention_ms, GROUP, CONSUMER_GONE_AFTER_MS, DROP_BATCH_SIZE]
        args += [keys.workflow(""), keys.history(""), keys.step_log(""), keys.execution(""), keys.indexes]
        args.append(keys.changed(""))
        while deleted >= DROP_BATCH_SIZE:
            with translate_errors():
                entries, deleted = self._trim([*self._streams, keys.ended, keys.leaving], args)
            trimmed += int(entries)
        return trimmed

    def close(self) -> None:
        """Leave the streams to the other coordinators at once, instead of after the heartbeat has expired."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._keys.coordinators, self._consumer)
            for stream in self._streams:
                pipe.xpending_range(stream, GROUP, "-", "+", 1, consumername=self._consumer)
            _, *pending = pipe.execute(raise_on_error=False)
            for stream, left in zip(self._streams, pending, strict=True):
                if left == []:  # deleting a consumer would also delete its pending entries
                    pipe.xgroup_delconsumer(stream, GROUP, self._consumer)
            pipe.execute(raise_on_error=False)


@contextmanager
def _ignore_flushed() -> Iterator[None]:
    """Ignore a missing group: Redis was flushed or rolled back, so nothing is pending. The next read creates
    the group again."""
    try:
        yield
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith(_FLUSHED):
            raise


def _failure_for_execution(delivery: Delivery, reason: str) -> ResultEvent | None:
    """The failure of a step whose event is rejected: the start of its child, or an unreadable result. Without
    it, a step without a deadline would wait for ever."""
    parent = read_parent(delivery.fields)
    if parent is not None:
        return reject_child(parent, reason)
    return unreadable_result(delivery.fields, reason) if delivery.event is None else None
