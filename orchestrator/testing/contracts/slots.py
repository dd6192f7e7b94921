"""What a store promises about slots under concurrency keys."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from orchestrator.application.records.changes import Changes, SlotChange
from orchestrator.application.records.events import (
    OutgoingEvent,
    SlotEvent,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import Slot
from orchestrator.backend.ports import Commit, Committed
from orchestrator.testing.contracts.records import created, record
from orchestrator.testing.contracts.store_fixtures import (
    StoreFixtures,
    StoreWithSharedState,
)

ReadEvents = Callable[[StoreWithSharedState], list[OutgoingEvent]]


class SlotContract(StoreFixtures):
    """Skipped unless the store has shared state."""

    def test_a_free_slot_is_granted_at_once(self, sharing_store: StoreWithSharedState) -> None:
        one = created(sharing_store, record(_execution_id="e1"))
        request = SlotChange("a", Slot("k", 1, "t1"), is_acquire=True)

        sharing_store.commit([Commit(one, Changes(slots=[request]))])

        assert self.read_outgoing_events(sharing_store) == [SlotEvent(one.workflow_execution_id, "a", "t1")]

    def test_slots_are_granted_in_the_order_of_the_requests(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)

        assert [queue.acquire(name) for name in ("e1", "e2", "e3")] == [["e1"], [], []]
        assert queue.release("e1") == ["e2"]
        assert queue.acquire("e4") == []
        assert queue.release("e2") == ["e3"]
        assert queue.release("e3") == ["e4"]
        assert queue.release("e4") == []
        assert queue.acquire("e5") == ["e5"]

    def test_the_limit_is_the_number_of_slots(self, sharing_store: StoreWithSharedState) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)

        assert [queue.acquire(f"e{n}", limit=3) for n in range(5)] == [["e0"], ["e1"], ["e2"], [], []]
        assert queue.release("e1", limit=3) == ["e3"]

    def test_each_key_has_its_own_waiters(self, sharing_store: StoreWithSharedState) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)

        assert queue.acquire("e1", key="k") == ["e1"]
        assert queue.acquire("e2", key="other") == ["e2"]
        assert queue.acquire("e3", key="k|x:ž") == ["e3"]
        assert queue.acquire("e4", key="k") == []

    def test_a_waiter_that_leaves_is_skipped(self, sharing_store: StoreWithSharedState) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)
        for name in ("e1", "e2", "e3"):
            queue.acquire(name)

        assert queue.release("e2") == []
        assert queue.release("e1") == ["e3"]

    def test_limits_may_differ_and_no_waiter_overtakes(self, sharing_store: StoreWithSharedState) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)
        queue.acquire("small", limit=1)

        assert queue.acquire("large", limit=2) == ["large"], "one slot is held, and its limit is two"
        assert queue.acquire("second", limit=1) == []
        assert queue.acquire("larger", limit=5) == [], "its limit has room, but an earlier waiter comes first"
        assert queue.release("small", limit=1) == []
        assert queue.release("large", limit=2) == ["larger", "second"]

    def test_when_the_first_waiter_leaves_the_next_ones_may_acquire(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)
        queue.acquire("e1", limit=1)
        queue.acquire("e2", limit=1)
        queue.acquire("e3", limit=3)
        queue.acquire("e4", limit=3)

        assert queue.release("e2", limit=1) == ["e3", "e4"]

    def test_one_decision_may_release_and_acquire(self, sharing_store: StoreWithSharedState) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)
        queue.acquire("e1")
        queue.acquire("e2")
        first = SlotChange("a", Slot("k", 1, "t-e1", True), is_acquire=False)
        again = SlotChange("a", Slot("k", 1, "t-e1-again"), is_acquire=True)

        assert queue.change("e1", first, again) == ["e2"]
        assert queue.release("e2") == ["e1-again"]

    def test_a_slot_that_is_acquired_and_released_at_once_leaves_nothing(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)
        slot = Slot("k", 1, "t-e1")

        granted = queue.change(
            "e1", SlotChange("a", slot, is_acquire=True), SlotChange("a", slot, is_acquire=False)
        )

        assert granted in ([], ["e1"]), "a slot that is no longer needed is stale when it is granted"
        assert queue.acquire("e2") == ["e2"]

    def test_releasing_a_slot_that_is_not_held_changes_nothing(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        queue = SlotQueue(sharing_store, self.read_outgoing_events)
        queue.acquire("e1")

        assert queue.release("e9") == []
        assert queue.acquire("e2") == []

    def test_a_whole_execution_acquires_a_slot_without_a_step(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        one = created(sharing_store, record(_execution_id="e1"))

        sharing_store.commit(
            [Commit(one, Changes(slots=[SlotChange("", Slot("k", 1, "t1"), is_acquire=True)]))]
        )

        assert self.read_outgoing_events(sharing_store) == [SlotEvent(one.workflow_execution_id, "", "t1")]

    def test_many_threads_never_hold_more_slots_than_the_limit(
        self, sharing_store: StoreWithSharedState
    ) -> None:
        def acquire(n: int) -> None:
            one = created(sharing_store, record(_execution_id=f"e{n}"))
            slot = Slot("k", 3, f"t{n}")
            assert sharing_store.commit([Commit(one, Changes(slots=[SlotChange("a", slot, True)]))]) == [
                Committed.YES
            ]

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(acquire, range(12)))

        assert len(self.read_outgoing_events(sharing_store)) == 3


class SlotQueue:
    """Executions e1, e2, ... whose step `a` acquires a slot under a key, and releases it."""

    def __init__(self, store: StoreWithSharedState, read_events: ReadEvents) -> None:
        self._store, self._read_events = store, read_events
        self._records: dict[str, WorkflowRecord] = {}
        self._seen: list[OutgoingEvent] = []

    def acquire(self, name: str, limit: int = 1, key: str = "k", step_id: str = "a") -> list[str]:
        return self.change(name, SlotChange(step_id, Slot(key, limit, f"t-{name}"), is_acquire=True))

    def release(self, name: str, limit: int = 1, key: str = "k", step_id: str = "a") -> list[str]:
        return self.change(name, SlotChange(step_id, Slot(key, limit, f"t-{name}", True), is_acquire=False))

    def change(self, name: str, *changes: SlotChange) -> list[str]:
        """The tokens of the slots that this granted; streams give no order among them."""
        one = self._records.get(name)
        if one is None:
            one = self._records[name] = created(self._store, record(_execution_id=name))
        assert self._store.commit([Commit(one, Changes(slots=list(changes)))]) == [Committed.YES]
        events = [event for event in self._read_events(self._store) if event not in self._seen]
        self._seen += events
        assert all(isinstance(event, SlotEvent) for event in events)
        return sorted(event.token.removeprefix("t-") for event in events if isinstance(event, SlotEvent))
