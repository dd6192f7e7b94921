"""The changes of steps that Backend(on_status=...) reports after each commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field

from orchestrator.application.explain.run_status import RunStatus, make_run_status
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.ports import Commit


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A step has changed its status, and the change is stored. `step_id` may also be an item of a map
    (`<step>#<n>`), a compensation (`<step>#undo`) or the webhook (`#webhook`)."""

    workflow_execution_id: str
    step_id: str
    before: str
    after: str
    run_id: int
    attempt: int
    at: str
    _record: WorkflowRecord = field(repr=False, compare=False)

    @property
    def run_status(self) -> RunStatus:
        """The whole execution after the commit of this change. It is built when it is asked for. A step that
        was dispatched is `in_progress`, although no worker can have taken it yet."""
        return make_run_status(StatusView(self._record), parse_iso_ms(self.at))


OnStatus = Callable[[StatusChange], None]


def status_changes(commit: Commit) -> Iterator[StatusChange]:
    """The changes of a commit that was applied to its record, in their order."""
    moves = [entry for entry in commit.changes.history if "to" in entry]
    record = _snapshot(commit.record) if moves else commit.record
    for entry in moves:
        yield StatusChange(
            record.workflow_execution_id,
            entry["step"],
            entry["from"],
            entry["to"],
            entry["run_id"],
            entry["attempt"],
            entry["at"],
            record,
        )


def _snapshot(record: WorkflowRecord) -> WorkflowRecord:
    """A copy that later commits do not change. It shares the records of steps, which are never modified."""
    snapshot = copy(record)
    snapshot.steps, snapshot.items = dict(record.steps), dict(record.items)
    snapshot.state = dict(record.state)
    return snapshot
