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
    Output,
    StepResult,
    as_error,
    bring,
    fail_for_good,
    reshaped,
    try_again,
)
from orchestrator.application.changes import Changes
from orchestrator.application.decisions import Decision, Dispatch, Failed, Final, Pending, ended
from orchestrator.application.draft import Draft
from orchestrator.application.edges import skip_dead_ends
from orchestrator.application.errors import ExpressionError, InvalidEvent
from orchestrator.application.events import (
    ContinueEvent,
    LostEvent,
    Moment,
    ResultEvent,
    SignalEvent,
    StartedEvent,
    StepEvent,
    TimerEvent,
    failure,
)
from orchestrator.application.expressions import resolve
from orchestrator.application.gates import is_eligible, pass_gates, wake
from orchestrator.application.maps import (
    fill_map,
    item_goes_again,
    item_is_due,
    item_roots,
    items_of,
    on_item,
    open_map,
)
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.states import StepStatus, WorkflowStatus
from orchestrator.application.timers import Timer, timers_of
from orchestrator.application.units import StepRecord
from orchestrator.application.waits import on_signal, on_wait_over

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
        draft.end_workflow(WorkflowStatus.FAILED, f"workflow failed: {error['message']}", error=error)
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
        case TimerEvent(kind="timeout"):
            return None if _is_late(draft) else _on_workflow_timeout(draft)
    step_id = event.step_id.partition("#")[0]
    if step_id not in draft.graph.index:
        raise InvalidEvent(f"workflow {draft.record.workflow_execution_id!r} has no step {event.step_id!r}")
    if _is_late(draft):
        return None
    unit = draft.unit(event.step_id)
    if isinstance(event, TimerEvent):
        return _on_timer(draft, event, unit)
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
    timeout_s = draft.spec(event.step_id.partition("#")[0]).timeout_s
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
        return _on_timeout(draft, event.step_id)
    draft.count("lost")
    if unit.lost >= draft.record.spec.limits.max_lost:
        message = f"{event.reason} ({unit.lost + 1} workers lost with this attempt)"
        return _on_error(draft, event.step_id, failure("lost", message))
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
    if "#" in event.step_id:
        item_goes_again(draft, event.step_id)
    return Pending()


def _on_result(draft: Draft, event: ResultEvent) -> StepResult:
    unit = event.step_id
    if event.error is not None:
        return _bring(draft, unit, *as_error(event.error), event.worker, event.started_at)
    raw: Any = event.output
    loop = draft.spec(unit.partition("#")[0]).loop
    if loop is not None:
        again, raw, error = _loop(draft, unit, raw)
        if again is not None:
            return again
        if error is not None:
            return _bring(draft, unit, *as_error(error), event.worker, event.started_at)
    roots = item_roots(draft, unit) if "#" in unit else {}
    return _bring(draft, unit, *reshaped(draft, unit, raw, **roots), event.worker, event.started_at)


def _on_error(draft: Draft, unit: str, error: dict[str, Any]) -> StepResult:
    return _bring(draft, unit, *as_error(error))


def _bring(
    draft: Draft,
    unit: str,
    output: Output,
    error: Error,
    worker: str | None = None,
    started_at: str | None = None,
) -> StepResult:
    if "#" in unit:
        return on_item(draft, unit, output, error, worker, started_at)
    return bring(draft, unit, output, error, worker, started_at)


def _loop(draft: Draft, unit: str, raw: Any) -> tuple[Pending | None, Any, Error]:
    """What a round of a loop means: another one, or the value that it ends with."""
    spec, record = draft.spec(unit.partition("#")[0]).loop, draft.unit(unit)
    assert spec is not None
    assert record is not None
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
        if "#" in unit:
            item_goes_again(draft, unit)
        return pending, None, None
    if spec.on_max == "exit_with_last":
        return None, value, None
    return None, None, failure("loop_limit", f"the loop said again {spec.max_iterations} times")


# ---- the clock


def _on_timer(draft: Draft, event: TimerEvent, unit: StepRecord | None) -> StepResult:
    """A timer is a hint: it counts only if the record still waits for it, and its time has come."""
    armed = timers_of(event.step_id, unit) if unit is not None else ()
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
            if "#" in event.step_id:
                item_is_due(draft, event.step_id)
            return None
        case "wake":
            wake(draft, event.step_id)
            return None
    if unit.status is StepStatus.WAITING:
        return on_wait_over(draft, event.step_id)
    return _on_timeout(draft, event.step_id)


def _on_timeout(draft: Draft, unit: str) -> StepResult:
    timeout_s = draft.spec(unit.partition("#")[0]).timeout_s
    draft.revoke(unit)
    return _on_error(draft, unit, failure("timeout", f"execution timeout exceeded ({timeout_s:g} s)"))


