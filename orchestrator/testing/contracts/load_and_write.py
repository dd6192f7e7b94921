"""What a store promises about load() and write()."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import RecordConflict
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.validation import load_stored_spec
from orchestrator.backend.ports import Store
from orchestrator.testing.contracts.records import NOW, created, facts, record, spec
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
)


class LoadAndWriteContract(StoreFixtures):
    """A record is loaded as it was written, and shares nothing with the one in the store."""

    def test_an_unknown_execution_is_a_key_error(self, store: Store) -> None:
        with pytest.raises(KeyError, match="no execution has the id 'unknown#1'"):
            store.load("unknown#1")

    def test_a_written_record_is_loaded(self, store: Store) -> None:
        done = StepRecord(StepStatus.COMPLETE, run_id=2, attempt=3, output={"n": [1]}, ended_at=NOW)
        failed = StepRecord(StepStatus.FAILED, error={"kind": "exception", "message": "boom"})
        one = record(spec(a={}, b={}, c={}), _inputs={"x": [1]}, _state={"k": {"v": 1}}, a=done, c=failed)
        one.status, one.outcome, one.error = WorkflowStatus.FAILED, {"o": [1]}, {"kind": "exception"}
        one.ended_at, one.start_event = NOW, "1-0"

        store.write(one)

        assert facts(store.load(one.workflow_execution_id)) == facts(one)

    def test_a_record_keeps_the_meaning_of_braces_that_it_was_created_with(self, store: Store) -> None:
        """`{{ input.x }}` is a reference, and text in executions of releases that did not know references."""
        loaded = spec(a={"input": {"x": "{{ input.x }}"}})
        older = load_stored_spec(loaded.document, with_short_references=False)
        new, old = record(loaded, _execution_id="new"), record(older, _execution_id="old")
        ids = [created(store, one).workflow_execution_id for one in (old, new)]
        for one in ids:
            store.write(store.load(one))

        found = [store.load(one).loaded.steps["a"].input["x"] for one in ids]

        assert found == ["{{ input.x }}", {"var": "input.x"}]

    def test_a_loaded_record_belongs_to_the_caller(self, store: Store) -> None:
        step = StepRecord(StepStatus.COMPLETE, output={"list": [1]}, error={"list": [1]})
        one = record(_inputs={"list": [1]}, _state={"list": [1]}, a=step)
        one.outcome, one.error = {"list": [1]}, {"list": [1]}
        store.write(one)
        before = facts(store.load(one.workflow_execution_id))

        mine = store.load(one.workflow_execution_id)
        step = mine.steps["a"]
        mutable: list[Any] = [mine.inputs, mine.state, mine.outcome, mine.error, step.output, step.error]
        for value in mutable:
            value["list"].append("mine")
        mine.steps["a"] = StepRecord()
        mine.state["new"] = 1
        mine.status = WorkflowStatus.CANCELLED

        assert facts(store.load(one.workflow_execution_id)) == before

    def test_a_written_record_belongs_to_the_store(self, store: Store) -> None:
        one = record(_inputs={"list": [1]}, _state={"list": [1]}, a=StepRecord(output={"list": [1]}))
        store.write(one)
        before = facts(store.load(one.workflow_execution_id))

        for value in (one.inputs, one.state, one.steps["a"].output):
            value["list"].append("theirs")
        one.steps["a"] = StepRecord(StepStatus.FAILED)
        one.state["new"] = 1

        assert facts(store.load(one.workflow_execution_id)) == before

    def test_a_second_write_replaces_the_whole_record(self, store: Store) -> None:
        store.write(record(_state={"old": 1}, a=StepRecord(StepStatus.COMPLETE, output={"old": 1})))

        store.write(record(_state={"new": 2}))

        loaded = store.load(record().workflow_execution_id)
        assert (loaded.state, loaded.steps) == ({"new": 2}, {"a": StepRecord()})

    def test_write_sets_the_version_of_the_record(self, store: Store) -> None:
        one = record()
        store.write(one)
        first = one.version

        store.write(one)

        assert one.version == store.load(one.workflow_execution_id).version != first

    def test_a_record_that_was_changed_since_it_was_loaded_is_not_written(self, store: Store) -> None:
        store.write(record(_state={"n": 1}))
        mine, theirs = (store.load(record().workflow_execution_id) for _ in range(2))
        store.write(theirs)

        with pytest.raises(RecordConflict, match="is no longer at version"):
            store.write(mine)

        assert store.load(mine.workflow_execution_id).version == theirs.version

    def test_executions_of_one_spec_are_kept_apart(self, store: Store) -> None:
        loaded = spec(a={})
        store.write(record(loaded, _execution_id="e1", _state={"k": 1}))
        store.write(record(loaded, _execution_id="e2", _state={"k": 2}))

        states = [store.load(f"{loaded.workflow_id}#{name}").state for name in ("e1", "e2")]

        assert states == [{"k": 1}, {"k": 2}]
