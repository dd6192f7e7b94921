"""Schedules: every slot is handled once, however often fire() is called; late and overlapping slots."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.engine.schedules import (
    MAX_QUEUED_SLOTS,
    MAX_SLOTS_PER_FIRE,
    ON_TIME_MS,
    Schedule,
    apply_registration,
    fire,
    past_slots,
    slot_execution_id,
    upcoming_slots,
    wake_ms,
)
from orchestrator.application.spec.cron import iter_slots, next_after
from orchestrator.application.spec.model import ScheduleSpec
from orchestrator.redis_rq.event_codec import EXECUTION_ID

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOON = int(datetime.fromisoformat("2026-06-01T12:00+00:00").timestamp() * 1000)


def hourly(**keys: Any) -> Schedule:
    """An hourly schedule, whose next slot is at noon."""
    given = {"catch_up": "none", "overlap": "allow", "next_ms": NOON, **keys}
    return Schedule("report", "0 * * * *", "UTC", **given)


def ids(*hours: int) -> list[str]:
    """The executions of slots, by hours since noon."""
    return [slot_execution_id("report", NOON + hour * HOUR) for hour in hours]


# ---- slots


def test_nothing_starts_before_its_time() -> None:
    before = hourly()

    assert fire(before, NOON - 1, ()) == (before, [])


def test_a_slot_starts_when_it_has_come_and_the_next_one_is_awaited() -> None:
    after, starts = fire(hourly(), NOON, ())

    assert starts == ["report:20260601T120000Z"]
    assert (after.next_ms, after.last, after.started) == (NOON + HOUR, "report:20260601T120000Z", 1)
    assert wake_ms(after, NOON) == NOON + HOUR


def test_who_looks_again_starts_nothing_again() -> None:
    after, _ = fire(hourly(overlap="queue"), NOON, ())

    assert fire(after, NOON + 1, after.open) == (after, [])


@pytest.mark.parametrize("catch_up", ["none", "one", "all"])
def test_a_slot_that_is_a_minute_late_is_on_time(catch_up: Any) -> None:
    after, starts = fire(hourly(catch_up=catch_up), NOON + ON_TIME_MS, ())

    assert (starts, after.missed) == (ids(0), 0)


@pytest.mark.parametrize(
    ("catch_up", "expected", "missed"), [("none", [], 4), ("one", [3], 3), ("all", [0, 1, 2, 3], 0)]
)
def test_slots_that_were_missed_are_caught_up_on_as_the_schedule_says(
    catch_up: Any, expected: list[int], missed: int
) -> None:
    after, starts = fire(hourly(catch_up=catch_up), NOON + 3 * HOUR + ON_TIME_MS + 1, ())

    assert (starts, after.missed, after.next_ms) == (ids(*expected), missed, NOON + 4 * HOUR)


@pytest.mark.parametrize(("catch_up", "expected"), [("none", [3]), ("one", [2, 3]), ("all", [0, 1, 2, 3])])
def test_a_slot_that_is_on_time_starts_beside_those_that_were_missed(
    catch_up: Any, expected: list[int]
) -> None:
    after, starts = fire(hourly(catch_up=catch_up), NOON + 3 * HOUR, ())

    assert (starts, after.missed) == (ids(*expected), 4 - len(expected))


def test_an_outage_of_a_month_is_caught_up_on_in_parts() -> None:
    schedule, now_ms, started = replace(hourly(catch_up="all"), cron="*/5 * * * *"), NOON + 30 * DAY, 0
    rounds = []

    while (due_ms := wake_ms(schedule, now_ms)) is not None and due_ms <= now_ms:
        schedule, starts = fire(schedule, now_ms, ())
        rounds.append(len(starts))
        started += len(starts)

    assert rounds == [MAX_SLOTS_PER_FIRE] * 8 + [641]
    assert started == schedule.started == 30 * 288 + 1
    assert schedule.next_ms == now_ms + 5 * MINUTE


# ---- overlaps


def test_a_slot_whose_predecessor_is_open_is_skipped_and_counted() -> None:
    first, _ = fire(hourly(overlap="skip"), NOON, ())

    second, starts = fire(first, NOON + HOUR, first.open)
    assert (starts, second.skipped, second.open) == ([], 1, first.open)
    third, starts = fire(second, NOON + 2 * HOUR, ())

    assert (starts, third.skipped, third.open) == (ids(2), 1, tuple(ids(2)))


def test_slots_wait_for_each_other_in_order() -> None:
    schedule, starts = fire(hourly(overlap="queue"), NOON, ())
    for hour in (1, 2, 3):
        schedule, more = fire(schedule, NOON + hour * HOUR, schedule.open)
        starts += more
    assert (starts, schedule.queued) == (ids(0), tuple(NOON + hour * HOUR for hour in (1, 2, 3)))

    for _ in range(4):
        schedule, more = fire(schedule, NOON + 3 * HOUR + 1, ())  # the open execution has ended
        starts += more

    assert (starts, schedule.open, schedule.queued) == (ids(0, 1, 2, 3), (), ())
    assert (schedule.started, schedule.missed, schedule.skipped) == (4, 0, 0)


def test_overlapping_executions_are_not_kept_in_mind() -> None:
    after, starts = fire(hourly(catch_up="all"), NOON + 2 * HOUR, ())

    assert (len(starts), after.open) == (3, ())


def test_a_queue_that_is_full_takes_no_more() -> None:
    full = hourly(overlap="queue", open=("x",), queued=tuple(range(MAX_QUEUED_SLOTS)))

    after, starts = fire(full, NOON, {"x"})

    assert (starts, after.queued, after.skipped) == ([], full.queued, 1)
    assert wake_ms(after, NOON) == NOON + HOUR


def test_who_catches_up_on_everything_leaves_what_the_queue_cannot_hold_for_later() -> None:
    crowd = tuple(range(MAX_QUEUED_SLOTS - 1))
    full = hourly(overlap="queue", catch_up="all", open=("x",), queued=crowd)
    now_ms = NOON + 5 * HOUR

    behind, starts = fire(full, now_ms, {"x"})
    assert (starts, behind.queued, behind.skipped) == ([], (*crowd, NOON), 0)
    assert (behind.next_ms, wake_ms(behind, now_ms)) == (NOON + HOUR, now_ms + ON_TIME_MS)
    assert fire(behind, now_ms, {"x"}) == (behind, [])
    later, starts = fire(behind, now_ms, ())

    assert (starts, len(later.queued)) == ([slot_execution_id("report", 0)], MAX_QUEUED_SLOTS - 1)
    assert (later.next_ms, wake_ms(later, now_ms)) == (NOON + HOUR, NOON + HOUR)


# ---- pauses


def test_a_schedule_that_is_paused_starts_nothing_and_is_not_awaited() -> None:
    paused = hourly(overlap="queue", is_paused=True, open=("x", "y"), queued=(1,))

    after, starts = fire(paused, NOON + DAY, {"y"})

    assert (starts, wake_ms(after, NOON + DAY)) == ([], None)
    assert after == replace(paused, open=("y",))


def test_what_passed_in_a_pause_was_missed() -> None:
    paused, _ = fire(hourly(is_paused=True, catch_up="one"), NOON + 3 * HOUR, ())

    after, starts = fire(replace(paused, is_paused=False), NOON + 3 * HOUR + 10 * MINUTE, ())

    assert (starts, after.missed) == (ids(3), 3)


# ---- registrations


SPEC = ScheduleSpec("0 * * * *", "UTC", "one", "skip")


def test_a_schedule_begins_with_the_first_slot_after_its_registration() -> None:
    made = apply_registration("report", SPEC, None, NOON)

    assert made == Schedule("report", "0 * * * *", "UTC", "one", "skip", next_ms=NOON + HOUR)


def test_the_same_times_go_on_where_they_were() -> None:
    before = hourly(open=("x",), queued=(1,), is_paused=True, started=7, last="x")

    after = apply_registration("report", SPEC, before, NOON + DAY)

    assert after == replace(before, catch_up="one", overlap="skip")


@pytest.mark.parametrize(
    ("spec", "next_ms"),
    [
        (ScheduleSpec("30 * * * *"), NOON + DAY + HOUR // 2),
        (ScheduleSpec("0 * * * *", "Asia/Kathmandu"), NOON + DAY + HOUR // 4),
    ],
)
def test_other_times_start_anew_and_keep_open_executions(spec: ScheduleSpec, next_ms: int) -> None:
    before = hourly(open=("x",), queued=(1,), started=7, overlap="queue")

    after = apply_registration("report", spec, before, NOON + DAY)

    assert (after.next_ms, after.open, after.queued, after.started) == (next_ms, ("x",), (1,), 7)


# ---- names and words


def test_the_next_slots_can_be_seen() -> None:
    assert upcoming_slots(hourly(), 3) == [NOON, NOON + HOUR, NOON + 2 * HOUR]


def test_the_last_slots_can_be_seen() -> None:
    assert past_slots(hourly(), 3) == [NOON - HOUR, NOON - 2 * HOUR, NOON - 3 * HOUR]


@pytest.mark.parametrize(
    "cron", ["* * * * *", "0 9 * * 1-5", "30 2 1 * *", "0 0 29 2 *", "* 9 * * *", "*/7 3 */9 * *"]
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
def test_past_slots_are_those_before_the_next_one_without_a_gap(cron: str, zone: str) -> None:
    schedule = replace(hourly(), cron=cron, timezone=zone, next_ms=next_after(cron, zone, NOON))

    found = past_slots(schedule, 4)

    assert found == sorted(found, reverse=True)
    following = iter_slots(cron, zone, found[-1])
    rest = list(takewhile(lambda at_ms: at_ms <= schedule.next_ms, following))
    assert rest == [*found[-2::-1], schedule.next_ms]
    assert len(found) == 4 or cron == "0 0 29 2 *"


def test_a_schedule_comes_back_as_it_was_also_with_fields_of_a_newer_release() -> None:
    schedule = hourly(open=("x",), queued=(1, 2), last="x", is_paused=True)
    written = json.loads(json.dumps(schedule.as_dict()))

    assert written["schema"] == 1
    assert Schedule.from_dict({**written, "newer": 1}) == schedule


@pytest.mark.parametrize(
    "name", ["report", "daily.report-2_b", "a:b", "täglich / 6 Uhr", "", "x" * 500, "a|b"]
)
def test_the_id_of_a_slot_is_one_that_an_execution_may_have(name: str) -> None:
    found = slot_execution_id(name, NOON)

    assert EXECUTION_ID.fullmatch(found)
    assert found.endswith(":20260601T120000Z")


@given(st.lists(st.text(max_size=12) | st.text("ab :.", max_size=4), unique=True, min_size=2, max_size=8))
def test_two_schedules_never_share_an_execution(names: list[str]) -> None:
    assert len({slot_execution_id(name, NOON) for name in names}) == len(names)


# ---- any course of things


CRONS = ("* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *")
moments = st.lists(
    st.tuples(st.integers(0, 90 * MINUTE), st.floats(0, 1), st.booleans()), min_size=1, max_size=30
)


def slots_until(schedule: Schedule, now_ms: int) -> list[int]:
    coming = iter_slots(schedule.cron, schedule.timezone, schedule.next_ms - 1)
    return list(takewhile(lambda at_ms: at_ms <= now_ms, coming))


@given(
    st.sampled_from(CRONS),
    st.sampled_from(["none", "one", "all"]),
    st.sampled_from(["allow", "skip", "queue"]),
    moments,
)
def test_every_slot_is_handled_once_in_any_order_of_calls_and_ends(
    cron: str, catch_up: Any, overlap: Any, looks: list[tuple[int, float, bool]]
) -> None:
    spec = ScheduleSpec(cron, "Europe/Berlin", catch_up, overlap)
    schedule = first = apply_registration("report", spec, None, NOON)
    now_ms, started = NOON, list[str]()

    for passed, fraction, twice in looks:
        now_ms += passed
        still_open = set(schedule.open[: round(fraction * len(schedule.open))])
        schedule, starts = fire(schedule, now_ms, still_open)
        started += starts
        if overlap != "allow":
            assert len(schedule.open) <= 1
            assert set(schedule.open) == still_open | set(starts)
        if twice and schedule.open == tuple(still_open | set(starts)):
            assert fire(schedule, now_ms, schedule.open)[1] == []

    handled = [at_ms for at_ms in slots_until(first, now_ms) if at_ms < schedule.next_ms]
    counted = schedule.started + schedule.missed + schedule.skipped + len(schedule.queued)
    assert len(started) == len(set(started)) == schedule.started
    assert started == [
        one for one in (slot_execution_id("report", at) for at in handled) if one in set(started)
    ]
    assert counted == len(handled)
    assert schedule.missed == 0 or catch_up != "all"
    assert schedule.skipped == 0 or overlap != "allow"
    assert slots_until(schedule, now_ms) == []
