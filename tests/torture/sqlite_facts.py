"""Reads what a torture run has left in a SQLite file, and checks how often each step was called."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from orchestrator.application.audit.history import audit
from orchestrator.application.values.unit_id import split_unit
from orchestrator.backend import SqliteStore
from torture.facts import Execution, Facts

MUST_BE_EMPTY = ("tasks", "posts", "places")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an executor: of a step, a part of it (an item, an iteration, a compensation), and a run."""

    execution_id: str
    step_id: str
    parts: tuple[str, ...]
    run_id: int


def read_calls(ledger: Path) -> Counter[Call]:
    found: Counter[Call] = Counter()
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        key, run_id, _ = line.split(" ")
        execution_id, step_id, *parts = key.split("#")
        found[Call(execution_id, step_id, tuple(parts), int(run_id))] += 1
    return found


def read_facts(path: Path) -> Facts:
    facts = Facts(left=read_left(path))
    store = SqliteStore(path)
    with closing(sqlite3.connect(path)) as db:
        ids = [weid for (weid,) in db.execute("SELECT workflow_execution_id FROM workflows")]
        totals = "SELECT owner, value FROM shared WHERE scope = 'flow_group' AND key = 'total'"
        facts.totals = {owner: int(value) for owner, value in db.execute(totals)}
    for weid in ids:
        record, history = store.load(weid), store.history(weid)
        facts.executions[record.execution_id] = Execution(
            record.execution_id,
            record.status.value,
            record.outcome,
            record.error,
            {unit: {"output": step.output, **_place(step)} for unit, step in record.units()},
            history,
        )
        facts.findings += [f"{record.execution_id}: {finding}" for finding in audit(record, history)]
    store.close()
    return facts


def _place(step: object) -> dict[str, object]:
    return {name: getattr(step, name) for name in ("status", "run_id", "attempt")}


def read_left(path: Path) -> dict[str, list[str]]:
    """The rows of tables that must be empty when every execution has ended."""
    with closing(sqlite3.connect(path, timeout=60)) as db:
        found = {table: [str(row) for row in db.execute(f"SELECT * FROM {table}")] for table in MUST_BE_EMPTY}
    return {table: rows for table, rows in found.items() if rows}


def check_calls(facts: Facts, calls: Counter[Call]) -> Iterator[str]:
    """Each dispatch was called once at most, and each output that counts comes from a call."""
    for call, count in calls.items():
        if count > 1:
            yield f"{call} was called {count} times under one dispatch"
    runs = {(call.execution_id, call.step_id, part, call.run_id) for call in calls for part in call.parts[1:]}
    runs |= {(call.execution_id, call.step_id, "", call.run_id) for call in calls}
    for name, found in facts.executions.items():
        for unit, one in found.units.items():
            step_id, part = split_unit(unit)
            is_named = isinstance(one["output"], dict) and "run_id" in one["output"]
            if is_named and (name, step_id, part, one["run_id"]) not in runs:
                yield f"{name}: run {one['run_id']} of {unit} has an output, and was not called"
    for call in calls:
        if call.execution_id not in facts.executions:
            yield f"{call} belongs to no execution"
