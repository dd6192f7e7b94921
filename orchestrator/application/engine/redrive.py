"""Re-drives: an execution that has ended is reopened, and runs the steps that did not complete.

    retry   runs the steps that failed, were cancelled or never ran; completed steps keep their output
    rerun   does the same, and also runs one step and everything that depends on it, in a new round

A retry stays in its round, so executors see the same idempotency keys as before: a loop continues with its
current iteration, and a map runs only the items that have not completed.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.results import BRANCH_SKIPPED
from orchestrator.application.engine.webhook import cancel_webhook
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.values.unit_id import UnitId

_RETRYABLE = (WorkflowStatus.FAILED, WorkflowStatus.CANCELLED)
_RERUNNABLE = (*_RETRYABLE, WorkflowStatus.COMPLETE)


def retry(draft: Draft) -> None:
    _reopen(draft, "retried", _RETRYABLE)
    _revive(draft, _incomplete_steps(draft))


def rerun(draft: Draft, step_id: str) -> None:
    _reopen(draft, "rerun", _RERUNNABLE)
    reset = [step_id, *draft.graph.descendants([step_id])]
    incomplete = _incomplete_steps(draft)
    for one in reset:
        draft.reset(one)
    _revive(draft, [one for one in incomplete if one not in set(reset)])


def _reopen(draft: Draft, action: str, allowed: tuple[WorkflowStatus, ...]) -> None:
    """Move an execution that has ended to in progress; InvalidEvent if that is not possible."""
    record = draft.record
    cannot = f"workflow {record.workflow_execution_id!r} cannot be {action}"
    if draft.status not in allowed:
        raise InvalidEvent(f"{cannot}: it is {draft.status}")
    obstacle = find_reopen_obstacle(record)
    if obstacle is not None:
        raise InvalidEvent(f"{cannot}: {obstacle}")
    cleared = dict.fromkeys(("outcome", "error", "ended_at", "cancelled", "deadline_ms"))
    draft.move_workflow(WorkflowStatus.IN_PROGRESS, **cleared)
    draft.start_timeout()
    cancel_webhook(draft)


def find_reopen_obstacle(record: WorkflowRecord) -> str | None:
    """Return why an ended execution can never be reopened, whatever its status; None if nothing prevents
    it."""
    if record.parent is not None:
        parent, step_id = record.parent.execution, record.parent.step_id
        return f"step {step_id!r} of {parent!r} already has its result; retry that one"
    return None if record.compensated is None else "its steps were compensated; start a new execution"


def _incomplete_steps(draft: Draft) -> list[str]:
    """The steps that have not completed, and the filtered steps below them, because their filter depended on
    results that may change. A step that ran and was skipped by its own branch stays skipped."""
    incomplete = [step_id for step_id in draft.graph.order if _is_incomplete(draft.step(step_id))]
    below = set(draft.graph.descendants(incomplete))
    filtered = [one for one in draft.graph.order if draft.step(one).status is StepStatus.FILTERED]
    return [*incomplete, *(one for one in filtered if one in below)]


def _is_incomplete(step: StepRecord) -> bool:
    if step.status is StepStatus.SKIPPED:
        return step.reason != BRANCH_SKIPPED
    return step.status in (StepStatus.FAILED, StepStatus.CANCELLED)


def _revive(draft: Draft, steps: list[str]) -> None:
    for step_id in steps:
        counts = draft.step(step_id).items
        if counts is not None and _keeps_items(draft, step_id, counts):
            draft.revive(step_id, _next_run(draft, step_id).with_changes(items=replace(counts, out=0)))
        else:
            draft.revive(step_id, _next_run(draft, step_id, draft.drop_items(step_id)))


def _next_run(draft: Draft, unit: str, last_run: int = 0) -> StepRecord:
    """The next run of a unit in the same round; a loop keeps its current iteration."""
    before = draft.require_unit(unit)
    after = StepRecord(
        run_id=max(before.run_id, last_run) + 1,
        round=before.round,
        dispatches=before.dispatches,
        retried_keys=before.retried_keys,
    )
    if draft.spec(unit).loop is None:
        return after
    return after.with_changes(iteration=before.iteration, loop_value=before.loop_value)


def _keeps_items(draft: Draft, step_id: str, counts: ItemCounts) -> bool:
    """Whether a map continues with its items: one must run, and one has completed or begun to loop. Else the
    map starts anew: it has no progress to keep, or all items completed and the result of the map failed."""
    items = [draft.require_unit(UnitId.for_item(step_id, n)) for n in range(counts.count)]
    is_complete = [item.status is StepStatus.COMPLETE for item in items]
    return not all(is_complete) and (any(is_complete) or any(item.iteration for item in items))


def resume_map(draft: Draft, step_id: str) -> None:
    """Move a map to in progress again and revive its items that have not completed. This is done when the map
    is dispatched, not before, because a parent or a condition may still keep it from running."""
    counts = draft.step(step_id).items
    assert counts is not None, "a map that is resumed has items"
    units = [UnitId.for_item(step_id, n) for n in range(counts.count)]
    items = [draft.require_unit(unit) for unit in units]
    incomplete = [n for n, item in enumerate(items) if item.status is not StepStatus.COMPLETE]
    for n in incomplete:
        draft.revive(units[n], _next_run(draft, units[n]).with_changes(value=items[n].value))
    settled = counts.count - len(incomplete)
    resumed = ItemCounts(counts.count, next=incomplete[0], settled=settled, most=counts.most)
    draft.move(step_id, StepStatus.IN_PROGRESS, items=resumed, dispatched_at=draft.moment.iso)
