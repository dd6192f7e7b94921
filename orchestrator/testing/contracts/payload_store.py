"""What a payload store promises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.application.values.payload_refs import PayloadStore

ID, OTHER = "ab" * 32, "ac" * 32
BYTES = bytes(range(256)) * 500
"""Not a text in any encoding."""


class PayloadStoreContract:
    """What every payload store promises. A subclass defines the fixture `payloads`."""

    @pytest.fixture
    def payloads(self) -> PayloadStore:
        """An empty payload store. Each test gets its own."""
        raise NotImplementedError("define the fixture `payloads` in your class: it returns an empty store")

    def test_a_payload_is_loaded_to_the_last_byte(self, payloads: PayloadStore) -> None:
        payloads.put(ID, BYTES)
        payloads.put(OTHER, b"")

        assert payloads.get(ID) == BYTES
        assert payloads.get(OTHER) == b""
        assert payloads.get(ID) == BYTES

    def test_a_missing_payload_is_none(self, payloads: PayloadStore) -> None:
        assert payloads.get(ID) is None

    def test_a_second_put_replaces_the_first(self, payloads: PayloadStore) -> None:
        payloads.put(ID, b"damaged")
        payloads.put(ID, BYTES)

        assert payloads.get(ID) == BYTES

    def test_many_threads_put_and_get_the_same_payload(self, payloads: PayloadStore) -> None:
        def turn(n: int) -> bool:
            payloads.put(ID, BYTES)
            return payloads.get(ID) == BYTES

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(turn, range(20)))

    def test_a_payload_may_have_megabytes(self, payloads: PayloadStore) -> None:
        payloads.put(ID, BYTES * 40)

        assert payloads.get(ID) == BYTES * 40
