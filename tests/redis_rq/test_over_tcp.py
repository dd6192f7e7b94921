"""Workers whose Redis is across a network: a client there has options that one on a socket has not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestrator.redis_rq.connection import connect, connect_like
from orchestrator.redis_rq.keys import Keys
from processes import stack, wait_until
from servers.redis_server import RedisServer
from system.test_every_hop import WORKERS, execution, start
from torture.proxy import Proxy

KEYS = Keys()
URLS = ("redis://localhost:1/2", "unix:///nowhere.sock?db=2", "rediss://user:word@localhost:1/2")
MAKERS: dict[str, Callable[[str], redis.Redis]] = {
    "as RQ does": redis.Redis.from_url,
    "with announcements": lambda url: redis.Redis.from_url(url, protocol=3),
    "as we do": connect,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("url", URLS)
def test_a_client_like_any_other_goes_to_the_same_place_and_repeats_nothing(url: str, make: Any) -> None:
    other = make(url)

    ours = connect_like(other).connection_pool

    places = ("host", "port", "path", "db", "username", "password")
    theirs = other.connection_pool.connection_kwargs
    assert [ours.connection_kwargs.get(name) for name in places] == [theirs.get(name) for name in places]
    assert ours.connection_class is other.connection_pool.connection_class
    assert calls_until_it_fails(ours.connection_kwargs["retry"]) == 1
    assert ours.connection_kwargs["protocol"] == 2


def calls_until_it_fails(retry: Any) -> int:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise redis.ConnectionError

    with pytest.raises(redis.ConnectionError):
        retry.call_with_retry(fail, lambda error: None)
    return len(calls)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_runs_steps_over_tcp(
    worker: str, redis_server: RedisServer, redis_url: str, tmp_path: Path
) -> None:
    client = connect(redis_url)
    with (
        Proxy(redis_server.socket) as proxy,
        stack(proxy.line("all").url, "step_functions", tmp_path) as world,
    ):
        world.coordinator()
        WORKERS[worker](world)
        start(client)

        wait_until(lambda: client.zscore(KEYS.index("complete"), execution(client)), what=world.log())
        assert client.hget(KEYS.counters, "lost") is None, world.log()
    client.close()
