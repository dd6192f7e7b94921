"""Checks what executions need to make progress: coordinators, streams, timers, leases, queues and workers."""

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
"""Coordinators sweep every half second, a little later after an outage: beyond this, none is sweeping."""
DEEP_QUEUE, OLD_JOB_MS = 10_000, 600_000
LONG_STREAM = 100_000
MAX_PARTITIONS_CHECKED = 256


def check_throughput(snapshot: RedisSnapshot) -> list[Check]:
    streams, queues = snapshot.streams(), rq_queues(snapshot)
    return [
        _check_coordinators(snapshot),
        _check_lag(snapshot, "starts", streams[:1]),
        _check_lag(snapshot, "events", streams[1:]),
        _check_stream_lengths(streams),
        _check_partitions(snapshot),
        _check_overdue(snapshot, "timers", snapshot.keys.timers, "timers"),
        _check_overdue(snapshot, "leases", snapshot.keys.leases, "dispatch leases"),
        _check_workers(snapshot, queues),
        _check_queues(snapshot, queues),
        _check_failed_jobs(queues),
    ]


def _check_coordinators(snapshot: RedisSnapshot) -> Check:
    alive = [heartbeat for heartbeat in snapshot.heartbeats if heartbeat.is_alive(snapshot.now)]
    if not alive:
        last = ""
        if snapshot.heartbeats:
            ago = format_duration(snapshot.now - snapshot.heartbeats[0].at_ms)
            last = f" (last heartbeat {ago} ago)"
        found = f"no coordinator is alive{last}: executions make no progress"
        return problem("coordinators", found, "start one: orchestrator coordinator")
    oldest = format_duration(snapshot.now - min(heartbeat.at_ms for heartbeat in alive))
    names = join_names(heartbeat.name for heartbeat in alive)
    return ok("coordinators", f"{len(alive)} alive, all heartbeats within {oldest}: {names}")


def _check_lag(snapshot: RedisSnapshot, name: str, streams: Sequence[Stream]) -> Check:
    unread, pending = sum(one.unread for one in streams), sum(one.pending for one in streams)
    worst = max(streams, key=lambda one: one.age_ms(snapshot.now))
    age_ms = worst.age_ms(snapshot.now)
    found = f"{unread} unread, {pending} unacknowledged"
    if age_ms < BEHIND_MS:
        return ok(name, found)
    found = f"{found}; the oldest, in {worst.name}, has waited for {format_duration(age_ms)}"
    advice = "start more coordinators, or check their logs for the cause"
    return (problem if age_ms >= FAR_BEHIND_MS else warning)(name, found, advice)


def _check_stream_lengths(streams: Sequence[Stream]) -> Check:
    """Coordinators trim acknowledged entries: a long stream is normal only if its entries are waiting."""
    untrimmed = [stream for stream in streams if stream.length - stream.waiting > LONG_STREAM]
    if untrimmed:
        names = join_names(f"{stream.name} ({stream.length})" for stream in untrimmed)
        advice = (
            "coordinators trim every ten seconds; check whether another consumer group on these streams is"
            " behind"
        )
        return warning("streams", f"acknowledged entries are not trimmed: {names}", advice)
    total = sum(stream.length for stream in streams)
    return ok("streams", f"{total} entries in {len(streams)} streams")


def _check_partitions(snapshot: RedisSnapshot) -> Check:
    """Check the streams that no coordinator reads: a process with a higher setting may have written there."""
    keys, read = snapshot.keys, len(all_streams(snapshot.client, snapshot.keys)) - 1
    unread_partitions = range(read, max(MAX_PARTITIONS_CHECKED, read))
    with translate_errors(), snapshot.client.pipeline(transaction=False) as pipe:
        for n in unread_partitions:
            pipe.xlen(keys.events(n))
        lengths = execute_pipeline(pipe)
    filled = [
        n
        for n, length in zip(unread_partitions, lengths, strict=True)
        if not isinstance(length, Exception) and length
    ]
    waiting = [stream for stream in snapshot.streams(list(map(keys.events, filled))) if stream.waiting]
    setting = f"ORCHESTRATOR_PARTITIONS is {keys.partitions} here"
    if waiting:
        names = join_names(f"{stream.name} ({stream.waiting})" for stream in waiting)
        advice = (
            "start a coordinator with the ORCHESTRATOR_PARTITIONS of the process that wrote there; then all"
            " coordinators read these streams"
        )
        return problem("partitions", f"{setting}, but events wait in {names}", advice)
    return ok("partitions", setting)


