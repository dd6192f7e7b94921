"""Data of another version: executions of an older one are completed, and fields of a newer one are kept.

tests/fixtures/mid-flight.json is everything in the Redis of commit 23397dc, in the middle of its work, as
kept_redis.dump() writes it. Data of commits before that one is not migrated.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.step_record import StepRecord
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.verify.verifier import Verifier
from servers.kept_redis import Kept, restore
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import PATIENCE_S

MID_FLIGHT = Path(__file__).parents[1] / "fixtures" / "mid-flight.json"
OUTCOMES = {
    "queued": 9,
    "running": 10,
    "result-unread": 11,
    "start-unread": 12,
    "signal": 2,
    "delay": 2,
    "retry": 2,
    "child": 5,
    "map": 4,
    "in-1": 6,
    "line-2": 7,
    "paused": 8,
    "complete": 1,
}


def send(world: RedisWorld, execution_id: str, **event: str) -> None:
    full = world.store.full_id(execution_id)
    world.send(world.keys.events_of(full), {"execution": full, **event})


def finish(world: RedisWorld, *coordinators: Coordinator) -> None:
    """Run until no execution is open; leases are aged, so that lost dispatches are detected."""
    until = time.monotonic() + PATIENCE_S
    while True:
        world.settle(*coordinators)
        if not any(
            world.client.zcard(world.keys.index(status))
            for status in ("pending", "in_progress", "paused", "compensating")
        ):
            return
        assert time.monotonic() < until, f"some executions do not end: {world.timers()} {world.leases()}"
        world.age_leases(60_000)


@pytest.fixture
def upgraded(world: RedisWorld) -> RedisWorld:
    restore(world.client, _due(json.loads(MID_FLIGHT.read_text())))
    return world


def _due(kept: Kept) -> Kept:
    """The same data with every timer due: the times in it are long past or far ahead."""
    for key, one in kept.items():
        if key.startswith("orchestrator:workflow:"):
            for field, text in one["content"].items():
                one["content"][field] = re.sub(r'"(wake_at_ms|not_before_ms)": ?\d+', r'"\1":1', text)
    timers = kept["orchestrator:timers"]["content"]
    for timer in timers:
        timer[1] = timer[1] if timer[0].startswith("schedule|") else "1"
    return kept


def test_executions_of_an_older_version_are_completed(upgraded: RedisWorld) -> None:
    world, one = upgraded, upgraded.coordinator("new")
    assert [str(found.finding) for found in Verifier(world.client, world.keys).verify_all().found] == []
    send(world, "signal", type="signal", name="go")
    send(world, "paused", type="control", action="unpause")

    finish(world, one)

    found = {name: world.record(name) for name in OUTCOMES}
    assert {name: record.outcome for name, record in found.items()} == {
        name: {"n": n} for name, n in OUTCOMES.items()
    }
    assert {record.status.value for record in found.values()} == {"complete"}
    assert (world.record("failed").status, world.record("compensating").status) == ("failed", "failed")
    assert world.record("compensating").compensated is True
    assert world.record("running").steps["z"].run_id == 1, "its worker was gone"
    assert [str(found.finding) for found in Verifier(world.client, world.keys).verify_all().found] == []
    assert (world.pending(), world.dead(), world.leases()) == ([], [], {})
    assert list(world.store.definitions()) == ["nightly"]


def test_an_execution_that_ended_under_an_older_version_can_be_retried(upgraded: RedisWorld) -> None:
    world, one = upgraded, upgraded.coordinator("new")

    send(world, "failed", type="control", action="retry")
    world.settle(one)

    assert world.record("failed").status == "complete"
    assert world.record("complete").labels == {"of": "old"}


def test_braces_in_the_document_of_an_older_execution_stay_text(world: RedisWorld) -> None:
    spec = document(step("a"), step("b", after="a", input={"x": "{{ input.x }}"}), name="braces")
    one, start = world.coordinator("one"), {"inputs": {"x": 5}}
    old = world.begin(one, spec, **start)
    world.client.hdel(world.keys.workflow(old), "short_references")  # as 0.1.1 has written it
    world.killed("one")

    two = world.coordinator("two")
    world.work()
    two.run_once()
    [of_old] = world.payloads()
    world.settle(two)
    world.begin(two, spec, **start)
    world.work()
    two.run_once()
    [of_new] = world.payloads()

    assert (of_old["step"], of_old["inputs"]) == ("b", {"x": "{{ input.x }}"})
    assert (of_new["step"], of_new["inputs"]) == ("b", {"x": 5})
    assert world.status(old) == "complete"


# ---- a newer version beside this one


def test_fields_of_a_newer_version_are_kept(world: RedisWorld) -> None:
    """In the hash of a record, in the JSON of a step and of an item, in a job and in an event."""
    one = world.coordinator()
    mapped = {"id": "m", "fn": "f", "map": {"over": [1]}, "input": {}, "depends_on": ["a"]}
    weid = world.begin(one, document(step("a"), mapped))
    key = world.keys.workflow(weid)
    world.client.hset(key, "colour", '"red"')
    _add(world, key, "step:a")
    [token] = world.waiting()
    [function, instance, given, options] = json.loads(str(world.client.hget(f"rq:job:{token}", "data")))
    data = [function, instance, given, {**options, "colour": "red"}]
    world.client.hset(f"rq:job:{token}", "data", json.dumps(data))

    world.work()
    for stream in world.streams()[1:]:
        entries: Any = world.client.xrange(stream)
        for _, fields in entries:
            world.send(stream, {**fields, "colour": "red"})
    world.killed("one")
    world.coordinator("two").run_once()  # its cache does not have the record
    world.killed("two")
    _add(world, key, "item:m:0")
    world.settle(world.coordinator("three"))

    assert (world.status(weid), world.dead()) == ("complete", [])
    assert world.client.hget(key, "colour") == '"red"'
    for field in ("step:a", "item:m:0"):
        kept = loads(str(world.client.hget(key, field)))
        assert (kept["status"], kept["colour"]) == ("complete", {"is": "red"}), field


def _add(world: RedisWorld, key: str, field: str) -> None:
    stored = loads(str(world.client.hget(key, field)))
    world.client.hset(key, field, json.dumps({**stored, "colour": {"is": "red"}}))


@pytest.mark.parametrize(
    "part",
    [
        {"slot": {"key": "k", "limit": 1, "token": "t", "is_held": True, "colour": "red"}},
        {"items": {"count": 2, "next": 1, "due": [], "colour": "red"}},
    ],
)
def test_parts_of_a_step_with_fields_of_a_newer_version_are_read(part: dict[str, Any]) -> None:
    stored = {"status": "in_progress", "run_id": 0, "attempt": 1, **part}

    read = StepRecord.from_dict(stored)

    [name] = part
    kept = read.as_dict()[name]
    assert {key: kept[key] for key in kept if key in part[name] and key != "due"} == {
        key: value for key, value in part[name].items() if key not in ("colour", "due")
    }
