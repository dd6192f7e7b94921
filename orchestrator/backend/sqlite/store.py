"""SqliteStore: records in rows. A commit is one transaction and writes what changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from orchestrator.application.errors import RecordExists, RecordNotFound, StoreError
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.delta import build_delta
from orchestrator.application.records.record import (
    RECORD_PARTS,
    SHORT_REFERENCES,
    WorkflowRecord,
    read_parts,
)
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.application.records.step_log import MAX_LINES_PER_EXECUTION, LogLine
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import load_stored_spec
from orchestrator.backend.copies import dumps
from orchestrator.backend.ids import next_version, random_nonce
from orchestrator.backend.ports import Commit, Committed, check_version
from orchestrator.backend.spec_cache import SpecCache
from orchestrator.backend.sqlite.database import Database
from orchestrator.backend.sqlite.payloads import SqlitePayloads
from orchestrator.backend.sqlite.shared_state import SqliteSharedState
from orchestrator.backend.sqlite.tasks import delete_ended_tasks, delete_tasks_of

SPEC_CACHE_SIZE = 64


class SqliteStore:
    """Keeps records in a SQLite file. A commit is one transaction."""

    def __init__(self, path: str | Path, nonce: Callable[[], str] = random_nonce) -> None:
        self._db, self._nonce = Database(path), nonce
        self.shared_state = SqliteSharedState(self._db, self._spec, self._pin_spec)
        self.payloads = SqlitePayloads(self._db)
        self._specs = SpecCache[str](SPEC_CACHE_SIZE)

    def close(self) -> None:
        self._db.close()

    # ---- reading

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        with self._db.read_transaction() as db:
            weid = _full_id(db, workflow_execution_id)
            row = db.execute("SELECT * FROM workflows WHERE workflow_execution_id = ?", [weid]).fetchone()
            steps = db.execute(
                "SELECT step_id, record FROM steps WHERE workflow_execution_id = ?", [weid]
            ).fetchall()
            state = db.execute(
                "SELECT key, value FROM state WHERE workflow_execution_id = ? ORDER BY rowid", [weid]
            ).fetchall()
            delta = db.execute("SELECT mark FROM deltas WHERE workflow_execution_id = ?", [weid]).fetchone()
            loaded = self._spec(db, row["workflow_id"])
        stored = json.loads(row["fields"])
        if not stored.pop(SHORT_REFERENCES, False) and loaded.has_short_references:
            loaded = self._specs.without_short_references(loaded)
        units = {unit: StepRecord.from_dict(json.loads(record)) for unit, record in steps}
        return WorkflowRecord(
            loaded=loaded,
            execution_id=row["execution_id"],
            status=WorkflowStatus(row["status"]),
            version=row["version"],
            delta=None if delta is None else delta[0],
            inputs=json.loads(row["inputs"]),
            state={key: json.loads(value) for key, value in state},
            steps={step_id: units.get(step_id, StepRecord()) for step_id in loaded.graph.order},
            items={unit: item for unit, item in units.items() if unit not in loaded.graph.index},
            **read_parts(stored),
        )

    def full_id(self, execution_id: str) -> str:
        """The workflow_execution_id for an execution id; a full id is returned as it is."""
        with self._db.read_transaction() as db:
            return _full_id(db, execution_id)

    def list_open(self) -> list[str]:
        """The ids of the executions that have not ended."""
        final = sorted(FINAL_WORKFLOW_STATUSES)
        marks = ", ".join("?" * len(final))
        with self._db.read_transaction() as db:
            rows = db.execute(
                f"SELECT workflow_execution_id FROM workflows WHERE status NOT IN ({marks})", final
            ).fetchall()
        return [str(weid) for (weid,) in rows]

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]:
        with self._db.read_transaction() as db:
            weid = _full_id(db, workflow_execution_id)
            rows = db.execute(
                "SELECT entry FROM history WHERE workflow_execution_id = ? ORDER BY rowid", [weid]
            ).fetchall()
        return [json.loads(entry) for (entry,) in rows]

    def log_lines(self, workflow_execution_id: str) -> list[LogLine]:
        with self._db.read_transaction() as db:
            weid = _full_id(db, workflow_execution_id)
            rows = db.execute(
                "SELECT step_id, run_id, attempt, at, text FROM lines WHERE workflow_execution_id = ?"
                " ORDER BY number",
                [weid],
            ).fetchall()
        return [LogLine(*row) for row in rows]

    def _spec(self, db: sqlite3.Connection, workflow_id: str) -> LoadedSpec:
        loaded = self._specs.get(workflow_id)
        if loaded is None:
            row = db.execute("SELECT document FROM specs WHERE workflow_id = ?", [workflow_id]).fetchone()
            loaded = load_stored_spec(json.loads(row["document"]))
            self._specs.put(loaded.workflow_id, loaded)
        return loaded

    # ---- writing

    def write(self, record: WorkflowRecord) -> None:
        weid = record.workflow_execution_id
        version = next_version(record.version, self._nonce())
        with self._db.write_transaction() as db:
            owner = db.execute(
                "SELECT workflow_execution_id, version FROM workflows WHERE execution_id = ?",
                [record.execution_id],
            ).fetchone()
            if owner is not None and owner[0] != weid:
                raise RecordExists(record.execution_id)
            check_version(record, owner[1] if owner is not None else None)
            if not self._pin_spec(db, record.loaded):
                raise StoreError(f"another document has the workflow_id {record.workflow_id!r}")
            for table in ("workflows", "steps", "state"):
                db.execute(f"DELETE FROM {table} WHERE workflow_execution_id = ?", [weid])
            self._insert(db, record, version)
        record.version = version

    def add_log_lines(self, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
        weid = workflow_execution_id
        with self._db.write_transaction() as db:
            row = db.execute("SELECT 1 FROM workflows WHERE workflow_execution_id = ?", [weid]).fetchone()
            if row is None:
                return
            [last] = db.execute(
                "SELECT COALESCE(MAX(number), 0) FROM lines WHERE workflow_execution_id = ?", [weid]
            ).fetchone()
            rows = [
                (weid, number, one.step, one.run_id, one.attempt, one.at, one.text)
                for number, one in enumerate(lines, last + 1)
            ]
            db.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            db.execute(
                "DELETE FROM lines WHERE workflow_execution_id = ? AND number <= ?",
                [weid, last + len(rows) - MAX_LINES_PER_EXECUTION],
            )

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        if all(map(_writes_nothing, commits)):  # a driver that polls must not wait for writers
            with self._db.read_transaction() as db:
                return [_check_version(db, commit) for commit in commits]
        versions = [next_version(commit.record.version, self._nonce()) for commit in commits]
        with self._db.write_transaction() as db:
            results = [self._commit(db, commit, v) for commit, v in zip(commits, versions, strict=True)]
        for commit, version, result in zip(commits, versions, results, strict=True):
            if result is Committed.YES and (commit.creates or not commit.changes.is_empty):
                commit.record.version = version
                if commit.delta is not None:
                    commit.delta.note_in(commit.record)
        return results

    def _commit(self, db: sqlite3.Connection, commit: Commit, version: str) -> Committed:
        record, changes, weid = commit.record, commit.changes, commit.record.workflow_execution_id
        rejection = self.shared_state.find_rejection(db, commit)
        if rejection is not None:
            return rejection
        if commit.creates:
            existing = db.execute(
                "SELECT version FROM workflows WHERE execution_id = ?", [record.execution_id]
            ).fetchone()
            if existing is not None and (commit.replaces is None or existing[0] != commit.replaces.version):
                return Committed.EXISTS
            if not self._pin_spec(db, record.loaded):
                return Committed.SPEC_COLLISION
            if existing is not None and commit.replaces is not None:
                _drop(db, commit.replaces.workflow_execution_id)
            self._insert(db, record, version)
        else:
            if _check_version(db, commit) is Committed.CONFLICT:
                return Committed.CONFLICT
            if changes.is_empty:
                self.shared_state.apply(db, commit)
                return Committed.YES
            db.execute("UPDATE workflows SET version = ? WHERE workflow_execution_id = ?", [version, weid])
        self.shared_state.apply(db, commit)
        delete_ended_tasks(db, record, changes)
        if changes.deletes_execution:
            _drop(db, weid)
            return Committed.YES
        _put_fields(db, record, changes)
        _put_steps(db, weid, changes.steps.items())
        _put_items(db, weid, changes)
        _put_state(db, weid, changes.state.items())
        if changes.dropped_state:
            _drop_state(db, weid, changes.dropped_state)
        entries = [(weid, dumps(entry)) for entry in changes.history]
        if commit.has_delta:
            commit.delta = build_delta(record, changes, version, dumps, creates=commit.creates)
            if commit.delta.text:
                entries.append((weid, commit.delta.text))
            db.execute("INSERT OR REPLACE INTO deltas VALUES (?, ?)", [weid, commit.delta.mark])
        db.executemany("INSERT INTO history VALUES (?, ?)", entries)
        return Committed.YES

    def _insert(self, db: sqlite3.Connection, record: WorkflowRecord, version: str) -> None:
        weid = record.workflow_execution_id
        db.execute(
            "INSERT INTO workflows VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                weid,
                record.workflow_id,
                record.execution_id,
                record.spec.name,
                record.status.value,
                version,
                dumps(record.inputs),
                dumps(_stored_fields(record, Changes())),
            ],
        )
        untouched = StepRecord()
        _put_steps(db, weid, ((step_id, step) for step_id, step in record.steps.items() if step != untouched))
        _put_steps(db, weid, record.items.items())
        _put_state(db, weid, record.state.items())

    def _pin_spec(self, db: sqlite3.Connection, loaded: LoadedSpec) -> bool:
        """Store the document of a workflow_id; False if it has another one: MD5 collisions can be forged."""
        row = db.execute("SELECT document FROM specs WHERE workflow_id = ?", [loaded.workflow_id]).fetchone()
        if row is None:
            db.execute("INSERT INTO specs VALUES (?, ?)", [loaded.workflow_id, dumps(loaded.document)])
            return True
        if self._specs.get(loaded.workflow_id) is loaded:
            return True
        if _canonical(json.loads(row["document"])) != _canonical(loaded.document):
            return False
        self._specs.put(loaded.workflow_id, loaded)
        return True


def _writes_nothing(commit: Commit) -> bool:
    return commit.changes.is_empty and not (commit.creates or commit.events or commit.pending_refs)


def _check_version(db: sqlite3.Connection, commit: Commit) -> Committed:
    """CONFLICT if the record is stored at another version, or no longer stored."""
    weid, version = commit.record.workflow_execution_id, commit.record.version
    stored = db.execute("SELECT version FROM workflows WHERE workflow_execution_id = ?", [weid]).fetchone()
    return Committed.YES if stored is not None and stored["version"] == version else Committed.CONFLICT


def _drop(db: sqlite3.Connection, weid: str) -> None:
    """Delete an execution; SqliteSharedState deletes its shared data."""
    delete_tasks_of(db, weid)
    for table in ("workflows", "steps", "state", "history", "lines", "deltas"):
        db.execute(f"DELETE FROM {table} WHERE workflow_execution_id = ?", [weid])


def _full_id(db: sqlite3.Connection, execution_id: str) -> str:
    row = db.execute(
        "SELECT workflow_execution_id FROM workflows WHERE workflow_execution_id = ? OR execution_id = ?",
        [execution_id, execution_id],
    ).fetchone()
    if row is None:
        raise RecordNotFound(execution_id)
    return str(row[0])


def _stored_fields(record: WorkflowRecord, changes: Changes) -> dict[str, Any]:
    stored = {name: changes.fields.get(name, getattr(record, name)) for name in _FIELDS}
    for name in RECORD_PARTS:
        if stored[name] is not None:
            stored[name] = asdict(stored[name])
    if record.loaded.has_short_references:
        stored[SHORT_REFERENCES] = True
    return stored


_COLUMNS = ("loaded", "execution_id", "inputs", "status", "state", "steps", "items", "version", "delta")
_FIELDS = tuple(f.name for f in fields(WorkflowRecord) if f.init and f.name not in _COLUMNS)


def _put_fields(db: sqlite3.Connection, record: WorkflowRecord, changes: Changes) -> None:
    if changes.fields:
        status: WorkflowStatus = changes.fields.get("status", record.status)
        db.execute(
            "UPDATE workflows SET status = ?, fields = ? WHERE workflow_execution_id = ?",
            [status.value, dumps(_stored_fields(record, changes)), record.workflow_execution_id],
        )
    if "inputs" in changes.fields:
        db.execute(
            "UPDATE workflows SET inputs = ? WHERE workflow_execution_id = ?",
            [dumps(changes.fields["inputs"]), record.workflow_execution_id],
        )


def _put_steps(db: sqlite3.Connection, weid: str, steps: Iterable[tuple[str, StepRecord]]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?)",
        [(weid, step_id, step.status.value, dumps(step.as_dict())) for step_id, step in steps],
    )


def _put_items(db: sqlite3.Connection, weid: str, changes: Changes) -> None:
    """Write the items of maps: rows of the table steps, under `<step>#<n>`."""
    _put_steps(db, weid, ((unit, item) for unit, item in changes.items.items() if item is not None))
    db.executemany(
        "DELETE FROM steps WHERE workflow_execution_id = ? AND step_id = ?",
        [(weid, unit) for unit, item in changes.items.items() if item is None],
    )


def _put_state(db: sqlite3.Connection, weid: str, state: Iterable[tuple[str, Any]]) -> None:
    db.executemany(  # not REPLACE: a key keeps its position in the order
        "INSERT INTO state VALUES (?, ?, ?)"
        " ON CONFLICT (workflow_execution_id, key) DO UPDATE SET value = excluded.value",
        [(weid, key, dumps(value)) for key, value in state],
    )


def _drop_state(db: sqlite3.Connection, weid: str, keys: Iterable[str]) -> None:
    db.executemany(
        "DELETE FROM state WHERE workflow_execution_id = ? AND key = ?", [(weid, key) for key in keys]
    )


def _canonical(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True)
