"""Processes that are stopped and go on, or that outlive their parents: each step is taken once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from processes import Stack, is_running, stack, wait_until
from servers.redis_server import RedisServer
from system.test_every_hop import WORKERS
from torture.facts import age_rq_registries

pytestmark = pytest.mark.slow

KEYS = Keys()
Json = dict[str, Any]


@dataclass
class Scene:
    """One step that waits until it may go on, in a process that is known."""

    redis: Client
    world: Stack
    folder: Path

    def start(self, name: str = "x", **keys: Any) -> int:
        """Start it, and return the process that it runs in."""
        files = {"pid_file": str(self.folder / name), "go": str(self.folder / f"{name}.go")}
        document = {"steps": [{"id": "s", "fn": "waits", "input": files, **keys}]}
        self.redis.xadd(KEYS.starts, {"spec": json.dumps(document), "execution_id": name})
        return self.process(name)

    def process(self, name: str = "x", other_than: int = 0) -> int:
        file = self.folder / name

        def runs() -> bool:
            return file.exists() and file.read_text() not in ("", str(other_than))

        wait_until(runs, what=self.world.log())
        return int(file.read_text())

    def let_go(self, name: str = "x") -> None:
        (self.folder / f"{name}.go").touch()

    def weid(self, name: str) -> str:
        return str(self.redis.get(KEYS.execution(name)))

    def wait_for_the_end(self, name: str = "x") -> None:
        index = KEYS.index("complete")
        wait_until(lambda: self.redis.zscore(index, self.weid(name)) is not None, what=self.world.log())

    def step(self, name: str = "x") -> Json:
        found: Json = json.loads(str(self.redis.hget(KEYS.workflow(self.weid(name)), "step:s")))
        return found

    def ends(self, name: str = "x") -> list[str]:
        entries: Any = self.redis.lrange(KEYS.history(self.weid(name)), 0, -1)
        moves = [json.loads(entry) for entry in entries]
        return [one["to"] for one in moves if one.get("to") in ("complete", "failed")]


@pytest.mark.parametrize("worker", ["rq worker"])  # ours: test_work_horse.py
def test_of_an_orphan_and_its_successor_one_result_is_taken(
    worker: str, redis_server: RedisServer, redis_url: str, tmp_path: Path
) -> None:
    """RQ takes an orphan for lost while it still runs; both of them come to their end."""
    with stack(redis_url, "step_functions", tmp_path / "logs") as world, connect(redis_url) as redis:
        scene = Scene(redis, world, tmp_path)
        world.coordinator()
        first = WORKERS[worker](world)
        orphan = scene.start()
        world.kill(first)
        assert is_running(orphan)
        with redis_server.client() as client:
            age_rq_registries(client)
        wait_until(lambda: redis.hget(KEYS.counters, "lost") == "1", what=world.log())

        WORKERS[worker](world)
        assert scene.process(other_than=orphan) != orphan
        scene.let_go()
        scene.wait_for_the_end()
        wait_until(lambda: not is_running(orphan), what=world.log())

        assert scene.ends() == ["complete"]
        assert (scene.step()["run_id"], scene.step()["lost"]) == (1, 1)


@pytest.mark.parametrize("worker", ["rq worker"])  # ours: test_work_horse.py
def test_a_work_horse_that_stands_still_is_out_of_time_and_comes_too_late(
    worker: str, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path / "logs") as world, connect(redis_url) as redis:
        scene = Scene(redis, world, tmp_path)
        world.coordinator()
        process = WORKERS[worker](world)
        horse = scene.start(timeout="2s", on_error="continue")
        wait_until(lambda: redis.zcard(KEYS.timers) == 1, what="its deadline to be known")
        os.kill(horse, signal.SIGSTOP)
        scene.let_go()

        scene.wait_for_the_end()
        with suppress(ProcessLookupError):  # its worker may have killed it
            os.kill(horse, signal.SIGCONT)
        wait_until(lambda: not is_running(horse), what=world.log())

        assert scene.step()["error"]["kind"] == "timeout"
        assert scene.ends() == ["failed"]
        scene.start("y")
        scene.let_go("y")
        scene.wait_for_the_end("y")
        assert process.poll() is None


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_that_stands_still_holds_up_nothing_but_itself(
    worker: str, redis_url: str, tmp_path: Path
) -> None:
    with stack(redis_url, "step_functions", tmp_path / "logs") as world, connect(redis_url) as redis:
        scene = Scene(redis, world, tmp_path)
        world.coordinator()
        process = WORKERS[worker](world)
        scene.start()
        process.send_signal(signal.SIGSTOP)
        scene.let_go()

        scene.wait_for_the_end()
        assert scene.ends() == ["complete"]
        assert scene.step().get("lost", 0) == 0
        process.send_signal(signal.SIGCONT)
        scene.start("y")
        scene.let_go("y")
        scene.wait_for_the_end("y")
        assert process.poll() is None
