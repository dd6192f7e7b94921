"""Dispatching a claimed unit: as a job for a worker, or as a child execution."""

from __future__ import annotations

import hashlib
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Parent, StartEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.trace_context import context_of_attempt
from orchestrator.application.values.unit_id import WEBHOOK_UNIT, step_of

MAX_EXECUTION_ID_LENGTH = 256


def dispatch(draft: Draft, unit: str, inputs: dict[str, Any]) -> None:
    """Move a unit to in progress and create its job. Each dispatch has its own token."""
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
            round=record.round if unit in draft.specs else _round_of_part(draft, unit, record),
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
            isolation=spec.isolation,
            max_output_bytes=draft.record.spec.limits.max_output_bytes,
            traceparent=draft.record.traceparent,
        )
    )


def start_child(draft: Draft, step_id: str, inputs: dict[str, Any]) -> None:
    """Move a step to in progress and request its child. The end of the child is the result of the step."""
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
            inputs=inputs,
            execution_id=child,
            group=record.group,
            priority=record.priority,
            parent=parent,
            traceparent=_traceparent_of_child(record, step_id, step),
        )
    )


def _traceparent_of_child(record: WorkflowRecord, step_id: str, step: StepRecord) -> str | None:
    """The span of the step that starts a child. Without a traceparent, the child has a trace of its own,
    which links to that span."""
    if record.traceparent is None:
        return None
    weid = record.workflow_execution_id
    return str(context_of_attempt(weid, step_id, step.run_id, step.attempt, record.traceparent))


def child_execution_id(execution_id: str, step_id: str, run_id: int) -> str:
    """The execution id of a child: different for each run of its step, and the same on every call."""
    name = f"{execution_id}:{step_id}:{run_id}"
    if len(name) <= MAX_EXECUTION_ID_LENGTH:
        return name
    return hashlib.sha256(name.encode()).hexdigest()


def _round_of_part(draft: Draft, unit: str, record: StepRecord) -> int:
    """The round of a unit that is not a step. Items and compensations belong to the round of their step."""
    return record.round if unit == WEBHOOK_UNIT else draft.step(step_of(unit)).round


def _claim(draft: Draft, unit: str, record: StepRecord, **changes: Any) -> str:
    """Move a unit to in progress under a new token, which is returned."""
    draft.token_count += 1
    draft.dispatch_count += 1
    token = draft.moment.token(draft.token_count - 1)
    changes["token"], changes["worker"] = token, None
    changes["dispatches"], changes["dispatched_at"] = record.dispatches + 1, draft.moment.iso
    if record.declined and record.status is StepStatus.IN_PROGRESS:
        draft.amend(unit, **changes)  # not in the history: see declines.py
    else:
        draft.move_from(unit, record, StepStatus.IN_PROGRESS, changes)
    if draft.status is WorkflowStatus.PENDING:
        draft.begin_workflow()
    return token
