"""What a store promises about events from one execution to another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

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
from orchestrator.application.records.step_record import Slot
from orchestrator.backend.ports import Commit, Committed, EventRef
from orchestrator.backend.shared_state import OUTGOING_EVENTS
from orchestrator.testing.contracts.records import NOW_MS, created, record
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
    StoreWithSharedState,
)

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


class OutgoingEventContract(StoreFixtures):
    """Skipped unless the store has shared state."""

    @pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
    def test_an_outgoing_event_is_loaded_as_it_was_stored(
        self, sharing_store: StoreWithSharedState, event: OutgoingEvent
    ) -> None:
        one = created(sharing_store, record())

        sharing_store.commit([Commit(one, Changes(outgoing_events=[event]))])

        assert self.read_outgoing_events(sharing_store) == [event]

    def test_the_outgoing_events_of_a_new_execution_are_stored(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        created(sharing_store, record(), outgoing_events=[EVENTS[1]])

        assert self.read_outgoing_events(sharing_store) == [EVENTS[1]]

    def test_the_outgoing_events_of_a_rejected_commit_are_not_stored(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        one = created(sharing_store, record())
        stale = sharing_store.load(one.workflow_execution_id)
        sharing_store.commit([Commit(one, Changes(state={"k": 1}))])
        slot = SlotChange("a", Slot("k", 1, "t1"), is_acquire=True)
        shared = [SharedChange("global", "n", 1), SharedChange("global", "sum", 1, is_increment=True)]

        result = sharing_store.commit(
            [Commit(stale, Changes(outgoing_events=[*EVENTS], slots=[slot], shared=shared))]
        )

        assert result == [Committed.CONFLICT]
        assert self.read_outgoing_events(sharing_store) == []
        assert sharing_store.shared_state.load_values([("global", one.root)]) == [{}]

    def test_outgoing_events_are_kept_in_order_until_a_commit_acknowledges_them(
        self, event_store: StoreWithSharedState
    ) -> None:
        one = created(event_store, record(), outgoing_events=EVENTS[:2])
        event_store.commit([Commit(one, Changes(outgoing_events=EVENTS[2:4], at_ms=NOW_MS))])
        first, *others = refs(event_store)
        assert self.read_outgoing_events(event_store) == EVENTS[:4]
        assert event_store.shared_state.outgoing_events()[-1].at_ms == NOW_MS

        assert event_store.commit(
            [Commit(one, Changes(state={"k": 1}), events=[first], pending_refs=[first])]
        ) == [Committed.YES]

        assert refs(event_store) == others
        assert self.read_outgoing_events(event_store) == EVENTS[1:4]

    def test_a_commit_without_changes_acknowledges_too(self, event_store: StoreWithSharedState) -> None:
        one = created(event_store, record(), outgoing_events=EVENTS[:1])
        [ref] = refs(event_store)

        assert event_store.commit([Commit(one, Changes(), events=[ref], pending_refs=[ref])]) == [
            Committed.YES
        ]

        assert self.read_outgoing_events(event_store) == []

    def test_an_event_that_another_commit_has_handled_is_gone_and_changes_nothing(
        self, event_store: StoreWithSharedState
    ) -> None:
        one = created(event_store, record(), outgoing_events=EVENTS[:2])
        first, second = refs(event_store)
        event_store.commit([Commit(one, Changes(), events=[first], pending_refs=[first])])
        version = one.version

        changes = Changes(state={"k": 1}, outgoing_events=EVENTS[2:])
        both = Commit(one, changes, events=[first, second], pending_refs=[first, second])
        new = Commit(
            record(_execution_id="e2"), Changes(), events=[first], pending_refs=[first], creates=True
        )

        assert event_store.commit([both, new]) == [Committed.GONE, Committed.GONE]
        assert (one.version, event_store.load(one.workflow_execution_id).state) == (version, {})
        assert self.read_outgoing_events(event_store) == EVENTS[1:2]
        with pytest.raises(KeyError):
            event_store.load(record(_execution_id="e2").workflow_execution_id)

    def test_a_conflict_acknowledges_nothing(self, event_store: StoreWithSharedState) -> None:
        one = created(event_store, record(), outgoing_events=EVENTS[:1])
        stale = event_store.load(one.workflow_execution_id)
        event_store.commit([Commit(one, Changes(state={"k": 1}))])
        [ref] = refs(event_store)

        assert event_store.commit([Commit(stale, Changes(), events=[ref], pending_refs=[ref])]) == [
            Committed.CONFLICT
        ]

        assert refs(event_store) == [ref]

    def test_an_outgoing_event_may_be_dropped_without_a_commit(
        self, event_store: StoreWithSharedState
    ) -> None:
        created(event_store, record(), outgoing_events=EVENTS[:2])
        first, second = refs(event_store)

        event_store.shared_state.drop_outgoing_event(first)
        event_store.shared_state.drop_outgoing_event(first)
        event_store.shared_state.drop_outgoing_event(EventRef("elsewhere", second.entry_id))

        assert refs(event_store) == [second]

    def test_an_event_of_another_stream_is_not_an_outgoing_event(
        self, event_store: StoreWithSharedState
    ) -> None:
        one = created(event_store, record(), outgoing_events=EVENTS[:1])
        [ref] = refs(event_store)
        elsewhere = EventRef("orchestrator:events:0", ref.entry_id)
        assert ref.stream == OUTGOING_EVENTS

        assert event_store.commit([Commit(one, Changes(), events=[elsewhere], pending_refs=[elsewhere])]) == [
            Committed.YES
        ]

        assert refs(event_store) == [ref]

    def test_one_of_many_commits_handles_an_outgoing_event(self, event_store: StoreWithSharedState) -> None:
        one = created(event_store, record(), outgoing_events=EVENTS[:1])
        refs_of_it = refs(event_store)

        def handle(n: int) -> Committed:
            for _ in range(12):  # a commit conflicts only with one of the others
                mine = event_store.load(one.workflow_execution_id)
                commit = Commit(
                    mine, Changes(state={f"by{n}": 1}), events=refs_of_it, pending_refs=refs_of_it
                )
                [result] = event_store.commit([commit])
                if result is not Committed.CONFLICT:
                    break
            return result

        with ThreadPoolExecutor(6) as pool:
            results = [one.name for one in pool.map(handle, range(12))]

        assert sorted(results) == ["GONE"] * 11 + ["YES"]
        assert len(event_store.load(one.workflow_execution_id).state) == 1


def refs(store: StoreWithSharedState) -> list[EventRef]:
    return [delivery.ref for delivery in store.shared_state.outgoing_events()]
