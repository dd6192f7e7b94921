"""`explain` and `doctor` name the executor that is missing, its queue, and the workers that lack it."""

from __future__ import annotations

import json

from diagnosis.test_doctor import checked
from diagnosis.test_why import connected, explained, reason_of, registered
from orchestrator.application.explain.reasons import ReasonCode
from orchestrator.diagnosis import Level
from orchestrator.diagnosis.snapshot import RedisReasonCode
from orchestrator.invocation.executors import Executors
from orchestrator.worker.harness import Harness
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until

QUEUE = "orchestrator.default"
ADD = document(step("a", fn="add"))


def declined(world: RedisWorld, name: str = "x1") -> str:
    """An execution whose step was declined by a worker, and waits."""
    coordinator = world.coordinator()
    weid = world.begin(coordinator, ADD, execution_id=name)
    [payload] = world.payloads()
    world.client.lpop(world.keys.rq_queue(QUEUE))
    Harness(world.client, Executors(mapping={"other": dict}), worker="w1").run(payload)
    coordinator.run_once()
    return weid


def publish(world: RedisWorld, worker: str, *executors: str) -> None:
    registered(world, worker, QUEUE)
    world.client.hset(f"rq:worker:{worker}", "executors", json.dumps(executors))


def test_a_step_says_which_workers_lack_its_executor(world: RedisWorld) -> None:
    declined(world)
    publish(world, "w1", "other")
    publish(world, "w2", "echo")
    publish(world, "dead", "add")
    registered(world, "stock", QUEUE)
    registered(world, "elsewhere", "orchestrator.gpu")

    with connected(world, "w1", "w2", "stock", "elsewhere"):
        found = explained(world, "x1")

    declines = reason_of(found, ReasonCode.DECLINED)
    assert declines.words.startswith(
        "step a waits for a worker with its executor: the last worker did not have the executor 'add'"
        " (worker w1 has no executor 'add'); its next try is "
    )
    missing = reason_of(found, RedisReasonCode.NO_EXECUTOR)
    assert missing.words == (
        f"no live worker of the queue {QUEUE} is known to have the executor 'add' of step a;"
        " these lack it: w1 and w2; these do not publish which they have: stock"
    )
    assert missing.advice == "start a worker that has it: orchestrator worker default --executors MODULE"


def test_a_step_whose_executor_a_busy_worker_has_says_so(world: RedisWorld) -> None:
    declined(world)
    publish(world, "w1", "other")
    publish(world, "w2", "*")

    with connected(world, "w1", "w2"):
        found = explained(world, "x1")

    reason = reason_of(found, RedisReasonCode.EXECUTOR_BUSY)
    assert reason.words == (
        f"workers of the queue {QUEUE} have the executor 'add' of step a, but others took it first;"
        " these have it: w2; these lack it: w1"
    )
    assert reason.advice == (
        "give all workers of a queue the same executors, or the steps a queue of their own"
    )


def test_a_declined_step_that_is_queued_again_says_both(world: RedisWorld) -> None:
    weid = declined(world)
    fields = {"type": "available", "execution": weid, "step": "a", "executor": "add"}
    world.send(world.keys.events_of(weid), fields)
    world.coordinator().run_once()
    publish(world, "w1", "other")

    with connected(world, "w1"):
        found = explained(world, "x1")

    assert [one.code for one in found.reasons] == ["dispatched", "queued", "no_executor"]


def test_a_step_that_was_not_declined_lately_names_no_workers(world: RedisWorld) -> None:
    declined(world)
    world.client.delete(world.keys.declined)

    found = explained(world, "x1")

    assert [one.code for one in found.reasons] == ["declined"]


def test_the_doctor_has_nothing_to_say_about_executors_that_are_there(world: RedisWorld) -> None:
    world.coordinator()

    check = checked(world, "declined")

    assert (check.level, check.found) == (Level.OK, "no step waits for a worker with its executor")


def test_an_executor_that_no_live_worker_has_is_a_problem(world: RedisWorld) -> None:
    declined(world, "x1")
    declined(world, "x2")
    publish(world, "w1", "other")

    with connected(world, "w1"):
        check = checked(world, "declined")

    assert (check.level, check.found) == (
        Level.PROBLEM,
        f"no live worker is known to have the executor 'add' on {QUEUE} (2 steps wait; these lack it: w1)",
    )
    assert check.advice == "start a worker that has it: orchestrator worker default --executors MODULE"
    wait_until(lambda: "it has no workers" in checked(world, "declined").found)


def test_workers_that_decline_what_others_can_run_are_a_warning(world: RedisWorld) -> None:
    declined(world)
    publish(world, "w1", "other")
    publish(world, "w2", "add")

    with connected(world, "w1", "w2"):
        check = checked(world, "declined")

    assert (check.level, check.found) == (
        Level.WARNING,
        f"workers decline steps that others can run: 'add' on {QUEUE} (these have it: w2; these lack it: w1)",
    )


def test_a_cancelled_execution_is_no_problem(world: RedisWorld) -> None:
    weid = declined(world)
    assert checked(world, "declined").level is Level.PROBLEM

    world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "cancel"})
    world.coordinator().run_once()

    assert checked(world, "declined").level is Level.OK
