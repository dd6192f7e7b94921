"""Finds the step that caused others not to run, and describes how an execution finished and what can be done.

The search goes from a step that did not run to the parent or the fatal step that caused it, and repeats until
it reaches a step that failed, was filtered or was halted by itself.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.dependencies import EdgeState, evaluate_edge
from orchestrator.application.engine.redrive import find_reopen_obstacle
from orchestrator.application.explain.text import format_ago, format_status, join_names, summarize_error
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.unit_id import UnitId, step_of

S, W = StepStatus, WorkflowStatus


def find_root_cause(record: WorkflowRecord, step_id: str) -> str | None:
    """Return the first step in the chain that kept this one from running; None if no other step did."""
    cause, seen = step_id, {step_id}
    while (previous := _direct_cause(record, cause)) is not None and previous not in seen:
        cause = previous
        seen.add(previous)
    return None if cause == step_id else cause


def describe_root_cause(record: WorkflowRecord, step_id: str) -> str:
    """Name the root cause and its error; empty if the step itself is the cause."""
    cause = find_root_cause(record, step_id)
    if cause is None:
        return ""
    step = record.steps[cause]
    why = summarize_error(step.error) if step.error is not None else step.reason or format_status(step.status)
    return f"; root cause: step {cause}: {why}"


def describe_finish(record: WorkflowRecord, now_ms: int) -> str:
    """Describe how a final execution finished, and whether its steps were compensated."""
    ended = format_ago(record.ended_at, now_ms)
    match record.status:
        case W.COMPLETE:
            words = f"the execution completed{ended}"
        case W.HALTED:
            words = f"the execution was halted{ended} by a branch of step {_fatal_step(record)}"
        case W.CANCELLED:
            words = f"the execution was cancelled{ended}{_describe_cancellation(record.cancelled or {})}"
        case _:
            words = f"the execution failed{ended}: {_describe_error(record)}"
    if record.compensated is None:
        return words
    if record.compensated:
        return f"{words}; its completed steps were compensated"
    return f"{words}; not all of its completed steps could be compensated"


def advise_after_failure(record: WorkflowRecord) -> str:
    """Say what an operator can do about a failed execution: see the error, and retry it unless a retry would
    be rejected."""
    name, step_id = record.execution_id, (record.error or {}).get("step")
    show = f"orchestrator show {name}" + (f" --step {step_id}" if step_id else " --json")
    obstacle = find_reopen_obstacle(record)
    if obstacle is None:
        after = f"run it again: orchestrator retry {name}"
    elif record.parent is not None:
        parent_id = record.parent.execution.partition("#")[2]
        after = f"a child cannot be retried itself: orchestrator explain {parent_id}"
    else:
        after = f"it cannot be retried: {obstacle}"
    return f"see the full error: {show}; {after}"


def describe_pending_finish(record: WorkflowRecord) -> str:
    """Describe how a compensating execution will finish, and which steps are still to be compensated."""
    status = format_status((record.ending or {}).get("status", "failed"))
    cause = _describe_error(record) if error_of(record) else "requested by an operator"
    started = {step_of(unit) for unit in record.items if UnitId(unit).is_compensation}
    remaining = [
        spec.id
        for spec in record.spec.steps
        if spec.compensate and record.steps[spec.id].status is S.COMPLETE and spec.id not in started
    ]
    after = f"; still to compensate: {join_names(remaining)}" if remaining else ""
    return f"it will end as {status} ({cause}){after}"


def error_of(record: WorkflowRecord) -> dict[str, Any]:
    """Return the error that an execution failed with, or will fail with after compensation; empty if none."""
    error: dict[str, Any] | None = record.error
    if record.status is W.COMPENSATING:
        error = (record.ending or {}).get("fields", {}).get("error")
    return error or {}


def _direct_cause(record: WorkflowRecord, step_id: str) -> str | None:
    """Return the step that kept this one from running, one link of the chain."""
    step, parents = record.steps[step_id], record.graph.parents[step_id]
    match step.status:
        case S.SKIPPED if step.error is None and step.dispatched_at is None and step.output is None:
            for parent in parents:
                edge = record.steps[parent], _spec_of(record, parent), _spec_of(record, step_id)
                if evaluate_edge(*edge) is EdgeState.SKIP:
                    return parent
            return _fatal_step(record)
        case S.FILTERED if parents and all(record.steps[one].status is S.FILTERED for one in parents):
            return parents[0]
        case S.CANCELLED:
            return _fatal_step(record)
    return None


def _fatal_step(record: WorkflowRecord) -> str | None:
    """Return the step whose failure ended the execution, or whose branch halted it."""
    failed: str | None = error_of(record).get("step")
    halted = (step_id for step_id, step in record.steps.items() if step.status is S.HALTED)
    return failed if failed in record.steps else next(halted, None)


def _describe_error(record: WorkflowRecord) -> str:
    error = error_of(record)
    step = error.get("step")
    return f"step {step}: {summarize_error(error)}" if step else summarize_error(error)


def _describe_cancellation(cancelled: dict[str, Any]) -> str:
    by = f" by {cancelled['by']}" if cancelled.get("by") else ""
    return f"{by}: {cancelled['reason']}" if cancelled.get("reason") else by


def _spec_of(record: WorkflowRecord, step_id: str) -> StepSpec:
    return record.spec.steps[record.graph.index[step_id]]
