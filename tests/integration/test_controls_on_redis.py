"""Controls on Redis: what an operator says counts once, wherever it arrives; what cannot be done is said."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from coreworld import document, step
from integration.families import control, decide_all, executions, exists, left, serving, storm, taken
from integration.specs_on_redis import signal
from integration.world import Json, Proxy, World, result_fields
from orchestrator.application.errors import Unavailable
from orchestrator.application.records.status import StepStatus
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client

TWO = document(step("a"), step("b", after="a"))
WAIT = document({"id": "w", "wait": {"signal": "go"}}, step("a", after="w"))


def begin(world: World, one: Coordinator, spec: Json = TWO, execution_id: str = "x") -> str:
    return world.begin(one, spec, execution_id=execution_id)


def reasons(world: World) -> list[str]:
    return [letter["reason"] for letter in world.dead()]


def step_status(world: World, weid: str, step_id: str) -> StepStatus:
    return world.record(weid).steps[step_id].status


# ---- wherever it arrives


@pytest.mark.parametrize("by", ["full id", "execution id"])
@pytest.mark.parametrize("partition", range(8))
def test_a_control_from_redis_cli_may_come_by_any_stream(world: World, partition: int, by: str) -> None:
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
def test_a_control_in_one_batch_with_the_start_of_its_execution_counts(world: World, first: str) -> None:
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


def test_a_cancel_takes_what_waits_from_its_queue_and_fences_what_runs(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one, document(step("a"), step("b")))
    running = world.pop()
    assert running is not None

    control(world, weid, "cancel")
    one.run_once()

    assert world.status(weid) == "cancelled"
    assert (world.payloads(), world.leases(), world.timers()) == ([], {}, {})
    world.send(running["events"], result_fields(running, {"n": 1}))
    one.run_once()
    assert world.counter("late") == 1
    assert world.record(weid).state == {}
    assert world.is_leaving(weid)
    assert left(world) == {}


def test_a_cancel_in_one_batch_with_a_result_dispatches_nothing(world: World) -> None:
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


def test_a_paused_execution_takes_results_and_dispatches_nothing_until_it_goes_on(world: World) -> None:
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


def test_a_step_on_hold_keeps_its_clock_and_rings_when_it_is_released(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one, document({"id": "d", "delay": "1s"}))
    [timer] = world.timers()
    control(world, "x", "hold", "d")
    one.run_once()
    assert (step_status(world, weid, "d"), world.timers()) == (StepStatus.ON_HOLD, {})

    step_as_it_is = json.loads(str(world.client.hget(world.keys.workflow(weid), "step:d")))
    step_as_it_is["wake_at_ms"] -= 60_000  # the time has passed meanwhile
    world.client.hset(world.keys.workflow(weid), "step:d", json.dumps(step_as_it_is))
    one._backend.drop_cached_records()
    control(world, "x", "release", "d")
    one.run_once()
    assert list(world.timers()) == [timer]
    world.settle(one)

    assert world.status(weid) == "complete"
    assert left(world) == {}


def test_a_signal_to_a_step_on_hold_is_there_when_it_is_released(world: World) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one, WAIT)
    control(world, "x", "hold", "w")
    decide_all(world, one)
    signal(world, weid, "go", {"n": 1})
    decide_all(world, one)
    assert step_status(world, weid, "w") is StepStatus.ON_HOLD

    control(world, "x", "release", "w")
    decide_all(world, two)

    assert world.record(weid).steps["w"].output == {"n": 1}
    assert world.dead() == []


def test_an_execution_that_is_cancelled_while_it_is_paused_ends(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one, document(step("a"), timeout="1h"))
    for action in ("pause", "cancel"):
        control(world, weid, action)
    world.settle(one)

    assert world.status(weid) == "cancelled"
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
    world: World, before: list[str], action: str, after: str
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
    world: World, action: str, opposite: str
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
def test_a_control_is_judged_upon_the_record_as_it_is(world: World, action: str, opposite: str) -> None:
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


def test_a_control_whose_coordinator_died_is_taken_over(world: World) -> None:
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
    real_world: World, proxy: Proxy, proxied: Client
) -> None:
    world = real_world
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
    "unknown step": ({"action": "hold", "step": "nobody"}, "has no step 'nobody' to hold"),
    "no step": ({"action": "release"}, "has no step '' to release"),
    "not paused": ({"action": "unpause"}, "cannot be unpaused: it is in_progress"),
    "not on hold": ({"action": "release", "step": "b"}, "cannot be released: it is ready"),
    "in progress": ({"action": "hold", "step": "a"}, "cannot be held: it is in_progress"),
    "a novel as its reason": ({"reason": "x" * 100_000}, "'reason'"),
    "a novel as its author": ({"by": "x" * 100_000}, "'by'"),
}


@pytest.mark.parametrize(("fields", "said"), REFUSED.values(), ids=REFUSED)
def test_a_control_that_cannot_be_done_is_refused_with_a_reason_and_changes_nothing(
    world: World, fields: dict[str, str], said: str
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


def test_a_refused_control_does_not_hold_up_the_results_of_its_batch(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    world.work()
    control(world, weid, "unpause")
    control(world, weid, "hold", "nobody")
    one.run_once()

    assert step_status(world, weid, "a") is StepStatus.COMPLETE
    assert len(reasons(world)) == 2
    assert world.pending() == []


@pytest.mark.parametrize("action", ["cancel", "pause", "unpause", "hold", "release"])
def test_an_execution_that_has_ended_is_not_changed(world: World, action: str) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    world.settle(one)
    version = world.record(weid).version

    control(world, weid, action, "a")
    world.settle(one)

    [reason] = reasons(world)
    assert "it is complete" in reason
    assert world.record(weid).version == version


def test_a_cancel_that_comes_twice_is_no_mistake(world: World) -> None:
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


def test_what_a_parent_says_to_nobody_or_too_late_is_dropped(world: World) -> None:
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


@pytest.mark.parametrize("seed", range(4))
def test_controls_in_a_storm_leave_nothing_behind(world: World, seed: int) -> None:
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


def test_the_reason_of_a_cancel_does_not_fill_redis(real_world: World) -> None:
    """A reason is written to every step that it ends, and to the history: it is short, or refused."""
    world = real_world
    [one] = serving(world)
    weid = begin(world, one, document(*(step(f"s{n}") for n in range(1_000))))
    before: Any = world.client.info("memory")
    control(world, weid, "cancel", reason="y" * 1_000)
    world.settle(one)
    after: Any = world.client.info("memory")

    assert world.status(weid) == "cancelled"
    assert after["used_memory"] - before["used_memory"] < 10_000_000
