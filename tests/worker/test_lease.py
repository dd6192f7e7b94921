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


@pytest.mark.parametrize("score", [math.inf, 1.5], ids=["waits in its queue", "has left its queue"])
def test_the_lease_of_a_queued_dispatch_can_be_renewed(client: Client, score: float) -> None:
    client.zadd(KEY, {MEMBER: score})
    mine = lease(client)
    now = RedisClock(client).now_ms()
    assert mine.renew() is True
    assert mine.is_superseded is False
    due = client.zscore(KEY, MEMBER)
    assert due is not None
    assert now + 30_000 <= due < now + 40_000
    assert due % 1 == 0, "a fraction means that no worker has started it"


def test_renewing_a_removed_lease_fails_and_does_not_create_it(client: Client) -> None:
    mine = lease(client)
    assert mine.renew() is False
    assert mine.is_superseded is True
    assert client.exists(KEY) == 0


def test_a_renewal_in_the_same_millisecond_is_not_a_loss(client: Client) -> None:
    client.zadd(KEY, {MEMBER: 1})
    clock = RedisClock(client)
    now = clock.now_ms()
    clock.now_ms = lambda: now  # type: ignore[method-assign]
    mine = Lease(client, clock, KEY, MEMBER)
    assert [mine.renew() for _ in range(3)] == [True, True, True]


def test_a_removed_lease_is_noticed_at_the_next_renewal(client: Client) -> None:
    client.zadd(KEY, {MEMBER: 1})
    mine = lease(client)
    mine.renew()
    client.zrem(KEY, MEMBER)
    assert mine.renew() is False
    assert mine.is_superseded is True


def test_an_unavailable_redis_does_not_supersede_the_lease(client: Client, server: FakeServer) -> None:
    client.zadd(KEY, {MEMBER: 1})
    mine = lease(client)
    mine.renew()
    server.connected = False
    with pytest.raises(Unavailable):
        mine.renew()
    assert mine.is_superseded is False


def test_the_clock_is_that_of_redis_and_is_read_once(client: Client, server: FakeServer) -> None:
    clock = RedisClock(client)
    seconds, micros = client.time()
    first = clock.now_ms()
    assert abs(first - (int(seconds) * 1000 + int(micros) / 1000)) < 5_000
    server.connected = False
    assert clock.now_ms() >= first


def test_losing_the_lease_stops_the_run_unless_the_work_is_done(client: Client) -> None:
    for is_done in (False, True):
        client.zadd(KEY, {MEMBER: 1})
        stopped, was_lost = Event(), Event()

        class RecordingLease(Lease):
            def renew(self, was_lost: Event = was_lost) -> bool:
                exists = super().renew()
                if not exists:
                    was_lost.set()
                return exists

        mine = RecordingLease(client, RedisClock(client), KEY, MEMBER, on_superseded=stopped.set)
        mine.renew()
        with mine:
            if is_done:
                mine.finish()
            client.zrem(KEY, MEMBER)
            assert was_lost.wait(10)
            assert stopped.wait(0.2) is not is_done
