"""Dispatches that are out: where the job is, who would take it, and whether anybody beats for it."""

from __future__ import annotations

from typing import Any

from orchestrator.application.explain.reasons import Reason, describe_unit
from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisReasonCode, RedisSnapshot
from orchestrator.redis_rq.connection import translate_errors
from orchestrator.redis_rq.job_codec import lease_of_step
from orchestrator.redis_rq.keys import FIRST_SEQUENCE
from orchestrator.redis_rq.queries.rq_workers import queue_position


def explain_dispatch(
    snapshot: RedisSnapshot, record: WorkflowRecord, unit: str, step: StepRecord, told: set[str]
) -> list[Reason]:
    """Where the job of a unit is. `told` are the queues whose workers were spoken of before."""
    with translate_errors():
        score: Any = snapshot.client.zscore(
            snapshot.keys.leases, lease_of_step(record.workflow_execution_id, unit, step)
        )
    place, subject = queue_position(snapshot, step.token or ""), describe_unit(unit)
    if score is None:
        words = (
            f"{subject} has no lease: its end is on its way to a coordinator, or nobody would notice that it"
            " was lost"
        )
        return [
            Reason(RedisReasonCode.LEASE_MISSING, words, unit, advice=f"if that stays so, {REPAIR_ADVICE}")
        ]
    if place is not None and place[1] is not None:
        queue, before = place[0], place[1]
        words = f"the job of {subject} waits in the queue {queue}; {before} stand before it"
        workers = [] if queue in told else _about_workers(snapshot, queue, unit)
        told.add(queue)
        return [Reason(RedisReasonCode.QUEUED, words, unit), *workers]
    if score >= FIRST_SEQUENCE or score % 1:
        where = f" {place[0]}" if place is not None else ""
        term = (
            ""
            if score >= FIRST_SEQUENCE
            else f"; it counts as lost in {format_duration(score - snapshot.now)}"
        )
        words = f"the job of {subject} has left the queue{where}, and no worker has begun it{term}"
        return [Reason(RedisReasonCode.TAKEN, words, unit)]
    if score <= snapshot.now:
        overdue = format_duration(snapshot.now - score)
        words = f"the worker of {subject} stopped beating: its lease ended {overdue} ago"
        advice = "a coordinator dispatches it again: is one running? (orchestrator doctor)"
        return [Reason(RedisReasonCode.LEASE_OVERDUE, words, unit, advice=advice)]
    words = f"a worker is at {subject}: its lease holds for another {format_duration(score - snapshot.now)}"
    return [Reason(RedisReasonCode.LEASED, words, unit)]


def _about_workers(snapshot: RedisSnapshot, queue: str, unit: str) -> list[Reason]:
    """Why nobody takes a job from its queue."""
    serving = [worker for worker in snapshot.workers if queue in worker.queues]
    alive = [worker for worker in serving if worker.is_alive]
    if not alive:
        others = sorted({name for worker in snapshot.workers if worker.is_alive for name in worker.queues})
        gone = f" ({len(serving)} are registered, and gone)" if serving else ""
        served = f"; workers serve {join_names(others)}" if others else "; there is no worker at all"
        words = f"no worker listens to the queue {queue} of {describe_unit(unit)}{gone}{served}"
        return [
            Reason(
                RedisReasonCode.NO_WORKER, words, unit, advice=f"start one: {worker_command(snapshot, queue)}"
            )
        ]
    if all(worker.is_busy for worker in alive):
        names = join_names(one.name for one in alive)
        words = f"all {len(alive)} workers of the queue {queue} of {describe_unit(unit)} are busy: {names}"
        advice = f"wait, or start more: {worker_command(snapshot, queue)}"
        return [Reason(RedisReasonCode.WORKERS_BUSY, words, unit, advice=advice)]
    return []


def worker_command(snapshot: RedisSnapshot, queue: str) -> str:
    """How one of our workers is started for a queue of RQ; it serves the queue in all its priorities."""
    name = queue.removeprefix(f"{snapshot.keys.prefix}.").partition(":")[0]
    return f"orchestrator worker {name}"
