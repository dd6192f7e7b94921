"""Children on Redis: each begins once and ends once, and its parent always hears of it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import orchestrator.coordinator.decider
from effort import count
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.ports import Commit, Committed
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.store import RedisStore
from servers.proxy import Proxy
from worlds.documents import Json, document, step, when
from worlds.families import (
    CHILD,
    N,
    child_of,
    control,
    executions,
    exists,
    left,
    of_type,
    parent_of,
    serving,
    storm,
    taken,
    turns_with_a_lost_reply,
)
from worlds.redis_world import RedisWorld

PARENT = parent_of(CHILD)


def begin(world: RedisWorld, one: Coordinator, spec: Json = PARENT, n: Any = 1, **start: Any) -> str:
    return world.begin(one, spec, inputs={"n": n}, execution_id="p", **start)


def error_of(world: RedisWorld, weid: str) -> Json:
    error = world.record(weid).error
    assert error is not None, world.record(weid).status
    return error


# ---- what a child is


def test_a_step_that_waits_for_its_child_has_no_lease_and_no_job(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = begin(world, one)

    assert world.record(weid).steps["kid"].child == child_of(weid)
    assert (world.leases(), world.waiting(), world.timers()) == ({}, [], {})


def test_children_count_among_the_executions_of_their_group(world: RedisWorld) -> None:
    [one] = serving(world)
    begin(world, one, parent_of(parent_of(CHILD)), group="eu:1")
    one.run_once()
    one.run_once()

    assert world.client.hget(world.keys.groups, "eu:1") == "3"
    world.settle(one)
    assert left(world) == {}


# ---- a coordinator dies


def test_a_parent_whose_coordinator_died_before_its_commit_has_one_child(world: RedisWorld) -> None:
    _, two = serving(world, "one", "two", reclaim_after_ms=50)
    world.start(PARENT, {"n": 1}, "p")
    taken(world, "one")  # and never comes back
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert world.record("p").outcome == {"kid": {"n": 1}}
    assert executions(world) == ["p", "p:kid:0"]
    assert left(world) == {}


def test_a_child_whose_coordinator_died_before_it_began_begins_once(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    weid = begin(world, one)
    taken(world, "one")
    assert not exists(world, child_of(weid))
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert world.moves(child_of(weid), "complete") == ["work"]
    assert left(world) == {}


def test_a_child_whose_end_nobody_has_read_ends_its_step_all_the_same(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    weid = begin(world, one)
    one.handle(taken(world, "one"))
    world.work()
    one.handle(taken(world, "one"))  # the child has ended, and its parent has not heard of it
    assert (world.record(child_of(weid)).status, world.status(weid)) == ("complete", "in_progress")
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert world.moves(weid, "complete") == ["kid"]
    assert left(world) == {}


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_commit_whose_reply_is_lost_makes_neither_two_children_nor_none(
    world: RedisWorld, proxy: Proxy, proxied: Client, nth: int
) -> None:
    """The commits of a family: the parent begins, the child begins, its step ends, the parent's step ends."""
    one = world.coordinator("one", proxied)
    world.start(PARENT, {"n": 1}, "p")
    dropped = turns_with_a_lost_reply(proxy, one, nth, world.work)
    world.settle(one)

    assert (dropped, proxy.dropped) == (1, 1)
    assert world.record("p").outcome == {"kid": {"n": 1}}
    assert executions(world) == ["p", "p:kid:0"]
    assert Counter(world.moves("p", "complete") + world.moves("p:kid:0", "complete")) == {"kid": 1, "work": 1}
    assert left(world) == {}


# ---- twice


