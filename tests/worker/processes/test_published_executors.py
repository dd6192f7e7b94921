"""The names of a worker's executors, beside its registration with RQ."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from redis import Redis
from rq import Worker

from orchestrator.redis_rq.declined import DeclinedStep, note_declined
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.rq_workers import rq_workers
from orchestrator.worker.processes.published_executors import PublishedExecutors
from orchestrator.worker.processes.rq_registration import connect_for_rq, make_worker
from worlds.redis_world import RedisWorld

KEYS = Keys()
WAITING = DeclinedStep("orchestrator.default", "add", "w#1", "a", "orchestrator:events:0")


@pytest.fixture
def worker(redis_url: str) -> Iterator[Worker]:
    client = connect_for_rq(redis_url)
    made = make_worker(client, KEYS.queues("default"), "w1")
    made.register_birth()
    yield made
    client.close()


def available(world: RedisWorld) -> int:
    return len([fields for _, fields in world.events() if fields["type"] == "available"])


def test_the_names_are_in_the_registration_and_are_read_from_there(world: RedisWorld, worker: Worker) -> None:
    Worker(["orchestrator.default"], name="stock", connection=worker.connection).register_birth()

    PublishedExecutors(worker, KEYS, ["b", "a", "b"]).refresh(0)

    assert json.loads(str(world.client.hget("rq:worker:w1", "executors"))) == ["a", "b"]
    stock, mine = rq_workers(Inspection(world.client, KEYS))
    assert (stock.name, stock.executors, stock.has_executor("a")) == ("stock", None, None)
    assert (mine.executors, mine.has_executor("a"), mine.has_executor("c")) == (("a", "b"), True, False)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "[1]", "[" * 100_000])
def test_names_of_another_form_are_none(world: RedisWorld, worker: Worker, text: str) -> None:
    world.client.hset("rq:worker:w1", "executors", text)

    [mine] = rq_workers(Inspection(world.client, KEYS))

    assert mine.executors is None


def test_a_function_for_every_name_counts_for_each(world: RedisWorld, worker: Worker) -> None:
    PublishedExecutors(worker, KEYS, ["*"]).refresh(0)

    [mine] = rq_workers(Inspection(world.client, KEYS))

    assert mine.has_executor("anything")


def test_names_that_redis_has_lost_are_published_again(world: RedisWorld, worker: Worker) -> None:
    published = PublishedExecutors(worker, KEYS, ["a"])
    published.refresh(0)
    world.client.flushall()
    worker.register_birth()

    published.refresh(0)

    assert world.client.hget("rq:worker:w1", "executors") == '["a"]'


@pytest.mark.parametrize(("running", "slots", "woken"), [(0, 1, 1), (1, 1, 0), (3, 4, 1), (4, 4, 0)])
def test_a_worker_that_could_run_another_step_wakes_those_that_wait(
    world: RedisWorld, worker: Worker, running: int, slots: int, woken: int
) -> None:
    note_declined(world.client, KEYS, WAITING)

    PublishedExecutors(worker, KEYS, ["add"], slots).refresh(running)

    assert available(world) == woken


def test_a_right_that_is_missing_is_reported_once_and_keeps_no_worker_from_working(
    world: RedisWorld, worker: Worker, redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    world.client.set(KEYS.declined, "not a sorted set")
    published = PublishedExecutors(worker, KEYS, ["add"])

    published.refresh(0)
    published.refresh(0)

    assert caplog.text.count("cannot wake steps that wait for an executor") == 1
    assert world.client.hget("rq:worker:w1", "executors") == '["add"]'
