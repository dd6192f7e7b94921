"""What a store promises about shared values, idempotency roots, children and registered names."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.application.errors import StoreError
from orchestrator.application.records.changes import Changes, SharedChange
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.backend.ports import Commit, Committed
from orchestrator.testing.contracts.outgoing_events import EVENTS, PARENT
from orchestrator.testing.contracts.records import NOW_MS, created, record, spec
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
    StoreWithSharedState,
)

WINDOW_PATIENCE_S = 180
"""How long a test waits for the end of a window of one second, on a busy machine."""


class SharedValueContract(StoreFixtures):
    """Skipped unless the store has shared state."""

    def test_values_belong_to_the_root_or_to_the_group(self, sharing_store: StoreWithSharedState) -> None:
        one, other = (
            created(sharing_store, record_in_group("e1")),
            created(sharing_store, record_in_group("e2")),
        )

        share(sharing_store, one, SharedChange("global", "n", 1), SharedChange("flow_group", "n", 2))
        share(sharing_store, other, SharedChange("global", "n", 3), SharedChange("flow_group", "m", 4))

        found = shared(
            sharing_store, ("global", "e1"), ("global", "e2"), ("flow_group", "g1"), ("flow_group", "g2")
        )
        assert found == [{"n": 1}, {"n": 3}, {"n": 2, "m": 4}, {}]

    def test_a_child_writes_to_the_values_of_its_root(self, sharing_store: StoreWithSharedState) -> None:
        child = created(sharing_store, child_of_waiting_parent(sharing_store))

        share(sharing_store, child, SharedChange("global", "n", 1))

        assert shared(sharing_store, ("global", "top"), ("global", child.execution_id)) == [{"n": 1}, {}]

    @pytest.mark.parametrize(
        "value", [None, True, 0, 1.5, "žluť \x00", [1, {"a": None}], {"deep": [{}]}, -(10**20)]
    )
    def test_shared_values_are_loaded_as_they_were_stored(
        self, sharing_store: StoreWithSharedState, value: Any
    ) -> None:
        one = created(sharing_store, record())

        share(
            sharing_store, one, SharedChange("global", "k:ž", "before"), SharedChange("global", "k:ž", value)
        )

        assert shared(sharing_store, ("global", "e1")) == [{"k:ž": value}]

    @pytest.mark.parametrize(
        ("before", "amounts", "after"),
        [
            (None, [1], 1),
            (None, [2.5], 2.5),
            (1, [2, 3], 6),
            (1.5, [1.5], 3),
            (0.1, [0.2], 0.1 + 0.2),
            (5, [-7], -2),
            (10**14, [1], 10**14 + 1),
            ("text", [1], "text"),
            (True, [1], True),
            ([1], [1], [1]),
            (1e308, [1e308], 1e308),
        ],
    )
    def test_an_increment_changes_a_number_and_no_other_value(
        self, sharing_store: StoreWithSharedState, before: Any, amounts: Sequence[Any], after: Any
    ) -> None:
        one = created(sharing_store, record())
        if before is not None:
            share(sharing_store, one, SharedChange("global", "n", before))

        share(
            sharing_store,
            one,
            *(SharedChange("global", "n", amount, is_increment=True) for amount in amounts),
        )

        [found] = shared(sharing_store, ("global", "e1"))
        assert (found["n"], type(found["n"])) == (after, type(after))

    def test_loaded_values_belong_to_the_caller(self, sharing_store: StoreWithSharedState) -> None:
        one = created(sharing_store, record())
        share(sharing_store, one, SharedChange("global", "n", 1))

        shared(sharing_store, ("global", "e1"))[0]["m"] = "mine"

        assert shared(sharing_store, ("global", "e1")) == [{"n": 1}]

    def test_no_increment_of_many_threads_is_lost(self, sharing_store: StoreWithSharedState) -> None:
        def add(n: int) -> None:
            share(
                sharing_store,
                created(sharing_store, record_in_group(f"e{n}")),
                SharedChange("flow_group", "n", 1, is_increment=True),
            )

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(add, range(20)))

        assert shared(sharing_store, ("flow_group", "g1")) == [{"n": 20}]

    def test_the_second_start_under_a_root_is_rejected(self, sharing_store: StoreWithSharedState) -> None:
        assert start(sharing_store, "e1", "order-7") is Committed.YES

        assert start(sharing_store, "e2", "order-7") is Committed.REPEATED
        assert start(sharing_store, "e3", "order-8") is Committed.YES

        assert sharing_store.shared_state.find_by_root("order-7") == full_id("e1")
        assert sharing_store.shared_state.find_by_root("unknown") is None
        with pytest.raises(KeyError):
            sharing_store.load(full_id("e2"))

    def test_a_root_is_checked_before_the_execution_id(self, sharing_store: StoreWithSharedState) -> None:
        start(sharing_store, "e1", "order-7")

        assert start(sharing_store, "e1", "order-7") is Committed.REPEATED
        assert start(sharing_store, "e1", "order-8") is Committed.EXISTS
        assert start(sharing_store, "e2", "order-8") is Committed.YES, (
            "a start that was rejected has not used its root"
        )

    def test_after_its_window_a_root_is_free(self, sharing_store: StoreWithSharedState) -> None:
        def now_ms() -> int:
            return int(time.time() * 1000)

        start(sharing_store, "e1", "order-7", window_s=1, at_ms=now_ms())
        deadline = time.monotonic() + WINDOW_PATIENCE_S

        while start(sharing_store, "e2", "order-7", window_s=1, at_ms=now_ms()) is Committed.REPEATED:
            assert time.monotonic() < deadline
            time.sleep(0.05)

        assert sharing_store.load(full_id("e2")).execution_id == "e2"

    def test_one_of_many_threads_starts_under_a_root(self, sharing_store: StoreWithSharedState) -> None:
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda n: start(sharing_store, f"e{n}", "order-7"), range(12)))

        assert sorted(result.name for result in results) == ["REPEATED"] * 11 + ["YES"]

    def test_a_child_is_created_while_its_parent_waits_for_it(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        child = child_of_waiting_parent(sharing_store)

        assert sharing_store.commit([Commit(child, Changes(), creates=True)]) == [Committed.YES]

        loaded = sharing_store.load(full_id("p:a:0"))
        assert (loaded.parent, loaded.root, loaded.depth) == (child.parent, "top", 4)

    @pytest.mark.parametrize("step_id", ["a", "b"])
    def test_a_child_that_its_parent_does_not_wait_for_is_an_orphan(
        self, sharing_store: StoreWithSharedState, step_id: str
    ) -> None:
        child = child_of_waiting_parent(sharing_store, token="t-2")
        assert child.parent is not None
        child.parent = replace(child.parent, step_id=step_id)

        commit = Commit(child, Changes(outgoing_events=EVENTS[:1]), creates=True)
        assert sharing_store.commit([commit]) == [Committed.ORPHAN]

        assert self.read_outgoing_events(sharing_store) == []
        with pytest.raises(KeyError):
            sharing_store.load(full_id("p:a:0"))

    def test_a_child_of_an_unknown_parent_is_an_orphan(self, sharing_store: StoreWithSharedState) -> None:
        child = child_of_waiting_parent(sharing_store)
        assert child.parent is not None
        child.parent = replace(child.parent, execution="unknown#1")

        assert sharing_store.commit([Commit(child, Changes(), creates=True)]) == [Committed.ORPHAN]

    def test_a_child_whose_id_is_taken_is_not_created(self, sharing_store: StoreWithSharedState) -> None:
        child = child_of_waiting_parent(sharing_store)
        created(sharing_store, record(spec(other={}), _execution_id="p:a:0"))

        assert sharing_store.commit([Commit(child, Changes(), creates=True)]) == [Committed.EXISTS]

    def test_a_child_is_created_once(self, sharing_store: StoreWithSharedState) -> None:
        child = child_of_waiting_parent(sharing_store)
        sharing_store.commit([Commit(child, Changes(), creates=True)])
        again = replace(child, version="")

        assert sharing_store.commit([Commit(again, Changes(), creates=True)]) == [Committed.EXISTS]

    def test_a_name_has_the_spec_that_was_registered_last(self, sharing_store: StoreWithSharedState) -> None:
        first, second = spec(a={}), spec(b={})

        sharing_store.shared_state.register("it", first)
        sharing_store.shared_state.register("other", first)
        assert sharing_store.shared_state.load_definition("it").workflow_id == first.workflow_id
        sharing_store.shared_state.register("it", second)

        assert sharing_store.shared_state.load_definition("it").document == second.document
        assert sharing_store.shared_state.load_definition("other").document == first.document

    def test_an_unregistered_name_is_a_key_error(self, sharing_store: StoreWithSharedState) -> None:
        with pytest.raises(KeyError):
            sharing_store.shared_state.load_definition("unknown")

    def test_a_document_under_the_hash_of_another_is_not_registered(
        self, document_store: StoreWithSharedState
    ) -> None:
        kept, forged = spec(a={}), spec(b={})
        created(document_store, record(kept))
        forged = replace(forged, workflow_id=kept.workflow_id)

        with pytest.raises(StoreError, match="another document has the workflow_id"):
            document_store.shared_state.register("it", forged)

        with pytest.raises(KeyError):
            document_store.shared_state.load_definition("it")

    def test_fields_about_other_executions_are_loaded_as_they_were_stored(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        new = record_in_group("e1")
        new.priority = 2
        one = created(sharing_store, new)
        slot = Slot("k", 2, "t1", is_held=True)
        fields = {
            "status": WorkflowStatus.COMPENSATING,
            "slot": slot,
            "cancelled": {"at": "now", "by": "ann"},
            "ending": {
                "status": "failed",
                "fields": {"error": {"kind": "x"}},
                "errors": [],
                "undoing": "a#undo",
            },
            "compensated": False,
            "completions": 7,
        }
        step = StepRecord(StepStatus.ON_HOLD, held="retry", child="e1:a:0", slot=slot, completion=3)
        undo = StepRecord(StepStatus.IN_PROGRESS, run_id=4, token="t2")

        sharing_store.commit([Commit(one, Changes(fields=fields, steps={"a": step}, items={"a#undo": undo}))])

        loaded = sharing_store.load(full_id("e1"))
        assert {name: getattr(loaded, name) for name in fields} == fields
        assert (loaded.group, loaded.priority, loaded.parent) == ("g1", 2, None)
        assert (loaded.steps["a"], loaded.items) == (step, {"a#undo": undo})
        assert (loaded.readiness.active, loaded.readiness.in_flight) == (1, 1)

    def test_fields_that_are_removed_are_gone(self, sharing_store: StoreWithSharedState) -> None:
        one = created(sharing_store, record(), fields={"slot": Slot("k", 2, "t1"), "ending": {"errors": []}})

        sharing_store.commit(
            [Commit(one, Changes(fields={"slot": None, "ending": None, "compensated": True}))]
        )

        loaded = sharing_store.load(full_id("e1"))
        assert (loaded.slot, loaded.ending, loaded.compensated) == (None, None, True)


def share(store: StoreWithSharedState, one: WorkflowRecord, *changes: SharedChange) -> None:
    assert store.commit([Commit(one, Changes(shared=list(changes)))]) == [Committed.YES]


def shared(store: StoreWithSharedState, *owners: tuple[str, str]) -> list[dict[str, Any]]:
    return store.shared_state.load_values(owners)


def record_in_group(name: str, group: str | None = "g1") -> WorkflowRecord:
    new = record(_execution_id=name)
    new.group = group
    return new


def start(
    store: StoreWithSharedState, name: str, root: str, window_s: int = 60, at_ms: int = NOW_MS
) -> Committed:
    new = record(_execution_id=name)
    return store.commit([Commit(new, Changes(at_ms), creates=True, idempotency_root=(root, window_s))])[0]


def child_of_waiting_parent(
    store: StoreWithSharedState, token: str = "t-1", name: str = "p:a:0"
) -> WorkflowRecord:
    """A child that is not created yet, and whose parent waits for it."""
    waiting = StepRecord(StepStatus.IN_PROGRESS, token="t-1", child=name, dispatches=1)
    parent = created(store, record(spec(a={}, b={}), _execution_id="p"), steps={"a": waiting})
    child = record(_execution_id=name)
    child.parent = replace(PARENT, execution=parent.workflow_execution_id, step_id="a", token=token)
    return child


def full_id(execution_id: str) -> str:
    return record(_execution_id=execution_id).workflow_execution_id
