"""Re-drives: an execution that has ended is opened again, and runs what did not complete.

    retry   what failed, was cancelled or never came to run; what has completed keeps its output
    rerun   that, and one step with all that depends on it, in a new round

A retry stays in its round, so executors see the idempotency keys they saw before: a loop goes on with the
iteration it was at, and of a map only those items run that have not completed.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.results import BRANCH_SKIPPED
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord

_RETRIED = (WorkflowStatus.FAILED, WorkflowStatus.CANCELLED)
_RERUN = (*_RETRIED, WorkflowStatus.COMPLETE)


def retry(draft: Draft) -> None:
    _reopen(draft, "retried", _RETRIED)
    _revive(draft, _undone(draft))


def rerun(draft: Draft, step_id: str) -> None:
    _reopen(draft, "rerun", _RERUN)
    again = [step_id, *draft.graph.descendants([step_id])]
    undone = _undone(draft)
    for one in again:
        draft.reset(one)
    _revive(draft, [one for one in undone if one not in set(again)])


def _reopen(draft: Draft, what: str, allowed: tuple[WorkflowStatus, ...]) -> None:
    record = draft.record
    cannot = f"workflow {record.workflow_execution_id!r} cannot be {what}"
    if draft.status not in allowed:
        raise InvalidEvent(f"{cannot}: it is {draft.status}")
    if record.parent is not None:
        parent, step_id = record.parent["execution"], record.parent["step_id"]
        raise InvalidEvent(f"{cannot}: step {step_id!r} of {parent!r} has taken its end; retry that one")
    if record.compensated is not None:
        raise InvalidEvent(f"{cannot}: what its steps had done was compensated; start a new one")
    nothing = dict.fromkeys(("outcome", "error", "ended_at", "cancelled", "deadline_ms"))
    draft.move_workflow(WorkflowStatus.IN_PROGRESS, **nothing)
    draft.start_clock()


def _undone(draft: Draft) -> list[str]:
    """The steps that have not completed, and those below them whose path was not taken: that was decided upon
    what is about to change. A step that ran and was skipped by its own branch has had its say."""
    undone = [step_id for step_id in draft.graph.order if _is_undone(draft.step(step_id))]
    below = set(draft.graph.descendants(undone))
    filtered = [one for one in draft.graph.order if draft.step(one).status is StepStatus.FILTERED]
    return [*undone, *(one for one in filtered if one in below)]


def _is_undone(step: StepRecord) -> bool:
    if step.status is StepStatus.SKIPPED:
        return step.reason != BRANCH_SKIPPED
    return step.status in (StepStatus.FAILED, StepStatus.CANCELLED)


def _revive(draft: Draft, steps: list[str]) -> None:
    for step_id in steps:
        counts = draft.step(step_id).items
        if counts is not None and _goes_on(draft, step_id, counts):
            draft.revive(step_id, _again(draft, step_id).changed(items=replace(counts, out=0)))
        else:
            draft.revive(step_id, _again(draft, step_id, draft.drop_items(step_id)))


def _again(draft: Draft, unit: str, last_run: int = 0) -> StepRecord:
    """The next run of a unit, in the round it was in; a loop goes on with the iteration it was at."""
    before = draft.require_unit(unit)
    after = StepRecord(
        run_id=max(before.run_id, last_run) + 1, round=before.round, dispatches=before.dispatches
    )
    if draft.spec(unit).loop is None:
        return after
    return after.changed(iteration=before.iteration, loop_value=before.loop_value)


def _goes_on(draft: Draft, step_id: str, counts: ItemCounts) -> bool:
    """Whether a map goes on with the items it has: there is one to run, and one that has come anywhere. Else
    it begins anew: nothing of it is worth keeping, or its items have completed and their sum was refused."""
    items = [draft.require_unit(f"{step_id}#{n}") for n in range(counts.count)]
    is_complete = [item.status is StepStatus.COMPLETE for item in items]
    return not all(is_complete) and (any(is_complete) or any(item.iteration for item in items))


def resume_map(draft: Draft, step_id: str) -> None:
    """A map that goes on is in progress again, and its items that have not completed are to be dispatched.
    Not before: what stands above it, or a condition, may yet keep it from running."""
    counts = draft.step(step_id).items
    assert counts is not None, "a map that goes on has items"
    undone = [
        n
        for n in range(counts.count)
        if draft.require_unit(f"{step_id}#{n}").status is not StepStatus.COMPLETE
    ]
    for unit in (f"{step_id}#{n}" for n in undone):
        draft.revive(unit, _again(draft, unit).changed(value=draft.require_unit(unit).value))
    settled = counts.count - len(undone)
    left = ItemCounts(counts.count, next=undone[0], settled=settled, most=counts.most)
    draft.move(step_id, StepStatus.IN_PROGRESS, items=left, dispatched_at=draft.moment.iso)
