"""The ruling on schedules, 20: what a cron means where clocks are put forward and back."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from orchestrator.application.spec.cron import iter_slots

BERLIN, LORD_HOWE = "Europe/Berlin", "Australia/Lord_Howe"


def after(moment: str, cron: str, zone: str, count: int) -> list[str]:
    """The next slots, as a clock in that zone shows them."""
    since_ms = int(datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    found = islice(iter_slots(cron, zone, since_ms), count)
    return [f"{datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)):%d. %H:%M %z}" for at_ms in found]


# ---- a clock is put forward: in Berlin from 02:00 to 03:00, on Lord Howe from 02:00 to 02:30


def test_ruling_20_a_local_time_that_does_not_exist_fires_at_the_next_instant_that_does() -> None:
    found = after("2026-03-28T12:00", "30 2 * * *", BERLIN, 2)

    assert found == ["29. 03:00 +0200", "30. 02:30 +0200"]


def test_ruling_20_several_local_times_that_do_not_exist_are_one_slot() -> None:
    assert after("2026-03-29T00:00", "*/20 2-3 * * *", BERLIN, 4) == [
        "29. 03:00 +0200",
        "29. 03:20 +0200",
        "29. 03:40 +0200",
        "30. 02:00 +0200",
    ]


def test_ruling_20_half_an_hour_that_does_not_exist_is_no_exception() -> None:
    found = after("2026-10-03T12:00", "15 2 * * *", LORD_HOWE, 2)

    assert found == ["04. 02:30 +1100", "05. 02:15 +1100"]


# ---- a clock is put back: in Berlin from 03:00 to 02:00, on Lord Howe from 02:00 to 01:30


def test_ruling_20_a_local_time_that_exists_twice_fires_once_and_that_is_the_first() -> None:
    found = after("2026-10-24T12:00", "30 2 * * *", BERLIN, 2)

    assert found == ["25. 02:30 +0200", "26. 02:30 +0100"]


def test_ruling_20_a_call_between_the_two_slots_does_not_see_the_second() -> None:
    found = after("2026-10-25T02:45", "*/15 2 * * *", BERLIN, 1)

    assert found == ["26. 02:00 +0100"]


def test_ruling_20_half_an_hour_that_exists_twice_is_no_exception() -> None:
    found = after("2026-04-04T12:00", "45 1 * * *", LORD_HOWE, 2)

    assert found == ["05. 01:45 +1100", "06. 01:45 +1030"]


# ---- a cron for every hour names no local time: it follows the clock


@pytest.mark.parametrize("cron", ["*/30 * * * *", "0,30 0-23 * * *", "*/30 */1 * * *"])
def test_ruling_20_a_cron_for_every_hour_goes_on_while_an_hour_is_repeated(cron: str) -> None:
    assert after("2026-10-25T01:45", cron, BERLIN, 6) == [
        "25. 02:00 +0200",
        "25. 02:30 +0200",
        "25. 02:00 +0100",
        "25. 02:30 +0100",
        "25. 03:00 +0100",
        "25. 03:30 +0100",
    ]


def test_ruling_20_a_cron_for_every_hour_makes_up_for_no_hour_that_never_was() -> None:
    assert after("2026-03-29T00:45", "30 * * * *", BERLIN, 3) == [
        "29. 01:30 +0100",
        "29. 03:30 +0200",
        "29. 04:30 +0200",
    ]
