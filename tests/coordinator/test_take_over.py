"""What a coordinator has read and not handled: who takes it over, when, and how much of it at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import mortal_coordinator
from orchestrator.backend.ports import Delivery
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.keys import GROUP
from processes import stack
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until

ONE = document(step("a"))


def left_behind(world: RedisWorld, count: int, times: int = 1) -> list[str]:
    """Starts that somebody has read, and others have taken over `times` - 1 times, and not handled."""
    log = world.log("dead")
    log.open()
    entries = [world.start(ONE) for _ in range(count)]
    log.read(count, 0)
    for _ in range(times - 1):
        world.age_pending(5_000)
        assert sum(map(len, log.reclaim(5_000, count))) == count
    world.age_pending(5_000)
    return entries


def deliveries_of(world: RedisWorld) -> dict[str, int]:
    """How often each pending event was delivered."""
    rows: Any = world.client.xpending_range(world.keys.starts, GROUP, "-", "+", 10_000)
    return {row["message_id"]: row["times_delivered"] for row in rows}


def handled_by(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The events of each call of `handle` from now on."""
    handle, calls = Coordinator.handle, list[list[str]]()

    def noted(one: Coordinator, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            calls.append([delivery.ref.entry_id for delivery in deliveries])
        handle(one, deliveries)

    monkeypatch.setattr(Coordinator, "handle", noted)
    return calls


def test_what_is_taken_over_for_the_first_time_is_handled_in_batches(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = left_behind(world, 5)
    calls = handled_by(monkeypatch)

    world.coordinator("one", batch=3).run_once()

    assert calls == [entries[:3]], "no more than a batch of a stream in a turn"
    assert list(deliveries_of(world)) == entries[3:]


def test_what_was_taken_over_before_is_handled_one_by_one_behind_the_others(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspects = left_behind(world, 3, times=2)
    others = left_behind(world, 2)
    calls = handled_by(monkeypatch)

    world.coordinator("one").run_once()

    assert calls == [others, *([entry] for entry in suspects)]
    assert world.pending() == []


def test_a_coordinator_that_is_told_to_stop_claims_no_more(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = left_behind(world, 4, times=2)
    one, stop = world.coordinator("one"), threading.Event()
    calls = handled_by(monkeypatch)
    handle = Coordinator.handle

    def stopped(one: Coordinator, deliveries: Sequence[Delivery]) -> None:
        stop.set()
        handle(one, deliveries)

    monkeypatch.setattr(Coordinator, "handle", stopped)
    one.run(stop)

    assert calls == [[first]]
    assert deliveries_of(world) == dict.fromkeys(rest, 2), "they were left as they were"


def test_to_take_over_is_given_a_while_of_each_turn(world: RedisWorld) -> None:
    entries = left_behind(world, 4, times=2)
    one = world.coordinator("one", reclaim_for_s=0.0)
    new = world.start(ONE)

    one.run_once()

    assert world.answer(new)["ok"] is True
    assert list(deliveries_of(world)) == entries[1:]
    for _ in entries:
        one.run_once()
    assert world.pending() == []


def test_what_one_could_not_take_up_at_its_beginning_comes_when_it_is_old(world: RedisWorld) -> None:
    entries = left_behind(world, 3, times=2)
    world.age_pending(0, reader="one")

    one = world.coordinator("one", reclaim_for_s=0.0)
    assert list(deliveries_of(world)) == entries[1:]
    world.age_pending(5_000, reader="one")
    one.run_once()

    assert list(deliveries_of(world)) == entries[2:]


def test_a_coordinator_that_is_slow_keeps_what_it_has_read(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six seconds pass in each of its batches, and another looks for what is left of the dead."""
    one, two = world.coordinator("one", batch=1, renew_every_s=0.0), world.log("two")
    entries = [world.start(ONE), world.send(world.keys.events(0), {"type": "x"})]
    handle, stolen = Coordinator.handle, list[list[Delivery]]()

    def slow(one: Coordinator, deliveries: Sequence[Delivery]) -> None:
        stolen.extend(batch for batch in two.reclaim(5_000, 10))
        handle(one, deliveries)
        world.age_pending(6_000, reader="one")

    monkeypatch.setattr(Coordinator, "handle", slow)
    assert one.run_once() == len(entries)

    assert stolen == []
    assert world.pending() == []


def test_what_is_renewed_counts_as_no_delivery_and_takes_nothing_from_whoever_has_it_now(
    world: RedisWorld,
) -> None:
    one, two = world.log("one"), world.log("two")
    one.open()
    entries = [world.start(ONE), world.start(ONE)]
    held = one.read(10, 0)
    world.age_pending(6_000, reader="one")
    [[taken]] = two.reclaim(5_000, 1)

    one.renew(held, 1_000)

    assert [taken.ref.entry_id] == entries[:1]
    rows: Any = world.client.xpending_range(world.keys.starts, GROUP, "-", "+", 10)
    assert [(row["consumer"], row["times_delivered"]) for row in rows] == [("two", 2), ("one", 1)]
    assert list(two.reclaim(5_000, 10)) == []


# ---- real processes that die


def test_of_three_hundred_events_the_one_that_kills_is_buried_and_no_other(
    world: RedisWorld, redis_url: str, tmp_path: Path
) -> None:
    names = [mortal_coordinator.POISON if n == 100 else f"innocent-{n}" for n in range(301)]
    entries = {name: world.start(ONE, execution_id=name) for name in names}
    with stack(redis_url, "step_functions", tmp_path) as made:
        made.module("mortal_coordinator", redis_url)
        wait_until(lambda: all(world.client.exists(world.keys.reply(one)) for one in entries.values()))
        deaths = made.log().split().count(mortal_coordinator.SAID)

    answers = {name: world.answer(entry)["ok"] for name, entry in entries.items()}
    assert [name for name, is_ok in answers.items() if not is_ok] == [mortal_coordinator.POISON]
    [letter] = world.dead()
    assert "delivered 6 times" in letter["reason"]
    assert deaths == 5, "each of its deliveries has killed one"
    assert world.pending() == []
