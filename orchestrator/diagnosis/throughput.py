"""What moves executions on: coordinators, streams, timers, leases, queues and those who serve them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.diagnosis.checks import Check, ok, problem, warning
from orchestrator.diagnosis.dispatches import worker_command
from orchestrator.diagnosis.snapshot import RedisSnapshot
from orchestrator.redis_rq.connection import execute_pipeline, translate_errors
from orchestrator.redis_rq.queries.inspection import Stream
from orchestrator.redis_rq.queries.pending_events import all_streams
from orchestrator.redis_rq.queries.rq_workers import RqQueue, rq_queues

BEHIND_MS, FAR_BEHIND_MS = 5_000, 60_000
OVERDUE_MS = 10_000
"""Sweeps come every half second, after an outage a little later: beyond this nobody sweeps."""
DEEP, OLD_JOB_MS = 10_000, 600_000
LONG_STREAM = 100_000
HIGHEST_PARTITION = 256


def check_throughput(snapshot: RedisSnapshot) -> list[Check]:
    streams, queues = snapshot.streams(), rq_queues(snapshot)
    return [
        _coordinators(snapshot),
        _lag(snapshot, "starts", streams[:1]),
        _lag(snapshot, "events", streams[1:]),
        _lengths(streams),
        _partitions(snapshot),
        _overdue(snapshot, "timers", snapshot.keys.timers, "timers"),
        _overdue(snapshot, "leases", snapshot.keys.leases, "leases of dispatches"),
        _workers(snapshot, queues),
        _queues(snapshot, queues),
        _failed_jobs(queues),
    ]


def _coordinators(snapshot: RedisSnapshot) -> Check:
    alive = [beat for beat in snapshot.beats if beat.is_alive(snapshot.now)]
    advice = "start one: orchestrator coordinator"
    if not alive:
        was = (
            f"; the last beat was {format_duration(snapshot.now - snapshot.beats[0].at_ms)} ago"
            if snapshot.beats
            else ""
        )
        return problem("coordinators", f"no coordinator is alive{was}: nothing moves on", advice)
    last = format_duration(snapshot.now - min(beat.at_ms for beat in alive))
    found = f"{len(alive)} alive, all have come round within {last}: {join_names(one.name for one in alive)}"
    return ok("coordinators", found)


def _lag(snapshot: RedisSnapshot, name: str, streams: Sequence[Stream]) -> Check:
    unread, pending = sum(one.unread for one in streams), sum(one.pending for one in streams)
    worst = max(streams, key=lambda one: one.age_ms(snapshot.now))
    age_ms = worst.age_ms(snapshot.now)
    found = f"{unread} unread, {pending} not acknowledged"
    if age_ms < BEHIND_MS:
        return ok(name, found)
    found = f"{found}; the oldest, in {worst.name}, has waited for {format_duration(age_ms)}"
    advice = "start more coordinators, or find out in their logs what holds them up"
    return (problem if age_ms >= FAR_BEHIND_MS else warning)(name, found, advice)


def _lengths(streams: Sequence[Stream]) -> Check:
    """Coordinators trim what was acknowledged; only what waits may be long."""
    idle = [stream for stream in streams if stream.length - stream.waiting > LONG_STREAM]
    total = f"{sum(stream.length for stream in streams)} entries in {len(streams)} streams"
    if idle:
        names = join_names(f"{stream.name} ({stream.length})" for stream in idle)
        advice = "coordinators trim every ten seconds: is another consumer group on these streams behind?"
        return warning("streams", f"acknowledged entries are not trimmed: {names}", advice)
    return ok("streams", total)


def _partitions(snapshot: RedisSnapshot) -> Check:
    """Streams beyond all that coordinators read: whoever wrote there has a higher setting than they."""
    keys, read = snapshot.keys, len(all_streams(snapshot.client, snapshot.keys)) - 1
    beyond = range(read, max(HIGHEST_PARTITION, read))
    with translate_errors(), snapshot.client.pipeline(transaction=False) as pipe:
        for n in beyond:
            pipe.xlen(keys.events(n))
        lengths = execute_pipeline(pipe)
    filled = [
        n for n, length in zip(beyond, lengths, strict=True) if not isinstance(length, Exception) and length
    ]
    waiting = [stream for stream in snapshot.streams(list(map(keys.events, filled))) if stream.waiting]
    setting = f"ORCHESTRATOR_PARTITIONS is {keys.partitions} here"
    if waiting:
        names = join_names(f"{stream.name} ({stream.waiting})" for stream in waiting)
        advice = (
            "give ORCHESTRATOR_PARTITIONS of whoever wrote there to a coordinator too: then all read them"
        )
        return problem("partitions", f"{setting}, but events wait in {names}", advice)
    return ok("partitions", setting)


def _overdue(snapshot: RedisSnapshot, name: str, key: str, what: str) -> Check:
    client = snapshot.client
    with translate_errors():
        total = int(client.zcard(key))
        late: Any = client.zcount(key, "-inf", snapshot.now - OVERDUE_MS)
        first: Any = client.zrange(key, 0, 0, withscores=True)
    if not late:
        return ok(name, f"{total} {what}, none overdue")
    age = format_duration(snapshot.now - first[0][1])
    found = f"{late} of {total} {what} are overdue, the first by {age}"
    return problem(name, found, "nobody sweeps: look at the check coordinators")


def _workers(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check:
    """Whether somebody listens wherever jobs wait."""
    alive = [worker for worker in snapshot.workers if worker.is_alive]
    served = {name for worker in alive for name in worker.queues}
    deserted = [queue for queue in queues if queue.depth and queue.name not in served]
    if deserted:
        names = join_names(f"{queue.name} ({queue.depth} jobs)" for queue in deserted)
        advice = f"start one: {worker_command(snapshot, deserted[0].name)}"
        return problem("workers", f"no worker listens to {names}", advice)
    ours = [one for one in alive if any(name.startswith(f"{snapshot.keys.prefix}.") for name in one.queues)]
    busy = sum(worker.is_busy for worker in ours)
    if not ours:
        advice = "start one: orchestrator worker default"
        return warning("workers", "no worker serves any of our queues; no job waits yet", advice)
    return ok("workers", f"{len(ours)} serve our queues, {busy} of them busy")


def _queues(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check:
    depth = sum(queue.depth for queue in queues)
    with translate_errors():
        full: Any = snapshot.client.get(snapshot.keys.full)
    if full is not None:
        worst = max(queues, key=lambda queue: queue.depth)
        found = f"{full} jobs wait for workers: coordinators take no starts"
        return problem("queues", found, f"start more workers: {worker_command(snapshot, worst.name)}")
    old = [(_age_ms(snapshot, queue), queue) for queue in queues if queue.depth]
    if not old:
        return ok("queues", "no job waits")
    age_ms, worst = max(old, key=lambda one: one[0])
    found = f"{depth} jobs wait, the oldest in {worst.name} for {format_duration(age_ms)}"
    if depth >= DEEP or age_ms >= OLD_JOB_MS:
        return warning("queues", found, f"start more workers: {worker_command(snapshot, worst.name)}")
    return ok("queues", found)


def _age_ms(snapshot: RedisSnapshot, queue: RqQueue) -> float:
    try:
        at = datetime.fromisoformat(queue.oldest_at or "").timestamp() * 1000
    except ValueError:
        return 0.0  # all that was looked at has been revoked, or is none of our jobs
    return max(snapshot.now - at, 0.0)


def _failed_jobs(queues: Sequence[RqQueue]) -> Check:
    failed = [queue for queue in queues if queue.failed]
    if not failed:
        return ok("failed_jobs", "RQ has no failed job of ours")
    names = join_names(f"{queue.name} ({queue.failed})" for queue in failed)
    advice = "coordinators take them up within a second: look at the check coordinators"
    return warning("failed_jobs", f"RQ keeps failed jobs of ours: {names}", advice)
