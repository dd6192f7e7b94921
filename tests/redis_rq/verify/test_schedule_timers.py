"""A schedule without a timer is found and repaired, and then starts what it missed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.application.spec.validation import check_spec
from orchestrator.cli import main
from orchestrator.redis_rq.keys import schedule_member
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.redis_world import RedisWorld

NAME = "night|ly%"
"""With characters that part the members of timers, and that stand for others in them."""
HOUR_MS = 3_600_000


@pytest.fixture
def scheduled(world: RedisWorld) -> RedisWorld:
    schedule = {"cron": "0 * * * *", "catch_up": "all"}
    world.store.register(NAME, check_spec({"name": NAME, "schedule": schedule, "steps": [{"op": "a"}]}))
    return world


def findings(world: RedisWorld, repairs: bool = False) -> list[tuple[str, str, bool]]:
    report = Verifier(world.client, world.keys, repairs=repairs).verify_all()
    return [(one.finding.code, one.finding.where, one.is_repaired) for one in report.found]


def next_ms(world: RedisWorld) -> int:
    return int(entry(world)["next_ms"])


def entry(world: RedisWorld) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(str(world.client.hget(world.keys.schedules, NAME)))
    return kept


def due_ms(world: RedisWorld) -> float | None:
    found: Any = world.client.zscore(world.keys.timers, schedule_member(NAME))
    return None if found is None else float(found)


def test_a_schedule_in_order_has_nothing_to_find(scheduled: RedisWorld) -> None:
    assert findings(scheduled) == []
    scheduled.store.schedules.pause(NAME)
    assert findings(scheduled) == [], "a schedule that is paused has no timer"


def test_a_timer_that_is_gone_is_armed_again_and_slots_start(scheduled: RedisWorld) -> None:
    world = scheduled
    slept_ms = next_ms(world) - 2 * HOUR_MS
    world.client.hset(world.keys.schedules, NAME, json.dumps({**entry(world), "next_ms": slept_ms}))
    world.client.delete(world.keys.timers)

    assert findings(world) == [("timer", f"schedule {NAME}", False)]
    assert findings(world, repairs=True) == [("timer", f"schedule {NAME}", True)]

    assert due_ms(world) == slept_ms
    assert findings(world) == []
    one = world.coordinator()
    one.run_once()
    one.run_once()
    assert entry(world)["started"] == 2


def test_a_timer_that_comes_too_late_is_put_to_the_next_slot(scheduled: RedisWorld) -> None:
    world = scheduled
    world.client.zadd(world.keys.timers, {schedule_member(NAME): next_ms(world) + HOUR_MS})

    assert findings(world, repairs=True) == [("timer", f"schedule {NAME}", True)]

    assert due_ms(world) == next_ms(world)


def test_a_timer_that_comes_early_is_only_a_hint(scheduled: RedisWorld) -> None:
    scheduled.client.zadd(scheduled.keys.timers, {schedule_member(NAME): 1})

    assert findings(scheduled) == []


def test_a_slot_that_is_under_way_explains_the_timer(scheduled: RedisWorld) -> None:
    world = scheduled
    world.client.zadd(world.keys.timers, {schedule_member(NAME): 1})
    log = world.log()
    log.open()
    log.sweep()
    assert due_ms(world) is None

    assert findings(world) == []


def test_the_timer_of_a_schedule_that_is_gone_is_taken_away(scheduled: RedisWorld) -> None:
    world = scheduled
    world.client.hdel(world.keys.schedules, NAME)

    assert findings(world, repairs=True) == [("stray", f"schedule {NAME}", True)]

    assert (due_ms(world), findings(world)) == (None, [])


def test_a_schedule_that_cannot_be_read_is_told_and_left(scheduled: RedisWorld) -> None:
    scheduled.client.hset(scheduled.keys.schedules, NAME, "{")

    assert findings(scheduled, repairs=True) == [("unreadable", f"schedule {NAME}", False)]


def test_the_command_names_the_schedule(world: RedisWorld, redis_url: str) -> None:
    daily = {"name": "daily", "schedule": {"cron": "@daily"}, "steps": [{"op": "a"}]}
    world.store.register("daily", check_spec(daily))
    world.client.delete(world.keys.timers)

    found = CliRunner().invoke(main, ["verify", "--redis-url", redis_url])
    repaired = CliRunner().invoke(main, ["verify", "--repair", "--redis-url", redis_url])

    assert (found.exit_code, repaired.exit_code) == (1, 0)
    said = "schedule daily: timer: the timer of its next slot is missing"
    assert found.stdout.splitlines() == [said, "0 executions checked; 1 finding"]
    assert repaired.stdout.splitlines()[0] == f"{said} (repaired)"
