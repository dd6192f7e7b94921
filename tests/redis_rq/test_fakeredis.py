"""fakeredis is good enough for the demo of `orchestrator run`: streams, scripts, timers and leases work.

Everything else is tested on a real redis-server only.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakeredis import FakeRedis, FakeServer
from redis.backoff import NoBackoff
from redis.retry import Retry

from orchestrator.client import Client
from orchestrator.invocation.executors import Executor
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until

CHILD = document(step("inner", input={"n": {"var": "input.n"}}), outputs={"n": {"var": "state.n"}})
EVERYTHING = document(
    step("first", input={"xs": [1, 2, 3]}),
    step(
        "each",
        map={"over": {"var": "steps.first.output.xs"}, "max_parallel": 2},
        input={"v": {"var": "item"}},
    ),
    step("flaky", after="first", retry={"max_retries": 1, "initial_delay_ms": 10}),
    {"id": "late", "delay": "10ms", "depends_on": ["first"]},
    {"id": "kid", "workflow": CHILD, "input": {"n": 7}, "depends_on": ["first"]},
    {"id": "go", "wait": {"signal": "go"}},
    step("charge", after="first", concurrency={"key": "bank", "limit": 1}, compensate={"fn": "refund"}),
    outputs={
        "items": {"var": "steps.each.output.items"},
        "kid": {"var": "steps.kid.output.n"},
        "go": {"var": "steps.go.output.n"},
    },
)


@pytest.fixture
def world() -> Iterator[RedisWorld]:
    server = FakeServer()

    def connect() -> FakeRedis:
        return FakeRedis(
            server=server,
            protocol=2,
            decode_responses=True,
            encoding_errors="replace",
            retry=Retry(NoBackoff(), 0),
        )

    made = RedisWorld(connect)
    yield made
    made.close()


def settle(world: RedisWorld, executors: dict[str, Executor], weid: str) -> None:
    """Turn and work until the execution has ended."""
    one = world.coordinator()

    def has_ended() -> bool:
        world.settle(one, executors=executors)
        return world.record(weid).is_final

    wait_until(has_ended)


def test_a_workflow_that_uses_the_whole_language_completes(world: RedisWorld) -> None:
    calls = 0

    def flaky(inputs: Json) -> Json:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("once")
        return {}

    one = world.coordinator()
    weid = world.begin(one, EVERYTHING)
    Client(world.client, world.keys).signal(weid, "go", {"n": 5}, reply_timeout_s=None)
    settle(world, {"flaky": flaky}, weid)

    record = world.record(weid)
    assert record.status == "complete", record.error
    assert record.outcome == {"items": [{"v": 1}, {"v": 2}, {"v": 3}], "kid": 7, "go": 5}
    assert calls == 2
    assert not world.leases()
    assert not world.timers()
    assert not world.pending()


def test_a_failure_is_compensated(world: RedisWorld) -> None:
    refunds: list[Json] = []

    def refund(inputs: Json) -> Json:
        refunds.append(inputs)
        return {}

    def fail(inputs: Json) -> Json:
        raise ValueError("no")

    one = world.coordinator()
    spec = document(
        step("charge", compensate={"fn": "refund", "input": {"n": 1}}), step("ship", after="charge")
    )
    weid = world.begin(one, spec)
    settle(world, {"refund": refund, "ship": fail}, weid)

    assert world.record(weid).status == "failed"
    assert refunds == [{"n": 1}]


def test_a_lost_dispatch_runs_again(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", input={"n": 1})))
    assert world.pop() is not None, "a worker takes the job and is never heard of again"
    world.settle(one)
    world.age_leases(600_000)
    world.age_timers(600_000)
    settle(world, {}, weid)

    record = world.record(weid)
    assert (record.status, record.steps["a"].dispatches) == ("complete", 2)


def test_what_a_dead_coordinator_had_read_is_taken_over(world: RedisWorld) -> None:
    one = world.coordinator("one")
    world.start(document(step("a")), execution_id="x")
    one_log = world.log("dead")
    one_log.read(10, 0)
    world.killed("dead")
    world.age_pending(600_000, reader="dead")
    world.settle(one)

    assert world.status(str(world.client.get(world.keys.execution("x")))) == "complete"
