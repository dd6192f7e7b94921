"""Checks what has accumulated (dead letters, webhooks, counters, indexes), and the versions and executors in
use."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.diagnosis.checks import Check, Level, ok, warning
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisSnapshot
from orchestrator.diagnosis.webhooks import RECENT_MS, check_webhooks
from orchestrator.invocation.executors import BadExecutors, Executors
from orchestrator.redis_rq.connection import execute_pipeline, translate_errors

SAMPLE_SIZE = 100
MIN_RQ_VERSION, RQ_VERSION_BELOW = (2, 0), (3, 0)
OPEN_STATUSES = [status for status in WorkflowStatus if status not in FINAL_WORKFLOW_STATUSES]


def check_leftovers(snapshot: RedisSnapshot, executors: Sequence[str]) -> list[Check]:
    return [
        _check_dead_letters(snapshot),
        check_webhooks(snapshot),
        _check_counters(snapshot),
        _check_index(snapshot),
        _check_rq_versions(snapshot),
        _check_executors(executors),
    ]


def _check_dead_letters(snapshot: RedisSnapshot) -> Check:
    with translate_errors():
        total = int(snapshot.client.xlen(snapshot.keys.dead_letters))
        newest: Any = snapshot.client.xrevrange(snapshot.keys.dead_letters, count=1)
    if not newest:
        return ok("dead_letters", "none", total=0)
    letter_id, letter = newest[0]
    age_ms = snapshot.now - int(letter_id.partition("-")[0])
    reason = str(letter.get("reason", "")).partition("\n")[0][:200]
    found = f"{total}, the newest {format_duration(age_ms)} ago: {reason}"
    if age_ms < RECENT_MS:
        advice = (
            "list them: orchestrator dead-letters list; send them again: orchestrator dead-letters replay"
        )
        return warning("dead_letters", found, advice, total=total, newest_ms=age_ms)
    return ok("dead_letters", found, total=total, newest_ms=age_ms)


def _check_counters(snapshot: RedisSnapshot) -> Check:
    """Show the counters, which count from the first use of the prefix. Compare two runs to get a rate."""
    with translate_errors():
        counters: Any = snapshot.client.hgetall(snapshot.keys.counters)
    found = ", ".join(f"{name} {count}" for name, count in sorted(counters.items())) or "none"
    numbers = {name: int(count) for name, count in sorted(counters.items()) if count.isdecimal()}
    if numbers.get("not_shared", 0):
        advice = "a key of kv.global or kv.flow_group is not a number or not a hash: see docs/language.md"
        return Check("counters", Level.WARNING, found, advice, numbers)
    return Check("counters", Level.OK, found, numbers=numbers)


def _check_index(snapshot: RedisSnapshot) -> Check:
    """Check that the oldest open executions of every status have a record."""
    keys = snapshot.keys
    with snapshot.client.pipeline(transaction=False) as pipe:
        for status in OPEN_STATUSES:
            pipe.zcard(keys.index(status))
            pipe.zrange(keys.index(status), 0, SAMPLE_SIZE - 1)
        found = execute_pipeline(pipe)
    ids = [one for sample in found[1::2] for one in sample]
    with snapshot.client.pipeline(transaction=False) as pipe:
        for one in ids:
            pipe.exists(keys.workflow(one))
        existing = execute_pipeline(pipe) if ids else []
    missing = [one for one, exists in zip(ids, existing, strict=True) if not exists]
    total = sum(found[0::2])
    numbers = {"open": total, "checked": len(ids), "missing": len(missing)}
    if missing:
        names = join_names((one.partition("#")[2] for one in missing), 3)
        words = f"{len(missing)} of {len(ids)} open executions have no record: {names}"
        return warning("index", words, REPAIR_ADVICE, **numbers)
    return ok("index", f"{total} open executions; the oldest {len(ids)} all have a record", **numbers)


def _check_rq_versions(snapshot: RedisSnapshot) -> Check:
    """Check the RQ version here and of each worker. Workers store their version, but not their serializer."""
    ours = version("rq")
    theirs = {one.version for one in snapshot.workers if one.is_alive and _is_ours(snapshot, one.queues)}
    unsupported = sorted(one for one in {ours, *theirs} if one and not _is_supported(one))
    if unsupported:
        supported = f"RQ {'.'.join(map(str, MIN_RQ_VERSION))} or newer, below {RQ_VERSION_BELOW[0]}"
        found = f"unsupported RQ version in use: {join_names(unsupported)}"
        return warning("rq", found, f"install {supported}, on every host")
    workers = f"workers use {join_names(sorted(theirs))}" if theirs else "no workers are running"
    return ok("rq", f"RQ {ours} here; {workers}")


def _is_ours(snapshot: RedisSnapshot, queues: Sequence[str]) -> bool:
    return any(name.startswith(f"{snapshot.keys.prefix}.") for name in queues)


def _is_supported(text: str) -> bool:
    parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    return MIN_RQ_VERSION <= parts < RQ_VERSION_BELOW


def _check_executors(modules: Sequence[str]) -> Check:
    """Check the executor modules that are configured here; workers on other hosts may have others."""
    if not modules:
        return ok("executors", "no executor modules are configured here; workers may have their own")
    try:
        names = Executors(modules).names
    except BadExecutors as error:
        return warning(
            "executors", str(error), "a worker with these settings would not start; fix the module"
        )
    found = f"{len(names)} in {join_names(modules)}: {join_names(names)}"
    return ok("executors", found, executors=len(names))
