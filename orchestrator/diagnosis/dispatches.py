"""Dispatches that are out: where the job is, who would take it, and whether anybody beats for it."""

from __future__ import annotations

from typing import Any

from orchestrator.application.explain.reasons import Reason, named
from orchestrator.application.explain.text import in_words, listed
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord
from orchestrator.diagnosis.snapshot import REPAIR, Finding, Sight
from orchestrator.redis_rq.connection import translated
from orchestrator.redis_rq.job_codec import lease_of
from orchestrator.redis_rq.keys import WAITING
from orchestrator.redis_rq.queries.rq_workers import place_in_queue


def about_dispatch(
    sight: Sight, record: WorkflowRecord, unit: str, step: StepRecord, told: set[str]
) -> list[Reason]:
    """Where the job of a unit is. `told` are the queues whose workers were spoken of before."""
    with translated():
        score: Any = sight.client.zscore(
            sight.keys.leases, lease_of(record.workflow_execution_id, unit, step)
        )
    place, subject = place_in_queue(sight, step.token or ""), named(unit)
    if score is None:
        words = (
            f"{subject} has no lease: its end is on its way to a coordinator, or nobody would notice that it"
            " was lost"
        )
        return [Reason(Finding.LEASE_MISSING, words, unit, advice=f"if that stays so, {REPAIR}")]
    if place is not None and place[1] is not None:
        queue, before = place[0], place[1]
        words = f"the job of {subject} waits in the queue {queue}; {before} stand before it"
        workers = [] if queue in told else _about_workers(sight, queue, unit)
        told.add(queue)
        return [Reason(Finding.QUEUED, words, unit), *workers]
    if score >= WAITING or score % 1:
        where = f" {place[0]}" if place is not None else ""
        term = "" if score >= WAITING else f"; it counts as lost in {in_words(score - sight.now)}"
        words = f"the job of {subject} has left the queue{where}, and no worker has begun it{term}"
        return [Reason(Finding.TAKEN, words, unit)]
    if score <= sight.now:
        words = f"the worker of {subject} stopped beating: its lease ended {in_words(sight.now - score)} ago"
        advice = "a coordinator dispatches it again: is one running? (orchestrator doctor)"
        return [Reason(Finding.LEASE_OVERDUE, words, unit, advice=advice)]
    words = f"a worker is at {subject}: its lease holds for another {in_words(score - sight.now)}"
    return [Reason(Finding.LEASED, words, unit)]


def _about_workers(sight: Sight, queue: str, unit: str) -> list[Reason]:
    """Why nobody takes a job from its queue."""
    serving = [worker for worker in sight.workers if queue in worker.queues]
    alive = [worker for worker in serving if worker.is_alive]
    if not alive:
        others = sorted({name for worker in sight.workers if worker.is_alive for name in worker.queues})
        gone = f" ({len(serving)} are registered, and gone)" if serving else ""
        served = f"; workers serve {listed(others)}" if others else "; there is no worker at all"
        words = f"no worker listens to the queue {queue} of {named(unit)}{gone}{served}"
        return [Reason(Finding.NO_WORKER, words, unit, advice=f"start one: {worker_command(sight, queue)}")]
    if all(worker.is_busy for worker in alive):
        names = listed(one.name for one in alive)
        words = f"all {len(alive)} workers of the queue {queue} of {named(unit)} are busy: {names}"
        advice = f"wait, or start more: {worker_command(sight, queue)}"
        return [Reason(Finding.WORKERS_BUSY, words, unit, advice=advice)]
    return []


def worker_command(sight: Sight, queue: str) -> str:
    """How one of our workers is started for a queue of RQ; it serves the queue in all its priorities."""
    name = queue.removeprefix(f"{sight.keys.prefix}.").partition(":")[0]
    return f"orchestrator worker {name}"
