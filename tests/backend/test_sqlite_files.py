"""A SQLite file of an earlier release, a file that cannot be written, and processes that open one at once."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from orchestrator import Backend, Complete, Workflow
from orchestrator.application.errors import StoreError
from orchestrator.application.records.changes import Changes
from orchestrator.backend import SqliteRunner, SqliteStore
from orchestrator.backend.ports import Commit
from orchestrator.backend.sqlite import database
from orchestrator.local.worker import InProcessWorker
from worlds.records import record, spec

OLD_FILE = Path(__file__).parents[1] / "fixtures" / "sqlite-0.1.1.sql"
"""A file of release 0.1.1 in the middle of an execution, as iterdump() of sqlite3 writes it: of the steps
after `done`, one has a result, one was taken, and one is pending."""


def restore_old_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD_FILE.read_text())


def columns(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [row[1] for row in db.execute("PRAGMA table_info(tasks)")]


# ---- files of release 0.1.1


def test_an_execution_of_0_1_1_goes_on(tmp_path: Path) -> None:
    path, calls = tmp_path / "w.db", list[str]()
    restore_old_file(path)

    def plus(inputs: Any, context: Any) -> Any:
        calls.append(context["idempotency_key"].split("#")[1])
        return {"value": inputs["a"] + inputs["b"]}

    runner = SqliteRunner(path, lease_s=0.02)
    backend = Backend(store=SqliteStore(path), runner=runner, poll_interval=0.01)

    ended = Workflow.resume("order-1", backend).run(InProcessWorker(runner, {"plus": plus}))

    assert ended == Complete({"value": 114})
    assert sorted(calls) == ["last", "pending", "started"], "`finished` had its result"
    steps = backend.load("order-1").steps
    assert (steps["started"].lost, steps["finished"].lost, steps["pending"].lost) == (1, 0, 0)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM tasks").fetchall() == [], "also none of those that have ended"


def test_0_1_1_can_still_open_a_file_that_a_later_release_has_opened(tmp_path: Path) -> None:
    """It checks the version, and names the columns that it writes."""
    path = tmp_path / "w.db"
    restore_old_file(path)
    before = columns(path)

    SqliteStore(path).close()

    assert columns(path) == [*before, "lease_until_ms", "deadline_ms"]
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        db.execute(
            "INSERT INTO tasks (task_key, workflow_execution_id, step_id, op, inputs, job, created_at)"
            " VALUES ('k', 'w', 's', 'f', '{}', '{}', '')"
        )


def test_a_new_file_has_the_same_columns_as_an_old_one_that_was_opened(tmp_path: Path) -> None:
    restore_old_file(tmp_path / "old.db")
    SqliteStore(tmp_path / "old.db").close()
    SqliteStore(tmp_path / "new.db").close()

    assert columns(tmp_path / "old.db") == columns(tmp_path / "new.db")


# ---- files that cannot be opened or written


def create(store: SqliteStore, size: int = 10) -> Commit:
    one = record(spec(a={}), _inputs={"text": "x" * size}, _execution_id=f"e{size}")
    return Commit(one, Changes(), creates=True)


def test_a_full_disk_is_an_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.db")
    store.commit([create(store)])
    [connection] = store._db._idle
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreError, match=r"w\.db: the disk is full; nothing of this change was written"):
        store.commit([create(store, 1_000_000)])

    connection.execute("PRAGMA max_page_count = 100000")
    assert store.full_id("e10")
    with pytest.raises(KeyError):
        store.full_id("e1000000")
    store.commit([create(store, 1_000_000)])
    assert store.full_id("e1000000")
    store.close()


def test_a_read_only_file_is_an_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.db")
    [connection] = store._db._idle
    connection.execute("PRAGMA query_only = 1")

    with pytest.raises(StoreError, match=r"w\.db: the file or its folder is read-only"):
        store.commit([create(store)])
    store.close()


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    store = SqliteStore(path)
    store.commit([create(store, 100_000)])
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))

    with pytest.raises(StoreError, match="the file is damaged"):
        SqliteStore(path).load("e100000")


def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and no database\n" * 200)

    with pytest.raises(StoreError, match=r"notes\.txt: this is not a SQLite file"):
        SqliteStore(path)


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that its folder exists"):
        SqliteStore(tmp_path / "missing" / "w.db")


def test_a_file_that_stays_locked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    store = SqliteStore(tmp_path / "w.db")
    with closing(sqlite3.connect(tmp_path / "w.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match="another process has locked the file"):
            store.commit([create(store)])
        with pytest.raises(StoreError, match="another process has locked the file"):
            SqliteStore(tmp_path / "w.db")

        other.execute("ROLLBACK")
    assert [one.value for one in store.commit([create(store)])] == ["written"]
    store.close()


# ---- several at once


def test_a_file_may_be_created_by_many_at_once(tmp_path: Path) -> None:
    def open_all(barrier: Barrier) -> None:
        for n in range(5):
            barrier.wait()
            SqliteStore(tmp_path / f"{n}.db").close()

    barrier = Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(open_all, barrier) for _ in range(6)]:
            future.result()


def test_a_poll_does_not_wait_for_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    store, runner = SqliteStore(tmp_path / "w.db"), SqliteRunner(tmp_path / "w.db")
    one = create(store)
    store.commit([one])
    with closing(sqlite3.connect(tmp_path / "w.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert [done.value for done in store.commit([Commit(one.record, Changes())])] == ["written"]
        assert (runner.take_jobs(1), runner.results("w#e"), runner.held_tokens("w#e")) == ([], [], set())
        assert store.shared_state.outgoing_events() == []

        other.execute("ROLLBACK")
    store.close()
    runner.close()
