"""Checks what executions need to make progress: coordinators, streams, timers, leases, queues and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.diagnosis.checks import Check, ok, problem, warning
from orchestrator.diagnosis.dispatches import worker_command
from orchestrator.diagnosis.missing_executors import check_missing_executors
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
        check_missing_executors(snapshot),
    ]


def _check_coordinators(snapshot: RedisSnapshot) -> Check:
    alive = [heartbeat for heartbeat in snapshot.heartbeats if heartbeat.is_alive(snapshot.now)]
    if not alive:
        last = ""
        if snapshot.heartbeats:
            ago = format_duration(snapshot.now - snapshot.heartbeats[0].at_ms)
            last = f" (last heartbeat {ago} ago)"
        found = f"no coordinator is alive{last}: executions make no progress"
        return problem("coordinators", found, "start one: orchestrator coordinator", alive=0)
    oldest_ms = max(snapshot.now - min(heartbeat.at_ms for heartbeat in alive), 0)
    names = join_names(heartbeat.name for heartbeat in alive)
    found = f"{len(alive)} alive, all heartbeats within {format_duration(oldest_ms)}: {names}"
    return ok("coordinators", found, alive=len(alive), oldest_heartbeat_ms=oldest_ms)


def _check_lag(snapshot: RedisSnapshot, name: str, streams: Sequence[Stream]) -> Check:
    unread, pending = sum(one.unread for one in streams), sum(one.pending for one in streams)
    worst = max(streams, key=lambda one: one.age_ms(snapshot.now))
    age_ms = worst.age_ms(snapshot.now)
    found = f"{unread} unread, {pending} unacknowledged"
    numbers = {"unread": unread, "unacknowledged": pending, "oldest_ms": age_ms}
    if age_ms < BEHIND_MS:
        return ok(name, found, **numbers)
    found = f"{found}; the oldest, in {worst.name}, has waited for {format_duration(age_ms)}"
    advice = "start more coordinators, or check their logs for the cause"
    return (problem if age_ms >= FAR_BEHIND_MS else warning)(name, found, advice, **numbers)


def _check_stream_lengths(streams: Sequence[Stream]) -> Check:
    """Coordinators trim acknowledged entries: a long stream is normal only if its entries are waiting."""
    untrimmed = [stream for stream in streams if stream.length - stream.waiting > LONG_STREAM]
    total = sum(stream.length for stream in streams)
    numbers = {"entries": total, "streams": len(streams), "untrimmed": len(untrimmed)}
    if untrimmed:
        names = join_names(f"{stream.name} ({stream.length})" for stream in untrimmed)
        advice = (
            "coordinators trim every ten seconds; check whether another consumer group on these streams is"
            " behind"
        )
        return warning("streams", f"acknowledged entries are not trimmed: {names}", advice, **numbers)
    return ok("streams", f"{total} entries in {len(streams)} streams", **numbers)


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
    numbers = {"partitions": keys.partitions, "waiting": sum(stream.waiting for stream in waiting)}
    if waiting:
        names = join_names(f"{stream.name} ({stream.waiting})" for stream in waiting)
        advice = (
            "start a coordinator with the ORCHESTRATOR_PARTITIONS of the process that wrote there; then all"
            " coordinators read these streams"
        )
        return problem("partitions", f"{setting}, but events wait in {names}", advice, **numbers)
    return ok("partitions", setting, **numbers)


def _check_overdue(snapshot: RedisSnapshot, name: str, key: str, what: str) -> Check:
    client = snapshot.client
    with translate_errors():
        total = int(client.zcard(key))
        late: Any = client.zcount(key, "-inf", snapshot.now - OVERDUE_MS)
        first: Any = client.zrange(key, 0, 0, withscores=True)
    if not late:
        return ok(name, f"{total} {what}, none overdue", total=total, overdue=0)
    age_ms = round(snapshot.now - first[0][1])
    found = f"{late} of {total} {what} are overdue, the first by {format_duration(age_ms)}"
    advice = "no coordinator processes them: see the check `coordinators`"
    return problem(name, found, advice, total=total, overdue=int(late), oldest_overdue_ms=age_ms)


def _check_workers(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check:
    """Check that a worker serves every queue in which jobs wait."""
    alive = [worker for worker in snapshot.workers if worker.is_alive]
    served = {name for worker in alive for name in worker.queues}
    unserved = [queue for queue in queues if queue.waiting and queue.name not in served]
    ours = [one for one in alive if any(name.startswith(f"{snapshot.keys.prefix}.") for name in one.queues)]
    busy = sum(worker.is_busy for worker in ours)
    numbers = {
        "alive": len(ours),
        "busy": busy,
        "unserved_queues": len(unserved),
        "unserved_jobs": sum(queue.waiting for queue in unserved),
    }
    if unserved:
        names = join_names(f"{queue.name} ({queue.waiting} waiting)" for queue in unserved)
        advice = f"start one: {worker_command(snapshot, unserved[0].name)}"
        return problem("workers", f"no worker serves {names}", advice, **numbers)
    if not ours:
        found = "no worker serves any of our queues; no jobs are waiting yet"
        return warning("workers", found, "start one: orchestrator worker default", **numbers)
    return ok("workers", f"{len(ours)} alive, {busy} busy", **numbers)


def _check_queues(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check:
    waiting = sum(queue.waiting for queue in queues)
    if full := _check_full_queues(snapshot, queues):
        return full
    ages = [(_oldest_age_ms(snapshot, queue), queue) for queue in queues if queue.waiting]
    if not ages:
        return ok("queues", "no jobs are waiting", waiting=0)
    age_ms, worst = max(ages, key=lambda one: one[0])
    found = f"{waiting} waiting, the oldest in {worst.name} for {format_duration(age_ms)}"
    numbers = {"waiting": waiting, "oldest_ms": round(age_ms)}
    if waiting >= DEEP_QUEUE or age_ms >= OLD_JOB_MS:
        advice = f"start more workers: {worker_command(snapshot, worst.name)}"
        return warning("queues", found, advice, **numbers)
    return ok("queues", found, **numbers)


def _check_full_queues(snapshot: RedisSnapshot, queues: Sequence[RqQueue]) -> Check | None:
    """Report the queues that hold up starts: starts are held for them, or would be."""
    with translate_errors():
        full: Any = snapshot.client.get(snapshot.keys.intake_paused)
    held = [queue for queue in queues if queue.held]
    if not held and (full is None or not queues):
        return None
    names = join_names(f"{queue.name} ({queue.depth} jobs wait, {queue.held} starts held)" for queue in held)
    worst = max(held or queues, key=lambda queue: (queue.held, queue.depth))
    found = f"starts are held for {names}" if held else f"full: {full}; starts for it are held"
    advice = f"start more workers: {worker_command(snapshot, worst.name)}"
    waiting, starts = sum(queue.waiting for queue in queues), sum(queue.held for queue in held)
    return problem("queues", found, advice, waiting=waiting, held_starts=starts)


def _oldest_age_ms(snapshot: RedisSnapshot, queue: RqQueue) -> float:
    try:
        at = datetime.fromisoformat(queue.oldest_at or "").timestamp() * 1000
    except ValueError:
        return 0.0  # the jobs that were checked are all revoked, or are not ours
    return max(snapshot.now - at, 0.0)


def _check_failed_jobs(queues: Sequence[RqQueue]) -> Check:
    failed = [queue for queue in queues if queue.failed]
    if not failed:
        return ok("failed_jobs", "RQ has no failed jobs in our queues", failed=0)
    names = join_names(f"{queue.name} ({queue.failed})" for queue in failed)
    advice = "coordinators handle them within a second: see the check `coordinators`"
    count = sum(queue.failed for queue in failed)
    return warning("failed_jobs", f"RQ keeps failed jobs in our queues: {names}", advice, failed=count)
