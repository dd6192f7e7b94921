"""Several steps at once in one process, on a real redis-server: `orchestrator worker --concurrency N`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import ROOT, PatientClient, Stack, is_running, run_module, stack, wait_until
from servers.redis_server import own_redis

pytestmark = pytest.mark.slow

KEYS = Keys()
Json = dict[str, Any]


@dataclass
class System:
    """A coordinator, and workers that each run several steps at once."""

    processes: Stack
    redis: RedisClient
    client: Client
    folder: Path

    def worker(self, concurrency: int = 8, *options: str) -> subprocess.Popen[bytes]:
        return self.processes.worker("default", "--concurrency", str(concurrency), *options)

    def step(self, step_id: str, fn: str, **keys: Any) -> Json:
        return {
            "id": step_id,
            "fn": fn,
            "input": {"began": str(self.folder / step_id), **keys.pop("input", {})},
            **keys,
        }

    def began(self, step_id: str) -> int:
        """The process that a step runs in."""
        file = self.folder / step_id
        wait_until(lambda: file.exists() and file.read_text(), what=f"{step_id} to run\n{self.log()}")
        return int(file.read_text())

    def has_ended(self, step_id: str) -> bool:
        return (self.folder / f"{step_id}.ended").exists()

    def let_go(self, step_id: str) -> None:
        (self.folder / f"{step_id}.go").touch()

    def log(self) -> str:
        return self.processes.log()

    def result(self, execution_id: str) -> Any:
        return self.client.wait(execution_id, 180)

    def nothing_is_left_in_rq(self) -> bool:
        return not list(self.redis.scan_iter("rq:job:*")) and not self.redis.zcard(KEYS.leases)


@pytest.fixture
def system(redis_url: str, tmp_path: Path) -> Iterator[System]:
    """With leases so long that none expires in a test."""
    with stack(redis_url, "async_functions", tmp_path / "logs", ORCHESTRATOR_LEASE_S="600") as processes:
        processes.coordinator()
        redis = connect(redis_url)
        yield System(processes, redis, PatientClient(redis), tmp_path)
        redis.close()


def fan(fn: str, width: int, seconds: float = 0.0, **inputs: Any) -> Json:
    items = list(range(width))
    step = {
        "id": "fan",
        "fn": fn,
        "map": {"over": {"$literal": items}},
        "output": {"pid": {"var": "result.pid"}},
    }
    return {"steps": [{**step, "input": {"n": {"var": "item"}, "seconds": seconds, **inputs}}]}


@pytest.mark.parametrize("fn", ["meets", "meets_in_thread"])
def test_steps_run_at_once_in_one_process(system: System, fn: str) -> None:
    """None of them ends before all of them run."""
    (met := system.folder / "met").mkdir()
    system.worker(20)
    system.client.start(fan(fn, 20, folder=str(met), count=20), execution_id="x")

    assert isinstance(system.result("x"), Complete), system.log()
    items = system.client.record("x").steps["fan"].output["items"]
    assert len({item["pid"] for item in items}) == 1
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")


def test_rq_sees_the_worker_and_whether_it_is_busy(system: System) -> None:
    system.worker()
    system.client.start({"steps": [system.step("a", "endless")]}, execution_id="x")
    system.began("a")

    def told() -> str:
        return run_module(["rq.cli", "info", "--url", system.processes.url], os.environ, ROOT, 180).stdout

    wait_until(lambda: re.search(r"busy.*orchestrator.default", told()), what="rq info to say busy")
    system.client.cancel("x")
    wait_until(lambda: re.search(r"idle.*orchestrator.default", told()), what="rq info to say idle")


# ---- stopping


@pytest.mark.parametrize("fn", ["endless", "polite"])
def test_a_cancel_stops_one_step_and_no_other(system: System, fn: str) -> None:
    worker = system.worker()
    system.client.start({"steps": [system.step("other", "endless")]}, execution_id="other")
    system.client.start({"steps": [system.step("a", fn)]}, execution_id="x")
    process = system.began("other")
    assert system.began("a") == process

    assert system.client.cancel("x").status == "cancelled"
    wait_until(lambda: system.has_ended("a"), what=system.log())

    assert not system.has_ended("other")
    assert worker.poll() is None
    assert system.client.record("x").steps["a"].lost == 0
    system.client.cancel("other")
    wait_until(lambda: system.has_ended("other"))
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")


@pytest.mark.parametrize("fn", ["endless", "polite", "swallows"])
def test_a_step_that_exceeds_its_timeout_is_stopped(system: System, fn: str) -> None:
    system.worker()
    system.client.start({"steps": [system.step("a", fn, timeout="2s")]}, execution_id="x")

    final = system.result("x")

    assert isinstance(final, Failed), system.log()
    assert final.error["kind"] == "timeout"
    if fn != "swallows":
        wait_until(lambda: system.has_ended("a"), what=system.log())
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")


@pytest.mark.parametrize("fn", ["deaf", "stubborn"])
def test_a_step_that_cannot_be_stopped_ends_its_process_when_the_others_have_finished(
    system: System, fn: str
) -> None:
    worker = system.worker()
    system.client.start({"steps": [system.step("neighbour", "deaf")]}, execution_id="neighbour")
    process = system.began("neighbour")
    system.client.start({"steps": [system.step("a", fn, timeout="1s")]}, execution_id="x")
    assert system.began("a") == process

    final = system.result("x")
    assert isinstance(final, Failed), system.log()
    assert final.error["kind"] == "timeout"

    wait_until(lambda: "does not end" in system.log(), what=system.log())
    system.client.start({"steps": [system.step("next", "sit")]}, execution_id="next")
    assert isinstance(system.result("next"), Complete), system.log()
    assert system.client.record("next").steps["next"].output["pid"] != process, "another process runs it"
    system.let_go("neighbour")
    assert isinstance(system.result("neighbour"), Complete)
    wait_until(lambda: not is_running(process), what=system.log())
    assert worker.poll() is None
    assert system.client.record("neighbour").steps["neighbour"].lost == 0


# ---- crashes


@pytest.mark.parametrize("how", ["os._exit", "segfault"])
def test_the_steps_of_a_dead_process_run_again(system: System, how: str) -> None:
    worker = system.worker()
    names = [f"other{n}" for n in range(3)]
    files = [str(system.folder / name) for name in names]
    falls = system.step("falls", "falls", input={"how": how, "others": files})

    steps = [falls, *(system.step(name, "stays") for name in names)]
    system.client.start({"steps": steps}, execution_id="x")

    assert isinstance(system.result("x"), Complete), system.log()
    assert worker.poll() is None
    found = system.client.record("x").steps
    assert found["falls"].output == {"survived": True}
    assert found["falls"].lost == 1
    assert found["other0"].output["pid"] != system.began("falls")
    assert "other steps" in system.log()
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")


def test_sys_exit_ends_a_step_and_nothing_else(system: System) -> None:
    worker = system.worker()

    system.client.start({"steps": [{"id": "a", "fn": "leaves"}]}, execution_id="x")

    final = system.result("x")
    assert isinstance(final, Failed), system.log()
    assert final.error["type"] == "SystemExit"
    assert worker.poll() is None
    assert "died" not in system.log()


def test_a_killed_process_is_replaced_at_once(system: System) -> None:
    worker = system.worker()
    system.client.start({"steps": [system.step("a", "deaf")]}, execution_id="x")
    process = system.began("a")

    (system.folder / "a").unlink()
    os.kill(process, signal.SIGKILL)

    assert system.began("a") != process
    system.let_go("a")
    assert isinstance(system.result("x"), Complete), system.log()
    assert worker.poll() is None


def test_a_process_that_is_silent_is_killed_and_its_steps_run_again(redis_url: str, tmp_path: Path) -> None:
    environment = {"ORCHESTRATOR_LEASE_S": "4"}
    with stack(redis_url, "async_functions", tmp_path / "logs", **environment) as processes:
        processes.coordinator()
        system = System(processes, redis := connect(redis_url), PatientClient(redis), tmp_path)
        worker = system.worker()
        holds = system.step("a", "holds", retry=0)
        system.client.start({"steps": [holds], "limits": {"max_lost": 1}}, execution_id="x")
        process = system.began("a")

        final = system.result("x")

        assert isinstance(final, Failed), system.log()
        assert final.error["kind"] == "lost"
        wait_until(lambda: not is_running(process), what=system.log())
        assert worker.poll() is None
        redis.close()


def test_an_orphaned_child_finishes_its_steps_and_exits(system: System) -> None:
    worker = system.worker()
    system.client.start({"steps": [system.step("a", "deaf")]}, execution_id="x")
    process = system.began("a")

    system.processes.kill(worker)
    time.sleep(1.5)  # it may take this long to notice that it is an orphan
    assert is_running(process)
    system.let_go("a")

    assert isinstance(system.result("x"), Complete), system.log()
    assert system.client.record("x").steps["a"].lost == 0
    wait_until(lambda: not is_running(process), what=system.log())


# ---- the worker itself


def test_a_worker_that_is_asked_to_stop_finishes_first(system: System) -> None:
    worker = system.worker()
    system.client.start({"steps": [system.step("a", "deaf")]}, execution_id="x")
    process = system.began("a")

    worker.terminate()
    wait_until(lambda: "taking no more steps; 1 still running" in system.log(), what=system.log())
    system.client.start({"steps": [system.step("b", "sit")]}, execution_id="y")
    wait_until(lambda: system.redis.llen("rq:queue:orchestrator.default") == 1)
    assert worker.poll() is None
    system.let_go("a")

    assert isinstance(system.result("x"), Complete), system.log()
    assert worker.wait(180) == 0
    assert not is_running(process)
    assert system.redis.llen("rq:queue:orchestrator.default") == 1, "a later job stays in the queue"
    assert not system.redis.smembers("rq:workers")


def test_a_second_request_ends_it_at_once_and_its_steps_run_elsewhere(system: System) -> None:
    worker = system.worker()
    system.client.start({"steps": [system.step("a", "deaf")]}, execution_id="x")
    system.began("a")

    worker.terminate()
    wait_until(lambda: "taking no more steps" in system.log(), what=system.log())
    time.sleep(1.0)  # a second signal within a second is the same one
    worker.terminate()

    assert worker.wait(180) == 0
    system.let_go("a")
    system.worker()
    assert isinstance(system.result("x"), Complete), system.log()


def test_a_burst_ends_when_the_queues_are_empty(system: System) -> None:
    system.client.start(fan("nap", 20, 0.1), execution_id="x")
    wait_until(lambda: system.redis.llen("rq:queue:orchestrator.default") == 20)

    worker = system.worker(5, "--burst")

    assert worker.wait(180) == 0
    assert isinstance(system.result("x"), Complete), system.log()


def test_log_lines_name_their_step_although_steps_run_concurrently(system: System) -> None:
    system.worker(8, "--log-format", "json")
    steps = [{"id": f"s{n}", "fn": "tells", "input": {"n": n}} for n in range(4)]

    system.client.start({"steps": steps}, execution_id="x")
    assert isinstance(system.result("x"), Complete), system.log()

    for n in range(4):
        lines = [
            line for line in system.log().splitlines() if f'"begins {n}"' in line or f'"ends {n}"' in line
        ]
        assert len(lines) == 2
        assert all(f'"step": "s{n}"' in line for line in lines)


def test_a_worker_waits_for_redis_and_goes_on(tmp_path: Path) -> None:
    with (
        own_redis(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server,
        stack(server.url, "async_functions", tmp_path / "logs") as processes,
    ):
        processes.coordinator()
        system = System(processes, redis := connect(server.url), PatientClient(redis), tmp_path)
        worker = system.worker()
        system.client.start({"steps": [system.step("a", "deaf")]}, execution_id="x")
        system.began("a")

        server.kill()
        system.let_go("a")
        time.sleep(2.0)
        server.restart()

        assert isinstance(system.result("x"), Complete), system.log()
        system.client.start({"steps": [system.step("b", "nap")]}, execution_id="y")
        assert isinstance(system.result("y"), Complete), system.log()
        assert worker.poll() is None
        assert system.log().count("Redis is unavailable") <= 2, "logged once, and not per second"
        wait_until(lambda: redis.scard("rq:workers") == 1)
        redis.close()


def test_suspended_workers_take_nothing(system: System) -> None:
    system.redis.set("rq:suspended", 1)
    system.worker()
    system.client.start({"steps": [system.step("a", "sit")]}, execution_id="x")
    wait_until(lambda: system.redis.scard("rq:workers") == 1)
    time.sleep(1.5)
    assert system.redis.llen("rq:queue:orchestrator.default") == 1

    system.redis.delete("rq:suspended")

    assert isinstance(system.result("x"), Complete), system.log()


def test_a_job_that_is_not_a_step_is_dropped_with_a_warning(system: System) -> None:
    system.redis.hset("rq:job:foreign", mapping={"data": '["os.system", null, ["true"], {}]'})
    system.redis.rpush("rq:queue:orchestrator.default", "foreign")

    system.worker()

    wait_until(lambda: not system.redis.exists("rq:job:foreign"))
    assert "job foreign is not a step" in system.log()
