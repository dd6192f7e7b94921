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

from orchestrator.application.attempts import (
    NEVER_RETRIED,
    Error,
    StepResult,
    as_error,
    fail_for_good,
    reshaped,
    try_again,
)
from orchestrator.application.bringing import bring_unit
from orchestrator.application.changes import Changes
from orchestrator.application.clock import on_timeout, on_timer, on_workflow_timeout
from orchestrator.application.controls import on_control
from orchestrator.application.decisions import Decision, Dispatch, Pending
from orchestrator.application.dispatches import dispatch, start_child
from orchestrator.application.draft import Draft
from orchestrator.application.edges import skip_dead_ends
from orchestrator.application.endings import abandon_workflow, end_workflow, ending_of, go_on_compensating
from orchestrator.application.errors import ExpressionError, InvalidEvent
from orchestrator.application.events import (
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
from orchestrator.application.expressions import resolve
from orchestrator.application.gates import is_eligible, pass_gates
from orchestrator.application.maps import fill_map, is_item, item_goes_again, item_roots, items_of, open_map
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.slots import has_place, on_slot, workflow_has_place
from orchestrator.application.states import StepStatus, WorkflowStatus
from orchestrator.application.units import StepRecord
from orchestrator.application.waits import on_signal

__all__ = ["NEVER_RETRIED", "Decided", "StepResult", "advance", "decide", "fail_workflow", "on_step_result"]


@dataclass(slots=True)
class Decided:
    """What a batch of events came to; `refused` are events that name something unknown."""

    changes: Changes
    decision: Decision
    refused: list[tuple[int, str]] = field(default_factory=list)


def on_step_result(record: WorkflowRecord, event: StepEvent, moment: Moment) -> tuple[Changes, StepResult]:
    """Write down what an attempt brought back; advance() decides what follows."""
    draft = Draft(record, moment)
    result = _apply(draft, event)
    return draft.changes, result


def advance(record: WorkflowRecord, moment: Moment, limit: int | None = None) -> tuple[Changes, Decision]:
    """Claim every step that can run, at most `limit` of them, or end the workflow."""
    draft = Draft(record, moment)
    decision = _advance(draft, limit)
    return draft.changes, decision


def decide(
    record: WorkflowRecord, events: Iterable[StepEvent], moment: Moment, limit: int | None = None
) -> Decided:
    """Apply all events in order, then advance once."""
    draft = Draft(record, moment)
    refused = []
    for position, event in enumerate(events):
        try:
            _apply(draft, event)
        except InvalidEvent as error:
            refused.append((position, str(error)))
    return Decided(draft.changes, _advance(draft, limit), refused)


def fail_workflow(record: WorkflowRecord, error: dict[str, Any], moment: Moment) -> Changes:
    """End an execution that cannot be decided upon, so that it does not wait for ever."""
    draft = Draft(record, moment)
    if not draft.is_final:
        abandon_workflow(draft, f"workflow failed: {error['message']}", error)
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
    step_id = event.step_id.partition("#")[0]
    if step_id not in draft.graph.index:
        raise InvalidEvent(f"workflow {draft.record.workflow_execution_id!r} has no step {event.step_id!r}")
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
    if unit.lost >= draft.record.spec.limits.max_lost:
        message = f"{event.reason} ({unit.lost + 1} workers lost with this attempt)"
        return bring_unit(draft, event.step_id, *as_error(failure("lost", message)))
    draft.revoke(event.step_id)
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
    if is_item(event.step_id):
        item_goes_again(draft, event.step_id)
    return Pending()


def _on_result(draft: Draft, event: ResultEvent) -> StepResult:
    unit = event.step_id
    if event.error is not None:
        return bring_unit(draft, unit, *as_error(event.error), event.worker, event.started_at)
    raw: Any = event.output
    loop = draft.spec(unit).loop
    if loop is not None:
        again, raw, error = _loop(draft, unit, raw)
        if again is not None:
            return again
        if error is not None:
            return bring_unit(draft, unit, *as_error(error), event.worker, event.started_at)
    roots = item_roots(draft, unit) if is_item(unit) else {}
    return bring_unit(draft, unit, *reshaped(draft, unit, raw, **roots), event.worker, event.started_at)


def _loop(draft: Draft, unit: str, raw: Any) -> tuple[Pending | None, Any, Error]:
    """What a round of a loop means: another one, or the value that it ends with."""
    spec, record = draft.spec(unit).loop, draft.known(unit)
    assert spec is not None
    said = raw.get("_loop") if isinstance(raw, dict) else None
    if said not in ("again", "done"):
        message = 'a loop must return {"_loop": "again" or "done", "value": {...}}'
        return None, None, failure("bad_output", message)
    value = raw.get("value")
    if said == "done":
        return None, value, None
    if record.iteration + 1 < spec.max_iterations:
        draft.settle(unit)
        rounds = {"attempt": 1, "iteration": record.iteration + 1, "loop_value": value}
        pending = try_again(draft, unit, **rounds)
        if is_item(unit):
            item_goes_again(draft, unit)
        return pending, None, None
    if spec.on_max == "exit_with_last":
        return None, value, None
    return None, None, failure("loop_limit", f"the loop said again {spec.max_iterations} times")


# ---- advance


def _advance(draft: Draft, limit: int | None) -> Decision:
    if draft.status is WorkflowStatus.PAUSED:
        return Pending()
    if _is_open(draft) and workflow_has_place(draft):
        while _is_open(draft) and (_judge(draft) or _dispatch(draft, limit)):
            pass
        if _is_open(draft) and not draft.changes.jobs:
            _finish(draft)
    if _is_compensating(draft):
        return go_on_compensating(draft)
    if draft.is_final:
        return ending_of(draft)
    return Dispatch(draft.changes.jobs) if draft.changes.jobs else Pending()


def _is_open(draft: Draft) -> bool:
    """Whether steps can still be run: it has not come to its end, nor to undoing what was done."""
    return not draft.is_final and not _is_compensating(draft)


def _is_compensating(draft: Draft) -> bool:
    return draft.status is WorkflowStatus.COMPENSATING


def _judge(draft: Draft) -> bool:
    """Take every step on the agenda through its gates; False when there was none."""
    judged = False
    while _is_open(draft) and (step_id := draft.next_to_judge()) is not None:
        judged = True
        if pass_gates(draft, step_id):
            draft.propose(step_id)
        skip_dead_ends(draft)
    return judged


def _dispatch(draft: Draft, limit: int | None) -> bool:
    """Claim candidates in spec order while there is room; True when that must be done once more: somebody is
    to be judged, or there is room again because a map had nothing to dispatch.

    The inputs of all are resolved before any is claimed: one that cannot be may end the workflow. A map that
    has nothing to dispatch may end it too, or reset those that stand after it.
    """
    ready: list[tuple[str, StepRecord, Any]] = []
    while (room := _room(draft, limit)) is None or len(ready) < room:
        step_id = draft.next_candidate()
        if step_id is None:
            break
        # What waited for room is judged again: a process that loads the record would do so too.
        passed = draft.judged[step_id] if step_id in draft.judged else pass_gates(draft, step_id)
        if passed and is_eligible(draft, step_id):
            _prepare(draft, step_id, ready)
        skip_dead_ends(draft)
        if not _is_open(draft):
            return False
    for step_id, step, resolved in ready:
        if not _is_open(draft):
            return False
        if draft.step(step_id) is not step:
            continue
        if (room := _room(draft, limit)) is not None and room <= 0:
            draft.propose(step_id)
        elif draft.spec(step_id).map is not None:
            _map(draft, step_id, resolved, room)
        elif draft.spec(step_id).child is not None:
            start_child(draft, step_id, resolved)
        else:
            dispatch(draft, step_id, resolved)
    draft.changes.more = _has_more(draft, limit)
    room = _room(draft, limit)
    return draft.has_agenda or (draft.has_candidates and (room is None or room > 0))


def _prepare(draft: Draft, step_id: str, ready: list[tuple[str, StepRecord, Any]]) -> None:
    """Resolve what the dispatch of a step needs, unless it must stand in line first."""
    doing = "concurrency.key cannot be evaluated"
    try:
        if _nests_too_deep(draft, step_id):
            most = draft.record.spec.limits.max_depth
            message = f"children may nest {most} deep at most (limits.max_depth)"
            fail_for_good(draft, step_id, failure("child_failed", message))
        elif has_place(draft, step_id):
            doing = "input cannot be resolved"
            ready.append((step_id, draft.step(step_id), _resolved(draft, step_id)))
    except ExpressionError as error:
        fail_for_good(draft, step_id, failure("expression", f"{doing}: {error}"))


def _nests_too_deep(draft: Draft, step_id: str) -> bool:
    limits = draft.record.spec.limits
    return draft.spec(step_id).child is not None and draft.record.depth >= limits.max_depth


def _room(draft: Draft, limit: int | None) -> int | None:
    """How many dispatches are still allowed: by this commit, and by the workflow's max_workers."""
    rooms = []
    if limit is not None:
        rooms.append(limit - draft.claims)
    if draft.record.spec.max_workers is not None:
        rooms.append(draft.record.spec.max_workers - draft.in_flight)
    return min(rooms, default=None)


def _has_more(draft: Draft, limit: int | None) -> bool:
    """Whether a further advance could dispatch at once: only the size of this commit was in the way."""
    if limit is None or draft.claims < limit:
        return False
    while (step_id := draft.next_candidate()) is not None:
        if is_eligible(draft, step_id):
            draft.propose(step_id)
            room = _room(draft, None)
            return room is None or room > 0
    return False


def _resolved(draft: Draft, step_id: str) -> Any:
    """What a dispatch needs: the inputs of a step; of a map, its items, unless it has them already."""
    spec = draft.spec(step_id)
    if spec.map is not None:
        return items_of(draft, step_id) if draft.step(step_id).items is None else None
    context = draft.context(step_id)
    return {key: resolve(value, context) for key, value in spec.input.items()}


def _map(draft: Draft, step_id: str, items: list[Any] | None, room: int | None) -> None:
    if items is not None:
        open_map(draft, step_id, items)
    if draft.step(step_id).items is not None:
        fill_map(draft, step_id, room)
    skip_dead_ends(draft)
    if _is_open(draft) and draft.step(step_id).awaits_dispatch:
        draft.propose(step_id)


def _finish(draft: Draft) -> None:
    """Nothing can be dispatched: the workflow is at its end, or something is still under way."""
    if draft.open:
        if not draft.active:
            message = "no step can ever run again, and not all are final"
            end_workflow(draft, WorkflowStatus.FAILED, "workflow stalled", error=failure("stalled", message))
        return
    context = draft.context()
    try:
        outcome = {name: resolve(value, context) for name, value in draft.record.spec.outputs.items()}
    except ExpressionError as error:
        message = f"outputs cannot be resolved: {error}"
        end_workflow(draft, WorkflowStatus.FAILED, "outputs failed", error=failure("expression", message))
        return
    unforgiven = _unforgiven(draft)
    if unforgiven is None:
        end_workflow(draft, WorkflowStatus.COMPLETE, "complete", outcome=outcome)
    else:
        end_workflow(draft, WorkflowStatus.FAILED, "failed", outcome=outcome, error=unforgiven)


def _unforgiven(draft: Draft) -> dict[str, Any] | None:
    """The first failure under policy `fail` that only the dependents tolerated."""
    for step_id in draft.graph.order:
        step = draft.step(step_id)
        if step.status is StepStatus.FAILED and draft.spec(step_id).on_error == "fail":
            return {**(step.error or {}), "step": step_id}
    return None
