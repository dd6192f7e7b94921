"""Conflicts: a start requests an execution id that is taken. Its conflict policy decides:

fail                the start is rejected
use_existing        the start returns the existing execution, if it is of the same workflow
terminate_existing  the existing execution is cancelled if it has not ended, and the new one replaces it

The id of a child derives from the id of its parent. A child replaces the child that an earlier execution with
the parent's id left behind. If its start event is delivered twice, the child already exists.

A start that created the execution itself, and is delivered again, returns it under every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from orchestrator.application.engine.transitions import on_step_result
from orchestrator.application.errors import InvalidEvent, RecordExists, RecordNotFound
from orchestrator.application.records.events import ConflictPolicy, ControlEvent, Moment, Parent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.backend.ports import Commit, Committed

CANCELLED_BY = "terminate_existing"
MAX_TRIES = 20


class ExecutionIdConflict(RecordExists):
    """The id is taken, and the start cannot have it."""

    def __init__(self, execution_id: str, details: str) -> None:
        super().__init__(execution_id)
        self.args = (f"{self.args[0]}{details}",)


class RecordAccess(Protocol):
    """The part of a Backend that this module needs."""

    def find(self, execution_id: str) -> str: ...

    def checkout(self, workflow_execution_id: str) -> WorkflowRecord: ...

    def commit(self, commits: Sequence[Commit]) -> list[Committed]: ...


def resolve_conflict(
    records: RecordAccess, commit: Commit, policy: ConflictPolicy, moment: Moment
) -> Commit | WorkflowRecord:
    """Resolve a creation whose id is taken: returns the commit to try next, or the execution that the start
    returns. Raises ExecutionIdConflict when the start is rejected."""
    execution_id, parent = commit.record.execution_id, commit.record.parent
    start_event = commit.record.start_event if parent is None else None
    if policy == "fail" and parent is None and start_event is None:
        raise ExecutionIdConflict(execution_id, "")
    for _ in range(MAX_TRIES):
        try:
            weid = records.find(execution_id)
        except RecordNotFound:
            return replace(commit, replaces=None)  # it was deleted meanwhile
        try:
            existing = records.checkout(weid)
            if start_event is not None and start_event == existing.start_event:
                return existing
            if policy == "fail" and parent is None:
                raise ExecutionIdConflict(execution_id, "")
            if policy == "use_existing":
                return _check_same_workflow(existing, commit)
            if parent is not None:
                if _is_same_child(existing, parent):
                    return existing
                if not _is_left_over(existing, parent):
                    raise ExecutionIdConflict(execution_id, "")
            return replace(commit, replaces=_end_existing(records, existing, moment))
        except RecordNotFound:
            continue  # deleted between find and checkout; if the store is damaged, the tries run out
    raise ExecutionIdConflict(execution_id, ", but its record is missing: choose another id")


def _check_same_workflow(existing: WorkflowRecord, commit: Commit) -> WorkflowRecord:
    if existing.workflow_id != commit.record.workflow_id:
        raise ExecutionIdConflict(
            existing.execution_id, f", as an execution of another workflow: {existing.workflow_id}"
        )
    return existing


def _is_same_child(existing: WorkflowRecord, parent: Parent) -> bool:
    """Whether the existing execution is the child of the same dispatch."""
    former = existing.parent
    return former is not None and (
        (former.execution, former.step_id, former.token) == (parent.execution, parent.step_id, parent.token)
    )


def _is_left_over(existing: WorkflowRecord, parent: Parent) -> bool:
    """Whether the existing execution is the child of an earlier execution with the parent's id, which was
    deleted or replaced. No parent waits for that child any more."""
    former = existing.parent
    if former is None or former.token == parent.token:
        return False
    return _parent_step(former) == _parent_step(parent)


def _parent_step(parent: Parent) -> tuple[str, str]:
    """The execution id and the step of a parent."""
    return parent.execution.partition("#")[2], parent.step_id


def _end_existing(records: RecordAccess, existing: WorkflowRecord, moment: Moment) -> WorkflowRecord:
    """The existing execution, cancelled if it has not ended. Its compensation is not interrupted."""
    weid = existing.workflow_execution_id
    cancel = ControlEvent(weid, "cancel", reason="a new start replaces it", by=CANCELLED_BY)
    for _ in range(MAX_TRIES):
        if existing.is_final:
            return existing
        try:
            changes, _result = on_step_result(existing, cancel, moment)
        except InvalidEvent:
            raise ExecutionIdConflict(
                existing.execution_id, f", and it is {existing.status}: start again when it has ended"
            ) from None
        # The process that drives the execution starts its compensation: jobs dispatched here would be lost.
        changes.has_more_ready = changes.fields["status"] is WorkflowStatus.COMPENSATING
        records.commit([Commit(existing, changes)])
        existing = records.checkout(weid)
    raise ExecutionIdConflict(existing.execution_id, ", and it keeps changing: start again")
