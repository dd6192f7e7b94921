"""Signals on Redis: before, between and after, each of them counted once."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.engine.signals import MAX_KEPT_SIGNAL_BYTES, MAX_KEPT_SIGNALS
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.status import StepStatus
from orchestrator.backend.ports import Delivery
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.event_log import SIGNAL_RETENTION_S
from orchestrator.redis_rq.json_codec import dumps
from worlds.redis_world import RedisWorld
from worlds.spec_executions import IT, begun, coordinators, ends, serve, signal
from worlds.specs import task, wait_step

ORDER = "order-42"
TWO_WAITS = (wait_step("w1", "go"), wait_step("w2", "go", after="w1"))


def outputs(world: RedisWorld, weid: str) -> dict[str, Any]:
    return {step_id: step.output for step_id, step in world.record(weid).steps.items()}


def kept(world: RedisWorld, execution_id: str = ORDER) -> list[Any]:
    return world.log().load_early_signals(execution_id)


def begin(world: RedisWorld, one: Coordinator, execution_id: str = ORDER) -> str:
    return world.begin(one, IT, execution_id=execution_id)


def clean(world: RedisWorld) -> bool:
    """Everything answered, nothing refused."""
    return world.pending() == [] and world.dead() == []


# ---- to an execution that exists


@pytest.mark.parametrize("by", ["full id", "execution id"])
def test_a_signal_ends_a_wait(world: RedisWorld, by: str) -> None:
    [one] = coordinators(world, wait_step("w", "go"), task("a", "w"))
    weid = begin(world, one)
    assert world.record(weid).steps["w"].status is StepStatus.WAITING

    signal(world, weid if by == "full id" else ORDER, "go", {"by": "ada"})
    one.run_once()

    assert outputs(world, weid)["w"] == {"by": "ada"}
    assert [payload["step"] for payload in world.payloads()] == ["a"]
    assert clean(world)


def test_a_signal_may_come_by_any_stream(world: RedisWorld) -> None:
    [one] = coordinators(world, *(wait_step(f"w{n}", "go") for n in range(world.keys.partitions)))
    weid = begin(world, one)

    for n in range(world.keys.partitions):
        signal(world, weid, "go", n, stream=world.keys.events(n))
    one.run_once()

    assert world.status(weid) == "complete"
    assert sorted(one["value"] for one in outputs(world, weid).values()) == list(range(world.keys.partitions))


def test_signals_are_taken_in_the_order_in_which_they_came(world: RedisWorld) -> None:
    one, weid = begun(
        world, task("a"), *(wait_step(f"w{n}", "go", after=f"w{n - 1}" if n else "a") for n in range(4))
    )
    for n in range(5):
        signal(world, weid, "go", {"n": n})
    one.run_once()

    world.settle(one)

    assert [outputs(world, weid)[f"w{n}"] for n in range(4)] == [{"n": n} for n in range(4)]
    assert world.record(weid).signals == [{"name": "go", "payload": {"n": 4}}]


def test_a_signal_survives_a_coordinator_that_forgets(world: RedisWorld) -> None:
    one, weid = begun(world, task("a"), wait_step("w", "go", after="a"))
    signal(world, weid, "go", {"n": 1})
    one.run_once()
    one._backend.drop_cached_records()

    world.settle(one)

    assert outputs(world, weid)["w"] == {"n": 1}


def test_a_signal_to_an_execution_that_has_ended_is_late(world: RedisWorld) -> None:
    one, weid = begun(world, wait_step("w", "go"))
    signal(world, weid, "go", 1)
    one.run_once()
    assert world.status(weid) == "complete"
    version = world.record(weid).version

    signal(world, weid, "go", 2)
    signal(world, weid.partition("#")[2], "go", 3)
    one.run_once()

    assert world.counter("late") == 2
    assert world.record(weid).version == version
    assert outputs(world, weid) == {"w": {"value": 1}}
    assert clean(world)


# ---- before the execution exists


def test_signals_before_the_execution_are_kept_for_a_day_and_taken_over(world: RedisWorld) -> None:
    [one] = coordinators(world, *TWO_WAITS)
    for n in range(3):
        signal(world, ORDER, "go", {"n": n})
    signal(world, ORDER, "other", None)
    one.run_once()

    assert [each["payload"] for each in kept(world)] == [{"n": 0}, {"n": 1}, {"n": 2}, None]
    assert world.client.ttl(world.keys.signals(ORDER)) in range(
        SIGNAL_RETENTION_S - 600, SIGNAL_RETENTION_S + 1
    )
    assert clean(world)

    weid = begin(world, one)

    assert world.status(weid) == "complete"
    assert outputs(world, weid) == {"w1": {"n": 0}, "w2": {"n": 1}}
    assert [each["payload"] for each in world.record(weid).signals] == [{"n": 2}, None]
    assert not world.client.exists(world.keys.signals(ORDER))


def test_a_signal_in_one_batch_with_its_start_counts(world: RedisWorld) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    signal(world, ORDER, "go", {"n": 1})
    entry = world.start(IT, execution_id=ORDER)
    signal(world, ORDER, "go", {"n": 2})

    one.run_once()
    one.run_once()

    weid = world.answer(entry)["workflow_execution_id"]
    assert outputs(world, weid) == {"w": {"n": 1}}
    assert not world.client.exists(world.keys.signals(ORDER))
    assert clean(world)


def test_signals_go_to_the_execution_that_they_name(world: RedisWorld) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    for name in ("x1", "x2"):
        signal(world, name, "go", {"for": name})
    one.run_once()

    second, first = begin(world, one, "x2"), begin(world, one, "x1")

    assert (outputs(world, first)["w"], outputs(world, second)["w"]) == ({"for": "x1"}, {"for": "x2"})


def test_a_start_that_is_refused_leaves_the_signals_for_the_next(world: RedisWorld) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    signal(world, ORDER, "go", {"n": 1})
    refused = world.start("nobody-registered-this", execution_id=ORDER)
    one.run_once()
    assert not world.answer(refused)["ok"]
    assert len(kept(world)) == 1

    assert outputs(world, begin(world, one))["w"] == {"n": 1}


def test_a_signal_by_the_full_id_of_an_execution_that_is_not_there_is_refused(world: RedisWorld) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    signal(world, "0123#nobody", "go")

    one.run_once()

    [letter] = world.dead()
    assert "0123#nobody" in letter["reason"]
    assert world.pending() == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"name": ""}, "'name' is missing"),
        ({"execution": ""}, "'execution' is missing"),
        ({"payload": "{"}, "payload is not JSON"),
        ({"payload": "NaN"}, "payload is not JSON"),
    ],
)
def test_a_signal_that_cannot_be_understood_is_refused(
    world: RedisWorld, broken: dict[str, str], reason: str
) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    fields = {"type": "signal", "execution": ORDER, "name": "go", "payload": "1", **broken}
    world.send(world.keys.events(0), fields)

    one.run_once()

    assert reason in world.dead()[0]["reason"]
    assert kept(world) == []


def test_a_signal_needs_no_payload(world: RedisWorld) -> None:
    one, weid = begun(world, wait_step("w", "go"))
    world.send(world.keys.events_of(weid), {"type": "signal", "execution": weid, "name": "go"})

    one.run_once()

    assert outputs(world, weid) == {"w": {"value": None}}


# ---- between


def read_by(coordinator: Coordinator) -> str:
    """One of the streams of events that it reads."""
    log: Any = coordinator._log
    return str(log._keys.events(log._own_streams.partitions[0]))


def test_a_signal_that_comes_between_load_and_creation_counts(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-4: the decision to create was made without it, and is made again with it."""
    one, two = coordinators(world, *TWO_WAITS, names=("one", "two"))
    asked: list[int] = []
    look = one._log.load_early_signals

    def load_early_signals(execution_id: str) -> list[dict[str, Any]]:
        found = look(execution_id)
        asked.append(len(found))
        if len(asked) <= 2:
            signal(world, ORDER, "go", {"n": len(asked)}, stream=read_by(two))
            two.run_once()
        return found

    one._log.sweep()
    two._log.sweep()
    monkeypatch.setattr(one._log, "load_early_signals", load_early_signals)
    signal(world, ORDER, "go", {"n": 0}, stream=read_by(two))
    two.run_once()
    entry = world.start(IT, execution_id=ORDER)
    one.run_once()

    assert asked == [1, 2, 3], "not looked for before the store says that there are some"
    weid = world.answer(entry)["workflow_execution_id"]
    assert outputs(world, weid) == {"w1": {"n": 0}, "w2": {"n": 1}}
    assert len(world.client.lrange(world.keys.reply(entry), 0, -1)) == 1
    assert not world.client.exists(world.keys.signals(ORDER))
    assert clean(world)


