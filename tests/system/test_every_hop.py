"""Every arrow of one step's way, each alone, between real processes:

producer -> starts -> coordinator -> queue -> worker -> executor -> worker -> events -> coordinator
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, GROUP, Keys, job_id_of
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
        assert redis.lindex(QUEUE, 0) == job_id_of(KEYS.queue("default"), first["token"])
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
        wait_until(lambda: results(redis, events), what=world.log())

        [fields] = results(redis, events)
        told = {name: fields[name] for name in ("type", "step", "run_id", "attempt", "output")}
        assert told == {
            "type": "result",
            "step": "first",
            "run_id": "0",
            "attempt": "1",
            "output": '{"sum":6}',
        }
        assert fields["token"] == step(redis, "first")["token"]


def results(redis: Client, events: str) -> list[dict[str, str]]:
    """A worker that is slow says also that it has started."""
    entries: Any = redis.xrange(events)
    return [fields for _, fields in entries if fields["type"] == "result"]


def test_from_the_events_to_the_next_step(redis: Client, redis_url: str, tmp_path: Path) -> None:
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        start(redis)
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())
        first = str(redis.lpop(QUEUE))
        token = step(redis, "first")["token"]
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
        second = job_id_of(KEYS.queue("default"), step(redis, "second")["token"])
        assert redis.lindex(QUEUE, 0) == second != first
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

        assert coordinator.wait(180) == 0
        assert redis.zcard(KEYS.coordinators) == 0
        world.coordinator()
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 20, what=world.log())


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_told_to_stop_finishes_its_step(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path / "logs") as world:
        world.coordinator()
        process = WORKERS[worker](world)
        start_waiting(redis, tmp_path)
        wait_until(lambda: world.horse_of(process), what=world.log())
        wait_until(lambda: is_begun(redis), what="the step to begin")
        process.terminate()
        (tmp_path / "go").touch()

        assert process.wait(180) == 0
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
        found: Any = redis.hgetall(KEYS.counters)
        assert "lost" not in found


def start_waiting(redis: Client, folder: Path) -> None:
    """Start a step that runs until there is a file `go` in this folder."""
    files = {"pid_file": str(folder / "pid"), "go": str(folder / "go")}
    spec = {"steps": [{"id": "s", "fn": "waits", "input": files}]}
    redis.xadd(KEYS.starts, {"spec": json.dumps(spec), "execution_id": "slow"})


def is_begun(redis: Client) -> bool:
    """Whether all that is dispatched, and something is, was begun by a worker."""
    found: Any = redis.zrange(KEYS.leases, 0, -1, withscores=True)
    return bool(found) and all(score < FIRST_SEQUENCE and not score % 1 for _, score in found)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_killed_work_horse_is_noticed_within_two_seconds(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    """Whatever else could notice it, its lease and the registry of RQ, would take a minute or more."""
    with stack(redis_url, "step_functions", tmp_path / "logs", ORCHESTRATOR_LEASE_S="600") as world:
        world.coordinator()
        process = WORKERS[worker](world)
        start_waiting(redis, tmp_path)
        wait_until(lambda: world.horse_of(process), what=world.log())
        wait_until(lambda: is_begun(redis), what="the step to begin")
        noticed_by_rq_at = expiry_in_rq(redis)
        assert world.kill_horse(process)

        wait_until(lambda: redis.hget(KEYS.counters, "lost") == "1", what=world.log())
        assert redis.time()[0] < noticed_by_rq_at
        (tmp_path / "go").touch()
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
        record: Any = redis.hget(KEYS.workflow(execution(redis, "slow")), "step:s")
        told = json.loads(record)
        assert (told["run_id"], told["attempt"], told["lost"], told["dispatches"]) == (1, 1, 1, 2)


def expiry_in_rq(redis: Client) -> float:
    """When RQ would take the job that runs for lost."""
    running: Any = redis.zrange("rq:wip:orchestrator.default", 0, -1, withscores=True)
    return min((score for _, score in running), default=math.inf)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_lost_worker_host_is_noticed_by_its_lease(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path / "logs", ORCHESTRATOR_LEASE_S="2") as world:
        world.coordinator()
        process = WORKERS[worker](world)
        start_waiting(redis, tmp_path)
        wait_until(lambda: world.horse_of(process), what=world.log())
        wait_until(lambda: is_begun(redis), what="the step to begin")
        world.kill_with_horse(process)

        wait_until(lambda: redis.hget(KEYS.counters, "lost") == "1", what=world.log())
        assert redis.llen(QUEUE) == 1


def test_a_job_that_was_popped_and_never_started_is_dispatched_again(
    redis: Client, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_GRACE_MS="500") as world:
        world.coordinator()
        start(redis)
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())
        redis.lpop(QUEUE)  # as a worker whose reply was lost
        wait_until(lambda: redis.llen(QUEUE) == 1, what=world.log())

        world.worker()
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
