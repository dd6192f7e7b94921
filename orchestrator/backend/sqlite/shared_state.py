"""Data that executions share, in tables of a SQLite file. A commit changes it in its own transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.application.errors import StoreError
from orchestrator.application.records.changes import SharedChange, SlotChange
from orchestrator.application.records.events import (
    ControlEvent,
    OutgoingEvent,
    Parent,
    ResultEvent,
    SlotEvent,
    StartEvent,
)
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.backend.copies import dumps
from orchestrator.backend.ports import Commit, Committed, Delivery, EventRef
from orchestrator.backend.shared_state import (
    OUTGOING_EVENTS,
    SlotClaim,
    apply_shared_change,
    apply_slot_change,
    deleted_records,
    scope_owner,
)
from orchestrator.backend.sqlite.database import Database
from orchestrator.backend.sqlite.tasks import find_awaited

LoadSpec = Callable[[sqlite3.Connection, str], LoadedSpec]
PinSpec = Callable[[sqlite3.Connection, LoadedSpec], bool]


class SqliteSharedState:
    def __init__(self, database: Database, load_spec: LoadSpec, pin_spec: PinSpec) -> None:
        self._db, self._load_spec, self._pin_spec = database, load_spec, pin_spec

    # ---- in the transaction of a commit

    def find_rejection(self, db: sqlite3.Connection, commit: Commit) -> Committed | None:
        for ref in commit.pending_refs:
            known = db.execute("SELECT 1 FROM posts WHERE id = ?", [_number(ref)]).fetchone()
            if ref.stream == OUTGOING_EVENTS and known is None:
                return Committed.GONE
        root = commit.idempotency_root
        if root is not None and _is_root_open(db, root[0], commit.changes.at_ms):
            return Committed.REPEATED
        parent = commit.record.parent if commit.creates else None
        if parent is not None and not _is_awaited(db, parent):
            return Committed.ORPHAN
        return None

    def apply(self, db: sqlite3.Connection, commit: Commit) -> None:
        changes, weid = commit.changes, commit.record.workflow_execution_id
        for deleted in deleted_records(commit):
            db.execute("DELETE FROM roots WHERE workflow_execution_id = ?", [deleted.workflow_execution_id])
            db.execute("DELETE FROM shared WHERE scope = 'global' AND owner = ?", [deleted.execution_id])
        acknowledged = [[_number(ref)] for ref in commit.events if ref.stream == OUTGOING_EVENTS]
        db.executemany("DELETE FROM posts WHERE id = ?", acknowledged)
        events = list(changes.outgoing_events)
        for change in changes.slots:
            events += _change_slots(db, weid, change)
        for one in changes.shared:
            _change_value(db, scope_owner(commit.record, one.scope), one)
        rows = [(changes.at_ms, _encode_event(event)) for event in events]
        db.executemany("INSERT INTO posts (at_ms, event) VALUES (?, ?)", rows)
        if commit.idempotency_root is not None:
            name, window_s = commit.idempotency_root
            until_ms = changes.at_ms + window_s * 1000
            db.execute("INSERT OR REPLACE INTO roots VALUES (?, ?, ?)", [name, weid, until_ms])

    # ---- outside of a commit

    def outgoing_events(self) -> list[Delivery]:
        with self._db.read_transaction() as db:
            rows = db.execute("SELECT id, at_ms, event FROM posts ORDER BY id").fetchall()
        return [
            Delivery(EventRef(OUTGOING_EVENTS, str(row[0])), row[1], _decode_event(row[2])) for row in rows
        ]

    def drop_outgoing_event(self, ref: EventRef) -> None:
        with self._db.write_transaction() as db:
            db.execute("DELETE FROM posts WHERE id = ?", [_number(ref)])

    def load_values(self, owners: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        with self._db.read_transaction() as db:
            query = "SELECT key, value FROM shared WHERE scope = ? AND owner = ?"
            found = [db.execute(query, owner).fetchall() for owner in owners]
        return [{key: json.loads(value) for key, value in rows} for rows in found]

    def find_by_root(self, root: str) -> str | None:
        with self._db.read_transaction() as db:
            row = db.execute("SELECT workflow_execution_id FROM roots WHERE root = ?", [root]).fetchone()
        return None if row is None else str(row[0])

    def register(self, name: str, loaded: LoadedSpec) -> None:
        with self._db.write_transaction() as db:
            if not self._pin_spec(db, loaded):
                raise StoreError(f"another document has the workflow_id {loaded.workflow_id!r}")
            db.execute("INSERT OR REPLACE INTO names VALUES (?, ?)", [name, loaded.workflow_id])

    def load_definition(self, name: str) -> LoadedSpec:
        with self._db.read_transaction() as db:
            row = db.execute("SELECT workflow_id FROM names WHERE name = ?", [name]).fetchone()
            if row is None:
                raise KeyError(name)
            return self._load_spec(db, row[0])


def _is_awaited(db: sqlite3.Connection, parent: Parent) -> bool:
    awaited = find_awaited(db, parent.execution, parent.step_id)
    return awaited is not None and awaited.token == parent.token


def _is_root_open(db: sqlite3.Connection, root: str, at_ms: int) -> bool:
    row = db.execute("SELECT until_ms FROM roots WHERE root = ?", [root]).fetchone()
    return row is not None and at_ms < row[0]


def _change_slots(db: sqlite3.Connection, weid: str, change: SlotChange) -> list[SlotEvent]:
    key = change.slot.key
    rows = db.execute("SELECT * FROM places WHERE key = ? ORDER BY number", [key]).fetchall()
    before = [SlotClaim(row[2], row[3], row[4], row[5], bool(row[6])) for row in rows]
    after, granted = apply_slot_change(before, weid, change)
    db.execute("DELETE FROM places WHERE key = ?", [key])
    db.executemany(
        "INSERT INTO places (key, workflow_execution_id, step_id, token, most, is_held)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [(key, p.workflow_execution_id, p.step_id, p.token, p.limit, int(p.is_held)) for p in after],
    )
    return granted


def _change_value(db: sqlite3.Connection, owner: str, change: SharedChange) -> None:
    row_key = [change.scope, owner, change.key]
    query = "SELECT value FROM shared WHERE scope = ? AND owner = ? AND key = ?"
    row = db.execute(query, row_key).fetchone()
    after = apply_shared_change(0 if row is None else json.loads(row[0]), change)
    db.execute("INSERT OR REPLACE INTO shared VALUES (?, ?, ?, ?)", [*row_key, dumps(after)])


_EVENT_TYPES: dict[str, type[OutgoingEvent]] = {
    one.__name__: one for one in (StartEvent, ResultEvent, ControlEvent, SlotEvent)
}


def _encode_event(event: OutgoingEvent) -> str:
    return dumps({"post": type(event).__name__, **asdict(event)})


def _decode_event(text: str) -> OutgoingEvent:
    fields = json.loads(text)
    event_type = _EVENT_TYPES[fields.pop("post")]
    if fields.get("parent") is not None:
        fields["parent"] = Parent(**fields["parent"])
    return event_type(**fields)


def _number(ref: EventRef) -> int:
    """The row id of an outgoing event; 0, which no row has, for an event of another stream."""
    return int(ref.entry_id) if ref.stream == OUTGOING_EVENTS else 0
