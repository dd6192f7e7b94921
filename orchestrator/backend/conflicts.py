"""Conflicts: a start asks for an execution id that is taken, and says what is to be done about it.

fail                the start is refused
use_existing        the execution that is there is the answer, if it is one of the same workflow
terminate_existing  it is cancelled if it has not ended, and the new one takes its place
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from orchestrator.application.errors import RecordExists, RecordNotFound
from orchestrator.application.events import ConflictPolicy, ControlEvent, Moment
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.transitions import decide
from orchestrator.backend.ports import Commit, Committed

BY = "terminate_existing"
TRIES = 20


class Conflict(RecordExists):
    """The id is taken, and not to be had."""

    def __init__(self, execution_id: str, why: str) -> None:
        super().__init__(execution_id)
        self.args = (f"{self.args[0]}{why}",)


class Records(Protocol):
    """What is needed of a Backend."""

    def find(self, execution_id: str) -> str: ...

    def checkout(self, workflow_execution_id: str) -> WorkflowRecord: ...

    def commit(self, commits: Sequence[Commit]) -> list[Committed]: ...


def settle_conflict(
    records: Records, commit: Commit, policy: ConflictPolicy, moment: Moment
) -> Commit | WorkflowRecord:
    """What to do with a creation that met its id taken: the commit to try next, or the execution that answers
    it. Raises Conflict when it is to be refused."""
    execution_id = commit.record.execution_id
    if policy == "fail":
        raise Conflict(execution_id, "")
    try:
        there = records.checkout(records.find(execution_id))
        if policy == "use_existing":
            return _existing(there, commit)
        return replace(commit, replaces=_ended(records, there, moment))
    except RecordNotFound:
        return replace(commit, replaces=None)  # it has gone meanwhile


def _existing(there: WorkflowRecord, commit: Commit) -> WorkflowRecord:
    if there.workflow_id != commit.record.workflow_id:
        raise Conflict(there.execution_id, f", of another workflow: {there.workflow_id}")
    return there


def _ended(records: Records, there: WorkflowRecord, moment: Moment) -> WorkflowRecord:
    """The execution that is in the way, cancelled if it must be. What it has to undo is not cut short."""
    weid = there.workflow_execution_id
    cancel = ControlEvent(weid, "cancel", reason="a new start takes its place", by=BY)
    for _ in range(TRIES):
        if there.is_final:
            return there
        decided = decide(there, [cancel], moment)
        if decided.refused:
            raise Conflict(there.execution_id, f", and it is {there.status}: start again when it has ended")
        records.commit([Commit(there, decided.changes)])
        there = records.checkout(weid)
    raise Conflict(there.execution_id, ", and it kept changing: start again")
