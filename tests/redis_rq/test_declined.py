"""The notes about declined steps: who reads them, and how long they are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.invocation.executors import Executors
from orchestrator.redis_rq import declined
from orchestrator.redis_rq.declined import DeclinedStep, Waker, note_declined, read_declined
from orchestrator.redis_rq.queries.declined_steps import declined_steps
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.worker.harness import Harness
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

QUEUE = "orchestrator.default"
ADD = DeclinedStep(QUEUE, "add", "w#1", "a", "orchestrator:events:0")


def noted(world: RedisWorld) -> list[DeclinedStep]:
    return [one for one, _ in read_declined(world.client, world.keys)]


def waker(world: RedisWorld, *executors: str, queue: str = QUEUE) -> Waker:
    return Waker(world.client, world.keys, [queue], executors)


def available(world: RedisWorld) -> list[tuple[str, str, str]]:
    events = [fields for _, fields in world.events() if fields["type"] == "available"]
    return [(one["execution"], one["step"], one["executor"]) for one in events]


def move_note(world: RedisWorld, step_id: str, ms: int) -> None:
    """As if the note of a step had been written this much later."""
    notes: Any = world.client.zrange(world.keys.declined, 0, -1)
    [note] = [one for one in notes if f'"{step_id}"' in one]
    world.client.zincrby(world.keys.declined, ms, note)


def test_the_latest_note_comes_first_and_a_step_is_noted_once(world: RedisWorld) -> None:
    second = replace(ADD, step="b")
    for one in (ADD, second, ADD):
        note_declined(world.client, world.keys, one)

    move_note(world, "b", 1_000)

    assert noted(world) == [second, ADD]


def test_a_note_is_forgotten_after_a_minute(world: RedisWorld) -> None:
    note_declined(world.client, world.keys, ADD)
    move_note(world, "a", -declined.KEPT_MS - 1)

    note_declined(world.client, world.keys, replace(ADD, step="b"))

    assert noted(world) == [replace(ADD, step="b")]
    assert 0 < int(str(world.client.pttl(world.keys.declined))) <= declined.KEPT_MS


@pytest.mark.parametrize("note", ["", "{", "[]", '["q"]', '["q","e","x","s",1]', "null", "[" * 100_000])
def test_a_note_of_another_form_is_ignored(world: RedisWorld, note: str) -> None:
    note_declined(world.client, world.keys, ADD)
    world.client.zadd(world.keys.declined, {note: 2**50})

    assert noted(world) == [ADD]
    assert waker(world, "add").wake() == 1


def test_a_worker_wakes_the_steps_that_it_can_run_each_once(world: RedisWorld) -> None:
    for one in (
        ADD,
        replace(ADD, step="b", executor="other"),
        replace(ADD, step="c", queue="orchestrator.gpu"),
    ):
        note_declined(world.client, world.keys, one)
    mine = waker(world, "add", "echo")

    assert (mine.wake(), mine.wake()) == (1, 0)

    assert available(world) == [("w#1", "a", "add")]


def test_a_step_that_is_declined_again_is_woken_again(world: RedisWorld) -> None:
    mine = waker(world, "add")
    note_declined(world.client, world.keys, ADD)
    mine.wake()

    move_note(world, "a", 1)

    assert mine.wake() == 1


def test_a_worker_with_a_function_for_every_name_wakes_every_step_of_its_queues(world: RedisWorld) -> None:
    note_declined(world.client, world.keys, ADD)

    assert waker(world, "*").wake() == 1
    assert waker(world, "*", queue="orchestrator.gpu").wake() == 0


def test_without_notes_one_command_is_sent(world: RedisWorld) -> None:
    before: Any = world.client.info("commandstats")

    waker(world, "add").wake()

    after: Any = world.client.info("commandstats")
    calls = {name: one["calls"] - before.get(name, {"calls": 0})["calls"] for name, one in after.items()}
    assert {name for name, count in calls.items() if count} == {"cmdstat_zrevrangebyscore", "cmdstat_info"}


def test_a_step_that_is_woken_is_dispatched_before_its_wait_is_over(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    weid = world.begin(coordinator, document(step("a", fn="add")))
    lacking = Harness(world.client, Executors(mapping={"other": dict}), worker="w1")
    for _ in range(8):
        [payload] = world.payloads()
        world.client.lpop(world.keys.rq_queue(QUEUE))
        lacking.run(payload)
        coordinator.run_once()
        assert world.waiting() == []
        waker(world, "add").wake()
        coordinator.run_once()

    assert len(world.waiting()) == 1
    assert (world.counter("declined"), world.record(weid).steps["a"].declined) == (8, 1)
    assert world.dead() == []


def test_only_steps_that_still_wait_are_shown(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    weid = world.begin(coordinator, document(step("a", fn="add")))
    [payload] = world.payloads()
    Harness(world.client, Executors(mapping={"other": dict})).run(payload)
    for other in (replace(ADD, execution="gone#1"), replace(ADD, execution=weid, step="b")):
        note_declined(world.client, world.keys, other)
    coordinator.run_once()
    mine = DeclinedStep(QUEUE, "add", weid, "a", payload["events"])
    assert declined_steps(Inspection(world.client, world.keys)) == [mine]

    waker(world, "add").wake()
    coordinator.run_once()
    world.settle(coordinator)

    assert world.status(weid) == "complete"
    assert declined_steps(Inspection(world.client, world.keys)) == []
