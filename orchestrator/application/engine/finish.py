"""The end of a workflow: active steps are cancelled, completed steps are compensated if necessary, and then
the parent and the webhook are notified."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.application.engine.compensation import advance_compensation, needs_compensation
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.webhook import request_webhook
from orchestrator.application.records.decisions import (
    Decision,
    Dispatch,
    FinalDecision,
    Pending,
    make_final_decision,
)
from orchestrator.application.records.events import Parent, ResultEvent, make_failure
from orchestrator.application.records.status import ACTIVE_STEP_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.timers import Timer
from orchestrator.application.values.unit_id import UnitId


def end_workflow(draft: Draft, status: WorkflowStatus, reason: str, **fields: Any) -> None:
    """End the workflow. If it fails or is cancelled and needs compensation, it only begins to compensate: the
    compensations are dispatched by advance(), as all jobs are."""
    _close(draft, status, reason)
    if status in (WorkflowStatus.FAILED, WorkflowStatus.CANCELLED) and needs_compensation(draft):
        ending = {"status": status.value, "fields": fields, "errors": []}
        draft.move_workflow(WorkflowStatus.COMPENSATING, ending=ending, deadline_ms=None)
    else:
        _finish(draft, status, fields)


def continue_compensation(draft: Draft) -> Decision:
    """Dispatch the next compensation, or end the workflow when none is left."""
    if not advance_compensation(draft):
        ending = draft.ending
        status, fields = WorkflowStatus(ending["status"]), dict(ending["fields"])
        if ending["errors"]:
            steps = ", ".join(error["step"] for error in ending["errors"])
            error = fields.get("error") or make_failure("compensation", f"not compensated: {steps}")
            fields["error"] = {**error, "compensation_errors": ending["errors"]}
        _finish(draft, status, {**fields, "compensated": not ending["errors"], "ending": None})
        return final_decision(draft)
    return Dispatch(draft.changes.jobs) if draft.changes.jobs else Pending()


def final_decision(draft: Draft) -> FinalDecision:
    return make_final_decision(draft.status, draft.outcome, draft.error, _cancel_reason(draft))


def _cancel_reason(draft: Draft) -> str | None:
    cancelled: dict[str, Any] = draft.changes.fields.get("cancelled", draft.record.cancelled) or {}
    return cancelled.get("reason")


def abandon_workflow(draft: Draft, reason: str, error: dict[str, Any]) -> None:
    """Fail an execution whose transitions raise an exception, without compensation, which may raise too."""
    fields: dict[str, Any] = {"error": error}
    if draft.status is WorkflowStatus.COMPENSATING:
        fields |= {"ending": None, "compensated": False}
        unit = draft.ending.get("undoing")
        if unit is not None and not draft.require_unit(unit).is_final:
            _cancel(draft, unit, reason)
    _close(draft, WorkflowStatus.FAILED, reason)
    _finish(draft, WorkflowStatus.FAILED, fields)


def end_items(draft: Draft, step_id: str, reason: str) -> None:
    """End the items of a map that are not final: active items are cancelled, ready items are skipped."""
    counts = draft.step(step_id).items
    for n in range(counts.count if counts is not None else 0):
        unit = UnitId.for_item(step_id, n)
        status = draft.require_unit(unit).status
        if status in ACTIVE_STEP_STATUSES:
            _cancel(draft, unit, reason)
        elif status is StepStatus.READY:
            draft.move(unit, StepStatus.SKIPPED, reason=reason, ended_at=draft.moment.iso)


def _close(draft: Draft, status: WorkflowStatus, reason: str) -> None:
    """Cancel the active steps; skip the ready steps, except after a halt, which leaves them ready."""
    draft.changes.jobs.clear()  # dispatched by this decision, and cancelled by it
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
    cleared = {"token": None, "deadline_ms": None, "not_before_ms": None, "wake_at_ms": None, "held": None}
    draft.move(unit, StepStatus.CANCELLED, reason=reason, ended_at=draft.moment.iso, **cleared)


def _finish(draft: Draft, status: WorkflowStatus, fields: dict[str, Any]) -> None:
    draft.move_workflow(status, ended_at=draft.moment.iso, **fields)
    if draft.slot is not None:
        draft.set_workflow_slot(None)
    if draft.record.parent is not None:
        _notify_parent(draft, draft.record.parent)
    request_webhook(draft)


def _notify_parent(draft: Draft, parent: Parent) -> None:
    """Send the end of a child to its parent, as the result of the parent's step."""
    output: Any = None
    error: dict[str, Any] | None = None
    match draft.status:
        case WorkflowStatus.COMPLETE:
            output = draft.outcome
        case WorkflowStatus.HALTED:
            output = {"halted": True, "result": draft.outcome}
        case WorkflowStatus.CANCELLED:
            error = _child_failed(draft, f"was cancelled: {_cancel_reason(draft) or 'no reason was given'}")
        case _:
            error = _child_failed(draft, f"failed: {draft.error.get('message')}")
    size, max_size = len(json.dumps(output)), draft.record.spec.limits.max_output_bytes
    if size > max_size:
        error = _child_failed(
            draft, f"ended with {size:,} bytes; limits.max_output_bytes allows {max_size:,}"
        )
    draft.send(child_result(parent, None if error is not None else output, error))


def _child_failed(draft: Draft, problem: str) -> dict[str, Any]:
    child = draft.record.workflow_execution_id
    return make_failure("child_failed", f"child {draft.record.execution_id} {problem}", child=child)


def child_result(parent: Parent, output: Any, error: dict[str, Any] | None) -> ResultEvent:
    return ResultEvent(
        parent.execution, parent.step_id, output, error, parent.run_id, parent.attempt, parent.token
    )
