"""A primary, a replica and a sentinel of a test's own; the primary dies, the replica takes its place."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from servers.ports import free_ports
from servers.redis_server import RedisServer, own_redis

SERVICE = "cell"
DOWN_AFTER_MS = 500
NEVER_MS = 3_600_000
"""On a busy machine a server may not reply for a while. Only one that was killed is to be replaced."""
PATIENCE_S = 180.0


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
            client.execute_command("CLIENT KILL", "TYPE", "replica")

    def fail_over(self) -> None:
        """The primary dies; returns when the replica takes writes, and the sentinel says so."""
        self.primary.kill()
        os.kill(self.replica.pid, signal.SIGCONT)
        with Redis(port=self.sentinel_port) as sentinel:
            sentinel.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", DOWN_AFTER_MS)
            with self.replica.client() as client:
                until(lambda: role_of(client) == "master")
            port = int(self.replica.arguments[self.replica.arguments.index("--port") + 1])
            until(lambda: primary_of(sentinel) == (port, True))
            sentinel.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", NEVER_MS)
            until(lambda: primary_of(sentinel) == (port, True))

    def wait_for_the_replica(self) -> None:
        """Until it has all that was written."""
        with self.primary.client() as client:
            client.incr("marker")  # WAIT counts only the writes of its own connection
            until(lambda: bool(client.wait(1, 100)))


@contextmanager
def own_cell(folder: Path, *arguments: str) -> Iterator[Cell]:
    """Further arguments go to both servers."""
    primary_port, replica_port, sentinel_port = free_ports(3)
    aof = ("--appendonly", "yes", "--bind", "127.0.0.1", *arguments)
    with (
        own_redis(folder, *aof, "--port", str(primary_port)) as primary,
        own_redis(
            folder, *aof, "--port", str(replica_port), "--replicaof", "127.0.0.1", str(primary_port)
        ) as replica,
        own_sentinel(folder, primary_port, sentinel_port) as sentinel,
    ):
        cell = Cell(primary, replica, sentinel, sentinel_port)
        cell.wait_for_the_replica()
        with Redis(port=sentinel_port) as client:
            until(lambda: client.sentinel_masters()[SERVICE]["num-slaves"] == 1)
        yield cell


@contextmanager
def own_sentinel(
    folder: Path,
    primary_port: int,
    port: int,
    *,
    primary_host: str = "127.0.0.1",
    address: str = "127.0.0.1",
    quorum: int = 1,
    prefix: tuple[str, ...] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """A sentinel that watches a primary, at an address of its own. `prefix` is as in RedisServer."""
    configuration = folder / f"sentinel-{address}.conf"
    configuration.write_text(
        f"port {port}\nbind {address}\nprotected-mode no\n"
        f"sentinel monitor {SERVICE} {primary_host} {primary_port} {quorum}\n"
        f"sentinel down-after-milliseconds {SERVICE} {NEVER_MS}\nsentinel failover-timeout {SERVICE} 5000\n"
    )
    binary = shutil.which("redis-server") or "redis-server"
    with configuration.with_suffix(".log").open("wb") as log:
        command = [*prefix, binary, str(configuration), "--sentinel"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with Redis(host=address, port=port) as client:
            until(lambda: _answers(client))
        yield process
    finally:
        process.kill()
        process.wait()


def role_of(client: Redis) -> str:
    """Of a replica; the sentinel that promotes it closes the connections of its clients."""
    with suppress(RedisError):
        return str(client.info("replication")["role"])
    return ""


def primary_of(client: Redis) -> tuple[int, bool]:
    """Where the sentinel says the primary is, and whether it is well."""
    masters: Any = client.sentinel_masters()
    state = masters[SERVICE]
    return state["port"], state["is_master"] and not state["is_sdown"]


def _answers(client: Redis) -> bool:
    with suppress(RedisError):
        return bool(client.ping())
    return False


def until(fact: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < until, f"not within {within_s:g} s"
        time.sleep(0.02)
