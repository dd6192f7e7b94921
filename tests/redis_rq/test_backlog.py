"""Back-pressure: too many starts are rejected, and running executions are not held up."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import Busy
from orchestrator.client import Client, client
from orchestrator.diagnosis import run_checks, why
from orchestrator.redis_rq import backlog
from orchestrator.redis_rq.backlog import count_waiting_starts
from processes import PatientClient
from servers.redis_server import require_redis_version
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ONE = document(step("a"))
PARENT = document(step("a"), {"id": "kid", "workflow": ONE, "depends_on": ["a"]})
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


# ---- too many jobs


def full_world(world: RedisWorld) -> RedisWorld:
    world.max_queued = 2
    return world


def test_no_execution_starts_while_too_many_jobs_wait(world: RedisWorld) -> None:
    require_redis_version((7, 0), UNREAD)
    one = full_world(world).coordinator(batch=1)
    entries = [world.start(ONE) for _ in range(4)]

    for _ in range(10):
        one.run_once()

    assert len(world.waiting()) == 2
    assert count_waiting_starts(world.client, world.keys) == 2
    world.settle(one)
    assert all(world.answer(entry)["ok"] for entry in entries)
    assert world.client.zcard(world.keys.index("complete")) == 4


def test_running_executions_continue_while_no_execution_starts(world: RedisWorld) -> None:
    """Results are accepted, and children are started."""
    one = full_world(world).coordinator()
    parent = world.begin(one, PARENT)
    [payload] = world.payloads()
    world.work()
    world.client.rpush(world.keys.rq_queue(world.keys.queue("default")), "x", "y")
    late = world.start(ONE)

    for _ in range(5):
        one.run_once()

    assert world.record(parent).steps["a"].status == "complete"
    assert payload["step"] == "a"
    assert world.record(parent.partition("#")[2] + ":kid:0").steps["a"].status == "in_progress"
    assert not world.client.exists(world.keys.reply(late))


def test_a_coordinator_without_any_stream_waits(world: RedisWorld) -> None:
    world.max_queued = 1
    world.begin(world.coordinator("a"), ONE)
    logs = [world.log(f"c{n}") for n in range(world.keys.partitions + 1)]
    for log in logs * 2:
        log.sweep()

    assert [log.read(10, 1) for log in logs] == [[]] * len(logs)


def test_why_and_doctor_report_full_queues(world: RedisWorld) -> None:
    world = full_world(world)
    one = world.coordinator(batch=1)
    for n in range(3):
        world.start(ONE, execution_id=f"x{n}")
    for _ in range(5):
        one.run_once()

    found = why(world.client, world.keys, "x2")

    [full] = [reason for reason in found.reasons if reason.code == "full"]
    assert full.words.startswith("coordinators accept no starts: 2 of 2 jobs wait for workers")
    assert full.advice == "start more workers: orchestrator worker default"
    [queues] = [check for check in run_checks(world.client, world.keys) if check.name == "queues"]
    assert (queues.level, queues.advice) == ("problem", "start more workers: orchestrator worker default")
    world.settle(one)
    assert not [check for check in run_checks(world.client, world.keys) if "accept no starts" in check.found]
