"""What a store promises that keeps the step log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_log import MAX_LINES_PER_EXECUTION, LogLine
from orchestrator.backend.ports import Commit, Committed
from orchestrator.testing.contracts.records import NOW_MS, record
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
    StoreWithStepLog,
)

ONE = LogLine("a", 0, 1, "2026-01-01T00:00:00.000Z", "one")
TWO = LogLine("m#3", 2, 1, "2026-01-01T00:00:00.001Z", "zwei, \x1b[31m\n☃")


class StepLogContract(StoreFixtures):
    """Skipped unless the store has add_log_lines() and log_lines()."""

    def test_lines_are_kept_in_the_order_of_arrival(self, log_store: StoreWithStepLog) -> None:
        weid = kept(log_store).workflow_execution_id

        log_store.add_log_lines(weid, [ONE, TWO])
        log_store.add_log_lines(weid, [])
        log_store.add_log_lines(weid, [TWO])

        assert log_store.log_lines(weid) == [ONE, TWO, TWO]

    def test_an_execution_without_logs_has_no_lines_and_an_unknown_one_is_an_error(
        self, log_store: StoreWithStepLog
    ) -> None:
        assert log_store.log_lines(kept(log_store).workflow_execution_id) == []
        with pytest.raises(RecordNotFound):
            log_store.log_lines("unknown")

    def test_lines_of_an_unknown_execution_are_dropped(self, log_store: StoreWithStepLog) -> None:
        one = record()

        log_store.add_log_lines(one.workflow_execution_id, [ONE])

        kept(log_store)
        assert log_store.log_lines(one.workflow_execution_id) == []

    def test_the_newest_lines_are_kept(self, log_store: StoreWithStepLog) -> None:
        weid = kept(log_store).workflow_execution_id

        for begin in range(0, MAX_LINES_PER_EXECUTION + 1_000, 1_000):
            log_store.add_log_lines(weid, [replace(ONE, text=str(n)) for n in range(begin, begin + 1_000)])

        found = [int(line.text) for line in log_store.log_lines(weid)]
        assert found == list(range(found[0], MAX_LINES_PER_EXECUTION + 1_000))
        assert MAX_LINES_PER_EXECUTION <= len(found) < MAX_LINES_PER_EXECUTION + 500

    def test_write_keeps_the_lines(self, log_store: StoreWithStepLog) -> None:
        one = kept(log_store)
        log_store.add_log_lines(one.workflow_execution_id, [ONE])

        log_store.write(log_store.load(one.workflow_execution_id))

        assert log_store.log_lines(one.workflow_execution_id) == [ONE]

    def test_a_deleted_execution_has_no_lines(self, log_store: StoreWithStepLog) -> None:
        gone = kept(log_store, WorkflowStatus.COMPLETE)
        log_store.add_log_lines(gone.workflow_execution_id, [ONE])

        assert log_store.commit([Commit(gone, Changes(at_ms=NOW_MS, deletes_execution=True))]) == [
            Committed.YES
        ]

        kept(log_store)
        assert log_store.log_lines(gone.workflow_execution_id) == []

    def test_an_execution_that_replaces_another_does_not_have_its_lines(
        self, log_store: StoreWithStepLog
    ) -> None:
        there = kept(log_store, WorkflowStatus.CANCELLED)
        log_store.add_log_lines(there.workflow_execution_id, [ONE])

        commit = Commit(record(), Changes(at_ms=NOW_MS), creates=True, replaces=there)
        assert log_store.commit([commit]) == [Committed.YES]

        assert log_store.log_lines(there.workflow_execution_id) == []


def kept(store: StoreWithStepLog, status: WorkflowStatus = WorkflowStatus.IN_PROGRESS) -> WorkflowRecord:
    one = record()
    one.status = status
    store.commit([Commit(one, Changes(at_ms=NOW_MS), creates=True)])
    return one
