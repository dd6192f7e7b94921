"""What a store promises about items of maps, waiting signals and the deadline of an execution."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.backend.ports import Commit, Committed, Store
from orchestrator.testing.contracts.records import created, record, spec
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
)

AWKWARD = {"text": "žluťoučký \u2028 \" ' #:|", "deep": [{"n": None}, 2**53, 1e-300, ""]}


class ItemContract(StoreFixtures):
    """Items, signals and the deadline are written and deleted one by one."""

    def test_items_are_loaded_as_they_were_stored(self, store: Store) -> None:
        kept = {
            "a#0": StepRecord(value=AWKWARD),
            "a#1": StepRecord(
                StepStatus.RETRY,
                run_id=3,
                attempt=2,
                lost=1,
                output={"ok": False, "error": "boom"},
                error={"kind": "exception", "message": "boom"},
                not_before_ms=1_767_225_600_123,
                value=0,
            ),
            "a#2": StepRecord(
                StepStatus.IN_PROGRESS, token="t-1", dispatches=2, deadline_ms=5, iteration=4, value=[]
            ),
        }
        counts = ItemCounts(3, next=3, due=2, out=1, settled=0, errors=0, fatal=True, most=7)
        step = StepRecord(StepStatus.IN_PROGRESS, round=2, items=counts)
        one = created(store, record())

        loaded = commit(store, one, steps={"a": step}, items=dict(kept))

        assert loaded.items == kept
        assert loaded.steps == {"a": step}
        assert isinstance(loaded.steps["a"].items, ItemCounts)
        assert loaded.readiness.in_flight == 1

    @pytest.mark.parametrize("value", [None, 0, False, "", [], {}, 1.5, "x", AWKWARD])
    def test_the_value_of_an_item_may_be_anything(self, store: Store, value: Any) -> None:
        one = created(store, record())

        loaded = commit(store, one, items=items(value))

        assert loaded.items["a#0"].value == value
        assert type(loaded.items["a#0"].value) is type(value)

    def test_the_commit_that_creates_an_execution_may_have_items(self, store: Store) -> None:
        one = created(store, record(), steps={"a": mapped(2)}, items=items(1, 2))

        assert store.load(one.workflow_execution_id).items == items(1, 2)

    def test_a_record_that_is_created_with_items_keeps_them(self, store: Store) -> None:
        one = record(a=mapped(1))
        one.items = {"a#0": StepRecord(value=1)}
        created(store, one)

        assert store.load(one.workflow_execution_id).items == items(1)

    def test_an_item_changes_and_the_others_stay(self, store: Store) -> None:
        one = created(store, record(), items=items(1, 2, 3))
        done = StepRecord(StepStatus.COMPLETE, output={"r": 2}, value=2)

        loaded = commit(store, one, items={"a#1": done})

        assert loaded.items == {**items(1, 2, 3), "a#1": done}

    def test_deleted_items_are_gone_and_the_others_stay(self, store: Store) -> None:
        one = created(store, record(), items=items(1, 2, 3))

        loaded = commit(store, one, items={"a#0": None, "a#2": None})

        assert loaded.items == {"a#1": StepRecord(value=2)}

    def test_items_are_deleted_and_created_in_one_commit(self, store: Store) -> None:
        one = created(store, record(), items=items("old", "old", "old"))

        loaded = commit(store, one, items={**items("new"), "a#1": None, "a#2": None})

        assert loaded.items == items("new")

    def test_deleting_a_missing_item_changes_nothing(self, store: Store) -> None:
        one = created(store, record(), items=items(1))

        loaded = commit(store, one, items={"a#9": None})

        assert loaded.items == items(1)

    def test_a_commit_of_items_alone_changes_the_version(self, store: Store) -> None:
        one = created(store, record())
        before = one.version

        loaded = commit(store, one, items=items(1))

        assert loaded.version == one.version != before

    def test_a_rejected_commit_leaves_the_items_alone(self, store: Store) -> None:
        one = created(store, record(), items=items(1, 2))
        stale = store.load(one.workflow_execution_id)
        commit(store, one, state={"k": 1})
        signals = [{"name": "go", "payload": 1}]
        changes = Changes(
            items={"a#0": None, "a#7": StepRecord()}, fields={"signals": signals, "deadline_ms": 7}
        )

        assert store.commit([Commit(stale, changes)]) == [Committed.CONFLICT]

        loaded = store.load(one.workflow_execution_id)
        assert (loaded.items, loaded.signals, loaded.deadline_ms) == (items(1, 2), [], None)

    def test_items_of_several_maps_are_kept_apart(self, store: Store) -> None:
        ids = ("a", "a.b", "a-1", "a.1")
        loaded_spec = spec(None, **{step_id: {} for step_id in ids})
        every = {unit: item for step_id in ids for unit, item in items(step_id, 0, step_id=step_id).items()}
        one = created(store, record(loaded_spec), items=every)

        assert store.load(one.workflow_execution_id).items == every

        loaded = commit(store, one, items={"a.b#0": None})

        assert set(every) - set(loaded.items) == {"a.b#0"}

    def test_items_of_two_executions_are_kept_apart(self, store: Store) -> None:
        first = created(store, record(_execution_id="e1"), items=items(1))
        second = created(store, record(_execution_id="e2"), items=items(2))
        commit(store, first, items={"a#0": None})

        assert store.load(second.workflow_execution_id).items == items(2)

    def test_thousands_of_items_are_stored_and_deleted(self, store: Store) -> None:
        """More than fit into one command of a script."""
        every = items(*range(3_000))
        one = created(store, record(), items=every)
        assert store.load(one.workflow_execution_id).items == every

        loaded = commit(store, one, items=dict.fromkeys(list(every)[:2_500]))

        assert len(loaded.items) == 500

    def test_a_loaded_item_belongs_to_the_caller(self, store: Store) -> None:
        one = created(store, record(), items={"a#0": StepRecord(value={"list": [1]}, output={"list": [1]})})
        weid = one.workflow_execution_id

        mine = store.load(weid)
        mine.items["a#0"].value["list"].append("mine")
        mine.items["a#0"].output["list"].append("mine")
        mine.items["a#1"] = StepRecord()

        assert store.load(weid).items == {"a#0": StepRecord(value={"list": [1]}, output={"list": [1]})}

    def test_steps_and_items_are_kept_apart(self, store: Store) -> None:
        one = created(store, record(spec(a={}, b={})), steps={"a": mapped(1)}, items=items(1))

        loaded = store.load(one.workflow_execution_id)

        assert list(loaded.steps) == ["a", "b"]
        assert list(loaded.items) == ["a#0"]

    def test_signals_are_loaded_in_their_order(self, store: Store) -> None:
        signals = [{"name": "go", "payload": n} for n in (3, None, AWKWARD, 1)]
        one = created(store, record())

        loaded = commit(store, one, fields={"signals": signals})

        assert loaded.signals == signals

    def test_signals_are_replaced_as_a_whole(self, store: Store) -> None:
        one = created(
            store, record(), fields={"signals": [{"name": "a", "payload": 1}, {"name": "b", "payload": 2}]}
        )
        assert len(store.load(one.workflow_execution_id).signals) == 2

        assert commit(store, one, fields={"signals": [{"name": "b", "payload": 2}]}).signals == [
            {"name": "b", "payload": 2}
        ]
        assert commit(store, one, fields={"signals": []}).signals == []

    def test_other_fields_leave_signals_and_deadline_alone(self, store: Store) -> None:
        signals = [{"name": "go", "payload": {}}]
        one = created(store, record(), fields={"signals": signals, "deadline_ms": 1_767_225_600_123})

        loaded = commit(store, one, fields={"status": WorkflowStatus.IN_PROGRESS}, state={"k": 1})

        assert (loaded.signals, loaded.deadline_ms) == (signals, 1_767_225_600_123)

    @pytest.mark.parametrize("deadline_ms", [0, 1_767_225_600_123, 2**53])
    def test_a_deadline_is_kept_to_the_millisecond(self, store: Store, deadline_ms: int) -> None:
        one = created(store, record())

        loaded = commit(store, one, fields={"deadline_ms": deadline_ms})

        assert loaded.deadline_ms == deadline_ms
        assert type(loaded.deadline_ms) is int

    def test_a_deadline_may_be_removed(self, store: Store) -> None:
        one = created(store, record(), fields={"deadline_ms": 5})

        assert commit(store, one, fields={"deadline_ms": None}).deadline_ms is None

    def test_loaded_signals_belong_to_the_caller(self, store: Store) -> None:
        one = created(store, record(), fields={"signals": [{"name": "go", "payload": {"list": [1]}}]})
        weid = one.workflow_execution_id

        mine = store.load(weid)
        mine.signals[0]["payload"]["list"].append("mine")
        mine.signals.append({"name": "mine", "payload": None})

        assert store.load(weid).signals == [{"name": "go", "payload": {"list": [1]}}]

    def test_write_keeps_items_signals_and_deadline(self, store: Store) -> None:
        one = record(a=mapped(2, next=1, due=1))
        one.items = {"a#0": StepRecord(StepStatus.RETRY, value=1), "a#1": StepRecord(value=2)}
        one.signals, one.deadline_ms = [{"name": "go", "payload": [1]}], 99

        store.write(one)

        loaded = store.load(one.workflow_execution_id)
        assert (loaded.items, loaded.signals, loaded.deadline_ms) == (one.items, one.signals, 99)
        assert loaded.steps == one.steps

    def test_a_second_write_replaces_items_signals_and_deadline(self, store: Store) -> None:
        one = record(a=mapped(2))
        one.items = {"a#0": StepRecord(value=1), "a#1": StepRecord(value=2)}
        one.signals, one.deadline_ms = [{"name": "go", "payload": 1}], 99
        store.write(one)

        store.write(record())

        loaded = store.load(one.workflow_execution_id)
        assert (loaded.items, loaded.signals, loaded.deadline_ms) == ({}, [], None)

    def test_a_written_record_belongs_to_the_store(self, store: Store) -> None:
        one = record()
        one.items, one.signals = {"a#0": StepRecord(value=[1])}, [{"name": "go", "payload": [1]}]
        store.write(one)

        one.items["a#0"].value.append(2)
        one.signals[0]["payload"].append(2)

        loaded = store.load(one.workflow_execution_id)
        assert loaded.items["a#0"].value == loaded.signals[0]["payload"] == [1]


def commit(store: Store, one: WorkflowRecord, **changes: Any) -> WorkflowRecord:
    """Commit, and load what is kept."""
    made = Changes(**changes)
    assert store.commit([Commit(one, made)]) == [Committed.YES]
    one.apply(made)
    return store.load(one.workflow_execution_id)


def mapped(count: int = 3, **keys: Any) -> StepRecord:
    return StepRecord(StepStatus.IN_PROGRESS, items=ItemCounts(count, **keys))


def items(*values: Any, step_id: str = "a") -> dict[str, StepRecord | None]:
    return {f"{step_id}#{n}": StepRecord(value=value) for n, value in enumerate(values)}
