"""Several workers under one parent, `orchestrator worker --processes P`, and the memory a step may have."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.redis_rq.connection import connect
from processes import PatientClient, Stack, is_running, stack, wait_until
from worker.processes.test_concurrent_child import System, fan

pytestmark = pytest.mark.slow

Json = dict[str, Any]


@pytest.fixture
def system(redis_url: str, tmp_path: Path) -> Iterator[System]:
    with stack(redis_url, "async_functions", tmp_path / "logs", ORCHESTRATOR_MAX_MEMORY="400MB") as processes:
        processes.coordinator()
        redis = connect(redis_url)
        yield System(processes, redis, PatientClient(redis), tmp_path)
        redis.close()


def children_of(process: subprocess.Popen[bytes]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def workers(system: System) -> int:
    return int(system.redis.scard("rq:workers"))


@pytest.mark.parametrize("options", [(), ("--concurrency", "4")])
def test_the_workers_of_a_pool_share_the_work(system: System, options: tuple[str, ...]) -> None:
    pool = system.processes.worker("default", "--processes", "3", *options)
    wait_until(lambda: workers(system) == 3, what=system.log())

    system.client.start(fan("sit", 24, 0.3), execution_id="x")

    assert isinstance(system.result("x"), Complete), system.log()
    pool.terminate()
    assert pool.wait(180) == 0
    assert workers(system) == 0


def test_a_worker_that_was_killed_is_replaced(system: System) -> None:
    pool = system.processes.worker("default", "--processes", "2")
    wait_until(lambda: workers(system) == 2, what=system.log())
    before = children_of(pool)

    for pid in before:
        os.kill(pid, signal.SIGKILL)

    wait_until(lambda: len(set(children_of(pool)) - set(before)) == 2, what=system.log())
    system.client.start({"steps": [system.step("a", "sit")]}, execution_id="x")
    assert isinstance(system.result("x"), Complete), system.log()


@pytest.mark.parametrize("options", [(), ("--concurrency", "4")])
def test_a_worker_stopped_by_one_of_its_steps_is_replaced(system: System, options: tuple[str, ...]) -> None:
    pool = system.processes.worker("default", "--processes", "2", *options)
    wait_until(lambda: workers(system) == 2, what=system.log())
    before = children_of(pool)

    system.client.start({"steps": [{"id": "a", "fn": "dismisses"}]}, execution_id="x")

    assert isinstance(system.result("x"), Complete), system.log()
    wait_until(lambda: len(set(children_of(pool)) - set(before)) == 1, what=system.log())
    wait_until(lambda: workers(system) == 2, what=system.log())


def test_workers_whose_parent_died_finish_their_steps_and_exit(system: System) -> None:
    pool = system.processes.worker("default", "--processes", "2")
    wait_until(lambda: workers(system) == 2, what=system.log())
    before = children_of(pool)
    system.client.start({"steps": [system.step("a", "deaf")]}, execution_id="x")
    system.began("a")

    system.processes.kill(pool)
    wait_until(lambda: sum(map(is_running, before)) == 1, what=system.log())
    system.let_go("a")

    assert isinstance(system.result("x"), Complete), system.log()
    wait_until(lambda: not any(map(is_running, before)), what=system.log())
    assert system.client.record("x").steps["a"].lost == 0


def test_a_burst_of_several_workers_ends_when_the_queues_are_empty(system: System) -> None:
    system.client.start(fan("sit", 6, 0.1), execution_id="x")
    wait_until(lambda: system.redis.llen("rq:queue:orchestrator.default") == 6)

    pool = system.processes.worker("default", "--processes", "2", "--burst")

    assert pool.wait(180) == 0
    assert isinstance(system.result("x"), Complete), system.log()


# ---- memory


def stock(processes: Stack) -> subprocess.Popen[bytes]:
    return processes.rq_worker()


def ours(processes: Stack) -> subprocess.Popen[bytes]:
    return processes.worker()


def several_at_once(processes: Stack) -> subprocess.Popen[bytes]:
    return processes.worker("default", "--concurrency", "2")


@pytest.mark.parametrize("make", [stock, ours, several_at_once])
def test_a_step_that_needs_too_much_memory_fails_and_the_next_one_runs(system: System, make: Any) -> None:
    worker = make(system.processes)

    system.client.start({"steps": [{"id": "a", "fn": "hoards"}]}, execution_id="x")
    final = system.result("x")

    assert isinstance(final, Failed), system.log()
    assert (final.error["kind"], final.error["type"]) == ("exception", "MemoryError")
    assert final.error["message"] == (
        "MemoryError: the process of the step may use 400 MB; raise ORCHESTRATOR_MAX_MEMORY of its worker, or"
        " let the step use less"
    )
    system.client.start({"steps": [system.step("b", "sit")]}, execution_id="y")
    assert isinstance(system.result("y"), Complete), system.log()
    assert worker.poll() is None


def test_a_bad_memory_limit_is_rejected_at_the_start(redis_url: str, tmp_path: Path) -> None:
    environment = {"ORCHESTRATOR_MAX_MEMORY": "a lot"}
    with stack(redis_url, "async_functions", tmp_path / "logs", **environment) as processes:
        assert processes.worker().wait(180) == 2
        assert "ORCHESTRATOR_MAX_MEMORY is 'a lot': write 512MB, 2GB or a number of bytes" in processes.log()
