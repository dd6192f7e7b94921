"""SqliteRunner: jobs in rows, for workers in other threads and processes.

A worker calls take_pending_jobs() and submit_work_result(). A worker in any other language can use the table
`tasks` itself: it takes a row by setting `status` from PENDING to STARTED, calls `op` with `inputs`, and sets
`output` and COMPLETE, or `output = {"error": message}` and ERROR.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, iso, make_failure
from orchestrator.backend.copies import dumps
from orchestrator.backend.ids import now_ms, step_run_key
from orchestrator.backend.results import ResultPairs, as_pairs, make_result
from orchestrator.backend.sqlite.database import Database
from orchestrator.backend.sqlite.payloads import SqlitePayloads


class SqliteRunner:
    def __init__(self, path: str | Path, clock: Callable[[], int] = now_ms) -> None:
        self._db, self._clock = Database(path), clock
        self.payloads = SqlitePayloads(self._db)

    def close(self) -> None:
        self._db.close()

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        """Add a row for each job. A job that is already dispatched stays as it is; the job of an earlier
        execution with the same id is deleted."""
        now = iso(self._clock())
        rows = [(*_to_row(job), now) for job in jobs]
        with self._db.write_transaction() as db:
            former = [(_key(job), job.token) for job in jobs]
            db.executemany("DELETE FROM tasks WHERE task_key = ? AND token <> ?", former)
            db.executemany(
                "INSERT OR IGNORE INTO tasks (task_key, workflow_execution_id, step_id, op, inputs,"
                " run_id, attempt, token, job, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
        return []

    def list_pending_jobs(self) -> list[DispatchJob]:
        with self._db.read_transaction() as db:
            return [_to_job(row) for row in _pending(db)]

    def take_pending_jobs(self) -> list[DispatchJob]:
        with self._db.read_transaction() as db:
            if not db.execute("SELECT 1 FROM tasks WHERE status = 'PENDING' LIMIT 1").fetchone():
                return []  # a poll that finds nothing, the usual case, must not wait for writers
        with self._db.write_transaction() as db:
            rows = _pending(db)
            self._set_status(db, "STARTED", (row["task_key"] for row in rows))
        return [_to_job(row) for row in rows]

    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        with self._db.write_transaction() as db:
            self._set_status(db, "PENDING", (_key(job) for job in jobs))

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        self.submit(make_result(workflow_execution_id, step_id, output, job))

    def submit(self, result: ResultEvent) -> None:
        weid, step_id, now = result.workflow_execution_id, result.step_id, iso(self._clock())
        status = "COMPLETE" if result.error is None else "ERROR"
        error = None if result.error is None else dumps(result.error)
        values = [status, dumps(result.output), error, result.worker, result.started_at, now]
        with self._db.write_transaction() as db:
            key = step_run_key(weid, step_id, result.run_id)
            if result.run_id is None:
                key = _newest_taken(db, weid, step_id) or key
            updated = db.execute(
                "UPDATE tasks SET status = ?, output = ?, error = ?, worker = ?, started_at = ?,"
                " updated_at = ? WHERE task_key = ? AND status IN ('PENDING', 'STARTED')"
                " AND token = coalesce(?, token)",
                [*values, key, result.token],
            )
            if not updated.rowcount:  # not dispatched here, or it already has a result
                db.execute(
                    "INSERT OR IGNORE INTO tasks (status, output, error, worker, started_at, updated_at,"
                    " task_key, workflow_execution_id, step_id, run_id, attempt, token, created_at,"
                    " op, inputs, job) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '{}', '{}')",
                    [*values, key, weid, step_id, result.run_id, result.attempt, result.token, now],
                )

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        return as_pairs(self.results(workflow_execution_id))

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        """The results that have arrived, in the order of their dispatch. Each is returned once."""
        with self._db.read_transaction() as db:
            if not _finished(db, workflow_execution_id):
                return []
        with self._db.write_transaction() as db:
            rows = _finished(db, workflow_execution_id)
            db.executemany("DELETE FROM tasks WHERE task_key = ?", [(row["task_key"],) for row in rows])
        return [_to_result(row) for row in rows]

    def held_tokens(self, workflow_execution_id: str) -> set[str]:
        with self._db.read_transaction() as db:
            rows = db.execute(
                "SELECT token FROM tasks WHERE workflow_execution_id = ?", [workflow_execution_id]
            ).fetchall()
        return {token for (token,) in rows if token is not None}

    def _set_status(self, db: sqlite3.Connection, status: str, keys: Iterable[str]) -> None:
        now = iso(self._clock())
        db.executemany(
            "UPDATE tasks SET status = ?, updated_at = ? WHERE task_key = ?"
            " AND status IN ('PENDING', 'STARTED')",
            [(status, now, key) for key in keys],
        )


def _key(job: DispatchJob) -> str:
    return step_run_key(job.workflow_execution_id, job.step_id, job.run_id)


def _to_row(job: DispatchJob) -> tuple[Any, ...]:
    whole = asdict(job)
    inputs = dumps(whole.pop("inputs"))
    weid = job.workflow_execution_id
    return _key(job), weid, job.step_id, job.fn, inputs, job.run_id, job.attempt, job.token, dumps(whole)


def _to_job(row: sqlite3.Row) -> DispatchJob:
    stored = json.loads(row["job"])
    stored |= {name: tuple(stored.get(name, ())) for name in ("tags", "redact")}
    stored["secrets"] = tuple(map(tuple, stored.get("secrets", ())))
    return DispatchJob(inputs=json.loads(row["inputs"]), **stored)


def _pending(db: sqlite3.Connection) -> list[sqlite3.Row]:
    return db.execute("SELECT * FROM tasks WHERE status = 'PENDING' ORDER BY rowid").fetchall()


def _finished(db: sqlite3.Connection, weid: str) -> list[sqlite3.Row]:
    return db.execute(
        "SELECT * FROM tasks WHERE workflow_execution_id = ? AND status IN ('COMPLETE', 'ERROR')"
        " ORDER BY rowid",
        [weid],
    ).fetchall()


def _newest_taken(db: sqlite3.Connection, weid: str, step_id: str) -> str | None:
    """The dispatch that a result without a run_id most likely belongs to."""
    row = db.execute(
        "SELECT task_key FROM tasks WHERE workflow_execution_id = ? AND step_id = ? AND status = 'STARTED'"
        " ORDER BY rowid DESC LIMIT 1",
        [weid, step_id],
    ).fetchone()
    return None if row is None else str(row[0])


def _to_result(row: sqlite3.Row) -> ResultEvent:
    output = json.loads(row["output"]) if row["output"] is not None else None
    error = json.loads(row["error"]) if row["error"] is not None else None
    if error is None and row["status"] == "ERROR":  # written by a worker in another language
        message = output.get("error", output) if isinstance(output, dict) else output
        output, error = None, make_failure("exception", str(message))
    return ResultEvent(
        workflow_execution_id=row["workflow_execution_id"],
        step_id=row["step_id"],
        output=output,
        error=error,
        run_id=row["run_id"],
        attempt=row["attempt"],
        token=row["token"],
        worker=row["worker"],
        started_at=row["started_at"],
    )
