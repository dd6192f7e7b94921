"""Processes of the last release and of this one work side by side, from wheels, in the middle of a load."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from effort import IS_FULL
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, wait_until
from releases import Release, commit_of_the_last_release, copy_checkout, export, installed, stop

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not IS_FULL, reason="builds two wheels; scripts/test --full runs it"),
]

KEYS = Keys()
STEPS = "import time\n\n\ndef add(inputs):\n    time.sleep(0.05)\n    return {'sum': sum(inputs.values())}\n"
ORDER = {
    "name": "order",
    # In the wrong order of upgrading, a step is lost as often as an older worker takes it.
    "defaults": {"retry": {"max_retries": 50, "initial_delay_ms": 10}},
    "steps": [
        {"id": "first", "fn": "add", "input": {"a": {"var": "input.n"}, "b": 1}},
        {
            "id": "each",
            "fn": "add",
            "depends_on": ["first"],
            "map": {"over": [1, 2, 3], "max_parallel": 2},
            "input": {"a": {"var": "item"}, "b": {"var": "steps.first.output.sum"}},
        },
        {"id": "gate", "depends_on": ["each"], "wait": {"signal": "go"}},
        {
            "id": "last",
            "fn": "add",
            "depends_on": ["gate"],
            "input": {"a": {"var": "steps.first.output.sum"}, "b": 100},
        },
    ],
    "outputs": {"sum": {"var": "steps.last.output.sum"}},
}
STEP_IDS = {"first", "each", "each#0", "each#1", "each#2", "gate", "last"}


@dataclass
class Load:
    """Executions that are sent while processes come and go."""

    redis: RedisClient
    client: PatientClient
    ids: list[str] = field(default_factory=list)
    signalled: int = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            n = len(self.ids)
            self.ids.append(f"order-{n}")
            self.client.send_start(ORDER, {"n": n}, execution_id=f"order-{n}")

    def signal(self, count: int) -> None:
        """Let the oldest executions pass that wait for a signal or will."""
        for name in self.ids[self.signalled : self.signalled + count]:
            self.client.signal(name, "go", {})
        self.signalled += count

    def completed(self) -> int:
        return int(self.redis.zcard(KEYS.index("complete")))

    def wait_for_more(self, count: int) -> None:
        """Wait until more executions have completed: work is being done at this moment."""
        wanted = self.completed() + count
        wait_until(lambda: self.completed() >= wanted, what=f"{wanted} completed executions")

    def is_quiet(self) -> bool:
        """Each execution has completed or waits for its signal, and no step is queued or runs."""
        return not self.redis.zcard(KEYS.leases) and all(map(self._is_past_its_map, self.ids))

    def _is_past_its_map(self, name: str) -> bool:
        step: Any = self.redis.hget(KEYS.workflow(self.client.store.full_id(name)), "step:each")
        return step is not None and json.loads(step).get("status") == "complete"


@dataclass
class System:
    """A coordinator and a worker, each of one of two releases."""

    releases: dict[str, Release]
    load: Load
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def start(self, kind: str, release: str) -> subprocess.Popen[bytes]:
        arguments = {"coordinator": [], "worker": ["default"]}[kind]
        self.running[kind] = self.releases[release].start(kind, *arguments)
        self.versions[kind] = release
        return self.running[kind]

    def replace(self, kind: str, release: str) -> None:
        """Start a process beside the one that runs, let both work, and then end the older one."""
        older = self.running[kind]
        self.start(kind, release)
        self.load.send(20)
        self.load.signal(20)
        self.load.wait_for_more(10)
        assert stop(older) == 0
        self.load.send(10)
        self.load.signal(10)
        if not self.has_older_worker_alone():
            self.load.wait_for_more(5)

    def has_older_worker_alone(self) -> bool:
        """The results of older workers are dropped as stale then: nothing completes before a newer one."""
        return self.versions == {"coordinator": "this", "worker": "last"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    return {
        "last": export(commit_of_the_last_release(), folder / "last"),
        "this": copy_checkout(folder / "this"),
    }


@pytest.fixture
def system(sources: dict[str, Path], tmp_path: Path, redis_url: str) -> Iterator[System]:
    (tmp_path / "orders.py").write_text(STEPS)
    environment = {
        "ORCHESTRATOR_REDIS_URL": redis_url,
        "ORCHESTRATOR_EXECUTORS": "orders",
        "ORCHESTRATOR_LEASE_S": "3",
        "ORCHESTRATOR_GRACE_MS": "1000",
        "PYTHONPATH": str(tmp_path),
    }
    with ExitStack() as stack:
        releases = {
            name: stack.enter_context(installed(folder, tmp_path / name, environment))
            for name, folder in sources.items()
        }
        redis = connect(redis_url)
        yield System(releases, Load(redis, PatientClient(redis)))


@pytest.mark.parametrize("order", [("worker", "coordinator"), ("coordinator", "worker")], ids=" first, ".join)
def test_both_releases_finish_everything_in_this_order_and_back(
    system: System, order: tuple[str, str]
) -> None:
    """The first order is that of docs/upgrading.md. In the other one, results of older workers are dropped as
    stale for a while, and their steps run again."""
    load = system.load
    for kind in order:
        system.start(kind, "last")
    load.send(30)
    load.signal(20)
    load.wait_for_more(5)

    for kind in order:
        system.replace(kind, "this")
    wait_until(load.is_quiet, what="no step to run")
    for kind in reversed(order):
        older = system.running[kind]
        system.start(kind, "last")
        assert stop(older) == 0
    load.send(20)
    load.signal(len(load.ids) - load.signalled)

    wait_until(lambda: load.completed() == len(load.ids), what=f"{len(load.ids)} completed executions")
    check_outcomes(load)
    found = system.releases["this"].run("check-consistency")
    assert found.returncode == 0, found.stdout
    assert not load.redis.exists(KEYS.dead_letters), load.redis.xrange(KEYS.dead_letters)


def check_outcomes(load: Load) -> None:
    """Every outcome is right, and the history has each step as completed exactly once."""
    for n, name in enumerate(load.ids):
        assert load.client.result(name) == {"sum": n + 1 + 100}
        entries: Any = load.redis.lrange(KEYS.history(load.client.store.full_id(name)), 0, -1)
        completed = [entry["step"] for entry in map(json.loads, entries) if entry.get("to") == "complete"]
        assert sorted(step for step in completed if step) == sorted(STEP_IDS)


def test_the_releases_are_two(system: System, tmp_path: Path) -> None:
    """Each is imported from its own environment."""
    printed = {}
    for name, release in system.releases.items():
        code = "import orchestrator; print(orchestrator.__file__)"
        run = subprocess.run(
            [str(release.folder / "bin" / "python"), "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        printed[name] = run.stdout

    assert str(tmp_path / "last") in printed["last"]
    assert str(tmp_path / "this") in printed["this"]
    assert system.releases["last"].run("web", "--help").returncode == 2, "0.1.1 has no such command"
    assert system.releases["this"].run("web", "--help").returncode == 0
