"""Children on Redis: each begins once and ends once, and its parent always hears of it."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pytest

import orchestrator.coordinator.decider
from coreworld import document, step, when
from integration.families import (
    CHILD,
    N,
    child_of,
    control,
    decide_all,
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
from integration.world import Json, Proxy, World
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Committed
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.store import RedisStore

PARENT = parent_of(CHILD)
MEGABYTE = 1024 * 1024


def begin(world: World, one: Coordinator, spec: Json = PARENT, n: Any = 1, **start: Any) -> str:
    return world.begin(one, spec, inputs={"n": n}, execution_id="p", **start)


def error_of(world: World, weid: str) -> Json:
    error = world.record(weid).error
    assert error is not None, world.record(weid).status
    return error


# ---- what a child is


def test_the_outcome_of_a_child_is_the_output_of_its_step(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one)

    world.settle(one)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    child = world.record(child_of(weid))
    assert (child.status, child.outcome, child.inputs) == ("complete", {"n": 1}, {"n": 1})
    assert child.parent is not None
    assert (child.parent.execution, child.parent.root, child.parent.depth) == (weid, "p", 1)
    assert executions(world) == ["p", child_of(weid)]
    assert left(world) == {}


def test_a_step_that_waits_for_its_child_has_no_lease_and_no_job(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one)

    assert world.record(weid).steps["kid"].child == child_of(weid)
    assert (world.leases(), world.waiting(), world.timers()) == ({}, [], {})


def test_a_registered_child_is_looked_up_when_it_begins(world: World) -> None:
    [one] = serving(world)
    world.store.register("kid", check_spec(CHILD))
    weid = begin(world, one, parent_of("kid"))
    world.store.register("kid", check_spec(document(step("other", input=N))))

    world.settle(one)

    assert world.record(weid).status == "complete"
    assert list(world.record(child_of(weid)).steps) == ["other"]


def test_a_child_inherits_group_and_priority(world: World) -> None:
    [one] = serving(world)
    begin(world, one, parent_of(parent_of(CHILD)), group="eu:1", priority="1")
    one.run_once()
    one.run_once()

    grandchild = world.record("p:kid:0:kid:0")
    assert (grandchild.group, grandchild.priority) == ("eu:1", 1)
    assert (grandchild.root, grandchild.depth) == ("p", 2)
    assert world.client.hget(world.keys.groups, "eu:1") == "3"
    assert world.queues() == ["orchestrator.default:1"]
    world.settle(one)
    assert left(world) == {}


@pytest.mark.parametrize(
    ("child", "status", "said"),
    [
        (document(step("boom")), "failed", "child p:kid:0 failed: as asked"),
        (document(step("work", branch=[when(True, "halt", result={"no": 1})])), "complete", ""),
    ],
    ids=["failed", "halted"],
)
def test_how_a_child_ended_is_what_its_parent_hears(
    world: World, child: Json, status: str, said: str
) -> None:
    def boom(inputs: Json) -> Json:
        raise ValueError("as asked")

    [one] = serving(world)
    weid = begin(world, one, parent_of(child))

    world.settle(one, executors={"boom": boom})

    record = world.record(weid)
    assert record.status == status
    if status == "failed":
        assert error_of(world, weid)["kind"] == "child_failed"
        assert said in error_of(world, weid)["message"]
    else:
        assert record.outcome == {"kid": {"halted": True, "result": {"no": 1}}}
    assert left(world) == {}


def test_a_child_that_an_operator_cancels_fails_its_step(world: World) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    one.run_once()

    control(world, child_of(weid), "cancel", reason="wrong one")
    world.settle(one)

    assert world.status(world.store.full_id(child_of(weid))) == "cancelled"
    assert error_of(world, weid)["kind"] == "child_failed"
    assert left(world) == {}


def test_each_attempt_has_a_child_of_its_own(world: World) -> None:
    calls: list[Json] = []

    def second_time_lucky(inputs: Json) -> Json:
        calls.append(inputs)
        if len(calls) == 1:
            raise ValueError("not yet")
        return inputs

    [one] = serving(world)
    weid = begin(world, one, parent_of(CHILD, max_attempts=2))

    world.settle(one, executors={"work": second_time_lucky})

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert executions(world) == ["p", child_of(weid), child_of(weid, run_id=1)]
    assert left(world) == {}


def test_a_workflow_that_starts_itself_ends_at_the_limit_of_depth(world: World) -> None:
    [one] = serving(world)
    me = document({"id": "kid", "workflow": "me"}, limits={"max_depth": 5})
    world.store.register("me", check_spec(me))
    weid = begin(world, one, me)

    world.settle(one)

    assert "max_depth" in error_of(world, weid)["message"]
    assert len(executions(world)) == 6
    assert left(world) == {}


# ---- a coordinator dies


def test_a_parent_whose_coordinator_died_before_its_commit_has_one_child(world: World) -> None:
    _, two = serving(world, "one", "two", reclaim_after_ms=50)
    world.start(PARENT, {"n": 1}, "p")
    taken(world, "one")  # and never comes back
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert world.record("p").outcome == {"kid": {"n": 1}}
    assert executions(world) == ["p", "p:kid:0"]
    assert left(world) == {}


def test_a_child_whose_coordinator_died_before_it_began_begins_once(world: World) -> None:
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


def test_a_child_whose_end_nobody_has_read_ends_its_step_all_the_same(world: World) -> None:
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
    real_world: World, proxy: Proxy, proxied: Client, nth: int
) -> None:
    """The commits of a family: the parent begins, the child begins, its step ends, the parent's step ends."""
    world = real_world
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


