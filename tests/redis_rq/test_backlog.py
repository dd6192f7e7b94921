"""Back-pressure: too many starts are rejected. test_held_starts.py tests the limit of each queue."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import Busy
from orchestrator.client import Client, client
from orchestrator.redis_rq import backlog
from orchestrator.redis_rq.backlog import count_waiting_starts
from processes import PatientClient
from servers.redis_server import require_redis_version
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ONE = document(step("a"))
UNREAD = "older servers do not know how many entries of a stream are unread"


@pytest.fixture(autouse=True)
def _always_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "CHECK_INTERVAL_S", 0.0)


def producer(world: RedisWorld, most: int) -> Client:
    return PatientClient(world.connect(), world.keys, max_backlog=most)


# ---- too many starts


def test_a_start_beyond_the_limit_is_rejected_and_not_sent(world: RedisWorld) -> None:
    starting = producer(world, 3)
    for _ in range(3):
        starting.send_start(ONE, {})

    with pytest.raises(Busy, match="3 starts wait for coordinators, and the limit is 3"):
        starting.start(ONE)

    assert world.client.xlen(world.keys.starts) == 3


def test_the_error_lists_the_starts_that_were_sent(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "START_BATCH_SIZE", 2)

    with pytest.raises(Busy, match="4 were sent") as raised:
        producer(world, 3).start_many([ONE] * 9, [{}] * 9)

    entries: Any = world.client.xrange(world.keys.starts)
    assert list(raised.value.sent) == [entry_id for entry_id, _ in entries]


def test_starts_with_a_reply_do_not_count(world: RedisWorld) -> None:
    require_redis_version((7, 0), UNREAD)
    starting, one = producer(world, 3), world.coordinator(trim_every_s=3600)
    for _ in range(5):
        for _ in range(2):
            starting.send_start(ONE, {})
        one.run_once()

    assert count_waiting_starts(world.client, world.keys) == 0
    assert world.client.xlen(world.keys.starts) == 10, "they are trimmed later"


def test_starts_that_a_coordinator_has_read_count_until_they_have_a_reply(world: RedisWorld) -> None:
    log = world.log("one")
    log.open()
    for _ in range(3):
        world.start(ONE)
    log.read(2, 0)

    assert count_waiting_starts(world.client, world.keys) == 3


def test_the_limit_is_checked_once_a_second(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "CHECK_INTERVAL_S", 60.0)
    starting = producer(world, 2)

    for _ in range(5):
        starting.send_start(ONE, {})

    assert world.client.xlen(world.keys.starts) == 5
