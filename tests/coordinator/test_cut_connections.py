"""A coordinator dies between any two of its commands, or is so slow that another one takes over: nothing
changes.

To Redis a dead process is a connection without further messages. Here the connection dies, after every
message once, and the reply of that message is lost. Real processes are killed in test_torture.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from effort import sample
from orchestrator.application.errors import Unavailable
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.verify.verifier import Verifier
from servers.redis_server import RedisServer
from torture.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.families import control, left, taken
from worlds.redis_world import RedisWorld, result_fields
from worlds.waiting import in_thread

RECLAIM_MS = 5_000
MAX_ROUNDS = 200
SPEC = document(
    step("a", kv_add={"flow_group:total": 1}, input={"n": 1}),
    {
        "id": "each",
        "fn": "each",
        "map": {"over": [1, 2]},
        "input": {"n": {"var": "item"}},
        "depends_on": ["a"],
    },
    {"id": "kid", "workflow": document(step("work")), "depends_on": ["a"]},
    {"id": "nap", "delay": "10ms", "depends_on": ["a"]},
    step("one", "each kid nap", concurrency={"key": "k", "limit": 1}),
    step("two", "each kid nap", concurrency={"key": "k", "limit": 1}),
    kv={"scopes": ["flow_group"]},
)
WANTED = ["a", "each", "each#0", "each#1", "kid", "nap", "one", "two"]


@pytest.fixture(scope="module")
def lines(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as proxy:
        yield proxy


def essence(record: WorkflowRecord) -> Json:
    """Return the parts of a record without times and tokens."""
    steps = {
        unit: (one.status, one.run_id, one.attempt, one.output, one.lost) for unit, one in record.units()
    }
    return {"status": record.status, "outcome": record.outcome, "state": record.state, "steps": steps}


def serve(world: RedisWorld, coordinator: Any) -> None:
    """Run one coordinator and the workers until the workflow has ended."""
    for _ in range(MAX_ROUNDS):
        coordinator.run_once()
        world.work()
        if world.client.zcard(world.keys.index("complete")) == 2:
            break
    coordinator.run_once()


def cut_at(world: RedisWorld, lines: Proxy, number: int | None) -> int:
    """Run a workflow with a coordinator that dies at its nth message. Return the number of messages."""
    world.client.flushall()
    line = lines.line("mortal")
    client = connect(line.url)
    world.start(SPEC, {}, "p", group="g")
    if number is not None:
        line.die_at(number)
    with suppress(Unavailable):
        serve(world, world.coordinator("mortal", client))
    client.close()
    return line.commands


def take_over(world: RedisWorld) -> None:
    """Let another coordinator take over from the dead one."""
    world.killed("mortal")
    heir = world.coordinator("heir", world.connect())
    world.age_pending(RECLAIM_MS)
    serve(world, heir)
    world.settle(heir)


def test_a_coordinator_that_dies_with_any_of_its_messages_leaves_a_whole(
    world: RedisWorld, lines: Proxy
) -> None:
    messages = cut_at(world, lines, None)
    undisturbed = essence(world.record("p"))
    assert messages > 30, "it has more to say than that"

    for number in sample(range(1, messages), 15):
        cut_at(world, lines, number)
        found = Verifier(world.client, world.keys).verify_all().found
        assert found == [], f"after message {number}: {found}"

        take_over(world)

        assert essence(world.record("p")) == undisturbed, f"cut at message {number}"
        assert sorted(world.moves("p", "complete")) == WANTED, f"cut at message {number}"
        assert world.client.hget(world.keys.shared("flow_group", "g"), "total") == "1"
        assert left(world) == {}, f"cut at message {number}"


# ---- a coordinator that was only slow


def test_what_a_coordinator_sends_after_it_was_given_up_is_refused(world: RedisWorld, lines: Proxy) -> None:
    """It was stopped with its commit in transit.

    Another coordinator has done its work when the commit arrives.
    """
    line = lines.line("zombie")
    zombie = world.coordinator("zombie", connect(line.url))
    world.start(document(step("a"), step("b", "a")), {}, "x")
    zombie.run_once()
    world.work()
    deliveries = zombie._log.read(10, 0)
    line.part(60)
    with in_thread(lambda: zombie.handle(deliveries)):
        world.killed("zombie")
        world.age_pending(RECLAIM_MS)
        heir = world.coordinator("heir", world.connect())
        world.settle(heir)
        version = world.client.hget(world.keys.workflow(world.record("x").workflow_execution_id), "version")
        line.heal()

    assert world.record("x").version == version, "nothing of it was written"
    assert world.moves("x", "complete") == ["a", "b"]
    assert world.moves("x", "in_progress") == ["a", "b"]
    assert left(world) == {}


# ---- late results, and two results of one dispatch


def too_late(world: RedisWorld, coordinator: Any, how: str) -> None:
    match how:
        case "after its timeout":
            world.send(world.keys.events(0), {**started(world), "type": "started"})
            coordinator.handle(taken(world))
            world.age_timers(3_600_000)
            record = world.record("x")
            fields = {"type": "deadline", "execution": record.workflow_execution_id, "step": "a"}
            token = str(record.steps["a"].token)
            entry = f"{world.now_ms() + 3_600_000}-0"
            world.send(world.keys.events(0), {**fields, "token": token}, entry)
        case "after a cancel":
            control(world, "x", "cancel")
        case "after its worker was given up":
            world.send(world.keys.events(0), {**started(world), "type": "lost", "reason": "silent"})
        case "after a rerun":
            control(world, "x", "cancel")
            coordinator.handle(taken(world))
            control(world, "x", "rerun", "a")
    coordinator.handle(taken(world))


def started(world: RedisWorld) -> dict[str, str]:
    [payload] = world.payloads()
    return {
        "execution": payload["execution"],
        "step": "a",
        "run_id": str(payload["run_id"]),
        "attempt": str(payload["attempt"]),
        "token": payload["token"],
    }


LATE = ("after its timeout", "after a cancel", "after its worker was given up", "after a rerun")


@pytest.mark.parametrize("how", LATE)
def test_a_result_that_comes_too_late_is_counted_and_changes_nothing(world: RedisWorld, how: str) -> None:
    one = world.coordinator("one", trim_every_s=1e9)
    world.begin(one, document(step("a", timeout="1m", on_error="continue")), execution_id="x")
    [payload] = world.payloads()
    too_late(world, one, how)
    before = essence(world.record("x"))
    assert before["steps"]["a"][:2] != ("in_progress", 0)

    world.send(world.keys.events(0), result_fields(payload, {"late": True}))
    one.handle(taken(world))

    assert essence(world.record("x")) == before
    assert world.counter("stale") + world.counter("late") == 1
    assert "late" not in json.dumps(world.record("x").state)


@pytest.mark.parametrize("first", ["success", "failure"])
@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one after the other"])
def test_of_a_success_and_a_failure_of_one_dispatch_the_first_counts(
    world: RedisWorld, first: str, together: bool
) -> None:
    one = world.coordinator("one", trim_every_s=1e9)
    world.begin(one, document(step("a", on_error="continue")), execution_id="x")
    [payload] = world.payloads()
    success = result_fields(payload, {"n": 1})
    failure = {**success, "output": "null", "error": '{"kind": "exception", "message": "no"}'}
    for fields in (success, failure) if first == "success" else (failure, success):
        world.send(world.keys.events(0), fields)
        if not together:
            one.handle(taken(world))
    one.handle(taken(world))

    status = world.record("x").steps["a"].status
    assert status == ("complete" if first == "success" else "failed")
    assert world.counter("stale") + world.counter("late") == 1
    assert len(world.moves("x", status)) == 1
