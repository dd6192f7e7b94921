"""SqliteRunner: jobs in rows, for workers in other threads and processes.

A worker calls take_jobs(), renew_leases() while it runs them, and submit(). When a worker dies, the leases of
its jobs expire, and the driver of their execution dispatches them again (Backend.find_lost_dispatches).
A worker in any other language can use the table `tasks` itself: it takes a row by setting `status` from
PENDING to STARTED, calls `op` with `inputs`, and sets `output` and COMPLETE, or `output = {"error": message}`
and ERROR. It may also set `lease_until_ms` when it takes a row, and again while it runs.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, iso, make_failure
from orchestrator.backend.copies import dumps
from orchestrator.backend.ids import now_ms, step_run_key
from orchestrator.backend.results import ResultPairs, as_pairs, make_result
from orchestrator.backend.sqlite.database import Database
from orchestrator.backend.sqlite.payloads import SqlitePayloads
from orchestrator.backend.sqlite.tasks import find_awaited, is_wanted

LEASES_WITHOUT_RENEWAL = 10
"""How many times `lease_s` a lease lasts that its worker does not renew: a job of take_pending_jobs(), or a
row that was taken by SQL without a lease."""

_NO_LIMIT = -1


class SqliteRunner:
    """Keeps jobs in a SQLite file, for workers in other threads and processes."""

    def __init__(self, path: str | Path, lease_s: float = 30.0, clock: Callable[[], int] = now_ms) -> None:
        """`lease_s` is how long a worker that takes a job may be silent before the job is given to
        another."""
        if lease_s <= 0:
            raise ValueError("lease_s must be more than 0")
        self._db, self._clock = Database(path), clock
        self.lease_s = lease_s
        self.payloads = SqlitePayloads(self._db)
        self._taken_together: dict[str, DispatchJob] = {}
        self._renewed_ms = 0

    def close(self) -> None:
        self._db.close()

    # ---- for the driver

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        """Add a row for each job that its record still waits for. A job that is already dispatched stays as
        it is; the job of an earlier execution with the same id is deleted."""
        now = iso(self._clock())
        with self._db.write_transaction() as db:
            wanted = [job for job in jobs if is_wanted(db, job.workflow_execution_id, job.step_id, job.token)]
            former = [(_key(job), job.token) for job in wanted]
            db.executemany("DELETE FROM tasks WHERE task_key = ? AND token <> ?", former)
            db.executemany(
                "INSERT OR IGNORE INTO tasks (task_key, workflow_execution_id, step_id, op, inputs,"
                " run_id, attempt, token, job, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*_to_row(job), now) for job in wanted],
            )
        return []

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        """The results that have arrived, in the order of their dispatch, until they are acknowledged. A job
        whose worker is gone, and whose timeout has passed, has failed with `timeout`."""
        with self._db.read_transaction() as db:
            rows = _find_results(db, workflow_execution_id, self._clock())
        return [_to_result(row) for row in rows]

    def acknowledge(self, results: Sequence[ResultEvent]) -> None:
        with self._db.read_transaction() as db:
            keys = [key for key in map(_result_key, results) if _has_task(db, key)]
        if keys:  # usually the commit has deleted them
            with self._db.write_transaction() as db:
                db.executemany("DELETE FROM tasks WHERE task_key = ? AND token IS ?", keys)

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        """The results that have arrived, each once: they are deleted at once."""
        results = self.results(workflow_execution_id)
        if results:
            with self._db.write_transaction() as db:
                rows = _find_results(db, workflow_execution_id, self._clock())
                results = [_to_result(row) for row in rows]
                db.executemany("DELETE FROM tasks WHERE task_key = ?", [(row["task_key"],) for row in rows])
        return as_pairs(results)

    def held_tokens(self, workflow_execution_id: str) -> set[str]:
        """The tokens of the dispatches that are pending, under a lease, or have a result. A row that was
        taken without a lease gets one."""
        now = self._clock()
        with self._db.read_transaction() as db:
            rows = db.execute(
                "SELECT task_key, token, status, lease_until_ms, deadline_ms FROM tasks"
                " WHERE workflow_execution_id = ?",
                [workflow_execution_id],
            ).fetchall()
        unleased = [row["task_key"] for row in rows if row["status"] == "STARTED" and _has_no_lease(row)]
        if unleased:
            self._lease_unleased(unleased)
        return {row["token"] for row in rows if row["token"] is not None and not _is_lost(row, now)}

    def _lease_unleased(self, keys: Sequence[str]) -> None:
        until_ms = self._clock() + self._long_lease_ms
        with self._db.write_transaction() as db:
            db.executemany(
                "UPDATE tasks SET lease_until_ms = ? WHERE task_key = ? AND status = 'STARTED'"
                " AND lease_until_ms IS NULL",
                [(until_ms, key) for key in keys],
            )

    # ---- for workers

    def list_pending_jobs(self) -> list[DispatchJob]:
        with self._db.read_transaction() as db:
            return [_to_job(row) for row in _find_pending(db, _NO_LIMIT)]

    def take_jobs(self, limit: int) -> list[DispatchJob]:
        """Take up to `limit` pending jobs, to start them at once: the timeout of each counts from now."""
        return self._take(max(limit, 0), round(self.lease_s * 1000), starts_now=True)

    def take_pending_jobs(self) -> list[DispatchJob]:
        """Take all pending jobs. Their leases last longer, and each result that this runner submits renews
        them: the worker may run them one after the other."""
        jobs = self._take(_NO_LIMIT, self._long_lease_ms, starts_now=False)
        self._taken_together.update((_key(job), job) for job in jobs)
        return jobs

    def _take(self, limit: int, lease_ms: int, starts_now: bool) -> list[DispatchJob]:
        with self._db.read_transaction() as db:
            if not limit or not _find_pending(db, 1):
                return []  # a poll that finds nothing, the usual case, must not wait for writers
        now = self._clock()
        with self._db.write_transaction() as db:
            jobs = [_to_job(row) for row in _find_pending(db, limit)]
            deadlines = [_deadline(job, now) if starts_now else None for job in jobs]
            db.executemany(
                "UPDATE tasks SET status = 'STARTED', worker = ?, started_at = ?, updated_at = ?,"
                " lease_until_ms = ?, deadline_ms = ? WHERE task_key = ?",
                [
                    (_worker_name(), iso(now), iso(now), now + lease_ms, deadline_ms, _key(job))
                    for job, deadline_ms in zip(jobs, deadlines, strict=True)
                ],
            )
        return jobs

    def renew_leases(self, jobs: Sequence[DispatchJob]) -> None:
        self._renew(jobs, round(self.lease_s * 1000))

    def _renew(self, jobs: Sequence[DispatchJob], lease_ms: int) -> None:
        until_ms = self._clock() + lease_ms
        with self._db.write_transaction() as db:
            db.executemany(
                "UPDATE tasks SET lease_until_ms = ? WHERE task_key = ? AND token = ? AND status = 'STARTED'",
                [(until_ms, _key(job), job.token) for job in jobs],
            )

    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        now = iso(self._clock())
        with self._db.write_transaction() as db:
            db.executemany(
                "UPDATE tasks SET status = 'PENDING', worker = NULL, started_at = NULL,"
                " lease_until_ms = NULL, deadline_ms = NULL, updated_at = ?"
                " WHERE task_key = ? AND token = ? AND status = 'STARTED'",
                [(now, _key(job), job.token) for job in jobs],
            )
        for job in jobs:
            self._taken_together.pop(_key(job), None)

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        self.submit(make_result(workflow_execution_id, step_id, output, job))

    def submit(self, result: ResultEvent) -> None:
        """Write the result of a dispatch, unless it has one already or its record no longer waits for it."""
        now = self._clock()
        with self._db.write_transaction() as db:
            if result.run_id is None:
                result = _name_dispatch(db, result)
            _write_result(db, result, iso(now))
        key, _ = _result_key(result)
        self._taken_together.pop(key, None)
        self._renew_taken_together(now)

    def _renew_taken_together(self, now: int) -> None:
        """Take a result as a sign of life for the other jobs of take_pending_jobs()."""
        if self._taken_together and now - self._renewed_ms >= self.lease_s * 1000:
            self._renewed_ms = now
            self._renew(list(self._taken_together.values()), self._long_lease_ms)

    @property
    def _long_lease_ms(self) -> int:
        return round(self.lease_s * 1000 * LEASES_WITHOUT_RENEWAL)


def _worker_name() -> str:
    return f"{os.uname().nodename}:{os.getpid()}"


def _deadline(job: DispatchJob, now: int) -> int | None:
    return None if job.timeout_s is None else now + round(job.timeout_s * 1000)


def _key(job: DispatchJob) -> str:
    return step_run_key(job.workflow_execution_id, job.step_id, job.run_id)


def _result_key(result: ResultEvent) -> tuple[str, str | None]:
    return step_run_key(result.workflow_execution_id, result.step_id, result.run_id), result.token


def _has_task(db: sqlite3.Connection, key: tuple[str, str | None]) -> bool:
    return db.execute("SELECT 1 FROM tasks WHERE task_key = ? AND token IS ?", key).fetchone() is not None


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


def _find_pending(db: sqlite3.Connection, limit: int) -> list[sqlite3.Row]:
    return db.execute(
        "SELECT * FROM tasks WHERE status = 'PENDING' ORDER BY rowid LIMIT ?", [limit]
    ).fetchall()


def _find_results(db: sqlite3.Connection, weid: str, now: int) -> list[sqlite3.Row]:
    return db.execute(
        "SELECT * FROM tasks WHERE workflow_execution_id = ? AND (status IN ('COMPLETE', 'ERROR')"
        " OR status = 'STARTED' AND lease_until_ms <= ? AND deadline_ms <= ?) ORDER BY rowid",
        [weid, now, now],
    ).fetchall()


def _has_no_lease(row: sqlite3.Row) -> bool:
    return row["lease_until_ms"] is None


def _is_lost(row: sqlite3.Row, now: int) -> bool:
    """Whether a job has been taken, its lease has expired, and its timeout has not passed."""
    if row["status"] != "STARTED" or _has_no_lease(row) or row["lease_until_ms"] > now:
        return False
    return row["deadline_ms"] is None or bool(row["deadline_ms"] > now)


def _name_dispatch(db: sqlite3.Connection, result: ResultEvent) -> ResultEvent:
    """The result of a caller that names no dispatch, with the dispatch that it most likely belongs to: the
    newest that was taken, or the one that the record waits for."""
    weid, step_id = result.workflow_execution_id, result.step_id
    taken = db.execute(
        "SELECT run_id, attempt, token FROM tasks WHERE workflow_execution_id = ? AND step_id = ?"
        " AND status = 'STARTED' ORDER BY rowid DESC LIMIT 1",
        [weid, step_id],
    ).fetchone()
    awaited = find_awaited(db, weid, step_id)
    if taken is not None:
        named = {"run_id": taken["run_id"], "attempt": taken["attempt"], "token": taken["token"]}
    elif awaited is not None:
        named = asdict(awaited)
    else:
        return result
    return replace(result, **named)


def _write_result(db: sqlite3.Connection, result: ResultEvent, now: str) -> None:
    weid, step_id, (key, token) = result.workflow_execution_id, result.step_id, _result_key(result)
    status = "COMPLETE" if result.error is None else "ERROR"
    error = None if result.error is None else dumps(result.error)
    values = [status, dumps(result.output), error, result.worker, result.started_at, now]
    updated = db.execute(
        "UPDATE tasks SET status = ?, output = ?, error = ?, worker = coalesce(?, worker),"
        " started_at = coalesce(?, started_at), updated_at = ?, lease_until_ms = NULL, deadline_ms = NULL"
        " WHERE task_key = ? AND status IN ('PENDING', 'STARTED') AND token = coalesce(?, token)",
        [*values, key, token],
    )
    if not updated.rowcount and is_wanted(db, weid, step_id, token):  # not dispatched here
        db.execute(
            "INSERT OR IGNORE INTO tasks (status, output, error, worker, started_at, updated_at,"
            " task_key, workflow_execution_id, step_id, run_id, attempt, token, created_at,"
            " op, inputs, job) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '{}', '{}')",
            [*values, key, weid, step_id, result.run_id, result.attempt, token, now],
        )


def _to_result(row: sqlite3.Row) -> ResultEvent:
    output = json.loads(row["output"]) if row["output"] is not None else None
    error = json.loads(row["error"]) if row["error"] is not None else None
    if row["status"] == "STARTED":
        timeout_s = json.loads(row["job"])["timeout_s"]
        error = make_failure("timeout", f"execution timeout exceeded ({timeout_s:g} s)")
    elif error is None and row["status"] == "ERROR":  # written by a worker in another language
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
