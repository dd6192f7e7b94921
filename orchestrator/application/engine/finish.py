"""How a workflow ends: what is under way is cancelled, what has been done is undone if it must be, and
whoever waits for the end hears of it."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.application.engine.compensation import compensate, needs_compensation
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.webhook import request_webhook
from orchestrator.application.records.decisions import (
    Decision,
    Dispatch,
    FinalDecision,
    Pending,
    make_final_decision,
)
from orchestrator.application.records.events import Parent, ResultEvent, failure
from orchestrator.application.records.status import ACTIVE_STEP_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.timers import Timer


def end_workflow(draft: Draft, status: WorkflowStatus, reason: str, **fields: Any) -> None:
    """End the workflow, after its compensations if it fails or is cancelled and has any: then advance() does
    those first, since only who advances dispatches."""
    _close(draft, status, reason)
    if status in (WorkflowStatus.FAILED, WorkflowStatus.CANCELLED) and needs_compensation(draft):
        ending = {"status": status.value, "fields": fields, "errors": []}
        draft.move_workflow(WorkflowStatus.COMPENSATING, ending=ending, deadline_ms=None)
    else:
        _finish(draft, status, fields)


def continue_compensation(draft: Draft) -> Decision:
    """The next compensation, or the end when none is left."""
    if not compensate(draft):
        ending = draft.ending
        status, fields = WorkflowStatus(ending["status"]), dict(ending["fields"])
        if ending["errors"]:
            steps = ", ".join(error["step"] for error in ending["errors"])
            error = fields.get("error") or failure("compensation", f"not compensated: {steps}")
            fields["error"] = {**error, "compensation_errors": ending["errors"]}
        _finish(draft, status, {**fields, "compensated": not ending["errors"], "ending": None})
        return final_decision(draft)
    return Dispatch(draft.changes.jobs) if draft.changes.jobs else Pending()


def final_decision(draft: Draft) -> FinalDecision:
    return make_final_decision(draft.status, draft.outcome, draft.error, _reason_to_cancel(draft))


def _reason_to_cancel(draft: Draft) -> str | None:
    cancelled: dict[str, Any] = draft.changes.fields.get("cancelled", draft.record.cancelled) or {}
    return cancelled.get("reason")


def abandon_workflow(draft: Draft, reason: str, error: dict[str, Any]) -> None:
    """End an execution that cannot be decided upon: what cannot be judged cannot be undone either."""
    fields: dict[str, Any] = {"error": error}
    if draft.status is WorkflowStatus.COMPENSATING:
        fields |= {"ending": None, "compensated": False}
        unit = draft.ending.get("undoing")
        if unit is not None and not draft.require_unit(unit).is_final:
            _cancel(draft, unit, reason)
    _close(draft, WorkflowStatus.FAILED, reason)
    _finish(draft, WorkflowStatus.FAILED, fields)


def end_items(draft: Draft, step_id: str, reason: str) -> None:
    """No item of a map will be run any more: what is under way is cancelled, the rest skipped."""
    counts = draft.step(step_id).items
    for n in range(counts.count if counts is not None else 0):
        unit = f"{step_id}#{n}"
        status = draft.require_unit(unit).status
        if status in ACTIVE_STEP_STATUSES:
            _cancel(draft, unit, reason)
        elif status is StepStatus.READY:
            draft.move(unit, StepStatus.SKIPPED, reason=reason, ended_at=draft.moment.iso)


def _close(draft: Draft, status: WorkflowStatus, reason: str) -> None:
    """What is active is cancelled; what is ready stays so only after a halt."""
    draft.changes.jobs.clear()  # claimed by this very decision, and cancelled by it
    for step_id in draft.graph.order if draft.open else ():
        before = draft.step(step_id)
        if before.status in ACTIVE_STEP_STATUSES:
            end_items(draft, step_id, reason)
            _cancel(draft, step_id, reason)
        elif before.status is StepStatus.READY and status is not WorkflowStatus.HALTED:
            draft.move(step_id, StepStatus.SKIPPED, reason=reason, ended_at=draft.moment.iso)
        elif before.slot is not None:
            draft.amend(step_id, slot=None)
    if draft.deadline_ms is not None:
        draft.disarm(Timer("timeout", "", "", draft.deadline_ms))


def _cancel(draft: Draft, unit: str, reason: str) -> None:
    draft.revoke(unit)
    off = {"token": None, "deadline_ms": None, "not_before_ms": None, "wake_at_ms": None, "held": None}
    draft.move(unit, StepStatus.CANCELLED, reason=reason, ended_at=draft.moment.iso, **off)


def _finish(draft: Draft, status: WorkflowStatus, fields: dict[str, Any]) -> None:
    draft.move_workflow(status, ended_at=draft.moment.iso, **fields)
    if draft.slot is not None:
        draft.set_workflow_slot(None)
    if draft.record.parent is not None:
        _tell_parent(draft, Parent(**draft.record.parent))
    request_webhook(draft)


def _tell_parent(draft: Draft, parent: Parent) -> None:
    """The end of a child is the result of its parent's step."""
    output: Any = None
    error: dict[str, Any] | None = None
    match draft.status:
        case WorkflowStatus.COMPLETE:
            output = draft.outcome
        case WorkflowStatus.HALTED:
            output = {"halted": True, "result": draft.outcome}
        case WorkflowStatus.CANCELLED:
            error = _child_failed(
                draft, f"was cancelled: {_reason_to_cancel(draft) or 'no reason was given'}"
            )
        case _:
            error = _child_failed(draft, f"failed: {draft.error.get('message')}")
    size, most = len(json.dumps(output)), draft.record.spec.limits.max_output_bytes
    if size > most:
        error = _child_failed(draft, f"ended with {size:,} bytes; limits.max_output_bytes allows {most:,}")
    draft.send(child_result(parent, None if error is not None else output, error))


def _child_failed(draft: Draft, what: str) -> dict[str, Any]:
    child = draft.record.workflow_execution_id
    return failure("child_failed", f"child {draft.record.execution_id} {what}", child=child)


def child_result(parent: Parent, output: Any, error: dict[str, Any] | None) -> ResultEvent:
    return ResultEvent(
        parent.execution, parent.step_id, output, error, parent.run_id, parent.attempt, parent.token
    )
