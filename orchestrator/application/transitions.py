"""How an execution moves: pure functions of a record, an event and a moment.

    on_step_result   write down what an attempt brought back
    advance          find what can run, claim it, or end the workflow
    decide           both, for a batch of events: what the coordinator commits

They return `Changes` and a decision; the record itself is left as it was. Redelivered, late and
foreign results change nothing: they fail the fence, are counted and dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.branches import Verdict, judge
from orchestrator.application.decisions import (
    Cancelled,
    Complete,
    Decision,
    Dispatch,
    Failed,
    Final,
    Halt,
    Pending,
)
from orchestrator.application.draft import Draft
from orchestrator.application.edges import Edge, edge, failure_stops, skip_dead_ends
from orchestrator.application.errors import ExpressionError, InvalidEvent
from orchestrator.application.events import (
    ContinueEvent,
    DeadlineEvent,
    LostEvent,
    Moment,
    ResultEvent,
    StartedEvent,
    StepEvent,
    failure,
)
from orchestrator.application.expressions import resolve
from orchestrator.application.record import (
    Changes,
    StepRecord,
    StepStatus,
    WorkflowRecord,
    WorkflowStatus,
)

NEVER_RETRIED = frozenset(
    {"expression", "bad_output", "branch_target", "no_branch", "loop_limit", "declared"}
)
"""Kinds of failure that would only happen again."""

StepResult = Halt | Failed | Pending | None


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


# ---- results


def _apply(draft: Draft, event: StepEvent) -> StepResult:
    result = _take_in(draft, event)
    skip_dead_ends(draft)
    return result


def _take_in(draft: Draft, event: StepEvent) -> StepResult:
    if isinstance(event, ContinueEvent):
        return None
    if event.step_id not in draft.graph.index:
        raise InvalidEvent(f"workflow {draft.record.workflow_execution_id!r} has no step {event.step_id!r}")
    if draft.is_final:
        draft.count("late")
        return None
    if not _is_current(draft.step(event.step_id), event):
        draft.count("stale")
        return None
    match event:
        case StartedEvent():
            _on_started(draft, event)
            return None
        case LostEvent():
            return _on_lost(draft, event)
        case DeadlineEvent():
            return _on_deadline(draft, event)
    return _on_result(draft, event)


def _is_current(step: StepRecord, event: ResultEvent | StartedEvent | LostEvent | DeadlineEvent) -> bool:
    """The fence: this attempt, of this run, under this token, is in progress."""
    if step.status is not StepStatus.IN_PROGRESS or step.token is None:
        return False
    if event.token is not None and event.token != step.token:
        return False
    if isinstance(event, DeadlineEvent):
        return True
    return event.run_id in (None, step.run_id) and event.attempt in (None, step.attempt)


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
    if deadline_ms is not None:
        draft.arm("deadline", event.step_id, deadline_ms)


def _on_deadline(draft: Draft, event: DeadlineEvent) -> StepResult:
    step = draft.step(event.step_id)
    if step.deadline_ms is None:
        return None
    if draft.moment.at_ms < step.deadline_ms:
        draft.arm("deadline", event.step_id, step.deadline_ms)
        return None
    timeout_s = draft.spec(event.step_id).timeout_s
    draft.revoke(event.step_id)
    error = failure("timeout", f"execution timeout exceeded ({timeout_s:g} s)")
    return _on_result(draft, ResultEvent(event.workflow_execution_id, event.step_id, error=error))


def _on_lost(draft: Draft, event: LostEvent) -> StepResult:
    """Dispatch again, as the same attempt: a dead worker is not the step's fault, up to a limit."""
    draft.count("lost")
    step = draft.step(event.step_id)
    if step.lost >= draft.record.spec.limits.max_lost:
        message = f"{event.reason} ({step.lost + 1} workers lost with this attempt)"
        error = failure("lost", message)
        return _on_result(draft, ResultEvent(event.workflow_execution_id, event.step_id, error=error))
    draft.revoke(event.step_id)
    draft.move(
        event.step_id,
        StepStatus.IN_PROGRESS,
        run_id=step.run_id + 1,
        lost=step.lost + 1,
        token=None,
        worker=None,
        started_at=None,
        deadline_ms=None,
        reason=event.reason,
    )
    draft.look_at(event.step_id)
    return Pending()


