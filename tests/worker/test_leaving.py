"""A worker that is asked to leave says what it waits for, and without Redis it does not wait for ever."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.application.records.decisions import Complete
from orchestrator.client import Client
from orchestrator.processes import REPEATED_SIGNAL_S
from orchestrator.redis_rq.connection import connect
from orchestrator.worker.leaving import RunTracker
from processes import PatientClient, Stack, is_running, stack, wait_until
from servers.redis_server import RedisServer, own_redis

Worker = subprocess.Popen[bytes]


@dataclass
class System:
    server: RedisServer
    processes: Stack
    client: Client
    folder: Path

    def begin(self, step: str = "a", fn: str = "waits", size: int = 1) -> int:
        """Start an execution x whose step waits for a file; returns the process in which it runs."""
        inputs = {"began": str(self.folder / f"began-{step}"), "go": str(self.folder / "go"), "size": size}
        self.client.start({"steps": [{"id": step, "fn": fn, "input": inputs}]}, execution_id=f"x-{step}")
        began = self.folder / f"began-{step}"
        wait_until(began.exists, what=self.log())
        return int(began.read_text())

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def log(self) -> str:
        return self.processes.log()

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log(), what=f"{text!r} in {self.log()}")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    environment = {"ORCHESTRATOR_STOP_GRACE_S": "1", "ORCHESTRATOR_LEASE_S": "4"}
    with (
        own_redis(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server,
        stack(server.url, "waiting_functions", tmp_path / "logs", **environment) as processes,
    ):
        processes.coordinator()
        client = PatientClient(redis := connect(server.url))
        try:
            yield System(server, processes, client, tmp_path)
        finally:
            redis.close()


def work_horse(system: System) -> Worker:
    return system.processes.worker("default")


def concurrent_child(system: System) -> Worker:
    return system.processes.worker("default", "--concurrency", "4")


def pool(system: System) -> Worker:
    return system.processes.worker("default", "--processes", "2")


def stock(system: System) -> Worker:
    return system.processes.rq_worker()


OURS = pytest.mark.parametrize("make", [work_horse, concurrent_child, pool])
ALL = pytest.mark.parametrize("make", [work_horse, concurrent_child, pool, stock])
Make = Callable[[System], Worker]


# ---- which runs are waited for


def test_a_process_is_idle_since_it_was_asked_to_leave_or_its_last_executor_ended() -> None:
    clock = FakeClock()
    tracker = RunTracker(lambda: clock.now)
    tracker.begin({"job_id": "j1"})

    clock.now = 100.0
    assert tracker.idle_s(since=90.0) == 10.0
    tracker.on_executor("j1", True)
    clock.now = 200.0
    assert tracker.idle_s(since=90.0) == 0.0, "an executor is running"
    tracker.on_executor("j1", False)
    clock.now = 203.0
    assert tracker.idle_s(since=90.0) == 3.0
    assert tracker.idle_s(since=201.0) == 2.0


def test_one_running_executor_is_enough_to_wait() -> None:
    clock = FakeClock()
    tracker = RunTracker(lambda: clock.now)
    for job_id in ("j1", "j2"):
        tracker.begin({"job_id": job_id})
        tracker.on_executor(job_id, True)

    tracker.on_executor("j1", False)
    clock.now = 10.0
    assert tracker.idle_s(since=0.0) == 0.0
    tracker.end("j2")
    assert tracker.idle_s(since=0.0) == 10.0
    assert [run.payload["job_id"] for run in tracker.runs()] == ["j1"]


@dataclass
class FakeClock:
    now: float = 0.0


# ---- what a worker prints


@pytest.mark.slow
@OURS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_the_step_it_waits_for_and_that_a_second_signal_ends_it(
    system: System, make: Make, number: signal.Signals
) -> None:
    worker = make(system)
    child = system.begin()

    worker.send_signal(number)
    system.wait_for_log("the step runs again")

    [found] = re.findall(r"stopping after .*", system.log())
    assert re.fullmatch(
        r"stopping after 1 step: a of x-a, attempt 1, for [\d.]+ s; a second SIGTERM or Ctrl-C ends"
        r" it now, and the step runs again",
        found,
    ), found
    assert is_running(child)
    system.let_go()
    assert worker.wait(180) == 0
    assert isinstance(system.client.wait("x-a", 180), Complete)


@pytest.mark.slow
def test_it_prints_some_of_many_steps(system: System) -> None:
    worker = system.processes.worker("default", "--concurrency", "20")
    for n in range(12):
        system.begin(f"s{n}")

    worker.terminate()
    system.wait_for_log("stopping after 12 steps: s0 of x-s0, attempt 1, for ")
    system.wait_for_log("; and 7 more; a second SIGTERM or Ctrl-C ends them now, and the steps run again")

    system.let_go()
    assert worker.wait(180) == 0


@pytest.mark.slow
def test_an_idle_worker_says_that_no_step_is_running(system: System) -> None:
    worker = work_horse(system)
    wait_until(lambda: bool(descendants(worker.pid)), what=system.log())

    worker.terminate()

    assert worker.wait(180) == 0
    assert "stopping; no step is running" in system.log()


# ---- without Redis


@pytest.mark.slow
@OURS
@pytest.mark.parametrize(
    ("fn", "size"),
    [
        pytest.param("waits", 1, id="small"),
        pytest.param("waits", 3_000_000, id="large", marks=pytest.mark.full),
        pytest.param("logs", 1, id="with log", marks=pytest.mark.full),
    ],
)
def test_without_redis_it_gives_up_an_unpublished_result_and_the_step_runs_again(
    system: System, make: Make, fn: str, size: int
) -> None:
    worker = make(system)
    child = system.begin(fn=fn, size=size)
    system.server.kill()
    system.let_go()
    system.wait_for_log("retrying")

    worker.terminate()

    assert worker.wait(180) == 0, system.log()
    assert not is_running(child)
    assert "its result is not published" in system.log()
    assert "its lease expires, and the step runs again" in system.log()
    system.server.restart()
    make(system)
    assert isinstance(system.client.wait("x-a", 180), Complete), system.log()
    assert system.client.record("x-a").steps["a"].lost == 1


@pytest.mark.slow
@OURS
def test_without_redis_a_running_step_still_gets_all_its_time(system: System, make: Make) -> None:
    worker = make(system)
    child = system.begin()
    system.server.kill()
    system.wait_for_log("Redis is unavailable")

    worker.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(3)  # three times the grace

    assert is_running(child)
    system.server.restart()
    system.let_go()
    assert worker.wait(180) == 0, system.log()
    assert isinstance(system.client.wait("x-a", 180), Complete), system.log()


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("size", [1, 3_000_000], ids=["small", "large"])
def test_a_child_whose_supervisor_is_killed_leaves_without_redis(
    system: System, make: Make, size: int
) -> None:
    worker = make(system)
    child = system.begin(size=size)
    system.server.kill()

    system.processes.kill(worker)
    system.let_go()

    wait_until(lambda: not is_running(child), what=system.log())
    system.wait_for_log("its lease expires, and the step runs again")


@pytest.mark.slow
@OURS
def test_an_idle_child_whose_supervisor_is_killed_leaves_without_redis(system: System, make: Make) -> None:
    worker = make(system)
    wait_until(lambda: bool(descendants(worker.pid)), what=system.log())
    system.server.kill()
    children = descendants(worker.pid)

    system.processes.kill(worker)

    wait_until(lambda: not any(map(is_running, children)), what=f"{children} {system.log()}")


@pytest.mark.slow
def test_a_redis_that_does_not_reply_is_not_waited_for_either(system: System) -> None:
    """The server accepts connections, and never sends a reply."""
    worker = work_horse(system)
    child = system.begin()
    os.kill(system.server.pid, signal.SIGSTOP)
    try:
        system.let_go()
        worker.terminate()

        assert worker.wait(180) == 0, system.log()
        assert not is_running(child)
        assert "its lease expires, and the step runs again" in system.log()
    finally:
        os.kill(system.server.pid, signal.SIGCONT)


# ---- coordinators


@pytest.mark.slow
def test_a_coordinator_prints_that_it_stops_and_a_second_signal_ends_it(system: System) -> None:
    """The server never replies, so the coordinator is in the middle of a read."""
    coordinator = system.processes.coordinator("--log-level", "INFO")
    system.wait_for_log("serving")
    os.kill(system.server.pid, signal.SIGSTOP)
    try:
        coordinator.terminate()
        system.wait_for_log(
            "stopping after the events that were read; a second SIGTERM or Ctrl-C ends it now"
        )
        time.sleep(REPEATED_SIGNAL_S + 0.1)  # a signal within this time is the same one
        coordinator.send_signal(signal.SIGTERM)

        assert coordinator.wait(180) == 128 + signal.SIGTERM
    finally:
        os.kill(system.server.pid, signal.SIGCONT)


def descendants(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    try:
        children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in descendants(child))]
