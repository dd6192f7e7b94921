"""Timers in Redis: armed by a commit, raised by the sweep, once, whoever sweeps."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from integration.specs_on_redis import begun, coordinators, ends, raised, serve, signal
from integration.world import World, wait_until
from itemworld import map_step, resets, wait_step
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import RetrySpec
from specworld import branch, delay, task

SOON = 40
LATER = 600_000


def failing_once() -> dict[str, Any]:
    calls: list[Any] = []

    def execute(inputs: Any) -> Any:
        calls.append(inputs)
        if len(calls) == 1:
            raise ValueError("once")
        return {"calls": len(calls)}

    return {"a": execute}


def started(payload: dict[str, Any]) -> dict[str, str]:
    names = ("execution", "step", "run_id", "attempt", "token")
    return {"type": "started", **{name: str(payload[name]) for name in names}}


# ---- each of them fires


def test_a_retry_waits_for_its_delay(world: World) -> None:
    one, weid = begun(world, task("a", retry=RetrySpec(1, SOON)))
    world.work(failing_once())
    one.run_once()
    step = world.record(weid).steps["a"]
    assert world.timers() == {f"retry|{weid}|a|1": step.not_before_ms}
    assert (step.status, world.waiting()) == (StepStatus.RETRY, [])

    serve(world, one, until=ends(world, weid, "complete"))

    assert raised(world, "retry") == [("retry", "a")]
    assert world.timers() == {}
    assert world.record(weid).steps["a"].attempt == 2


def test_a_deferred_step_waits_for_its_time(world: World) -> None:
    one, weid = begun(world, task("a", defer_ms=SOON))
    assert world.record(weid).steps["a"].status is StepStatus.DEFERRED
    assert list(world.timers()) == [f"wake|{weid}|a|0"]
    due_ms = world.record(weid).steps["a"].wake_at_ms

    serve(world, one, until=ends(world, weid, "complete"))

    [(entry, _)] = [(entry, one) for entry, one in world.events() if one["type"] == "wake"]
    assert due_ms is not None
    assert int(entry.partition("-")[0]) >= due_ms
    assert world.timers() == {}


def test_a_delay_ends_when_its_time_has_come(world: World) -> None:
    one, weid = begun(world, delay("d", SOON), task("a", "d"))

    serve(world, one, until=ends(world, weid, "complete"))

    assert raised(world, "wake") == [("wake", "d")]
    assert world.timers() == {}


def test_a_wait_ends_when_its_time_has_come(world: World) -> None:
    one, weid = begun(world, wait_step("w", "go", timeout_ms=SOON))
    assert list(world.timers()) == [f"deadline|{weid}|w|0"]

    serve(world, one, until=ends(world, weid, "failed"))

    error = world.record(weid).error
    assert error is not None
    assert error["kind"] == "signal_timeout"
    assert world.timers() == {}


def test_a_workflow_ends_when_its_time_has_come(world: World) -> None:
    one, weid = begun(world, task("a"), wait_step("w", "go", timeout_ms=LATER), timeout_s=SOON / 1000)
    assert set(world.timers()) == {f"timeout|{weid}||", f"deadline|{weid}|w|0"}
    assert world.timers()[f"timeout|{weid}||"] == world.record(weid).deadline_ms

    serve(world, one, until=ends(world, weid, "failed"), works=False)

    record = world.record(weid)
    assert record.error == {"kind": "timeout", "message": "the workflow exceeded its timeout (0.04 s)"}
    assert {step.status for step in record.steps.values()} == {StepStatus.CANCELLED}
    assert world.timers() == {}
    assert world.leases() == {}
    assert world.payloads() == [], "the job that waited is gone"


def test_an_attempt_ends_when_its_deadline_has_come(world: World) -> None:
    one, weid = begun(world, task("a", timeout_s=SOON / 1000))
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], started(payload))
    one.run_once()
    assert list(world.timers()) == [f"deadline|{weid}|a|{payload['token']}"]

    serve(world, one, until=ends(world, weid, "failed"), works=False)

    assert raised(world, "deadline") == [("deadline", "a")]
    assert world.timers() == {}


def test_an_item_is_tried_again_after_its_own_delay(world: World) -> None:
    one, weid = begun(world, map_step("m", [1, 2], retry=RetrySpec(1, SOON), fn="a"))
    world.work(failing_once())
    one.run_once()
    assert list(world.timers()) == [f"retry|{weid}|m#0|1"]

    serve(world, one, until=ends(world, weid, "complete"))

    assert raised(world, "retry") == [("retry", "m#0")]
    assert world.moves(weid, "in_progress").count("m#0") == 2
    assert world.timers() == {}


# ---- each of them fires once


@pytest.mark.parametrize("names", [("one", "two"), ("one", "two", "three")])
def test_with_several_coordinators_every_timer_fires_once(world: World, names: tuple[str, ...]) -> None:
    serving = coordinators(
        world,
        *(task(f"d{n}", defer_ms=SOON + n, retry=RetrySpec(1, SOON), fn="fails") for n in range(5)),
        delay("e", SOON),
        wait_step("w", "go", timeout_ms=SOON, on_timeout="continue"),
        names=names,
    )
    calls: list[Any] = []

    def fails(inputs: Any) -> Any:
        calls.append(inputs)
        if len(calls) <= 5:
            raise ValueError("the first five")
        return {}

    weid = world.begin(serving[0], "it")

    serve(world, *serving, until=ends(world, weid, "complete"), executors={"fails": fails})

    assert sorted(raised(world, "wake")) == [("wake", f"d{n}") for n in range(5)] + [("wake", "e")]
    assert sorted(raised(world, "retry")) == [("retry", f"d{n}") for n in range(5)]
    assert raised(world, "deadline") == [("deadline", "w")]
    assert len(calls) == 10
    assert (world.timers(), world.leases(), world.pending(), world.dead()) == ({}, {}, [], [])
    assert world.counter("stale") == 0


def test_two_that_sweep_at_once_raise_a_timer_once(real_world: World) -> None:
    world = real_world
    _, weid = begun(world, *(task(f"a{n}", defer_ms=1) for n in range(50)))
    time.sleep(0.005)
    logs = [world.log(name, world.connect()) for name in ("two", "three", "four")]
    barrier, sums = threading.Barrier(3), list[int]()

    def sweep(log: Any) -> None:
        barrier.wait()
        sums.append(log.sweep())

    threads = [threading.Thread(target=sweep, args=[log]) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(sums) == 50
    assert sorted(raised(world, "wake")) == sorted(("wake", f"a{n}") for n in range(50))
    assert world.status(weid) == "in_progress"


def test_a_timer_that_is_raised_twice_counts_once(world: World) -> None:
    one, weid = begun(world, delay("d", SOON), task("a", "d"), delay("e", LATER))
    [member] = [member for member in world.timers() if "|d|" in member]
    serve(world, one, until=lambda: world.moves(weid, "complete"))
    kind, execution, step, token = member.split("|")

    fields = {"type": kind, "execution": execution, "step": step, "token": token}
    world.send(world.keys.events_of(weid), fields)
    one.run_once()

    assert world.counter("stale") == 1
    assert world.moves(weid, "complete").count("d") == 1


def test_a_timer_that_was_raised_by_one_and_read_by_nobody_is_not_lost(world: World) -> None:
    first, weid = begun(world, task("a", defer_ms=1))
    wait_until(lambda: world.log("one", world.client).sweep())
    assert world.timers() == {}
    world.killed("one")
    del first

    [two] = coordinators_again(world, weid, "two")
    serve(world, two, until=ends(world, weid, "complete"))


def coordinators_again(world: World, weid: str, *names: str) -> list[Any]:
    """Further coordinators that know the spec of an execution."""
    loaded = world.record(weid).loaded
    made = [world.coordinator(name, world.connect(), trim_every_s=1e9) for name in names]
    for one in made:
        one._starts._definitions.cache_spec(loaded)  # type: ignore[attr-defined]
        one._backend.store.cache_spec(loaded)  # type: ignore[attr-defined]
    return made


def test_a_timer_survives_the_coordinator_that_armed_it(world: World) -> None:
    _, weid = begun(world, delay("d", SOON), task("a", "d"))
    world.killed("one")

    [two] = coordinators_again(world, weid, "two")
    serve(world, two, until=ends(world, weid, "complete"))

    assert raised(world, "wake") == [("wake", "d")]


def test_a_timer_that_comes_too_early_is_armed_again_and_changes_nothing(world: World) -> None:
    one, weid = begun(world, task("a", defer_ms=LATER))
    before, version = world.timers(), world.record(weid).version
    world.age_timers(LATER)  # as if the clock of Redis had jumped, and back

    one.run_once()

    assert raised(world, "wake") == [("wake", "a")]
    one.run_once()
    assert world.timers() == before
    assert world.record(weid).version == version
    assert world.record(weid).steps["a"].status is StepStatus.DEFERRED
    assert world.pending() == []


# ---- what is not needed any more leaves the set


def test_a_signal_in_time_disarms_a_wait(world: World) -> None:
    one, weid = begun(world, wait_step("w", "go", timeout_ms=LATER), wait_step("z", "end"))
    assert len(world.timers()) == 1
    signal(world, weid, "go")

    one.run_once()

    assert world.timers() == {}
    assert world.moves(weid, "complete") == ["w"]


def test_a_result_in_time_disarms_its_deadline(world: World) -> None:
    one, weid = begun(world, task("a"))
    [payload] = world.payloads()
    world.send(payload["events"], started(payload))
    one.run_once()
    assert len(world.timers()) == 1

    world.work()
    one.run_once()

    assert (world.status(weid), world.timers()) == ("complete", {})


def test_an_end_in_time_disarms_the_timeout_of_the_workflow(world: World) -> None:
    one, weid = begun(world, task("a"), timeout_s=600.0)
    assert len(world.timers()) == 1

    world.settle(one)

    assert (world.status(weid), world.timers()) == ("complete", {})


def test_an_execution_that_ends_as_it_begins_leaves_no_timer(world: World) -> None:
    _, weid = begun(world, map_step("m", []), delay("d", 0), map_step("k", "no list"), timeout_s=600.0)

    assert world.status(weid) == "failed"
    assert world.timers() == {}


def test_a_halt_disarms_everything(world: World) -> None:
    stop = task("s", branch=(branch(True, "halt"),))
    one, weid = begun(
        world,
        stop,
        delay("d", LATER),
        wait_step("w", "go", timeout_ms=LATER),
        map_step("m", [1, 2], retry=RetrySpec(1, LATER), fn="a"),
        timeout_s=600.0,
    )

    def fails(_: Any) -> Any:
        raise ValueError("boom")

    world.work({"a": fails, "s": lambda _: {}})
    one.run_once()

    assert world.status(weid) == "halted"
    assert (world.timers(), world.leases()) == ({}, {})


def test_a_set_disarms_what_it_resets(world: World) -> None:
    reset = task("s", branch=(resets({"!": {"var": "state.once"}}, "a"),))
    one, _ = begun(world, task("a", defer_ms=LATER), wait_step("w", "go", after="a", timeout_ms=LATER), reset)
    [before] = world.timers()
    assert before.endswith("|a|0")

    world.work({"s": lambda _: {"once": True}}, most=1)
    one.run_once()

    assert [member.rpartition("|")[2] for member in world.timers()] == ["1"]


def test_timers_of_a_thousand_steps_are_raised_in_parts(real_world: World) -> None:
    world = real_world
    one, weid = begun(world, *(delay(f"d{n}", 1) for n in range(1_200)))

    serve(world, one, until=ends(world, weid, "complete"))

    assert len(raised(world, "wake")) == 1_200
    assert world.timers() == {}


# ---- one member, armed anew


ARMED_THEN_DROPPED = (
    "commits.py arms (ZADD) before it disarms (ZREM), and a member has no time in it: a timer that moves"
    " within one commit is taken away as the old one"
)


def test_a_delay_that_is_itself_deferred_ends(world: World) -> None:
    one, weid = begun(world, delay("d", SOON, defer_ms=SOON))
    serve(world, one, until=lambda: raised(world, "wake"))
    one.run_once()

    assert world.status(weid) == "complete" or world.timers() != {}


def test_a_start_that_is_reported_twice_keeps_its_deadline(world: World) -> None:
    one, weid = begun(world, task("a"))
    [payload] = world.payloads()
    for _ in range(2):
        world.send(payload["events"], started(payload))
        one.run_once()
        time.sleep(0.005)

    assert list(world.timers()) == [f"deadline|{weid}|a|{payload['token']}"]
