"""Runtime: coordinators and workers as processes of a Python program, on a real Redis."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from effort import IS_FULL
from orchestrator.application.errors import Unavailable
from orchestrator.runtime import ChildEnded, Runtime
from processes import is_running, wait_until
from warm_processes import WARM_SERVER
from worlds.documents import document, step

ROOT = Path(__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
ADD = document(step("a", fn="add", input={"x": 1, "y": 2}), outputs={"sum": {"var": "steps.a.output.sum"}})
PROGRAM = """
from orchestrator.runtime import Runtime

runtime = Runtime("{url}", workers=1).spawn()
print("ready", flush=True)
runtime.join()
"""


@pytest.fixture(autouse=True)
def importable_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PATH)


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes are forks of a warm server. Without it, they are new interpreters, and children of this
    process."""
    if not IS_FULL:
        monkeypatch.setattr("orchestrator.runtime.start_child", WARM_SERVER.start_child_of_runtime)


@pytest.fixture
def runtime(redis_url: str, warm: None) -> Iterator[Runtime]:
    """A coordinator and a worker that has the executors of the tests."""
    made = Runtime(redis_url, executors=["step_functions"], workers=1)
    yield made
    made.kill()


def pids(redis: Redis) -> list[int]:
    """The processes that are registered: those of one runtime, because the Redis was empty."""
    names = [*redis.zrange("orchestrator:coordinators", 0, -1), *redis.smembers("rq:workers")]
    return [int(name.decode().rsplit("-", 2)[1]) for name in names]


def are_gone(processes: list[int]) -> bool:
    return not any(map(is_running, processes))


def test_a_block_runs_workflows_and_ends_its_processes(redis_url: str, redis_client: Redis) -> None:
    with Runtime(redis_url, executors=["step_functions"], workers=2) as runtime:
        processes = pids(redis_client)
        started = runtime.client.start(ADD, reply_timeout_s=60)
        outcome = runtime.client.result(started.execution_id, timeout_s=60)

    assert outcome == {"sum": 3}
    assert len(processes) == 3
    assert are_gone(processes)


def test_a_shutdown_lets_the_running_step_finish(runtime: Runtime, redis_url: str) -> None:
    slow = document(step("a", fn="slow_add", input={"a": 1, "b": 2, "seconds": 2}))
    client = runtime.spawn().client
    weid = client.start(slow, reply_timeout_s=60).workflow_execution_id
    wait_until(lambda: client.run_status(weid).running_steps == ("a",))

    runtime.shutdown()
    runtime.join()

    with Runtime(redis_url, workers=0):  # a coordinator applies the result
        client.wait(weid, timeout_s=60)
    assert client.outputs(weid) == {"a": {"sum": 3}}
    assert client.record(weid).steps["a"].dispatches == 1


def test_a_step_that_outlasts_the_grace_is_killed(
    redis_url: str, tmp_path: Path, warm: None, caplog: pytest.LogCaptureFixture
) -> None:
    pid_file = tmp_path / "pid"
    endless = document(step("a", fn="busy", input={"pid_file": str(pid_file)}))
    runtime = Runtime(redis_url, executors=["step_functions"], workers=1, grace_s=0.2).spawn()
    runtime.client.start(endless, reply_timeout_s=60)
    wait_until(lambda: pid_file.exists() and pid_file.read_text())

    with caplog.at_level(logging.WARNING):
        runtime.shutdown()
        runtime.join()

    assert "worker 1 is still busy and will be killed; its step will be dispatched again" in caplog.text
    wait_until(lambda: are_gone([int(pid_file.read_text().split()[0])]))


def test_a_process_that_cannot_start_is_reported_with_its_last_line(redis_url: str) -> None:
    with pytest.raises(ChildEnded, match=r"the worker 1 exited with code 2: .*no_such_module"):
        Runtime(redis_url, executors=["no_such_module"], workers=1).spawn()


def test_a_process_that_is_killed_is_reported_and_the_others_are_ended(
    runtime: Runtime, redis_client: Redis
) -> None:
    runtime.spawn()
    coordinator, worker = pids(redis_client)
    runtime.check()
    os.kill(worker, signal.SIGKILL)

    with pytest.raises(ChildEnded, match="the worker 1 exited with code -9"):
        runtime.join()

    assert are_gone([coordinator, worker])


def kill_coordinator(redis: Redis) -> None:
    [coordinator, _] = pids(redis)
    os.kill(coordinator, signal.SIGKILL)
    os.waitid(os.P_PID, coordinator, os.WEXITED | os.WNOWAIT)  # all its threads have ended; it is not reaped


def test_a_block_reports_a_process_that_has_exited_by_itself(redis_url: str, redis_client: Redis) -> None:
    def run() -> None:
        with Runtime(redis_url, workers=1):
            kill_coordinator(redis_client)

    with pytest.raises(ChildEnded, match="the coordinator exited with code -9"):
        run()


def test_an_error_of_the_block_is_not_hidden_by_that_of_a_process(
    redis_url: str, redis_client: Redis
) -> None:
    def run() -> None:
        with Runtime(redis_url, workers=1):
            kill_coordinator(redis_client)
            raise LookupError

    with pytest.raises(LookupError):
        run()


def test_the_processes_end_when_their_program_is_killed(
    redis_url: str, redis_client: Redis, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(url=redis_url))  # without `if __name__ == "__main__"`
    program = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, cwd=tmp_path)
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    processes = pids(redis_client)

    program.kill()
    program.communicate()

    assert len(processes) == 2
    wait_until(lambda: are_gone(processes))


def test_a_runtime_can_be_spawned_again_after_it_was_joined(runtime: Runtime, redis_client: Redis) -> None:
    runtime.shutdown()  # nothing runs yet
    runtime.join()
    first = pids(redis_client)
    runtime.spawn()
    with pytest.raises(RuntimeError, match="spawned already"):
        runtime.spawn()
    runtime.shutdown()
    runtime.shutdown()
    runtime.join()

    runtime.spawn()

    assert first == []
    assert runtime.client.start(ADD, reply_timeout_s=60)


def test_a_redis_that_is_not_there_is_reported_and_nothing_is_left_running(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        Runtime(f"unix://{tmp_path}/none.sock", workers=1).spawn()

    assert not [name for name in os.listdir("/proc") if name.isdigit() and _names(name, str(tmp_path))]


def _names(pid: str, text: str) -> bool:
    """Whether the environment of a process contains a text."""
    try:
        return text.encode() in Path(f"/proc/{pid}/environ").read_bytes() and pid != str(os.getpid())
    except OSError:
        return False