def test_an_execution_that_comes_into_being_between_look_up_and_keeping_has_its_signal(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = coordinators(world, wait_step("w", "go"), names=("one", "two"))
    find, looked = one._backend.find, list[str]()

    def finds_nothing_at_first(execution_id: str) -> str:
        looked.append(execution_id)
        if len(looked) == 1:
            begin(world, two)
            raise RecordNotFound(execution_id)
        return find(execution_id)

    monkeypatch.setattr(one._backend, "find", finds_nothing_at_first)
    one._log.sweep()
    signal(world, ORDER, "go", {"n": 1}, stream=read_by(one))
    one.run_once()

    assert looked == [ORDER] * 2
    assert outputs(world, world.store.full_id(ORDER)) == {"w": {"n": 1}}
    assert kept(world) == []


def test_a_signal_that_can_be_neither_kept_nor_given_is_left_for_later(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    begin(world, one)

    def finds_nothing(execution_id: str) -> str:
        raise RecordNotFound(execution_id)

    monkeypatch.setattr(one._backend, "find", finds_nothing)
    entry = signal(world, ORDER, "go")
    one.handle(one._log.read(10, 0))

    assert world.pending() == [entry]


def test_a_signal_for_an_execution_that_redis_forgets_meanwhile_is_kept_for_when_it_begins_again(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = coordinators(world, wait_step("w", "go"))
    weid = begin(world, one)
    one._backend.drop_cached_records()
    find = one._backend.find

    def finds_what_is_then_forgotten(execution_id: str) -> str:
        found = find(execution_id)
        world.client.delete(world.keys.workflow(found), world.keys.execution(execution_id))
        return found

    monkeypatch.setattr(one._backend, "find", finds_what_is_then_forgotten)
    signal(world, ORDER, "go", {"n": 1})
    one.run_once()

    assert kept(world) == [{"name": "go", "payload": {"n": 1}}]
    assert clean(world)
    assert begin(world, one) == weid
    assert outputs(world, weid) == {"w": {"n": 1}}


# ---- once


def held(world: RedisWorld, *parts: Coordinator) -> list[Delivery]:
    """What the first coordinator has read, as if the others had it too."""
    return list(parts[0]._log.read(100, 0))


def test_a_signal_that_two_coordinators_hold_counts_once(world: RedisWorld) -> None:
    one, two = coordinators(world, *TWO_WAITS, names=("one", "two"))
    weid = begin(world, one)
    one._log._own_streams.partitions = list(range(world.keys.partitions))  # type: ignore[attr-defined]
    signal(world, weid, "go", {"n": 1})
    deliveries = held(world, one)

    two.handle(deliveries)
    one.handle(deliveries)

    assert outputs(world, weid) == {"w1": {"n": 1}, "w2": None}
    assert world.record(weid).signals == []
    assert clean(world)


def test_an_early_signal_that_two_coordinators_hold_is_kept_once(world: RedisWorld) -> None:
    one, two = coordinators(world, *TWO_WAITS, names=("one", "two"))
    one._log._own_streams.partitions = list(range(world.keys.partitions))  # type: ignore[attr-defined]
    signal(world, ORDER, "go", {"n": 1})
    deliveries = held(world, one)

    two.handle(deliveries)
    one.handle(deliveries)

    assert kept(world) == [{"name": "go", "payload": {"n": 1}}]
    assert clean(world)


def test_an_early_signal_that_is_handled_again_after_the_creation_counts_once(world: RedisWorld) -> None:
    one, two = coordinators(world, *TWO_WAITS, names=("one", "two"))
    one._log._own_streams.partitions = list(range(world.keys.partitions))  # type: ignore[attr-defined]
    signal(world, ORDER, "go", {"n": 1})
    deliveries = held(world, one)
    two.handle(deliveries)
    weid = begin(world, two)

    one.handle(deliveries)

    assert outputs(world, weid) == {"w1": {"n": 1}, "w2": None}
    assert clean(world)


def test_a_signal_whose_coordinator_died_is_taken_over_and_counts_once(world: RedisWorld) -> None:
    one, two = coordinators(world, *TWO_WAITS, names=("one", "two"), pace={"reclaim_after_ms": 50})
    weid = begin(world, one)
    one._log._own_streams.partitions = list(range(world.keys.partitions))  # type: ignore[attr-defined]
    signal(world, weid, "go", {"n": 1})
    held(world, one)
    world.age_pending(1_000)
    world.killed("one")

    serve(world, two, until=lambda: outputs(world, weid)["w1"])

    assert outputs(world, weid) == {"w1": {"n": 1}, "w2": None}
    assert clean(world)


def test_many_signals_through_two_coordinators_are_all_there_once(world: RedisWorld) -> None:
    one, two = coordinators(world, *(wait_step(f"w{n:02}", "go") for n in range(40)), names=("one", "two"))
    weid = begin(world, one)
    for n in range(40):
        signal(world, weid, "go", {"n": n}, stream=world.keys.events(n % world.keys.partitions))

    serve(world, one, two, until=ends(world, weid, "complete"))

    assert sorted(one["n"] for one in outputs(world, weid).values()) == list(range(40))
    assert clean(world)


def test_a_result_that_shares_its_batch_with_a_signal_of_somebody_else_is_not_delayed(
    world: RedisWorld,
) -> None:
    one, two = coordinators(world, wait_step("w", "go"), task("a"), names=("one", "two"))
    weid = begin(world, one)
    one._log._own_streams.partitions = list(range(world.keys.partitions))  # type: ignore[attr-defined]
    signal(world, weid, "go", {"n": 1})
    world.work()
    signalled, *others = sorted(held(world, one), key=lambda one: one.fields["type"] != "signal")
    two.handle([signalled])

    one.handle([signalled, *others])

    assert world.pending() == []
    assert world.status(weid) == "complete"


def test_of_signals_for_an_execution_that_never_comes_no_more_are_kept_than_a_record_can_hold(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    world.client.rpush(world.keys.signals("later"), *[dumps({"name": "n", "payload": 1})] * MAX_KEPT_SIGNALS)

    world.send(world.keys.events(0), {"type": "signal", "execution": "later", "name": "go", "reply": "r"})
    one.run_once()

    assert "execution 'later' keeps signals" in world.answer("r")["reason"]
    assert world.client.llen(world.keys.signals("later")) == MAX_KEPT_SIGNALS


def test_early_signals_have_a_limited_number_of_bytes(world: RedisWorld) -> None:
    one, large = world.coordinator(), "x" * (MAX_KEPT_SIGNAL_BYTES // 4 - 100)
    for n in range(6):
        fields = {"type": "signal", "execution": "later", "name": "go", "reply": f"r{n}"}
        world.send(world.keys.events(0), {**fields, "payload": dumps(large)})
    world.settle(one)

    assert [world.answer(f"r{n}")["ok"] for n in range(6)] == [True] * 4 + [False] * 2
    weid = world.begin(one, {"steps": [{"id": "w", "wait": {"signal": "go"}}]}, execution_id="later")
    assert world.status(weid) == "complete"


@pytest.mark.parametrize("rubbish", ["{", "[]", '{"name": "go"}', "7"])
def test_a_start_whose_signals_are_rubbish_is_told_so(world: RedisWorld, rubbish: str) -> None:
    one = world.coordinator()
    world.client.rpush(world.keys.signals("x"), rubbish)

    entry = world.start({"steps": [{"op": "a"}]}, execution_id="x")
    one.run_once()

    assert (
        "the signals under orchestrator:signals:x cannot be read, delete them"
        in world.answer(entry)["reason"]
    )
