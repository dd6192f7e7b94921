"""What an operator may tell an execution: cancel, pause, unpause, retry, rerun, delete; and one step of it:
hold, release.

What cannot be done is refused with an InvalidEvent that says why; what is already so is done without a word.
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
from orchestrator.application.spec.model import WEBHOOK_UNIT
from orchestrator.application.spec.validation import check_inputs

_HOLDABLE = (StepStatus.READY, StepStatus.RETRY, StepStatus.DEFERRED, StepStatus.WAITING)


def on_control(draft: Draft, event: ControlEvent) -> Cancelled | None:
    """What is told to several at once is judged one after the other: nothing follows upon a delete."""
    if draft.changes.deletes_execution:
        raise _refusal("told anything", draft, "deleted")
    before = len(draft.changes.history)
    result = _obey(draft, event)
    if len(draft.changes.history) > before:
        _note(draft, event)
    return result


def _note(draft: Draft, event: ControlEvent) -> None:
    """Who wanted it, and why: for those who read the history."""
    said = {"step": event.step_id, "by": event.by, "reason": event.reason, "inputs": list(event.inputs or ())}
    draft.note(control=event.action, **{name: text for name, text in said.items() if text})


def _obey(draft: Draft, event: ControlEvent) -> Cancelled | None:
    match event.action:
        case "cancel":
            return _cancel(draft, event)
        case "pause":
            _pause(draft)
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
    """At once, also when paused. Of a parent that ends while its child does, the child hears too late; and
    who has the id of a child without being that one is not meant."""
    is_ending = draft.is_final or draft.status is WorkflowStatus.COMPENSATING
    parent = draft.record.parent or {}
    is_deaf = event.is_from_parent and (is_ending or parent.get("token") != event.parent_token)
    if draft.status is WorkflowStatus.CANCELLED or is_deaf:
        return None
    if is_ending:
        raise _refusal("cancelled", draft)
    reason = f"workflow cancelled: {event.reason}" if event.reason else "workflow cancelled"
    given = {"reason": event.reason, "by": event.by}
    cancelled = {"at": draft.moment.iso, **{name: text for name, text in given.items() if text is not None}}
    draft.changes.fields["cancelled"] = cancelled
    end_workflow(draft, WorkflowStatus.CANCELLED, reason)
    return Cancelled(event.reason) if draft.is_final else None


def _pause(draft: Draft) -> None:
    """Nothing is dispatched any more; what runs goes on, and so do all clocks."""
    if draft.status is WorkflowStatus.PAUSED:
        return
    if draft.is_final or draft.status is WorkflowStatus.COMPENSATING:
        raise _refusal("paused", draft)
    draft.move_workflow(WorkflowStatus.PAUSED)


def _unpause(draft: Draft) -> None:
    if draft.status is not WorkflowStatus.PAUSED:
        raise _refusal("unpaused", draft)
    draft.move_workflow(WorkflowStatus.IN_PROGRESS)
    if draft.deadline_ms is None:
        draft.start_clock()  # it was paused before anything had begun


def _hold(draft: Draft, step_id: str) -> None:
    """The step stays where it is until it is released; its clocks go on."""
    status = draft.step(step_id).status
    if status is StepStatus.ON_HOLD:
        return
    if draft.is_final or status not in _HOLDABLE:
        raise InvalidEvent(f"step {step_id!r} cannot be held: it is {status}")
    draft.move(step_id, StepStatus.ON_HOLD, held=status.value)


def _release(draft: Draft, step_id: str) -> None:
    """Back to where it was held, with the times it had; what is due by now happens now."""
    step = draft.step(step_id)
    if step.status is not StepStatus.ON_HOLD:
        raise InvalidEvent(f"step {step_id!r} cannot be released: it is {step.status}")
    status = StepStatus(step.held or StepStatus.READY)
    draft.move(step_id, status, held=None)
    # While it was held nobody could skip it, and signals for it were kept.
    draft.dead_ends += ((parent, step_id) for parent in draft.graph.parents[step_id])
    if status is StepStatus.WAITING:
        take_kept_signal(draft, step_id)


def _corrected_inputs(draft: Draft, event: ControlEvent) -> dict[str, Any]:
    """What is given in the place of what was wrong, as a field of the record; the other inputs stay."""
    if not event.inputs:
        return {}
    inputs, problems = check_inputs(draft.record.spec, {**draft.inputs, **event.inputs})
    if problems:
        raise InvalidEvent("; ".join(map(str, problems)))
    return {"inputs": inputs}


def _delete(draft: Draft) -> None:
    """Nothing of it is kept: not the record, nor its history. If its webhook is still out, nobody waits for
    that any more."""
    if not draft.is_final:
        raise _refusal("deleted", draft)
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


def _refusal(what: str, draft: Draft, because: str | None = None) -> InvalidEvent:
    because = because or draft.status.value
    return InvalidEvent(f"workflow {draft.record.workflow_execution_id!r} cannot be {what}: it is {because}")
