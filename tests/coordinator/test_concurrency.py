"""Concurrency keys on Redis: never more than the limit, first come first served, every place comes back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import orchestrator.coordinator.decider
from effort import count
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import GROUP
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.families import (
    control,
    decide_all,
    executions,
    exists,
    left,
    members,
    of_type,
    serving,
    storm,
    taken,
    turns_with_a_lost_reply,
)
from worlds.redis_world import RedisWorld
from worlds.spec_executions import signal

KEY = {"var": "input.key"}


def limited(limit: int = 1, key: Any = "k", **keys: Any) -> Json:
    """A workflow of one step under a key."""
    return document(step("a", concurrency={"key": key, "limit": limit}, **keys))


def whole(limit: int = 1, key: Any = "k") -> Json:
    """A workflow that is under a key itself."""
    return document(step("a"), concurrency={"key": key, "limit": limit})


def begin(world: RedisWorld, one: Coordinator, spec: Json, *names: str, **start: Any) -> list[str]:
    """Start executions in this order; those that get a place know of it."""
    found = [world.begin(one, spec, execution_id=name, **start) for name in names]
    decide_all(world, one)
    return found


def running(world: RedisWorld) -> list[str]:
    """The executions whose jobs wait to be run."""
    return [payload["execution"].partition("#")[2] for payload in world.payloads()]


def names_of(places: Sequence[str]) -> list[str]:
    return [place.split("|")[2].partition("#")[2] for place in places]


# ---- what a place is


def test_a_key_is_shared_by_steps_and_workflows_of_any_document(world: RedisWorld) -> None:
    [one] = serving(world)
    for n, spec in enumerate((limited(1), whole(1), limited(1, key={"cat": ["", "k"]}))):
        world.begin(one, spec, execution_id=f"x{n}")
    decide_all(world, one)

    assert running(world) == ["x0"]
    world.settle(one)
    assert left(world) == {}


def test_a_larger_limit_further_back_in_line_does_not_overtake(world: RedisWorld) -> None:
    [one] = serving(world)
    begin(world, one, limited(1), "x0", "x1")
    begin(world, one, limited(3), "x2")

    assert running(world) == ["x0"]
    world.work(most=1)
    decide_all(world, one)
    assert sorted(running(world)) == ["x1", "x2"], "x1 has the only place of its limit, and x2 one of three"
    world.settle(one)
    assert left(world) == {}


@pytest.mark.parametrize("spec", [limited(1), whole(1)], ids=["step", "workflow"])
def test_a_place_that_redis_has_forgotten_to_give_is_not_taken(world: RedisWorld, spec: Json) -> None:
    """A coordinator has read a grant; then Redis is rolled back to when another execution had the slot."""
    [one] = serving(world)
    begin(world, one, spec, "x0", "x1")
    [_, _, waiting, step_id, token] = members(world, "line")["k"][0].split("|")
    fields = {"type": "slot", "execution": waiting, "step": step_id, "token": token}
    entry = world.send(world.keys.events_of(waiting), fields)
    read = one._log.read(10, 0)
    world.client.xack(world.keys.events_of(waiting), GROUP, entry)
    world.client.xdel(world.keys.events_of(waiting), entry)

    one.handle(read)

    assert [delivery.ref.entry_id for delivery in read] == [entry]
    assert running(world) == ["x0"]
    assert names_of(members(world, "held")["k"]) == ["x0"]
    world.settle(one)
    assert left(world) == {}


ODD = ["a b", "a|b", "#:*?[]", "\n\t\r", "ключ 🔑", "{x}", "k" * 256, "0", "rq:queue:x"]


@pytest.mark.parametrize("key", ODD)
def test_a_key_may_have_any_characters(world: RedisWorld, key: str) -> None:
    [one] = serving(world)
    begin(world, one, limited(1, KEY), "x0", "x1", inputs={"key": key})

    assert (len(members(world, "held")[key]), len(members(world, "line")[key])) == (1, 1)
    world.settle(one)
    assert {world.record(name).status for name in executions(world)} == {"complete"}
    assert left(world) == {}


@pytest.mark.parametrize(
    "key", ["", "k" * 257, "k" * 1_000_000, None, True, ["k"], {"k": 1}], ids=lambda key: str(key)[:20]
)
@pytest.mark.parametrize("spec", [limited(1, KEY), whole(1, KEY)], ids=["step", "workflow"])
def test_what_is_no_key_fails_its_execution_and_takes_no_place(
    world: RedisWorld, spec: Json, key: Any
) -> None:
    [one] = serving(world)
    [weid] = begin(world, one, spec, "x0", inputs={"key": key})
    world.settle(one)

    record = world.record(weid)
    assert record.error is not None
    assert (record.status, record.error["kind"]) == ("failed", "expression")
    assert "concurrency.key" in record.error["message"]
    assert len(record.error["message"]) < 1_000
    assert left(world) == {}


def test_a_document_whose_key_has_ten_megabytes_is_refused(world: RedisWorld) -> None:
    [one] = serving(world)
    entry = world.start(limited(1, "k" * 10_000_000), execution_id="x0")

    world.settle(one)

    assert world.answer(entry)["ok"] is False
    assert executions(world) == []
    assert list(left(world)) == ["dead"]


def test_half_a_character_in_a_key_harms_no_other_execution(world: RedisWorld) -> None:
    """An expression can make of a text what no text may be."""
    [one] = serving(world)
    key = {"json.parse": [{"var": "input.key"}]}
    good = world.start(limited(1, key), {"key": '"k"'}, "good")
    bad = world.start(limited(1, key), {"key": '"\\ud800"'}, "bad")

    world.settle(one)

    assert world.answer(good)["ok"] is True
    assert world.record("good").status == "complete"
    if world.answer(bad)["ok"]:
        assert world.record("bad").status == "failed"
    assert left(world).keys() <= {"dead"}


# ---- when a place comes back


def test_places_of_a_workflow_are_kept_while_it_compensates(world: RedisWorld) -> None:
    [one] = serving(world)
    spec = document(
        step("a", compensate={"fn": "undo"}), step("b", after="a"), concurrency={"key": "k", "limit": 1}
    )
    begin(world, one, spec, "x0", "x1")
    world.work(most=1)
    decide_all(world, one)
    control(world, "x0", "cancel")
    decide_all(world, one)
    assert world.record("x0").status == "compensating"
    assert names_of(members(world, "held")["k"]) == ["x0"]

    world.settle(one)

    assert world.record("x0").compensated is True
    assert world.record("x1").status == "complete"
    assert left(world) == {}


# ---- out of order


def test_a_slot_that_is_granted_to_a_cancelled_execution_goes_to_the_next(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    begin(world, one, limited(1), "x0", "x1", "x2")
    world.work(most=1)
    one.handle(taken(world))
    [grant] = of_type(taken(world), "slot")
    assert grant.fields["execution"].endswith("#x1")
    control(world, "x1", "cancel")
    two.handle(taken(world))
    assert names_of(members(world, "held")["k"]) == ["x2"]

    one.handle([grant])
    decide_all(world, one)

    assert world.record("x1").status == "cancelled"
    assert running(world) == ["x2"]
    assert world.counter("stale") + world.counter("late") == 1
    world.settle(one, two)
    assert left(world) == {}


@pytest.mark.parametrize("spec", [limited(1), whole(1)], ids=["step", "workflow"])
def test_a_grant_that_two_coordinators_hold_dispatches_once(world: RedisWorld, spec: Json) -> None:
    one, two = serving(world, "one", "two")
    world.begin(one, spec, execution_id="x0")
    [grant] = of_type(taken(world), "slot")

    two.handle([grant])
    one.handle([grant])
    world.send(grant.ref.stream, grant.fields)
    decide_all(world, two)

    assert running(world) == ["x0"]
    assert world.moves("x0", "in_progress") == ["a"]
    world.settle(one, two)
    assert left(world) == {}


def test_a_grant_whose_coordinator_died_is_taken_over(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    world.begin(one, limited(1), execution_id="x0")
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert world.record("x0").status == "complete"
    assert left(world) == {}


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_commit_whose_reply_is_lost_neither_keeps_a_place_nor_takes_two(
    world: RedisWorld, proxy: Proxy, proxied: Client, nth: int
) -> None:
    one = world.coordinator("one", proxied)
    for n in range(3):
        world.start(limited(1), execution_id=f"x{n}")

    def work() -> None:
        assert len(members(world, "held").get("k", [])) <= 1
        world.work(most=1)

    dropped = turns_with_a_lost_reply(proxy, one, nth, work)
    world.settle(one)

    assert dropped == 1
    assert [world.moves(f"x{n}", "complete") for n in range(3)] == [["a"]] * 3
    assert left(world) == {}


def test_a_grant_that_kills_its_coordinators_fails_its_execution_and_the_place_goes_on(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(record: WorkflowRecord, events: list[Any], *others: Any) -> Any:
        if record.execution_id == "x0" and events:
            raise SystemExit("as if by the out-of-memory killer")
        return decide(record, events, *others)

    [one] = serving(world)
    for name in ("x0", "x1"):
        world.start(limited(1), execution_id=name)
    one.run_once()  # the grant is in the stream
    monkeypatch.setattr(orchestrator.coordinator.decider, "decide", killed)
    for _ in range(8):
        try:
            world.coordinator("one").run_once()
        except SystemExit:
            world.age_pending(5_000, reader="one")
    world.settle(world.coordinator("one"))

    assert [world.record(name).status for name in ("x0", "x1")] == ["failed", "complete"]
    assert list(left(world)) == ["dead"]


# ---- forged, and things that others put there


@pytest.mark.parametrize(
    "fields",
    [
        {"step": "a", "token": "guess-0"},
        {"step": "missing", "token": "guess-0"},
        {"step": "", "token": "guess-0"},
        {"step": "a#0", "token": "guess-0"},
        {"step": "a#undo", "token": "guess-0"},
    ],
    ids=lambda fields: fields["step"] or "none",
)
def test_a_forged_grant_has_no_effect(world: RedisWorld, fields: dict[str, str]) -> None:
    [one] = serving(world)
    _, second = begin(world, one, limited(1), "x0", "x1")
    world.send(world.keys.events(2), {"type": "slot", "execution": second, **fields})
    decide_all(world, one)

    assert running(world) == ["x0"]
    assert world.counter("stale") == 1
    world.settle(one)
    assert left(world) == {}


@pytest.mark.parametrize(
    "fields", [{"execution": "w#missing", "token": "t"}, {"execution": "w#x"}, {"token": "t"}]
)
def test_a_grant_for_a_missing_execution_is_a_dead_letter(world: RedisWorld, fields: dict[str, str]) -> None:
    [one] = serving(world)
    world.send(world.keys.events(2), {"type": "slot", "step": "a", **fields})
    world.settle(one)

    assert len(world.dead()) == 1
    assert list(left(world)) == ["dead"]


@pytest.mark.parametrize("member", ["", "x", "1|2", "many|s|w#x|a|t"])
def test_a_stranger_in_line_is_shown_out(world: RedisWorld, member: str) -> None:
    [one] = serving(world)
    world.client.zadd(world.keys.slot_waiters("k"), {member: 0})
    begin(world, one, limited(1), "x0", "x1")

    assert running(world) == ["x0"]
    world.settle(one)
    assert {world.record(name).status for name in ("x0", "x1")} == {"complete"}
    assert left(world) == {}


def test_the_order_of_a_line_does_not_hang_on_the_counters(world: RedisWorld) -> None:
    """An operator may well set the counters back."""
    [one] = serving(world)
    begin(world, one, limited(1), "x0", "x1", "x2")
    world.client.delete(world.keys.counters)
    begin(world, one, limited(1), "x3")

    assert names_of(members(world, "line")["k"]) == ["x1", "x2", "x3"]
    world.settle(one)
    assert left(world) == {}


# ---- everything at once


@pytest.mark.parametrize("seed", range(count(2, 6)))
def test_places_in_a_storm(world: RedisWorld, seed: int) -> None:
    """Two limits and a whole workflow under one of them; some fail, some are cancelled, some retry."""
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    spec = document(
        step("a", concurrency={"key": "k", "limit": 2}, max_attempts=3),
        step("b", concurrency={"key": "j", "limit": 1}, on_error="continue"),
        step("c", "a b", concurrency={"key": "k", "limit": 2}),
    )
    under = document(step("a"), {"id": "w", "wait": {"signal": "go"}}, concurrency={"key": "j", "limit": 1})
    names = [f"x{n}" for n in range(8)]
    for n, name in enumerate(names):
        world.start(under if n % 4 == 3 else spec, execution_id=name)
    most = {"k": 2, "j": 1}

    def unlucky(inputs: Json) -> Json:
        if chance.random() < 0.3:
            raise ValueError("bad luck")
        return inputs

    def over() -> bool:
        for kind, limit in most.items():
            assert len(members(world, "held").get(kind, [])) <= limit
        at_work: dict[str, int] = {}
        for name in filter(lambda name: exists(world, name), names):
            record = world.record(name)
            for step_id, one in record.steps.items():
                concurrency = record.spec.steps[record.graph.index[step_id]].concurrency
                if concurrency is not None and one.token is not None:
                    at_work[concurrency.key] = at_work.get(concurrency.key, 0) + 1
            if not record.is_final and chance.random() < 0.02:
                control(world, name, "cancel", stream=world.keys.events(chance.randrange(8)))
            elif chance.random() < 0.2:
                signal(world, name, "go")
        assert all(at_work.get(key, 0) <= limit for key, limit in most.items()), at_work
        return len(executions(world)) == len(names) and all(
            world.record(name).is_final for name in executions(world)
        )

    storm(world, coordinators, chance, over, {"a": unlucky, "b": unlucky, "c": unlucky})

    for name in names:
        completed = world.moves(name, "complete")
        assert len(completed) == len(set(completed))
    assert all("cannot be cancelled" in letter["reason"] for letter in world.dead())
    assert left(world).keys() <= {"dead"}
