"""Conflicts: a start asks for an execution id that is taken, and says what is to be done about it.

fail                the start is refused
use_existing        the execution that is there is the answer, if it is one of the same workflow
terminate_existing  it is cancelled if it has not ended, and the new one takes its place

A child has its id from its parent's, and takes the place of what a parent of that id has left behind. One
that its parent asks for a second time, because the event was doubled, is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from orchestrator.application.engine.transitions import on_step_result
from orchestrator.application.errors import InvalidEvent, RecordExists, RecordNotFound
from orchestrator.application.records.events import ConflictPolicy, ControlEvent, Moment
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.backend.ports import Commit, Committed

CANCELLED_BY = "terminate_existing"
MAX_TRIES = 20


class ExecutionIdConflict(RecordExists):
    """The id is taken, and not to be had."""

    def __init__(self, execution_id: str, why: str) -> None:
        super().__init__(execution_id)
        self.args = (f"{self.args[0]}{why}",)


class RecordAccess(Protocol):
    """What is needed of a Backend."""

    def find(self, execution_id: str) -> str: ...

    def checkout(self, workflow_execution_id: str) -> WorkflowRecord: ...

    def commit(self, commits: Sequence[Commit]) -> list[Committed]: ...


def resolve_conflict(
    records: RecordAccess, commit: Commit, policy: ConflictPolicy, moment: Moment
) -> Commit | WorkflowRecord:
    """What to do with a creation that met its id taken: the commit to try next, or the execution that answers
    it. Raises Conflict when it is to be refused."""
    execution_id, parent = commit.record.execution_id, commit.record.parent
    if policy == "fail" and parent is None:
        raise ExecutionIdConflict(execution_id, "")
    for _ in range(MAX_TRIES):
        try:
            weid = records.find(execution_id)
        except RecordNotFound:
            return replace(commit, replaces=None)  # it has gone meanwhile
        try:
            there = records.checkout(weid)
            if policy == "use_existing":
                return _existing(there, commit)
            if parent is not None:
                if _is_that_child(there, parent):
                    return there
                if not _is_left_over(there, parent):
                    raise ExecutionIdConflict(execution_id, "")
            return replace(commit, replaces=_ended(records, there, moment))
        except RecordNotFound:
            continue  # deleted under our eyes; unless somebody has broken it
    raise ExecutionIdConflict(execution_id, ", although its record is gone: choose another id")


def _existing(there: WorkflowRecord, commit: Commit) -> WorkflowRecord:
    if there.workflow_id != commit.record.workflow_id:
        raise ExecutionIdConflict(there.execution_id, f", of another workflow: {there.workflow_id}")
    return there


def _is_that_child(there: WorkflowRecord, parent: dict[str, Any]) -> bool:
    """Whether the execution in the way of a child is the child of that very dispatch."""
    former = there.parent
    return former is not None and all(
        former[name] == parent[name] for name in ("execution", "step_id", "token")
    )


def _is_left_over(there: WorkflowRecord, parent: dict[str, Any]) -> bool:
    """Whether the execution in the way of a child was the child of its parent's id in a former life: it was
    deleted, or another one took its place. Nobody waits for that child any more."""
    former = there.parent
    if former is None or former["token"] == parent["token"]:
        return False
    return _place(former) == _place(parent)


def _place(parent: dict[str, Any]) -> tuple[str, str]:
    return parent["execution"].partition("#")[2], parent["step_id"]


def _ended(records: RecordAccess, there: WorkflowRecord, moment: Moment) -> WorkflowRecord:
    """The execution that is in the way, cancelled if it must be. What it has to undo is not cut short."""
    weid = there.workflow_execution_id
    cancel = ControlEvent(weid, "cancel", reason="a new start takes its place", by=CANCELLED_BY)
    for _ in range(MAX_TRIES):
        if there.is_final:
            return there
        try:
            changes, _result = on_step_result(there, cancel, moment)
        except InvalidEvent:
            raise ExecutionIdConflict(
                there.execution_id, f", and it is {there.status}: start again when it has ended"
            ) from None
        # Whoever drives it begins to undo it, if it has to be: here nobody would see to its jobs.
        changes.more = changes.fields["status"] is WorkflowStatus.COMPENSATING
        records.commit([Commit(there, changes)])
        there = records.checkout(weid)
    raise ExecutionIdConflict(there.execution_id, ", and it kept changing: start again")
