"""The table `tasks` as the store and the runner of one file see it.

If the file also has the records, a row is wanted only while its unit is in progress under its token. So a
commit deletes the rows of the dispatches that it ends, and the runner adds no row that its record does not
wait for.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, StepStatus
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.ids import step_run_key


@dataclass(frozen=True, slots=True)
class AwaitedDispatch:
    """The dispatch whose result a unit waits for."""

    run_id: int
    attempt: int
    token: str


def has_records(db: sqlite3.Connection) -> bool:
    """Whether a store uses this file, and not only a runner."""
    return db.execute("SELECT 1 FROM specs LIMIT 1").fetchone() is not None


def find_awaited(db: sqlite3.Connection, weid: str, unit: str) -> AwaitedDispatch | None:
    """The dispatch that a unit waits for; None if it waits for none."""
    row = db.execute(
        "SELECT record FROM steps WHERE workflow_execution_id = ? AND step_id = ? AND status = ?",
        [weid, unit, StepStatus.IN_PROGRESS.value],
    ).fetchone()
    if row is None:
        return None
    step = json.loads(row[0])
    token = step.get("token")
    return None if token is None else AwaitedDispatch(step.get("run_id", 0), step.get("attempt", 1), token)


def is_wanted(db: sqlite3.Connection, weid: str, unit: str, token: str | None) -> bool:
    """Whether a job or a result belongs to a dispatch that its record waits for. If the records are in
    another file, this is not known: the answer is yes."""
    if not has_records(db):
        return True
    awaited = find_awaited(db, weid, unit)
    return awaited is not None and token in (None, awaited.token)


def delete_ended_tasks(db: sqlite3.Connection, record: WorkflowRecord, changes: Changes) -> None:
    """Delete the rows of the dispatches that a commit ends. A webhook is delivered after the end."""
    weid = record.workflow_execution_id
    if changes.fields.get("status") in FINAL_WORKFLOW_STATUSES:
        db.execute("DELETE FROM tasks WHERE workflow_execution_id = ? AND step_id <> ?", [weid, WEBHOOK_UNIT])
    ended = [*changes.finished_dispatches, *changes.revoked]
    if ended:
        keys = [(step_run_key(weid, unit, step.run_id), step.token) for unit, step in ended]
        db.executemany("DELETE FROM tasks WHERE task_key = ? AND token = ?", keys)


def delete_tasks_of(db: sqlite3.Connection, weid: str) -> None:
    db.execute("DELETE FROM tasks WHERE workflow_execution_id = ?", [weid])


def delete_unwanted_tasks(db: sqlite3.Connection) -> None:
    """Delete the rows of executions that have ended or were deleted: earlier releases left them behind."""
    if not has_records(db):
        return
    final = sorted(status.value for status in FINAL_WORKFLOW_STATUSES)
    db.execute(
        "DELETE FROM tasks WHERE step_id <> ? AND workflow_execution_id NOT IN (SELECT workflow_execution_id"
        f" FROM workflows WHERE status NOT IN ({', '.join('?' * len(final))}))",
        [WEBHOOK_UNIT, *final],
    )
