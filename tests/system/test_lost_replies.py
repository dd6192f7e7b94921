"""Replies that are lost, of every command of every process: executed, and nobody hears of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from processes import Stack, stack, wait_until
from servers.redis_server import RedisServer
from system.test_kills import DIAMOND, accepted, expected
from torture.proxy import Line, Proxy

pytestmark = pytest.mark.slow

KEYS = Keys()
GRACE_MS = 2_000
Popen = subprocess.Popen[bytes]
START: dict[str, Callable[[Stack], Popen]] = {
    "coordinator": lambda world: world.coordinator(),
    "rq worker": lambda world: world.rq_worker(),
    "rq worker of two queues": lambda world: world.rq_worker("orchestrator.default", "orchestrator.other"),
    "orchestrator worker": lambda world: world.worker(),
    "crew": lambda world: world.worker("default", "--concurrency", "4"),
}
COMMANDS = {
    "coordinator": ("XREADGROUP", "EVALSHA", "XPENDING"),
    "rq worker": ("BLMOVE", "ZADD", "XADD", "EXEC"),
    "orchestrator worker": ("BLPOP", "EVALSHA", "EXEC"),
    "crew": ("BLPOP", "EVALSHA", "XADD", "DEL"),
}
POPS = {
    "rq worker": "BLMOVE",
    "rq worker of two queues": "BLPOP",
}


@dataclass
class System:
    """Every process on a line of its own, and what has been started."""

    redis: Client
    proxy: Proxy
    folder: Path
    stacks: dict[str, Stack]
    lines: dict[str, Line]
    started: int = 0

    def join(self, role: str, contexts: ExitStack, **environment: str) -> Line:
        line = self.lines[role] = self.proxy.line(role)
        folder = self.folder / role.replace(" ", "-")
        self.stacks[role] = contexts.enter_context(stack(line.url, "step_functions", folder, **environment))
        return line

    def begin(self, role: str) -> Popen:
        return START[role](self.stacks[role])

    def start(self) -> None:
        fields: dict[Any, Any] = {"spec": json.dumps(DIAMOND), "inputs": json.dumps({"n": self.started})}
        self.redis.xadd(KEYS.starts, {**fields, "execution_id": f"run-{self.started}"})
        self.started += 1

    def weid(self, n: int) -> str:
        return str(self.redis.get(KEYS.execution(f"run-{n}")))

    def ended(self) -> int:
        return int(self.redis.zcard(KEYS.index("complete")))

    def log(self) -> str:
        return "".join(one.log() for one in self.stacks.values())


@pytest.fixture
def system(redis_server: RedisServer, redis_url: str, tmp_path: Path) -> Iterator[System]:
    with Proxy(redis_server.socket) as proxy, connect(redis_url) as redis:
        yield System(redis, proxy, tmp_path, {}, {})


@pytest.mark.parametrize("role", COMMANDS)
def test_whatever_reply_is_lost_each_step_is_dispatched_once_in_a_run_and_taken_once(
    system: System, role: str
) -> None:
    worker = "crew" if role == "coordinator" else role
    environment = {"ORCHESTRATOR_LEASE_S": "2", "ORCHESTRATOR_GRACE_MS": str(GRACE_MS)}
    with ExitStack() as contexts:
        for name in ("coordinator", worker):
            system.join(name, contexts, **environment)
        processes = {name: system.begin(name) for name in ("coordinator", worker)}
        line = system.lines[role]

        def have_ended() -> bool:
            if processes[role].poll() is not None:  # RQ ends its own worker when its Redis goes away
                assert role == "rq worker", system.log()
                processes[role] = system.begin(role)
            return system.ended() == system.started

        def has_fired() -> bool:
            if have_ended():
                system.start()
            return not line.is_armed()

        for command in COMMANDS[role]:
            line.drop_reply_of(command)
            wait_until(has_fired, what=f"{command} to be sent\n{system.log()}")
        wait_until(have_ended, what=system.log())

    assert system.proxy.faults["reply dropped"] == len(COMMANDS[role])
    for n in range(system.started):
        record: Any = system.redis.hgetall(KEYS.workflow(system.weid(n)))
        assert json.loads(record["outcome"]) == expected(n)
        assert accepted(system.redis, system.weid(n)) == dict.fromkeys("abcd", 1)
        steps = [json.loads(record[f"step:{step_id}"]) for step_id in "abcd"]
        assert [step["dispatches"] for step in steps] == [step["run_id"] + 1 for step in steps]


@pytest.mark.parametrize("worker", POPS)
def test_a_job_whose_pop_was_not_heard_is_dispatched_again_after_the_grace(
    system: System, worker: str
) -> None:
    with ExitStack() as contexts:
        system.join("coordinator", contexts, ORCHESTRATOR_GRACE_MS=str(GRACE_MS))
        system.join(worker, contexts).drop_reply_of(POPS[worker])
        system.begin("coordinator")
        process = system.begin(worker)
        wait_until(lambda: system.redis.scard("rq:workers") == 1, what=system.log())
        system.start()
        wait_until(lambda: system.proxy.faults["reply dropped"] == 1, what=system.log())
        wait_until(lambda: system.redis.hget(KEYS.counters, "lost") == "1", what=system.log())
        if process.poll() is not None:
            system.begin(worker)
        wait_until(lambda: system.ended() == 1, what=system.log())

    entries: Any = system.redis.lrange(KEYS.history(system.weid(0)), 0, -1)
    assert any("no worker started it" in entry for entry in entries)
    assert accepted(system.redis, system.weid(0)) == dict.fromkeys("abcd", 1)
