"""Controls on Redis: what an operator says counts once, wherever it arrives; what cannot be done is said."""

from __future__ import annotations

import random
from typing import Any

import pytest

from effort import count
from orchestrator.application.errors import Unavailable
from orchestrator.application.records.status import StepStatus
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.families import control, decide_all, executions, exists, left, serving, storm, taken
from worlds.redis_world import RedisWorld
from worlds.spec_executions import signal

TWO = document(step("a"), step("b", after="a"))
WAIT = document({"id": "w", "wait": {"signal": "go"}}, step("a", after="w"))


def begin(world: RedisWorld, one: Coordinator, spec: Json = TWO, execution_id: str = "x") -> str:
    return world.begin(one, spec, execution_id=execution_id)


def reasons(world: RedisWorld) -> list[str]:
    return [letter["reason"] for letter in world.dead()]


def step_status(world: RedisWorld, weid: str, step_id: str) -> StepStatus:
    return world.record(weid).steps[step_id].status


# ---- wherever it arrives


@pytest.mark.parametrize("by", ["full id", "execution id"])
@pytest.mark.parametrize("partition", range(8))
def test_a_control_from_redis_cli_may_come_by_any_stream(world: RedisWorld, partition: int, by: str) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    named = weid if by == "full id" else "x"

    world.client.execute_command(  # type: ignore[no-untyped-call]
        *f"XADD orchestrator:events:{partition} * type control action cancel execution {named}".split(),
        *("reason", "wrong customer", "by", "ada"),
    )
    world.settle(one, two)

    record = world.record(weid)
    assert record.status == "cancelled"
    assert record.cancelled is not None
    assert (record.cancelled["reason"], record.cancelled["by"]) == ("wrong customer", "ada")
    assert left(world) == {}


@pytest.mark.parametrize("first", ["start", "control"])
def test_a_control_in_one_batch_with_the_start_of_its_execution_counts(world: RedisWorld, first: str) -> None:
    """No coordinator was there: what a producer and an operator have sent meanwhile comes at once."""
    [one] = serving(world)
    if first == "control":
        control(world, "x", "cancel")
    world.start(TWO, execution_id="x")
    world.start(TWO, execution_id="other")
    if first == "start":
        control(world, "x", "cancel")

    world.settle(one)

    assert world.record("x").status == "cancelled"
    assert world.record("other").status == "complete"
    assert left(world) == {}


# ---- what follows from it


def test_a_cancel_in_one_batch_with_a_result_dispatches_nothing(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    world.work()
    control(world, weid, "cancel")

    one.run_once()

    assert world.status(weid) == "cancelled"
    assert world.moves(weid, "in_progress") in (["a"], ["a", "b"])
    assert (world.payloads(), world.leases()) == ([], {})
    world.settle(one)
    assert left(world) == {}


def test_a_paused_execution_takes_results_and_dispatches_nothing_until_it_goes_on(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    control(world, "x", "pause")
    decide_all(world, one)
    assert world.client.zscore(world.keys.index("paused"), weid)

    world.work()
    decide_all(world, two)
    assert step_status(world, weid, "a") is StepStatus.COMPLETE
    assert world.payloads() == []
    assert world.status(weid) == "paused"

    control(world, "x", "unpause")
    world.settle(one, two)

    assert world.status(weid) == "complete"
    assert world.client.zrange(world.keys.index("paused"), 0, -1) == []
    assert left(world) == {}


# ---- once


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ([], "cancel", "cancelled"),
        ([], "pause", "paused"),
        (["pause"], "unpause", "in_progress"),
        ([], "hold", "on_hold"),
        (["hold"], "release", "waiting"),
    ],
)
def test_a_control_that_two_coordinators_hold_counts_once_and_is_refused_by_nobody(
    world: RedisWorld, before: list[str], action: str, after: str
) -> None:
    """What the second one would refuse, because it is so already, the first one has done."""
    one, two = serving(world, "one", "two")
    weid = begin(world, one, WAIT)
    for earlier in before:
        control(world, "x", earlier, "w")
        decide_all(world, one)
    control(world, "x", action, "w")
    deliveries = taken(world)

    two.handle(deliveries)
    noted = len(world.history(weid))
    one.handle(deliveries)

    assert after in (world.status(weid), step_status(world, weid, "w"))
    assert len(world.history(weid)) == noted
    assert (world.dead(), world.pending()) == ([], [])


@pytest.mark.parametrize(
    ("action", "opposite"), [("pause", "unpause"), ("hold", "release")], ids=["pause", "hold"]
)
def test_a_control_that_was_taken_back_meanwhile_does_not_come_again(
    world: RedisWorld, action: str, opposite: str
) -> None:
    """Its first holder was stopped for longer than the others wait, and then goes on."""
    slow, quick = serving(world, "slow", "quick")
    begin(world, slow, WAIT)
    control(world, "x", action, "w")
    held = taken(world)
    quick.handle(held)
    control(world, "x", opposite, "w")
    decide_all(world, quick)

    slow.handle(held)

    record = world.record("x")
    assert (record.status, record.steps["w"].status) == ("in_progress", "waiting")
    assert (world.dead(), world.pending()) == ([], [])


@pytest.mark.parametrize(
    ("action", "opposite"), [("pause", "unpause"), ("hold", "release")], ids=["pause", "hold"]
)
def test_a_control_is_judged_upon_the_record_as_it_is(world: RedisWorld, action: str, opposite: str) -> None:
    """The coordinator to which it comes remembers the record as it was before somebody else changed it."""
    one, two = serving(world, "one", "two")
    begin(world, one, WAIT)
    control(world, "x", action, "w")
    two.handle(taken(world))

    control(world, "x", opposite, "w")
    one.handle(taken(world))

    record = world.record("x")
    assert (record.status, record.steps["w"].status) == ("in_progress", "waiting")
    assert (world.dead(), world.pending()) == ([], [])


