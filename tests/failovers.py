"""A primary, a replica and a sentinel of a test's own; the primary dies, the replica takes its place."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from redis_server import RedisServer, own_redis

SERVICE = "cell"
UP_WITHIN_S = 20.0


@dataclass
class Cell:
    primary: RedisServer
    replica: RedisServer
    sentinel: subprocess.Popen[bytes]
    sentinel_port: int

    @property
    def url(self) -> str:
        # The first one is not there: one of them may be down.
        return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self.sentinel_port}/{SERVICE}/0"

    def cut_off_the_replica(self) -> None:
        """From now on nothing that is written reaches it, and it does not know."""
        os.kill(self.replica.pid, signal.SIGSTOP)
        with self.primary.client() as client:
            client.client_kill_filter(_type="replica")

    def fail_over(self) -> None:
        """The primary dies; returns when the replica takes writes, and the sentinel says so."""
        self.primary.kill()
        os.kill(self.replica.pid, signal.SIGCONT)
        with self.replica.client() as client:
            _until(lambda: client.info("replication")["role"] == "master")
        port = int(self.replica.arguments[self.replica.arguments.index("--port") + 1])
        with Redis(port=self.sentinel_port) as client:
            _until(lambda: _primary(client) == (port, True))

    def wait_for_the_replica(self) -> None:
        """Until it has all that was written."""
        with self.primary.client() as client:
            _until(lambda: bool(client.wait(1, 100)))


@contextmanager
def own_cell(folder: Path, *arguments: str) -> Iterator[Cell]:
    """Further arguments go to both servers."""
    primary_port, replica_port, sentinel_port = _free_ports(3)
    aof = ("--appendonly", "yes", "--bind", "127.0.0.1", *arguments)
    with (
        own_redis(folder, *aof, "--port", str(primary_port)) as primary,
        own_redis(
            folder, *aof, "--port", str(replica_port), "--replicaof", "127.0.0.1", str(primary_port)
        ) as replica,
        _sentinel(folder, primary_port, sentinel_port) as sentinel,
    ):
        cell = Cell(primary, replica, sentinel, sentinel_port)
        cell.wait_for_the_replica()
        with Redis(port=sentinel_port) as client:
            _until(lambda: client.sentinel_masters()[SERVICE]["num-slaves"] == 1)
        yield cell


@contextmanager
def _sentinel(folder: Path, primary_port: int, port: int) -> Iterator[subprocess.Popen[bytes]]:
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {primary_port} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} 500\nsentinel failover-timeout {SERVICE} 5000\n"
    )
    binary = shutil.which("redis-server") or "redis-server"
    with (folder / "sentinel.log").open("wb") as log:
        process = subprocess.Popen([binary, str(configuration), "--sentinel"], stdout=log, stderr=log)
    try:
        with Redis(port=port) as client:
            _until(lambda: _answers(client))
        yield process
    finally:
        process.kill()
        process.wait()


def _primary(client: Redis) -> tuple[int, bool]:
    """Where the sentinel says the primary is, and whether it is well."""
    masters: Any = client.sentinel_masters()
    state = masters[SERVICE]
    return state["port"], state["is_master"] and not state["is_sdown"]


def _answers(client: Redis) -> bool:
    with suppress(RedisError):
        return bool(client.ping())
    return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _until(fact: Callable[[], object], within_s: float = UP_WITHIN_S) -> None:
    until = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < until, f"not within {within_s:g} s"
        time.sleep(0.02)
