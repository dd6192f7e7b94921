"""A primary, a replica and three sentinels on three hosts of one network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from servers.failovers import NEVER_MS, SERVICE, own_sentinel, primary_of, role_of, until
from servers.hosts import Network, own_network
from servers.redis_server import RedisServer

PORT, SENTINEL_PORT = 6379, 26379
DOWN_AFTER_MS = 2_000
SENTINELS = ("one", "two", "three")


@dataclass
class Replicated:
    """The primary is on host "one", the replica on "two", a sentinel on each of the first three hosts."""

    network: Network
    primary: RedisServer
    replica: RedisServer

    @property
    def url(self) -> str:
        hosts = ",".join(f"{self.network[name].address}:{SENTINEL_PORT}" for name in SENTINELS)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def configure(self, **options: int) -> None:
        """Set options of both servers: each of them may be the primary."""
        for server in (self.primary, self.replica):
            with server.client() as client:
                for name, value in options.items():
                    client.config_set(name.replace("_", "-"), value)

    def wait_for_the_replica(self) -> None:
        """Until it has all that was written."""
        with self.primary.client() as client:
            until(partial(_is_replicated, client))

    def refuses_writes(self) -> bool:
        """Whether the primary lacks the replicas that it needs."""
        with self.primary.client() as client:
            try:
                client.incr("marker")
            except RedisError as error:
                return "NOREPLICAS" in str(error) or "Not enough good replicas" in str(error)
        return False

    def fail_over(self) -> None:
        """Wait until the sentinels that still see each other have made the replica the primary."""
        self._watch(DOWN_AFTER_MS)
        with self.replica.client() as client:
            until(lambda: role_of(client) == "master")
        self._watch(NEVER_MS)

    def _watch(self, down_after_ms: int) -> None:
        """On a busy machine a server may not reply for a while: it is replaced only when a test wants it."""
        for name in SENTINELS[1:]:
            with Redis(host=self.network[name].address, port=SENTINEL_PORT) as sentinel:
                sentinel.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", down_after_ms)

    def wait_until_joined(self) -> None:
        """Until the old primary, which can be reached again, is a replica of the new one."""
        with self.primary.client() as client:
            until(lambda: role_of(client) == "slave")
        with self.replica.client() as client:
            until(partial(_is_replicated, client))


@contextmanager
def own_replicated(folder: Path, *further_hosts: str) -> Iterator[Replicated]:
    with ExitStack() as contexts:
        network = contexts.enter_context(own_network(*SENTINELS, *further_hosts))
        one, two = network["one"], network["two"]
        common = ("--appendonly", "yes", "--port", str(PORT), "--protected-mode", "no", "--bind")
        primary = _server(folder / "one", (*common, one.address), one.prefix)
        replica = _server(
            folder / "two", (*common, two.address, "--replicaof", one.address, str(PORT)), two.prefix
        )
        for server in (primary, replica):
            contexts.callback(server.stop)
            server.start()
        for name in SENTINELS:
            host = network[name]
            contexts.enter_context(
                own_sentinel(
                    folder,
                    PORT,
                    SENTINEL_PORT,
                    primary_host=one.address,
                    address=host.address,
                    quorum=2,
                    prefix=host.prefix,
                )
            )
        replicated = Replicated(network, primary, replica)
        replicated.wait_for_the_replica()
        for name in SENTINELS:
            with Redis(host=network[name].address, port=SENTINEL_PORT) as sentinel:
                until(partial(_knows_all, sentinel))
        yield replicated


def _server(folder: Path, arguments: tuple[str, ...], prefix: tuple[str, ...]) -> RedisServer:
    folder.mkdir()
    return RedisServer(folder, arguments, prefix=prefix)


def _is_replicated(client: Redis) -> bool:
    """Write, which fails while a server lacks the replicas that it needs, and wait for a replica."""
    with suppress(RedisError):
        client.incr("marker")  # WAIT counts the writes of its own connection
        return bool(client.wait(1, 100))
    return False


def _knows_all(sentinel: Redis) -> bool:
    masters: Any = sentinel.sentinel_masters()
    state = masters[SERVICE]
    return (state["num-slaves"], state["num-other-sentinels"]) == (1, 2) and primary_of(sentinel)[1]
