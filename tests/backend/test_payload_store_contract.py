"""What every payload store promises."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.port_implementations import PAYLOADS
from orchestrator.application.values.payload_refs import PayloadStore

ID, OTHER = "ab" * 32, "ac" * 32
BYTES = bytes(range(256)) * 500
"""Not a text in any encoding."""


@pytest.fixture(params=PAYLOADS)
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PayloadStore]:
    with PAYLOADS[request.param](tmp_path) as made:
        yield made


def test_what_was_put_is_given_to_the_last_byte(payloads: PayloadStore) -> None:
    payloads.put(ID, BYTES)
    payloads.put(OTHER, b"")

    assert payloads.get(ID) == BYTES
    assert payloads.get(OTHER) == b""
    assert payloads.get(ID) == BYTES


def test_what_was_not_put_is_not_there(payloads: PayloadStore) -> None:
    assert payloads.get(ID) is None


def test_what_is_put_again_is_there_once_more(payloads: PayloadStore) -> None:
    payloads.put(ID, b"damaged")
    payloads.put(ID, BYTES)

    assert payloads.get(ID) == BYTES


def test_many_may_put_and_get_the_same_at_once(payloads: PayloadStore) -> None:
    def turn(n: int) -> bool:
        payloads.put(ID, BYTES)
        return payloads.get(ID) == BYTES

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(turn, range(20)))


def test_a_few_megabytes_are_nothing_special(payloads: PayloadStore) -> None:
    payloads.put(ID, BYTES * 40)

    assert payloads.get(ID) == BYTES * 40
