"""Timers in Redis: armed by a commit, raised by the sweep, once, whoever sweeps."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import RetrySpec
from worlds.redis_world import RedisWorld
from worlds.spec_executions import begun, coordinators, ends, raised, serve
from worlds.specs import delay, map_step, task, wait_step
from worlds.waiting import wait_until

SOON = 40
LATER = 600_000


def started(payload: dict[str, Any]) -> dict[str, str]:
    names = ("execution", "step", "run_id", "attempt", "token")
    return {"type": "started", **{name: str(payload[name]) for name in names}}


# ---- how they are armed


def test_each_timer_is_armed_under_its_own_member_at_its_time(world: RedisWorld) -> None:
    one, weid = begun(
        world,
        task("a", timeout_s=600.0),
        task("b", defer_ms=LATER),
        delay("d", LATER),
        wait_step("w", "go", timeout_ms=LATER),
        task("r", retry=RetrySpec(1, LATER), fn="fails"),
        map_step("m", [1], retry=RetrySpec(1, LATER), fn="fails"),
        timeout_s=3_600.0,
    )
    jobs = {payload["step"]: payload for payload in world.payloads()}
    world.send(jobs["a"]["events"], started(jobs["a"]))
    for unit in ("r", "m#0"):
        failure = {**started(jobs[unit]), "type": "result", "error": '{"kind": "exception", "message": "x"}'}
        world.send(jobs[unit]["events"], failure)
    one.run_once()

    record = world.record(weid)
    assert world.timers() == {
        f"deadline|{weid}|a|{jobs['a']['token']}": record.steps["a"].deadline_ms,
        f"wake|{weid}|b|0": record.steps["b"].wake_at_ms,
        f"wake|{weid}|d|0": record.steps["d"].wake_at_ms,
        f"deadline|{weid}|w|0": record.steps["w"].deadline_ms,
        f"retry|{weid}|r|1": record.steps["r"].not_before_ms,
        f"retry|{weid}|m#0|1": record.items["m#0"].not_before_ms,
        f"timeout|{weid}||": record.deadline_ms,
    }


# ---- each of them fires once


@pytest.mark.parametrize("names", [("one", "two"), ("one", "two", "three")])
def test_with_several_coordinators_every_timer_fires_once(world: RedisWorld, names: tuple[str, ...]) -> None:
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


def test_two_that_sweep_at_once_raise_a_timer_once(world: RedisWorld) -> None:
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


def test_a_timer_that_is_raised_twice_counts_once(world: RedisWorld) -> None:
    one, weid = begun(world, delay("d", SOON), task("a", "d"), delay("e", LATER))
    [member] = [member for member in world.timers() if "|d|" in member]
    serve(world, one, until=lambda: world.moves(weid, "complete"))
    kind, execution, step, token = member.split("|")

    fields = {"type": kind, "execution": execution, "step": step, "token": token}
    world.send(world.keys.events_of(weid), fields)
    one.run_once()

    assert world.counter("stale") == 1
    assert world.moves(weid, "complete").count("d") == 1


def test_a_timer_that_was_raised_by_one_and_read_by_nobody_is_not_lost(world: RedisWorld) -> None:
    first, weid = begun(world, task("a", defer_ms=1))
    wait_until(lambda: world.log("one", world.client).sweep())
    assert world.timers() == {}
    world.killed("one")
    del first

    [two] = coordinators_again(world, weid, "two")
    serve(world, two, until=ends(world, weid, "complete"))


def coordinators_again(world: RedisWorld, weid: str, *names: str) -> list[Any]:
    """Further coordinators that know the spec of an execution."""
    loaded = world.record(weid).loaded
    made = [world.coordinator(name, world.connect(), trim_every_s=1e9) for name in names]
    for one in made:
        one._starts._definitions.cache_spec(loaded)  # type: ignore[attr-defined]
        one._backend.store.cache_spec(loaded)  # type: ignore[attr-defined]
    return made


def test_a_timer_survives_the_coordinator_that_armed_it(world: RedisWorld) -> None:
    _, weid = begun(world, delay("d", SOON), task("a", "d"))
    world.killed("one")

    [two] = coordinators_again(world, weid, "two")
    serve(world, two, until=ends(world, weid, "complete"))

    assert raised(world, "wake") == [("wake", "d")]


def test_a_timer_that_comes_too_early_is_armed_again_and_changes_nothing(world: RedisWorld) -> None:
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


# ---- many of them


def test_timers_of_a_thousand_steps_are_raised_in_parts(world: RedisWorld) -> None:
    one, weid = begun(world, *(delay(f"d{n}", 1) for n in range(1_200)))

    serve(world, one, until=ends(world, weid, "complete"))

    assert len(raised(world, "wake")) == 1_200
    assert world.timers() == {}


def test_a_start_that_is_reported_twice_keeps_its_deadline(world: RedisWorld) -> None:
    one, weid = begun(world, task("a"))
    [payload] = world.payloads()
    for _ in range(2):
        world.send(payload["events"], started(payload))
        one.run_once()
        time.sleep(0.005)

    assert list(world.timers()) == [f"deadline|{weid}|a|{payload['token']}"]
