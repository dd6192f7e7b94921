"""The fixtures of the store contract. A test is skipped if the store does not have the part it is about."""

from __future__ import annotations

from typing import ClassVar, Protocol, cast

import pytest

from orchestrator.application.records.events import OutgoingEvent
from orchestrator.backend.backend import HistoryStore
from orchestrator.backend.ports import SharedStateStore, StepLogStore, Store


class StoreWithHistory(Store, HistoryStore, Protocol):
    """A store that finds executions by either id and keeps their history."""


class StoreWithSharedState(Store, SharedStateStore, Protocol):
    """A store whose commits also write outgoing events, slots and shared values."""


class StoreWithStepLog(Store, StepLogStore, Protocol):
    """A store that keeps the step log."""


class StoreFixtures:
    """`keeps_documents`: the store keeps documents by their workflow_id, and so must reject a forged one."""

    keeps_documents: ClassVar[bool] = False

    @pytest.fixture
    def store(self) -> Store:
        """An empty store. Each test gets its own."""
        raise NotImplementedError("define the fixture `store` in your class: it returns an empty store")

    @pytest.fixture
    def history_store(self, store: Store) -> StoreWithHistory:
        if not isinstance(store, HistoryStore):
            pytest.skip("the store has no full_id() and history()")
        return cast(StoreWithHistory, store)

    @pytest.fixture
    def log_store(self, store: Store) -> StoreWithStepLog:
        if not isinstance(store, StepLogStore):
            pytest.skip("the store keeps no step log")
        return cast(StoreWithStepLog, store)

    @pytest.fixture
    def sharing_store(self, store: Store) -> StoreWithSharedState:
        if not isinstance(store, SharedStateStore):
            pytest.skip("the store has no shared state")
        return cast(StoreWithSharedState, store)

    @pytest.fixture
    def event_store(self, sharing_store: StoreWithSharedState) -> StoreWithSharedState:
        """A store that keeps outgoing events itself."""
        return sharing_store

    @pytest.fixture
    def document_store(self, sharing_store: StoreWithSharedState) -> StoreWithSharedState:
        """A store that keeps documents by their workflow_id."""
        if not self.keeps_documents:
            pytest.skip("keeps_documents is False")
        return sharing_store

    def read_outgoing_events(self, store: StoreWithSharedState) -> list[OutgoingEvent]:
        """The outgoing events that no commit has acknowledged, in their order."""
        return [cast(OutgoingEvent, delivery.event) for delivery in store.shared_state.outgoing_events()]
