"""What follows when a time has come.

A timer is a hint: it counts only if the record still waits for it, and its time has come.
"""

from __future__ import annotations

from orchestrator.application.engine.bringing import apply_unit_result
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.engine.results import StepResult, make_error_result
from orchestrator.application.engine.signals import on_wait_timeout
from orchestrator.application.engine.start_conditions import wake
from orchestrator.application.records.decisions import Failed, Pending
from orchestrator.application.records.events import TimerEvent, failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.timers import Timer, timers_for_step


def on_timer(draft: Draft, event: TimerEvent, unit: StepRecord | None) -> StepResult:
    armed = timers_for_step(event.step_id, unit) if unit is not None else ()
    timer = next((one for one in armed if (one.kind, one.token) == (event.kind, event.token)), None)
    if timer is None or unit is None:
        draft.count("stale")
        return None
    if draft.moment.at_ms < timer.due_ms:
        draft.arm(timer)
        return None
    match event.kind:
        case "retry":
            draft.amend(event.step_id, not_before_ms=None)
            return None
        case "wake":
            wake(draft, event.step_id)
            return None
    if unit.status is StepStatus.WAITING:
        return on_wait_timeout(draft, event.step_id)
    return on_timeout(draft, event.step_id)


def on_timeout(draft: Draft, unit: str) -> StepResult:
    """An attempt has exceeded its time, whoever noticed first."""
    draft.revoke(unit)
    message = f"execution timeout exceeded ({draft.spec(unit).timeout_s:g} s)"
    return apply_unit_result(draft, unit, *make_error_result(failure("timeout", message)))


def on_workflow_timeout(draft: Draft) -> StepResult:
    due_ms = draft.deadline_ms
    if due_ms is None:
        return None
    if draft.moment.at_ms < due_ms:
        draft.arm(Timer("timeout", "", "", due_ms))
        return None
    error = failure("timeout", f"the workflow exceeded its timeout ({draft.record.spec.timeout_s:g} s)")
    end_workflow(draft, WorkflowStatus.FAILED, "workflow timed out", error=error)
    return Failed(error) if draft.is_final else Pending()
