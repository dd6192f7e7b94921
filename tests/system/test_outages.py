"""Redis goes away for a while, in every way it has: all go on by themselves, and say so once."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, FinalDecision
from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.verify.verifier import Verifier
from processes import PatientClient, Stack, stack, wait_until
from servers.outages import ARGUMENTS, OUTAGES
from servers.redis_server import RedisServer, own_redis

KEYS = Keys()
QUEUES = ("forking", "crew", "stock")
GRACE_S = 0.5
"""So long an outage lasts after the steps have ended: their results have nowhere to go."""

READABLE = ("read only", "full", "disk full")
"""Outages in which Redis refuses writes alone: who only looks does not notice."""

COMPLAINT = re.compile(r"Redis|store is away|Traceback|rror")
"""A line that has to do with an outage."""


@dataclass
class System:
    """A coordinator, and one worker of each kind on a queue of its own; RQ's own has a supervisor."""

    server: RedisServer
    processes: Stack
    redis: RedisClient
    client: Client
    own: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    figures: list[str] = field(default_factory=list)
    is_over: bool = False

    def supervise(self) -> None:
        """What systemd does with a stock worker: RQ ends it when Redis goes away at the wrong moment."""
        stock = self.processes.rq_worker("orchestrator.stock")
        while not self.is_over:
            if stock.poll() is not None:
                stock = self.processes.rq_worker("orchestrator.stock")
            time.sleep(0.1)

    def complaints(self, name: str, since: int) -> list[str]:
        text = self.log_of(self.own[name]).read_text()[since:]
        return [line for line in text.splitlines() if COMPLAINT.search(line)]

    def said(self, name: str) -> int:
        return len(self.log_of(self.own[name]).read_text())

    def log_of(self, process: subprocess.Popen[bytes]) -> Path:
        number = self.processes.processes.index(process)
        return self.processes.folder / f"{number:03}.log"

    def start(self, queue: str, execution_id: str, go: Path) -> None:
        """Two steps; the first one waits until there is a file."""
        pid_file = go.with_name(f"pid-{execution_id}")
        waits = {"fn": "waits", "queue": queue, "input": {"pid_file": str(pid_file), "go": str(go)}}
        then = {"fn": "add", "queue": queue, "depends_on": ["a"], "input": {"n": 2}}
        document = {
            "steps": [{"id": "a", **waits}, {"id": "b", **then}],
            "outputs": {"sum": {"var": "steps.b.output.sum"}},
        }
        self.client.start(document, execution_id=execution_id, reply_timeout_s=180)

    def listeners(self, execution_id: str) -> int:
        """How many wait for the end of an execution."""
        channel = KEYS.done(self.client.store.full_id(execution_id))
        [(_, count)] = self.redis.pubsub_numsub(channel)
        return int(count)

    def runs(self, execution_id: str) -> bool:
        """Whether a worker has begun the first step."""
        full = self.client.store.full_id(execution_id)
        leases: Any = self.redis.zrange(KEYS.leases, 0, -1, withscores=True)
        return any(member.startswith(f"{full}|a|") and score < 1e15 for member, score in leases)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("outages")
    with own_redis(folder, *ARGUMENTS) as server:
        redis = connect(server.url)
        with stack(server.url, "step_functions", folder / "logs") as processes:
            system = System(server, processes, redis, PatientClient(redis))
            system.own["coordinator"] = processes.coordinator()
            system.own["forking"] = processes.worker("forking")
            system.own["crew"] = processes.worker("crew", "--concurrency", "4")
            supervisor = threading.Thread(target=system.supervise)
            supervisor.start()
            wait_until(lambda: redis.scard("rq:workers") == len(QUEUES), what="all workers")
            yield system
            system.is_over = True
            supervisor.join()
        print("\n".join(["", *system.figures]))
        redis.close()


@pytest.mark.slow
@pytest.mark.parametrize("outage", OUTAGES)
def test_after_an_outage_all_go_on_by_themselves(system: System, outage: str, tmp_path: Path) -> None:
    name, go = outage.replace(" ", "-"), tmp_path / "go"
    running = {queue: f"{name}-{queue}" for queue in QUEUES}
    for queue, execution_id in running.items():
        system.start(queue, execution_id, go)
    ends: dict[str, FinalDecision] = {}

    def wait_for(execution_id: str) -> None:
        ends[execution_id] = system.client.wait(execution_id, 180)

    waiting = [threading.Thread(target=wait_for, args=[one]) for one in running.values()]
    for thread in waiting:
        thread.start()
    watch = system.processes.module("orchestrator", "watch", running["forking"])
    told = system.log_of(watch)
    wait_until(lambda: all(map(system.runs, running.values())), what="every worker to be at it")
    wait_until(lambda: system.listeners(running["forking"]) == 2, what="the client and the command to wait")
    said = {process: system.said(process) for process in system.own}

    with OUTAGES[outage](system.server):
        wait_until(lambda: any(system.complaints(*one) for one in said.items()), what="it to be noticed")
        if outage not in READABLE:
            wait_until(lambda: "Redis is unavailable" in told.read_text(), what="the command to notice it")
        go.touch()
        time.sleep(GRACE_S)
    began = time.monotonic()

    for thread in waiting:
        thread.join(180)
    assert {one: ends.get(one) for one in running.values()} == dict.fromkeys(
        running.values(), Complete({"sum": 2})
    ), system.processes.log()[-4000:]
    assert watch.wait(180) == 0, told.read_text()
    assert told.read_text().count("Redis is unavailable") == (outage not in READABLE)
    ended_s = time.monotonic() - began
    for queue in QUEUES:
        system.start(queue, f"{name}-{queue}-next", go)
        assert system.client.wait(f"{name}-{queue}-next", 180) == Complete({"sum": 2})
    system.figures.append(
        f"{outage}: all that ran has ended after {ended_s:.1f} s, more after {time.monotonic() - began:.1f} s"
    )

    assert {process: one.poll() for process, one in system.own.items()} == dict.fromkeys(system.own)
    for process in system.own:
        complaints = system.complaints(process, said[process])
        assert len(complaints) <= 4, complaints
        assert not any("Traceback" in line for line in complaints), complaints
    report = Verifier(system.redis, KEYS).verify_all()
    assert [str(one.finding) for one in report.found] == []
