"""The present state: streams, queues, timers, slots, processes and executions, as `doctor` sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.metrics_core import Metric

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.metric_counts import MAX_NAME_CHARS
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.diagnosis.snapshot import RedisSnapshot
from orchestrator.diagnosis.throughput import OVERDUE_MS
from orchestrator.metrics.families import MAX_LABELS, gauge, gauges
from orchestrator.redis_rq.connection import execute_pipeline
from orchestrator.redis_rq.keys import SLOT_WAITER
from orchestrator.redis_rq.queries.rq_workers import RqQueue, RqWorker, rq_queues

MAX_KEYS_IN_USE = 10_000
"""The slots of this many concurrency keys are counted."""

WORKER_STATES = ("idle", "busy", "suspended", "started")
"""The states of RQ that are shown by their name."""


def read_gauges(snapshot: RedisSnapshot) -> Iterator[Metric]:
    yield from _executions(snapshot)
    yield from _streams(snapshot)
    queues = rq_queues(snapshot, MAX_LABELS)
    workers = [one for one in snapshot.workers if _serves_us(snapshot, one)]
    yield from _queues(snapshot, queues, workers)
    yield from _workers(workers)
    yield from _coordinators(snapshot)
    yield from _timers(snapshot)
    yield from _slots(snapshot)


def _executions(snapshot: RedisSnapshot) -> Iterator[Metric]:
    with snapshot.client.pipeline(transaction=False) as pipe:
        for status in WorkflowStatus:
            pipe.zcard(snapshot.keys.index(status))
        found = execute_pipeline(pipe)
    values = {(str(status),): _count(reply) for status, reply in zip(WorkflowStatus, found, strict=True)}
    yield gauges("executions", "Executions by status, as `list` shows them.", ("status",), values)


def _streams(snapshot: RedisSnapshot) -> Iterator[Metric]:
    streams = {
        (one.name.removeprefix(f"{snapshot.keys.prefix}:"),): one
        for one in snapshot.streams()[: MAX_LABELS + 1]
    }
    label = ("stream",)
    unread = {name: one.unread for name, one in streams.items()}
    pending = {name: one.pending for name, one in streams.items()}
    ages = {name: one.age_ms(snapshot.now) / 1000 for name, one in streams.items()}
    yield gauges("stream_unread_events", "Events that no coordinator has read.", label, unread)
    yield gauges("stream_pending_events", "Events that were read and not handled.", label, pending)
    text = "How long the oldest event has waited."
    yield gauges("stream_oldest_event_seconds", text, label, ages)


def _queues(
    snapshot: RedisSnapshot, queues: Sequence[RqQueue], workers: Sequence[RqWorker]
) -> Iterator[Metric]:
    labels = {one.name: (snapshot.keys.queue_name(one.name)[:MAX_NAME_CHARS],) for one in queues}
    label = ("queue",)
    waiting = {labels[one.name]: one.waiting for one in queues}
    failed = {labels[one.name]: one.failed for one in queues}
    held = {labels[one.name]: one.held for one in queues}
    served = Counter(name for one in workers if one.is_alive for name in set(one.queues))
    serving = {labels[one.name]: served[one.name] for one in queues}
    ages = {labels[one.name]: _oldest_age_s(snapshot, one) for one in queues}
    yield gauges("queue_waiting_jobs", "Jobs that wait for a worker.", label, waiting)
    yield gauges("queue_oldest_job_seconds", "How long the oldest job has waited.", label, ages)
    yield gauges("queue_failed_jobs", "Jobs that RQ lists as failed.", label, failed)
    yield gauges("queue_held_starts", "Starts that wait until the queue has room.", label, held)
    yield gauges("queue_workers", "Live workers that serve the queue.", label, serving)


def _oldest_age_s(snapshot: RedisSnapshot, queue: RqQueue) -> float:
    if not queue.waiting or queue.oldest_at is None:
        return 0.0
    return max(snapshot.now - parse_iso_ms(queue.oldest_at), 0) / 1000


def _serves_us(snapshot: RedisSnapshot, worker: RqWorker) -> bool:
    return any(name.startswith(f"{snapshot.keys.prefix}.") for name in worker.queues)


def _workers(workers: Sequence[RqWorker]) -> Iterator[Metric]:
    states = dict.fromkeys(((state,) for state in (*WORKER_STATES, "other", "gone")), 0)
    for one in workers:
        state = one.state if one.state in WORKER_STATES else "other"
        states[(state if one.is_alive else "gone",)] += 1
    text = "Workers by state; `gone` are registered and show no sign of life."
    yield gauges("workers", text, ("state",), states)


def _coordinators(snapshot: RedisSnapshot) -> Iterator[Metric]:
    alive = sum(one.is_alive(snapshot.now) for one in snapshot.heartbeats)
    yield gauge("coordinators", "Live coordinators.", alive)
    ages = {
        (one.name[:MAX_NAME_CHARS],): max(snapshot.now - one.at_ms, 0) / 1000
        for one in snapshot.heartbeats[:MAX_LABELS]
    }
    text = "How long ago each coordinator has finished a turn of its loop."
    yield gauges("coordinator_last_turn_seconds", text, ("coordinator",), ages)


def _timers(snapshot: RedisSnapshot) -> Iterator[Metric]:
    keys, due_before = snapshot.keys, snapshot.now - OVERDUE_MS
    with snapshot.client.pipeline(transaction=False) as pipe:
        for key in (keys.timers, keys.leases):
            pipe.zcard(key)
            pipe.zcount(key, "-inf", due_before)
        pipe.xlen(keys.dead_letters)
        pipe.scard(keys.partial)
        timers, late_timers, leases, late_leases, dead, partial = map(_count, execute_pipeline(pipe))
    overdue = f"by more than {OVERDUE_MS // 1000} s"
    yield gauge("timers", "Timers of retries, waits, deadlines and schedules.", timers)
    yield gauge("timers_overdue", f"Timers that are overdue {overdue}.", late_timers)
    yield gauge("leases", "Dispatches that have not ended.", leases)
    yield gauge("leases_overdue", f"Leases of lost workers that are overdue {overdue}.", late_leases)
    yield gauge("dead_letters", "Dead letters that are kept.", dead)
    yield gauge("executions_to_repair", "Executions that were written in part.", partial)


def _slots(snapshot: RedisSnapshot) -> Iterator[Metric]:
    """The holders and waiters of concurrency keys. Beyond MAX_KEYS_IN_USE keys, which have the fewest, each
    counts as one holder."""
    key = snapshot.keys.slots
    with snapshot.client.pipeline(transaction=False) as pipe:
        pipe.zcard(key)
        pipe.zrange(key, 0, MAX_KEYS_IN_USE - 1, desc=True, withscores=True)
        total, found = execute_pipeline(pipe)
    scores = [int(score) for _, score in found] if isinstance(found, list) else []
    in_use = _count(total)
    held = sum(score % SLOT_WAITER for score in scores) + max(in_use - len(scores), 0)
    yield gauge("concurrency_keys", "Concurrency keys with holders or waiters.", in_use)
    yield gauge("slots_held", "Slots of concurrency keys that are held.", held)
    text = "Steps and executions that wait for a slot of a concurrency key."
    yield gauge("slots_waited_for", text, sum(score // SLOT_WAITER for score in scores))


def _count(reply: Any) -> int:
    return reply if isinstance(reply, int) else 0
