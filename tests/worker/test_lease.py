"""The lease of one dispatch."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.worker.lease import THREAD, Lease, RedisClock
from servers.redis_server import own_redis
from worlds.waiting import PATIENCE_S, wait_until

KEY, MEMBER = "leases", "w#x|a|0|1|t"


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with connect(redis_url) as made:
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


def test_an_unavailable_redis_does_not_supersede_the_lease(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server, connect(server.url) as client:
        client.zadd(KEY, {MEMBER: 1})
        mine = lease(client)
        mine.renew()
        server.kill()
        with pytest.raises(Unavailable):
            mine.renew()
        assert mine.is_superseded is False


def test_the_clock_is_that_of_redis_and_is_read_once(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server, connect(server.url) as client:
        clock = RedisClock(client)
        before, first, after = client.time(), clock.now_ms(), client.time()
        assert _ms(before) - 1 <= first <= _ms(after) + 1
        server.kill()
        assert clock.now_ms() >= first


def _ms(time: tuple[int, int]) -> float:
    return time[0] * 1000 + time[1] / 1000


def renewers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == THREAD}


def test_losing_the_lease_stops_the_run_unless_the_work_is_done(client: Client) -> None:
    for is_done in (False, True):
        client.zadd(KEY, {MEMBER: 1})
        stopped, was_lost, others = Event(), Event(), renewers()

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
            assert was_lost.wait(PATIENCE_S)
            wait_until(lambda: not renewers() - others)  # noqa: B023
            assert stopped.is_set() is not is_done
