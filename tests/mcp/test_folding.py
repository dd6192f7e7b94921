"""Folding: every result is small enough, and says what it left out."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.mcp.folding import MAX_CHARS, count_chars, fold


def nested(depth: int, breadth: int) -> Any:
    return "x" * 50 if depth == 0 else {f"k{n}": nested(depth - 1, breadth) for n in range(breadth)}


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        ["x" * 100] * 10_000,
        list(range(100_000)),
        {f"key{n}": n for n in range(10_000)},
        {"k" * 30_000: 1},
        nested(8, 4),
        [[[[["x" * 30_000]]]]] * 3,
        {f"step{n}": {"status": "complete", "output": {"text": "y" * 5_000}} for n in range(300)},
        '"\\\n' * 20_000,
    ],
    ids=["text", "texts", "numbers", "keys", "long key", "tree", "lists", "steps", "escapes"],
)
def test_every_result_fits_and_lists_what_it_left_out(value: Any) -> None:
    found = fold({"status": "complete", "value": value})

    assert count_chars(found) <= MAX_CHARS
    assert found["status"] == "complete"
    assert found["left_out"]
    assert all(one["path"].startswith("value") for one in found["left_out"])
    assert "get_step" in found["left_out_hint"]


def test_a_small_result_stays_as_it_is() -> None:
    result = {"status": "complete", "steps": {"a": {"output": [1, None, "x" * 10_000]}}}

    assert fold(result) is result


def test_a_text_that_is_cut_keeps_its_beginning_and_the_number_of_the_rest() -> None:
    found = fold({"output": {"a": "b" * 50_000}})

    assert found["output"]["a"] == f"{'b' * 8_000}… [42,000 of 50,000 characters left out]"
    assert found["left_out"] == [{"path": "output.a", "missing": "42,000 of 50,000 characters"}]


def test_the_list_of_what_is_left_out_is_short_too() -> None:
    found = fold({"steps": {f"s{n}": "x" * 9_000 for n in range(100)}})

    assert len(found["left_out"]) == 20
    assert found["left_out_elsewhere"] > 0
