"""What every Store promises about what executions share: posts, places under concurrency keys, values, roots
and names; and about children."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.port_implementations import STORES, KeepingStore
from orchestrator.application.errors import StoreError
from orchestrator.application.records.changes import Changes, SharedChange, SlotChange
from orchestrator.application.records.events import (
    ControlEvent,
    OutgoingEvent,
    Parent,
    ResultEvent,
    SlotEvent,
    StartEvent,
    make_failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.backend.ports import Commit, Committed, EventRef
from orchestrator.backend.shared_state import OUTGOING_EVENTS
from orchestrator.redis_rq.event_codec import read_event
from orchestrator.redis_rq.store import RedisStore
from worlds.records import NOW_MS, record, spec

PATIENCE_S = 180


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepingStore]:
    with STORES[request.param](tmp_path) as made:
        yield made


@pytest.fixture(params=["memory", "sqlite"])
def keeping(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepingStore]:
    """Stores that keep posts themselves; where there are streams, those do."""
    with STORES[request.param](tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", "redis"])
def pinning(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeepingStore]:
    """Stores that keep documents by their hash."""
    with STORES[request.param](tmp_path) as made:
        yield made


def created(store: KeepingStore, new: WorkflowRecord, **changes: Any) -> WorkflowRecord:
    first = Changes(**changes)
    assert store.commit([Commit(new, first, creates=True)]) == [Committed.YES]
    new.apply(first)
    return new


def outgoing_events(store: KeepingStore) -> list[OutgoingEvent]:
    """All that was said so far and not acknowledged, in its order as far as the store has one."""
    if isinstance(store, RedisStore):
        return _of_streams(store)
    return [delivery.event for delivery in store.shared_state.outgoing_events()]  # type: ignore[misc]


def _of_streams(store: RedisStore) -> list[OutgoingEvent]:
    client, keys = store._client, store._keys
    entries: list[tuple[str, dict[str, str]]] = []
    for n in range(keys.partitions):
        entries += client.xrange(keys.events(n))  # type: ignore[arg-type]
    return [read_event(fields, is_start=False) for _, fields in sorted(entries, key=_number)]  # type: ignore[misc]


def _number(entry: tuple[str, dict[str, str]]) -> tuple[int, int]:
    at_ms, _, n = entry[0].partition("-")
    return int(at_ms), int(n)


def refs(store: KeepingStore) -> list[EventRef]:
    return [delivery.ref for delivery in store.shared_state.outgoing_events()]


# ---- posts

PARENT = Parent("w0#p1", "call", run_id=2, attempt=3, token="t-1", root="top", depth=4)
EVENTS: list[OutgoingEvent] = [
    StartEvent(
        inputs={"n": [1, {"ž": None}]}, execution_id="p1:call:2", group="g", priority=2, parent=PARENT
    ),
    ResultEvent("w0#p1", "call", {"n": 1.5}, None, 2, 3, "t-1"),
    ResultEvent("w0#p1", "call", None, make_failure("child_failed", "boom", child="w#c"), 2, 3, "t-1"),
    ControlEvent("p1:call:2", "cancel", reason="not needed", parent_token="n1-0"),
    SlotEvent("w0#p1", "a", "t-9"),
]


@pytest.mark.parametrize("post", EVENTS, ids=lambda post: type(post).__name__)
def test_an_outgoing_event_is_loaded_as_it_was_stored(store: KeepingStore, post: OutgoingEvent) -> None:
    one = created(store, record())

    store.commit([Commit(one, Changes(outgoing_events=[post]))])

    assert outgoing_events(store) == [post]


def test_the_outgoing_events_of_a_new_execution_are_stored(store: KeepingStore) -> None:
    created(store, record(), outgoing_events=[EVENTS[1]])

    assert outgoing_events(store) == [EVENTS[1]]


def test_the_outgoing_events_of_a_rejected_commit_are_not_stored(store: KeepingStore) -> None:
    one = created(store, record())
    stale = store.load(one.workflow_execution_id)
    store.commit([Commit(one, Changes(state={"k": 1}))])
    slot = SlotChange("a", Slot("k", 1, "t1"), is_acquire=True)
    shared = [SharedChange("global", "n", 1), SharedChange("global", "sum", 1, is_increment=True)]

    result = store.commit([Commit(stale, Changes(outgoing_events=[*EVENTS], slots=[slot], shared=shared))])

    assert result == [Committed.CONFLICT]
    assert outgoing_events(store) == []
    assert store.shared_state.load_values([("global", one.root)]) == [{}]


def test_outgoing_events_are_kept_in_order_until_a_commit_acknowledges_them(keeping: KeepingStore) -> None:
    one = created(keeping, record(), outgoing_events=EVENTS[:2])
    keeping.commit([Commit(one, Changes(outgoing_events=EVENTS[2:4], at_ms=NOW_MS))])
    first, *others = refs(keeping)
    assert outgoing_events(keeping) == EVENTS[:4]
    assert keeping.shared_state.outgoing_events()[-1].at_ms == NOW_MS

    assert keeping.commit([Commit(one, Changes(state={"k": 1}), events=[first], pending_refs=[first])]) == [
        Committed.YES
    ]

    assert refs(keeping) == others
    assert outgoing_events(keeping) == EVENTS[1:4]


def test_a_commit_without_changes_acknowledges_too(keeping: KeepingStore) -> None:
    one = created(keeping, record(), outgoing_events=EVENTS[:1])
    [ref] = refs(keeping)

    assert keeping.commit([Commit(one, Changes(), events=[ref], pending_refs=[ref])]) == [Committed.YES]

    assert outgoing_events(keeping) == []


def test_an_event_that_another_commit_has_handled_is_gone_and_changes_nothing(keeping: KeepingStore) -> None:
    one = created(keeping, record(), outgoing_events=EVENTS[:2])
    first, second = refs(keeping)
    keeping.commit([Commit(one, Changes(), events=[first], pending_refs=[first])])
    version = one.version

    changes = Changes(state={"k": 1}, outgoing_events=EVENTS[2:])
    both = Commit(one, changes, events=[first, second], pending_refs=[first, second])
    new = Commit(record(_execution_id="e2"), Changes(), events=[first], pending_refs=[first], creates=True)

    assert keeping.commit([both, new]) == [Committed.GONE, Committed.GONE]
    assert (one.version, keeping.load(one.workflow_execution_id).state) == (version, {})
    assert outgoing_events(keeping) == EVENTS[1:2]
    with pytest.raises(KeyError):
        keeping.load("e2")


def test_a_conflict_acknowledges_nothing(keeping: KeepingStore) -> None:
    one = created(keeping, record(), outgoing_events=EVENTS[:1])
    stale = keeping.load(one.workflow_execution_id)
    keeping.commit([Commit(one, Changes(state={"k": 1}))])
    [ref] = refs(keeping)

    assert keeping.commit([Commit(stale, Changes(), events=[ref], pending_refs=[ref])]) == [
        Committed.CONFLICT
    ]

    assert refs(keeping) == [ref]


def test_an_outgoing_event_may_be_dropped_without_a_commit(keeping: KeepingStore) -> None:
    created(keeping, record(), outgoing_events=EVENTS[:2])
    first, second = refs(keeping)

    keeping.shared_state.drop_outgoing_event(first)
    keeping.shared_state.drop_outgoing_event(first)
    keeping.shared_state.drop_outgoing_event(EventRef("elsewhere", second.entry_id))

    assert refs(keeping) == [second]


def test_an_event_of_another_stream_is_not_an_outgoing_event(keeping: KeepingStore) -> None:
    one = created(keeping, record(), outgoing_events=EVENTS[:1])
    [ref] = refs(keeping)
    elsewhere = EventRef("orchestrator:events:0", ref.entry_id)
    assert ref.stream == OUTGOING_EVENTS

    assert keeping.commit([Commit(one, Changes(), events=[elsewhere], pending_refs=[elsewhere])]) == [
        Committed.YES
    ]

    assert refs(keeping) == [ref]


def test_of_many_commits_that_handle_an_event_one_succeeds(keeping: KeepingStore) -> None:
    one = created(keeping, record(), outgoing_events=EVENTS[:1])
    refs_of_it = refs(keeping)

    def answer(n: int) -> Committed:
        while True:
            mine = keeping.load(one.workflow_execution_id)
            commit = Commit(mine, Changes(state={f"by{n}": 1}), events=refs_of_it, pending_refs=refs_of_it)
            [result] = keeping.commit([commit])
            if result is not Committed.CONFLICT:
                return result

    with ThreadPoolExecutor(6) as pool:
        results = [one.name for one in pool.map(answer, range(12))]

    assert sorted(results) == ["GONE"] * 11 + ["YES"]
    assert len(keeping.load(one.workflow_execution_id).state) == 1


# ---- places under concurrency keys


class Line:
    """Executions e1, e2, ... whose step `a` asks for a place under a key, and gives it back."""

    def __init__(self, store: KeepingStore) -> None:
        self.store = store
        self._records: dict[str, WorkflowRecord] = {}
        self._heard: list[OutgoingEvent] = []

    def want(self, name: str, limit: int = 1, key: str = "k", step_id: str = "a") -> list[str]:
        return self._change(name, SlotChange(step_id, Slot(key, limit, f"t-{name}"), is_acquire=True))

    def give_back(self, name: str, limit: int = 1, key: str = "k", step_id: str = "a") -> list[str]:
        return self._change(name, SlotChange(step_id, Slot(key, limit, f"t-{name}", True), is_acquire=False))

    def _change(self, name: str, *changes: SlotChange) -> list[str]:
        """The tokens of the slots that this granted; streams give no order among them."""
        one = self._records.get(name)
        if one is None:
            one = self._records[name] = created(self.store, record(_execution_id=name))
        assert self.store.commit([Commit(one, Changes(slots=list(changes)))]) == [Committed.YES]
        events = [event for event in outgoing_events(self.store) if event not in self._heard]
        self._heard += events
        assert all(isinstance(event, SlotEvent) for event in events)
        return sorted(event.token.removeprefix("t-") for event in events if isinstance(event, SlotEvent))


def test_a_free_slot_is_granted_at_once(store: KeepingStore) -> None:
    one = created(store, record(_execution_id="e1"))
    wanted = SlotChange("a", Slot("k", 1, "t1"), is_acquire=True)

    store.commit([Commit(one, Changes(slots=[wanted]))])

    assert outgoing_events(store) == [SlotEvent(one.workflow_execution_id, "a", "t1")]


def test_slots_are_granted_in_the_order_of_the_requests(store: KeepingStore) -> None:
    line = Line(store)

    assert [line.want(name) for name in ("e1", "e2", "e3")] == [["e1"], [], []]
    assert line.give_back("e1") == ["e2"]
    assert line.want("e4") == []
    assert line.give_back("e2") == ["e3"]
    assert line.give_back("e3") == ["e4"]
    assert line.give_back("e4") == []
    assert line.want("e5") == ["e5"]


def test_the_limit_is_the_number_of_slots(store: KeepingStore) -> None:
    line = Line(store)

    assert [line.want(f"e{n}", limit=3) for n in range(5)] == [["e0"], ["e1"], ["e2"], [], []]
    assert line.give_back("e1", limit=3) == ["e3"]


def test_each_key_has_its_own_waiters(store: KeepingStore) -> None:
    line = Line(store)

    assert line.want("e1", key="k") == ["e1"]
    assert line.want("e2", key="other") == ["e2"]
    assert line.want("e3", key="k|x:ž") == ["e3"]
    assert line.want("e4", key="k") == []


def test_a_waiter_that_leaves_is_skipped(store: KeepingStore) -> None:
    line = Line(store)
    for name in ("e1", "e2", "e3"):
        line.want(name)

    assert line.give_back("e2") == []
    assert line.give_back("e1") == ["e3"]


def test_limits_may_differ_and_no_waiter_overtakes(store: KeepingStore) -> None:
    line = Line(store)
    line.want("small", limit=1)

    assert line.want("large", limit=2) == ["large"], "one place is taken: there is room by its limit"
    assert line.want("second", limit=1) == []
    assert line.want("larger", limit=5) == [], "its limit has room, but an earlier waiter comes first"
    assert line.give_back("small", limit=1) == []
    assert line.give_back("large", limit=2) == ["larger", "second"]


def test_when_the_first_waiter_leaves_the_next_ones_may_acquire(store: KeepingStore) -> None:
    line = Line(store)
    line.want("e1", limit=1)
    line.want("e2", limit=1)
    line.want("e3", limit=3)
    line.want("e4", limit=3)

    assert line.give_back("e2", limit=1) == ["e3", "e4"]


def test_one_decision_may_release_and_acquire(store: KeepingStore) -> None:
    line = Line(store)
    line.want("e1")
    line.want("e2")
    first = SlotChange("a", Slot("k", 1, "t-e1", True), is_acquire=False)
    again = SlotChange("a", Slot("k", 1, "t-e1-again"), is_acquire=True)

    assert line._change("e1", first, again) == ["e2"]
    assert line.give_back("e2") == ["e1-again"]


def test_a_slot_that_is_acquired_and_released_at_once_leaves_nothing(store: KeepingStore) -> None:
    line = Line(store)
    slot = Slot("k", 1, "t-e1")

    granted = line._change(
        "e1", SlotChange("a", slot, is_acquire=True), SlotChange("a", slot, is_acquire=False)
    )

    assert granted in ([], ["e1"]), "a place that is not wanted any more is stale when it comes"
    assert line.want("e2") == ["e2"]


def test_giving_back_what_is_not_there_changes_nothing(store: KeepingStore) -> None:
    line = Line(store)
    line.want("e1")

    assert line.give_back("e9") == []
    assert line.want("e2") == []


def test_a_whole_execution_asks_without_a_step(store: KeepingStore) -> None:
    one = created(store, record(_execution_id="e1"))

    store.commit([Commit(one, Changes(slots=[SlotChange("", Slot("k", 1, "t1"), is_acquire=True)]))])

    assert outgoing_events(store) == [SlotEvent(one.workflow_execution_id, "", "t1")]


def test_many_threads_never_hold_more_slots_than_the_limit(store: KeepingStore) -> None:
    def ask(n: int) -> None:
        one = created(store, record(_execution_id=f"e{n}"))
        slot = Slot("k", 3, f"t{n}")
        assert store.commit([Commit(one, Changes(slots=[SlotChange("a", slot, True)]))]) == [Committed.YES]

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(12)))

    assert len(outgoing_events(store)) == 3


# ---- values


def share(store: KeepingStore, one: WorkflowRecord, *changes: SharedChange) -> None:
    assert store.commit([Commit(one, Changes(shared=list(changes)))]) == [Committed.YES]


def shared(store: KeepingStore, *owners: tuple[str, str]) -> list[dict[str, Any]]:
    return store.shared_state.load_values(owners)


def grouped(name: str, group: str | None = "g1") -> WorkflowRecord:
    new = record(_execution_id=name)
    new.group = group
    return new


def test_values_belong_to_the_root_or_to_the_group(store: KeepingStore) -> None:
    one, other = created(store, grouped("e1")), created(store, grouped("e2"))

    share(store, one, SharedChange("global", "n", 1), SharedChange("flow_group", "n", 2))
    share(store, other, SharedChange("global", "n", 3), SharedChange("flow_group", "m", 4))

    found = shared(store, ("global", "e1"), ("global", "e2"), ("flow_group", "g1"), ("flow_group", "g2"))
    assert found == [{"n": 1}, {"n": 3}, {"n": 2, "m": 4}, {}]


def test_a_child_writes_to_the_values_of_its_root(store: KeepingStore) -> None:
    child = created(store, *awaited(store))

    share(store, child, SharedChange("global", "n", 1))

    assert shared(store, ("global", "top"), ("global", child.execution_id)) == [{"n": 1}, {}]


@pytest.mark.parametrize(
    "value", [None, True, 0, 1.5, "žluť \x00", [1, {"a": None}], {"deep": [{}]}, -(10**20)]
)
def test_any_value_can_be_shared_and_comes_back_as_it_was(store: KeepingStore, value: Any) -> None:
    one = created(store, record())

    share(store, one, SharedChange("global", "k:ž", "before"), SharedChange("global", "k:ž", value))

    assert shared(store, ("global", "e1")) == [{"k:ž": value}]


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
def test_what_is_added_is_added_to_a_number_and_to_nothing_else(
    store: KeepingStore, before: Any, amounts: Sequence[Any], after: Any
) -> None:
    one = created(store, record())
    if before is not None:
        share(store, one, SharedChange("global", "n", before))

    share(store, one, *(SharedChange("global", "n", amount, is_increment=True) for amount in amounts))

    [found] = shared(store, ("global", "e1"))
    assert (found["n"], type(found["n"])) == (after, type(after))


def test_what_is_read_belongs_to_the_reader(store: KeepingStore) -> None:
    one = created(store, record())
    share(store, one, SharedChange("global", "n", 1))

    shared(store, ("global", "e1"))[0]["m"] = "mine"

    assert shared(store, ("global", "e1")) == [{"n": 1}]


def test_of_many_threads_that_add_none_is_lost(store: KeepingStore) -> None:
    def add(n: int) -> None:
        share(store, created(store, grouped(f"e{n}")), SharedChange("flow_group", "n", 1, is_increment=True))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(20)))

    assert shared(store, ("flow_group", "g1")) == [{"n": 20}]


# ---- idempotency roots


def begin(store: KeepingStore, name: str, root: str, window_s: int = 60, at_ms: int = NOW_MS) -> Committed:
    new = record(_execution_id=name)
    return store.commit([Commit(new, Changes(at_ms), creates=True, idempotency_root=(root, window_s))])[0]


def test_the_second_start_under_a_root_is_refused_and_the_first_is_named(store: KeepingStore) -> None:
    assert begin(store, "e1", "order-7") is Committed.YES

    assert begin(store, "e2", "order-7") is Committed.REPEATED
    assert begin(store, "e3", "order-8") is Committed.YES

    assert store.shared_state.find_by_root("order-7") == store.full_id("e1")
    assert store.shared_state.find_by_root("unknown") is None
    with pytest.raises(KeyError):
        store.load("e2")


def test_a_root_comes_before_the_id_of_an_execution(store: KeepingStore) -> None:
    begin(store, "e1", "order-7")

    assert begin(store, "e1", "order-7") is Committed.REPEATED
    assert begin(store, "e1", "order-8") is Committed.EXISTS
    assert begin(store, "e2", "order-8") is Committed.YES, "a start that was refused has not used its root"


def test_after_its_window_a_root_is_free(store: KeepingStore) -> None:
    def now_ms() -> int:
        return int(time.time() * 1000)

    begin(store, "e1", "order-7", window_s=1, at_ms=now_ms())
    deadline = time.monotonic() + PATIENCE_S

    while begin(store, "e2", "order-7", window_s=1, at_ms=now_ms()) is Committed.REPEATED:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert store.load("e2").execution_id == "e2"


def test_of_many_threads_that_start_under_a_root_one_does(store: KeepingStore) -> None:
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda n: begin(store, f"e{n}", "order-7"), range(12)))

    assert sorted(result.name for result in results) == ["REPEATED"] * 11 + ["YES"]


# ---- children


def awaited(store: KeepingStore, token: str = "t-1", name: str = "p:a:0") -> tuple[WorkflowRecord]:
    """A child that is not there yet, whose parent waits for it."""
    waiting = StepRecord(StepStatus.IN_PROGRESS, token="t-1", child=name, dispatches=1)
    parent = created(store, record(spec(a={}, b={}), _execution_id="p"), steps={"a": waiting})
    child = record(_execution_id=name)
    child.parent = replace(PARENT, execution=parent.workflow_execution_id, step_id="a", token=token)
    return (child,)


def test_a_child_begins_while_its_parent_waits_for_it(store: KeepingStore) -> None:
    [child] = awaited(store)

    assert store.commit([Commit(child, Changes(), creates=True)]) == [Committed.YES]

    loaded = store.load("p:a:0")
    assert (loaded.parent, loaded.root, loaded.depth) == (child.parent, "top", 4)


@pytest.mark.parametrize("step_id", ["a", "b"])
def test_a_child_that_its_parent_does_not_wait_for_is_an_orphan(store: KeepingStore, step_id: str) -> None:
    [child] = awaited(store, token="t-2")
    assert child.parent is not None
    child.parent = replace(child.parent, step_id=step_id)

    commit = Commit(child, Changes(outgoing_events=EVENTS[:1]), creates=True)
    assert store.commit([commit]) == [Committed.ORPHAN]

    assert outgoing_events(store) == []
    with pytest.raises(KeyError):
        store.load("p:a:0")


def test_a_child_whose_parent_is_not_there_is_an_orphan(store: KeepingStore) -> None:
    [child] = awaited(store)
    assert child.parent is not None
    child.parent = replace(child.parent, execution="unknown#1")

    assert store.commit([Commit(child, Changes(), creates=True)]) == [Committed.ORPHAN]


def test_a_child_whose_id_is_taken_is_not_begun(store: KeepingStore) -> None:
    [child] = awaited(store)
    created(store, record(spec(other={}), _execution_id="p:a:0"))

    assert store.commit([Commit(child, Changes(), creates=True)]) == [Committed.EXISTS]


def test_a_child_begins_once(store: KeepingStore) -> None:
    [child] = awaited(store)
    store.commit([Commit(child, Changes(), creates=True)])
    again = replace(child, version="")

    assert store.commit([Commit(again, Changes(), creates=True)]) == [Committed.EXISTS]


# ---- names


def test_a_name_means_the_spec_it_was_last_given_to(store: KeepingStore) -> None:
    first, second = spec(a={}), spec(b={})

    store.shared_state.register("it", first)
    store.shared_state.register("other", first)
    assert store.shared_state.load_definition("it").workflow_id == first.workflow_id
    store.shared_state.register("it", second)

    assert store.shared_state.load_definition("it").document == second.document
    assert store.shared_state.load_definition("other").document == first.document


def test_an_unregistered_name_is_a_key_error(store: KeepingStore) -> None:
    with pytest.raises(KeyError):
        store.shared_state.load_definition("unknown")


def test_a_document_under_the_hash_of_another_is_not_registered(pinning: KeepingStore) -> None:
    kept, forged = spec(a={}), spec(b={})
    created(pinning, record(kept))
    forged = replace(forged, workflow_id=kept.workflow_id)

    with pytest.raises(StoreError, match="another document has the workflow_id"):
        pinning.shared_state.register("it", forged)

    with pytest.raises(KeyError):
        pinning.shared_state.load_definition("it")


# ---- what records know of all this


def test_what_a_record_knows_of_others_comes_back(store: KeepingStore) -> None:
    new = grouped("e1")
    new.priority = 2
    one = created(store, new)
    slot = Slot("k", 2, "t1", is_held=True)
    fields = {
        "status": WorkflowStatus.COMPENSATING,
        "slot": slot,
        "cancelled": {"at": "now", "by": "ann"},
        "ending": {"status": "failed", "fields": {"error": {"kind": "x"}}, "errors": [], "undoing": "a#undo"},
        "compensated": False,
        "completions": 7,
    }
    step = StepRecord(StepStatus.ON_HOLD, held="retry", child="e1:a:0", slot=slot, completion=3)
    undo = StepRecord(StepStatus.IN_PROGRESS, run_id=4, token="t2")

    store.commit([Commit(one, Changes(fields=fields, steps={"a": step}, items={"a#undo": undo}))])

    loaded = store.load("e1")
    assert {name: getattr(loaded, name) for name in fields} == fields
    assert (loaded.group, loaded.priority, loaded.parent) == ("g1", 2, None)
    assert (loaded.steps["a"], loaded.items) == (step, {"a#undo": undo})
    assert (loaded.readiness.active, loaded.readiness.in_flight) == (1, 1)


def test_what_a_record_knows_no_more_is_gone(store: KeepingStore) -> None:
    one = created(store, record(), fields={"slot": Slot("k", 2, "t1"), "ending": {"errors": []}})

    store.commit([Commit(one, Changes(fields={"slot": None, "ending": None, "compensated": True}))])

    loaded = store.load("e1")
    assert (loaded.slot, loaded.ending, loaded.compensated) == (None, None, True)
