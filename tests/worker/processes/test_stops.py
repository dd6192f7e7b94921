"""What nobody waits for any more is stopped at once, also in a computation; and nothing else is."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from effort import sample
from orchestrator.application.records.decisions import Complete
from orchestrator.client import Client, ControlRejected
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import PATIENCE_S, PatientClient, Stack, is_running, stack, wait_until
from worker.test_harness import dispatched, harness
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import in_thread

KEYS = Keys()
WORKERS: dict[str, Callable[[Stack], subprocess.Popen[bytes]]] = {
    "rq worker": lambda processes: processes.rq_worker("orchestrator.default", "orchestrator.other"),
    "orchestrator worker": lambda processes: processes.worker("default", "other"),
}


@dataclass
class System:
    """A coordinator and workers of one kind, and a client that talks to them."""

    processes: Stack
    make: Callable[[Stack], subprocess.Popen[bytes]]
    redis: RedisClient
    client: Client
    folder: Path

    def worker(self) -> subprocess.Popen[bytes]:
        return self.make(self.processes)

    def steps(self, *steps: dict[str, Any], **keys: Any) -> dict[str, Any]:
        return {"steps": list(steps), **keys}

    def endless(self, step_id: str, fn: str = "busy", **keys: Any) -> dict[str, Any]:
        """A step that never ends, and says in a file which process it runs in."""
        return {"id": step_id, "fn": fn, "input": {"pid_file": str(self.folder / step_id)}, **keys}

    def waiting(self, step_id: str, go: Path, **keys: Any) -> dict[str, Any]:
        """A step that ends when there is such a file."""
        files = {"pid_file": str(self.folder / step_id), "go": str(go)}
        return {"id": step_id, "fn": "waits", "input": files, **keys}

    def pid_of(self, step_id: str) -> int:
        file = self.folder / step_id
        wait_until(
            lambda: file.exists() and file.read_text(), what=f"{step_id} to run\n{self.processes.log()}"
        )
        return int(file.read_text())

    def nothing_is_left_in_rq(self) -> bool:
        jobs = [*self.redis.scan_iter("rq:job:*"), *self.redis.scan_iter("rq:results:*")]
        return not jobs and not self.redis.zcard(KEYS.rq_failed("orchestrator.default"))


@pytest.fixture(params=WORKERS)
def system(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> Iterator[System]:
    """With leases so long that what is stopped is not stopped by them."""
    with stack(redis_url, "step_functions", tmp_path / "logs", ORCHESTRATOR_LEASE_S="600") as processes:
        processes.coordinator()
        redis = connect(redis_url)
        yield System(processes, WORKERS[request.param], redis, PatientClient(redis), tmp_path)
        redis.close()


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not is_running(pid), what=f"{pid} to be stopped")


def nothing_was_lost(system: System) -> bool:
    return system.redis.hget(KEYS.counters, "lost") is None


# ---- cancel


@pytest.mark.slow
@pytest.mark.parametrize("fn", ["busy", "stuck"])
def test_a_cancel_stops_a_computation_and_nothing_else(system: System, fn: str) -> None:
    """`stuck` holds the interpreter for ever: its own beat cannot tell it that it is over."""
    worker, other = system.worker(), system.worker()
    go = system.folder / "go"
    system.client.start(system.steps(system.waiting("w", go)), execution_id="other")
    spared = system.pid_of("w")
    system.client.start(system.steps(system.endless("a", fn)), execution_id="x")
    pid = system.pid_of("a")

    assert system.client.cancel("x").status == "cancelled"

    wait_until_gone(pid)
    assert (worker.poll(), other.poll(), is_running(spared)) == (None, None, True)
    wait_until(lambda: not list(system.redis.zrange(KEYS.rq_failed("orchestrator.default"), 0, -1)))
    system.client.start(system.steps({"id": "n", "fn": "add", "input": {"n": 1}}), execution_id="next")
    assert isinstance(system.client.wait("next", 180), Complete), "the worker serves the next one"
    go.touch()
    assert isinstance(system.client.wait("other", 180), Complete)
    assert nothing_was_lost(system)
    assert system.client.record("x").steps["a"].lost == 0
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")
    assert (worker.poll(), other.poll()) == (None, None)


# ---- whatever else ends a step


def _after_its_timeout(system: System) -> None:
    system.client.start(system.steps(system.endless("a", timeout="2s")), execution_id="x")


def _after_the_timeout_of_its_workflow(system: System) -> None:
    for timeout in ("4s", "60s"):  # a busy machine may be too slow to begin the step in the shorter time
        system.client.start(system.steps(system.endless("a"), timeout=timeout), execution_id="x")
        wait_until(lambda: (system.folder / "a").exists() or system.client.status("x") == "failed")
        if (system.folder / "a").exists():
            return
        system.client.delete("x")


def _by_a_halt(system: System) -> None:
    """Another step halts the workflow while it runs."""
    halts = system.waiting("h", system.folder / "a", branch=[{"condition": True, "action": "halt"}])
    system.client.start(system.steps(system.endless("a", queue="other"), halts), execution_id="x")


def _by_a_failure(system: System) -> None:
    slow = system.waiting("s", system.folder / "a")
    fails = {"id": "f", "fn": "fail", "depends_on": ["s"]}
    system.client.start(system.steps(system.endless("a", queue="other"), slow, fails), execution_id="x")


def _by_another_in_its_place(system: System) -> None:
    system.client.start(system.steps(system.endless("a")), execution_id="x")
    system.pid_of("a")
    add = {"id": "n", "fn": "add", "input": {"n": 1}}
    system.client.start(system.steps(add), execution_id="x", conflict_policy="terminate_existing")


HOW: dict[str, tuple[Callable[[System], None], str]] = {
    "its timeout": (_after_its_timeout, "failed"),
    "the timeout of its workflow": (_after_the_timeout_of_its_workflow, "failed"),
    "a halt": (_by_a_halt, "halted"),
    "a failure": (_by_a_failure, "failed"),
    "another in its place": (_by_another_in_its_place, "complete"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", sample(list(HOW), 3))
def test_a_step_that_is_not_waited_for_any_more_is_stopped(system: System, how: str) -> None:
    workers = [system.worker(), system.worker()]
    wait_until(lambda: system.redis.scard("rq:workers") == 2, what="both workers to be there")
    begin, status = HOW[how]

    with in_thread(lambda: begin(system)):
        pid = system.pid_of("a")
    system.client.wait("x", 180)

    wait_until_gone(pid)
    assert system.client.status("x") == status
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")
    assert nothing_was_lost(system)
    assert [worker.poll() for worker in workers] == [None, None]


@pytest.mark.slow
def test_a_reset_stops_the_round_that_is_over(system: System) -> None:
    """A `set` takes a step back to ready while it runs: the new round runs, the old one is stopped."""
    worker, another = system.worker(), system.worker()
    sets = system.waiting(
        "s",
        system.folder / "reset",
        branch=[
            {"condition": {"!": [{"var": "state.waited"}]}, "action": {"set": "a"}},
            {"condition": True, "action": "complete"},
        ],
    )
    waits = system.waiting("a", system.folder / "go", queue="other")
    system.client.start(system.steps(waits, sets), execution_id="x")
    first = system.pid_of("a")

    (system.folder / "reset").touch()
    wait_until(lambda: int((system.folder / "a").read_text() or first) != first, what=system.processes.log())

    wait_until_gone(first)
    (system.folder / "go").touch()
    assert isinstance(system.client.wait("x", 180), Complete)
    assert nothing_was_lost(system)
    assert (worker.poll(), another.poll()) == (None, None)


# ---- the right one


@pytest.mark.slow
def test_many_cancels_hit_none_of_those_that_go_on(system: System) -> None:
    """Every second one is cancelled while it runs, or just when it has ended and the next one has begun."""
    rng, worker, count = random.Random(7), system.worker(), 60
    spec = system.steps({"id": "a", "fn": "slow_add", "input": {"a": 1, "b": 1, "seconds": 0.03}})
    sent = system.client.start_many([spec] * count, [{}] * count, [f"x{n}" for n in range(count)])
    assert system.client.wait_for_reply(sent[-1])["ok"]

    for n in range(0, count, 2):
        if n:
            worker = wait_with_worker(system, worker, f"x{n - 1}")
        time.sleep(rng.random() * 0.1)  # anywhere in its life, which is as long
        with suppress(ControlRejected):  # it was complete
            system.client.cancel(f"x{n}")

    for n in range(1, count, 2):
        worker = wait_with_worker(system, worker, f"x{n}")
        assert system.client.status(f"x{n}") == "complete"
        assert system.client.record(f"x{n}").steps["a"].lost == 0
    assert nothing_was_lost(system)
    assert worker.poll() is None
    wait_until(system.nothing_is_left_in_rq, what="RQ to have nothing left")


def wait_with_worker(
    system: System, worker: subprocess.Popen[bytes], execution_id: str
) -> subprocess.Popen[bytes]:
    """Wait for the end of an execution. A stock `rq worker` may have killed itself, as the next test shows:
    then another one is started, as its service manager would."""
    wait_until(lambda: system.client.status(execution_id) == "complete" or worker.poll() is not None)
    if worker.poll() is not None:
        assert system.make is WORKERS["rq worker"], "our own worker survives a command to stop a step"
        assert worker.poll() == -signal.SIGKILL
        worker = system.worker()
        wait_until(lambda: system.client.status(execution_id) == "complete")
    return worker


ASKED = """
import sys
from rq import Queue, Worker
from orchestrator.worker.processes.rq_registration import connect_for_rq

