"""The reasons that no record knows: their codes, and the look at Redis that all of them share."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from orchestrator.application.explain.reasons import Reason
from orchestrator.application.explain.text import format_duration
from orchestrator.redis_rq.event_log import DEAD_AFTER_MS
from orchestrator.redis_rq.queries.inspection import CoordinatorHeartbeat, Inspection, Stream
from orchestrator.redis_rq.queries.rq_workers import RqWorker, rq_workers

REPAIR_ADVICE = "orchestrator verify --repair puts it right"
LAG_MS = 2_000
"""Who has waited less than this waits for nobody in particular."""


class RedisReasonCode(StrEnum):
    """What only Redis can say."""

    HOLDERS = "holders"
    HOLDER_GONE = "holder_gone"
    DEADLOCK = "deadlock"
    SLOT_GRANTED = "place_given"
    SLOT_LOST = "place_lost"
    QUEUED = "queued"
    NO_WORKER = "no_worker"
    WORKERS_BUSY = "workers_busy"
    TAKEN = "taken"
    LEASED = "leased"
    LEASE_OVERDUE = "lease_overdue"
    LEASE_MISSING = "lease_missing"
    CHILD_WAITS = "child_waits"
    CHILD_UNREGISTERED = "child_unregistered"
    NO_COORDINATOR = "no_coordinator"
    LAG = "lag"
    START_WAITS = "start_waits"
    START_REJECTED = "start_refused"
    QUEUES_FULL = "full"
    SIGNALS_KEPT = "signals_kept"
    RECORD_GONE = "record_gone"


class RedisSnapshot(Inspection):
    """One look at Redis: what several findings need is read once."""

    @cached_property
    def now(self) -> int:
        return self.now_ms()

    @cached_property
    def workers(self) -> list[RqWorker]:
        return rq_workers(self)

    @cached_property
    def beats(self) -> list[CoordinatorHeartbeat]:
        return self.coordinators()

    @property
    def has_live_coordinator(self) -> bool:
        return any(beat.is_alive(self.now) for beat in self.beats)

    def explain_coordinators(self, execution: str, starts: bool = False) -> list[Reason]:
        """Why an event of an execution is not handled: nobody is there to do so, or they are behind."""
        found = []
        if not self.has_live_coordinator:
            last = self.beats[0] if self.beats else None
            was = f"; {last.name} was the last, {format_duration(self.now - last.at_ms)} ago" if last else ""
            words = f"no coordinator has come round within {DEAD_AFTER_MS // 1000} s{was}: nothing moves on"
            found.append(
                Reason(RedisReasonCode.NO_COORDINATOR, words, advice="start one: orchestrator coordinator")
            )
        name = self.keys.starts if starts else self.keys.events_of(execution)
        [stream] = self.streams([name])
        if stream.waiting and (stream.age_ms(self.now) >= LAG_MS or not self.has_live_coordinator):
            mine = 0 if starts else self._own(execution, stream)
            of_it = f" ({mine} of the first ones for this execution)" if mine else ""
            words = (
                f"{stream.unread} events of {stream.name} are unread, {stream.pending} not acknowledged"
                f"{of_it}; the oldest has waited for {format_duration(stream.age_ms(self.now))}"
            )
            found.append(
                Reason(RedisReasonCode.LAG, words, advice="coordinators are behind: orchestrator doctor")
            )
        return found

    def _own(self, execution: str, stream: Stream) -> int:
        entries = [*self.pending(stream, 200), *self.unread(stream, 200)]
        return sum(1 for _, fields in entries if fields.get("execution") == execution)
