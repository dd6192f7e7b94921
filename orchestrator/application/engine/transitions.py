"""How an execution moves: pure functions of a record, an event and a moment.

    on_step_result   write down what an attempt brought back
    advance          find what can run, claim it, or end the workflow
    decide           both, for a batch of events: what the coordinator commits

They return `Changes` and a decision; the record itself is left as it was. Redelivered, late and
foreign results change nothing: they fail the fence, are counted and dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.engine.advance import advance_draft
from orchestrator.application.engine.bringing import apply_unit_result
from orchestrator.application.engine.concurrency import on_slot
from orchestrator.application.engine.controls import on_control
from orchestrator.application.engine.dependencies import skip_dead_ends
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import abandon_workflow
from orchestrator.application.engine.maps import is_map_item, item_roots, requeue_item
from orchestrator.application.engine.results import (
    Error,
    StepResult,
    make_error_result,
    schedule_retry,
    shape_output,
)
from orchestrator.application.engine.signals import on_signal
from orchestrator.application.engine.timer_events import on_timeout, on_timer, on_workflow_timeout
from orchestrator.application.engine.webhook import update_webhook
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import Decision, Pending
from orchestrator.application.records.events import (
    ContinueEvent,
    ControlEvent,
    LostEvent,
    Moment,
    ResultEvent,
    SignalEvent,
    SlotEvent,
    StartedEvent,
    StepEvent,
    TimerEvent,
    failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import WEBHOOK_UNIT
from orchestrator.application.values.failure_kinds import NON_RETRYABLE_KINDS

__all__ = [
    "NON_RETRYABLE_KINDS",
    "BatchDecision",
    "StepResult",
    "advance",
    "decide",
    "fail_workflow",
    "on_step_result",
]


@dataclass(slots=True)
class BatchDecision:
    """What a batch of events came to; `refused` are events that name something unknown or ask for what cannot
    be done, `answers` what those hear who asked for something: both by the position of the event."""

    changes: Changes
    decision: Decision
    rejected: list[tuple[int, str]] = field(default_factory=list)
    replies: dict[int, dict[str, Any]] = field(default_factory=dict)


def on_step_result(record: WorkflowRecord, event: StepEvent, moment: Moment) -> tuple[Changes, StepResult]:
    """Write down what an attempt brought back; advance() decides what follows."""
    draft = Draft(record, moment)
    result = _apply(draft, event)
    return draft.changes, result


def advance(record: WorkflowRecord, moment: Moment, limit: int | None = None) -> tuple[Changes, Decision]:
    """Claim every step that can run, at most `limit` of them, or end the workflow."""
    draft = Draft(record, moment)
    decision = advance_draft(draft, limit)
    return draft.changes, decision


def decide(
    record: WorkflowRecord, events: Iterable[StepEvent], moment: Moment, limit: int | None = None
) -> BatchDecision:
    """Apply all events in order, then advance once."""
    draft = Draft(record, moment)
    rejected: list[tuple[int, str]] = []
    replies: dict[int, dict[str, Any]] = {}
    for position, event in enumerate(events):
        try:
            if isinstance(event, (ControlEvent, SignalEvent)):
                replies[position] = _answered(draft, event)
            else:
                _apply(draft, event)
        except InvalidEvent as error:
            rejected.append((position, str(error)))
    decision = advance_draft(draft, limit)
    for answer in replies.values():
        answer["status"] = "deleted" if draft.changes.deletes_execution else draft.status.value
    return BatchDecision(draft.changes, decision, rejected, replies)


def _answered(draft: Draft, event: ControlEvent | SignalEvent) -> dict[str, Any]:
    """Take in what somebody outside wants, and say whether anything came of it."""
    if isinstance(event, SignalEvent) and draft.is_final:
        _apply(draft, event)
        return {"ok": False, "reason": signal_rejection_reason(draft.record, draft.status)}
    before, signals = len(draft.changes.history), len(draft.signals)
    _apply(draft, event)
    if isinstance(event, SignalEvent):
        return {"ok": True, "kept": len(draft.signals) > signals}
    return {"ok": True, "changed": len(draft.changes.history) > before or draft.changes.deletes_execution}


def signal_rejection_reason(record: WorkflowRecord, status: WorkflowStatus) -> str:
    """Why an execution that has ended refuses a signal."""
    return f"nobody waits for a signal: workflow {record.workflow_execution_id!r} is {status}"


def fail_workflow(record: WorkflowRecord, error: dict[str, Any], moment: Moment) -> Changes:
    """End an execution that cannot be decided upon, so that it does not wait for ever."""
    draft = Draft(record, moment)
    if not draft.is_final:
        abandon_workflow(draft, f"workflow failed: {error['message']}", error)
        update_webhook(draft)
    return draft.changes


# ---- events


def _apply(draft: Draft, event: StepEvent) -> StepResult:
    result = _take_in(draft, event)
    skip_dead_ends(draft)
    return result


def _take_in(draft: Draft, event: StepEvent) -> StepResult:
    match event:
        case ContinueEvent():
            return None
        case SignalEvent():
            return None if _is_late(draft) else on_signal(draft, event.name, event.payload)
        case ControlEvent():
            return on_control(draft, event)
        case SlotEvent():
            if not _is_late(draft):
                on_slot(draft, event)
            return None
        case TimerEvent(kind="timeout"):
            return None if _is_late(draft) else on_workflow_timeout(draft)
    if event.step_id != WEBHOOK_UNIT:  # which is what happens after the end
        if event.step_id.partition("#")[0] not in draft.graph.index:
            weid = draft.record.workflow_execution_id
            raise InvalidEvent(f"workflow {weid!r} has no step {event.step_id!r}")
        if _is_late(draft):
            return None
    unit = draft.unit(event.step_id)
    if isinstance(event, TimerEvent):
        return on_timer(draft, event, unit)
    if unit is None or not _is_current(unit, event):
        draft.count("stale")
        return None
    match event:
        case StartedEvent():
            _on_started(draft, event)
            return None
        case LostEvent():
            return _on_lost(draft, event, unit)
    return _on_result(draft, event)


def _is_late(draft: Draft) -> bool:
    if draft.is_final:
        draft.count("late")
    return draft.is_final


def _is_current(unit: StepRecord, event: ResultEvent | StartedEvent | LostEvent) -> bool:
    """The fence: this attempt, of this run, under this token, is in progress."""
    if unit.status is not StepStatus.IN_PROGRESS or unit.token is None:
        return False
    return (
        event.token in (None, unit.token)
        and event.run_id in (None, unit.run_id)
        and event.attempt in (None, unit.attempt)
    )


def _on_started(draft: Draft, event: StartedEvent) -> None:
    """The clock of the attempt starts when its worker says so: time in the queue does not count."""
    timeout_s = draft.spec(event.step_id).timeout_s
    deadline_ms = None if timeout_s is None else draft.moment.at_ms + round(timeout_s * 1000)
    draft.amend(
        event.step_id,
        started_at=event.started_at or draft.moment.iso,
        worker=event.worker,
        deadline_ms=deadline_ms,
    )


def _on_lost(draft: Draft, event: LostEvent, unit: StepRecord) -> StepResult:
    """Dispatch again, as the same attempt: a dead worker is not the step's fault, up to a limit.

    An attempt whose deadline has passed meanwhile timed out, whoever noticed first.
    """
    if unit.deadline_ms is not None and unit.deadline_ms <= draft.moment.at_ms:
        return on_timeout(draft, event.step_id)
    draft.count("lost")
    draft.revoke(event.step_id)  # a worker that was silent may run it still
    if unit.lost >= draft.record.spec.limits.max_lost:
        message = f"{event.reason} ({unit.lost + 1} workers lost with this attempt)"
        return apply_unit_result(draft, event.step_id, *make_error_result(failure("lost", message)))
    draft.move(
        event.step_id,
        StepStatus.IN_PROGRESS,
        run_id=unit.run_id + 1,
        lost=unit.lost + 1,
        token=None,
        worker=None,
        started_at=None,
        deadline_ms=None,
        reason=event.reason,
    )
    if is_map_item(event.step_id):
        requeue_item(draft, event.step_id)
    return Pending()


def _on_result(draft: Draft, event: ResultEvent) -> StepResult:
    unit = event.step_id
    if event.error is not None:
        return apply_unit_result(draft, unit, *make_error_result(event.error), event.worker, event.started_at)
    raw: Any = event.output
    loop = draft.spec(unit).loop
    if loop is not None:
        again, raw, error = _loop(draft, unit, raw)
        if again is not None:
            return again
        if error is not None:
            return apply_unit_result(draft, unit, *make_error_result(error), event.worker, event.started_at)
    roots = item_roots(draft, unit) if is_map_item(unit) else {}
    return apply_unit_result(
        draft, unit, *shape_output(draft, unit, raw, **roots), event.worker, event.started_at
    )


def _loop(draft: Draft, unit: str, raw: Any) -> tuple[Pending | None, Any, Error]:
    """What a round of a loop means: another one, or the value that it ends with."""
    spec, record = draft.spec(unit).loop, draft.require_unit(unit)
    assert spec is not None
    said = raw.get("_loop") if isinstance(raw, dict) else None
    if said not in ("again", "done"):
        message = 'a loop must return {"_loop": "again" or "done", "value": {...}}'
        return None, None, failure("bad_output", message)
    value = raw.get("value")
    if said == "done":
        return None, value, None
    if record.iteration + 1 < spec.max_iterations:
        draft.finish_dispatch(unit)
        rounds = {"attempt": 1, "iteration": record.iteration + 1, "loop_value": value}
        pending = schedule_retry(draft, unit, **rounds)
        if is_map_item(unit):
            requeue_item(draft, unit)
        return pending, None, None
    if spec.on_max == "exit_with_last":
        return None, value, None
    return None, None, failure("loop_limit", f"the loop said again {spec.max_iterations} times")
