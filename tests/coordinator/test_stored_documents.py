"""Documents that were stored before a check existed: they load, start and fire; new ones are rejected."""

from __future__ import annotations

import json

import pytest

from orchestrator.application.engine.schedules import slot_execution_id
from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec import validation
from orchestrator.application.spec.validation import check_spec, load_stored_spec
from orchestrator.application.values.document_limits import DocumentLimits
from orchestrator.redis_rq.keys import schedule_member
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import Json
from worlds.redis_world import RedisWorld

WRONG = {"var": "inputs.a"}
OLD: Json = {
    "name": "old",
    "steps": [
        {"op": "first", "input": {"x": WRONG}},
        {"op": "second", "depends_on": ["first"], "input": {"x": {"deep": {"var": "steps.nowhere.output"}}}},
    ],
    "outputs": {"x": {"var": "steps.nowhere.output.x"}, "kind": {"var": "ctx.knid"}},
}
OUTCOME = {"x": None, "kind": None}


def store_as_before(world: RedisWorld, document: Json) -> None:
    """Register a document as a release without these checks did."""
    with pytest.raises(InvalidSpec):
        check_spec(document)
    world.store.register(document["name"], load_stored_spec(document))


def test_a_document_that_was_registered_before_still_starts(world: RedisWorld) -> None:
    store_as_before(world, OLD)
    one = world.coordinator()

    started = world.begin(one, "old")
    world.settle(one)

    assert world.status(started) == "complete"
    assert world.record(started).outcome == OUTCOME


def test_an_execution_from_before_is_completed_by_a_new_coordinator(world: RedisWorld) -> None:
    store_as_before(world, OLD)
    started = world.begin(world.coordinator("one"), "old")
    world.killed("one")
    assert [payload["step"] for payload in world.payloads()] == ["first"]

    two = world.coordinator("two", world.connect())  # it has loaded nothing yet
    world.settle(two)

    assert world.moves(started, "complete") == ["first", "second"]
    assert world.record(started).outcome == OUTCOME
    assert Verifier(world.connect(), world.keys).verify_all().found == []


def test_a_child_that_was_registered_before_still_starts(world: RedisWorld) -> None:
    store_as_before(world, OLD)
    one = world.coordinator()

    started = world.begin(one, {"steps": [{"id": "child", "workflow": "old"}]})
    world.settle(one)

    assert world.status(started) == "complete"
    assert world.record(started).steps["child"].output == OUTCOME


def test_an_inline_child_of_a_stored_document_still_starts(world: RedisWorld) -> None:
    inner = {key: value for key, value in OLD.items() if key != "name"}
    store_as_before(world, {"name": "parent", "steps": [{"id": "child", "workflow": inner}]})
    one = world.coordinator()

    started = world.begin(one, "parent")
    world.settle(one)

    assert world.record(started).steps["child"].output == OUTCOME


def test_a_schedule_that_was_registered_before_still_fires(world: RedisWorld) -> None:
    store_as_before(world, OLD | {"schedule": {"cron": "0 * * * *"}})
    due_ms = world.now_ms() // 1000 * 1000
    schedule = json.loads(str(world.client.hget(world.keys.schedules, "old")))
    world.client.hset(world.keys.schedules, "old", json.dumps({**schedule, "next_ms": due_ms}))
    world.client.zadd(world.keys.timers, {schedule_member("old"): due_ms})

    world.settle(world.coordinator())

    started = world.store.full_id(slot_execution_id("old", due_ms))
    assert world.status(started) == "complete"
    assert world.dead() == []


@pytest.fixture
def lower_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this release allowed a single step per document."""
    monkeypatch.setattr(validation, "DEFAULT_LIMITS", DocumentLimits(max_steps=1))


LARGE: Json = {"name": "large", "steps": [{"op": "first"}, {"op": "second", "depends_on": ["first"]}]}


@pytest.mark.usefixtures("lower_limit")
def test_an_execution_of_a_document_beyond_the_limits_is_completed_by_a_new_coordinator(
    world: RedisWorld,
) -> None:
    store_as_before(world, LARGE)
    started = world.begin(world.coordinator("one"), "large")
    world.killed("one")

    world.settle(world.coordinator("two", world.connect()))

    assert world.moves(started, "complete") == ["first", "second"]


@pytest.mark.usefixtures("lower_limit")
def test_a_schedule_of_a_document_beyond_the_limits_still_fires(world: RedisWorld) -> None:
    store_as_before(world, LARGE | {"schedule": {"cron": "0 * * * *"}})
    due_ms = world.now_ms() // 1000 * 1000
    schedule = json.loads(str(world.client.hget(world.keys.schedules, "large")))
    world.client.hset(world.keys.schedules, "large", json.dumps({**schedule, "next_ms": due_ms}))
    world.client.zadd(world.keys.timers, {schedule_member("large"): due_ms})

    world.settle(world.coordinator())

    assert world.status(world.store.full_id(slot_execution_id("large", due_ms))) == "complete"


def test_a_new_start_with_the_same_document_is_rejected_with_all_problems(world: RedisWorld) -> None:
    one = world.coordinator()
    entry = world.start(OLD)

    one.run_once()

    reply = world.answer(entry)
    assert reply["ok"] is False
    assert [problem["code"] for problem in reply["problems"]] == [
        "unknown_root",
        "unknown_dependency",
        "unknown_dependency",
        "unknown_field",
    ]


def test_warnings_never_reject_a_start(world: RedisWorld) -> None:
    one = world.coordinator()
    document = {"inputs": {}, "steps": [{"op": "a", "when": False}], "outputs": {"x": {"var": "input.x"}}}
    assert len(check_spec(document).warnings) == 2

    started = world.begin(one, document)
    world.settle(one)

    assert world.status(started) == "complete"
