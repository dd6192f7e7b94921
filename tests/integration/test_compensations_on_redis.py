"""Compensations on Redis: what was done is undone once, newest first, whoever dies meanwhile."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from coreworld import document, step
from integration.families import (
    child_of,
    control,
    decide_all,
    exists,
    left,
    serving,
    storm,
    taken,
    turns_with_a_lost_reply,
)
from integration.specs_on_redis import signal
from integration.world import Json, Proxy, World, result_fields
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from orchestrator.worker.executors.lookup import Executor

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


def begin(world: World, one: Coordinator, spec: Json = TRIP) -> str:
    return world.begin(one, spec, execution_id="x")


def compensating(world: World, one: Coordinator, spec: Json = TRIP) -> str:
    """An execution whose first compensation waits to be run."""
    weid = begin(world, one, spec)
    while world.status(weid) != "compensating":
        world.work(EXECUTORS, most=1)
        decide_all(world, one)
    return weid


def jobs(world: World) -> list[str]:
    return [payload["step"] for payload in world.payloads()]


def undone(world: World, weid: str) -> list[str]:
    """The compensations that were accepted, in their order."""
    return [unit for unit in world.moves(weid, "complete") if unit.endswith("#undo")]


# ---- what it is


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_what_was_done_is_undone_newest_first_and_one_at_a_time(world: World, how: str) -> None:
    [one] = serving(world)
    if how == "failed":
        weid = compensating(world, one)
    else:
        weid = begin(world, one)
        for _ in range(2):
            world.work(EXECUTORS, most=1)
            decide_all(world, one)
        control(world, weid, "cancel", reason="no more")
        decide_all(world, one)

    assert jobs(world) == ["pay#undo"]
    assert world.client.zscore(world.keys.index("compensating"), weid)
    assert not world.is_leaving(weid)
    world.work(EXECUTORS, most=1)
    decide_all(world, one)
    [payload] = world.payloads()
    assert (payload["step"], payload["fn"], payload["inputs"]) == ("book#undo", "cancel", {"room": 7})
    world.settle(one, executors=EXECUTORS)

    record = world.record(weid)
    assert (record.status, record.compensated) == (how, True)
    assert undone(world, weid) == ["pay#undo", "book#undo"]
    assert world.is_leaving(weid)
    assert left(world) == {}


def test_a_coordinator_that_has_just_begun_goes_on_where_the_last_one_was(world: World) -> None:
    [one] = serving(world, "one")
    weid = compensating(world, one)
    world.killed("one")

    world.settle(*serving(world, "two"), executors=EXECUTORS)

    assert (world.record(weid).status, undone(world, weid)) == ("failed", ["pay#undo", "book#undo"])
    assert left(world) == {}


def test_a_compensation_that_fails_is_tried_again_by_the_clock_and_then_noted(world: World) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1}
    spec = document(
        step("book", compensate={"fn": "cancel"}),
        step("pay", "book", compensate={"fn": "refund", "retry": retry}),
        step("ship", "pay"),
    )
    [one] = serving(world)
    weid = compensating(world, one, spec)
    world.work({"refund": boom}, most=1)
    decide_all(world, one)
    [timer] = world.timers()
    assert timer.startswith(f"retry|{weid}|pay#undo|")

    while not world.record(weid).is_final:
        world.settle(one, executors={"refund": boom})

    record = world.record(weid)
    assert (record.status, record.compensated) == ("failed", False)
    assert record.error is not None
    assert record.error["message"] == "as asked"
    assert [error["step"] for error in record.error["compensation_errors"]] == ["pay"]
    assert undone(world, weid) == ["book#undo"]
    assert left(world) == {}


def test_a_compensation_whose_worker_was_lost_is_run_again(world: World) -> None:
    [one] = serving(world)
    weid = compensating(world, one)
    payload = world.pop()
    assert payload is not None
    world.log().sweep()  # it has left its queue, and nobody has begun
    world.age_leases(60_000)
    world.settle(one, executors=EXECUTORS)

    assert world.counter("lost") == 1
    assert world.moves(weid, "in_progress").count("pay#undo") == 3, "claimed, lost, and claimed again"
    assert undone(world, weid) == ["pay#undo", "book#undo"]
    assert left(world) == {}


def test_a_compensation_whose_workers_are_always_lost_is_noted_and_the_next_one_runs(world: World) -> None:
    [one] = serving(world)
    weid = compensating(world, one, {**TRIP, "limits": {"max_lost": 1}})
    for _ in range(2):
        payload = world.pop()
        assert payload is not None
        world.send(payload["events"], {**result_fields(payload), "type": "lost", "reason": "killed"})
        decide_all(world, one)
    world.settle(one, executors=EXECUTORS)

    record = world.record(weid)
    assert record.compensated is False
    assert undone(world, weid) == ["book#undo"]
    assert left(world) == {}


def test_a_compensation_that_exceeds_its_time_is_noted_and_the_next_one_runs(world: World) -> None:
    spec = document(
        step("book", compensate={"fn": "cancel"}),
        step("pay", "book", compensate={"fn": "refund", "timeout": "5s"}),
        step("ship", "pay"),
    )
    [one] = serving(world)
    weid = compensating(world, one, spec)
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], {**result_fields(payload), "type": "started"})
    decide_all(world, one)
    [timer] = world.timers()
    assert timer == f"deadline|{weid}|pay#undo|{payload['token']}"
    raw = json.loads(str(world.client.hget(world.keys.workflow(weid), "item:pay:undo")))
    raw["deadline_ms"] -= 60_000
    world.client.hset(world.keys.workflow(weid), "item:pay:undo", json.dumps(raw))
    one._backend.drop_cached_records()
    world.age_timers(60_000)
    world.settle(one, executors=EXECUTORS)

    record = world.record(weid)
    assert record.error is not None
    assert record.error["compensation_errors"][0]["kind"] == "timeout"
    assert undone(world, weid) == ["book#undo"]
    world.send(payload["events"], result_fields(payload, {}))
    world.settle(one)
    assert world.counter("late") == 1
    assert left(world) == {}


# ---- once


def test_the_result_of_a_compensation_counts_once(world: World) -> None:
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


def test_a_cancel_that_two_coordinators_hold_begins_one_compensation(world: World) -> None:
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
    real_world: World, proxy: Proxy, proxied: Client, nth: int
) -> None:
    world = real_world
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


def test_a_result_whose_coordinator_died_is_taken_over(world: World) -> None:
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
    world: World,
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


@pytest.mark.parametrize("action", ["cancel", "pause", "unpause", "hold", "release"])
def test_an_operator_cannot_interfere_with_compensations(world: World, action: str) -> None:
    [one] = serving(world)
    weid = compensating(world, one)
    control(world, weid, action, "pay")
    signal(world, weid, "go", {"n": 1})

    world.settle(one, executors=EXECUTORS)

    [letter] = world.dead()
    assert "cannot be" in letter["reason"]
    assert undone(world, weid) == ["pay#undo", "book#undo"]


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
    world: World, fields: dict[str, str], unit: str
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


# ---- in families


def test_a_child_that_its_parent_cancels_undoes_what_it_did(world: World) -> None:
    one, two = serving(world, "one", "two")
    child = document(step("book", compensate=ROOM), step("ship", "book"))
    spec = document(step("before", compensate={"fn": "after"}), {"id": "kid", "workflow": child})
    weid = begin(world, one, spec)
    decide_all(world, one)
    world.work(EXECUTORS, most=2)
    decide_all(world, one)
    assert world.record(child_of(weid)).steps["book"].status == "complete"

    control(world, weid, "cancel")
    world.settle(one, two, executors=EXECUTORS)

    parent, kid = world.record(weid), world.record(child_of(weid))
    assert (parent.status, parent.compensated) == ("cancelled", True)
    assert (kid.status, kid.compensated) == ("cancelled", True)
    assert (undone(world, weid), undone(world, child_of(weid))) == (["before#undo"], ["book#undo"])
    assert left(world) == {}


def test_a_parent_hears_of_a_failed_child_when_it_has_undone_everything(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one, document({"id": "kid", "workflow": TRIP}))
    decide_all(world, one)
    while world.record(child_of(weid)).status != "compensating":
        world.work(EXECUTORS, most=1)
        decide_all(world, one)
    assert world.status(weid) == "in_progress"

    world.settle(one, executors=EXECUTORS)

    error = world.record(weid).error
    assert error is not None
    assert error["kind"] == "child_failed"
    assert left(world) == {}


def test_a_parent_that_is_cancelled_while_its_child_compensates_leaves_it_to_its_work(world: World) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one, document({"id": "kid", "workflow": TRIP}))
    decide_all(world, one)
    while world.record(child_of(weid)).status != "compensating":
        world.work(EXECUTORS, most=1)
        decide_all(world, one)

    control(world, weid, "cancel")
    world.settle(one, two, executors=EXECUTORS)

    assert world.status(weid) == "cancelled"
    assert undone(world, child_of(weid)) == ["pay#undo", "book#undo"]
    assert left(world) == {}, "what the parent said to its child is no dead letter"


# ---- everything at once


@pytest.mark.parametrize("seed", range(6))
def test_compensations_in_a_storm_undo_exactly_what_was_done(world: World, seed: int) -> None:
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
