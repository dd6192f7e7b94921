"""A worker that does not have the executor of a step gives it back, and publishes no result."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from executor_modules import Modules
from orchestrator.application.errors import ExecutorNotFound, Unavailable
from orchestrator.invocation.executors import Executor, Executors
from orchestrator.redis_rq.declined import DeclinedStep, read_declined
from orchestrator.redis_rq.event_codec import MAX_NAME_LENGTH
from orchestrator.worker.harness import Harness, LazyExecutors
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld
from worlds.spec_executions import serve

ADD = document(step("a", fn="add"))
QUEUE = "orchestrator.default"
LACKING = Executors(mapping={"other": lambda inputs: {}})


def dispatched(world: RedisWorld, spec: Json = ADD) -> Json:
    """A job of a fresh execution, which stays in its queue."""
    world.begin(world.coordinator(), spec)
    [payload] = world.payloads()
    return payload


def published(world: RedisWorld) -> list[dict[str, str]]:
    return [fields for _, fields in world.events()]


def notes(world: RedisWorld) -> list[DeclinedStep]:
    return [declined for declined, _ in read_declined(world.client, world.keys)]


@pytest.mark.parametrize("executors", [LACKING, LazyExecutors(())], ids=["loaded", "stock"])
def test_a_step_without_an_executor_is_declined(
    world: RedisWorld, executors: Executors, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    payload = dispatched(world)

    assert Harness(world.client, executors, worker="w1").run(payload) is True

    assert published(world) == [
        {
            "type": "declined",
            "execution": payload["execution"],
            "step": "a",
            "run_id": "0",
            "attempt": "1",
            "token": payload["token"],
            "executor": "add",
            "worker": "w1",
        }
    ]
    assert notes(world) == [DeclinedStep(QUEUE, "add", payload["execution"], "a", payload["events"])]
    assert "declined: no executor is called 'add'" in caplog.text
    assert [one.__dict__["outcome"] for one in caplog.records if one.msg == "ended"] == ["declined"]


def test_another_worker_runs_a_declined_step(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    weid = world.begin(coordinator, ADD)
    payload = world.pop()
    assert payload is not None

    Harness(world.client, LACKING, worker="w1").run(payload)
    coordinator.run_once()
    assert (world.waiting(), world.leases(), len(world.timers())) == ([], {}, 1), "it waits"
    [again] = serve(world, coordinator, until=world.payloads, works=False)
    world.settle(coordinator)

    assert (again["token"] != payload["token"], again["attempt"], again["run_id"]) == (True, 1, 0)
    assert world.status(weid) == "complete"
    assert world.record(weid).steps["a"].attempt == 1
    assert (world.counter("declined"), world.leases(), world.timers()) == (1, {}, {})


def test_a_step_fails_where_no_other_worker_could_run_it(world: RedisWorld) -> None:
    Harness(world.client, LACKING, declines=False).run(dispatched(world))

    [fields] = published(world)
    error = json.loads(fields["error"])
    assert (fields["type"], error["kind"], error["type"]) == ("result", "exception", "ExecutorNotFound")
    assert notes(world) == []


def test_an_executor_that_is_there_and_cannot_be_loaded_fails_the_step(
    world: RedisWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Modules(tmp_path, monkeypatch).write("declines_broken", "raise ValueError('not today')")

    Harness(world.client, LazyExecutors((broken,))).run(dispatched(world))

    [fields] = published(world)
    error = json.loads(fields["error"])
    assert (fields["type"], error["type"]) == ("result", "BadExecutors")
    assert "not today" in error["message"]


def test_an_executor_that_raises_the_same_exception_fails_the_step(world: RedisWorld) -> None:
    def add(inputs: Json) -> Json:
        raise ExecutorNotFound("add", [])

    Harness(world.client, Executors(mapping={"add": add})).run(dispatched(world))

    [fields] = published(world)
    assert fields["type"] == "result"


def test_a_superseded_step_is_not_declined(world: RedisWorld) -> None:
    payload = dispatched(world)

    class Slow(Executors):
        def find(self, fn: str) -> Executor:
            world.client.delete(world.keys.leases)
            raise ExecutorNotFound(fn, [])

    harness = Harness(world.client, Slow(), is_stopped=lambda: not world.leases())

    assert harness.run(payload) is False
    assert (published(world), notes(world)) == ([], [])


def test_a_very_long_name_is_shortened(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    weid = world.begin(coordinator, document(step("a", fn="x" * 5_000)))
    [payload] = world.payloads()

    Harness(world.client, LACKING).run(payload)
    coordinator.run_once()

    [fields] = published(world)
    assert fields["executor"] == "x" * MAX_NAME_LENGTH
    assert (world.dead(), world.record(weid).steps["a"].declined) == ([], 1)


def test_a_note_that_cannot_be_written_does_not_keep_the_event_back(
    world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    payload = dispatched(world)
    world.client.set(world.keys.declined, "not a sorted set")

    Harness(world.client, LACKING).run(payload)

    [fields] = published(world)
    assert fields["type"] == "declined"
    assert "cannot note that" in caplog.text


def test_an_outage_while_a_step_is_declined_loses_nothing(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = dispatched(world)

    def unavailable(*_: object) -> None:
        raise Unavailable("Redis: away")

    monkeypatch.setattr("orchestrator.worker.harness.note_declined", unavailable)

    assert Harness(world.client, LACKING).run(payload) is True

    assert [fields["type"] for fields in published(world)] == ["declined"]
