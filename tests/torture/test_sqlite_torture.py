"""Processes on one SQLite file that are killed at any moment, as `scripts/torture --sqlite` does it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import Backend, Workflow
from orchestrator.backend import SqliteRunner, SqliteStore
from torture.facts import Execution, Facts
from torture.sqlite_facts import Call, check_calls, read_calls, read_facts, read_left
from torture.sqlite_run import torture_sqlite

SEED = int(os.environ.get("TORTURE_SEED", "6"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_processes_on_one_file_lose_nothing_whenever_they_are_killed() -> None:
    report = torture_sqlite(0.2, SEED)

    text = "\n".join(report.lines())
    assert not report.broken, text
    assert report.faults.total() >= 4, text
    assert report.started >= 8, text


# ---- what it checks


def facts_of(**units: int) -> Facts:
    """One execution `e`, whose units have the outputs of these runs."""
    outputs = {
        unit.replace("_", "#"): {"status": "complete", "run_id": run_id, "output": {"run_id": run_id}}
        for unit, run_id in units.items()
    }
    return Facts(executions={"e": Execution("e", "complete", units=outputs)})


def call(step_id: str, *parts: str, run_id: int = 0, execution_id: str = "e") -> Call:
    return Call(execution_id, step_id, ("0", *parts), run_id)


def test_calls_that_fit_their_dispatches_are_right() -> None:
    calls = Counter([call("a"), call("a", run_id=1), call("m", "0"), call("m", "1", run_id=2)])

    assert list(check_calls(facts_of(a=1, m_0=0, m_1=2), calls)) == []


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ([call("a"), call("a"), call("m", "0")], "was called 2 times under one dispatch"),
        ([call("m", "0")], "run 0 of a has an output, and was not called"),
        ([call("a", run_id=1), call("m", "0")], "run 0 of a has an output, and was not called"),
        ([call("a"), call("m", "1")], "run 0 of m#0 has an output, and was not called"),
        ([call("a"), call("m", "0"), call("a", execution_id="x")], "belongs to no execution"),
    ],
)
def test_every_wrong_call_is_reported(calls: list[Call], problem: str) -> None:
    [found] = check_calls(facts_of(a=0, m_0=0), Counter(calls))

    assert problem in found


def test_the_ledger_is_read_by_dispatch(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text("e#a#0 1 1\ne#a#0 1 1\ne#m#0#3 2 1\n")

    assert read_calls(ledger) == {call("a", run_id=1): 2, call("m", "3", run_id=2): 1}
    assert read_calls(tmp_path / "missing") == {}


def backend_of(path: Path) -> Backend:
    return Backend(store=SqliteStore(path), runner=SqliteRunner(path))


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda db: None, None),
        (lambda db: db.execute("DELETE FROM history WHERE rowid = 1"), "e1: "),
        (lambda db: db.execute("UPDATE steps SET record = replace(record, 'complete', 'failed')"), "e1: "),
    ],
)
def test_an_illegal_history_is_found(
    tmp_path: Path, spoil: Callable[..., object], finding: str | None
) -> None:
    backend = backend_of(tmp_path / "w.db")
    workflow = Workflow(backend.create({"steps": [{"op": "a"}]}, execution_id="e1"), backend)
    workflow.advance()
    workflow.on_step_result("a", {})
    workflow.advance()
    with SqliteStore(tmp_path / "w.db")._db.write_transaction() as db:
        spoil(db)

    found = read_facts(tmp_path / "w.db")

    assert found.executions["e1"].status == "complete"
    assert bool(found.findings) == (finding is not None)


def test_rows_that_are_left_are_found(tmp_path: Path) -> None:
    backend = backend_of(tmp_path / "w.db")
    workflow = Workflow.from_dict({"steps": [{"op": "a"}]}, backend)
    backend.dispatch(workflow.id, workflow.advance().jobs)  # type: ignore[union-attr]

    assert list(read_left(tmp_path / "w.db")) == ["tasks"]
