"""Where it began: from a step that did not run, up to the first one that failed or was not taken; and how an
execution ended, in words."""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.dependencies import EdgeState, evaluate_edge
from orchestrator.application.explain.text import format_ago, format_status, join_names, summarize_error
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import COMPENSATION_PART, StepSpec

S, W = StepStatus, WorkflowStatus


def find_root_cause(record: WorkflowRecord, step_id: str) -> str | None:
    """The first step of those whose end kept this one from running; None when it is this step itself."""
    found, seen = step_id, {step_id}
    while (culprit := _culprit(record, found)) is not None and culprit not in seen:
        found = culprit
        seen.add(culprit)
    return None if found == step_id else found


def describe_root_cause(record: WorkflowRecord, step_id: str) -> str:
    """The step with which it began, if it is another one."""
    origin = find_root_cause(record, step_id)
    if origin is None:
        return ""
    first = record.steps[origin]
    why = (
        summarize_error(first.error)
        if first.error is not None
        else first.reason or format_status(first.status)
    )
    return f"; it began with step {origin}: {why}"


def describe_finish(record: WorkflowRecord, now_ms: int) -> str:
    """How a final execution came to its end."""
    ended = format_ago(record.ended_at, now_ms)
    match record.status:
        case W.COMPLETE:
            words = f"the execution completed{ended}"
        case W.HALTED:
            words = f"the execution was halted{ended} by a branch of step {_fatal(record)}"
        case W.CANCELLED:
            words = f"the execution was cancelled{ended}{_cancelled(record.cancelled or {})}"
        case _:
            words = f"the execution failed{ended}: {_fault(record)}"
    if record.compensated is None:
        return words
    undone = "was undone" if record.compensated else "could not be undone altogether"
    return f"{words}; what it had done {undone}"


def describe_pending_finish(record: WorkflowRecord) -> str:
    """Of an execution that undoes what was done: what for, and what is left to be undone."""
    ending = record.ending or {}
    cause = _fault(record) if error_of(record) else "an operator said so"
    undone = {unit.partition("#")[0] for unit in record.items if unit.endswith(f"#{COMPENSATION_PART}")}
    left = [
        spec.id
        for spec in record.spec.steps
        if spec.compensate and record.steps[spec.id].status is S.COMPLETE and spec.id not in undone
    ]
    after = f"; after this one it undoes {join_names(left)}" if left else ""
    return f"it will then be {format_status(ending.get('status', 'failed'))}: {cause}{after}"


def error_of(record: WorkflowRecord) -> dict[str, Any]:
    """What an execution failed with, or will once it has undone what was done; empty if nothing failed."""
    error: dict[str, Any] | None = record.error
    if record.status is W.COMPENSATING:
        error = (record.ending or {}).get("fields", {}).get("error")
    return error or {}


def _culprit(record: WorkflowRecord, step_id: str) -> str | None:
    """The step that this one blames for its own end."""
    step, parents = record.steps[step_id], record.graph.parents[step_id]
    match step.status:
        case S.SKIPPED if step.error is None and step.dispatched_at is None and step.output is None:
            for parent in parents:
                known = record.steps[parent], _spec(record, parent), _spec(record, step_id)
                if evaluate_edge(*known) is EdgeState.SKIP:
                    return parent
            return _fatal(record)
        case S.FILTERED if parents and all(record.steps[one].status is S.FILTERED for one in parents):
            return parents[0]
        case S.CANCELLED:
            return _fatal(record)
    return None


def _fatal(record: WorkflowRecord) -> str | None:
    """The step whose failure ended the execution, or whose branch halted it."""
    failed: str | None = error_of(record).get("step")
    halted = (one for one, step in record.steps.items() if step.status is S.HALTED)
    return failed if failed in record.steps else next(halted, None)


def _fault(record: WorkflowRecord) -> str:
    error = error_of(record)
    step = error.get("step")
    return f"step {step}: {summarize_error(error)}" if step else summarize_error(error)


def _cancelled(given: dict[str, Any]) -> str:
    by = f" by {given['by']}" if given.get("by") else ""
    return f"{by}: {given['reason']}" if given.get("reason") else by


def _spec(record: WorkflowRecord, step_id: str) -> StepSpec:
    return record.spec.steps[record.graph.index[step_id]]
