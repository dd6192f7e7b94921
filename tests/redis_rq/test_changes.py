"""The channel of the changes of an execution: one message per commit that is written, and for a deletion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.backend.ports import Committed
from worlds.commits import commit, creation, decision, result, written
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ONE = document(step("a"))
TWO = document(step("a"), step("b", after="a"))


@contextmanager
def subscribed(world: RedisWorld, *executions: str) -> Iterator[Any]:
    """A function that returns the executions whose changes were published since its last call."""
    with world.connect().pubsub() as channel:  # type: ignore[no-untyped-call]
        channel.subscribe(*map(world.keys.changed, executions))
        prefix = world.keys.changed("")

        def published() -> list[str]:
            channel.ping()
            found = list[str]()
            while (message := channel.get_message(timeout=30)) is not None:
                if message["type"] == "pong":  # Redis has sent everything that was published before
                    return found
                if message["type"] == "message":
                    assert message["data"] == ""
                    found.append(message["channel"].removeprefix(prefix))
            raise AssertionError("no reply to the ping")

        published()
        yield published


def test_each_written_commit_is_published(world: RedisWorld) -> None:
    one, other = creation(TWO, "x1"), creation(ONE, "x2")
    ids = [each.record.workflow_execution_id for each in (one, other)]
    with subscribed(world, *ids) as published:
        assert commit(world.store, one, other) == [Committed.YES, Committed.YES]
        assert published() == ids

        written(world.store, decision(one.record, result(one.record, "a")))
        assert published() == ids[:1]


def test_a_subscriber_reads_what_the_published_commit_has_written(world: RedisWorld) -> None:
    one = creation(ONE)
    weid = one.record.workflow_execution_id
    with world.connect().pubsub() as channel:  # type: ignore[no-untyped-call]
        channel.subscribe(world.keys.changed(weid))
        assert channel.get_message(timeout=30)["type"] == "subscribe"

        written(world.store, one)

        assert channel.get_message(timeout=30)["type"] == "message"
        assert world.client.hget(world.keys.workflow(weid), "version") == one.record.version


def test_a_rejected_commit_is_not_published(world: RedisWorld) -> None:
    record = written(world.store, creation(TWO))
    mine = world.record("x1")
    written(world.store, decision(record, result(record, "a")))
    with subscribed(world, record.workflow_execution_id) as published:
        assert commit(world.store, decision(mine, result(mine, "a"))) == [Committed.CONFLICT]

        assert published() == []


def test_the_deletion_of_an_execution_is_published(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.settle(one)
    with subscribed(world, weid) as published:
        world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "delete"})
        world.settle(one)

        assert published() == [weid]
    assert world.client.exists(world.keys.workflow(weid)) == 0


def test_the_end_of_the_retention_is_published(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE, execution_id="x1")
    world.settle(one)
    with subscribed(world, weid) as published:
        world._age(world.keys.ended, world.retention_s * 1000 + 2_000)
        one.run_once()

        assert published() == [weid]
    assert world.client.exists(world.keys.workflow(weid)) == 0


def test_an_execution_that_replaces_another_is_published_and_so_is_the_other(world: RedisWorld) -> None:
    one = world.coordinator()
    old = world.begin(one, ONE, execution_id="x1")
    world.settle(one)
    new = creation(TWO, "x1").record.workflow_execution_id
    with subscribed(world, old, new) as published:
        world.start(TWO, execution_id="x1", conflict_policy="terminate_existing")
        one.run_once()

        found = published()
    assert world.client.exists(world.keys.workflow(old)) == 0
    assert old in found
    assert new in found


def test_a_user_that_may_not_publish_commits_all_the_same(world: RedisWorld) -> None:
    world.client.acl_setuser(
        "silent", enabled=True, nopass=True, keys=["*"], reset_channels=True, categories=["+@all"]
    )
    silent = world.connect()
    silent.auth("x", "silent")
    one = creation(ONE)
    with subscribed(world, one.record.workflow_execution_id) as published:
        written(world.store_on(silent), one)

        assert published() == []
    assert world.record("x1").steps["a"].status == "in_progress"
    assert world.client.smembers(world.keys.partial) == set()
    world.client.acl_deluser("silent")
