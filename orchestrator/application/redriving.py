"""Re-drives: an execution that has ended is opened again, and runs what did not complete.

    retry   what failed, was cancelled or never came to run; what has completed keeps its output
    rerun   that, and one step with all that depends on it, in a new round

A retry stays in its round, so executors see the idempotency keys they saw before: a loop goes on with the
iteration it was at, and of a map only those items run that have not completed.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.application.attempts import BRANCH_SKIPPED
from orchestrator.application.draft import Draft
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.states import StepStatus, WorkflowStatus
from orchestrator.application.units import ItemCounts, StepRecord

_RETRIED = (WorkflowStatus.FAILED, WorkflowStatus.CANCELLED)
_RERUN = (*_RETRIED, WorkflowStatus.COMPLETE)


def retry(draft: Draft) -> None:
    _reopen(draft, "retried", _RETRIED)
    _revive(draft, _undone(draft))


def rerun(draft: Draft, step_id: str) -> None:
    _reopen(draft, "rerun", _RERUN)
    again = [step_id, *draft.graph.closure([step_id])]
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
    below = set(draft.graph.closure(undone))
    filtered = [one for one in draft.graph.order if draft.step(one).status is StepStatus.FILTERED]
    return [*undone, *(one for one in filtered if one in below)]


def _is_undone(step: StepRecord) -> bool:
    if step.status is StepStatus.SKIPPED:
        return step.reason != BRANCH_SKIPPED
    return step.status in (StepStatus.FAILED, StepStatus.CANCELLED)


def _revive(draft: Draft, steps: list[str]) -> None:
    for step_id in steps:
        step, counts = draft.step(step_id), _revive_items(draft, step_id)
        last_run = step.run_id if counts is not None else max(step.run_id, draft.drop_items(step_id))
        draft.revive(step_id, _again(step, last_run, counts))


def _again(unit: StepRecord, last_run: int, items: ItemCounts | None = None) -> StepRecord:
    return StepRecord(
        run_id=last_run + 1,
        round=unit.round,
        dispatches=unit.dispatches,
        iteration=unit.iteration,
        loop_value=unit.loop_value,
        items=items,
    )


def _revive_items(draft: Draft, step_id: str) -> ItemCounts | None:
    """The counts of a map whose other items go again; None when there is no item to go on with, or all of
    them have completed and it is their sum that was refused."""
    counts = draft.step(step_id).items
    if counts is None:
        return None
    units = {n: f"{step_id}#{n}" for n in range(counts.count)}
    undone = [n for n, unit in units.items() if draft.known(unit).status is not StepStatus.COMPLETE]
    if len(undone) in (0, counts.count):
        return None
    for n in undone:
        item = draft.known(units[n])
        draft.revive(units[n], replace(_again(item, item.run_id), value=item.value))
    settled = counts.count - len(undone)
    return replace(
        counts, next=counts.count, due=tuple(undone), out=0, settled=settled, errors=0, fatal=False
    )
