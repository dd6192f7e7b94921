"""The work-horse on a real redis-server: it runs one step after the other in one process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete
from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys, job_id_of
from orchestrator.redis_rq.lost_reasons import describe_death
from processes import PatientClient, Stack, is_running, stack, wait_until

pytestmark = pytest.mark.slow

KEYS = Keys()
Json = dict[str, Any]


@dataclass
class System:
    processes: Stack
    redis: RedisClient
    client: Client
    folder: Path

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        return self.processes.worker("default", *options)

    def output(self, fn: str, **inputs: Any) -> Json:
        return self.end(self.start(fn, **inputs))

    def start(self, fn: str, **inputs: Any) -> str:
        return self.client.start({"steps": [{"id": "a", "fn": fn, "input": inputs}]}).execution_id

    def end(self, execution_id: str) -> Json:
        assert isinstance(self.client.wait(execution_id, 180), Complete), self.processes.log()
        output: Json = self.client.record(execution_id).steps["a"].output
        return output

    def waiting(self) -> tuple[str, int]:
        """A step that waits for a file, and the process in which it runs."""
        began = self.folder / "began"
        began.unlink(missing_ok=True)
        started = self.start("waits", began=str(began), go=str(self.folder / "go"))
        wait_until(lambda: began.exists() and began.read_text(), what=self.processes.log())
        return started, int(began.read_text())

    def let_go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def system(redis_url: str, tmp_path: Path) -> Iterator[System]:
    with stack(redis_url, "waiting_functions", tmp_path / "logs") as processes:
        processes.coordinator()
        redis = connect(redis_url)
        yield System(processes, redis, PatientClient(redis), tmp_path)
        redis.close()


def test_steps_run_in_one_process_up_to_the_maximum_number(system: System) -> None:
    system.worker("--recycle-after", "3")

    pids = [system.output("pid")["pid"] for _ in range(6)]

    assert len(set(pids[:3])) == len(set(pids[3:])) == 1
    assert pids[0] != pids[3]
    assert not list(system.redis.scan_iter("rq:job:*"))


def test_each_step_may_have_a_process_of_its_own(system: System) -> None:
    system.worker("--recycle-after", "1")

    assert len({system.output("pid")["pid"] for _ in range(3)}) == 3


@pytest.mark.parametrize("fn", ["moves", "grows"])
def test_a_process_is_recycled_after_its_step(system: System, fn: str) -> None:
    system.worker("--recycle-above", "50")

    worn = system.output(fn)["pid"]

    assert system.output("pid")["pid"] != worn
    wait_until(lambda: not is_running(worn))


def test_a_process_forked_by_a_step_inherits_no_signal_handlers(system: System) -> None:
    system.worker()

    assert system.output("ends_a_child") == {"code": -signal.SIGTERM}


def test_a_work_horse_that_is_killed_is_noticed_at_once_and_its_step_runs_again(system: System) -> None:
    worker = system.worker()
    started, pid = system.waiting()

    os.kill(pid, signal.SIGKILL)
    system.let_go()

    assert system.end(started)["pid"] != pid
    step = system.client.record(started).steps["a"]
    assert (step.lost, step.dispatches) == (1, 2)
    reasons = {entry["reason"] for entry in system.client.history(started) if "reason" in entry}
    assert reasons == {describe_death("work-horse", -signal.SIGKILL)}
    assert worker.poll() is None


def test_a_work_horse_whose_supervisor_is_killed_finishes_its_step_and_ends(system: System) -> None:
    worker = system.worker()
    started, pid = system.waiting()

    system.processes.kill(worker)
    system.let_go()

    assert system.end(started) == {"pid": pid}
    assert system.client.record(started).steps["a"].lost == 0
    wait_until(lambda: not is_running(pid), what="the orphan to end")


def test_a_worker_asked_to_stop_finishes_its_step_first(system: System) -> None:
    worker = system.worker()
    started, pid = system.waiting()

    worker.send_signal(signal.SIGTERM)
    system.let_go()

    assert system.end(started) == {"pid": pid}
    assert worker.wait(180) == 0
    assert not is_running(pid)
    assert system.redis.scard("rq:workers") == 0


def test_the_key_of_a_worker_has_its_job_and_its_state(system: System) -> None:
    system.worker()
    started, _ = system.waiting()
    job_id = job_id_of("orchestrator.default", str(system.client.record(started).steps["a"].token))

    [name] = system.redis.smembers("rq:workers")
    wait_until(lambda: system.redis.hmget(str(name), "state", "current_step") == ["busy", job_id])
    system.let_go()
    system.end(started)
    wait_until(lambda: system.redis.hmget(str(name), "state", "current_step") == ["idle", None])


def test_a_result_from_an_outage_is_published_when_redis_is_back(system: System) -> None:
    system.worker()
    started, pid = system.waiting()
    system.redis.client_pause(1500)
    system.let_go()

    assert system.end(started) == {"pid": pid}
    assert system.client.record(started).steps["a"].lost == 0
