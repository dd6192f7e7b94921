"""A SQLite file with our tables: durable on one machine, for any number of its processes and threads.

specs      workflow_id, document                                    one row per content of a spec
workflows  workflow_execution_id, execution_id, status, version ... one row per execution
steps      workflow_execution_id, step_id, status, record           steps that differ from a new one
state      workflow_execution_id, key, value
history    workflow_execution_id, entry
deltas     workflow_execution_id, mark: the field `delta` of the record
lines      workflow_execution_id, number, step_id, run_id, attempt, at, text   the step log
tasks      task_key, status, op, inputs, output, error ...          one row per dispatch, of the runner, until
                                                                    its result is committed
names      name, workflow_id                                        registered workflows
posts      id, at_ms, event                                         events from one execution to another
places     key, workflow_execution_id, step_id, token ...           holders and waiters of concurrency keys
shared     scope, owner, key, value                                 values that executions share
roots      root, workflow_execution_id, until_ms                    idempotency roots of starts
payloads   id, data                                                 large values, passed by reference

Values are JSON. The file is in WAL mode with `synchronous = NORMAL`: a killed process loses nothing, a power
failure at most the last few commits.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from orchestrator.application.errors import StoreError
from orchestrator.backend.sqlite.tasks import delete_unwanted_tasks

SCHEMA_VERSION = 1
"""The version of a file that this release reads. It stays the same when a table gets a column that earlier
releases can ignore: they keep working on the file. `_ADDED_COLUMNS` lists such columns."""
BUSY_TIMEOUT_S = 30.0
_PREPARE_PAUSE_S = 0.05

_TABLES = """
CREATE TABLE IF NOT EXISTS specs (workflow_id TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workflows (
    workflow_execution_id TEXT PRIMARY KEY,
    workflow_id           TEXT NOT NULL,
    execution_id          TEXT NOT NULL UNIQUE,
    name                  TEXT,
    status                TEXT NOT NULL,
    version               TEXT NOT NULL,
    inputs                TEXT NOT NULL,
    fields                TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS steps (
    workflow_execution_id TEXT NOT NULL,
    step_id               TEXT NOT NULL,
    status                TEXT NOT NULL,
    record                TEXT NOT NULL,
    PRIMARY KEY (workflow_execution_id, step_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (
    workflow_execution_id TEXT NOT NULL,
    key                   TEXT NOT NULL,
    value                 TEXT NOT NULL,
    UNIQUE (workflow_execution_id, key)
);
CREATE TABLE IF NOT EXISTS history (workflow_execution_id TEXT NOT NULL, entry TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_of ON history (workflow_execution_id);
CREATE TABLE IF NOT EXISTS deltas (workflow_execution_id TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lines (
    workflow_execution_id TEXT NOT NULL,
    number                INTEGER NOT NULL,
    step_id               TEXT NOT NULL,
    run_id                INTEGER NOT NULL,
    attempt               INTEGER NOT NULL,
    at                    TEXT NOT NULL,
    text                  TEXT NOT NULL,
    PRIMARY KEY (workflow_execution_id, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (
    task_key              TEXT PRIMARY KEY,
    workflow_execution_id TEXT NOT NULL,
    step_id               TEXT NOT NULL,
    op                    TEXT NOT NULL,
    inputs                TEXT NOT NULL,
    output                TEXT,
    error                 TEXT,
    status                TEXT NOT NULL DEFAULT 'PENDING',
    created_at            TEXT NOT NULL,
    updated_at            TEXT,
    run_id                INTEGER,
    attempt               INTEGER,
    token                 TEXT,
    job                   TEXT NOT NULL,
    worker                TEXT,
    started_at            TEXT,
    lease_until_ms        INTEGER,
    deadline_ms           INTEGER
);
CREATE INDEX IF NOT EXISTS tasks_of ON tasks (workflow_execution_id, status);
CREATE INDEX IF NOT EXISTS tasks_in ON tasks (status);
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, workflow_id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS posts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, event TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS places (
    number                INTEGER PRIMARY KEY AUTOINCREMENT,
    key                   TEXT NOT NULL,
    workflow_execution_id TEXT NOT NULL,
    step_id               TEXT NOT NULL,
    token                 TEXT NOT NULL UNIQUE,
    most                  INTEGER NOT NULL,
    is_held               INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS places_under ON places (key);
CREATE TABLE IF NOT EXISTS shared (
    scope TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (scope, owner, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS roots (
    root TEXT PRIMARY KEY, workflow_execution_id TEXT NOT NULL, until_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS payloads (id TEXT PRIMARY KEY, data BLOB NOT NULL);
"""


_ADDED_COLUMNS = {"tasks": {"lease_until_ms": "INTEGER", "deadline_ms": "INTEGER"}}
"""Columns that files of release 0.1.1 do not have."""

_CAUSES = {
    "SQLITE_BUSY": f"another process has locked the file for more than {BUSY_TIMEOUT_S:g} s",
    "SQLITE_FULL": "the disk is full; nothing of this change was written",
    "SQLITE_READONLY": "the file or its folder is read-only",
    "SQLITE_CORRUPT": "the file is damaged; restore it from a backup",
    "SQLITE_NOTADB": "this is not a SQLite file; use another one",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its folder exists, and its permissions",
    "SQLITE_IOERR": "the disk cannot be read or written",
}
"""What an error of SQLite means, by the beginning of its name."""

_of_parents: list[list[sqlite3.Connection]] = []
"""Connections of the processes that this one was forked from. It keeps them as they are."""


class Database:
    """A file and its idle connections. Each connection is used by one thread at a time."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._idle: list[sqlite3.Connection] = []
        self._pid, self._lock = os.getpid(), Lock()
        # Python 3.13 warns about connections that are never closed: a dropped database closes its own.
        self._close_idle = weakref.finalize(self, _close_all, self._idle, self._pid)
        with self.read_transaction() as db:
            self._check_owner(db)  # before anything in the file is changed
        self._prepare()

    def close(self) -> None:
        with self._lock:
            _close_all(self._idle, self._pid)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """A consistent snapshot, even while other connections write."""
        with self._borrow() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                _roll_back(db)

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end, rolled back on any exception."""
        with self._borrow() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise

    @contextmanager
    def _borrow(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._open()
            try:
                yield connection
            finally:
                with self._lock:
                    self._idle.append(connection)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {_describe(error)}") from error

    def _open(self) -> sqlite3.Connection:
        """An idle connection, or a new one."""
        with self._lock:
            if self._pid != os.getpid():
                # This is a forked child. Even closing the parent's connections here would damage them.
                self._close_idle.detach()
                _of_parents.append(self._idle)
                self._idle, self._pid = [], os.getpid()
                self._close_idle = weakref.finalize(self, _close_all, self._idle, self._pid)
            if self._idle:
                return self._idle.pop()
        connection = sqlite3.connect(
            self._path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _prepare(self) -> None:
        """Create or check the tables."""
        with self._borrow() as db:
            _set_wal_mode(db)
        with self.write_transaction() as db:
            self._check_owner(db)
            for statement in _TABLES.split(";"):
                db.execute(statement)
            _add_columns(db)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check_owner(self, db: sqlite3.Connection) -> None:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, SCHEMA_VERSION):
            raise StoreError(
                f"{self._path} has schema version {found}, this release reads only {SCHEMA_VERSION}"
            )
        if found == 0 and db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise StoreError(f"{self._path} is a database of another program: use another file")


def _set_wal_mode(db: sqlite3.Connection) -> None:
    """Set the WAL mode, once for all connections. SQLite does not wait for another process that does the
    same, or that recovers the file, so this waits."""
    until = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                raise
        time.sleep(_PREPARE_PAUSE_S)


def _add_columns(db: sqlite3.Connection) -> None:
    """Add the columns that a file of an earlier release does not have."""
    is_old = False
    for table, columns in _ADDED_COLUMNS.items():
        present = {row["name"] for row in db.execute(f"PRAGMA table_info({table})")}
        for name, kind in columns.items():
            if name not in present:
                db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
                is_old = True
    if is_old:
        delete_unwanted_tasks(db)


def _roll_back(db: sqlite3.Connection) -> None:
    """Roll back, unless SQLite has done so itself after an error."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _describe(error: sqlite3.Error) -> str:
    """The cause of an error, in words that say what to do, and SQLite's own words."""
    name = getattr(error, "sqlite_errorname", None) or ""
    cause = next((text for code, text in _CAUSES.items() if name.startswith(code)), None)
    return str(error) if cause is None else f"{cause} ({error})"


def _close_all(connections: list[sqlite3.Connection], pid: int) -> None:
    """Close connections that the process `pid` has opened, in that process only."""
    if pid == os.getpid():
        while connections:
            connections.pop().close()
