"""Hosts that silently lose their connection to Redis and regain it.

Each host is a network namespace behind a pair of virtual interfaces. It is disconnected by giving both sides
a wrong hardware address of the other, so that packets are lost without an error. Needs root and `ip`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from processes import Stack, wait_until
from servers.hosts import ip
from servers.redis_server import RedisServer

KEYS = Keys()
LEASE_S = 4
PREFIX = "10.213"
"""The first half of the addresses. The rest depends on our pid, so that two runs do not conflict."""


def is_possible() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


@dataclass
class Host:
    """A namespace with one connection to Redis."""

    number: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"t{os.getpid() % 100_000}-{self.number}"

    @property
    def _subnet(self) -> str:
        return f"{PREFIX}.{(os.getpid() * 4 + self.number) % 250}"

    @property
    def redis_address(self) -> str:
        return f"{self._subnet}.1"

    def plug_in(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("addr", "add", f"{self.redis_address}/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for command in (f"addr add {self._subnet}.2/24 dev eth0", "link set eth0 up", "link set lo up"):
            ip("-n", self.name, *command.split())

    def unplug(self) -> None:
        """Delete the namespace and its interfaces."""
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)

    def cut_off(self) -> None:
        wrong = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
        ip("-n", self.name, "neigh", "replace", self.redis_address, "dev", "eth0", *wrong)
        ip("neigh", "replace", f"{self._subnet}.2", "dev", self.name, *wrong)

    def heal(self) -> None:
        ip("-n", self.name, "neigh", "del", self.redis_address, "dev", "eth0")
        ip("neigh", "del", f"{self._subnet}.2", "dev", self.name)


@dataclass
class HostStack(Stack):
    """Processes on a host."""

    host: Host = field(default_factory=lambda: Host(0))

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        return super()._spawn("ip", "netns", "exec", self.host.name, *command)


@dataclass
class PartitionResult:
    """The result of a partition."""

    seconds: float
    lost: int
    completions: int
    status: str
    dispatches: int
    repaired_s: float
    """Seconds from the partition until the result of another worker was accepted."""
    back_s: float
    """Seconds from the end of the partition until the reconnected hosts completed the next execution."""
    alive: bool
    after: str

    def lines(self) -> Iterator[str]:
        yield f"worker and coordinator disconnected for {self.seconds:g} s, without an error"
        yield f"  another worker published the result {self.repaired_s:.1f} s after the partition"
        yield f"  dispatched {self.dispatches} times, lost {self.lost}, accepted {self.completions}"
        yield f"  the reconnected hosts completed the next execution within {self.back_s:.1f} s"
        yield from (f"  BROKEN {one}" for one in self.broken)

    @property
    def broken(self) -> list[str]:
        wrong: list[str] = []
        if (self.status, self.completions) != ("complete", 1):
            wrong.append(f"the step is {self.status}, and was accepted {self.completions} times")
        if not self.alive:
            wrong.append("a process exited by itself")
        if self.after != "complete":
            wrong.append(f"the execution after the partition is {self.after}")
        return wrong


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Client, HostStack, HostStack]]:
    """Create a host for a worker, a host for a coordinator, and a Redis that both can reach."""
    with ExitStack() as contexts:
        hosts = [Host(number) for number in (1, 2)]
        for host in hosts:
            contexts.callback(host.unplug)
            host.plug_in()
        server = RedisServer(folder, ("--appendonly", "yes", "--port", "6379", "--protected-mode", "no"))
        server.arguments += ("--bind", *(host.redis_address for host in hosts))
        server.start()
        contexts.callback(server.stop)
        stacks = []
        for host in hosts:
            url = f"redis://{host.redis_address}:6379/0"
            environment = {"ORCHESTRATOR_LEASE_S": str(LEASE_S), "ORCHESTRATOR_GRACE_MS": "1000"}
            logs = folder / host.name
            logs.mkdir()
            stack = HostStack(url, "step_functions", logs, environment, host=host)
            contexts.callback(stack.end)
            stacks.append(stack)
        client = contexts.enter_context(connect(server.url))
        yield client, stacks[0], stacks[1]


def partition(seconds: float, worker: str = "ours") -> PartitionResult:
    """Disconnect a worker that runs a step, and a coordinator. Another worker and another coordinator, on the
    side of Redis, continue. Then the hosts are reconnected."""
    folder = Path(tempfile.mkdtemp(prefix="torture-partition-"))
    try:
        with two_hosts(folder) as (client, worker_host, coordinator_host), ExitStack() as contexts:
            near = Stack(f"unix://{folder / 'redis.sock'}", "step_functions", folder / "near")
            near.environment = dict(worker_host.environment)
            near.folder.mkdir()
            contexts.callback(near.end)
            near.coordinator()
            processes = [coordinator_host.coordinator(), _worker(worker_host, worker)]
            result = _run_partition(client, folder, seconds, (worker_host, coordinator_host), near)
            result.alive = all(process.poll() is None for process in processes)
            return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _worker(stack: Stack, kind: str) -> subprocess.Popen[bytes]:
    return stack.worker("default", "--concurrency", "4") if kind == "concurrent" else stack.worker()


def _run_partition(
    client: Client, folder: Path, seconds: float, far: tuple[HostStack, HostStack], near: Stack
) -> PartitionResult:
    files = {"pid_file": str(folder / "pid"), "go": str(folder / "go")}
    document = {"steps": [{"id": "s", "fn": "waits", "input": files}]}
    wait_until(lambda: client.zcard(KEYS.coordinators) == 2, what="two coordinators")
    client.xadd(KEYS.starts, {"spec": json.dumps(document), "execution_id": "x"})
    wait_until(lambda: (folder / "pid").exists(), what=far[0].log())
    for stack in far:
        stack.host.cut_off()
    began = time.monotonic()
    near.worker()
    wait_until(lambda: client.hget(KEYS.counters, "lost") == "1", what="the loss of the worker")
    (folder / "go").touch()
    wait_until(lambda: _status(client, "x") == "complete", what=near.log())
    repaired_s = time.monotonic() - began
    time.sleep(max(0.0, seconds - repaired_s))
    for stack in far:
        stack.host.heal()
    healed_at = time.monotonic()
    wait_until(lambda: client.zcard(KEYS.coordinators) == 2, what="the return of the coordinator")
    near.end()  # now only the reconnected processes are left
    near.processes.clear()
    client.xadd(KEYS.starts, {"spec": json.dumps(document), "execution_id": "y"})
    wait_until(lambda: _status(client, "y") == "complete", what=far[0].log() + far[1].log())
    back_s = time.monotonic() - healed_at
    entries: Any = client.lrange(KEYS.history(_weid(client, "x")), 0, -1)
    moves = [json.loads(entry) for entry in entries]
    step = json.loads(str(client.hget(KEYS.workflow(_weid(client, "x")), "step:s")))
    return PartitionResult(
        seconds,
        int(str(client.hget(KEYS.counters, "lost") or 0)),
        sum(1 for one in moves if one.get("to") == "complete"),
        _status(client, "x"),
        step["dispatches"],
        repaired_s,
        back_s,
        True,
        _status(client, "y"),
    )


def _weid(client: Client, name: str) -> str:
    return str(client.get(KEYS.execution(name)))


def _status(client: Client, name: str) -> str:
    return str(client.hget(KEYS.workflow(_weid(client, name)), "status"))
