"""What a store promises about commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.application.engine.transitions import decide
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.backend.ports import Commit, Committed, Store
from orchestrator.testing.contracts.records import NOW, created, facts, moment, record, result, spec
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
)

JSON_VALUES = [
    None,
    {},
    {"n": None, "deep": [{"x": [1, 2.5, True, None, ""]}]},
    {"text": "žluťoučký 🦊 \u2028 \x00 \\ \" ' ;--", "ключ": "значение"},
    {"large": 2**63, "small": -(10**20), "float": 1e-300},
]


class CommitContract(StoreFixtures):
    """A commit is written as a whole, or rejected as a whole if the version has changed."""

    def test_a_commit_writes_what_changed_and_leaves_the_rest(self, store: Store) -> None:
        one = created(
            store, record(spec(a={}, b={}), _state={"kept": 1, "moved": 1}, a=StepStatus.IN_PROGRESS)
        )
        done = StepRecord(StepStatus.COMPLETE, output={"n": 1})
        changes = Changes(
            steps={"a": done}, state={"moved": 2}, fields={"status": WorkflowStatus.IN_PROGRESS}
        )

        assert store.commit([Commit(one, changes)]) == [Committed.YES]

        loaded = store.load(one.workflow_execution_id)
        assert loaded.steps == {"a": done, "b": StepRecord()}
        assert loaded.state == {"kept": 1, "moved": 2}
        assert (loaded.status, loaded.inputs) == (WorkflowStatus.IN_PROGRESS, one.inputs)

    def test_a_commit_removes_keys_of_the_state(self, store: Store) -> None:
        one = created(store, record(_state={"kept": 1, "ok": False, "state:ok": 2}))
        step = StepRecord(StepStatus.RETRY, retried_keys=["ok"])
        first = Changes(steps={"a": step}, state={"error": "boom"})
        store.commit([Commit(one, first)])
        one.apply(first)
        assert store.load(one.workflow_execution_id).readiness.retried == {"a"}

        second = Changes(steps={"a": StepRecord()}, dropped_state={"ok", "error", "unknown"})
        store.commit([Commit(one, second)])
        one.apply(second)

        loaded = store.load(one.workflow_execution_id)
        assert (loaded.state, loaded.steps) == ({"kept": 1, "state:ok": 2}, {"a": StepRecord()})
        assert one.state == loaded.state

    def test_a_commit_changes_only_the_version_of_its_record(self, store: Store) -> None:
        one = created(store, record())
        before, version = facts(one), one.version

        store.commit([Commit(one, Changes(steps={"a": StepRecord(StepStatus.COMPLETE)}, state={"k": 1}))])

        assert facts(one) == before
        assert one.version == store.load(one.workflow_execution_id).version != version

    def test_every_version_is_a_counter_and_a_nonce(self, store: Store) -> None:
        one = created(store, record())
        versions = [one.version]
        for _ in range(2):
            store.commit([Commit(one, Changes(state={"k": 1}))])
            versions.append(one.version)

        counters, nonces = zip(*(version.split("-") for version in versions), strict=True)

        assert counters == ("1", "2", "3")
        assert len(set(nonces)) == 3

    def test_the_second_of_two_commits_to_one_version_is_rejected(self, store: Store) -> None:
        weid = created(store, record()).workflow_execution_id
        mine, theirs = store.load(weid), store.load(weid)
        store.commit([Commit(theirs, Changes(state={"by": "them"}))])

        assert store.commit([Commit(mine, Changes(state={"by": "me"}))]) == [Committed.CONFLICT]

        assert store.load(weid).state == {"by": "them"}

    def test_a_rejected_commit_changes_nothing(self, store: Store) -> None:
        one = created(store, record())
        stale = store.load(one.workflow_execution_id)
        store.commit([Commit(one, Changes(state={"k": 1}))])
        before, version = facts(store.load(one.workflow_execution_id)), stale.version
        everything = Changes(
            steps={"a": StepRecord(StepStatus.COMPLETE)},
            state={"k": 2, "new": 3},
            fields={"status": WorkflowStatus.COMPLETE, "outcome": 1},
            history=[{"step": "a"}],
        )

        store.commit([Commit(stale, everything)])

        assert facts(store.load(one.workflow_execution_id)) == before
        assert stale.version == version

    def test_a_commit_after_another_write_is_rejected(self, store: Store) -> None:
        one = created(store, record())
        store.write(store.load(one.workflow_execution_id))

        assert store.commit([Commit(one, Changes(state={"k": 1}))]) == [Committed.CONFLICT]

    def test_a_commit_to_an_unknown_execution_is_rejected(self, store: Store) -> None:
        assert store.commit([Commit(record(), Changes(state={"k": 1}))]) == [Committed.CONFLICT]

        with pytest.raises(RecordNotFound):
            store.load(record().workflow_execution_id)

    def test_an_empty_commit_compares_and_keeps_the_version(self, store: Store) -> None:
        one = created(store, record())
        stale, version = store.load(one.workflow_execution_id), one.version

        assert store.commit([Commit(one, Changes())]) == [Committed.YES]
        assert one.version == store.load(one.workflow_execution_id).version == version

        store.commit([Commit(one, Changes(state={"k": 1}))])
        assert store.commit([Commit(stale, Changes())]) == [Committed.CONFLICT]

    def test_creating_writes_record_and_changes_together(self, store: Store) -> None:
        new = record(spec(a={}, b={}), _inputs={"x": 1}, b=StepStatus.IN_PROGRESS)
        done = StepRecord(StepStatus.COMPLETE, output={"n": 1})

        created(store, new, steps={"a": done}, state={"n": 1}, history=[{"step": "a"}])

        loaded = store.load(new.workflow_execution_id)
        assert facts(loaded) | {"readiness": None} == facts(new) | {"readiness": None}
        assert (loaded.steps["a"], loaded.state, loaded.version) == (done, {"n": 1}, new.version)

    def test_an_execution_is_created_once(self, store: Store) -> None:
        first = created(store, record(_state={"by": "first"}))

        assert store.commit([Commit(record(_state={"by": "second"}), Changes(), creates=True)]) == [
            Committed.EXISTS
        ]

        assert store.load(first.workflow_execution_id).state == {"by": "first"}

    def test_commits_of_one_batch_are_written_or_rejected_alone(self, store: Store) -> None:
        first, second = created(store, record(_execution_id="e1")), created(store, record(_execution_id="e2"))
        stale = store.load(first.workflow_execution_id)
        stale.version = "0-stale"
        new = record(_execution_id="e3")

        results = store.commit(
            [
                Commit(stale, Changes(state={"k": "stale"})),
                Commit(second, Changes(state={"k": 2})),
                Commit(record(_execution_id="e1"), Changes(), creates=True),
                Commit(new, Changes(state={"k": 3}), creates=True),
            ]
        )

        assert results == [Committed.CONFLICT, Committed.YES, Committed.EXISTS, Committed.YES]
        states = [store.load(one.workflow_execution_id).state for one in (first, second, new)]
        assert states == [{}, {"k": 2}, {"k": 3}]

    @pytest.mark.parametrize("value", JSON_VALUES)
    def test_values_are_loaded_as_they_were_stored(self, store: Store, value: Any) -> None:
        one = created(store, record(_inputs={"v": value}))
        step = StepRecord(StepStatus.COMPLETE, output=value)
        fields = {"status": WorkflowStatus.COMPLETE, "outcome": value, "error": None, "ended_at": NOW}

        store.commit(
            [Commit(one, Changes(steps={"a": step}, state={"v": value, "ключ.with.dots": 1}, fields=fields))]
        )

        loaded = store.load(one.workflow_execution_id)
        assert loaded.inputs == {"v": value}
        assert loaded.steps["a"] == step
        assert loaded.state == {"v": value, "ключ.with.dots": 1}
        assert (loaded.outcome, loaded.error, loaded.ended_at) == (value, None, NOW)

    def test_state_keys_are_added_and_replaced_one_by_one(self, store: Store) -> None:
        one = created(store, record())
        for state in ({"z": 1, "a": 1}, {"m": 1}, {"z": 2}):
            store.commit([Commit(one, Changes(state=dict(state)))])

        assert store.load(one.workflow_execution_id).state == {"z": 2, "a": 1, "m": 1}

    def test_steps_keep_the_order_of_the_spec(self, store: Store) -> None:
        one = created(store, record(spec(z={}, a={}, m={})))
        for step_id in ("m", "a"):
            store.commit([Commit(one, Changes(steps={step_id: StepRecord(StepStatus.SKIPPED)}))])

        assert list(store.load(one.workflow_execution_id).steps) == ["z", "a", "m"]

    def test_a_loaded_record_leads_to_the_same_decisions(self, store: Store) -> None:
        """Readiness is not stored: it is computed from what is."""
        diamond = spec(a={}, b={"depends_on": ["a"]}, c={"depends_on": ["a"]}, d={"depends_on": ["b", "c"]})
        live = created(store, record(diamond))
        for events in (
            [],
            [result("a", {"n": 1})],
            [result("c", {"n": 2})],
            [result("b", {"n": 3})],
            [result("d")],
        ):
            loaded = store.load(live.workflow_execution_id)
            decided, again = decide(live, events, moment()), decide(loaded, events, moment())

            assert again.decision == decided.decision
            assert again.changes.steps == decided.changes.steps

            assert store.commit([Commit(live, decided.changes)]) == [Committed.YES]
            live.apply(decided.changes)
        assert store.load(live.workflow_execution_id).status is WorkflowStatus.COMPLETE

    def test_no_commit_of_many_threads_is_lost(self, store: Store) -> None:
        weid = created(store, record(_state={"n": 0})).workflow_execution_id

        def increment(_: int) -> bool:
            for _ in range(40):  # a commit is rejected only if one of the 39 others was written
                mine = store.load(weid)
                if store.commit([Commit(mine, Changes(state={"n": mine.state["n"] + 1}))]) == [Committed.YES]:
                    return True
            return False

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(increment, range(40)))

        assert store.load(weid).state == {"n": 40}
        assert store.load(weid).version.startswith("41-")

    def test_one_of_many_threads_creates_an_execution(self, store: Store) -> None:
        def create(_: int) -> Committed:
            return store.commit([Commit(record(), Changes(), creates=True)])[0]

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(create, range(16)))

        assert sorted(result.name for result in results) == ["EXISTS"] * 15 + ["YES"]
