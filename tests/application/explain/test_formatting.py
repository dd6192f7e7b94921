"""Statuses, times, durations and errors as short text."""

from __future__ import annotations

import pytest

from orchestrator.application.explain.formatting import (
    format_count,
    format_countdown,
    format_duration,
    format_error,
    format_facts,
    format_interval,
    format_item_counts,
    format_past_time,
    humanize,
)
from orchestrator.application.records.step_record import ItemCounts
from worlds.records import NOW, NOW_MS


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (1.26, "1.3 s"),
        (59.96, "1 m 0 s"),
        (119.7, "2 m 0 s"),
        (125.4, "2 m 5 s"),
        (3_599.6, "1 h 0 m"),
        (7_325.0, "2 h 2 m"),
        (86_399.6, "1 d 0 h"),
        (200_000.0, "2 d 7 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text


def test_a_status_has_spaces_and_a_noun_its_plural() -> None:
    assert humanize("in_progress") == "in progress"
    assert (format_count(1, "step"), format_count(0, "step")) == ("1 step", "0 steps")


def test_an_interval_has_no_text_while_an_end_is_unknown() -> None:
    later = "2026-01-01T00:00:02.500Z"

    assert format_interval("2026-01-01T00:00:00.000Z", later) == "2.5 s"
    assert format_interval(later, "2026-01-01T00:00:00.000Z") == "0 ms"
    assert format_interval(later, None) is None
    assert format_interval(None, later) is None


def test_a_time_is_shown_with_its_age_or_how_far_ahead_it_is() -> None:
    assert format_past_time(NOW, NOW_MS + 12_000) == f"{NOW[:10]} {NOW[11:19]} UTC, 12.0 s ago"
    assert format_past_time(NOW, NOW_MS - 1).endswith("UTC, 0 ms ago")
    assert (format_countdown(1_500, 1_000), format_countdown(1_000, 1_000)) == ("in 500 ms", "now")


def test_facts_are_aligned_and_unknown_ones_left_out() -> None:
    assert format_facts({"id": "x1", "group": None, "priority": "3"}) == ["  id        x1", "  priority  3"]
    assert format_facts({}) == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"type": "OSError", "message": "the van is late\nTraceback"}, "OSError: the van is late"),
        ({"kind": "timeout"}, "timeout"),
        ({"code": 3}, "{'code': 3}"),
    ],
)
def test_an_error_is_one_line(error: dict[str, object], text: str) -> None:
    assert format_error(error) == text


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (ItemCounts(100), "0/100 items"),
        (ItemCounts(100, out=3, settled=12, errors=1), "12/100 items, 1 failed, 3 in progress"),
    ],
)
def test_the_items_of_a_map_are_counted(counts: ItemCounts, text: str) -> None:
    assert format_item_counts(counts) == text
