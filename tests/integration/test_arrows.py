"""Every arrow of one step's way, each alone, between real processes:

producer -> starts -> coordinator -> queue -> worker -> executor -> worker -> events -> coordinator
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, GROUP, Keys
from processes import Stack, stack, wait_until

KEYS = Keys()
QUEUE = KEYS.rq_queue(KEYS.queue("default"))
SPEC = json.dumps(
    {
        "name": "sums",
        "steps": [
            {"id": "first", "fn": "add", "input": {"a": {"var": "input.n"}, "b": 1}},
            {"id": "second", "fn": "add", "input": {"a": {"var": "steps.first.output.sum"}, "b": 10}},
        ],
        "outputs": {"sum": {"var": "steps.second.output.sum"}},
    }
)
WORKERS: dict[str, Callable[[Stack], subprocess.Popen[bytes]]] = {
    "rq worker": lambda world: world.rq_worker(),
    "orchestrator worker": lambda world: world.worker(),
}


@pytest.fixture
def redis(redis_url: str) -> Client:
    return connect(redis_url)


def start(redis: Client, execution_id: str = "run-1") -> None:
    redis.xadd(KEYS.starts, {"spec": SPEC, "inputs": '{"n": 5}', "execution_id": execution_id})


def execution(redis: Client, execution_id: str = "run-1") -> str:
    return str(redis.get(KEYS.execution(execution_id)))


def step(redis: Client, step_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(redis.hget(KEYS.workflow(execution(redis)), f"step:{step_id}")))
    return found


def unacknowledged(redis: Client, stream: str) -> int:
    summary: Any = redis.xpending(stream, GROUP)
    return int(summary["pending"])


def test_from_the_start_to_the_queue(redis: Client, redis_url: str, tmp_path: Path) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        start(redis)
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())

        assert redis.hget(KEYS.workflow(execution(redis)), "status") == "in_progress"
        first = step(redis, "first")
        assert (first["status"], first["dispatches"]) == ("in_progress", 1)
        assert redis.lindex(QUEUE, 0) == first["token"]
        assert redis.zcard(KEYS.leases) == 1
        assert unacknowledged(redis, KEYS.starts) == 0


@pytest.mark.parametrize("worker", WORKERS)
def test_from_the_queue_through_the_executor_to_the_events(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        coordinator = world.coordinator()
        start(redis)
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())
        world.kill(coordinator)
        events = KEYS.events_of(execution(redis))

        WORKERS[worker](world)
        wait_until(lambda: redis.xlen(events) == 1, what=world.log())

        entries: Any = redis.xrange(events)
        [(_, fields)] = entries
        told = {name: fields[name] for name in ("type", "step", "run_id", "attempt", "output")}
        assert told == {
            "type": "result",
            "step": "first",
            "run_id": "0",
            "attempt": "1",
            "output": '{"sum":6}',
        }
        assert fields["token"] == step(redis, "first")["token"]


def test_from_the_events_to_the_next_step(redis: Client, redis_url: str, tmp_path: Path) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        start(redis)
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())
        token = str(redis.lpop(QUEUE))
        fields: dict[Any, Any] = {
            "type": "result",
            "execution": execution(redis),
            "step": "first",
            "run_id": "0",
            "attempt": "1",
        }
        redis.xadd(KEYS.events_of(execution(redis)), {**fields, "token": token, "output": '{"sum": 6}'})
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())

        assert step(redis, "first")["output"] == {"sum": 6}
        assert step(redis, "second")["status"] == "in_progress"
        assert redis.lindex(QUEUE, 0) == step(redis, "second")["token"] != token
        assert unacknowledged(redis, KEYS.events_of(execution(redis))) == 0


@pytest.mark.parametrize("worker", WORKERS)
def test_from_the_start_to_the_end(worker: str, redis: Client, redis_url: str, tmp_path: Path) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        WORKERS[worker](world)
        start(redis)
        wait_until(lambda: redis.zscore(KEYS.index("complete"), execution(redis)), what=world.log())

        record: Any = redis.hgetall(KEYS.workflow(execution(redis)))
        assert json.loads(record["outcome"]) == {"sum": 16}
        assert redis.zcard(KEYS.leases) == 0
        wait_until(lambda: not redis.keys("rq:job:*"), what="RQ to clean up")


def test_events_of_a_killed_coordinator_are_taken_over(redis: Client, redis_url: str, tmp_path: Path) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        coordinator = world.coordinator()
        wait_until(lambda: redis.zcard(KEYS.coordinators) == 1, what=world.log())
        coordinator.send_signal(signal.SIGSTOP)
        start(redis)
        # As if it had read the start and died before its commit.
        names: Any = redis.zrange(KEYS.coordinators, 0, -1)
        [name] = names
        redis.xreadgroup(GROUP, name, {KEYS.starts: ">"})
        world.kill(coordinator)
        world.coordinator()
        world.worker()
        wait_until(lambda: redis.zscore(KEYS.index("complete"), execution(redis)), what=world.log())

        assert unacknowledged(redis, KEYS.starts) == 0


def test_a_coordinator_told_to_stop_leaves_at_once_and_loses_nothing(
    redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        coordinator = world.coordinator()
        world.worker()
        wait_until(lambda: redis.zcard(KEYS.coordinators) == 1, what=world.log())
        for n in range(20):
            start(redis, f"run-{n}")
        coordinator.terminate()

        assert coordinator.wait(10) == 0
        assert redis.zcard(KEYS.coordinators) == 0
        world.coordinator()
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 20, what=world.log())


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_told_to_stop_finishes_its_step(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    slow = {"steps": [{"id": "s", "fn": "slow_add", "input": {"a": 1, "b": 2, "seconds": 1.5}}]}
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        process = WORKERS[worker](world)
        redis.xadd(KEYS.starts, {"spec": json.dumps(slow), "execution_id": "slow"})
        wait_until(lambda: world.horse_of(process), what=world.log())
        wait_until(lambda: is_begun(redis), what="the step to begin")
        process.terminate()

        assert process.wait(20) == 0
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
        found: Any = redis.hgetall(KEYS.counters)
        assert "lost" not in found


def is_begun(redis: Client) -> bool:
    """Whether all that is dispatched, and something is, was begun by a worker."""
    found: Any = redis.zrange(KEYS.leases, 0, -1, withscores=True)
    return bool(found) and all(score < FIRST_SEQUENCE and not score % 1 for _, score in found)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_killed_work_horse_is_noticed_within_two_seconds(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    slow = {"steps": [{"id": "s", "fn": "slow_add", "input": {"a": 1, "b": 2, "seconds": 3}}]}
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        process = WORKERS[worker](world)
        redis.xadd(KEYS.starts, {"spec": json.dumps(slow), "execution_id": "slow"})
        wait_until(lambda: world.horse_of(process), what=world.log())
        wait_until(lambda: is_begun(redis), what="the step to begin")
        assert world.kill_horse(process)

        wait_until(lambda: redis.hget(KEYS.counters, "lost") == "1", 2.0 + 3.0, world.log())  # a busy machine
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
        record: Any = redis.hget(KEYS.workflow(execution(redis, "slow")), "step:s")
        told = json.loads(record)
        assert (told["run_id"], told["attempt"], told["lost"], told["dispatches"]) == (1, 1, 1, 2)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_lost_worker_host_is_noticed_by_its_lease(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    slow = {"steps": [{"id": "s", "fn": "slow_add", "input": {"a": 1, "b": 2, "seconds": 30}}]}
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_LEASE_S="2") as world:
        world.coordinator()
        process = WORKERS[worker](world)
        redis.xadd(KEYS.starts, {"spec": json.dumps(slow), "execution_id": "slow"})
        wait_until(lambda: world.horse_of(process), what=world.log())
        wait_until(lambda: is_begun(redis), what="the step to begin")
        world.kill_with_horse(process)

        wait_until(lambda: redis.hget(KEYS.counters, "lost") == "1", 30, world.log())
        assert redis.llen(QUEUE) == 1


def test_a_job_that_was_popped_and_never_started_is_dispatched_again(
    redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_GRACE_MS="500") as world:
        world.coordinator()
        start(redis)
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())
        redis.lpop(QUEUE)  # as a worker whose reply was lost
        wait_until(lambda: redis.llen(QUEUE) == 1, 30, world.log())

        world.worker()
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
