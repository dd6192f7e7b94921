"""Values that executions share, on Redis: written once, read fresh, gone with the last who shared them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from effort import count
from orchestrator.application.errors import Unavailable
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from orchestrator.settings import RETENTION_MARGIN_S
from servers.proxy import Proxy
from servers.redis_contents import snapshot
from worlds.commits import creation, decision, result, written
from worlds.documents import Json, document, step
from worlds.families import (
    N,
    child_of,
    control,
    decide_all,
    executions,
    exists,
    left,
    of_type,
    serving,
    storm,
    taken,
)
from worlds.redis_world import RedisWorld, durable_world
from worlds.waiting import wait_until

SCOPES = {"scopes": ["flow", "global", "flow_group"]}
ADD = document(step("a", kv_add={"flow_group:total": {"var": "input.n"}}), kv=SCOPES)
TELL = document(
    step("a", input={"group": {"var": "kv.flow_group"}, "global": {"var": "kv.global"}}), kv=SCOPES
)


def group(world: RedisWorld, name: str = "g") -> Json:
    """The values of a group, as redis-cli would show them."""
    found: Any = world.client.hgetall(f"orchestrator:kv:group:{name}")
    return {key: json.loads(value) for key, value in found.items()}


def of_root(world: RedisWorld, execution_id: str) -> Json:
    found: Any = world.client.hgetall(f"orchestrator:kv:global:{execution_id}")
    return {key: json.loads(value) for key, value in found.items()}


def begin(world: RedisWorld, one: Coordinator, spec: Json, name: str, n: Any = 1, **start: str) -> str:
    return world.begin(one, spec, inputs={"n": n}, execution_id=name, **start)


def heard(world: RedisWorld, name: str) -> Any:
    """What a TELL saw when its step was dispatched."""
    [payload] = [one for one in world.payloads() if one["execution"].endswith(f"#{name}")]
    return payload["inputs"]


# ---- who sees what


def test_a_coordinator_that_remembers_a_record_reads_its_shared_values_anew(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    spec = document(step("first"), step("then", "first", input={"x": {"var": "kv.flow_group.x"}}), kv=SCOPES)
    begin(world, one, spec, "x0", group="g")
    world.client.hset("orchestrator:kv:group:g", "x", "7")  # as any other execution would

    world.work()
    one.handle(taken(world))

    [payload] = world.payloads()
    assert payload["inputs"] == {"x": 7}
    assert two is not one


# ---- added once


def test_many_add_to_one_number_and_none_is_lost(world: RedisWorld) -> None:
    coordinators = serving(world, "one", "two")
    for n in range(30):
        world.start(ADD, {"n": n}, f"x{n}", group="g")
    world.settle(*coordinators)

    assert group(world) == {"total": sum(range(30))}
    assert left(world) == {}


def test_a_result_that_two_coordinators_hold_is_added_once(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    begin(world, one, ADD, "x0", n=5, group="g")
    world.work()
    deliveries = taken(world)

    two.handle(deliveries)
    one.handle(deliveries)
    world.send(deliveries[0].ref.stream, deliveries[0].fields)
    decide_all(world, one)

    assert group(world) == {"total": 5}
    assert left(world) == {}


def test_a_result_whose_coordinator_died_is_added_once(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    begin(world, one, ADD, "x0", n=5, group="g")
    world.work()
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")
    assert group(world) == {}

    world.settle(two)

    assert group(world) == {"total": 5}
    assert left(world) == {}


def test_a_commit_whose_reply_is_lost_is_added_once(world: RedisWorld, proxy: Proxy, proxied: Client) -> None:
    one = world.coordinator("one", proxied)
    begin(world, one, ADD, "x0", n=5, group="g")
    world.work()
    deliveries = one._log.read(10, 0)
    proxy.drop_reply_of("EVALSHA")
    with pytest.raises(Unavailable):
        one.handle(deliveries)
    one.resume_unfinished()

    assert proxy.dropped == 1
    assert group(world) == {"total": 5}
    assert world.record("x0").status == "complete"
    assert left(world) == {}


def test_a_killed_redis_keeps_sums_and_records_together(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server):
        one = world.coordinator("one")
        for n in range(5):
            begin(world, one, ADD, f"x{n}", n=1, group="g")
        world.work()
        deliveries = world.log("one").read(10, 0)
        one.handle(deliveries[:3])
        server.kill()
        with pytest.raises(Unavailable):
            one.handle(deliveries[3:])
        server.start()
        one.resume_unfinished()

        assert group(world) == {"total": 5}
        assert {world.record(name).status for name in executions(world)} == {"complete"}


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1, 2, -3], "0"),
        ([0.5, 0.25], "0.75"),
        ([0.5, 0.5], "1"),
        ([-1.5, -1.5], "-3"),
        ([999_999_999_999_999], "999999999999999"),
        ([0.1, 0.2], "0.30000000000000004"),
    ],
)
def test_sums_are_numbers_as_json_writes_them(world: RedisWorld, numbers: list[float], total: str) -> None:
    [one] = serving(world)
    for n, number in enumerate(numbers):
        begin(world, one, ADD, f"x{n}", n=number, group="g")
        world.settle(one)

    assert world.client.hget("orchestrator:kv:group:g", "total") == total
    assert json.loads(total) == pytest.approx(sum(numbers))


@pytest.mark.parametrize(
    "stands_there", ['"text"', "null", "[1]", "true", "1e308"], ids=["text", "null", "list", "true", "huge"]
)
def test_nothing_is_added_to_what_became_no_number_meanwhile(world: RedisWorld, stands_there: str) -> None:
    """The decision saw a number; by the time it is committed, somebody else has written what is none."""
    [one] = serving(world)
    weid = begin(world, one, ADD, "x0", n=1e308, group="g")
    world.work()
    commit_now = one._backend.store.commit

    def somebody_else_first(commits: Any) -> Any:
        world.client.hset("orchestrator:kv:group:g", "total", stands_there)
        return commit_now(commits)

    one._backend.store.commit = somebody_else_first  # type: ignore[method-assign]
    decide_all(world, one)

    assert world.status(weid) == "complete"
    assert world.client.hget("orchestrator:kv:group:g", "total") == stands_there
    assert world.counter("not_shared") == 1


# ---- what others have put there


@pytest.mark.parametrize(
    "text", ["Oslo", "", "{", "007", "[" * 100_000, "NaN", "\\ud800"], ids=lambda s: s[:5]
)
def test_a_value_that_is_no_json_is_not_there_and_stops_nobody(world: RedisWorld, text: str) -> None:
    [one] = serving(world)
    world.client.hset("orchestrator:kv:group:g", mapping={"bad": text, "good": "1"})
    begin(world, one, TELL, "x0", group="g")
    assert heard(world, "x0")["group"] == {"good": 1}

    one._backend.drop_cached_records()
    world.settle(one)

    assert world.record("x0").status == "complete"
    assert left(world) == {}


@pytest.mark.parametrize("spec", [ADD, document(step("a"), kv=SCOPES)], ids=["add", "set"])
def test_a_key_of_another_type_costs_its_values_and_nothing_else(world: RedisWorld, spec: Json) -> None:
    [one] = serving(world)
    world.client.set("orchestrator:kv:group:g", "a string")
    begin(world, one, spec, "x0", group="g")

    world.settle(one, executors={"a": lambda inputs: {"flow_group:city": "Oslo"}})

    assert world.record("x0").status == "complete"
    assert world.moves("x0", "complete") == ["a"]
    assert world.counter("not_shared") >= 1
    assert left(world) == {}


@pytest.mark.parametrize("name", ["", "a b", "a*", "g\n", "ключ", "g" * 257])
def test_a_group_that_is_no_name_is_refused(world: RedisWorld, name: str) -> None:
    [one] = serving(world)
    entry = world.start(ADD, {"n": 1}, "x0", group=name)

    world.settle(one)

    assert "group" in world.answer(entry)["reason"]
    assert executions(world) == []


@pytest.mark.parametrize("name", ["a:b", "-", ".", "G_1", "g" * 256, "kv:group:x"])
def test_a_group_may_have_any_name_that_an_execution_may_have(world: RedisWorld, name: str) -> None:
    [one] = serving(world)
    begin(world, one, ADD, "x0", group=name)

    world.settle(one)

    assert group(world, name) == {"total": 1}
    assert left(world) == {}


def test_names_of_values_may_have_any_characters(world: RedisWorld) -> None:
    [one] = serving(world)
    odd = {f"flow_group:{name}": name for name in ("a b", "a:b", "#", "ключ", "\n", "{x}", "x" * 10_000)}
    begin(world, one, document(step("a"), kv=SCOPES), "x0", group="g")

    world.settle(one, executors={"a": lambda inputs: odd})

    assert group(world) == {name.partition(":")[2]: value for name, value in odd.items()}


# ---- how long they are kept


def test_the_values_of_a_group_go_with_its_last_execution_and_stay_for_the_next(world: RedisWorld) -> None:
    [one] = serving(world)
    begin(world, one, ADD, "x0", group="g")
    begin(world, one, ADD, "x1", group="g")
    world.work(most=1)
    decide_all(world, one)
    assert world.client.ttl("orchestrator:kv:group:g") == -1
    world.settle(one)
    assert 0 < world.client.ttl("orchestrator:kv:group:g") <= world.retention_s + RETENTION_MARGIN_S
    assert not world.client.exists(world.keys.groups)

    begin(world, one, ADD, "x2", group="g")

    assert world.client.ttl("orchestrator:kv:group:g") == -1
    world.settle(one)
    assert group(world) == {"total": 3}
    assert 0 < world.client.ttl("orchestrator:kv:group:g") <= world.retention_s + RETENTION_MARGIN_S


def test_an_imported_execution_counts_among_its_group(world: RedisWorld) -> None:
    one = written(world.store, in_group(creation(ADD, "open", {"n": 1})))
    imported = in_group(creation(ADD, "imported", {"n": 1})).record
    world.store.write(imported)
    world.store.write(imported)
    written(world.store, decision(imported))
    written(world.store, decision(imported, result(imported, "a", {})))

    assert world.client.hget(world.keys.groups, "g") == "1"
    assert world.client.ttl("orchestrator:kv:group:g") == -1, "the execution 'open' still needs them"
    written(world.store, decision(one, result(one, "a", {})))
    assert world.client.ttl("orchestrator:kv:group:g") > 0


def in_group(commit: Any, name: str = "g") -> Any:
    commit.record.group = name
    return commit


def outliving(world: RedisWorld, one: Coordinator) -> str:
    """A root that has ended while its child has not heard of it, and writes global values."""
    child = document(step("late"), kv=SCOPES)
    spec = document({"id": "kid", "workflow": child, "input": N}, step("other"))
    weid = begin(world, one, spec, "p")
    one.handle(of_type(taken(world), "child"))
    control(world, weid, "cancel")
    one.handle(taken(world))
    assert world.status(weid) == "cancelled"
    return weid


def test_a_child_that_outlives_its_root_by_a_moment_leaves_no_values_behind(world: RedisWorld) -> None:
    [one] = serving(world)
    weid = outliving(world, one)
    world.work({"late": lambda inputs: {"global:x": 1}})
    result_first = sorted(taken(world), key=lambda delivery: delivery.fields["type"] != "result")

    one.handle(result_first[:1])
    one.handle(result_first[1:])
    decide_all(world, one)

    assert world.record(child_of(weid)).status == "complete"
    assert of_root(world, "p") == {"x": 1}
    assert 0 < world.client.ttl("orchestrator:kv:global:p") <= world.retention_s + RETENTION_MARGIN_S
    assert left(world) == {}


def test_the_values_of_a_root_stay_while_it_runs_whatever_its_children_do(world: RedisWorld) -> None:
    [one] = serving(world)
    spec = document(
        {"id": "kid", "workflow": document(step("work"), kv=SCOPES)}, {"id": "w", "wait": {"signal": "go"}}
    )
    begin(world, one, spec, "p")
    world.settle(one, executors={"work": lambda inputs: {"global:x": 1}})

    assert world.record("p:kid:0").status == "complete"
    assert world.client.ttl("orchestrator:kv:global:p") == -1
    control(world, "p", "cancel")
    world.settle(one)
    assert world.client.ttl("orchestrator:kv:global:p") > 0


# ---- nothing is left


EVERYTHING = document(
    step("a", concurrency={"key": {"var": "input.key"}, "limit": 2}, kv_add={"flow_group:total": 1}),
    {
        "id": "kid",
        "depends_on": ["a"],
        "input": N,
        "on_error": "continue",
        "workflow": document(
            step("work", compensate={"fn": "undo"}), step("chance", "work"), kv=SCOPES, timeout="1h"
        ),
    },
    {"id": "d", "delay": "1ms"},
    kv=SCOPES,
    concurrency={"key": "all", "limit": 5},
    timeout="1h",
)


def keys_left(world: RedisWorld, one: Coordinator) -> set[str]:
    """The keys that stay when every term has passed, but for the counters; answers are kept for an hour, and
    have a term too."""
    passing = ("execution", "workflow", "history", "spec", "kv", "idempotency", "index")

    def is_quiet() -> bool:
        one._log.trim()
        return not [
            key for kind in passing for key in world.client.scan_iter(f"{world.keys.prefix}:{kind}:*")
        ]

    wait_until(is_quiet)
    assert all(world.client.ttl(key) > 0 for key in world.client.scan_iter("orchestrator:answer:*"))
    return set(snapshot(world.client, "orchestrator:answer:")) - {world.keys.counters}


def test_after_the_retention_nothing_of_all_this_is_left_in_redis(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.redis_rq.commit_args.RETENTION_MARGIN_S", 2)
    world.retention_s = 1
    one, two = serving(world, "one", "two")
    begin(world, one, document(step("a")), "plain")
    world.settle(one, two)
    before = keys_left(world, one)
    chance = random.Random(1)

    def unlucky(inputs: Json) -> Json:
        if chance.random() < 0.5:
            raise ValueError("bad luck")
        return {"global:seen": 1}

    names = [f"p{n}" for n in range(12)]
    for n, name in enumerate(names):
        root = {"idempotency_root": f"root-{n}", "idempotency_window_s": "1"}
        world.start(EVERYTHING, {"n": n, "key": f"k{n % 3}"}, name, group=f"g{n % 4}", **root)
    for name in ("p5", "p6"):
        control(world, name, "cancel")
    ended: set[str] = set()
    while ended != set(names):
        world.settle(one, two, executors={"chance": unlucky, "work": lambda inputs: {"global:done": True}})
        ended |= {name for name in names if not exists(world, name) or world.record(name).is_final}

    assert left(world) == {}
    assert keys_left(world, one) == before


# ---- everything at once


@pytest.mark.parametrize("seed", range(count(2, 4)))
def test_sums_in_a_storm_are_exact(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    child = document(step("work", kv_add={"global:done": 1, "flow_group:done": 1}), kv=SCOPES)
    spec = document(
        *({"id": f"kid{n}", "workflow": child, "max_attempts": 9} for n in range(3)),
        step("end", "kid0 kid1 kid2", kv_add={"flow_group:ended": 1}),
        kv=SCOPES,
    )

    def unlucky(inputs: Json) -> Json:
        if chance.random() < 0.3:
            raise ValueError("bad luck")
        return inputs

    names = [f"p{n}" for n in range(4)]
    for name in names:
        world.start(spec, {"n": 1}, name, group="g")

    def over() -> bool:
        return all(exists(world, name) and world.record(name).is_final for name in names)

    storm(world, coordinators, chance, over, {"work": unlucky})

    assert [world.record(name).status for name in names] == ["complete"] * 4
    assert group(world) == {"done": 12, "ended": 4}
    assert [of_root(world, name) for name in names] == [{"done": 3}] * 4
    assert left(world) == {}