def _on_result(draft: Draft, event: ResultEvent) -> StepResult:
    step_id, step = event.step_id, draft.step(event.step_id)
    output, error = _normalised(event)
    verdict = judge(draft, step_id, output)
    if verdict.error is not None:
        error = verdict.error
    draft.settle(step_id)
    draft.amend(
        step_id,
        output=output,
        error=error,
        token=None,
        reason=None,
        worker=event.worker or step.worker,
        started_at=event.started_at or step.started_at,
        deadline_ms=None,
    )
    if output:
        draft.merge_state(step_id, output)
    return _act(draft, step_id, verdict, error)


def _normalised(event: ResultEvent) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The output as an object or null, and the error if there is one; a branch sees an error as an output."""
    if event.error is not None:
        error = {"kind": "exception", "message": "", **event.error}
        return {"ok": False, "error": str(error["message"])}, error
    if event.output is None or isinstance(event.output, dict):
        return event.output, None
    message = f"an executor must return an object or nothing, not {_json_type(event.output)}"
    return {"ok": False, "error": message}, failure("bad_output", message)


def _json_type(value: Any) -> str:
    return {bool: "a boolean", str: "a string", list: "a list", int: "a number", float: "a number"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _act(draft: Draft, step_id: str, verdict: Verdict, error: dict[str, Any] | None) -> StepResult:
    now = draft.moment.iso
    match verdict.action:
        case "halt":
            draft.move(step_id, StepStatus.HALTED, ended_at=now, error=None)
            draft.end_workflow(
                WorkflowStatus.HALTED, f"workflow halted by step {step_id}", outcome=verdict.result
            )
            return Halt(verdict.result)
        case "complete":
            draft.move(step_id, StepStatus.COMPLETE, ended_at=now, error=None)
            return None
        case "skip":
            draft.move(step_id, StepStatus.SKIPPED, ended_at=now, error=None, reason="a branch skipped it")
            return None
        case "set":
            return _reset(draft, step_id, verdict.targets)
        case "retry":
            return _fail(draft, step_id, failure("rejected", "a branch rejected the result"))
        case "fail":
            return _fail(draft, step_id, failure("declared", "a branch declared it failed"))
        case "abort":
            assert error is not None, "a verdict that aborts says why"
            return _fail_with_workflow(draft, step_id, error)
    if error is not None:
        return _fail(draft, step_id, error)
    step, spec = draft.step(step_id), draft.spec(step_id)
    if spec.attempts_on == "any" and step.attempt < spec.max_attempts:
        return _try_again(draft, step_id)
    draft.move(step_id, StepStatus.COMPLETE, ended_at=now)
    return None


def _reset(draft: Draft, step_id: str, targets: Sequence[str]) -> StepResult:
    """The action `set`: the targets, the step itself and all that depends on them run again."""
    seeds = list(dict.fromkeys([*targets, step_id]))
    every = [*seeds, *draft.graph.closure(seeds)]
    limit = draft.record.spec.limits.max_runs
    for one in every:
        if draft.step(one).run_id >= limit:
            message = f"step {one!r} was reset {limit} times: its loop does not end (limits.max_runs)"
            return _fail(draft, step_id, failure("loop_limit", message))
    for one in every:
        draft.reset(one)
    return None


def _fail(draft: Draft, step_id: str, error: dict[str, Any]) -> StepResult:
    draft.amend(step_id, error=error)
    step, spec = draft.step(step_id), draft.spec(step_id)
    if error["kind"] not in NEVER_RETRIED and step.attempt < spec.max_attempts:
        return _try_again(draft, step_id)
    return _fail_for_good(draft, step_id, error)


def _try_again(draft: Draft, step_id: str) -> Pending:
    step = draft.step(step_id)
    draft.move(
        step_id,
        StepStatus.RETRY,
        run_id=step.run_id + 1,
        attempt=step.attempt + 1,
        lost=0,
        dispatched_at=None,
        started_at=None,
    )
    return Pending()


def _fail_for_good(draft: Draft, step_id: str, error: dict[str, Any]) -> Failed | None:
    """No attempt is left: the policies of the step and of its dependents say what follows."""
    if failure_stops(draft, step_id):
        return _fail_with_workflow(draft, step_id, error)
    status = StepStatus.SKIPPED if draft.spec(step_id).on_error == "skip" else StepStatus.FAILED
    reason = "failed, and its on_error is skip" if status is StepStatus.SKIPPED else None
    draft.move(step_id, status, error=error, reason=reason, ended_at=draft.moment.iso)
    return None


def _fail_with_workflow(draft: Draft, step_id: str, error: dict[str, Any]) -> Failed:
    draft.move(step_id, StepStatus.FAILED, error=error, ended_at=draft.moment.iso)
    workflow_error = {**error, "step": step_id}
    draft.end_workflow(WorkflowStatus.FAILED, f"step {step_id} failed", error=workflow_error)
    return Failed(workflow_error)


# ---- advance


def _advance(draft: Draft, limit: int | None) -> Decision:
    if draft.is_final:
        return _ended(draft)
    if draft.status is WorkflowStatus.PAUSED:
        return Pending()
    claims: list[tuple[str, dict[str, Any]]] = []
    while limit is None or len(claims) < limit:
        step_id = draft.take_next()
        if step_id is None:
            break
        if not _may_run(draft, step_id):
            continue
        try:
            claims.append((step_id, _inputs(draft, step_id)))
        except ExpressionError as error:
            _fail_for_good(draft, step_id, failure("expression", f"input cannot be resolved: {error}"))
            skip_dead_ends(draft)
            if draft.is_final:
                return _ended(draft)
    for step_id, inputs in claims:
        draft.claim(step_id, inputs)
    if claims:
        draft.changes.more = _has_more(draft)
        return Dispatch(draft.changes.jobs)
    return _finish(draft)


def _may_run(draft: Draft, step_id: str) -> bool:
    """Judge a step on the agenda by its parents; it is skipped or filtered when they say so."""
    if not _is_eligible(draft, step_id):
        return False
    if draft.step(step_id).status is not StepStatus.READY:
        return True
    spec, parents = draft.spec(step_id), draft.graph.parents[step_id]
    seen = {edge(draft.step(one), draft.spec(one), spec) for one in parents}
    if Edge.SKIP in seen:
        draft.dead_ends += ((parent, step_id) for parent in parents)
        skip_dead_ends(draft)
        return False
    if seen == {Edge.SOFT}:
        reason = "every parent was filtered"
        draft.move(step_id, StepStatus.FILTERED, reason=reason, ended_at=draft.moment.iso)
        return False
    return Edge.WAIT not in seen


def _is_eligible(draft: Draft, step_id: str) -> bool:
    """The agenda is a hint: what stood on it may have moved on, or wait for a parent again."""
    return draft.step(step_id).awaits_dispatch and not draft.unmet(step_id)


def _has_more(draft: Draft) -> bool:
    while (step_id := draft.take_next()) is not None:
        if _is_eligible(draft, step_id):
            draft.look_at(step_id)
            return True
    return False


def _inputs(draft: Draft, step_id: str) -> dict[str, Any]:
    context = draft.context(step_id)
    return {key: resolve(value, context) for key, value in draft.spec(step_id).input.items()}


def _finish(draft: Draft) -> Decision:
    """Nothing can be dispatched: the workflow is at its end, or something is still under way."""
    if draft.open:
        if draft.in_flight:
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
    match draft.status:
        case WorkflowStatus.COMPLETE:
            return Complete(draft.outcome)
        case WorkflowStatus.HALTED:
            return Halt(draft.outcome)
        case WorkflowStatus.CANCELLED:
            return Cancelled(outcome=draft.outcome)
    return Failed(draft.error, draft.outcome)
