"""Results: how the result of an attempt is recorded, and what follows from it.

    on_result            a result from a worker: run its loop, shape its output, then apply_result
    apply_result         a result of any unit: a step, an item of a map, a compensation, or the webhook
    apply_step_result    a result of a step, wherever it comes from: a worker, a signal, a timer, a map whose
                         items have ended, or advance() for a step that needs no executor

For a step the branches decide first, on the record as it was before this result. Then the result is recorded,
its output is merged into the state, and the step completes, is retried, fails, is skipped, is reset, or ends
the workflow. No branch evaluates the other units: they end or are retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.application.engine.branches import NO_BRANCH, BranchResult, evaluate_branches
from orchestrator.application.engine.dependencies import failure_stops_workflow
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.engine.maps import finish_item, item_roots, requeue_item
from orchestrator.application.engine.outputs import Error, Output, is_merged, make_error_result, shape_output
from orchestrator.application.engine.retried_keys import update_retried_keys
from orchestrator.application.engine.retries import (
    is_repeated,
    mark_non_retryable,
    retry_delay_ms,
    schedule_retry,
)
from orchestrator.application.engine.shared_values import apply_kv_add, merge_output
from orchestrator.application.engine.webhook import redact_webhook_error
from orchestrator.application.errors import ExpressionError
from orchestrator.application.records.decisions import Cancelled, Failed, Halt, Pending
from orchestrator.application.records.events import ResultEvent, make_failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import LoopSpec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT, UnitId, step_of

BRANCH_SKIPPED = "a branch skipped it"

StepResult = Halt | Failed | Cancelled | Pending | None


def on_result(draft: Draft, event: ResultEvent) -> StepResult:
    """Handle the result of the attempt that is in progress."""
    unit, raw, error = event.step_id, event.output, event.error
    spec = draft.spec(unit)
    if error is None and spec.loop is not None:
        is_again, raw, error = _evaluate_loop(draft, event, spec.loop)
        if is_again:
            return Pending()
    if error is not None:
        return apply_result(draft, unit, *make_error_result(error), event.worker, event.started_at)
    roots = item_roots(draft, unit) if spec.map is not None else {}
    output, error = shape_output(draft, unit, raw, **roots)
    return apply_result(draft, unit, output, error, event.worker, event.started_at)


def apply_result(
    draft: Draft,
    unit: str,
    output: Output,
    error: Error,
    worker: str | None = None,
    started_at: str | None = None,
) -> StepResult:
    """Apply the result of any unit."""
    if unit in draft.specs:
        return apply_step_result(draft, unit, output, error, worker, started_at)
    if unit == WEBHOOK_UNIT and error is not None:
        output, error = None, redact_webhook_error(draft, error)
    if error is not None:
        error = mark_non_retryable(draft, unit, error)
    _record_result(draft, unit, output, error, worker, started_at)
    delay_ms = None if error is None else retry_delay_ms(draft, unit, error)
    is_item = UnitId(unit).is_item
    if delay_ms is not None:
        schedule_retry(draft, unit, delay_ms)
        if is_item:
            return_item(draft, unit)
        return Pending()
    if is_item:
        finished = finish_item(draft, unit, output, error)
        return None if finished is None else apply_step_result(draft, step_of(unit), *finished)
    status = StepStatus.COMPLETE if error is None else StepStatus.FAILED
    draft.move(unit, status, error=error, ended_at=draft.moment.iso)
    return Pending()


def return_item(draft: Draft, unit: str) -> None:
    """Return an item that needs another dispatch to its map. This ends the map if another item was fatal."""
    finished = requeue_item(draft, unit)
    if finished is not None:
        apply_step_result(draft, step_of(unit), *finished)


def apply_step_result(
    draft: Draft,
    step_id: str,
    output: Output,
    error: Error = None,
    worker: str | None = None,
    started_at: str | None = None,
) -> StepResult:
    """Evaluate the branches of a step, record its result, and take the action that follows."""
    spec = draft.specs[step_id]
    branch = evaluate_branches(draft, step_id, output)
    if branch.error is not None:
        error = branch.error
    if branch.has_output:
        output = branch.output
    is_plain = branch is NO_BRANCH and error is None and not spec.kv_add and not draft.has_retried_keys
    if is_plain and spec.max_attempts == 1:  # the path of most results
        if output and is_merged(spec):
            merge_output(draft, step_id, output)
        draft.complete(step_id, output, worker, started_at)
        return None
    _record_result(draft, step_id, output, error, worker, started_at)
    written: Mapping[str, Any] = {}
    if output and is_merged(spec):
        written = merge_output(draft, step_id, output)
    result = _act(draft, step_id, branch, error)
    is_plain_success = result is None and error is None and branch.action is None and not spec.kv_add
    if draft.has_retried_keys or not is_plain_success:
        update_retried_keys(draft, step_id, written)
    return result


def _record_result(
    draft: Draft, unit: str, output: Output, error: Error, worker: str | None, started_at: str | None
) -> None:
    record = draft.require_unit(unit)
    draft.finish_dispatch(
        unit,
        output=output,
        error=error,
        reason=None,
        deadline_ms=None,
        worker=worker or record.worker,
        started_at=started_at or record.started_at,
    )


def _evaluate_loop(draft: Draft, event: ResultEvent, loop: LoopSpec) -> tuple[bool, Any, Error]:
    """Evaluate what an iteration of a loop returned: whether another iteration was scheduled; if not, the
    value that the loop ends with, or an error."""
    unit, raw = event.step_id, event.output
    record = draft.require_unit(unit)
    action = raw.get("_loop") if isinstance(raw, dict) else None
    if action not in ("again", "done"):
        message = 'a loop must return {"_loop": "again" or "done", "value": {...}}'
        return False, None, make_failure("bad_output", message)
    value = raw.get("value")
    if action == "done":
        return False, value, None
    if record.iteration + 1 < loop.max_iterations:
        draft.finish_dispatch(unit, started_at=event.started_at or record.started_at)
        schedule_retry(draft, unit, attempt=1, iteration=record.iteration + 1, loop_value=value)
        if unit not in draft.specs:
            return_item(draft, unit)
        return True, None, None
    if loop.on_max == "exit_with_last":
        return False, value, None
    message = f'the loop returned "again" {loop.max_iterations} times (loop.max_iterations)'
    return False, None, make_failure("loop_limit", message)


# ---- the actions of a step


def _act(draft: Draft, step_id: str, branch: BranchResult, error: Error) -> StepResult:
    """Take the action of the branch; without one, fail, repeat or complete the step."""
    now = draft.moment.iso
    match branch.action:
        case "halt":
            draft.move(step_id, StepStatus.HALTED, ended_at=now, error=None)
            reason = f"workflow halted by step {step_id}"
            end_workflow(draft, WorkflowStatus.HALTED, reason, outcome=branch.result)
            return Halt(branch.result)
        case "complete":
            return _complete(draft, step_id, error=None)
        case "skip":
            draft.move(step_id, StepStatus.SKIPPED, ended_at=now, error=None, reason=BRANCH_SKIPPED)
            return None
        case "set":
            return _reset(draft, step_id, branch.targets)
        case "retry":
            message = branch.result if branch.has_output else "a branch rejected the result"
            return _fail(draft, step_id, make_failure("rejected", message))
        case "fail":
            message = branch.result if branch.has_output else "a branch declared it failed"
            return _fail(draft, step_id, make_failure("declared", message))
        case "abort":
            assert error is not None, "a branch that aborts has an error"
            return _fail_with_workflow(draft, step_id, error)
    if error is not None:
        return _fail(draft, step_id, error)
    spec, step = draft.specs[step_id], draft.step(step_id)
    if step.attempt < spec.max_attempts and is_repeated(spec, step.output):
        return schedule_retry(draft, step_id)
    return _complete(draft, step_id)


def _complete(draft: Draft, step_id: str, **changes: Any) -> StepResult:
    if draft.specs[step_id].kv_add:
        try:
            apply_kv_add(draft, step_id, draft.step(step_id).output)
        except ExpressionError as error:
            return _fail(draft, step_id, make_failure("expression", str(error)))
    draft.move(step_id, StepStatus.COMPLETE, ended_at=draft.moment.iso, **changes)
    return None


def _reset(draft: Draft, step_id: str, targets: Sequence[str]) -> StepResult:
    """The action `set`: run the targets, the step itself, and everything that depends on them again."""
    first = list(dict.fromkeys([*targets, step_id]))
    reset = [*first, *draft.graph.descendants(first)]
    limit = draft.record.spec.limits.max_runs
    for one in reset:
        if draft.step(one).run_id >= limit:
            message = f"step {one!r} was reset {limit} times: its loop does not end (limits.max_runs)"
            return _fail(draft, step_id, make_failure("loop_limit", message))
    for one in reset:
        draft.reset(one)
    return None


def _fail(draft: Draft, step_id: str, error: dict[str, Any]) -> StepResult:
    """Retry a failed step, or fail it permanently."""
    error = mark_non_retryable(draft, step_id, error)
    draft.amend(step_id, error=error)
    delay_ms = retry_delay_ms(draft, step_id, error)
    if delay_ms is not None:
        return schedule_retry(draft, step_id, delay_ms)
    return fail_permanently(draft, step_id, error)


def fail_permanently(draft: Draft, step_id: str, error: dict[str, Any]) -> StepResult:
    """Fail a step without attempts left, by its `on_error` and that of its dependents."""
    if failure_stops_workflow(draft, step_id):
        return _fail_with_workflow(draft, step_id, error)
    status = StepStatus.SKIPPED if draft.spec(step_id).on_error == "skip" else StepStatus.FAILED
    reason = "failed, and its on_error is skip" if status is StepStatus.SKIPPED else None
    draft.move(step_id, status, error=error, reason=reason, ended_at=draft.moment.iso)
    return None


def _fail_with_workflow(draft: Draft, step_id: str, error: dict[str, Any]) -> StepResult:
    draft.move(step_id, StepStatus.FAILED, error=error, ended_at=draft.moment.iso)
    workflow_error = {**error, "step": step_id}
    end_workflow(draft, WorkflowStatus.FAILED, f"step {step_id} failed", error=workflow_error)
    return Failed(workflow_error) if draft.is_final else Pending()