def test_a_control_whose_coordinator_died_is_taken_over(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    weid = begin(world, one)
    control(world, weid, "cancel")
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")

    two.run_once()

    assert world.status(weid) == "cancelled"
    assert left(world) == {}


def test_a_control_whose_reply_is_lost_is_not_refused_the_second_time(
    world: RedisWorld, proxy: Proxy, proxied: Client
) -> None:
    one = world.coordinator("one", proxied)
    weid = begin(world, one, WAIT)
    control(world, weid, "pause")
    one.handle(one._log.read(10, 0))
    control(world, weid, "unpause")
    deliveries = one._log.read(10, 0)
    proxy.drop_reply_of("EVALSHA")

    with pytest.raises(Unavailable):
        one.handle(deliveries)
    one.resume_unfinished()

    assert world.status(weid) == "in_progress"
    assert (world.dead(), world.pending()) == ([], [])


# ---- refused


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "unknown execution": ({"execution": "nobody"}, "'nobody'"),
    "unknown full id": ({"execution": "0123#nobody"}, "0123#nobody"),
    "no execution": ({"execution": ""}, "'execution' is missing"),
    "an id that is none": ({"execution": "a b\n\0|"}, "a b"),
    "unknown action": ({"action": "explode"}, "unknown action 'explode'"),
    "no action": ({"action": ""}, "'action' is missing"),
    "no step": ({"action": "release"}, "has no step '' to release"),
    "a novel as its reason": ({"reason": "x" * 100_000}, "'reason'"),
    "a novel as its author": ({"by": "x" * 100_000}, "'by'"),
}


@pytest.mark.parametrize(("fields", "said"), REFUSED.values(), ids=REFUSED)
def test_a_control_that_cannot_be_done_is_refused_with_a_reason_and_changes_nothing(
    world: RedisWorld, fields: dict[str, str], said: str
) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    version = world.record(weid).version
    sent = {"type": "control", "action": "cancel", "execution": "x", **fields}
    world.send(world.keys.events(3), sent)
    one.run_once()

    [reason] = reasons(world)
    assert said in reason
    assert world.record(weid).version == version
    world.settle(one)
    assert world.status(weid) == "complete"
    assert list(left(world)) == ["dead"]


def test_a_refused_control_does_not_hold_up_the_results_of_its_batch(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    world.work()
    control(world, weid, "unpause")
    control(world, weid, "hold", "nobody")
    one.run_once()

    assert step_status(world, weid, "a") is StepStatus.COMPLETE
    assert len(reasons(world)) == 2
    assert world.pending() == []


def test_a_cancel_that_comes_twice_is_no_mistake(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    control(world, weid, "cancel", reason="first")
    control(world, weid, "cancel", reason="second")
    one.run_once()
    control(world, weid, "cancel", reason="third")
    one.run_once()

    cancelled = world.record(weid).cancelled
    assert cancelled is not None
    assert cancelled["reason"] == "first"
    assert left(world) == {}


def test_what_a_parent_says_to_nobody_or_too_late_is_dropped(world: RedisWorld) -> None:
    """Whoever sends it says that they do not mind; a dead letter would be of use to nobody."""
    [one] = serving(world)
    begin(world, one, document(step("a", compensate={"fn": "undo"}), step("b", after="a")))
    world.work()
    one.run_once()
    control(world, "x", "cancel")
    one.run_once()
    assert world.record("x").status == "compensating"

    control(world, "nobody", "cancel", parent="1")
    control(world, "x", "cancel", parent="1")
    world.settle(one)

    assert world.record("x").status == "cancelled"
    assert left(world) == {}


# ---- everything at once


@pytest.mark.parametrize("seed", range(count(2, 4)))
def test_controls_in_a_storm_leave_nothing_behind(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    spec = document(step("a"), {"id": "w", "wait": {"signal": "go"}}, step("b", "a w"), step("c", "b"))
    names = [f"x{n}" for n in range(6)]
    for name in names:
        world.start(spec, execution_id=name)

    def weather() -> bool:
        known = [name for name in names if exists(world, name)]
        for name in known:
            action = chance.choice(["pause", "unpause", "hold", "release", "signal", "nothing", "nothing"])
            stream = world.keys.events(chance.randrange(8))
            if action == "signal":
                signal(world, name, "go", stream=stream)
            elif action != "nothing":
                control(world, name, action, chance.choice("abcw"), stream)
        weather.rounds += 1  # type: ignore[attr-defined]
        return len(known) == len(names) and weather.rounds > 25  # type: ignore[attr-defined]

    weather.rounds = 0  # type: ignore[attr-defined]
    storm(world, coordinators, chance, weather)
    for name in names:
        if not world.record(name).is_final:
            control(world, name, "cancel")
    world.settle(*coordinators)

    for name in executions(world):
        assert world.record(name).status in ("complete", "cancelled")
        completed = world.moves(name, "complete")
        assert len(completed) == len(set(completed))
    assert all("cannot be" in reason for reason in reasons(world))
    assert left(world).keys() <= {"dead"}


def test_the_reason_of_a_cancel_does_not_fill_redis(world: RedisWorld) -> None:
    """A reason is written to every step that it ends, and to the history: it is short, or refused."""
    [one] = serving(world)
    weid = begin(world, one, document(*(step(f"s{n}") for n in range(1_000))))
    before: Any = world.client.info("memory")
    control(world, weid, "cancel", reason="y" * 1_000)
    world.settle(one)
    after: Any = world.client.info("memory")

    assert world.status(weid) == "cancelled"
    assert after["used_memory"] - before["used_memory"] < 10_000_000
