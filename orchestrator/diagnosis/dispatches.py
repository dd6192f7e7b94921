"""Explains where a dispatched job is: in its queue, taken by a worker, running under a lease, or lost."""

from __future__ import annotations

from typing import Any

from orchestrator.application.explain.reasons import Reason, describe_unit
from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisReasonCode, RedisSnapshot
from orchestrator.redis_rq.connection import translate_errors
from orchestrator.redis_rq.job_codec import lease_of_step
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, is_untaken
from orchestrator.redis_rq.queries.rq_workers import queue_position


def explain_dispatch(
    snapshot: RedisSnapshot, record: WorkflowRecord, unit: str, step: StepRecord, explained_queues: set[str]
) -> list[Reason]:
    """Explain where the job of a unit is. The workers of a queue are explained only once: `explained_queues`
    collects the queues."""
    with translate_errors():
        score: Any = snapshot.client.zscore(
            snapshot.keys.leases, lease_of_step(record.workflow_execution_id, unit, step)
        )
    position, subject = queue_position(snapshot, step.token or ""), describe_unit(unit)
    if score is None:
        words = (
            f"{subject} has no lease: either its result is on its way to a coordinator, or the loss of its"
            " worker would not be noticed"
        )
        advice = f"if this does not change, {REPAIR_ADVICE}"
        return [Reason(RedisReasonCode.LEASE_MISSING, words, unit, advice=advice)]
    if position is not None and position[1] is not None:
        queue, ahead = position[0], position[1]
        words = f"the job of {subject} is in the queue {queue}; jobs ahead of it: {ahead}"
        workers = [] if queue in explained_queues else _explain_workers(snapshot, queue, unit)
        explained_queues.add(queue)
        return [Reason(RedisReasonCode.QUEUED, words, unit), *workers]
    if is_untaken(score):
        return [_explain_taken(snapshot, unit, score, position[0] if position is not None else "")]
    if score <= snapshot.now:
        overdue = format_duration(snapshot.now - score)
        words = f"the worker of {subject} stopped sending heartbeats: its lease expired {overdue} ago"
        advice = "a coordinator will dispatch it again; check that one is running: orchestrator doctor"
        return [Reason(RedisReasonCode.LEASE_OVERDUE, words, unit, advice=advice)]
    remaining = format_duration(score - snapshot.now)
    words = f"a worker is running {subject}: its lease is valid for another {remaining}"
    return [Reason(RedisReasonCode.LEASED, words, unit)]


def _explain_taken(snapshot: RedisSnapshot, unit: str, score: float, queue: str) -> Reason:
    """Explain a job that has left its queue. Once a coordinator has seen that, the score is a deadline."""
    where = f" {queue}" if queue else ""
    lost_in = "" if score >= FIRST_SEQUENCE else format_duration(score - snapshot.now)
    deadline = f"; it counts as lost in {lost_in}" if lost_in else ""
    words = (
        f"the job of {describe_unit(unit)} has left the queue{where}, but no worker has started it{deadline}"
    )
    return Reason(RedisReasonCode.TAKEN, words, unit)


def _explain_workers(snapshot: RedisSnapshot, queue: str, unit: str) -> list[Reason]:
    """Explain why no worker takes a job from its queue; empty if an idle worker serves it."""
    serving = [worker for worker in snapshot.workers if queue in worker.queues]
    alive = [worker for worker in serving if worker.is_alive]
    if not alive:
        others = sorted({name for worker in snapshot.workers if worker.is_alive for name in worker.queues})
        gone = f" (registered but no longer running: {len(serving)})" if serving else ""
        served = f"; running workers serve {join_names(others)}" if others else "; no workers are running"
        words = f"no worker serves the queue {queue} of {describe_unit(unit)}{gone}{served}"
        advice = f"start one: {worker_command(snapshot, queue)}"
        return [Reason(RedisReasonCode.NO_WORKER, words, unit, advice=advice)]
    if all(worker.is_busy for worker in alive):
        names = join_names(one.name for one in alive)
        words = f"all {len(alive)} workers of the queue {queue} of {describe_unit(unit)} are busy: {names}"
        advice = f"wait, or start more: {worker_command(snapshot, queue)}"
        return [Reason(RedisReasonCode.WORKERS_BUSY, words, unit, advice=advice)]
    return []


def worker_command(snapshot: RedisSnapshot, queue: str) -> str:
    """Return the command that starts a worker for an RQ queue; it serves the queue in all its priorities."""
    name = queue.removeprefix(f"{snapshot.keys.prefix}.").partition(":")[0]
    return f"orchestrator worker {name}"
