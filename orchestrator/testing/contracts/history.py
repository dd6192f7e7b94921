"""What a store promises that finds executions by either id and keeps their history."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import RecordExists, RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.step_log import LogLine
from orchestrator.backend.ports import Commit, Committed, StepLogStore
from orchestrator.testing.contracts.records import NOW, created, record, spec
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
    StoreWithHistory,
)


class HistoryContract(StoreFixtures):
    """Skipped unless the store has full_id() and history()."""

    def test_an_execution_is_found_by_its_execution_id_alone(self, history_store: StoreWithHistory) -> None:
        one = created(history_store, record(_execution_id="order-42"))

        assert history_store.full_id("order-42") == one.workflow_execution_id
        assert history_store.full_id(one.workflow_execution_id) == one.workflow_execution_id
        assert history_store.load("order-42").workflow_id == one.workflow_id
        with pytest.raises(RecordNotFound):
            history_store.full_id("order-43")

    def test_an_execution_id_belongs_to_one_execution_whatever_its_spec(
        self, history_store: StoreWithHistory
    ) -> None:
        created(history_store, record(spec(a={}), _execution_id="order-42"))
        other = record(spec(b={}), _execution_id="order-42")

        assert history_store.commit([Commit(other, Changes(), creates=True)]) == [Committed.EXISTS]

    def test_history_is_kept_in_order_and_belongs_to_the_caller(
        self, history_store: StoreWithHistory
    ) -> None:
        one = created(history_store, record())
        for n in range(3):
            entries: list[dict[str, Any]] = [{"step": "a", "n": [n, half]} for half in (0, 1)]
            history_store.commit([Commit(one, Changes(state={"n": n}, history=entries))])
        expected = [{"step": "a", "n": [n, half]} for n in range(3) for half in (0, 1)]

        history_store.history(one.workflow_execution_id)[0]["n"].append("mine")

        assert history_store.history(one.workflow_execution_id) == expected
        history_store.write(history_store.load(one.workflow_execution_id))
        assert history_store.history(one.workflow_execution_id) == expected

    def test_write_rejects_the_execution_id_of_another_execution(
        self, history_store: StoreWithHistory
    ) -> None:
        history_store.write(record(spec(a={})))

        with pytest.raises(RecordExists):
            history_store.write(record(spec(b={})))

    def test_the_history_of_a_rejected_commit_is_not_stored(self, history_store: StoreWithHistory) -> None:
        one = created(history_store, record(), history=[{"step": "a"}])
        stale = history_store.load(one.workflow_execution_id)
        history_store.commit([Commit(one, Changes(state={"k": 1}))])

        history_store.commit([Commit(stale, Changes(state={"k": 2}, history=[{"step": "b"}]))])

        assert history_store.history(one.workflow_execution_id) == [{"step": "a"}]

    def test_the_step_log_is_found_by_either_id(self, history_store: StoreWithHistory) -> None:
        if not isinstance(history_store, StepLogStore):
            pytest.skip("the store keeps no step log")
        one = created(history_store, record())
        line = LogLine("a", 0, 1, NOW, "text")
        history_store.add_log_lines(one.workflow_execution_id, [line])

        assert history_store.log_lines("e1") == history_store.log_lines(one.workflow_execution_id) == [line]
