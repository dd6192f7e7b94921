"""Starts whose execution id is taken, on Redis: each policy does what it says, once, whoever else starts."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from effort import count
from orchestrator.application.engine.turn import Turn
from orchestrator.application.errors import StartRejected
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.backend import Backend
from orchestrator.client import StartResult
from orchestrator.redis_rq.connection import Client as RedisClient
from processes import PatientClient
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.families import (
    child_of,
    control,
    decide_all,
    executions,
    left,
    of_type,
    serving,
    storm,
    taken,
    turns_with_a_lost_reply,
)
from worlds.redis_world import RedisWorld, result_fields, running

N = {"n": {"var": "input.n"}}
ONE = document(step("a", input=N), outputs={"n": {"var": "steps.a.output.n"}}, name="one")
TWO = document(step("b", input=N), outputs={"n": {"var": "steps.b.output.n"}}, name="two")
BOTH = pytest.mark.parametrize("spec", [ONE, TWO], ids=["same spec", "another spec"])
STATUSES = ("pending", "in_progress", "paused", "compensating", "complete", "halted", "failed", "cancelled")


def start(
    world: RedisWorld, spec: Json = ONE, n: int = 1, policy: str = "terminate_existing", **keys: str
) -> str:
    return world.start(spec, {"n": n}, keys.pop("name", "x"), conflict_policy=policy, **keys)


def listed(world: RedisWorld) -> dict[str, list[str]]:
    """Who stands in which index of a status, and among those that have ended."""
    keys = {**{status: world.keys.index(status) for status in STATUSES}, "ended": world.keys.ended}
    found: dict[str, Any] = {name: world.client.zrange(key, 0, -1) for name, key in keys.items()}
    return {name: [one.partition("|")[0] for one in value] for name, value in found.items() if value}


def open_executions(world: RedisWorld, spec: Json) -> int:
    key = world.keys.spec(check_spec(spec).workflow_id)
    return int(str(world.client.hget(key, "executions") or 0))


# ---- terminate_existing


@BOTH
def test_terminate_existing_cancels_what_runs_and_what_it_brings_later_does_not_count(
    world: RedisWorld, spec: Json
) -> None:
    [one] = serving(world)
    old = world.begin(one, document(*ONE["steps"], step("waits"), name="one", timeout="1h"), execution_id="x")
    job = world.pop()
    assert job is not None
    entry = start(world, spec, n=2)

    one.run_once()

    new = world.answer(entry)["workflow_execution_id"]
    assert executions(world) == ["x"]
    assert (world.record("x").inputs, len(world.payloads())) == ({"n": 2}, 1)
    assert listed(world) == {"in_progress": [new]}
    assert all(new in member for member in [*world.leases(), *world.timers()])
    world.send(job["events"], result_fields(job, {"n": "late"}))
    one._log.sweep()
    world.settle(one)
    assert (world.record("x").status, world.record("x").outcome) == ("complete", {"n": 2})
    assert listed(world) == {"complete": [new], "ended": [new]}
    assert not world.client.exists(world.keys.workflow(old), world.keys.history(old))
    assert left(world).keys() <= {"dead"}, "a result of nobody is a dead letter"


@BOTH
@pytest.mark.parametrize("how", ["complete", "failed", "paused", "pending"])
def test_terminate_existing_takes_the_place_of_whatever_is_there(
    world: RedisWorld, spec: Json, how: str
) -> None:
    def boom(inputs: Json) -> Json:
        raise ValueError("as asked")

    [one] = serving(world)
    old = {**ONE, "concurrency": {"key": "k", "limit": 1}} if how == "pending" else ONE
    if how == "pending":
        world.begin(one, old, execution_id="before")
        decide_all(world, one)
    world.begin(one, old, inputs={"n": 1}, execution_id="x", group="g", labels='{"k": "v"}')
    if how == "paused":
        control(world, "x", "pause")
        decide_all(world, one)
    elif how != "pending":
        world.settle(one, executors={"a": boom} if how == "failed" else None)
    assert world.record("x").status == how

    entry = start(world, spec, n=2, labels='{"l": "w"}')
    world.settle(one)

    new = world.answer(entry)["workflow_execution_id"]
    assert (world.record("x").status, world.record("x").outcome) == ("complete", {"n": 2})
    assert world.client.zrange(world.keys.index_of_label("l", "w"), 0, -1) == [new]
    assert world.client.zrange(world.keys.index_of_label("k", "v"), 0, -1) == []
    assert world.client.zrange(world.keys.index_of_group("g"), 0, -1) == []
    assert new in world.client.zrange(world.keys.index_of_name(str(spec["name"])), 0, -1)
    assert (open_executions(world, old), open_executions(world, spec)) == (0, 0)
    assert [entry["control"] for entry in world.history("x") if "control" in entry] == []
    assert left(world) == {}


def test_the_values_that_the_old_one_shared_are_not_seen_and_those_of_the_new_one_are_kept(
    world: RedisWorld,
) -> None:
    [one] = serving(world)
    pick = {"id": "s", "switch": {"on": {"var": "input.k"}, "cases": {"x": ["a"]}, "default": ["a"]}}
    spec = document(
        {**pick, "kv_add": {"global:times": 1}},
        step("a", input={"seen": {"var": "kv.global.old"}, "times": {"var": "kv.global.times"}}),
        kv={"scopes": ["flow", "global"]},
    )
    world.begin(one, spec, execution_id="x")
    world.settle(one, executors={"a": lambda inputs: {"global:old": True}})
    assert world.client.hgetall(world.keys.shared("global", "x")) == {"times": "1", "old": "true"}

    start(world, spec)
    world.settle(one)

    assert world.record("x").steps["a"].output == {"seen": None, "times": 1}
    assert world.client.hgetall(world.keys.shared("global", "x")) == {"times": "1"}


def test_the_root_of_the_old_one_is_free_and_that_of_the_new_one_is_taken(world: RedisWorld) -> None:
    [one] = serving(world)
    world.begin(one, ONE, execution_id="x", idempotency_root="old")

    entry = start(world, idempotency_root="new")
    one.run_once()

    assert world.client.get(world.keys.idempotency("old")) is None
    weid = world.answer(entry)["workflow_execution_id"]
    assert world.client.get(world.keys.idempotency("new")) == weid


def test_the_root_comes_before_the_policy(world: RedisWorld) -> None:
    [one] = serving(world)
    world.begin(one, ONE, inputs={"n": 1}, execution_id="x", idempotency_root="r")

    entry = start(world, n=2, idempotency_root="r")
    one.run_once()

    assert world.answer(entry)["existing"]
    assert world.record("x").inputs == {"n": 1}


# ---- children


def parent(child: Json, **keys: Any) -> Json:
    kid = {"id": "kid", "workflow": child, "input": N, **keys}
    return document(kid, outputs={"kid": {"var": "steps.kid.output.n"}})


@pytest.mark.parametrize("when", ["asked for", "deleted"])
def test_the_child_of_the_new_one_takes_the_place_of_the_old_ones(world: RedisWorld, when: str) -> None:
    one, two = serving(world, "one", "two")
    world.begin(one, parent(ONE), inputs={"n": 1}, execution_id="x")
    if when == "deleted":
        world.settle(one, two)
        control(world, "x", "delete")
        decide_all(world, one)
        assert executions(world) == ["x:kid:0"]

    start(world, parent(ONE), n=2)
    world.settle(one, two)

    assert (world.record("x").status, world.record("x").outcome) == ("complete", {"kid": 2})
    assert world.record("x:kid:0").inputs == {"n": 2}
    assert left(world) == {}


@pytest.mark.parametrize("order", ["cancel first", "start first", "one batch"])
def test_the_cancel_of_the_old_child_does_not_reach_the_new_one(world: RedisWorld, order: str) -> None:
    [one] = serving(world)
    weid = world.begin(one, parent(ONE), inputs={"n": 1}, execution_id="x")
    decide_all(world, one)
    start(world, parent(ONE), n=2)
    one.handle(taken(world))
    said = taken(world)
    assert [of_type(said, kind)[0].fields["type"] for kind in ("control", "child")] == ["control", "child"]
    old, new = of_type(said, "control"), of_type(said, "child")
    for batch in {"cancel first": (old, new), "start first": (new, old), "one batch": (said,)}[order]:
        one.handle(batch)
    assert world.record(child_of(weid)).inputs == {"n": 2}
    world.settle(one)

    assert (world.record("x").status, world.record("x").outcome) == ("complete", {"kid": 2})
    assert left(world) == {}


# ---- many at once


@BOTH
def test_fifty_of_one_batch_take_each_others_places_in_their_order(world: RedisWorld, spec: Json) -> None:
    [one] = serving(world)
    world.begin(one, ONE, inputs={"n": -1}, execution_id="x")
    entries = [start(world, spec if n % 2 else ONE, n=n) for n in range(50)]
    one.run_once()

    assert all(world.answer(entry)["ok"] for entry in entries)
    assert (world.record("x").inputs, executions(world)) == ({"n": 49}, ["x"])
    assert len(world.payloads()) == 1
    world.settle(one)
    assert world.record("x").outcome == {"n": 49}
    assert (open_executions(world, ONE), open_executions(world, TWO)) == (0, 0)
    assert left(world) == {}


def test_of_two_coordinators_that_replace_at_once_each_has_its_turn(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    world.begin(one, ONE, inputs={"n": 0}, execution_id="x")
    entries = [start(world, n=1), start(world, TWO, n=2)]
    first, second = taken(world)
    # Both decide before either of them commits.
    decided = [(one, one._starts.build_all([first], Turn())), (two, two._starts.build_all([second], Turn()))]

    for coordinator, (cases, _) in decided:
        coordinator._commits.commit(cases)
    world.settle(one, two)

    assert all(world.answer(entry)["ok"] for entry in entries)
    assert world.record("x").outcome == {"n": 2}
    assert left(world) == {}


@pytest.mark.parametrize("seed", range(count(2, 4)))
def test_places_that_change_hands_in_a_storm(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    specs = [ONE, TWO, parent(ONE), parent(TWO)]
    entries: list[str] = []

    def weather() -> bool:
        for _ in range(chance.randint(0, 3)):
            policy = chance.choice(["use_existing", "terminate_existing", "terminate_existing", "fail"])
            name = f"x{chance.randrange(3)}"
            entries.append(start(world, chance.choice(specs), len(entries), policy, name=name))
        return len(entries) > 40

    storm(world, coordinators, chance, weather)

    answers = [world.answer(entry) for entry in entries]
    assert any(answer["ok"] for answer in answers)
    assert all(answer["ok"] or "already exists" in answer["reason"] for answer in answers)
    tops = [name for name in executions(world) if ":" not in name]
    assert tops == ["x0", "x1", "x2"]
    assert {str(world.record(name).status) for name in tops} == {"complete"}
    assert all(world.record(name).is_final for name in executions(world))
    assert {open_executions(world, spec) for spec in specs} == {0}
    assert left(world).keys() <= {"dead"}


@pytest.mark.parametrize("way", ["fail", "use_existing", "terminate_existing", "idempotency root"])
def test_fifty_producers_and_two_coordinators_at_once_make_one_execution(world: RedisWorld, way: str) -> None:
    clients = [PatientClient(world.connect()) for _ in range(10)]
    made = [world.coordinator(name, world.connect(), block_ms=20) for name in ("one", "two")]

    def produce(n: int) -> Any:
        client, inputs = clients[n % 10], {"n": n}
        if way == "idempotency root":
            return client.start(ONE, inputs, f"x{n}", 30, idempotency_root="r")
        try:
            return client.start(ONE, inputs, "x", 30, conflict_policy=way)  # type: ignore[arg-type]
        except StartRejected as error:
            return str(error)

    with running(made[0]), running(made[1]), ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(produce, range(50)))
    world.settle(world.coordinator("three"))

    [name] = executions(world)
    refused = ["an execution with the id 'x' already exists"] * (49 if way == "fail" else 0)
    assert [one for one in answers if isinstance(one, str)] == refused
    started = [one for one in answers if isinstance(one, StartResult)]
    assert {one.execution_id for one in started} == {name}
    assert sum(not one.existing for one in started) == (50 if way == "terminate_existing" else 1)
    record = world.record(name)
    assert (record.status, record.outcome) == ("complete", record.inputs)
    assert open_executions(world, ONE) == 0
    assert left(world).keys() == ({"dead"} if way == "fail" else set())


# ---- whoever dies on the way


@BOTH
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_coordinator_that_dies_before_a_commit_leaves_all_to_the_next(
    world: RedisWorld, spec: Json, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit finds the id taken, the second cancels who has it, the third takes its place."""
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    world.begin(two, ONE, inputs={"n": 1}, execution_id="x")
    entry = start(world, spec, n=2)
    deliveries = taken(world, "one")
    commits, commit = 0, Backend.commit

    def dying(self: Backend, commits_: Any) -> Any:
        nonlocal commits
        commits += self is one._backend
        if self is one._backend and commits == nth:
            raise KeyboardInterrupt
        return commit(self, commits_)

    monkeypatch.setattr(Backend, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        one.handle(deliveries)
    assert world.client.llen(world.keys.reply(entry)) == 0
    world.age_pending(1_000)
    world.killed("one")
    world.settle(two)

    assert world.answer(entry)["ok"]
    assert (world.record("x").status, world.record("x").outcome) == ("complete", {"n": 2})
    assert (open_executions(world, ONE), open_executions(world, TWO)) == (0, 0)
    assert left(world) == {}


@BOTH
@pytest.mark.parametrize("skipped", range(8))
def test_a_reply_that_is_lost_makes_neither_two_executions_nor_two_answers(
    world: RedisWorld, proxy: Proxy, proxied: RedisClient, spec: Json, skipped: int
) -> None:
    """Whichever script it was that nobody heard the end of."""
    [other] = serving(world, "other")
    world.begin(other, ONE, inputs={"n": 1}, execution_id="x")
    world.killed("other")
    one = world.coordinator("one", proxied)
    entry = start(world, spec, n=2)
    proxy.drop_reply_of("EVALSHA", skipped)

    turns_with_a_lost_reply(proxy, one, 10**9, world.work)

    assert world.answer(entry)["ok"]
    assert (world.record("x").status, world.record("x").outcome) == ("complete", {"n": 2})
    assert executions(world) == ["x"]
    assert left(world) == {}


# ---- what somebody has broken


@pytest.mark.parametrize("policy", ["use_existing", "terminate_existing"])
@pytest.mark.parametrize("gone", ["record", "execution id"])
def test_what_is_broken_is_refused_with_words_and_not_tried_for_ever(
    world: RedisWorld, policy: str, gone: str
) -> None:
    [one] = serving(world)
    weid = world.begin(one, ONE, execution_id="x")
    world.settle(one)
    world.client.delete(world.keys.workflow(weid) if gone == "record" else world.keys.execution("x"))

    entry = start(world, policy=policy)
    world.settle(one)

    answer = world.answer(entry)
    assert not answer["ok"]
    words = "but its record is missing" if gone == "record" else "it keeps changing hands"
    assert words in answer["reason"]
    assert "internal" not in answer["reason"]
    assert world.pending() == []
