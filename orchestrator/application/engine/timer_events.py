"""Timer events: what follows when a timer is due.

A timer is a hint. It counts only if the record still has it and its time has come.
"""

from __future__ import annotations

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.engine.outputs import make_error_result
from orchestrator.application.engine.results import StepResult, apply_result
from orchestrator.application.engine.signals import on_wait_timeout
from orchestrator.application.engine.start_conditions import wake
from orchestrator.application.records.decisions import Failed, Pending
from orchestrator.application.records.events import TimerEvent, make_failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.timers import Timer, timers_for_step


def on_timer(draft: Draft, event: TimerEvent, record: StepRecord | None) -> StepResult:
    """Handle a timer of a unit. A timer that comes too early is armed again."""
    timers = timers_for_step(event.step_id, record) if record is not None else ()
    timer = next((one for one in timers if (one.kind, one.token) == (event.kind, event.token)), None)
    if timer is None or record is None:
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
    if record.status is StepStatus.WAITING:
        return on_wait_timeout(draft, event.step_id)
    return on_timeout(draft, event.step_id)


def on_timeout(draft: Draft, unit: str) -> StepResult:
    """Fail an attempt that has exceeded its timeout."""
    draft.revoke(unit)
    message = f"execution timeout exceeded ({draft.spec(unit).timeout_s:g} s)"
    return apply_result(draft, unit, *make_error_result(make_failure("timeout", message)))


def on_workflow_timeout(draft: Draft) -> StepResult:
    """Fail a workflow that has exceeded its timeout. A timer that comes too early is armed again."""
    due_ms = draft.deadline_ms
    if due_ms is None:
        return None
    if draft.moment.at_ms < due_ms:
        draft.arm(Timer("timeout", "", "", due_ms))
        return None
    error = make_failure("timeout", f"the workflow exceeded its timeout ({draft.record.spec.timeout_s:g} s)")
    end_workflow(draft, WorkflowStatus.FAILED, "workflow timed out", error=error)
    return Failed(error) if draft.is_final else Pending()