def _check_overdue(snapshot: RedisSnapshot, name: str, key: str, what: str) -> Check:
    client = snapshot.client
    with translate_errors():
        total = int(client.zcard(key))
        late: Any = client.zcount(key, "-inf", snapshot.now - OVERDUE_MS)
        first: Any = client.zrange(key, 0, 0, withscores=True)
    if not late:
        return ok(name, f"{total} {what}, none overdue")
    age = format_duration(snapshot.now - first[0][1])
    found = f"{late} of {total} {what} are overdue, the first by {age}"
    return problem(name, found, "no coordinator processes them: see the check `coordinators`")


def _check_workers(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check:
    """Check that a worker serves every queue in which jobs wait."""
    alive = [worker for worker in snapshot.workers if worker.is_alive]
    served = {name for worker in alive for name in worker.queues}
    unserved = [queue for queue in queues if queue.depth and queue.name not in served]
    if unserved:
        names = join_names(f"{queue.name} ({queue.depth} waiting)" for queue in unserved)
        advice = f"start one: {worker_command(snapshot, unserved[0].name)}"
        return problem("workers", f"no worker serves {names}", advice)
    ours = [one for one in alive if any(name.startswith(f"{snapshot.keys.prefix}.") for name in one.queues)]
    if not ours:
        found = "no worker serves any of our queues; no jobs are waiting yet"
        return warning("workers", found, "start one: orchestrator worker default")
    return ok("workers", f"{len(ours)} alive, {sum(worker.is_busy for worker in ours)} busy")


def _check_queues(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check:
    depth = sum(queue.depth for queue in queues)
    with translate_errors():
        queued: Any = snapshot.client.get(snapshot.keys.intake_paused)
    if queued is not None:
        worst = max(queues, key=lambda queue: queue.depth)
        found = f"{queued} jobs wait for workers: coordinators accept no starts"
        return problem("queues", found, f"start more workers: {worker_command(snapshot, worst.name)}")
    ages = [(_oldest_age_ms(snapshot, queue), queue) for queue in queues if queue.depth]
    if not ages:
        return ok("queues", "no jobs are waiting")
    age_ms, worst = max(ages, key=lambda one: one[0])
    found = f"{depth} waiting, the oldest in {worst.name} for {format_duration(age_ms)}"
    if depth >= DEEP_QUEUE or age_ms >= OLD_JOB_MS:
        return warning("queues", found, f"start more workers: {worker_command(snapshot, worst.name)}")
    return ok("queues", found)


def _oldest_age_ms(snapshot: RedisSnapshot, queue: RqQueue) -> float:
    try:
        at = datetime.fromisoformat(queue.oldest_at or "").timestamp() * 1000
    except ValueError:
        return 0.0  # the jobs that were checked are all revoked, or are not ours
    return max(snapshot.now - at, 0.0)


def _check_failed_jobs(queues: Sequence[RqQueue]) -> Check:
    failed = [queue for queue in queues if queue.failed]
    if not failed:
        return ok("failed_jobs", "RQ has no failed jobs in our queues")
    names = join_names(f"{queue.name} ({queue.failed})" for queue in failed)
    advice = "coordinators handle them within a second: see the check `coordinators`"
    return warning("failed_jobs", f"RQ keeps failed jobs in our queues: {names}", advice)
