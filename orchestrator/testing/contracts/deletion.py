"""What a store promises about executions that are deleted, replaced or reopened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.changes import Changes, SharedChange
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.backend.ports import Commit, Committed, Store
from orchestrator.testing.contracts.records import NOW, NOW_MS, record, spec
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
    StoreWithHistory,
    StoreWithSharedState,
)

ROOT = "order-42"
SHARING = spec({"name": "shares", "kv": {"scopes": ["flow", "global", "flow_group"]}}, a={})
OTHER = spec({"name": "other", "kv": {"scopes": ["flow", "global", "flow_group"]}}, b={})


class DeletionContract(StoreFixtures):
    """A deletion or replacement is written as a whole, or rejected as a whole."""

    # ---- deletion

    def test_a_deleted_execution_is_gone(self, store: Store) -> None:
        gone = ended(store)

        assert store.commit([deletion(gone)]) == [Committed.YES]

        with pytest.raises(RecordNotFound):
            store.load(gone.workflow_execution_id)

    def test_a_deleted_execution_has_neither_id_nor_history(self, history_store: StoreWithHistory) -> None:
        history_store.commit([deletion(ended(history_store))])

        for read in (history_store.load, history_store.full_id, history_store.history):
            with pytest.raises(RecordNotFound):
                read("e1")
        assert history_store.commit([Commit(fresh(), Changes(at_ms=NOW_MS), creates=True)]) == [Committed.YES]
        assert history_store.history("e1") == []

    def test_a_deleted_execution_has_neither_root_nor_values(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        sharing_store.commit([deletion(ended(sharing_store))])

        assert sharing_store.shared_state.find_by_root(ROOT) is None
        assert values(sharing_store, "global", "e1") == {}
        assert values(sharing_store, "flow_group", "g") == {"y": 1}, "these belong to the group"

    def test_the_id_of_a_deleted_execution_can_be_used_again(self, store: Store) -> None:
        store.commit([deletion(ended(store))])
        new = fresh()

        assert store.commit([Commit(new, Changes(at_ms=NOW_MS), creates=True)]) == [Committed.YES]

        loaded = store.load(new.workflow_execution_id)
        assert (loaded.status, loaded.state, loaded.items) == (WorkflowStatus.PENDING, {}, {})
        assert loaded.steps == {"a": StepRecord()}

    def test_the_root_of_a_deleted_execution_can_be_used_again(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        sharing_store.commit([deletion(ended(sharing_store))])
        new = fresh()
        again = Commit(new, Changes(at_ms=NOW_MS), creates=True, idempotency_root=(ROOT, 60))

        assert sharing_store.commit([again]) == [Committed.YES]

        assert sharing_store.shared_state.find_by_root(ROOT) == new.workflow_execution_id

    def test_the_deletion_of_an_execution_that_has_changed_is_rejected(self, store: Store) -> None:
        gone = ended(store)
        stale = store.load(gone.workflow_execution_id)
        assert store.commit([Commit(gone, Changes(state={"k": 2}))]) == [Committed.YES]

        assert store.commit([deletion(stale)]) == [Committed.CONFLICT]

        assert store.load(gone.workflow_execution_id).state == {"k": 2}

    def test_a_rejected_deletion_keeps_root_and_values(self, sharing_store: StoreWithSharedState) -> None:
        gone = ended(sharing_store)
        stale = sharing_store.load(gone.workflow_execution_id)
        sharing_store.commit([Commit(gone, Changes(state={"k": 2}))])

        assert sharing_store.commit([deletion(stale)]) == [Committed.CONFLICT]

        assert sharing_store.shared_state.find_by_root(ROOT) == gone.workflow_execution_id
        assert values(sharing_store, "global", "e1") == {"x": 1}

    def test_a_deleted_execution_cannot_be_deleted_or_changed_again(self, store: Store) -> None:
        weid = ended(store).workflow_execution_id
        first, second, third = (store.load(weid) for _ in range(3))
        assert store.commit([deletion(first), deletion(second)]) == [Committed.YES, Committed.CONFLICT]

        assert store.commit([Commit(third, Changes(state={"k": 3}))]) == [Committed.CONFLICT]

        with pytest.raises(RecordNotFound):
            store.load(weid)

    def test_a_deletion_keeps_a_root_that_another_execution_has(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        first = ended(sharing_store, fresh(_execution_id="e0"))
        sharing_store.commit([deletion(sharing_store.load(first.workflow_execution_id))])
        second = ended(sharing_store)
        late = fresh(_execution_id="e0")
        assert sharing_store.commit([Commit(late, Changes(at_ms=NOW_MS), creates=True)]) == [Committed.YES]

        assert sharing_store.commit([deletion(late)]) == [Committed.YES]

        assert first.workflow_execution_id == late.workflow_execution_id
        assert sharing_store.shared_state.find_by_root(ROOT) == second.workflow_execution_id

    # ---- replacement

    @pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
    def test_a_new_execution_replaces_one_that_has_ended(self, store: Store, loaded: LoadedSpec) -> None:
        there = ended(store)
        new = record(loaded, _inputs={"n": 2})

        assert store.commit([replacement(there, new, state={"mine": 1})]) == [Committed.YES]

        found = store.load(new.workflow_execution_id)
        assert (found.inputs, found.state, found.items) == ({"n": 2}, {"mine": 1}, {})
        assert (found.status, found.ended_at, found.group) == ("pending", None, None)
        if loaded is OTHER:
            with pytest.raises(RecordNotFound):
                store.load(there.workflow_execution_id)

    @pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
    def test_a_replacement_has_its_own_history(
        self, history_store: StoreWithHistory, loaded: LoadedSpec
    ) -> None:
        new = record(loaded)

        history_store.commit([replacement(ended(history_store), new, history=[{"step": "c"}])])

        assert history_store.history("e1") == [{"step": "c"}]
        assert history_store.full_id("e1") == new.workflow_execution_id

    @pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
    def test_a_replacement_has_its_own_root_and_values(
        self, sharing_store: StoreWithSharedState, loaded: LoadedSpec
    ) -> None:
        new = record(loaded)
        new.idempotency_root = "order-43"
        commit = replacement(ended(sharing_store), new, shared=[SharedChange("global", "mine", 1)])
        commit.idempotency_root = ("order-43", 60)

        assert sharing_store.commit([commit]) == [Committed.YES]

        assert sharing_store.shared_state.find_by_root(ROOT) is None
        assert sharing_store.shared_state.find_by_root("order-43") == new.workflow_execution_id
        assert values(sharing_store, "global", "e1") == {"mine": 1}

    def test_an_execution_that_has_changed_is_not_replaced(self, store: Store) -> None:
        there = ended(store)
        stale = store.load(there.workflow_execution_id)
        assert store.commit([Commit(there, Changes(state={"k": 2}))]) == [Committed.YES]

        assert store.commit([replacement(stale, fresh())]) == [Committed.EXISTS]

        assert store.load(there.workflow_execution_id).state == {"k": 2}

    def test_an_execution_that_has_changed_is_not_replaced_by_one_of_another_spec(
        self, history_store: StoreWithHistory
    ) -> None:
        there = ended(history_store)
        stale = history_store.load("e1")
        history_store.commit([Commit(there, Changes(state={"k": 2}))])

        assert history_store.commit([replacement(stale, fresh(OTHER))]) == [Committed.EXISTS]

        assert history_store.load("e1").state == {"k": 2}

    def test_a_rejected_replacement_keeps_root_and_values(self, sharing_store: StoreWithSharedState) -> None:
        there = ended(sharing_store)
        stale = sharing_store.load(there.workflow_execution_id)
        sharing_store.commit([Commit(there, Changes(state={"k": 2}))])

        assert sharing_store.commit([replacement(stale, fresh())]) == [Committed.EXISTS]

        assert sharing_store.shared_state.find_by_root(ROOT) == there.workflow_execution_id
        assert values(sharing_store, "global", "e1") == {"x": 1}

    @pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
    def test_of_two_commits_that_replace_one_execution_the_second_is_rejected(
        self, store: Store, loaded: LoadedSpec
    ) -> None:
        there = ended(store)
        mine, theirs = fresh(loaded, _state={"by": "me"}), fresh(loaded, _state={"by": "them"})

        results = store.commit([replacement(there, mine), replacement(there, theirs)])

        assert results == [Committed.YES, Committed.EXISTS]
        assert store.load(mine.workflow_execution_id).state == {"by": "me"}

    @pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
    def test_one_of_many_threads_replaces_an_execution(self, store: Store, loaded: LoadedSpec) -> None:
        weid = ended(store).workflow_execution_id
        seen = [store.load(weid) for _ in range(16)]

        def replace_it(there: WorkflowRecord) -> Committed:
            return store.commit([replacement(there, fresh(loaded))])[0]

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(replace_it, seen))

        assert sorted(result.name for result in results) == ["EXISTS"] * 15 + ["YES"]

    def test_the_replacement_of_a_deleted_execution_is_written_or_rejected_whole(self, store: Store) -> None:
        """After a conflict the caller loads again, and finds that the id is free."""
        weid = ended(store).workflow_execution_id
        there = store.load(weid)
        assert store.commit([deletion(store.load(weid))]) == [Committed.YES]

        [result] = store.commit([replacement(there, fresh())])

        if result is Committed.YES:
            assert store.load(weid).status == "pending"
        else:
            assert result is Committed.CONFLICT
            with pytest.raises(RecordNotFound):
                store.load(weid)

    # ---- reopened

    def test_a_reopened_execution_has_no_end(self, store: Store) -> None:
        one = ended(store)
        names = ("ended_at", "outcome", "error", "cancelled", "deadline_ms")
        reopened = {"status": WorkflowStatus.IN_PROGRESS, **dict.fromkeys(names)}

        assert store.commit([Commit(one, Changes(fields=reopened))]) == [Committed.YES]

        loaded = store.load(one.workflow_execution_id)
        assert loaded.status is WorkflowStatus.IN_PROGRESS
        assert [getattr(loaded, name) for name in names] == [None] * 5
        assert loaded.state == {"k": 1}


def fresh(loaded: LoadedSpec = SHARING, **keys: Any) -> WorkflowRecord:
    made = record(loaded, **keys)
    made.group, made.labels, made.idempotency_root = "g", {"k": "v"}, ROOT
    return made


def ended(store: Store, new: WorkflowRecord | None = None) -> WorkflowRecord:
    """An execution that was started under a root, has written all kinds of data, and has ended."""
    new = new or fresh()
    begun = Changes(
        at_ms=NOW_MS,
        items={"a#0": StepRecord(StepStatus.COMPLETE)},
        state={"k": 1},
        history=[{"step": "a"}],
        shared=[SharedChange("global", "x", 1), SharedChange("flow_group", "y", 1)],
    )
    done = Changes(
        at_ms=NOW_MS, fields={"status": WorkflowStatus.COMPLETE, "ended_at": NOW}, history=[{"step": "b"}]
    )
    for commit in (Commit(new, begun, creates=True, idempotency_root=(ROOT, 86_400)), Commit(new, done)):
        assert store.commit([commit]) == [Committed.YES]
        new.apply(commit.changes)
    return new


def deletion(gone: WorkflowRecord) -> Commit:
    return Commit(gone, Changes(at_ms=NOW_MS, deletes_execution=True))


def replacement(there: WorkflowRecord, new: WorkflowRecord, **changes: Any) -> Commit:
    return Commit(new, Changes(at_ms=NOW_MS, **changes), creates=True, replaces=there)


def values(store: StoreWithSharedState, scope: str, owner: str) -> dict[str, Any]:
    [found] = store.shared_state.load_values([(scope, owner)])
    return found
