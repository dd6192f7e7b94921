"""RQ's own monitor shows our workers: `rq info` has their names, states and the depth of their queues."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rq import Worker
from rq.worker import BaseWorker

from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.worker.processes.rq_registration import connect_for_rq, make_worker
from orchestrator.worker.processes.supervisor import Supervisor
from processes import PATIENCE_S, ROOT, PatientClient, run_module, stack, wait_until

pytestmark = pytest.mark.slow

QUEUE = "orchestrator.default"
CHECK = Path(__file__).parents[3] / "scripts" / "check-dashboards"


@pytest.fixture
def redis(redis_url: str) -> Iterator[RedisClient]:
    client = connect(redis_url)
    yield client
    client.close()


def rq_info(url: str) -> str:
    """As somebody sees it who has nothing of ours."""
    return run_module(["rq.cli", "info", "--raw", "--url", url], os.environ, ROOT, PATIENCE_S).stdout


def test_a_worker_whose_child_was_faster_is_registered(redis: RedisClient, redis_url: str) -> None:
    client = connect_for_rq(redis_url)
    worker = make_worker(client, [QUEUE], "w1")
    redis.hset(worker.key, "current_step", "taken before the first heartbeat")  # as take_jobs.lua does

    Supervisor(worker, lambda pipes: None, True, 30)._send_heartbeat()

    assert redis.smembers("rq:workers") == {worker.key}
    assert redis.hmget(worker.key, "state", "queues") == ["idle", QUEUE]
    assert redis.hget(worker.key, "current_step")
    assert redis.ttl(worker.key) > 0
    client.close()


@pytest.mark.parametrize("options", [(), ("--concurrency", "1")], ids=["work-horse", "crew"])
def test_rq_info_shows_a_worker_its_state_and_the_depth_of_its_queue(
    options: tuple[str, ...], redis: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    inputs = {"pid_file": str(tmp_path / "pid"), "go": str(tmp_path / "go")}
    waiting = {"steps": [{"id": step, "fn": "waits", "input": inputs} for step in ("a", "b", "c")]}
    with stack(redis_url, "step_functions", tmp_path / "logs") as world:
        world.coordinator()
        process = world.worker("default", *options)
        wait_until(lambda: redis.scard("rq:workers") == 1, what=world.log())
        (key,) = (str(one) for one in redis.smembers("rq:workers"))
        name = key.removeprefix("rq:worker:")

        def shows(state: str, depth: int) -> bool:
            printed = rq_info(redis_url)
            worker = rf"^worker {re.escape(name)} \(\S+ \S* {process.pid}\) {state} {QUEUE}\b"
            # There is no such queue for RQ before its first job.
            queue = rf"^queue {QUEUE} {depth}," if redis.exists("rq:queues") else ""
            return all(re.search(line, printed, re.M) for line in (worker, queue))

        wait_until(lambda: shows("idle", 0), what=world.log())
        started = PatientClient(redis).start(waiting, {})
        wait_until(lambda: shows("busy", 2), what=world.log())
        assert heard_again(redis, key), "beats while it is busy"
        (tmp_path / "go").touch()
        PatientClient(redis).result(started.workflow_execution_id, timeout_s=180)
        wait_until(lambda: shows("idle", 0), what=world.log())
        assert heard_again(redis, key), "beats while it is idle"


@pytest.mark.parametrize("options", [(), ("--concurrency", "2")], ids=["work-horse", "crew"])
def test_rq_knows_how_many_steps_a_worker_has_run_and_for_how_long(
    options: tuple[str, ...], redis: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    """They are those of the worker, also when its child was replaced in between."""
    ran = {"steps": [{"id": f"s{n}", "fn": "nothing"} for n in range(3)]}
    slow = {"steps": [{"id": "s", "fn": "slow_add", "input": {"a": 1, "b": 2, "seconds": 0.5}}]}
    failed = {"steps": [{"id": "s", "fn": "fail", "max_attempts": 2}]}
    with stack(redis_url, "step_functions", tmp_path / "logs") as world:
        world.coordinator()
        world.worker("default", *options, "--recycle-after", "2")
        client = PatientClient(redis)
        for document in (ran, slow, failed):
            client.wait(client.start(document).execution_id)

        def shown() -> BaseWorker:
            [worker] = Worker.all(connect_for_rq(redis_url))
            return worker

        wait_until(lambda: shown().successful_job_count == 4, what=world.log())
        wait_until(lambda: shown().failed_job_count == 2, what=world.log())
        assert 0.5 <= shown().total_working_time < PATIENCE_S


def heard_again(redis: RedisClient, key: str) -> bool:
    before: Any = redis.hget(key, "last_heartbeat")
    wait_until(lambda: redis.hget(key, "last_heartbeat") != before, what="another beat")
    return True


def test_the_check_of_other_dashboards_says_what_it_does() -> None:
    """It needs a network, so here it is only loaded."""
    done = subprocess.run([sys.executable, str(CHECK), "--help"], capture_output=True, text=True, check=True)

    assert "rq-dashboard and rq-exporter" in done.stdout