client = connect_for_rq(sys.argv[1])
worker = Worker([Queue("orchestrator.default", connection=client)], name="w", connection=client)
worker.set_current_job_id("b")
worker.handle_payload({"data": b'{"command": "stop-job", "job_id": "b"}'})
"""


def test_rqs_own_worker_kills_itself_when_the_work_horse_has_just_ended(redis_url: str) -> None:
    """With all of its group; it has a millisecond for that. Why a worker that is idle is not told to stop."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", ASKED, redis_url], env=environment, capture_output=True, start_new_session=True
    )

    assert done.returncode == -signal.SIGKILL, done.stderr


# ---- who is not shot at


@pytest.mark.parametrize("by", ["its silence", "its lease", "its exit"])
def test_a_worker_is_told_to_stop_what_it_runs_but_not_what_ends_by_itself(
    world: RedisWorld, by: str
) -> None:
    """A work-horse that hears nothing of its executor ends; one whose beats do not come may run for ever, or
    has left as if it were done: then RQ's own worker is idle, and would shoot itself."""
    payload = dispatched(world, document(step("a", heartbeat="50ms")))
    coordinator = world.coordinator()
    world.client.hset(KEYS.rq_job(payload["job_id"]), mapping={"status": "started", "worker_name": "w1"})
    with world.connect().pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
        channel.subscribe("rq:pubsub:w1")
        wait_until(lambda: world.client.pubsub_numsub("rq:pubsub:w1")[0][1] == 1)
        if by == "its silence":
            is_lost = lambda inputs, heartbeat: until_lost(world)  # noqa: E731
            assert harness(world, is_lost).run(payload) is False
        else:
            state = "idle" if by == "its exit" else "busy"
            world.client.hset("rq:worker:w1", mapping={"state": state, "current_job": payload["job_id"]})
            world.client.zadd(KEYS.leases, dict.fromkeys(world.leases(), 1))
        coordinator.run_once()
        coordinator.run_once()
        assert world.counter("lost") == 1

        said = all_that_was_said(world, channel)

    stop = {"command": "stop-job", "job_id": payload["job_id"]}
    assert [json.loads(one) for one in said] == ([stop] if by == "its lease" else [])


def all_that_was_said(world: RedisWorld, channel: Any) -> list[str]:
    """What was published to the worker so far; our own message after it is the last."""
    world.client.publish("rq:pubsub:w1", "over")
    said: list[str] = []
    while "over" not in said:
        message = channel.get_message(timeout=PATIENCE_S)
        if message is not None:
            said.append(message["data"])
    return said[:-1]


def until_lost(world: RedisWorld) -> None:
    wait_until(lambda: [fields for _, fields in world.events() if fields["type"] == "lost"])
