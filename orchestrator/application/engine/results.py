"""What follows from a result: branches, the next attempt, the policies of a failure.

`bring` takes in what a unit brought back, whoever brought it: a worker, a signal, the clock, or advance()
itself for a step that needs no executor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.application.engine.branches import BranchResult, evaluate_branches
from orchestrator.application.engine.dependencies import failure_stops_workflow
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.engine.shared_values import apply_kv_add, merge_output, missing_group_problem
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import resolve
from orchestrator.application.records.decisions import Cancelled, Failed, Halt, Pending
from orchestrator.application.records.events import failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import RetrySpec, StepSpec
from orchestrator.application.values.failure_kinds import find_matching_name, is_retryable

MAX_RETRY_DELAY_MS = 3650 * 86_400_000
BRANCH_SKIPPED = "a branch skipped it"

StepResult = Halt | Failed | Cancelled | Pending | None
Output = dict[str, Any] | None
Error = dict[str, Any] | None


def apply_result(
    draft: Draft,
    step_id: str,
    output: Output,
    error: Error = None,
    worker: str | None = None,
    started_at: str | None = None,
) -> StepResult:
    """Judge a result by the branches, write it down, and do what they or the rules say."""
    verdict = evaluate_branches(draft, step_id, output)
    if verdict.error is not None:
        error = verdict.error
    record_result(draft, step_id, output, error, worker, started_at)
    if output and is_merged(draft.specs[step_id]):
        merge_output(draft, step_id, output)
    return _act(draft, step_id, verdict, error)


def record_result(
    draft: Draft, unit: str, output: Output, error: Error, worker: str | None, started_at: str | None
) -> None:
    """What a unit brought back, and from whom; its dispatch is over."""
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


def is_merged(spec: StepSpec) -> bool:
    """Whether outputs go into the state; what switch, delay and map make only if `output` names its keys."""
    if spec.skip_output_mapping:
        return False
    return spec.output is not None or not (spec.map is not None or spec.kind in ("switch", "delay"))


def shape_output(draft: Draft, unit: str, raw: Any, **roots: Any) -> tuple[Output, Error]:
    """The output of a success, as the step's `output` reshapes it; or why it is none."""
    spec = draft.spec(unit)
    if raw is not None and not isinstance(raw, dict):
        return make_error_result(
            failure("bad_output", f"an executor must return an object or nothing, not {_json_type(raw)}")
        )
    output = raw
    if spec.output is not None:
        context = draft.context(unit, result=raw, **roots)
        try:
            output = {key: resolve(value, context) for key, value in spec.output.items()}
        except ExpressionError as error:
            return make_error_result(failure("expression", f"output cannot be resolved: {error}"))
    problem = missing_group_problem(draft, output) if is_merged(spec) and spec.map is None else None
    return (output, None) if problem is None else make_error_result(failure("bad_output", problem))


def make_error_result(error: Mapping[str, Any]) -> tuple[Output, Error]:
    """A branch sees an error as an output."""
    whole = {"kind": "exception", "message": "", **error}
    return {"ok": False, "error": str(whole["message"])}, whole


