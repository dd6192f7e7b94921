"""What has piled up: dead letters, counters, indexes; and what this installation brings along."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.diagnosis.checks import Check, ok, warning
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisSnapshot
from orchestrator.redis_rq.connection import execute_pipeline, translate_errors
from orchestrator.worker.executors.lookup import BadExecutors, Executors

FRESH_MS = 3_600_000
SAMPLE = 100
RQ_AT_LEAST, RQ_BELOW = (2, 12), (3, 0)
OPEN = [status for status in WorkflowStatus if status not in FINAL_WORKFLOW_STATUSES]


def check_leftovers(snapshot: RedisSnapshot, executors: Sequence[str]) -> list[Check]:
    return [_dead(snapshot), _counters(snapshot), _index(snapshot), _rq(snapshot), _executors(executors)]


def _dead(snapshot: RedisSnapshot) -> Check:
    with translate_errors():
        total = int(snapshot.client.xlen(snapshot.keys.dead))
        newest: Any = snapshot.client.xrevrange(snapshot.keys.dead, count=1)
    if not newest:
        return ok("dead_letters", "none")
    letter_id, letter = newest[0]
    age_ms = snapshot.now - int(letter_id.partition("-")[0])
    reason = str(letter.get("reason", "")).partition("\n")[0][:200]
    found = f"{total}, the newest {format_duration(age_ms)} ago: {reason}"
    if age_ms < FRESH_MS:
        advice = "orchestrator dead list shows what was refused, and why; dead replay sends it again"
        return warning("dead_letters", found, advice)
    return ok("dead_letters", found)


def _counters(snapshot: RedisSnapshot) -> Check:
    """Counted since this prefix was first used: a rate is the difference of two looks."""
    with translate_errors():
        counted: Any = snapshot.client.hgetall(snapshot.keys.counters)
    found = ", ".join(f"{name} {count}" for name, count in sorted(counted.items())) or "nothing was counted"
    if int(counted.get("not_shared", 0)):
        advice = "a key of kv.global or kv.flow_group is no number, or no hash: see docs/language.md"
        return warning("counters", found, advice)
    return ok("counters", found)


def _index(snapshot: RedisSnapshot) -> Check:
    """The oldest open executions of every status: is there a record behind each?"""
    keys = snapshot.keys
    with snapshot.client.pipeline(transaction=False) as pipe:
        for status in OPEN:
            pipe.zcard(keys.index(status))
            pipe.zrange(keys.index(status), 0, SAMPLE - 1)
        found = execute_pipeline(pipe)
    ids = [one for sample in found[1::2] for one in sample]
    with snapshot.client.pipeline(transaction=False) as pipe:
        for one in ids:
            pipe.exists(keys.workflow(one))
        exist = execute_pipeline(pipe) if ids else []
    gone = [one for one, is_there in zip(ids, exist, strict=True) if not is_there]
    total = sum(found[0::2])
    if gone:
        names = join_names((one.partition("#")[2] for one in gone), 3)
        return warning(
            "index", f"{len(gone)} of {len(ids)} open executions have no record: {names}", REPAIR_ADVICE
        )
    return ok("index", f"{total} open executions; the oldest {len(ids)} all have their record")


def _rq(snapshot: RedisSnapshot) -> Check:
    """Our version of RQ, and those of the workers: they write down theirs, but not their serializer."""
    ours = version("rq")
    theirs = {one.version for one in snapshot.workers if one.is_alive and _is_ours(snapshot, one.queues)}
    strange = sorted(one for one in {ours, *theirs} if one and not _is_supported(one))
    wanted = f"{'.'.join(map(str, RQ_AT_LEAST))} or newer, below {RQ_BELOW[0]}"
    if strange:
        return warning("rq", f"RQ {join_names(strange)} is in use", f"install {wanted} everywhere")
    return ok("rq", f"RQ {ours} here; workers have {join_names(sorted(theirs)) or 'none'}")


def _is_ours(snapshot: RedisSnapshot, queues: Sequence[str]) -> bool:
    return any(name.startswith(f"{snapshot.keys.prefix}.") for name in queues)


def _is_supported(text: str) -> bool:
    parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    return RQ_AT_LEAST <= parts < RQ_BELOW


def _executors(modules: Sequence[str]) -> Check:
    """Those that are named here; workers elsewhere may have others."""
    if not modules:
        return ok("executors", "ORCHESTRATOR_EXECUTORS names no module here; workers may have their own")
    try:
        names = Executors(modules).names
    except BadExecutors as error:
        advice = "a worker that is started like this would refuse to begin"
        return warning("executors", str(error), advice)
    return ok("executors", f"{len(names)} in {join_names(modules)}: {join_names(names)}")
