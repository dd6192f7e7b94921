"""The contract of a store, on every store of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from backend.port_implementations import STORES
from orchestrator.application.records.events import OutgoingEvent
from orchestrator.backend.ports import Store
from orchestrator.redis_rq.event_codec import read_event
from orchestrator.redis_rq.store import RedisStore
from orchestrator.testing.contracts import StoreContract
from orchestrator.testing.contracts.store_fixtures import StoreWithSharedState


class OurStore(StoreContract):
    name: ClassVar[str]

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with STORES[self.name](tmp_path) as made:
            yield made


class TestInMemoryStore(OurStore):
    name = "memory"


class TestSqliteStore(OurStore):
    name, keeps_documents = "sqlite", True


class TestRedisStore(OurStore):
    """Event streams carry the outgoing events of a RedisStore."""

    name, keeps_documents = "redis", True

    @pytest.fixture
    def event_store(self, sharing_store: StoreWithSharedState) -> StoreWithSharedState:
        pytest.skip("the event streams carry outgoing events: tests/redis_rq/test_event_log.py")

    def read_outgoing_events(self, store: StoreWithSharedState) -> list[OutgoingEvent]:
        assert isinstance(store, RedisStore)
        client, keys = store._client, store._keys
        entries: list[tuple[str, dict[str, str]]] = []
        for n in range(keys.partitions):
            entries += client.xrange(keys.events(n))  # type: ignore[arg-type]
        found: list[Any] = [
            read_event(fields, is_start=False) for _, fields in sorted(entries, key=_position)
        ]
        return found


def _position(entry: tuple[str, dict[str, str]]) -> tuple[int, int]:
    at_ms, _, n = entry[0].partition("-")
    return int(at_ms), int(n)
