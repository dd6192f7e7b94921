"""Transitions: pure functions of a record, an event and a moment.

    on_step_result   record the result of an attempt
    advance          find the steps that can run and claim them, or end the workflow
    decide           both, for a batch of events: what the coordinator commits

They return `Changes` and a decision, and do not modify the record. Results that are redelivered, late or from
another dispatch change nothing: the fence rejects them, and they are counted and dropped.

A result takes this path: `_apply` (the fence) -> results -> branches, maps and retries -> draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.engine.advance import advance_draft
from orchestrator.application.engine.concurrency import on_slot
from orchestrator.application.engine.controls import on_control
from orchestrator.application.engine.declines import on_available, on_declined
from orchestrator.application.engine.dependencies import skip_dead_ends
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import abandon_workflow
from orchestrator.application.engine.outputs import make_error_result
from orchestrator.application.engine.results import StepResult, apply_result, on_result, return_item
from orchestrator.application.engine.signals import on_signal
from orchestrator.application.engine.timer_events import on_timeout, on_timer, on_workflow_timeout
from orchestrator.application.engine.turn import Turn
from orchestrator.application.engine.webhook import dispatch_webhook
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import Decision, Pending
from orchestrator.application.records.events import (
    AvailableEvent,
    ContinueEvent,
    ControlEvent,
    DeclinedEvent,
    LostEvent,
    Moment,
    ResultEvent,
    SignalEvent,
    SlotEvent,
    StartedEvent,
    StepEvent,
    TimerEvent,
    make_failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.dispatch_tokens import dispatch_id
from orchestrator.application.values.failure_kinds import NON_RETRYABLE_KINDS
from orchestrator.application.values.unit_id import WEBHOOK_UNIT, UnitId, step_of

__all__ = [
    "NON_RETRYABLE_KINDS",
    "BatchDecision",
    "StepResult",
    "advance",
    "decide",
    "fail_workflow",
    "on_step_result",
]


UnitEvent = ResultEvent | StartedEvent | LostEvent | DeclinedEvent
"""The events of a worker about one dispatch."""


@dataclass(slots=True)
class BatchDecision:
    """The decision on a batch of events. `applied` is how many of them it is about: the others follow in the
    next turn. `rejected` are the events that name something unknown or ask for something impossible, with the
    reason; `replies` are the replies to signals and controls. Both are by the position of the event in the
    batch."""

    changes: Changes
    decision: Decision
    applied: int
    rejected: list[tuple[int, str]] = field(default_factory=list)
    replies: dict[int, dict[str, Any]] = field(default_factory=dict)


def on_step_result(record: WorkflowRecord, event: StepEvent, moment: Moment) -> tuple[Changes, StepResult]:
    """Record the result of an attempt, or apply another event. advance() decides what runs next."""
    draft = Draft(record, moment)
    result = _apply(draft, event)
    return draft.changes, result


def advance(record: WorkflowRecord, moment: Moment, limit: int | None = None) -> tuple[Changes, Decision]:
    """Claim every step that can run, at most `limit` of them, or end the workflow."""
    draft = Draft(record, moment)
    decision = advance_draft(draft, limit)
    return draft.changes, decision


def decide(
    record: WorkflowRecord,
    events: Sequence[StepEvent],
    moment: Moment,
    limit: int | None = None,
    turn: Turn | None = None,
) -> BatchDecision:
    """Apply all events in order, then advance once. When the work of the turn is spent, the decision ends
    between two events or two steps, with `has_more_ready`; it applies one event at least."""
    draft = Draft(record, moment, turn)
    _continue_agenda(draft, events)
    rejected: list[tuple[int, str]] = []
    replies: dict[int, dict[str, Any]] = {}
    applied = 0
    for position, event in enumerate(events):
        if position and draft.is_turn_over:
            break
        applied += 1
        try:
            if isinstance(event, (ControlEvent, SignalEvent)):
                replies[position] = _apply_with_reply(draft, event)
            else:
                _apply(draft, event)
        except InvalidEvent as error:
            rejected.append((position, str(error)))
    decision = advance_draft(draft, limit)
    for reply in replies.values():
        reply["status"] = "deleted" if draft.changes.deletes_execution else draft.status.value
    draft.turn.count(len(draft.changes.history))
    return BatchDecision(draft.changes, decision, applied, rejected, replies)


def _apply_with_reply(draft: Draft, event: ControlEvent | SignalEvent) -> dict[str, Any]:
    """Apply a signal or a control, and build the reply: whether it changed anything."""
    if isinstance(event, SignalEvent) and draft.is_final:
        _apply(draft, event)
        return {"ok": False, "reason": signal_rejection_reason(draft.record, draft.status)}
    before, signals = len(draft.changes.history), len(draft.signals)
    _apply(draft, event)
    if isinstance(event, SignalEvent):
        return {"ok": True, "kept": len(draft.signals) > signals}
    return {"ok": True, "changed": len(draft.changes.history) > before or draft.changes.deletes_execution}


def signal_rejection_reason(record: WorkflowRecord, status: WorkflowStatus) -> str:
    """Why an execution that has ended rejects a signal."""
    return f"no step waits for a signal: workflow {record.workflow_execution_id!r} is {status}"


def fail_workflow(record: WorkflowRecord, error: dict[str, Any], moment: Moment) -> Changes:
    """Fail an execution whose transitions raise an exception, so that it does not wait forever."""
    draft = Draft(record, moment)
    if not draft.is_final:
        abandon_workflow(draft, f"workflow failed: {error['message']}", error)
        dispatch_webhook(draft)
    return draft.changes


def _continue_agenda(draft: Draft, events: Sequence[StepEvent]) -> None:
    """Begin where a decision has stopped, if these events only continue it. Any other event may concern the
    steps before, whose evaluation changed nothing then."""
    if not events or not isinstance(events[0], ContinueEvent):
        return
    places = [event.step_id if isinstance(event, ContinueEvent) else "" for event in events]
    if all(place in draft.graph.index for place in places):
        draft.begin_agenda_at(min(places, key=draft.graph.index.__getitem__))


# ---- events


def _apply(draft: Draft, event: StepEvent) -> StepResult:
    """Apply one event, and skip the steps that can no longer run because of it."""
    if isinstance(event, ResultEvent):  # the most frequent event
        result = _apply_to_unit(draft, event)
    else:
        result = _apply_event(draft, event)
    if draft.dead_ends:
        skip_dead_ends(draft)
    return result


def _apply_event(draft: Draft, event: StepEvent) -> StepResult:
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
    return _apply_to_unit(draft, event)


def _apply_to_unit(draft: Draft, event: UnitEvent | TimerEvent | AvailableEvent) -> StepResult:
    """Apply an event to the unit that it names, unless it is late or stale."""
    unit = event.step_id
    if unit != WEBHOOK_UNIT:  # the webhook runs after the end
        if unit not in draft.specs and step_of(unit) not in draft.specs:
            weid = draft.record.workflow_execution_id
            raise InvalidEvent(f"workflow {weid!r} has no step {unit!r}")
        if _is_late(draft):
            return None
    record = draft.unit(unit)
    if isinstance(event, TimerEvent):
        return on_timer(draft, event, record)
    if isinstance(event, AvailableEvent):
        on_available(draft, event, record)
        return None
    if record is None or not _is_current(record, event):
        draft.count("stale")
        return None
    match event:
        case ResultEvent():
            return on_result(draft, event)
        case LostEvent():
            return _on_lost(draft, event, record)
        case DeclinedEvent():
            return on_declined(draft, event, record)
    _on_started(draft, event)
    return None


def _is_late(draft: Draft) -> bool:
    """Whether the execution has ended; the event is then counted as late."""
    if draft.is_final:
        draft.count("late")
    return draft.is_final


def _is_current(unit: StepRecord, event: UnitEvent) -> bool:
    """The fence: the event belongs to the attempt, run and token that are in progress. A loss may also be
    published by a sweep, which knows the dispatch by its id only."""
    if unit.status is not StepStatus.IN_PROGRESS or unit.token is None:
        return False
    is_named = isinstance(event, LostEvent) and event.token == dispatch_id(unit.token)
    return (
        (is_named or event.token in (None, unit.token))
        and event.run_id in (None, unit.run_id)
        and event.attempt in (None, unit.attempt)
    )


def _on_started(draft: Draft, event: StartedEvent) -> None:
    """Start the timeout of an attempt when its worker starts it: time in the queue does not count."""
    timeout_s = draft.spec(event.step_id).timeout_s
    deadline_ms = None if timeout_s is None else draft.moment.at_ms + round(timeout_s * 1000)
    draft.amend(
        event.step_id,
        started_at=event.started_at or draft.moment.iso,
        worker=event.worker,
        deadline_ms=deadline_ms,
    )


def _on_lost(draft: Draft, event: LostEvent, record: StepRecord) -> StepResult:
    """Dispatch a lost attempt again, up to a limit, as the same attempt: the step did not fail.

    An attempt whose deadline has passed meanwhile timed out, even if its loss is noticed first.
    """
    unit = event.step_id
    if record.deadline_ms is not None and record.deadline_ms <= draft.moment.at_ms:
        return on_timeout(draft, unit)
    draft.count("lost")
    draft.revoke(unit)  # a worker that only stopped sending heartbeats may still run it
    if record.lost >= draft.record.spec.limits.max_lost:
        message = f"{event.reason} ({record.lost + 1} workers lost with this attempt)"
        return apply_result(draft, unit, *make_error_result(make_failure("lost", message)))
    draft.move(
        unit,
        StepStatus.IN_PROGRESS,
        run_id=record.run_id + 1,
        lost=record.lost + 1,
        declined=0,
        token=None,
        worker=None,
        started_at=None,
        deadline_ms=None,
        reason=event.reason,
    )
    if unit not in draft.specs and UnitId(unit).is_item:
        return_item(draft, unit)
    return Pending()
