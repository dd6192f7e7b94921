"""Ways in which a Redis that is there cannot be used for a while; each on a server of a test's own."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from redis import Redis
from redis.exceptions import RedisError

from servers.redis_server import PATIENCE_S, RedisServer

LOADED = 3_000
"""So many keys: a server looks at its clients after every 1,024 commands that it loads."""
LOAD_DELAY_US = 700

ARGUMENTS = ("--appendonly", "yes", "--appendfsync", "no", "--lua-time-limit", "100")

Outage = Callable[[RedisServer], AbstractContextManager[None]]


@contextmanager
def killed(server: RedisServer) -> Iterator[None]:
    """kill -9, and started again on what it had on disk."""
    server.kill()
    yield
    server.start()


@contextmanager
def read_only(server: RedisServer) -> Iterator[None]:
    """It has become a replica of somebody who is not there, and is made a primary again."""
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")
        yield
        client.replicaof("NO", "ONE")


@contextmanager
def full(server: RedisServer) -> Iterator[None]:
    with server.client() as client:
        client.config_set("maxmemory", "1mb")  # what is there already takes more
        yield
        client.config_set("maxmemory", "0")


@contextmanager
def loading(server: RedisServer) -> Iterator[None]:
    """A restart on a file that takes its time: it answers, and says so."""
    with server.client() as client, client.pipeline(transaction=False) as pipe:
        for n in range(LOADED):
            pipe.set(f"loaded:{n}", n)
        pipe.execute()
    server.stop()
    arguments = server.arguments
    server.arguments = (*arguments, "--key-load-delay", str(LOAD_DELAY_US))
    starting = threading.Thread(target=server.start)
    starting.start()
    yield
    starting.join()
    server.arguments = arguments


@contextmanager
def disk_full(server: RedisServer) -> Iterator[None]:
    """Its append-only file cannot grow, so that it takes no writes. The limit is one of its process: no disk
    of the machine has to be filled, and nobody has to be root."""
    files = server.folder.rglob("appendonly.aof*")  # in a folder of their own since Redis 7
    size = max(path.stat().st_size for path in files)
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, most))
    with server.client() as client:
        _until(lambda: "MISCONF" in _refusal(client))
        yield
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most, most))
        _until(lambda: not _refusal(client))


@contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """A script of somebody else that does not end, and is then killed."""

    def hog() -> None:
        with server.client(socket_timeout=600) as client, suppress(RedisError):
            client.eval("while true do end", 0)

    with server.client() as client:
        running = threading.Thread(target=hog)
        running.start()
        _until(lambda: "BUSY" in _refusal(client))
        yield
        client.script_kill()
        running.join()


OUTAGES: dict[str, Outage] = {
    "killed": killed,
    "read only": read_only,
    "full": full,
    "loading": loading,
    "disk full": disk_full,
    "busy": busy,
}


def _refusal(client: Redis) -> str:
    try:
        client.set("outage", "x" * 100)
    except RedisError as error:
        return f"{type(error).__name__} {error}"
    return ""


def _until(fact: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < until, f"not within {within_s:g} s"
        time.sleep(0.02)