def _on_workflow_timeout(draft: Draft) -> Failed | None:
    due_ms = draft.deadline_ms
    if due_ms is None:
        return None
    if draft.moment.at_ms < due_ms:
        draft.arm(Timer("timeout", "", "", due_ms))
        return None
    error = failure("timeout", f"the workflow exceeded its timeout ({draft.record.spec.timeout_s:g} s)")
    draft.end_workflow(WorkflowStatus.FAILED, "workflow timed out", error=error)
    return Failed(error)


# ---- advance


def _advance(draft: Draft, limit: int | None) -> Decision:
    if draft.is_final:
        return _ended(draft)
    if draft.status is WorkflowStatus.PAUSED:
        return Pending()
    while not draft.is_final and (_judge(draft) or _dispatch(draft, limit)):
        pass
    if draft.is_final:
        return _ended(draft)
    return Dispatch(draft.changes.jobs) if draft.changes.jobs else _finish(draft)


def _judge(draft: Draft) -> bool:
    """Take every step on the agenda through its gates; False when there was none."""
    judged = False
    while not draft.is_final and (step_id := draft.next_to_judge()) is not None:
        judged = True
        if pass_gates(draft, step_id):
            draft.propose(step_id)
        skip_dead_ends(draft)
    return judged


def _dispatch(draft: Draft, limit: int | None) -> bool:
    """Claim candidates in spec order while there is room; True when somebody must be judged after that.

    The inputs of all are resolved before any is claimed: one that cannot be may end the workflow.
    """
    ready: list[tuple[str, Any]] = []
    while (room := _room(draft, limit)) is None or len(ready) < room:
        step_id = draft.next_candidate()
        if step_id is None:
            break
        # What waited for room is judged again: a process that loads the record would do so too.
        passed = draft.judged[step_id] if step_id in draft.judged else pass_gates(draft, step_id)
        if passed and is_eligible(draft, step_id):
            try:
                ready.append((step_id, _resolved(draft, step_id)))
            except ExpressionError as error:
                fail_for_good(draft, step_id, failure("expression", f"input cannot be resolved: {error}"))
        skip_dead_ends(draft)
        if draft.is_final:
            return False
    for step_id, resolved in ready:
        if (room := _room(draft, limit)) is not None and room <= 0:
            draft.propose(step_id)
        elif draft.spec(step_id).map is None:
            draft.claim(step_id, resolved)
        else:
            _map(draft, step_id, resolved, room)
    draft.changes.more = _has_more(draft, limit)
    return draft.has_agenda


def _room(draft: Draft, limit: int | None) -> int | None:
    """How many dispatches are still allowed: by this commit, and by the workflow's max_workers."""
    rooms = []
    if limit is not None:
        rooms.append(limit - len(draft.changes.jobs))
    if draft.record.spec.max_workers is not None:
        rooms.append(draft.record.spec.max_workers - draft.in_flight)
    return min(rooms, default=None)


def _has_more(draft: Draft, limit: int | None) -> bool:
    """Whether a further advance could dispatch at once: only the size of this commit was in the way."""
    if limit is None or len(draft.changes.jobs) < limit:
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
    if not draft.is_final and draft.step(step_id).awaits_dispatch:
        draft.propose(step_id)


def _finish(draft: Draft) -> Decision:
    """Nothing can be dispatched: the workflow is at its end, or something is still under way."""
    if draft.open:
        if draft.active:
            return Pending()
        message = "no step can ever run again, and not all are final"
        draft.end_workflow(WorkflowStatus.FAILED, "workflow stalled", error=failure("stalled", message))
        return _ended(draft)
    context = draft.context()
    try:
        outcome = {name: resolve(value, context) for name, value in draft.record.spec.outputs.items()}
    except ExpressionError as error:
        message = f"outputs cannot be resolved: {error}"
        draft.end_workflow(WorkflowStatus.FAILED, "outputs failed", error=failure("expression", message))
        return _ended(draft)
    unforgiven = _unforgiven(draft)
    if unforgiven is None:
        draft.end_workflow(WorkflowStatus.COMPLETE, "complete", outcome=outcome)
    else:
        draft.end_workflow(WorkflowStatus.FAILED, "failed", outcome=outcome, error=unforgiven)
    return _ended(draft)


def _unforgiven(draft: Draft) -> dict[str, Any] | None:
    """The first failure under policy `fail` that only the dependents tolerated."""
    for step_id in draft.graph.order:
        step = draft.step(step_id)
        if step.status is StepStatus.FAILED and draft.spec(step_id).on_error == "fail":
            return {**(step.error or {}), "step": step_id}
    return None


def _ended(draft: Draft) -> Final:
    return ended(draft.status, draft.outcome, draft.error)
