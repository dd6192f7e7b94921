"""Retry, rerun and delete on Redis: what is opened again is kept, what is deleted is gone, once."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from effort import count
from orchestrator.application.spec.validation import check_spec
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from orchestrator.settings import RETENTION_MARGIN_S
from servers.proxy import Proxy
from servers.redis_contents import snapshot
from worlds.documents import Json, document, step
from worlds.families import (
    control,
    executions,
    exists,
    left,
    serving,
    storm,
    taken,
    turns_with_a_lost_reply,
)
from worlds.redis_world import RedisWorld, result_fields

SCOPES = {"scopes": ["flow", "global", "flow_group"]}
SHARING = document(
    step("a", kv_add={"global:seen": 1, "flow_group:seen": 1}), step("b", after="a"), kv=SCOPES, name="shares"
)
STATUSES = ("pending", "in_progress", "paused", "compensating", "complete", "halted", "failed", "cancelled")
BEGIN = {"group": "g", "labels": '{"k": "v"}', "idempotency_root": "r"}


def boom(inputs: Json, log: Any) -> Json:
    log("about to fail")
    raise ValueError("as asked")


def failed(world: RedisWorld, one: Coordinator, spec: Json = SHARING, name: str = "x", **start: str) -> str:
    """An execution whose `b` has failed."""
    weid = world.begin(one, spec, execution_id=name, **{**BEGIN, **start})
    world.settle(one, executors={"b": boom})
    assert world.status(weid) == "failed"
    return weid


def told(world: RedisWorld, one: Coordinator, action: str, step_id: str = "", name: str = "x") -> Json:
    """Tell an execution something, and what it answers."""
    reply = f"{action}-{random.randrange(10**9)}"
    control(world, name, action, step_id, reply=reply)
    one.run_once()
    return world.answer(reply)


def kept_keys(world: RedisWorld, weid: str) -> list[str]:
    """What an execution needs as long as it is open."""
    keys, execution_id = world.keys, weid.partition("#")[2]
    own = [keys.workflow(weid), keys.history(weid), keys.step_log(weid), keys.execution(execution_id)]
    shared = [keys.shared("global", execution_id), keys.shared("flow_group", "g")]
    return [*own, keys.spec(weid.partition("#")[0]), *shared]


def terms(world: RedisWorld, weid: str) -> set[int]:
    return {int(world.client.ttl(key)) for key in kept_keys(world, weid)}


def counted(world: RedisWorld, weid: str) -> tuple[Any, Any]:
    """How many executions are open, by spec and by group."""
    spec = world.keys.spec(weid.partition("#")[0])
    return world.client.hget(spec, "executions"), world.client.hget(world.keys.groups, "g")


def listed(world: RedisWorld, weid: str) -> list[str]:
    """Every index that an execution stands in, but for those of its name, group and labels."""
    found = [status for status in STATUSES if world.client.zscore(world.keys.index(status), weid) is not None]
    lasting = [
        world.keys.index_of_name("shares"),
        world.keys.index_of_group("g"),
        world.keys.index_of_label("k", "v"),
    ]
    assert {world.client.zscore(key, weid) is not None for key in lasting} == {True}
    ended = [str(one).partition("|")[0] for one in world.client.zrange(world.keys.ended, 0, -1)]
    return found + (["ended"] if weid in ended else [])


# ---- what is opened again is kept


def test_what_is_retried_has_no_term_until_it_ends_again(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = failed(world, one)
    assert (counted(world, weid), listed(world, weid)) == (("0", None), ["failed", "ended"])
    assert min(terms(world, weid)) == -1, "its own keys"
    assert max(terms(world, weid)) > 0, "what others may share with it"
    scores = world.client.zscore(world.keys.index("failed"), weid)

    assert told(world, one, "retry") == {"ok": True, "changed": True, "status": "in_progress"}

    assert terms(world, weid) == {-1}
    assert (counted(world, weid), listed(world, weid)) == (("1", "1"), ["in_progress"])
    assert world.client.zscore(world.keys.index("in_progress"), weid) == scores, "by its beginning"
    assert not world.client.hexists(world.keys.workflow(weid), "ended_at")
    world.settle(one)
    assert (world.status(weid), counted(world, weid)) == ("complete", ("0", None))
    assert listed(world, weid) == ["complete", "ended"]
    assert 0 < max(terms(world, weid)) <= world.retention_s + RETENTION_MARGIN_S
    assert world.moves(weid, "complete") == ["a", "b"]
    assert left(world) == {}


def test_what_ends_in_the_very_commit_of_its_retry_gets_new_terms_and_counts_once(world: RedisWorld) -> None:
    [one] = serving(world)
    broken = {**SHARING, "outputs": {"n": {"+": ["no number", 1]}}}
    weid = world.begin(one, broken, execution_id="x", **BEGIN)
    world.settle(one, executors={"b": lambda inputs, log: log("hello")})
    assert (world.status(weid), counted(world, weid)) == ("failed", ("0", None))
    expiring = [key for key in kept_keys(world, weid) if world.client.ttl(key) > 0]
    assert expiring
    for key in expiring:
        world.client.expire(key, 30)

    assert told(world, one, "retry") == {"ok": True, "changed": True, "status": "failed"}

    assert (counted(world, weid), listed(world, weid)) == (("0", None), ["failed", "ended"])
    found = terms(world, weid)
    assert found == {-1, *(term for term in found if term > world.retention_s - 3_600)}
    assert left(world) == {}


@pytest.mark.parametrize("events", [["retry", "cancel"], ["retry", "cancel", "retry"], ["cancel", "retry"]])
def test_whatever_comes_in_one_batch_open_executions_are_counted_right(
    world: RedisWorld, events: list[str]
) -> None:
    [one] = serving(world)
    weid = failed(world, one)
    stream = world.keys.events_of(weid)
    for action in events:
        control(world, weid, action, stream=stream)

    one.run_once()

    is_open = events[-1] == "retry"
    assert world.record(weid).is_final != is_open
    assert counted(world, weid) == (("1", "1") if is_open else ("0", None))
    assert (terms(world, weid) == {-1}) == is_open
    world.settle(one)
    assert counted(world, weid) == ("0", None)
    assert left(world).keys() <= {"dead"}


def test_the_values_of_a_group_stay_as_long_as_one_of_it_is_open(world: RedisWorld) -> None:
    [one] = serving(world)
    first, second = failed(world, one), failed(world, one, name="y", idempotency_root="r2")
    values = world.keys.shared("flow_group", "g")
    told(world, one, "retry", name="x")
    told(world, one, "retry", name="y")
    assert counted(world, first) == ("2", "2")

    control(world, first, "cancel")
    one.run_once()
    assert (world.client.ttl(values), counted(world, second)) == (-1, ("1", "1"))
    world.settle(one)

    assert world.client.ttl(values) > 0


def test_a_registered_spec_stays_whatever_becomes_of_its_executions(world: RedisWorld) -> None:
    [one] = serving(world)
    world.store.register("shares", world.store.spec(failed(world, one).partition("#")[0]))
    weid = world.record("x").workflow_execution_id

    told(world, one, "retry")
    world.settle(one)

    assert world.client.ttl(world.keys.spec(weid.partition("#")[0])) == -1


def test_after_a_retry_values_and_state_are_what_they_were(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = failed(world, one)
    state = world.record(weid).state

    told(world, one, "retry")

    assert world.record(weid).state == state
    assert world.client.hgetall(world.keys.shared("global", "x")) == {"seen": "1"}
    world.settle(one)
    assert world.client.hgetall(world.keys.shared("flow_group", "g")) == {"seen": "1"}, "a did not run again"


def test_a_late_result_of_the_old_run_is_stale(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(one, document(step("a"), step("b")), execution_id="x")
    running = world.pop()
    assert running is not None
    control(world, weid, "cancel")
    one.run_once()

    control(world, weid, "retry")
    world.send(running["events"], result_fields(running, {"late": True}))
    one.run_once()

    assert world.counter("stale") == 1
    assert world.record(weid).state == {}
    world.settle(one)
    assert world.status(weid) == "complete"
    assert left(world) == {}


def test_of_a_map_the_rest_runs_under_the_same_idempotency_keys(world: RedisWorld) -> None:
    [one] = serving(world)
    fan = {"id": "m", "fn": "m", "map": {"over": [1, 2, 3]}, "input": {"v": {"var": "item"}}}
    weid = world.begin(one, document(fan), execution_id="x")

    def picky(inputs: Json, log: Any) -> Json:
        return boom(inputs, log) if inputs["v"] == 2 else inputs

    before = {payload["step"]: payload["key"] for payload in world.payloads()}
    world.settle(one, executors={"m": picky})
    assert world.status(weid) == "failed"
    told(world, one, "retry")

    [again] = world.payloads()
    assert (again["step"], again["key"]) == ("m#1", before["m#1"])
    world.settle(one)
    assert world.record(weid).steps["m"].output == {
        "items": [{"v": 1}, {"v": 2}, {"v": 3}],
        "count": 3,
        "errors": 0,
    }


# ---- once


def test_a_retry_that_two_coordinators_hold_counts_once(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    weid = failed(world, one)
    control(world, weid, "retry", reply="r1")
    deliveries = taken(world)

    one.handle(deliveries)
    two.handle(deliveries)
    world.settle(one, two)

    assert world.moves(weid, "ready").count("b") == 1
    assert world.answer("r1")["ok"]
    assert left(world) == {}


@pytest.mark.parametrize("action", ["retry", "rerun", "delete"])
def test_a_control_whose_coordinator_died_before_its_commit_is_followed_by_another(
    world: RedisWorld, action: str
) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    weid = failed(world, one)
    control(world, weid, action, "a", reply="r1")
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert world.answer("r1")["ok"]
    assert exists(world, "x") == (action != "delete")
    assert left(world) == {}


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("action", ["retry", "delete"])
def test_a_reply_that_is_lost_makes_one_effect_and_one_answer(
    world: RedisWorld, proxy: Proxy, proxied: Client, action: str, nth: int
) -> None:
    [other] = serving(world, "other")
    weid = failed(world, other)
    world.killed("other")
    one = world.coordinator("one", proxied)
    control(world, weid, action, reply="r1")

    dropped = turns_with_a_lost_reply(proxy, one, nth, world.work)

    assert dropped <= 1
    assert world.answer("r1")["ok"]
    if action == "retry":
        assert world.moves(weid, "ready").count("b") == 1
        assert (world.status(weid), counted(world, weid)) == ("complete", ("0", None))
    else:
        assert not world.client.exists(world.keys.workflow(weid))
    assert left(world) == {}


# ---- what is deleted is gone


def naming(world: RedisWorld, execution_id: str) -> dict[str, Any]:
    """Every key that names an execution or holds something that does, but for the streams of what was said
    and the answers to it."""
    spoken = (world.keys.starts, world.keys.events(0)[:-1], world.keys.reply(""), world.keys.dead_letters)
    return {
        key: content
        for key, content in snapshot(world.client, *spoken).items()
        if f"#{execution_id}" in f"{key} {content}" or key.endswith(f":{execution_id}")
    }


@pytest.mark.parametrize("how", ["complete", "failed", "cancelled", "halted"])
def test_of_what_was_deleted_no_key_is_left(world: RedisWorld, how: str) -> None:
    [one] = serving(world)
    halts = [{"condition": {"var": "halt"}, "action": "halt"}]
    spec = document(
        step("a", kv_add={"global:seen": 1}, concurrency={"key": "k", "limit": 1}),
        {"id": "w", "wait": {"signal": "go", "timeout": "1h"}, "branch": halts, "depends_on": ["a"]},
        step("b", after="a"),
        kv=SCOPES,
        name="shares",
        timeout="1h",
        concurrency={"key": "all", "limit": 2},
    )
    weid = world.begin(one, spec, execution_id="x", **BEGIN)
    stay = world.begin(one, spec, execution_id="stays", **{**BEGIN, "idempotency_root": "other"})
    world.settle(one, executors={"b": boom} if how == "failed" else None)
    if how == "cancelled":
        control(world, "x", "cancel")
    elif how != "failed":
        signal = {"type": "signal", "execution": "x", "name": "go", "payload": json.dumps({"halt": True})}
        world.send(world.keys.events_of(weid), signal if how == "halted" else {**signal, "payload": "{}"})
    world.settle(one)
    assert world.status(weid) == how
    assert naming(world, "x")

    assert told(world, one, "delete") == {"ok": True, "changed": True, "status": "deleted"}

    assert naming(world, "x") == {}
    assert world.client.get(world.keys.idempotency("r")) is None
    assert world.client.get(world.keys.idempotency("other")) == stay
    assert world.record(stay).execution_id == "stays"
    assert world.client.hexists(world.keys.spec(weid.partition("#")[0]), "document")


def test_what_was_deleted_is_not_there_to_be_told_anything(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = failed(world, one)
    told(world, one, "delete")

    for name in ("x", weid):
        for action in ("delete", "retry", "cancel"):
            answer = told(world, one, action, name=name)
            assert not answer["ok"]
            assert "no execution has the id" in answer["reason"]

    assert world.dead() == [], "whoever asked has been answered"
    assert left(world) == {}


@pytest.mark.parametrize("spec", [SHARING, document(step("other"), name="other")], ids=["same", "other"])
def test_the_id_and_the_root_of_what_was_deleted_can_be_had_again(world: RedisWorld, spec: Json) -> None:
    one, two = serving(world, "one", "two")
    weid = failed(world, one)
    told(world, one, "delete")

    new = world.begin(two, spec, execution_id="x", **BEGIN)
    world.settle(one, two)

    record = world.record("x")
    assert (record.status, record.workflow_execution_id) == ("complete", new)
    assert (new == weid) == (spec is SHARING)
    assert world.client.get(world.keys.idempotency("r")) == new
    expected = {"seen": "1"} if spec is SHARING else {}
    assert world.client.hgetall(world.keys.shared("global", "x")) == expected
    assert left(world) == {}


def test_a_cancel_and_a_delete_in_one_batch_leave_nothing_and_count_nothing(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(one, SHARING, execution_id="x", **BEGIN)
    control(world, weid, "cancel")
    control(world, weid, "delete")
    world.settle(one)

    assert naming(world, "x") == {}
    assert counted(world, weid) == ("0", None)
    assert world.client.ttl(world.keys.spec(weid.partition("#")[0])) > 0
    assert left(world) == {}


def test_a_retry_a_cancel_and_a_delete_in_one_batch_count_nothing_either(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = failed(world, one)
    for action in ("retry", "cancel", "delete"):
        control(world, weid, action)
    one.run_once()

    assert naming(world, "x") == {}
    assert counted(world, weid) == ("0", None)
    assert world.client.ttl(world.keys.spec(weid.partition("#")[0])) > 0


def test_a_late_result_of_what_was_deleted_changes_nothing(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = world.begin(one, document(step("a")), execution_id="x")
    running = world.pop()
    assert running is not None
    control(world, weid, "cancel")
    one.run_once()
    told(world, one, "delete")

    world.send(running["events"], result_fields(running, {"late": True}))
    world.settle(one)

    assert executions(world) == []
    assert world.pending() == []


# ---- everything at once


@pytest.mark.parametrize("seed", range(count(2, 4)))
def test_redrives_in_a_storm_leave_nothing_behind(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    child = document(step("work"), kv=SCOPES)
    spec = document(
        step("a", concurrency={"key": "k", "limit": 2}),
        {"id": "kid", "workflow": child, "depends_on": ["a"]},
        {"id": "m", "fn": "m", "map": {"over": [1, 2, 3]}, "depends_on": ["a"]},
        step("b", "kid m"),
        kv=SCOPES,
    )
    names = [f"x{n}" for n in range(5)]
    for name in names:
        world.start(spec, execution_id=name, group="g")

    def unlucky(inputs: Json) -> Json:
        if chance.random() < 0.3:
            raise ValueError("bad luck")
        return inputs

    def weather() -> bool:
        known = [name for name in names if exists(world, name)]
        for name in known:
            action = chance.choice(["retry", "retry", "rerun", "cancel", "nothing", "nothing", "nothing"])
            if action != "nothing":
                step_id = chance.choice(["a", "kid", "m", "b"])
                control(world, name, action, step_id, world.keys.events(chance.randrange(8)))
        weather.rounds += 1  # type: ignore[attr-defined]
        return len(known) == len(names) and weather.rounds > 25  # type: ignore[attr-defined]

    weather.rounds = 0  # type: ignore[attr-defined]
    storm(world, coordinators, chance, weather, dict.fromkeys(("a", "m", "b", "work"), unlucky))
    for name in names:
        record = world.record(name)
        assert record.is_final, "nothing fails any more, and nobody waits for anything"
        if record.status in ("failed", "cancelled"):
            control(world, name, "retry")
    world.settle(*coordinators)

    assert {str(world.record(name).status) for name in names} == {"complete"}
    assert all("cannot be" in letter["reason"] for letter in world.dead())
    assert left(world).keys() <= {"dead"}
    for name in names:
        control(world, name, "delete")
    world.settle(*coordinators)
    assert all(name not in executions(world) for name in names)
    assert world.client.hget(world.keys.spec(check_spec(spec).workflow_id), "executions") == "0"
