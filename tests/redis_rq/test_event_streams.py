"""Event streams: none is left unread when their number is lowered, none loses what is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ONE = document(step("a"))
TWO = document(step("a"), step("b", after="a"))
MANY = 12


def narrowed(world: RedisWorld, partitions: int) -> RedisWorld:
    world.keys = replace(world.keys, partitions=partitions)
    world.store = world.store_on(world.client)
    return world


def lengths(world: RedisWorld, partitions: range) -> list[int]:
    return [int(world.client.xlen(world.keys.events(n))) for n in partitions]


@pytest.mark.parametrize("world", ["real"], indirect=True)
def test_events_in_streams_that_the_setting_no_longer_has_are_read(world: RedisWorld) -> None:
    """Also those that come later: a job names the stream for its result when it is dispatched."""
    before = world.coordinator("before")
    started = [world.begin(before, TWO) for _ in range(MANY)]
    world.work(most=MANY // 2)
    del before
    world.killed("before")
    assert sum(lengths(world, range(2, 8))) > 0, "some wait beyond the setting to come"

    after = narrowed(world, 2).coordinator("after")
    world.settle(after)

    assert {world.status(weid) for weid in started} == {"complete"}
    assert Verifier(world.client, world.keys).verify_all().found == []
    world.log("after").trim()
    world.keys = Keys()
    assert world.pending() == []


def test_new_events_go_where_the_lower_setting_says(world: RedisWorld) -> None:
    world.coordinator("before")
    world.killed("before")
    one = narrowed(world, 1).coordinator("after")

    started = [world.begin(one, ONE) for _ in range(MANY)]
    world.settle(one)

    assert {world.status(weid) for weid in started} == {"complete"}
    assert lengths(world, range(1, 8)) == [0] * 7


@pytest.mark.parametrize("world", ["real"], indirect=True)
def test_coordinators_with_different_settings_read_all_streams_of_both(world: RedisWorld) -> None:
    low = narrowed(world, 1).coordinator("low")
    high = narrowed(world, 6).coordinator("high")
    started = [world.begin(high, TWO) for _ in range(MANY)]

    world.settle(low, high)

    assert {world.status(weid) for weid in started} == {"complete"}
    assert world.client.get(world.keys.max_partitions) == "6"


def test_a_coordinator_that_takes_over_reads_the_streams_of_a_higher_setting(world: RedisWorld) -> None:
    low = narrowed(world, 1).coordinator("low")
    high = narrowed(world, 6).coordinator("high")
    started = [world.begin(high, ONE) for _ in range(MANY)]
    world.work()
    world.killed("high")

    world.settle(low)

    assert {world.status(weid) for weid in started} == {"complete"}


# ---- trimming


def entries(world: RedisWorld, stream: str) -> list[str]:
    found: Any = world.client.xrange(stream)
    return [entry_id for entry_id, _ in found]


def test_streams_beyond_the_setting_are_trimmed_by_the_same_rule(world: RedisWorld) -> None:
    world.coordinator("before")
    stream = world.keys.events(7)
    sent = [world.send(stream, {"type": "continue", "execution": "x"}) for _ in range(4)]
    world.client.xreadgroup(GROUP, "before", {stream: ">"}, count=3)
    world.client.xack(stream, GROUP, sent[0], sent[2])
    log = narrowed(world, 2).log("after")
    log.open()
    log.sweep()

    log.trim()

    assert entries(world, stream) == sent[1:]


def test_what_a_consumer_that_is_gone_has_left_is_kept_through_any_trim(world: RedisWorld) -> None:
    log = world.log("one")
    log.open()
    sent = [world.start(ONE) for _ in range(5)]
    world.log("gone").read(2, 0)
    world.client.xreadgroup(GROUP, "one", {world.keys.starts: ">"}, count=3)
    world.client.xack(world.keys.starts, GROUP, *sent[2:])

    for _ in range(3):
        log.trim()

    assert entries(world, world.keys.starts) == sent
    one = world.coordinator("two")
    world.age_pending(5_000)
    one.run_once()
    assert [world.answer(entry)["ok"] for entry in sent[:2]] == [True, True]


def test_a_group_that_has_read_nothing_keeps_everything(world: RedisWorld) -> None:
    one = world.coordinator()
    world.client.xgroup_create(world.keys.starts, "audit", id="0")
    sent = [world.start(ONE) for _ in range(5)]
    world.settle(one)

    world.log().trim()

    assert entries(world, world.keys.starts) == sent


def test_ids_of_64_bits_are_compared_to_the_last_digit(world: RedisWorld) -> None:
    """As numbers of Lua these two are the same."""
    world.log().open()
    world.client.xgroup_create(world.keys.starts, "audit", id="0")
    first, second = "9007199254740993-9007199254740993", "9007199254740993-9007199254740994"
    for entry in (first, second):
        world.send(world.keys.starts, {"n": "1"}, entry)
    for group, done in ((GROUP, [first, second]), ("audit", [first])):
        world.client.xreadgroup(group, "c", {world.keys.starts: ">"})
        world.client.xack(world.keys.starts, group, *done)

    world.log().trim()

    assert entries(world, world.keys.starts) == [second]
