"""The lease of one dispatch, on a Redis inside this process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from threading import Event

import pytest
from fakeredis import FakeRedis, FakeServer

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client
from orchestrator.worker.lease import Lease, RedisClock

KEY, MEMBER = "leases", "w#x|a|0|1|t"


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with FakeRedis(server=server, protocol=2, decode_responses=True) as made:
        yield made


def lease(client: Client, lease_s: float = 30.0) -> Lease:
    return Lease(client, RedisClock(client), KEY, MEMBER, lease_s)


@pytest.mark.parametrize("score", [math.inf, 1.5], ids=["it waits", "it left its queue"])
def test_a_dispatch_that_is_out_can_be_taken(client: Client, score: float) -> None:
    client.zadd(KEY, {MEMBER: score})
    mine = lease(client)
    now = RedisClock(client).now_ms()
    assert mine.begin() is True
    assert mine.is_superseded is False
    due = client.zscore(KEY, MEMBER)
    assert due is not None
    assert now + 30_000 <= due < now + 40_000
    assert due % 1 == 0, "a fraction says that nobody has started it"


def test_a_dispatch_that_is_gone_cannot_be_taken_nor_brought_back(client: Client) -> None:
    mine = lease(client)
    assert mine.begin() is False
    assert mine.is_superseded is True
    assert client.exists(KEY) == 0


def test_a_beat_in_the_same_millisecond_is_not_a_loss(client: Client) -> None:
    client.zadd(KEY, {MEMBER: 1})
    clock = RedisClock(client)
    now = clock.now_ms()
    clock.now_ms = lambda: now  # type: ignore[method-assign]
    mine = Lease(client, clock, KEY, MEMBER)
    assert [mine.beat() for _ in range(3)] == [True, True, True]


def test_a_lease_that_is_taken_away_is_noticed_at_the_next_beat(client: Client) -> None:
    client.zadd(KEY, {MEMBER: 1})
    mine = lease(client)
    mine.begin()
    client.zrem(KEY, MEMBER)
    assert mine.beat() is False
    assert mine.is_superseded is True


def test_a_redis_that_is_away_is_no_answer(client: Client, server: FakeServer) -> None:
    client.zadd(KEY, {MEMBER: 1})
    mine = lease(client)
    mine.begin()
    server.connected = False
    with pytest.raises(Unavailable):
        mine.beat()
    assert mine.is_superseded is False


def test_the_clock_is_redis_own_and_asked_once(client: Client, server: FakeServer) -> None:
    clock = RedisClock(client)
    seconds, micros = client.time()
    first = clock.now_ms()
    assert abs(first - (int(seconds) * 1000 + int(micros) / 1000)) < 5_000
    server.connected = False
    assert clock.now_ms() >= first


def test_who_holds_a_lease_that_is_taken_away_is_told_unless_the_work_is_done(client: Client) -> None:
    for is_done in (False, True):
        client.zadd(KEY, {MEMBER: 1})
        told, beaten = Event(), Event()

        class Beating(Lease):
            def beat(self, beaten: Event = beaten) -> bool:
                alive = super().beat()
                if not alive:
                    beaten.set()
                return alive

        mine = Beating(client, RedisClock(client), KEY, MEMBER, on_superseded=told.set)
        mine.begin()
        with mine:
            if is_done:
                mine.finish()
            client.zrem(KEY, MEMBER)
            assert beaten.wait(10)
            assert told.wait(0.2) is not is_done
