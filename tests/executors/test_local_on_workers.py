"""The executors that need no network, on Redis with a coordinator and every kind of worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from processes import PatientClient, Stack, stack, wait_until
from worlds.waiting import at_some_pace

pytestmark = pytest.mark.slow

Json = dict[str, Any]
WORKERS = ["rq worker", "orchestrator worker", "orchestrator worker --concurrency 4"]
COUNT = "import json, sys; print(json.dumps({'lines': len(sys.stdin.readlines())}))"
ORDERS = {
    "name": "orders",
    "sources": {
        "count": {
            "type": "process",
            "configuration": {"command": [sys.executable, "-c", COUNT], "pass_to": "stdin", "timeout": 30},
        }
    },
    "steps": [
        {"id": "shop", "fn": "env", "input": {"vars": ["SHOP_REGION", "SHOP_NOT_SET"]}},
        {
            "id": "keep",
            "fn": "file",
            "input": {
                "action": "write",
                "path": {"cat": ["orders/", {"var": "steps.shop.output.SHOP_REGION"}, ".txt"]},
                "text": {"str.join": [{"var": "input.orders"}, "\n"]},
            },
        },
        {
            "id": "sorted",
            "fn": "process",
            "input": {"command": ["sort"], "args": [{"var": "steps.keep.output.path"}], "cwd": "."},
        },
        {"id": "count", "source": "count", "input": {"payload": {"var": "steps.sorted.output.stdout"}}},
        {"id": "nap", "fn": "sleep", "input": {"seconds": 0.01}},
        {
            "id": "report",
            "fn": "transform",
            "input": {
                "data": {
                    "count": {"var": "steps.count.output.json"},
                    "sorted": {"var": "steps.sorted.output.stdout"},
                },
                "output": {
                    "$literal": {
                        "first": {"list.first": {"str.split": [{"var": "sorted"}, "\n"]}},
                        "lines": {"var": "count.lines"},
                    }
                },
            },
        },
        {
            "id": "told",
            "fn": "echo",
            "input": {"report": {"var": "steps.report.output"}},
            "depends_on": ["nap"],
        },
    ],
    "outputs": {"report": {"var": "steps.told.output.report"}, "shop": {"var": "steps.shop.output"}},
}
FAMILY = """
import os, sys, time
for path in sys.argv[1:]:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)
        time.sleep(600)
time.sleep(600)
"""


class System:
    def __init__(self, processes: Stack, client: Client, folder: Path) -> None:
        self.processes, self.client, self.folder = processes, client, folder

    def worker(self, kind: str) -> subprocess.Popen[bytes]:
        if kind == "rq worker":
            return self.processes.rq_worker()
        return self.processes.worker("default", *kind.split()[2:])

    def family(self, **keys: Any) -> Json:
        """A document with a step whose program starts two daemons and never ends."""
        paths = [str(self.folder / name) for name in ("one", "two")]
        step = {"id": "family", "fn": "process", "input": {"command": [sys.executable, "-c", FAMILY, *paths]}}
        return {"steps": [{**step, "retry": 0, **keys}]}

    def has_family(self) -> bool:
        return all((self.folder / name).exists() for name in ("one", "two"))

    def pids(self) -> list[int]:
        wait_until(self.has_family, what=f"the family\n{self.processes.log()}")
        return [int((self.folder / name).read_text()) for name in ("one", "two")]


@pytest.fixture
def system(redis_url: str, tmp_path: Path) -> Iterator[System]:
    environment = {
        "ORCHESTRATOR_PROCESS_COMMANDS": f"sort, {sys.executable}",
        "ORCHESTRATOR_FILE_ROOT": str(tmp_path / "files"),
        "ORCHESTRATOR_ENV_VARIABLES": "SHOP_*",
        "ORCHESTRATOR_LEASE_S": "4",
        "SHOP_REGION": "eu",
    }
    (tmp_path / "files").mkdir()
    with stack(redis_url, "", tmp_path / "logs", **environment) as processes:
        processes.coordinator()
        redis = connect(redis_url)
        yield System(processes, PatientClient(redis), tmp_path)
        redis.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def all_gone(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


@pytest.mark.parametrize("worker", WORKERS)
def test_a_workflow_of_built_in_executors_runs_to_its_end(worker: str, system: System) -> None:
    system.worker(worker)
    system.client.start(ORDERS, {"orders": ["pears", "apples", "plums\n"]}, "x")

    ended = system.client.wait("x", 180)

    assert isinstance(ended, Complete), (ended, system.processes.log())
    assert ended.outcome == {
        "report": {"first": "apples", "lines": 3},
        "shop": {"SHOP_REGION": "eu", "SHOP_NOT_SET": None},
    }
    assert (system.folder / "files/orders/eu.txt").read_text() == "pears\napples\nplums\n"


@pytest.mark.parametrize("worker", WORKERS)
def test_nothing_of_a_program_outlives_the_timeout_of_its_step(worker: str, system: System) -> None:
    system.worker(worker)

    def scene(pace: int) -> None:
        execution = f"x{pace}"
        system.client.start(system.family(timeout=f"{5 * pace}s"), execution_id=execution)

        ended = system.client.wait(execution, 300)

        assert isinstance(ended, Failed)
        assert ended.error["kind"] == "timeout"
        assert system.has_family(), "the program had its family by then"
        pids = system.pids()
        wait_until(lambda: all_gone(pids), what="the family to be gone")

    at_some_pace(scene)


@pytest.mark.parametrize("worker", WORKERS)
def test_nothing_of_a_program_outlives_the_execution_that_is_cancelled(worker: str, system: System) -> None:
    system.worker(worker)
    system.client.start(system.family(), execution_id="x")
    pids = system.pids()

    system.client.cancel("x")

    wait_until(lambda: all_gone(pids), what="the family to be gone")


@pytest.mark.parametrize("worker", WORKERS)
def test_nothing_of_a_program_outlives_the_work_horse_that_is_killed(worker: str, system: System) -> None:
    process = system.worker(worker)
    system.client.start(system.family(timeout="600s"), execution_id="x")
    pids = system.pids()
    for name in ("one", "two"):
        (system.folder / name).unlink()

    assert system.processes.kill_horse(process)

    wait_until(lambda: all_gone(pids), what="the family to be gone")
    again = system.pids()  # the step was lost, and runs again
    system.client.cancel("x")
    wait_until(lambda: all_gone(again), what="the second family to be gone")


def test_a_rejection_names_the_variable_and_is_stored_with_the_step(system: System) -> None:
    system.worker("orchestrator worker")
    step = {"id": "a", "fn": "process", "input": {"command": ["rm", "-rf", "x"]}, "retry": 0}
    system.client.start({"steps": [step]}, execution_id="x")

    ended = system.client.wait("x", 180)

    assert isinstance(ended, Failed)
    assert "may not run rm: add it to ORCHESTRATOR_PROCESS_COMMANDS" in ended.error["message"]
    assert ended.error["type"] == "Refused"
