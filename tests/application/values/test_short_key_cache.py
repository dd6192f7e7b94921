"""ShortKeyCache: short texts are computed once, long ones each time, and a full cache is emptied."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.expressions import dotted_path, jsonpath
from orchestrator.application.spec import cron
from orchestrator.application.values.short_key_cache import ShortKeyCache


def counting(**bounds: Any) -> tuple[ShortKeyCache[str], list[str]]:
    computed: list[str] = []

    def compute(text: str) -> str:
        computed.append(text)
        return text.upper()

    return ShortKeyCache(compute, **{"max_entries": 3, "max_key_chars": 4} | bounds), computed


def test_a_short_text_is_computed_once_and_a_long_one_each_time() -> None:
    cache, computed = counting()

    assert [cache[text] for text in ("abcd", "abcd", "abcde", "abcde")] == ["ABCD", "ABCD", "ABCDE", "ABCDE"]
    assert computed == ["abcd", "abcde", "abcde"]
    assert list(cache) == ["abcd"]


def test_a_full_cache_is_emptied() -> None:
    cache, computed = counting()

    for text in "abcda":
        cache[text]

    assert list(cache) == ["d", "a"]
    assert computed == list("abcda")


def test_an_exception_is_not_kept() -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    cache = ShortKeyCache(fail, max_entries=3, max_key_chars=4)

    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            cache["a"]
    assert not cache


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (dotted_path.split_path, "input." + "x." * 10_000 + "x"),
        (jsonpath.parse, "$." + "x" * 10_000),
        (cron.parse_cron, " " * 10_000 + "* * * * *"),
    ],
    ids=["split_path", "parse", "parse_cron"],
)
def test_a_hostile_text_is_not_kept(function: Any, text: str) -> None:
    cache = function.__self__
    assert isinstance(cache, ShortKeyCache)
    before = dict(cache)

    for n in range(3):
        function(text + " " * n if function is cron.parse_cron else text + "x" * n)

    assert cache == before
