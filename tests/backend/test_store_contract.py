"""What every Store promises."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backend.port_implementations import STORES, KeepingStore
from orchestrator.application.engine.transitions import decide
from orchestrator.application.errors import RecordConflict, RecordExists, RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.backend.ports import Commit, Committed
from worlds.records import NOW, moment, record, result, spec

JSON_VALUES = [
    None,
    {},
    {"n": None, "deep": [{"x": [1, 2.5, True, None, ""]}]},
    {"text": "žluťoučký 🦊 \u2028 \x00 \\ \" ' ;--", "ключ": "значение"},
    {"large": 2**63, "small": -(10**20), "float": 1e-300},
]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepingStore]:
    with STORES[request.param](tmp_path) as made:
        yield made


def created(store: KeepingStore, new: WorkflowRecord, changes: Changes | None = None) -> WorkflowRecord:
    assert store.commit([Commit(new, changes or Changes(), creates=True)]) == [Committed.YES]
    new.apply(changes or Changes())
    return new


def facts(one: WorkflowRecord) -> dict[str, Any]:
    names = (
        "execution_id",
        "inputs",
        "created_at",
        "status",
        "state",
        "steps",
        "outcome",
        "error",
        "ended_at",
    )
    return {name: getattr(one, name) for name in (*names, "workflow_id", "start_event", "readiness")}


# ---- load and write


def test_an_unknown_execution_is_a_key_error(store: KeepingStore) -> None:
    with pytest.raises(KeyError, match="no execution has the id 'unknown#1'"):
        store.load("unknown#1")


def test_what_was_written_is_loaded(store: KeepingStore) -> None:
    done = StepRecord(StepStatus.COMPLETE, run_id=2, attempt=3, output={"n": [1]}, ended_at=NOW)
    failed = StepRecord(StepStatus.FAILED, error={"kind": "exception", "message": "boom"})
    one = record(spec(a={}, b={}, c={}), _inputs={"x": [1]}, _state={"k": {"v": 1}}, a=done, c=failed)
    one.status, one.outcome, one.error = WorkflowStatus.FAILED, {"o": [1]}, {"kind": "exception"}
    one.ended_at, one.start_event = NOW, "1-0"

    store.write(one)

    assert facts(store.load(one.workflow_execution_id)) == facts(one)


def test_what_is_loaded_belongs_to_the_caller(store: KeepingStore) -> None:
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


def test_what_was_written_belongs_to_the_store(store: KeepingStore) -> None:
    one = record(_inputs={"list": [1]}, _state={"list": [1]}, a=StepRecord(output={"list": [1]}))
    store.write(one)
    before = facts(store.load(one.workflow_execution_id))

    for value in (one.inputs, one.state, one.steps["a"].output):
        value["list"].append("theirs")
    one.steps["a"] = StepRecord(StepStatus.FAILED)
    one.state["new"] = 1

    assert facts(store.load(one.workflow_execution_id)) == before


def test_a_second_write_replaces_the_first_whole(store: KeepingStore) -> None:
    store.write(record(_state={"old": 1}, a=StepRecord(StepStatus.COMPLETE, output={"old": 1})))

    store.write(record(_state={"new": 2}))

    loaded = store.load(record().workflow_execution_id)
    assert (loaded.state, loaded.steps) == ({"new": 2}, {"a": StepRecord()})


def test_write_moves_the_version_of_the_record_it_was_given(store: KeepingStore) -> None:
    one = record()
    store.write(one)
    first = one.version

    store.write(one)

    assert one.version == store.load(one.workflow_execution_id).version != first


def test_a_record_that_was_changed_since_it_was_loaded_is_not_written(store: KeepingStore) -> None:
    store.write(record(_state={"n": 1}))
    mine, theirs = (store.load(record().workflow_execution_id) for _ in range(2))
    store.write(theirs)

    with pytest.raises(RecordConflict, match="is no longer at version"):
        store.write(mine)

    assert store.load(mine.workflow_execution_id).version == theirs.version


def test_executions_of_one_spec_are_kept_apart(store: KeepingStore) -> None:
    loaded = spec(a={})
    store.write(record(loaded, _execution_id="e1", _state={"k": 1}))
    store.write(record(loaded, _execution_id="e2", _state={"k": 2}))

    states = [store.load(f"{loaded.workflow_id}#{name}").state for name in ("e1", "e2")]

    assert states == [{"k": 1}, {"k": 2}]


def test_an_execution_is_found_by_its_execution_id_alone(store: KeepingStore) -> None:
    one = created(store, record(_execution_id="order-42"))

    assert store.full_id("order-42") == one.workflow_execution_id
    assert store.full_id(one.workflow_execution_id) == one.workflow_execution_id
    assert store.load("order-42").workflow_id == one.workflow_id
    with pytest.raises(RecordNotFound):
        store.full_id("order-43")


# ---- commit


def test_a_commit_writes_what_changed_and_leaves_the_rest(store: KeepingStore) -> None:
    one = created(store, record(spec(a={}, b={}), _state={"kept": 1, "moved": 1}, a=StepStatus.IN_PROGRESS))
    done = StepRecord(StepStatus.COMPLETE, output={"n": 1})
    changes = Changes(steps={"a": done}, state={"moved": 2}, fields={"status": WorkflowStatus.IN_PROGRESS})

    assert store.commit([Commit(one, changes)]) == [Committed.YES]

    loaded = store.load(one.workflow_execution_id)
    assert loaded.steps == {"a": done, "b": StepRecord()}
    assert loaded.state == {"kept": 1, "moved": 2}
    assert (loaded.status, loaded.inputs) == (WorkflowStatus.IN_PROGRESS, one.inputs)


def test_a_commit_removes_keys_of_the_state(store: KeepingStore) -> None:
    one = created(store, record(_state={"kept": 1, "ok": False, "state:ok": 2}))
    step = StepRecord(StepStatus.RETRY, retried_keys=["ok"])
    first = Changes(steps={"a": step}, state={"error": "boom"})
    store.commit([Commit(one, first)])
    one.apply(first)
    assert (
        store.load(one.workflow_execution_id).readiness.retried
        == one.readiness.of(one.graph, one.steps).retried
        == {"a"}
    )

    second = Changes(steps={"a": StepRecord()}, dropped_state={"ok", "error", "unknown"})
    store.commit([Commit(one, second)])
    one.apply(second)

    loaded = store.load(one.workflow_execution_id)
    assert (loaded.state, loaded.steps) == ({"kept": 1, "state:ok": 2}, {"a": StepRecord()})
    assert one.state == loaded.state


def test_a_commit_leaves_its_record_as_it_was_but_for_the_version(store: KeepingStore) -> None:
    one = created(store, record())
    before, version = facts(one), one.version

    store.commit([Commit(one, Changes(steps={"a": StepRecord(StepStatus.COMPLETE)}, state={"k": 1}))])

    assert facts(one) == before
    assert one.version == store.load(one.workflow_execution_id).version != version


def test_every_version_is_a_counter_and_a_nonce(store: KeepingStore) -> None:
    one = created(store, record())
    versions = [one.version]
    for _ in range(2):
        store.commit([Commit(one, Changes(state={"k": 1}))])
        versions.append(one.version)

    counters, nonces = zip(*(version.split("-") for version in versions), strict=True)

    assert counters == ("1", "2", "3")
    assert len(set(nonces)) == 3


def test_the_second_of_two_writers_is_refused(store: KeepingStore) -> None:
    weid = created(store, record()).workflow_execution_id
    mine, theirs = store.load(weid), store.load(weid)
    store.commit([Commit(theirs, Changes(state={"by": "them"}))])

    assert store.commit([Commit(mine, Changes(state={"by": "me"}))]) == [Committed.CONFLICT]

    assert store.load(weid).state == {"by": "them"}


def test_a_refused_commit_leaves_no_trace(store: KeepingStore) -> None:
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
    assert store.history(one.workflow_execution_id) == []
    assert stale.version == version


def test_a_commit_after_another_write_is_rejected(store: KeepingStore) -> None:
    one = created(store, record())
    store.write(store.load(one.workflow_execution_id))

    assert store.commit([Commit(one, Changes(state={"k": 1}))]) == [Committed.CONFLICT]


def test_a_commit_to_an_execution_that_is_not_there_is_refused(store: KeepingStore) -> None:
    assert store.commit([Commit(record(), Changes(state={"k": 1}))]) == [Committed.CONFLICT]

    with pytest.raises(RecordNotFound):
        store.load(record().workflow_execution_id)


def test_an_empty_commit_is_compared_too_and_keeps_the_version(store: KeepingStore) -> None:
    one = created(store, record())
    stale, version = store.load(one.workflow_execution_id), one.version

    assert store.commit([Commit(one, Changes())]) == [Committed.YES]
    assert one.version == store.load(one.workflow_execution_id).version == version

    store.commit([Commit(one, Changes(state={"k": 1}))])
    assert store.commit([Commit(stale, Changes())]) == [Committed.CONFLICT]


def test_creating_writes_record_and_changes_together(store: KeepingStore) -> None:
    new = record(spec(a={}, b={}), _inputs={"x": 1}, b=StepStatus.IN_PROGRESS)
    done = StepRecord(StepStatus.COMPLETE, output={"n": 1})

    created(store, new, Changes(steps={"a": done}, state={"n": 1}, history=[{"step": "a"}]))

    loaded = store.load(new.workflow_execution_id)
    assert facts(loaded) | {"readiness": None} == facts(new) | {"readiness": None}
    assert (loaded.steps["a"], loaded.state, loaded.version) == (done, {"n": 1}, new.version)
    assert store.history(new.workflow_execution_id) == [{"step": "a"}]


def test_an_execution_is_created_once(store: KeepingStore) -> None:
    first = created(store, record(_state={"by": "first"}))

    assert store.commit([Commit(record(_state={"by": "second"}), Changes(), creates=True)]) == [
        Committed.EXISTS
    ]

    assert store.load(first.workflow_execution_id).state == {"by": "first"}


def test_an_execution_id_belongs_to_one_execution_whatever_its_spec(store: KeepingStore) -> None:
    created(store, record(spec(a={}), _execution_id="order-42"))
    other = record(spec(b={}), _execution_id="order-42")

    assert store.commit([Commit(other, Changes(), creates=True)]) == [Committed.EXISTS]


def test_commits_of_one_batch_stand_and_fall_alone(store: KeepingStore) -> None:
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
    assert [store.load(name).state for name in ("e1", "e2", "e3")] == [{}, {"k": 2}, {"k": 3}]


@pytest.mark.parametrize("value", JSON_VALUES)
def test_values_come_back_as_they_were(store: KeepingStore, value: Any) -> None:
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


def test_state_keys_are_added_and_replaced_one_by_one(store: KeepingStore) -> None:
    one = created(store, record())
    for state in ({"z": 1, "a": 1}, {"m": 1}, {"z": 2}):
        store.commit([Commit(one, Changes(state=dict(state)))])

    assert store.load(one.workflow_execution_id).state == {"z": 2, "a": 1, "m": 1}


def test_steps_keep_the_order_of_the_spec(store: KeepingStore) -> None:
    one = created(store, record(spec(z={}, a={}, m={})))
    for step_id in ("m", "a"):
        store.commit([Commit(one, Changes(steps={step_id: StepRecord(StepStatus.SKIPPED)}))])

    assert list(store.load(one.workflow_execution_id).steps) == ["z", "a", "m"]


def test_history_is_kept_in_order_and_each_copy_is_the_callers(store: KeepingStore) -> None:
    one = created(store, record())
    for n in range(3):
        entries: list[dict[str, Any]] = [{"step": "a", "n": [n, half]} for half in (0, 1)]
        store.commit([Commit(one, Changes(state={"n": n}, history=entries))])
    expected = [{"step": "a", "n": [n, half]} for n in range(3) for half in (0, 1)]

    store.history(one.workflow_execution_id)[0]["n"].append("mine")

    assert store.history(one.workflow_execution_id) == expected
    store.write(store.load(one.workflow_execution_id))
    assert store.history(one.workflow_execution_id) == expected


def test_a_record_that_is_loaded_is_decided_upon_like_the_one_that_was_kept(store: KeepingStore) -> None:
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


def test_of_many_threads_that_write_at_once_none_is_lost(store: KeepingStore) -> None:
    weid = created(store, record(_state={"n": 0})).workflow_execution_id

    def increment(_: int) -> int:
        refusals = 0
        while True:
            mine = store.load(weid)
            if store.commit([Commit(mine, Changes(state={"n": mine.state["n"] + 1}))]) == [Committed.YES]:
                return refusals
            refusals += 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(increment, range(40)))

    assert store.load(weid).state == {"n": 40}
    assert store.load(weid).version.startswith("41-")


def test_of_many_threads_that_create_at_once_one_wins(store: KeepingStore) -> None:
    def create(_: int) -> Committed:
        return store.commit([Commit(record(), Changes(), creates=True)])[0]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(create, range(16)))

    assert sorted(result.name for result in results) == ["EXISTS"] * 15 + ["YES"]


def test_write_refuses_the_execution_id_of_another_execution(store: KeepingStore) -> None:
    store.write(record(spec(a={})))

    with pytest.raises(RecordExists):
        store.write(record(spec(b={})))
