"""What every store promises of lines: kept in order, the newest of them, as long as their execution is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backend.port_implementations import STORES, KeepingStore
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_log import MAX_LINES_PER_EXECUTION, LogLine
from orchestrator.backend.ports import Commit, Committed
from worlds.records import NOW_MS, record

ONE = LogLine("a", 0, 1, "2026-01-01T00:00:00.000Z", "one")
TWO = LogLine("m#3", 2, 1, "2026-01-01T00:00:00.001Z", "zwei, \x1b[31m\n☃")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepingStore]:
    with STORES[request.param](tmp_path) as made:
        yield made


def kept(store: KeepingStore, status: WorkflowStatus = WorkflowStatus.IN_PROGRESS) -> WorkflowRecord:
    one = record()
    one.status = status
    store.commit([Commit(one, Changes(at_ms=NOW_MS), creates=True)])
    return one


def test_lines_are_kept_in_the_order_in_which_they_come(store: KeepingStore) -> None:
    weid = kept(store).workflow_execution_id

    store.add_log_lines(weid, [ONE, TWO])
    store.add_log_lines(weid, [])
    store.add_log_lines(weid, [ONE])

    assert store.log_lines(weid) == [ONE, TWO, ONE]
    assert store.log_lines(weid.partition("#")[2]) == [ONE, TWO, ONE], "by either of its ids"


def test_an_execution_without_logs_has_no_lines_and_an_unknown_one_is_an_error(store: KeepingStore) -> None:
    assert store.log_lines(kept(store).workflow_execution_id) == []
    with pytest.raises(RecordNotFound):
        store.log_lines("unknown")


def test_lines_for_an_execution_that_is_not_there_are_dropped(store: KeepingStore) -> None:
    one = record()

    store.add_log_lines(one.workflow_execution_id, [ONE])

    kept(store)
    assert store.log_lines(one.workflow_execution_id) == []


def test_the_newest_lines_are_kept(store: KeepingStore) -> None:
    weid = kept(store).workflow_execution_id

    for begin in range(0, MAX_LINES_PER_EXECUTION + 1_000, 1_000):
        store.add_log_lines(weid, [replace(ONE, text=str(n)) for n in range(begin, begin + 1_000)])

    found = [int(line.text) for line in store.log_lines(weid)]
    assert found == list(range(found[0], MAX_LINES_PER_EXECUTION + 1_000))
    assert MAX_LINES_PER_EXECUTION <= len(found) < MAX_LINES_PER_EXECUTION + 500


def test_a_record_that_is_written_whole_keeps_its_lines(store: KeepingStore) -> None:
    one = kept(store)
    store.add_log_lines(one.workflow_execution_id, [ONE])

    store.write(store.load(one.workflow_execution_id))

    assert store.log_lines(one.workflow_execution_id) == [ONE]


def test_of_a_deleted_execution_no_line_is_left(store: KeepingStore) -> None:
    gone = kept(store, WorkflowStatus.COMPLETE)
    store.add_log_lines(gone.workflow_execution_id, [ONE])

    assert store.commit([Commit(gone, Changes(at_ms=NOW_MS, deletes_execution=True))]) == [Committed.YES]

    kept(store)
    assert store.log_lines(gone.workflow_execution_id) == []


def test_an_execution_that_replaces_another_does_not_have_its_lines(store: KeepingStore) -> None:
    there = kept(store, WorkflowStatus.CANCELLED)
    store.add_log_lines(there.workflow_execution_id, [ONE])

    commit = Commit(record(), Changes(at_ms=NOW_MS), creates=True, replaces=there)
    assert store.commit([commit]) == [Committed.YES]

    assert store.log_lines(there.workflow_execution_id) == []
