"""Compensations on Redis: what was done is undone once, newest first, whoever dies meanwhile."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from effort import count
from orchestrator.coordinator.loop import Coordinator
from orchestrator.invocation.executors import Executor
from orchestrator.redis_rq.connection import Client
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.families import (
    control,
    decide_all,
    exists,
    left,
    serving,
    storm,
    taken,
    turns_with_a_lost_reply,
)
from worlds.redis_world import RedisWorld, result_fields

ROOM = {"fn": "cancel", "input": {"room": {"var": "steps.book.output.room"}}}
TRIP = document(
    step("book", compensate=ROOM),
    step("pay", "book", compensate={"fn": "refund"}),
    step("ship", "pay"),
)
"""`ship` fails, so `pay` is refunded, and then `book` is cancelled."""


def boom(inputs: Json) -> Json:
    raise ValueError("as asked")


EXECUTORS = {"ship": boom, "book": lambda inputs: {"room": 7}}


def begin(world: RedisWorld, one: Coordinator, spec: Json = TRIP) -> str:
    return world.begin(one, spec, execution_id="x")


def compensating(world: RedisWorld, one: Coordinator, spec: Json = TRIP) -> str:
    """An execution whose first compensation waits to be run."""
    weid = begin(world, one, spec)
    while world.status(weid) != "compensating":
        world.work(EXECUTORS, most=1)
        decide_all(world, one)
    return weid


def jobs(world: RedisWorld) -> list[str]:
    return [payload["step"] for payload in world.payloads()]


def undone(world: RedisWorld, weid: str) -> list[str]:
    """The compensations that were accepted, in their order."""
    return [unit for unit in world.moves(weid, "complete") if unit.endswith("#undo")]


# ---- what it is


def test_an_execution_that_compensates_is_listed_as_such_and_kept_until_it_ends(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = compensating(world, one)

    assert world.client.zscore(world.keys.index("compensating"), weid)
    assert not world.is_leaving(weid)

    world.settle(one, executors=EXECUTORS)

    assert world.client.zscore(world.keys.index("compensating"), weid) is None
    assert world.is_leaving(weid)
    assert undone(world, weid) == ["pay#undo", "book#undo"]
    assert left(world) == {}


def test_a_coordinator_that_has_just_begun_goes_on_with_the_compensations(
    world: RedisWorld,
) -> None:
    [one] = serving(world, "one")
    weid = compensating(world, one)
    world.killed("one")

    world.settle(*serving(world, "two"), executors=EXECUTORS)

    assert (world.record(weid).status, undone(world, weid)) == ("failed", ["pay#undo", "book#undo"])
    assert left(world) == {}


# ---- once


def test_the_result_of_a_compensation_counts_once(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = compensating(world, one)
    world.work(EXECUTORS, most=1)
    deliveries = taken(world)

    two.handle(deliveries)
    one.handle(deliveries)
    world.send(deliveries[0].ref.stream, deliveries[0].fields)
    decide_all(world, two)

    assert jobs(world) == ["book#undo"]
    world.settle(one, two, executors=EXECUTORS)
    assert undone(world, weid) == ["pay#undo", "book#undo"]
    assert left(world) == {}


def test_a_cancel_that_two_coordinators_hold_begins_one_compensation(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    world.work(EXECUTORS, most=1)
    decide_all(world, one)
    control(world, weid, "cancel")
    deliveries = taken(world)

    two.handle(deliveries)
    one.handle(deliveries)

    assert jobs(world) == ["book#undo"]
    world.settle(one, two, executors=EXECUTORS)
    assert left(world) == {}


@pytest.mark.parametrize("nth", range(1, 7))
def test_a_commit_whose_reply_is_lost_undoes_nothing_twice(
    world: RedisWorld, proxy: Proxy, proxied: Client, nth: int
) -> None:
    ran: list[str] = []

    def refund(inputs: Json) -> None:
        ran.append("refund")

    def cancel(inputs: Json) -> None:
        ran.append("cancel")

    executors: dict[str, Executor] = {**EXECUTORS, "refund": refund, "cancel": cancel}
    one = world.coordinator("one", proxied)
    world.start(TRIP, execution_id="x")
    dropped = turns_with_a_lost_reply(proxy, one, nth, lambda: world.work(executors))
    world.settle(one, executors=executors)

    assert dropped == 1
    assert ran == ["refund", "cancel"]
    assert undone(world, "x") == ["pay#undo", "book#undo"]
    assert left(world) == {}


def test_a_result_whose_coordinator_died_is_taken_over(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    weid = compensating(world, one)
    world.work(EXECUTORS, most=1)
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two, executors=EXECUTORS)

    assert undone(world, weid) == ["pay#undo", "book#undo"]
    assert left(world) == {}


# ---- out of order, and from strangers


def test_a_step_that_ends_after_the_compensations_began_is_not_undone_and_changes_nothing(
    world: RedisWorld,
) -> None:
    [one] = serving(world)
    spec = document(step("book", compensate=ROOM), step("slow", compensate={"fn": "never"}), step("ship"))
    weid = begin(world, one, spec)
    payloads = {payload["step"]: payload for payload in iter(world.pop, None)}
    world.send(payloads["book"]["events"], result_fields(payloads["book"], {"room": 7}))
    control(world, weid, "cancel")
    one.handle(sorted(taken(world), key=lambda delivery: delivery.fields["type"] == "control"))
    assert jobs(world) == ["book#undo"]

    world.send(payloads["slow"]["events"], result_fields(payloads["slow"], {"n": 1}))
    world.settle(one)

    assert world.counter("stale") == 1
    assert undone(world, weid) == ["book#undo"]
    assert world.record(weid).steps["slow"].status == "cancelled"
    assert left(world) == {}


FORGED: dict[str, dict[str, str]] = {
    "a result": {"type": "result", "token": "guess-0", "output": "{}"},
    "a loss": {"type": "lost", "token": "guess-0"},
    "a start": {"type": "started", "token": "guess-0"},
    "a deadline": {"type": "deadline", "token": "guess-0"},
    "a retry": {"type": "retry", "token": "0"},
    "a wake": {"type": "wake", "token": "0"},
}


@pytest.mark.parametrize("unit", ["pay#undo", "ship#undo", "nobody#undo", "pay#0", "pay#undo#undo"])
@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED)
def test_forged_news_of_a_compensation_change_nothing(
    world: RedisWorld, fields: dict[str, str], unit: str
) -> None:
    [one] = serving(world)
    weid = compensating(world, one)
    version = world.record(weid).version
    forged = {"execution": weid, "step": unit, "run_id": "0", "attempt": "1", **fields}
    world.send(world.keys.events(1), forged)
    decide_all(world, one)

    assert world.record(weid).version == version
    world.settle(one, executors=EXECUTORS)
    assert undone(world, weid) == ["pay#undo", "book#undo"]
    assert left(world).keys() <= {"dead"}
    assert not [letter for letter in world.dead() if "internal" in letter["reason"]]


# ---- everything at once


@pytest.mark.parametrize("seed", range(count(2, 6)))
def test_compensations_in_a_storm_undo_exactly_what_was_done(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    spec = document(
        *(step(f"s{n}", compensate={"fn": "undo", "retry": 3}) for n in range(4)),
        step("end", "s0 s1 s2 s3", compensate={"fn": "undo"}),
        step("last", "end"),
    )

    def unlucky(inputs: Json) -> Json:
        if chance.random() < 0.15:
            raise ValueError("bad luck")
        return inputs

    names = [f"x{n}" for n in range(5)]
    for name in names:
        world.start(spec, execution_id=name)

    def over() -> bool:
        world.age_timers(10_000)
        for name in names:
            if exists(world, name) and not world.record(name).is_final and chance.random() < 0.03:
                control(world, name, "cancel", stream=world.keys.events(chance.randrange(8)))
        return all(exists(world, name) and world.record(name).is_final for name in names)

    executors = dict.fromkeys(("s0", "s1", "s2", "s3", "end", "last", "undo"), unlucky)
    storm(world, coordinators, chance, over, executors)

    for name in names:
        record = world.record(name)
        completed = Counter(world.moves(name, "complete"))
        assert set(completed.values()) <= {1}, completed
        if record.status == "complete":
            assert undone(world, name) == []
            continue
        done = [step_id for step_id in world.moves(name, "complete") if "#" not in step_id]
        begun = list(dict.fromkeys(unit for unit in world.moves(name, "in_progress") if "#" in unit))
        assert begun == [f"{step_id}#undo" for step_id in reversed(done) if step_id != "last"]
        failed = [unit for unit in world.moves(name, "failed") if "#" in unit]
        assert record.compensated in ((not failed), None)
    assert all("cannot be cancelled" in letter["reason"] for letter in world.dead())
    assert left(world).keys() <= {"dead"}
