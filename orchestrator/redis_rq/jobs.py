"""DispatchJobs as RQ jobs: the leanest hash that a stock `rq worker --serializer json` runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.application.decisions import DispatchJob
from orchestrator.application.units import StepRecord
from orchestrator.redis_rq.codec import dumps, loads
from orchestrator.redis_rq.keys import Keys, lease_member

RUN_STEP = "orchestrator.worker.harness.run_step"
"""The one function that our jobs call."""

TIMEOUT_MARGIN_S = 30
"""RQ's own timeout is the last line: the deadline in the record comes first."""


def job_words(job: DispatchJob, keys: Keys) -> list[str | int]:
    """One job as commit.lua takes it."""
    timeout = -1 if job.timeout_s is None else math.ceil(job.timeout_s) + TIMEOUT_MARGIN_S
    return [
        job.token,
        lease_of_job(job),
        dumps([RUN_STEP, None, [payload(job, keys)], {}]),
        timeout,
        f"step {job.step_id} of {job.workflow_execution_id}",
        job.dispatched_at,
    ]


def payload(job: DispatchJob, keys: Keys) -> dict[str, Any]:
    """All that the harness needs: the job, and where its lease and its events live. What few steps have is
    there only if they have it."""
    found: dict[str, Any] = {
        "execution": job.workflow_execution_id,
        "step": job.step_id,
        "fn": job.fn,
        "inputs": job.inputs,
        "run_id": job.run_id,
        "attempt": job.attempt,
        "round": job.round,
        "iteration": job.iteration,
        "key": job.idempotency_key,
        "token": job.token,
        "timeout_s": job.timeout_s,
        "max_output_bytes": job.max_output_bytes,
        "events": keys.events_of(job.workflow_execution_id),
        "leases": keys.leases,
    }
    if job.heartbeat_s is not None:
        found["heartbeat_s"] = job.heartbeat_s
    if job.source is not None:
        found["source"] = job.source
    if job.secrets:
        found["secrets"] = job.secrets
    if job.redact:
        found["redact"] = job.redact
    return found


def read_payload(data: str) -> dict[str, Any] | None:
    """The payload in the data of an RQ job; None when the job is not one of ours."""
    try:
        function, _, args, _ = loads(data)
        found = args[0]
        return found if function == RUN_STEP and isinstance(found, dict) else None
    except (ValueError, TypeError, IndexError):
        return None


def read_job(found: Mapping[str, Any], queue: str) -> DispatchJob:
    return DispatchJob(
        workflow_execution_id=found["execution"],
        step_id=found["step"],
        fn=found["fn"],
        inputs=found["inputs"],
        run_id=found["run_id"],
        attempt=found["attempt"],
        round=found["round"],
        iteration=found["iteration"],
        token=found["token"],
        queue=queue,
        timeout_s=found["timeout_s"],
        max_output_bytes=found["max_output_bytes"],
        heartbeat_s=found.get("heartbeat_s"),
        source=found.get("source"),
        secrets=tuple(map(tuple, found.get("secrets", ()))),
        redact=tuple(found.get("redact", ())),
    )


def lease_of_job(job: DispatchJob) -> str:
    return lease_member(job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token)


def lease_of(workflow_execution_id: str, step_id: str, step: StepRecord) -> str:
    """The lease member of a dispatch that the record knows."""
    return lease_member(workflow_execution_id, step_id, step.run_id, step.attempt, step.token or "")
