"""What a claimed unit becomes: a job for a worker, or a child execution."""

from __future__ import annotations

import hashlib
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Parent, StartEvent
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import WEBHOOK_UNIT

MAX_EXECUTION_ID_LENGTH = 256


def dispatch(draft: Draft, unit: str, inputs: dict[str, Any]) -> None:
    """Mark a unit in progress and make its job: one dispatch, under a token of its own."""
    spec, record = draft.spec(unit), draft.require_unit(unit)
    token = _claim(draft, unit, record)
    draft.changes.jobs.append(
        DispatchJob(
            workflow_execution_id=draft.record.workflow_execution_id,
            step_id=unit,
            fn=spec.fn,
            inputs=inputs,
            run_id=record.run_id,
            attempt=record.attempt,
            round=record.round if unit == WEBHOOK_UNIT else draft.step(unit.partition("#")[0]).round,
            iteration=record.iteration if spec.loop is not None else None,
            token=token,
            dispatched_at=draft.moment.iso,
            queue=spec.queue,
            priority=spec.priority if spec.has_own_priority else draft.record.priority or spec.priority,
            timeout_s=spec.timeout_s,
            heartbeat_s=spec.heartbeat_s,
            source=spec.source,
            tags=spec.tags,
            secrets=spec.secrets,
            redact=draft.record.spec.redact,
            max_output_bytes=draft.record.spec.limits.max_output_bytes,
        )
    )


def start_child(draft: Draft, step_id: str, inputs: dict[str, Any]) -> None:
    """Mark a step in progress and ask for its child; the end of the child is the step's result."""
    record, step, timeout_s = draft.record, draft.step(step_id), draft.spec(step_id).timeout_s
    child = child_execution_id(record.execution_id, step_id, step.run_id)
    deadline_ms = None if timeout_s is None else draft.moment.at_ms + round(timeout_s * 1000)
    token = _claim(draft, step_id, step, child=child, deadline_ms=deadline_ms)
    parent = Parent(
        execution=record.workflow_execution_id,
        step_id=step_id,
        run_id=step.run_id,
        attempt=step.attempt,
        token=token,
        root=record.root,
        depth=record.depth + 1,
    )
    draft.send(
        StartEvent(
            inputs=inputs, execution_id=child, group=record.group, priority=record.priority, parent=parent
        )
    )


def child_execution_id(execution_id: str, step_id: str, run_id: int) -> str:
    """The execution id of a child: of its own for each run of its step, and the same however often asked."""
    name = f"{execution_id}:{step_id}:{run_id}"
    if len(name) <= MAX_EXECUTION_ID_LENGTH:
        return name
    return hashlib.sha256(name.encode()).hexdigest()


def _claim(draft: Draft, unit: str, record: StepRecord, **changes: Any) -> str:
    draft.token_count += 1
    draft.dispatch_count += 1
    token = f"{draft.moment.nonce}-{draft.token_count - 1}"
    draft.move(
        unit,
        StepStatus.IN_PROGRESS,
        token=token,
        dispatches=record.dispatches + 1,
        dispatched_at=draft.moment.iso,
        worker=None,
        **changes,
    )
    draft.begin_workflow()
    return token
