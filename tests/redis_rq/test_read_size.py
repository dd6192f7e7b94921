"""How many events one read takes: large ones must not fill the memory of a coordinator, nor stop it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.backend.ports import Delivery, EventRef
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.read_size import MAX_BYTES, QUIET_COUNT, ReadSize

BATCH = 200
KEYS = Keys(partitions=1)


def events(count: int, size: int) -> list[Delivery]:
    return [Delivery(EventRef("events", f"{n}-0"), n, None, {"payload": "x" * size}) for n in range(count)]


def test_the_first_read_takes_few_events_of_each_stream() -> None:
    assert ReadSize().limit(BATCH) == QUIET_COUNT
    assert ReadSize(streams=8).limit(BATCH) == QUIET_COUNT // 8


def test_reads_that_find_many_small_events_grow() -> None:
    size = ReadSize()

    counts = []
    for _ in range(6):
        counts.append(size.limit(BATCH))
        size.adapt(events(counts[-1], 10))

    assert counts == [16, 32, 64, 128, 200, 200]


def test_a_quiet_time_is_followed_by_a_small_read() -> None:
    size = ReadSize()
    size.adapt(events(BATCH, 10))

    size.adapt([])

    assert size.limit(BATCH) == QUIET_COUNT


def test_one_busy_stream_of_many_is_read_in_large_reads() -> None:
    size = ReadSize(streams=8)

    size.adapt(events(100, 10))

    assert size.limit(BATCH) == BATCH


def test_a_read_of_many_bytes_is_followed_by_a_smaller_one() -> None:
    size = ReadSize()

    size.adapt(events(16, MAX_BYTES // 4))

    assert size.limit(BATCH) == 4


@pytest.mark.parametrize("found", [1, 16, 200])
def test_a_read_takes_at_least_one_event(found: int) -> None:
    size = ReadSize()

    size.adapt(events(found, 2 * MAX_BYTES))

    assert size.limit(BATCH) == 1


def test_reads_of_large_events_recover() -> None:
    size = ReadSize()
    size.adapt(events(1, 2 * MAX_BYTES))

    for _ in range(5):
        size.adapt([])

    assert size.limit(BATCH) == QUIET_COUNT


@pytest.fixture
def log(redis_url: str, redis_client: Client) -> RedisEventLog:
    made = RedisEventLog(connect(redis_url), "one", KEYS)
    made.open()
    made.sweep()
    return made


def publish(client: Client, count: int, size: int) -> None:
    with client.pipeline() as pipe:
        for number in range(count):
            fields: dict[Any, Any] = {
                "type": "signal",
                "execution": "e",
                "name": f"n{number}",
                "payload": f'"{"x" * size}"',
            }
            pipe.xadd(KEYS.events_of("e"), fields)
        pipe.execute()


def test_two_hundred_large_events_are_read_a_few_at_a_time(log: RedisEventLog, redis_client: Client) -> None:
    publish(redis_client, 200, 400_000)

    sizes = []
    while found := log.read(BATCH, 10):
        sizes.append(sum(one.size for one in found))

    assert sum(sizes) > 200 * 400_000
    assert sizes[0] < (QUIET_COUNT + 1) * 400_000
    assert max(sizes[1:]) <= 2 * MAX_BYTES


def test_large_events_of_a_dead_coordinator_are_claimed_a_few_at_a_time(
    log: RedisEventLog, redis_client: Client
) -> None:
    publish(redis_client, 100, 400_000)
    redis_client.xreadgroup("coordinator", "dead", {KEYS.events_of("e"): ">"}, count=100)

    batches = list(log.reclaim(0, BATCH))

    assert sum(map(len, batches)) == 100
    assert len(batches[0]) <= QUIET_COUNT
    assert max(sum(one.size for one in batch) for batch in batches[1:]) <= 2 * MAX_BYTES


def test_many_small_events_are_read_in_few_reads(log: RedisEventLog, redis_client: Client) -> None:
    publish(redis_client, 1_000, 10)

    counts = []
    while found := log.read(BATCH, 10):
        counts.append(len(found))

    assert sum(counts) == 1_000
    assert len(counts) <= 9
