"""What a store promises that finds executions by either id and keeps their history."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.audit.history import audit
from orchestrator.application.errors import RecordExists, RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.step_log import LogLine
from orchestrator.backend.copies import dumps
from orchestrator.backend.ports import Commit, Committed, StepLogStore
from orchestrator.testing.contracts.records import NOW, NOW_MS, created, record, spec
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

    def test_each_commit_that_asks_for_it_leaves_its_delta_after_its_moves(
        self, history_store: StoreWithHistory
    ) -> None:
        one = record(_inputs={"k": 1})
        for n in range(3):
            changes = Changes(at_ms=NOW_MS, state={"n": n}, history=[{"n": n}])
            commit = Commit(one, changes, creates=n == 0, has_delta=True)
            assert history_store.commit([commit]) == [Committed.YES]
            one.apply(changes)
            loaded = history_store.load(one.workflow_execution_id)
            entries = history_store.history(one.workflow_execution_id)

            if len(entries) < n + 2:
                pytest.skip("the store keeps no deltas")
            assert audit(loaded, entries[1::2]) == []
            assert (entries[-2], entries[-1]["version"]) == ({"n": n}, loaded.version)
            assert loaded.delta == one.delta
            one = loaded if n else one  # the last commit is by a process that has loaded the record

    def test_a_commit_without_a_delta_makes_the_next_one_a_snapshot(
        self, history_store: StoreWithHistory
    ) -> None:
        one = record()
        for n, has_delta in enumerate([True, False, True, True]):
            changes = Changes(at_ms=NOW_MS, state={"n": n, f"k{n}": n})
            history_store.commit([Commit(one, changes, creates=n == 0, has_delta=has_delta)])
            one.apply(changes)

        entries = history_store.history(one.workflow_execution_id)

        if not entries:
            pytest.skip("the store keeps no deltas")
        assert [bool(entry.get("snapshot")) for entry in entries] == [True, True, False]
        assert audit(history_store.load(one.workflow_execution_id), entries) == []

    def test_a_rejected_commit_leaves_no_delta_and_a_replaced_or_deleted_execution_takes_its_own_along(
        self, history_store: StoreWithHistory
    ) -> None:
        one = record()
        history_store.commit([Commit(one, Changes(at_ms=NOW_MS), creates=True, has_delta=True)])
        entries = history_store.history(one.workflow_execution_id)
        if not entries:
            pytest.skip("the store keeps no deltas")
        stale = history_store.load(one.workflow_execution_id)
        history_store.commit([Commit(one, Changes(state={"k": 1}))])

        rejected = Commit(stale, Changes(state={"k": 2}), has_delta=True)
        assert history_store.commit([rejected]) == [Committed.CONFLICT]
        assert history_store.history(one.workflow_execution_id) == entries
        assert stale.delta == f"{stale.version} {len(dumps(entries[0]))} 0"

        new = record(_inputs={"k": 3})
        replacing = Commit(new, Changes(at_ms=NOW_MS), creates=True, replaces=one, has_delta=True)
        assert history_store.commit([replacing]) == [Committed.YES]
        [only] = history_store.history(new.workflow_execution_id)
        assert (only["snapshot"], only["set"]["inputs"]) == (True, {"k": 3})
        assert history_store.load(new.workflow_execution_id).delta == new.delta

        deletion = Changes(at_ms=NOW_MS, deletes_execution=True)
        assert history_store.commit([Commit(new, deletion, has_delta=True)]) == [Committed.YES]
        again = record()
        history_store.commit([Commit(again, Changes(at_ms=NOW_MS), creates=True)])
        assert history_store.history(again.workflow_execution_id) == []
        assert history_store.load(again.workflow_execution_id).delta is None

    def test_a_written_record_keeps_its_size_of_deltas(self, history_store: StoreWithHistory) -> None:
        one = record()
        history_store.commit([Commit(one, Changes(at_ms=NOW_MS), creates=True, has_delta=True)])
        if not history_store.history(one.workflow_execution_id):
            pytest.skip("the store keeps no deltas")

        history_store.write(history_store.load(one.workflow_execution_id))

        assert history_store.load(one.workflow_execution_id).delta == one.delta

    def test_the_step_log_is_found_by_either_id(self, history_store: StoreWithHistory) -> None:
        if not isinstance(history_store, StepLogStore):
            pytest.skip("the store keeps no step log")
        one = created(history_store, record())
        line = LogLine("a", 0, 1, NOW, "text")
        history_store.add_log_lines(one.workflow_execution_id, [line])

        assert history_store.log_lines("e1") == history_store.log_lines(one.workflow_execution_id) == [line]
