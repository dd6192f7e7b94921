"""What every Store promises about executions that are deleted, opened again, or whose place another takes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backend.port_implementations import STORES, KeepingStore
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.changes import Changes, SharedChange
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.backend.ports import Commit, Committed
from worlds.records import NOW, NOW_MS, record, spec

ROOT = "order-42"
SHARING = spec({"name": "shares", "kv": {"scopes": ["flow", "global", "flow_group"]}}, a={})
OTHER = spec({"name": "other", "kv": {"scopes": ["flow", "global", "flow_group"]}}, b={})


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepingStore]:
    with STORES[request.param](tmp_path) as made:
        yield made


def fresh(loaded: LoadedSpec = SHARING, **keys: Any) -> WorkflowRecord:
    made = record(loaded, **keys)
    made.group, made.labels, made.idempotency_root = "g", {"k": "v"}, ROOT
    return made


def ended(store: KeepingStore, new: WorkflowRecord | None = None) -> WorkflowRecord:
    """An execution that began under a root, wrote whatever one can write, and has ended."""
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


def values(store: KeepingStore, scope: str, owner: str) -> dict[str, Any]:
    [found] = store.shared_state.load_values([(scope, owner)])
    return found


# ---- deletion


def test_of_a_deleted_execution_nothing_is_left(store: KeepingStore) -> None:
    gone = ended(store)

    assert store.commit([deletion(gone)]) == [Committed.YES]

    for name in ("e1", gone.workflow_execution_id):
        with pytest.raises(RecordNotFound):
            store.load(name)
    with pytest.raises(RecordNotFound):
        store.full_id("e1")
    with pytest.raises(RecordNotFound):
        store.history("e1")
    assert store.shared_state.find_by_root(ROOT) is None
    assert values(store, "global", "e1") == {}
    assert values(store, "flow_group", "g") == {"y": 1}, "that belongs to the group"


def test_the_id_and_the_root_of_a_deleted_execution_can_be_had_again(store: KeepingStore) -> None:
    store.commit([deletion(ended(store))])
    new = fresh()

    assert store.commit([Commit(new, Changes(at_ms=NOW_MS), creates=True, idempotency_root=(ROOT, 60))]) == [
        Committed.YES
    ]

    loaded = store.load("e1")
    assert (loaded.status, loaded.state, loaded.items, loaded.steps) == (
        WorkflowStatus.PENDING,
        {},
        {},
        {"a": StepRecord()},
    )
    assert store.history("e1") == []
    assert store.shared_state.find_by_root(ROOT) == new.workflow_execution_id


def test_a_deletion_of_what_has_changed_meanwhile_is_refused_whole(store: KeepingStore) -> None:
    gone = ended(store)
    stale = store.load("e1")
    assert store.commit([Commit(gone, Changes(state={"k": 2}))]) == [Committed.YES]

    assert store.commit([deletion(stale)]) == [Committed.CONFLICT]

    assert store.load("e1").state == {"k": 2}
    assert store.shared_state.find_by_root(ROOT) == gone.workflow_execution_id
    assert values(store, "global", "e1") == {"x": 1}


def test_what_was_deleted_cannot_be_deleted_or_changed_again(store: KeepingStore) -> None:
    gone = ended(store)
    first, second, third = (store.load("e1") for _ in range(3))
    assert store.commit([deletion(first), deletion(second)]) == [Committed.YES, Committed.CONFLICT]

    assert store.commit([Commit(third, Changes(state={"k": 3}))]) == [Committed.CONFLICT]

    with pytest.raises(RecordNotFound):
        store.load(gone.workflow_execution_id)


def test_a_root_that_another_execution_has_by_now_stays(store: KeepingStore) -> None:
    first = ended(store, fresh(_execution_id="e0"))
    store.commit([deletion(store.load("e0"))])
    second = ended(store)
    late = fresh(_execution_id="e0")
    assert store.commit([Commit(late, Changes(at_ms=NOW_MS), creates=True)]) == [Committed.YES]

    assert store.commit([deletion(late)]) == [Committed.YES]

    assert first.workflow_execution_id == late.workflow_execution_id
    assert store.shared_state.find_by_root(ROOT) == second.workflow_execution_id


# ---- taking the place of another


@pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
def test_a_new_execution_replaces_one_that_has_ended(store: KeepingStore, loaded: LoadedSpec) -> None:
    there = ended(store)
    new = record(loaded, _inputs={"n": 2})
    new.idempotency_root = "order-43"
    commit = replacement(there, new, state={"mine": 1}, history=[{"step": "c"}])
    commit.idempotency_root = ("order-43", 60)

    assert store.commit([commit]) == [Committed.YES]

    loaded_again = store.load("e1")
    assert loaded_again.workflow_execution_id == new.workflow_execution_id
    assert (loaded_again.inputs, loaded_again.state, loaded_again.items) == ({"n": 2}, {"mine": 1}, {})
    assert (loaded_again.status, loaded_again.ended_at, loaded_again.group) == ("pending", None, None)
    assert store.history("e1") == [{"step": "c"}]
    assert store.shared_state.find_by_root(ROOT) is None
    assert store.shared_state.find_by_root("order-43") == new.workflow_execution_id
    assert values(store, "global", "e1") == {}
    assert store.full_id("e1") == new.workflow_execution_id
    if loaded is OTHER:
        with pytest.raises(RecordNotFound):
            store.load(there.workflow_execution_id)


def test_what_the_new_one_shares_in_its_first_commit_is_kept(store: KeepingStore) -> None:
    there = ended(store)

    assert store.commit([replacement(there, fresh(), shared=[SharedChange("global", "mine", 1)])]) == [
        Committed.YES
    ]

    assert values(store, "global", "e1") == {"mine": 1}


def test_an_execution_that_has_changed_meanwhile_is_not_replaced(store: KeepingStore) -> None:
    there = ended(store)
    stale = store.load("e1")
    assert store.commit([Commit(there, Changes(state={"k": 2}))]) == [Committed.YES]

    for loaded in (SHARING, OTHER):
        assert store.commit([replacement(stale, fresh(loaded))]) == [Committed.EXISTS]

    assert store.load("e1").state == {"k": 2}
    assert store.shared_state.find_by_root(ROOT) == there.workflow_execution_id
    assert values(store, "global", "e1") == {"x": 1}


@pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
def test_of_two_commits_that_replace_one_execution_the_second_is_rejected(
    store: KeepingStore, loaded: LoadedSpec
) -> None:
    there = ended(store)
    mine, theirs = fresh(loaded, _state={"by": "me"}), fresh(loaded, _state={"by": "them"})

    results = store.commit([replacement(there, mine), replacement(there, theirs)])

    assert results == [Committed.YES, Committed.EXISTS]
    assert store.load("e1").state == {"by": "me"}


@pytest.mark.parametrize("loaded", [SHARING, OTHER], ids=["same spec", "another spec"])
def test_of_many_threads_that_replace_one_execution_one_wins(store: KeepingStore, loaded: LoadedSpec) -> None:
    ended(store)
    seen = [store.load("e1") for _ in range(16)]

    def take(there: WorkflowRecord) -> Committed:
        return store.commit([replacement(there, fresh(loaded))])[0]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(take, seen))

    assert sorted(result.name for result in results) == ["EXISTS"] * 15 + ["YES"]


def test_an_id_that_is_free_by_now_is_taken_or_left_but_never_by_halves(store: KeepingStore) -> None:
    """After the conflict the caller looks again, and finds the id free."""
    there = store.load(ended(store).workflow_execution_id)
    assert store.commit([deletion(store.load("e1"))]) == [Committed.YES]

    [result] = store.commit([replacement(there, fresh())])

    if result is Committed.YES:
        assert store.load("e1").status == "pending"
    else:
        assert result is Committed.CONFLICT
        with pytest.raises(RecordNotFound):
            store.load("e1")


# ---- opened again


def test_an_execution_that_is_opened_again_has_no_end(store: KeepingStore) -> None:
    one = ended(store)
    names = ("ended_at", "outcome", "error", "cancelled", "deadline_ms")
    reopened = {"status": WorkflowStatus.IN_PROGRESS, **dict.fromkeys(names)}

    assert store.commit([Commit(one, Changes(fields=reopened))]) == [Committed.YES]

    loaded = store.load("e1")
    assert loaded.status is WorkflowStatus.IN_PROGRESS
    assert [getattr(loaded, name) for name in names] == [None] * 5
    assert (loaded.state, values(store, "global", "e1")) == ({"k": 1}, {"x": 1})
