"""Cron: the fields, the rejected expressions, and the slots, compared with a simulated clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import count as examples
from orchestrator.application.spec.cron import MACROS, iter_slots, next_after, parse_cron, zone_names

BEFORE, SIMULATED = 200, 1_200
"""Minutes. The simulation starts earlier, so that it does not start inside a repeated hour."""


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def local(at_ms: int, zone: str) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)):%m-%d %H:%M %z}"


def first(cron: str, zone: str, after: str, count: int) -> list[str]:
    return [local(at_ms, zone) for at_ms in islice(iter_slots(cron, zone, ms(after)), count)]


# ---- the fields


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("*/15 * * * *", "2026-01-01T00:00Z", ["01-01 00:15", "01-01 00:30", "01-01 00:45", "01-01 01:00"]),
        ("5,10 8-9 * * *", "2026-01-01T08:07Z", ["01-01 08:10", "01-01 09:05", "01-01 09:10", "01-02 08:05"]),
        ("10-50/20 0 * * *", "2026-01-01T00:15Z", ["01-01 00:30", "01-01 00:50", "01-02 00:10"]),
        ("0 0 1 jan,JUL *", "2026-01-01T00:00Z", ["07-01 00:00", "01-01 00:00"]),
        (
            "0 12 * * mon-wed",
            "2026-01-01T00:00Z",
            ["01-05 12:00", "01-06 12:00", "01-07 12:00", "01-12 12:00"],
        ),
        ("0 0 * * 0", "2026-01-01T00:00Z", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * 7", "2026-01-01T00:00Z", ["01-04 00:00", "01-11 00:00"]),
        (
            "0 0 * * fri-sun",
            "2026-01-01T00:00Z",
            ["01-02 00:00", "01-03 00:00", "01-04 00:00", "01-09 00:00"],
        ),
        ("0 0 31 * *", "2026-01-31T00:00Z", ["03-31 00:00", "05-31 00:00", "07-31 00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00Z", ["02-29 00:00", "02-29 00:00"]),
    ],
)
def test_a_cron_fires_when_its_fields_match(cron: str, after: str, expected: list[str]) -> None:
    assert first(cron, "UTC", after, len(expected)) == [f"{at} +0000" for at in expected]


def test_a_day_or_a_weekday_is_enough_when_both_are_restricted() -> None:
    either = first("0 0 10 * mon", "UTC", "2026-01-01T00:00Z", 3)

    assert either == ["01-05 00:00 +0000", "01-10 00:00 +0000", "01-12 00:00 +0000"]


@pytest.mark.parametrize("cron", ["0 0 */10 * mon", "0 0 1,11,21,31 * */6"])
def test_a_field_that_begins_with_a_star_restricts_together_with_the_other(cron: str) -> None:
    for at_ms in islice(iter_slots(cron, "UTC", ms("2026-01-01T00:00Z")), 10):
        day = datetime.fromtimestamp(at_ms / 1000, UTC)
        assert day.day in (1, 11, 21, 31)
        assert day.isoweekday() in ((1,) if "mon" in cron else (6, 7))


@pytest.mark.parametrize(
    ("macro", "second"),
    [
        ("@hourly", "01-01 01:00 +0000"),
        ("@daily", "01-02 00:00 +0000"),
        ("@midnight", "01-02 00:00 +0000"),
        ("@weekly", "01-04 00:00 +0000"),
        ("@monthly", "02-01 00:00 +0000"),
        ("@yearly", "01-01 00:00 +0000"),
        (" @Annually ", "01-01 00:00 +0000"),
    ],
)
def test_a_macro_is_short_for_a_cron(macro: str, second: str) -> None:
    assert first(macro, "UTC", "2026-01-01T00:00Z", 1) == [second]


def test_every_macro_can_be_parsed() -> None:
    assert {parse_cron(macro) == parse_cron(cron) for macro, cron in MACROS.items()} == {True}


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("", "must have five fields: minute, hour, day, month, weekday"),
        ("* * * *", "must have five fields: minute, hour, day, month, weekday"),
        ("0 * * * * *", "must have five fields: minute, hour, day, month, weekday"),
        (
            "@reboot",
            "'@reboot' is not one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly",
        ),
        ("60 * * * *", "minute '60' is not between 0 and 59"),
        ("* 24 * * *", "hour '24' is not between 0 and 23"),
        ("* * 0 * *", "day '0' is not between 1 and 31"),
        (
            "* * * 13 *",
            "month '13' is not between 1 and 12, nor "
            + ", ".join(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
        ),
        ("* * * * 8", "weekday '8' is not between 0 and 7, nor sun, mon, tue, wed, thu, fri, sat"),
        ("jan * * * *", "minute 'jan' is not between 0 and 59"),
        ("5/10 * * * *", "minute '5/10' has a step but no range: write 5-59/10"),
        ("*/0 * * * *", "minute '*/0' has a step that is not between 1 and 59"),
        ("*/90 * * * *", "minute '*/90' has a step that is not between 1 and 59"),
        ("* * * * sat-mon", "weekday 'sat-mon' goes downwards: write two ranges, with a comma"),
        ("30-10 * * * *", "minute '30-10' goes downwards: write two ranges, with a comma"),
        ("1, * * * *", "minute '' is not a number, a range such as 1-5, *, or */n"),
        ("*-5 * * * *", "minute '*-5' is not a number, a range such as 1-5, *, or */n"),
        ("1-2-3 * * * *", "minute '1-2-3' is not a number, a range such as 1-5, *, or */n"),
        ("* * L * *", "day 'L' is not between 1 and 31"),
        ("* * ? * *", "day '?' is not a number, a range such as 1-5, *, or */n"),
        ("-1 * * * *", "minute '-1' is not a number, a range such as 1-5, *, or */n"),
        ("² * * * *", "minute '²' is not a number, a range such as 1-5, *, or */n"),
        ("0 0 31 2 *", "never fires: none of its months has a day 31"),
        ("0 0 30-31 feb *", "never fires: none of its months has a day 30"),
        ("0 0 31 4,6,9,11 *", "never fires: none of its months has a day 31"),
    ],
)
def test_an_invalid_cron_is_rejected_with_a_reason(cron: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        parse_cron(cron)


def test_a_day_that_never_occurs_is_ignored_if_a_weekday_is_given() -> None:
    assert first("0 0 31 2 mon", "UTC", "2026-01-01T00:00Z", 1) == ["02-02 00:00 +0000"]


@given(st.text(max_size=40) | st.text("0123456789*/-, @LW?#", max_size=20))
def test_any_text_is_a_cron_or_is_rejected(text: str) -> None:
    try:
        parse_cron(text)
    except ValueError:
        return

    assert next_after(text, "UTC", 0) > 0


def test_a_zone_that_differs_between_machines_is_unknown() -> None:
    assert {"UTC", "Europe/Berlin", "Australia/Lord_Howe"} <= zone_names()
    assert zone_names().isdisjoint({"localtime", "Factory", "posixrules"})


# ---- clocks that go forward and back


def test_a_rare_cron_is_found() -> None:
    sundays = list(islice(iter_slots("0 0 29 2 */7", "UTC", ms("2026-01-01T00:00Z")), 3))

    assert [datetime.fromtimestamp(at / 1000, UTC).year for at in sundays] == [2032, 2060, 2088]


def test_an_hourly_cron_fires_in_both_of_two_equal_hours() -> None:
    found = first("0 * * * *", "Europe/Berlin", "2026-10-24T23:30Z", 3)

    assert found == ["10-25 02:00 +0200", "10-25 02:00 +0100", "10-25 03:00 +0100"]


def test_the_slots_of_a_skipped_day_fire_at_its_end() -> None:
    """Samoa had no 30 December in 2011."""
    found = first("0 6 * * *", "Pacific/Apia", "2011-12-29T00:00Z", 4)

    assert found == ["12-29 06:00 -1000", "12-31 00:00 +1400", "12-31 06:00 +1400", "01-01 06:00 +1400"]


class Part(NamedTuple):
    text: str
    values: frozenset[int]


def parts(least: int, most: int) -> st.SearchStrategy[Part]:
    numbers = st.integers(least, most)
    everything = Part("*", frozenset(range(least, most + 1)))
    single = numbers.map(lambda n: Part(str(n), frozenset({n})))
    steps = st.integers(1, most).map(lambda n: Part(f"*/{n}", frozenset(range(least, most + 1, n))))
    ranges = st.tuples(numbers, numbers, st.integers(1, most)).map(
        lambda r: Part(
            f"{min(r[:2])}-{max(r[:2])}/{r[2]}", frozenset(range(min(r[:2]), max(r[:2]) + 1, r[2]))
        )
    )
    lists = st.lists(single | ranges, min_size=1, max_size=3).map(
        lambda found: Part(
            ",".join(one.text for one in found), frozenset().union(*(one.values for one in found))
        )
    )
    return st.just(everything) | steps | lists


crons = st.tuples(parts(0, 59), parts(0, 23), parts(1, 31), parts(1, 12), parts(0, 7))
zones = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",  # midnight was skipped and repeated, until 2019
        "America/Havana",
        "America/Nuuk",
        "Antarctica/Troll",  # two hours
        "Asia/Kathmandu",
        "Australia/Lord_Howe",  # half an hour
        "Africa/Casablanca",
        "Pacific/Chatham",
    ]
)


def transitions(zone: str, since: date, days: int) -> list[datetime]:
    """The hours after which the clock changed."""
    hours = [
        datetime(since.year, since.month, since.day, tzinfo=UTC) + timedelta(hours=n)
        for n in range(24 * days)
    ]
    place = ZoneInfo(zone)
    return [
        one
        for one, after in pairwise(hours)
        if one.astimezone(place).utcoffset() != after.astimezone(place).utcoffset()
    ]


CHANGES = {
    zone: transitions(zone, date(2017, 1, 1), 700) + transitions(zone, date(2026, 1, 1), 365)
    for zone in (
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "America/Havana",
        "America/Nuuk",
        "Antarctica/Troll",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Pacific/Chatham",
    )
}


def simulate_slots(fields: tuple[Part, ...], zone: str, begin: datetime, minutes: int) -> list[int]:
    """Simulate a clock minute by minute and return the slots: for an hourly cron every time that the clock
    shows a matching time, otherwise the first time that it shows or skips one."""
    place = ZoneInfo(zone)
    instants = [begin + timedelta(minutes=n) for n in range(minutes)]
    shown = [one.astimezone(place).replace(tzinfo=None) for one in instants]
    fits = fitting(fields)
    if len(fields[1].values) == 24:
        return [at(one) for one, face in zip(instants, shown, strict=True) if fits(face)]
    found, furthest = set[int](), shown[0]
    for one, face in zip(instants[1:], shown[1:], strict=True):
        while furthest < face:
            furthest += timedelta(minutes=1)
            if fits(furthest):
                found.add(at(one))
    return sorted(found)


def fitting(fields: tuple[Part, ...]) -> Callable[[datetime], bool]:
    minutes, hours, days, months, weekdays = fields
    matches_day_or_weekday = not (days.text.startswith("*") or weekdays.text.startswith("*"))

    def fits(face: datetime) -> bool:
        is_day = face.day in days.values
        is_weekday = not weekdays.values.isdisjoint({face.isoweekday(), face.isoweekday() % 7})
        return (
            face.minute in minutes.values
            and face.hour in hours.values
            and face.month in months.values
            and (is_day or is_weekday if matches_day_or_weekday else is_day and is_weekday)
        )

    return fits


def at(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


@settings(max_examples=examples(40, 150))
@given(crons, zones, st.integers(0, 100), st.integers(-900, 300))
def test_a_cron_fires_when_a_simulated_clock_shows_its_time(
    fields: tuple[Part, ...], zone: str, which: int, offset: int
) -> None:
    if zone in CHANGES:
        around = CHANGES[zone][which % len(CHANGES[zone])]
    else:
        around = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=37 * which)
    begin = around + timedelta(minutes=offset)
    fields = (*fields[:3], Part(f"*,{fields[3].text}", frozenset(range(1, 13))), fields[4])
    cron = " ".join(field.text for field in fields)
    end = at(begin + timedelta(minutes=BEFORE + SIMULATED))
    simulated = simulate_slots(fields, zone, begin, BEFORE + SIMULATED)

    after = at(begin + timedelta(minutes=BEFORE))
    found = list(takewhile(lambda at_ms: at_ms < end, iter_slots(cron, zone, after)))

    assert found == [one for one in simulated if one > after], cron
