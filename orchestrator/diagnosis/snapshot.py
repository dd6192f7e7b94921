"""A snapshot of Redis that all explanations share, and the codes of reasons that only Redis shows."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from orchestrator.application.explain.reasons import Reason
from orchestrator.application.explain.text import format_duration
from orchestrator.redis_rq.declined import DeclinedStep
from orchestrator.redis_rq.event_log import DEAD_AFTER_MS
from orchestrator.redis_rq.queries.declined_steps import declined_steps
from orchestrator.redis_rq.queries.inspection import CoordinatorHeartbeat, Inspection, Stream
from orchestrator.redis_rq.queries.rq_workers import RqWorker, rq_workers

REPAIR_ADVICE = "repair it: orchestrator check-consistency --repair"
LAG_MS = 2_000
"""An event that has waited for less time than this is not reported as lag."""


class RedisReasonCode(StrEnum):
    """Reasons that only Redis shows."""

    HOLDERS = "holders"
    HOLDER_GONE = "holder_gone"
    DEADLOCK = "deadlock"
    SLOT_GRANTED = "place_given"
    SLOT_LOST = "place_lost"
    QUEUED = "queued"
    NO_WORKER = "no_worker"
    WORKERS_BUSY = "workers_busy"
    NO_EXECUTOR = "no_executor"
    EXECUTOR_BUSY = "executor_busy"
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
    """Queries Redis; what several explanations need is read once and kept."""

    @cached_property
    def now(self) -> int:
        return self.now_ms()

    @cached_property
    def workers(self) -> list[RqWorker]:
        return rq_workers(self)

    @cached_property
    def declined(self) -> list[DeclinedStep]:
        return declined_steps(self)

    @cached_property
    def heartbeats(self) -> list[CoordinatorHeartbeat]:
        return self.coordinators()

    @property
    def has_live_coordinator(self) -> bool:
        return any(heartbeat.is_alive(self.now) for heartbeat in self.heartbeats)

    def explain_coordinators(self, execution: str, starts: bool = False) -> list[Reason]:
        """Explain why the events of an execution wait: no coordinator is alive, or they are behind."""
        found = []
        if not self.has_live_coordinator:
            last = self.heartbeats[0] if self.heartbeats else None
            ago = f"; the last was {last.name}, {format_duration(self.now - last.at_ms)} ago" if last else ""
            words = f"no coordinator has sent a heartbeat within {DEAD_AFTER_MS // 1000} s{ago}"
            advice = "start one: orchestrator coordinator"
            found.append(Reason(RedisReasonCode.NO_COORDINATOR, words, advice=advice))
        name = self.keys.starts if starts else self.keys.events_of(execution)
        [stream] = self.streams([name])
        if stream.waiting and (stream.age_ms(self.now) >= LAG_MS or not self.has_live_coordinator):
            own = 0 if starts else self._count_events_of(execution, stream)
            of_these = f" (at least {own} of them for this execution)" if own else ""
            words = (
                f"{stream.name} has {stream.unread} unread and {stream.pending} unacknowledged events"
                f"{of_these}; the oldest has waited for {format_duration(stream.age_ms(self.now))}"
            )
            advice = "coordinators are behind; check them: orchestrator doctor"
            found.append(Reason(RedisReasonCode.LAG, words, advice=advice))
        return found

    def _count_events_of(self, execution: str, stream: Stream) -> int:
        """Count the events of an execution among the first ones of a stream."""
        entries = [*self.pending(stream, 200), *self.unread(stream, 200)]
        return sum(1 for _, fields in entries if fields.get("execution") == execution)