def test_the_start_of_a_child_that_two_coordinators_hold_makes_one(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    start = taken(world)

    two.handle(start)
    one.handle(start)

    assert len(world.waiting()) == 1
    world.settle(one, two)
    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert left(world) == {}


@pytest.mark.parametrize("when", ["in one batch", "while it runs", "when it has ended", "after its parent"])
def test_a_child_that_is_asked_for_twice_is_neither_two_nor_refused(world: RedisWorld, when: str) -> None:
    """As if the event had been doubled on its way: its parent must not hear that it was refused."""
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    [start] = of_type(taken(world), "child")
    if when == "in one batch":
        world.send(start.ref.stream, start.fields)
        one.handle([start, *taken(world)])
    else:
        one.handle([start])
    if when == "when it has ended":
        world.work()
        one.handle(taken(world))
    if when == "after its parent":
        world.settle(one)
    if when != "in one batch":
        world.send(start.ref.stream, start.fields)
    world.settle(two, one)

    assert executions(world) == ["p", "p:kid:0"]
    assert world.moves(weid, "complete") == ["kid"]
    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert left(world) == {}


@pytest.mark.parametrize("same", [True, False], ids=["in one batch", "by another coordinator"])
def test_the_end_of_a_child_that_is_handled_twice_counts_once(world: RedisWorld, same: bool) -> None:
    one, two = serving(world, "one", "two")
    spec = document(
        {"id": "kid", "workflow": CHILD, "input": N},
        step("after", "kid", input={"n": {"var": "steps.kid.output.n"}}),
    )
    weid = begin(world, one, spec)
    one.handle(taken(world))
    world.work()
    one.handle(taken(world))
    [end] = of_type(taken(world), "result")

    if same:
        one.handle([end, end])
    else:
        two.handle([end])
        one.handle([end])
    world.send(end.ref.stream, end.fields)
    world.settle(one, two)

    assert world.moves(weid, "complete") == ["kid", "after"]
    assert world.counter("stale") + world.counter("late") >= 1
    assert left(world) == {}


# ---- out of order


def test_a_child_whose_parent_is_cancelled_in_one_batch_with_its_start_is_cancelled_too(
    world: RedisWorld,
) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    control(world, weid, "cancel")

    world.settle(one)

    assert world.status(weid) == "cancelled"
    assert [world.record(name).status for name in executions(world)] == ["cancelled"] * 2
    assert left(world) == {}


@pytest.mark.parametrize("order", ["start first", "cancel first", "one batch", "the other way round"])
def test_a_child_that_was_cancelled_before_it_began_does_not_begin(world: RedisWorld, order: str) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    control(world, weid, "cancel")
    before = taken(world)
    [start] = of_type(before, "child")
    one.handle(of_type(before, "control"))
    [cancel] = of_type(taken(world), "control")

    match order:
        case "start first":
            one.handle([start])
            two.handle([cancel])
        case "cancel first":
            two.handle([cancel])
            one.handle([start])
        case "one batch":
            two.handle([start, cancel])
        case _:
            two.handle([cancel, start])

    assert executions(world) == ["p"]
    assert left(world) == {}


def test_the_end_of_a_child_after_its_parent_was_cancelled_is_late(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    one.handle(taken(world))
    world.work()
    one.handle(taken(world))
    [end] = of_type(taken(world), "result")
    control(world, weid, "cancel")
    two.handle(taken(world))
    version = world.record(weid).version

    one.handle([end])
    world.settle(one, two)

    assert world.counter("late") == 1
    assert world.record(weid).version == version
    assert world.record(child_of(weid)).status == "complete"
    assert left(world) == {}


# ---- huge


@pytest.mark.parametrize("how", ["complete", "halted"])
def test_an_outcome_that_is_too_large_fails_the_step_and_its_parent_does_not_wait(
    world: RedisWorld, how: str
) -> None:
    [one] = serving(world)
    steps = [step(f"s{n}") for n in range(11)]
    everything = {f"s{n}": {"var": f"steps.s{n}.output.x"} for n in range(11)}
    if how == "complete":
        child = document(*steps, outputs=everything)
    else:
        after = step("end", [f"s{n}" for n in range(11)], branch=[when(True, "halt", result_expr=everything)])
        child = document(*steps, after)
    weid = begin(world, one, parent_of(child))

    world.settle(one, executors={f"s{n}": lambda inputs: {"x": "x" * (900 * 1024)} for n in range(11)})

    assert world.record(child_of(weid)).status == how
    assert error_of(world, weid)["step"] == "kid"
    assert left(world).keys() <= {"dead"}


def test_an_outcome_that_is_nested_too_deep_fails_the_step_and_its_parent_does_not_wait(
    world: RedisWorld,
) -> None:
    """The output of a step may be as deep as an event allows; an outcome puts it one level deeper."""
    [one] = serving(world)
    deep: Any = 1
    for _ in range(198):
        deep = [deep]
    child = document(step("work"), outputs={"a": {"b": {"c": {"var": "steps.work.output"}}}})
    weid = begin(world, one, parent_of(child))

    world.settle(one, executors={"work": lambda inputs: {"deep": deep}})

    assert world.record(child_of(weid)).status == "complete"
    error = error_of(world, weid)
    assert (error["kind"], "deeper" in error["message"]) == ("bad_output", True)


# ---- refused


@pytest.mark.parametrize(
    ("child", "said"),
    [
        ("nobody", "no workflow is registered as 'nobody'"),
        (document(step("work"), inputs={"n": {"type": "string"}}), "must be of type string"),
        (CHILD, "'p:kid:0' already exists"),
    ],
    ids=["unknown", "inputs", "taken"],
)
def test_the_start_of_a_child_that_is_refused_is_a_dead_letter(
    world: RedisWorld, child: Any, said: str
) -> None:
    [one] = serving(world)
    if child is CHILD:
        world.begin(one, document(step("theirs")), execution_id="p:kid:0")
    begin(world, one, parent_of(child))

    world.settle(one)

    [letter] = world.dead()
    assert said in letter["reason"]
    assert list(left(world)) == ["dead"]


def test_a_child_that_cannot_be_written_fails_its_step(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = RedisStore.commit

    def commit_or_fail(store: RedisStore, commits: list[Commit]) -> list[Committed]:
        if any(one.creates and one.record.parent is not None for one in commits):
            raise RuntimeError("a defect")
        return commit(store, commits)

    [one] = serving(world)
    weid = begin(world, one)
    monkeypatch.setattr(RedisStore, "commit", commit_or_fail)

    world.settle(one)

    assert "RuntimeError: a defect" in error_of(world, weid)["message"]
    assert list(left(world)) == ["dead"]


def test_a_start_of_a_child_that_kills_its_coordinators_is_given_up_and_the_parent_hears_of_it(
    world: RedisWorld,
) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    taken(world, "one")
    for _ in range(6):
        world.age_pending(10_000)
        assert len(list(world.log("one").reclaim(5_000, 10))) == 1  # and dies of it
    world.age_pending(10_000)
    world.killed("one")

    world.settle(two)

    assert "never completed" in error_of(world, weid)["message"]
    assert list(left(world)) == ["dead"]


def test_an_end_of_a_child_that_kills_its_coordinators_fails_the_parent_instead_of_leaving_it_waiting(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(record: WorkflowRecord, events: list[Any], *others: Any) -> Any:
        if record.execution_id == "p" and any(isinstance(event, ResultEvent) for event in events):
            raise SystemExit("as if by the out-of-memory killer")
        return decide(record, events, *others)

    [one] = serving(world)
    weid = begin(world, one)
    one.run_once()
    world.work()
    one.run_once()
    monkeypatch.setattr(orchestrator.coordinator.decider, "decide", killed)
    for _ in range(8):
        try:
            world.coordinator("one").run_once()
        except SystemExit:
            world.age_pending(5_000, reader="one")

    error = error_of(world, weid)
    assert (error["kind"], "never completed" in error["message"]) == ("internal", True)
    assert list(left(world)) == ["dead"]


# ---- forged


def forged(world: RedisWorld, weid: str, **fields: str) -> Json:
    """A start of a child as somebody might send it who knows everything but the token."""
    return {
        "type": "child",
        "execution": weid,
        "step": "kid",
        "run_id": "0",
        "attempt": "1",
        "token": "guess-0",
        "root": "p",
        "depth": "1",
        "execution_id": "p:kid:0",
        "inputs": "{}",
        **fields,
    }


FORGED: dict[str, dict[str, str]] = {
    "a guessed token": {},
    "a word of the record as its token": {"token": "status"},
    "another word of the record": {"token": "in_progress"},
    "an execution that is not there": {"execution": "0123#nobody"},
    "no execution at all": {"execution": ""},
    "a step that is not there": {"step": "nobody"},
    "a step without a child": {"step": "plain"},
    "a spec that is not there": {"execution": f"{'0' * 32}#p"},
    "an id that is none": {"execution_id": "a b"},
    "an id of its own": {"execution_id": "mine", "token": "status"},
    "inputs that are none": {"inputs": "[]"},
    "a depth that is none": {"depth": "-1"},
    "no root": {"root": ""},
    "a group that is none": {"group": "a b"},
    "a priority that is none": {"priority": "9"},
}


@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("first", [True, False], ids=["before the real one", "after it"])
def test_a_forged_start_of_a_child_starts_nothing_and_harms_nobody(
    world: RedisWorld, fields: dict[str, str], first: bool
) -> None:
    one, two = serving(world, "one", "two")
    spec = document({"id": "kid", "workflow": CHILD, "input": N}, step("plain"))
    weid = begin(world, one, spec)
    real = of_type(taken(world), "child")
    if not first:
        one.handle(real)
    world.send(world.keys.events(0), forged(world, weid, **fields))
    one.handle(taken(world))
    if first:
        two.handle(real)
    world.settle(one, two)

    assert world.status(weid) == "complete"
    assert world.record(weid).steps["kid"].output == {"n": 1}
    assert executions(world) == ["p", "p:kid:0"]
    assert not [letter for letter in world.dead() if "internal error" in letter["reason"]]
    assert left(world).keys() <= {"dead"}


def test_a_step_that_waits_for_one_child_has_no_second_one(world: RedisWorld) -> None:
    """Whoever has read the record knows the token too."""
    [one] = serving(world)
    weid = begin(world, one)
    token = world.record(weid).steps["kid"].token
    assert token is not None
    world.send(world.keys.events(0), forged(world, weid, token=token, execution_id="mine"))

    world.settle(one)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert executions(world) == ["p", "p:kid:0"]
    assert left(world) == {}


@pytest.mark.parametrize("token", ["guess-0", "status"])
def test_a_forged_end_of_a_child_ends_nothing(world: RedisWorld, token: str) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    fields = {"execution": weid, "step": "kid", "run_id": "0", "attempt": "1", "token": token}
    world.send(world.keys.events(0), {"type": "result", **fields, "output": '{"n": "forged"}'})

    world.settle(one)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert world.counter("stale") == 1


# ---- everything at once


@pytest.mark.parametrize("seed", range(count(2, 6)))
def test_a_family_in_a_storm_has_one_of_each(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    kids = ["kid0", "kid1", "kid2"]
    steps = [{"id": kid, "workflow": parent_of(CHILD), "input": N, "max_attempts": 8} for kid in kids]
    spec = document(*steps, step("end", kids))

    def often_fails(inputs: Json) -> Json:
        if chance.random() < 0.3:
            raise ValueError("bad luck")
        return inputs

    world.start(spec, {"n": 7}, "p")
    storm(
        world,
        coordinators,
        chance,
        lambda: exists(world, "p") and world.record("p").is_final,
        {"work": often_fails},
    )

    parent = world.record("p")
    assert parent.status == "complete", parent.error
    for name in executions(world):
        ended = Counter(world.moves(name, "complete") + world.moves(name, "failed"))
        assert set(ended.values()) <= {1}, (name, ended)
    for kid in kids:
        children = [name for name in executions(world) if name.count(":") == 2 and kid in name]
        assert len(children) == parent.steps[kid].attempt
    assert left(world) == {}