def test_the_start_of_a_child_that_two_coordinators_hold_makes_one(world: World) -> None:
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
def test_a_child_that_is_asked_for_twice_is_neither_two_nor_refused(world: World, when: str) -> None:
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
def test_the_end_of_a_child_counts_once(world: World, same: bool) -> None:
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
    world: World,
) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    control(world, weid, "cancel")

    world.settle(one)

    assert world.status(weid) == "cancelled"
    assert [world.record(name).status for name in executions(world)] == ["cancelled"] * 2
    assert left(world) == {}


@pytest.mark.parametrize("order", ["start first", "cancel first", "one batch", "the other way round"])
def test_a_child_that_was_cancelled_before_it_began_does_not_begin(world: World, order: str) -> None:
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


def test_a_child_is_cancelled_with_its_parent(world: World) -> None:
    one, two = serving(world, "one", "two")
    weid = begin(world, one)
    one.handle(taken(world))
    assert len(world.leases()) == 1

    control(world, weid, "cancel", reason="no more")
    decide_all(world, two)

    child = world.record(child_of(weid))
    assert (child.status, child.steps["work"].status) == ("cancelled", "cancelled")
    assert child.cancelled is not None
    assert "step kid of p" in child.cancelled["reason"]
    assert left(world) == {}


def test_the_end_of_a_child_after_its_parent_was_cancelled_is_late(world: World) -> None:
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


def test_a_reset_cancels_the_child_and_starts_another(world: World) -> None:
    one, two = serving(world, "one", "two")
    again = [when({"==": [{"var": "round"}, 0]}, {"set": "steps.kid.status"}), when(True, "complete")]
    spec = document(
        step("root"),
        {"id": "kid", "workflow": CHILD, "input": N, "depends_on": ["root"], "skip_output_mapping": True},
        step("judge", "root", branch=again),
    )
    weid = begin(world, one, spec)
    world.work()
    one.handle(taken(world))  # root is done: the child is asked for, and judge is on its way
    one.handle(taken(world))
    late = [one for one in (world.pop(), world.pop()) if one is not None]

    def answer(op: str, output: Json) -> None:
        [payload] = [one for one in late if one["step"] == op]
        world.send(payload["events"], {**_result(payload), "output": json.dumps(output)})

    answer("judge", {"round": 0})
    decide_all(world, one)
    answer("work", {"n": "late"})
    world.settle(one, two, executors={"judge": lambda inputs: {"round": 1}})

    assert world.status(weid) == "complete"
    assert world.record(child_of(weid)).status == "cancelled"
    assert world.record(weid).steps["kid"].output == {"n": 1}
    assert left(world) == {}


def _result(payload: Json) -> dict[str, str]:
    names = ("execution", "step", "run_id", "attempt", "token")
    return {"type": "result", **{name: str(payload[name]) for name in names}}


# ---- huge


@pytest.mark.parametrize("size", [MEGABYTE, 9 * MEGABYTE], ids=["inputs", "event"])
def test_a_child_whose_inputs_are_too_large_is_never_asked_for(world: World, size: int) -> None:
    [one] = serving(world)
    half = {"n": "x" * (size // 10)}
    kid = {
        "id": "kid",
        "workflow": CHILD,
        "input": {f"n{at}": {"var": "steps.load.output.n"} for at in range(11)},
    }
    weid = begin(world, one, document(step("load"), kid))

    world.settle(one, executors={"load": lambda inputs: half})

    error = error_of(world, weid)
    assert error["kind"] == "expression"
    assert re.search(r"kid.* [\d,]{9,} bytes", error["message"]), error
    assert executions(world) == ["p"]
    assert left(world) == {}


@pytest.mark.parametrize("how", ["complete", "halted"])
def test_an_outcome_that_is_too_large_fails_the_step_and_its_parent_does_not_wait(
    world: World, how: str
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
    world: World,
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
    ],
    ids=["unknown", "inputs"],
)
def test_a_child_that_is_refused_fails_its_step(world: World, child: Any, said: str) -> None:
    [one] = serving(world)
    weid = begin(world, one, parent_of(child))

    world.settle(one)

    error = error_of(world, weid)
    assert error["kind"] == "child_failed"
    assert said in error["message"]
    assert list(left(world)) == ["dead"]


def test_a_child_whose_execution_id_is_taken_is_refused_and_the_next_attempt_has_another(
    world: World,
) -> None:
    [one] = serving(world)
    squatter = world.begin(one, document(step("theirs")), execution_id="p:kid:0")
    weid = begin(world, one, parent_of(CHILD, max_attempts=2))

    world.settle(one)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert (world.status(squatter), world.record(squatter).parent) == ("complete", None)
    [letter] = world.dead()
    assert "'p:kid:0' already exists" in letter["reason"]


def test_a_child_that_cannot_be_written_fails_its_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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
    world: World,
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
    world: World, monkeypatch: pytest.MonkeyPatch
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


def forged(world: World, weid: str, **fields: str) -> Json:
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
    world: World, fields: dict[str, str], first: bool
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


def test_a_step_that_waits_for_one_child_has_no_second_one(world: World) -> None:
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
def test_a_forged_end_of_a_child_ends_nothing(world: World, token: str) -> None:
    [one] = serving(world)
    weid = begin(world, one)
    fields = {"execution": weid, "step": "kid", "run_id": "0", "attempt": "1", "token": token}
    world.send(world.keys.events(0), {"type": "result", **fields, "output": '{"n": "forged"}'})

    world.settle(one)

    assert world.record(weid).outcome == {"kid": {"n": 1}}
    assert world.counter("stale") == 1


# ---- everything at once


@pytest.mark.parametrize("seed", range(6))
def test_a_family_in_a_storm_has_one_of_each(world: World, seed: int) -> None:
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