def _json_type(value: Any) -> str:
    return {bool: "a boolean", str: "a string", list: "a list", int: "a number", float: "a number"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _act(draft: Draft, step_id: str, verdict: BranchResult, error: Error) -> StepResult:
    now = draft.moment.iso
    match verdict.action:
        case "halt":
            draft.move(step_id, StepStatus.HALTED, ended_at=now, error=None)
            reason = f"workflow halted by step {step_id}"
            end_workflow(draft, WorkflowStatus.HALTED, reason, outcome=verdict.result)
            return Halt(verdict.result)
        case "complete":
            return _complete(draft, step_id, error=None)
        case "skip":
            draft.move(step_id, StepStatus.SKIPPED, ended_at=now, error=None, reason=BRANCH_SKIPPED)
            return None
        case "set":
            return _reset(draft, step_id, verdict.targets)
        case "retry":
            return fail(draft, step_id, failure("rejected", "a branch rejected the result"))
        case "fail":
            return fail(draft, step_id, failure("declared", "a branch declared it failed"))
        case "abort":
            assert error is not None, "a verdict that aborts says why"
            return _fail_with_workflow(draft, step_id, error)
    if error is not None:
        return fail(draft, step_id, error)
    spec = draft.specs[step_id]
    repeats = spec.attempts_on == "any" and spec.kind == "task" and spec.map is None
    if repeats and draft.step(step_id).attempt < spec.max_attempts:
        return schedule_retry(draft, step_id)
    return _complete(draft, step_id)


def _complete(draft: Draft, step_id: str, **changes: Any) -> StepResult:
    try:
        apply_kv_add(draft, step_id, draft.step(step_id).output)
    except ExpressionError as fault:
        return fail(draft, step_id, failure("expression", str(fault)))
    draft.move(step_id, StepStatus.COMPLETE, ended_at=draft.moment.iso, **changes)
    return None


def _reset(draft: Draft, step_id: str, targets: Sequence[str]) -> StepResult:
    """The action `set`: the targets, the step itself and all that depends on them run again."""
    seeds = list(dict.fromkeys([*targets, step_id]))
    every = [*seeds, *draft.graph.descendants(seeds)]
    limit = draft.record.spec.limits.max_runs
    for one in every:
        if draft.step(one).run_id >= limit:
            message = f"step {one!r} was reset {limit} times: its loop does not end (limits.max_runs)"
            return fail(draft, step_id, failure("loop_limit", message))
    for one in every:
        draft.reset(one)
    return None


def fail(draft: Draft, step_id: str, error: dict[str, Any]) -> StepResult:
    error = mark_non_retryable(draft, step_id, error)
    draft.amend(step_id, error=error)
    delay_ms = retry_delay_ms(draft, step_id, error)
    if delay_ms is not None:
        return schedule_retry(draft, step_id, delay_ms)
    return fail_permanently(draft, step_id, error)


def mark_non_retryable(draft: Draft, unit: str, error: dict[str, Any]) -> dict[str, Any]:
    """A failure, with the reason why it is not tried again if the document has one."""
    policy = draft.spec(unit).retry
    name = None if policy is None else find_matching_name(error, policy.non_retryable)
    return error if name is None else {**error, "not_retried": f"retry.non_retryable names {name}"}


def retry_delay_ms(draft: Draft, unit: str, error: Mapping[str, Any]) -> int | None:
    """After how long a failed unit is tried again; None when it is not."""
    spec, record = draft.spec(unit), draft.require_unit(unit)
    retries = spec.retry.max_retries if spec.retry is not None else 0
    if spec.kind not in ("task", "workflow") or not is_retryable(error):
        return None
    if spec.map is not None and "#" not in unit:
        return None  # the items had their attempts
    if record.attempt >= max(spec.max_attempts, 1 + retries):
        return None
    if spec.retry is None or record.attempt > retries:
        return 0
    return _back_off_ms(
        spec.retry, record.attempt, f"{draft.record.workflow_execution_id}|{unit}|{record.run_id}"
    )


def _back_off_ms(policy: RetrySpec, number: int, seed: str) -> int:
    """The delay before retry `number`. Its jitter is a hash, so that every process computes the same."""
    try:
        delay = policy.initial_delay_ms * float(policy.backoff_multiplier) ** (number - 1)
    except OverflowError:
        delay = MAX_RETRY_DELAY_MS
    if policy.max_delay_ms is not None:
        delay = min(delay, policy.max_delay_ms)
    share = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64
    return round(min(delay * (1 + policy.jitter_fraction * share), MAX_RETRY_DELAY_MS))


def schedule_retry(draft: Draft, unit: str, delay_ms: int = 0, **changes: Any) -> Pending:
    record = draft.require_unit(unit)
    again: dict[str, Any] = {"run_id": record.run_id + 1, "attempt": record.attempt + 1, **changes}
    draft.move(
        unit,
        StepStatus.RETRY,
        lost=0,
        token=None,
        deadline_ms=None,
        dispatched_at=None,
        started_at=None,
        not_before_ms=draft.moment.at_ms + delay_ms if delay_ms else None,
        **again,
    )
    return Pending()


def fail_permanently(draft: Draft, step_id: str, error: dict[str, Any]) -> StepResult:
    """No attempt is left: the policies of the step and of its dependents say what follows."""
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
