"""Controls: what an operator can do with an execution (cancel, pause, unpause, retry, rerun, delete) and with
one of its steps (hold, release).

A control that cannot be carried out raises InvalidEvent with the reason. One that changes nothing succeeds.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.engine.redrive import rerun, retry
from orchestrator.application.engine.signals import take_kept_signal
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import Cancelled
from orchestrator.application.records.events import ControlEvent
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.timers import timers_for_step
from orchestrator.application.spec.validation import check_inputs
from orchestrator.application.values.unit_id import WEBHOOK_UNIT

_HOLDABLE = (StepStatus.READY, StepStatus.RETRY, StepStatus.DEFERRED, StepStatus.WAITING)


def on_control(draft: Draft, event: ControlEvent) -> Cancelled | None:
    """Carry out a control. Those of one batch are carried out in order; after a delete no other is."""
    if draft.changes.deletes_execution:
        raise _rejection("controlled", draft, "deleted")
    before = len(draft.changes.history)
    result = _carry_out(draft, event)
    if len(draft.changes.history) > before:
        _note(draft, event)
    return result


def _note(draft: Draft, event: ControlEvent) -> None:
    """Add a control to the history, with the `by` and the reason of its event."""
    details = {
        "step": event.step_id,
        "by": event.by,
        "reason": event.reason,
        "inputs": list(event.inputs or ()),
    }
    draft.note(control=event.action, **{name: value for name, value in details.items() if value})


def _carry_out(draft: Draft, event: ControlEvent) -> Cancelled | None:
    match event.action:
        case "cancel":
            return _cancel(draft, event)
        case "pause":
            _pause(draft, event)
        case "unpause":
            _unpause(draft)
        case "hold":
            _hold(draft, _named_step(draft, event))
        case "release":
            _release(draft, _named_step(draft, event))
        case "retry":
            inputs = _corrected_inputs(draft, event)
            retry(draft)
            draft.changes.fields |= inputs
        case "rerun":
            inputs = _corrected_inputs(draft, event)
            rerun(draft, _named_step(draft, event))
            draft.changes.fields |= inputs
        case _:  # delete: there is no other
            _delete(draft)
    return None


def _cancel(draft: Draft, event: ControlEvent) -> Cancelled | None:
    """Cancel the execution at once, even when it is paused.

    A cancel from a parent is ignored when the execution is already ending, and when this execution is not the
    child that the parent means, but another one with the same id."""
    is_ending = draft.is_final or draft.status is WorkflowStatus.COMPENSATING
    parent = draft.record.parent
    is_child = parent is not None and parent.token == event.parent_token
    is_ignored = event.is_from_parent and (is_ending or not is_child)
    if draft.status is WorkflowStatus.CANCELLED or is_ignored:
        return None
    if is_ending:
        raise _rejection("cancelled", draft)
    reason = f"workflow cancelled: {event.reason}" if event.reason else "workflow cancelled"
    draft.changes.fields["cancelled"] = _request_details(draft, event)
    end_workflow(draft, WorkflowStatus.CANCELLED, reason)
    return Cancelled(event.reason) if draft.is_final else None


def _pause(draft: Draft, event: ControlEvent) -> None:
    """Stop dispatching. What runs continues, and timers keep running."""
    if draft.status is WorkflowStatus.PAUSED:
        return
    if draft.is_final or draft.status is WorkflowStatus.COMPENSATING:
        raise _rejection("paused", draft)
    draft.move_workflow(WorkflowStatus.PAUSED, paused=_request_details(draft, event))


def _request_details(draft: Draft, event: ControlEvent) -> dict[str, Any]:
    """When a control was carried out, with its reason and its requester if they were given."""
    details = {"reason": event.reason, "by": event.by}
    return {"at": draft.moment.iso, **{name: text for name, text in details.items() if text is not None}}


def _unpause(draft: Draft) -> None:
    if draft.status is not WorkflowStatus.PAUSED:
        raise _rejection("unpaused", draft)
    draft.move_workflow(WorkflowStatus.IN_PROGRESS)
    if draft.deadline_ms is None:
        draft.start_timeout()  # it was paused before the first step began


def _hold(draft: Draft, step_id: str) -> None:
    """Keep a step in its status until it is released; its times keep running."""
    status = draft.step(step_id).status
    if status is StepStatus.ON_HOLD:
        return
    if draft.is_final or status not in _HOLDABLE:
        raise InvalidEvent(f"step {step_id!r} cannot be held: it is {status}")
    draft.move(step_id, StepStatus.ON_HOLD, held=status.value)


def _release(draft: Draft, step_id: str) -> None:
    """Return a step to the status it was held in, with its times; what is due by now happens now."""
    step = draft.step(step_id)
    if step.status is not StepStatus.ON_HOLD:
        raise InvalidEvent(f"step {step_id!r} cannot be released: it is {step.status}")
    status = StepStatus(step.held or StepStatus.READY)
    draft.move(step_id, status, held=None)
    # During the hold the step could not be skipped, and its signals were kept.
    draft.dead_ends += ((parent, step_id) for parent in draft.graph.parents[step_id])
    if status is StepStatus.WAITING:
        take_kept_signal(draft, step_id)


def _corrected_inputs(draft: Draft, event: ControlEvent) -> dict[str, Any]:
    """The field `inputs` with the corrections of the event applied; empty if it has none."""
    if not event.inputs:
        return {}
    inputs, problems = check_inputs(draft.record.spec, {**draft.inputs, **event.inputs})
    if problems:
        raise InvalidEvent("; ".join(map(str, problems)))
    return {"inputs": inputs}


def _delete(draft: Draft) -> None:
    """Delete the execution, its record and its history. A webhook that is still in progress is revoked."""
    if not draft.is_final:
        raise _rejection("deleted", draft)
    unit = draft.unit(WEBHOOK_UNIT)
    if unit is not None:
        draft.revoke(WEBHOOK_UNIT)
        for timer in timers_for_step(WEBHOOK_UNIT, unit):
            draft.disarm(timer)
    draft.changes.deletes_execution = True


def _named_step(draft: Draft, event: ControlEvent) -> str:
    if event.step_id not in draft.graph.index:
        raise InvalidEvent(
            f"workflow {draft.record.workflow_execution_id!r} has no step {event.step_id!r} to {event.action}"
        )
    return event.step_id


def _rejection(action: str, draft: Draft, status: str | None = None) -> InvalidEvent:
    status = status or draft.status.value
    return InvalidEvent(f"workflow {draft.record.workflow_execution_id!r} cannot be {action}: it is {status}")
