"""Whoever can write to Redis can write jobs: what becomes of forged ones, under every kind of worker.

The workers are processes in which pickle is a trap (poisoned/sitecustomize.py): none of them may unpickle
anything, whatever lies in RQ's keys.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.job_codec import RUN_STEP
from processes import JSON_SERIALIZER, ROOT
from servers.web import Asked, Reply, Site, said, site
from worlds.documents import Json
from worlds.redis_world import RedisWorld

pytestmark = pytest.mark.slow

QUEUE = "orchestrator.default"
CLASS = "orchestrator.worker.step_job.StepJob"
STOCK = (sys.executable, "-m", "rq.cli", "worker", "--burst")
OURS = (sys.executable, "-m", "orchestrator", "worker", "--burst")
GUARDED = {
    "rq worker --job-class": (*STOCK, *JSON_SERIALIZER, "--job-class", CLASS, QUEUE),
    "rq worker --job-class, pickle": (*STOCK, "--job-class", CLASS, QUEUE),
    "orchestrator worker": OURS,
    "orchestrator worker --concurrency": (*OURS, "--concurrency", "2"),
}


class Evil:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._path}",)


@dataclass
class Attack:
    """A Redis with forged jobs in it, and what would be there if one of them had its way."""

    world: RedisWorld
    url: str
    folder: Path
    called: Site

    @property
    def touched(self) -> Path:
        return self.folder / "touched"

    @property
    def unpickled(self) -> str:
        note = self.folder / "unpickled"
        return note.read_text() if note.exists() else ""

    def forge(self, name: str, data: Any, queued: bool = True, **fields: Any) -> str:
        """A job on our queue. What is no text or bytes is written as JSON."""
        written = data if isinstance(data, str | bytes) else json.dumps(data)
        hash_of: dict[Any, Any] = {
            "data": written,
            "timeout": "30",
            "origin": QUEUE,
            "status": "queued",
            **fields,
        }
        self.world.client.hset(f"rq:job:{name}", mapping=hash_of)
        if queued:
            self.world.client.rpush(f"rq:queue:{QUEUE}", name)
        return name

    def run(self, *command: str, poisoned: bool = True) -> str:
        """A worker until its queue is empty; what it logs."""
        poison = [str(ROOT / "tests" / "poisoned")] if poisoned else []
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*poison, str(ROOT), str(ROOT / "tests")]),
            "ORCHESTRATOR_REDIS_URL": self.url,
            "RQ_REDIS_URL": self.url,
            "ORCHESTRATOR_EXECUTORS": "step_functions",
            "UNPICKLED": str(self.folder / "unpickled"),
            "TOUCHED": str(self.touched),
        }
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def called() -> Iterator[Site]:
    def answer(asked: Asked) -> Reply:
        return said("thank you")

    with site(answer) as made:
        yield made


@pytest.fixture
def attack(world: RedisWorld, redis_url: str, tmp_path: Path, called: Site) -> Attack:
    world.client.sadd("rq:queues", f"rq:queue:{QUEUE}")
    called.asked.clear()
    return Attack(world, redis_url, tmp_path, called)


@cache
def bomb(begin: bytes = b"") -> bytes:
    """Two hundred megabytes, compressed."""
    return zlib.compress(begin + bytes(200_000_000))


def load_all(attack: Attack) -> None:
    """Every attack that we know of, on the queue and in the registries of RQ."""
    touch = [f"touch {attack.touched}"]
    pickled = pickle.dumps(("os.system", None, touch, {}))
    evil = pickle.dumps(Evil(attack.touched))
    for name in ("os.system", "subprocess.getoutput", "orchestrator.worker.harness.os.system"):
        attack.forge(name.replace(".", "-"), [name, None, touch, {}])
    for name in ("_kill_this_process", "Harness", "run_step.__globals__", "executors_from_environment"):
        attack.forge(f"own-{name}".replace(".", "-"), [f"orchestrator.worker.harness.{name}", None, [], {}])
    attack.forge("pickled", pickled)
    attack.forge("pickled-and-compressed", zlib.compress(pickled))
    attack.forge("evil", evil)
    attack.forge(
        "evil-meta", ["os.getpid", None, [], {}], meta=evil, result=evil, exc_info=zlib.compress(evil)
    )
    attack.forge("an-instance", [RUN_STEP, {"evil": 1}, [{}], {}])
    attack.forge("no-payload", [RUN_STEP, None, [{}], {}])
    attack.forge("a-bomb", bomb(b"["))
    attack.forge("a-bomb-in-a-bomb", zlib.compress(bomb()))
    attack.forge("deep", "[" * 100_000)
    attack.forge("again-and-again", ["os.getpid", None, [], {}], retries_left="1000000", repeats_left="9")
    attack.world.client.set("rq:job:no-hash", "x")
    attack.world.client.rpush(f"rq:queue:{QUEUE}", "no-hash", "nothing", "../../etc", "")
    # What others have left behind: whoever tidies up reads it.
    hooks = json.dumps([hook(attack, "failed")])
    left = {"meta": evil, "failure_callback_name": "step_functions.touch", "webhooks": hooks}
    attack.forge("abandoned", ["os.getpid", None, [], {}], queued=False, **left)
    attack.forge("scheduled", pickled, queued=False, meta=evil)
    client = attack.world.client
    client.zadd(f"rq:wip:{QUEUE}", {"abandoned:1": 1, "abandoned": 1})
    client.zadd(f"rq:scheduled:{QUEUE}", {"scheduled": 1})
    client.zadd(f"rq:deferred:{QUEUE}", {"scheduled": 1})
    client.zadd(f"rq:finished:{QUEUE}", {"scheduled": 1})
    client.rpush(f"rq:queue:{QUEUE}:intermediate", "evil-meta")


def hook(attack: Attack, status: str) -> Json:
    return {"url": f"{attack.called.url}/{status}", "job_status": status, "method": "POST", "timeout": 5}


def arm(attack: Attack, token: str) -> None:
    """Our own job, with what RQ would call when it ends."""
    evil = pickle.dumps(Evil(attack.touched))
    armed: dict[Any, Any] = {
        f"{event}_callback_name": "step_functions.touch" for event in ("success", "failure", "stopped")
    }
    armed |= {"meta": evil, "webhooks": json.dumps([hook(attack, "finished"), hook(attack, "failed")])}
    attack.world.client.hset(f"rq:job:{token}", mapping=armed)


@pytest.mark.parametrize("command", GUARDED.values(), ids=GUARDED)
def test_nothing_forged_is_run_and_the_honest_step_behind_it_is(
    attack: Attack, command: tuple[str, ...]
) -> None:
    world = attack.world
    coordinator = world.coordinator()
    load_all(attack)
    weid = world.begin(coordinator, {"steps": [{"op": "a", "fn": "add", "input": {"x": 1, "y": 2}}]})
    arm(attack, world.waiting()[-1])

    logged = attack.run(*command)
    coordinator.run_once()

    assert world.status(weid) == "complete", logged
    assert world.record(weid).steps["a"].output == {"sum": 3}
    assert not attack.touched.exists()
    assert attack.called.asked == []
    assert attack.unpickled == ""
    assert world.client.llen(f"rq:queue:{QUEUE}") == 0


# ---- why it must be so: what docs/security.md says of workers without the class


def test_a_stock_worker_without_the_class_runs_what_it_finds(attack: Attack) -> None:
    attack.forge("forged", ["os.getpid", None, [], {}], webhooks=json.dumps([hook(attack, "finished")]))
    attack.forge("evil", ["os.system", None, [f"touch {attack.touched}"], {}])

    attack.run(*STOCK, *JSON_SERIALIZER, QUEUE)

    assert attack.touched.exists()
    has_webhooks = find_spec("rq.webhook") is not None  # since rq 2.10
    assert [asked.path for asked in attack.called.asked] == ["/finished"] * has_webhooks
    assert "os.system" in attack.unpickled, "the trap works"


def test_a_worker_pool_unpickles_what_it_finds_whatever_it_is_told(attack: Attack) -> None:
    evil = pickle.dumps(Evil(attack.touched))
    attack.forge("abandoned", ["os.getpid", None, [], {}], queued=False, meta=evil)
    attack.world.client.zadd(f"rq:wip:{QUEUE}", {"abandoned:1": 1})
    pool = (sys.executable, "-m", "rq.cli", "worker-pool", "--burst", "--num-workers", "1")

    attack.run(*pool, *JSON_SERIALIZER, "--job-class", CLASS, QUEUE)

    assert "unpickles" in attack.unpickled
