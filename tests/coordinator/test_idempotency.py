"""Idempotency roots on Redis: one execution for each root within its window, and every start is answered."""

from __future__ import annotations

import random
from typing import Any

import pytest

from effort import count
from orchestrator.application.engine.turn import Turn
from orchestrator.application.errors import Unavailable
from orchestrator.backend.ports import Committed
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.connection import Client
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.families import executions, exists, left, parent_of, serving, storm, taken
from worlds.redis_world import RedisWorld
from worlds.waiting import at_some_pace, wait_until

ONE = document(step("a"), outputs={"n": {"var": "input.n"}})
ROOT = "order-42"


def start(world: RedisWorld, name: str | None = None, n: int = 1, root: str = ROOT, **others: str) -> str:
    return world.start(ONE, {"n": n}, name, idempotency_root=root, **others)


def answers(world: RedisWorld, *entries: str) -> list[Json]:
    """Each start has exactly one answer."""
    return [world.answer(entry) for entry in entries]


def first_of(world: RedisWorld, root: str = ROOT) -> Any:
    return world.client.get(f"orchestrator:idempotency:{root}")


# ---- what a root is


def test_a_window_ends(world: RedisWorld) -> None:
    def scene(pace: int) -> None:
        world.client.flushall()
        [one] = serving(world)
        start(world, "x0", idempotency_window_s=str(pace))
        one.run_once()
        assert 0 < world.client.pttl(f"orchestrator:idempotency:{ROOT}") <= pace * 1_000
        wait_until(lambda: first_of(world) is None)

        again = start(world, "x1", idempotency_window_s="2")
        one.run_once()

        assert world.answer(again)["execution_id"] == "x1"
        assert executions(world) == ["x0", "x1"]

    at_some_pace(scene)


def test_a_window_is_a_day_unless_the_start_says_otherwise(world: RedisWorld) -> None:
    [one] = serving(world)
    start(world, "x0")
    start(world, "x1", root="short", idempotency_window_s="60")
    one.run_once()

    assert 86_000 < world.client.ttl(f"orchestrator:idempotency:{ROOT}") <= 86_400
    assert 0 < world.client.ttl("orchestrator:idempotency:short") <= 60


def test_a_window_that_ends_between_commit_and_answer_is_a_start_like_any_other(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = serving(world)
    start(world, "x0")
    one.run_once()
    asked: list[str] = []

    def just_over(root: str) -> str | None:
        asked.append(root)
        world.client.delete(f"orchestrator:idempotency:{root}")
        return None

    monkeypatch.setattr(one._backend.shared_state, "find_by_root", just_over)
    again = start(world, "x1")
    one.run_once()

    assert asked == [ROOT]
    assert world.answer(again)["execution_id"] == "x1"
    assert (world.dead(), world.pending()) == ([], [])


def test_a_window_may_outlive_the_execution(world: RedisWorld) -> None:
    world.retention_s = 1
    [one] = serving(world)
    start(world, "x0")
    world.settle(one)
    wait_until(lambda: one._log.trim() >= 0 and not exists(world, "x0"))

    again = start(world, "x1")
    one.run_once()

    assert world.answer(again)["execution_id"] == "x0", (
        "once is once, also when nothing is known of it any more"
    )
    assert executions(world) == []
    assert (world.dead(), world.pending()) == ([], [])


# ---- what does not use a root up


@pytest.mark.parametrize("wrong", ["spec", "inputs", "id"])
def test_a_start_that_is_refused_does_not_use_its_root_up(world: RedisWorld, wrong: str) -> None:
    [one] = serving(world)
    world.begin(one, ONE, execution_id="taken")
    match wrong:
        case "spec":
            refused = world.start(document(step("a", after="nobody")), idempotency_root=ROOT)
        case "inputs":
            spec = document(step("a"), inputs={"n": {"type": "string", "required": True}})
            refused = world.start(spec, {}, idempotency_root=ROOT)
        case _:
            refused = start(world, "taken")
    one.run_once()
    assert world.answer(refused)["ok"] is False
    assert first_of(world) is None

    again = start(world, "x1")
    one.run_once()

    assert world.answer(again)["execution_id"] == "x1"


@pytest.mark.parametrize("root", ["", "a b", "a*", "r\n", "ключ", "r" * 257, "\0"])
def test_a_root_that_is_no_name_is_refused(world: RedisWorld, root: str) -> None:
    [one] = serving(world)
    entry = start(world, "x0", root=root)
    one.run_once()

    assert "idempotency_root" in world.answer(entry)["reason"]
    assert executions(world) == []


@pytest.mark.parametrize("root", ["a:b", "-", ".", "r" * 256, "execution:x0"])
def test_a_root_may_have_any_name_that_an_execution_may_have(world: RedisWorld, root: str) -> None:
    [one] = serving(world)
    first, second = start(world, "x0", root=root), start(world, "x1", root=root)
    world.settle(one)

    assert [answer["execution_id"] for answer in answers(world, first, second)] == ["x0", "x0"]


@pytest.mark.parametrize("window", ["0", "-1", "1.5", "", "soon", str(10**15), "31622401"])
def test_a_window_that_is_none_is_refused(world: RedisWorld, window: str) -> None:
    [one] = serving(world)
    entry = start(world, "x0", idempotency_window_s=window)
    one.run_once()

    assert "idempotency_window_s" in world.answer(entry)["reason"]
    assert executions(world) == []


# ---- at once, and after a death


def test_two_starts_under_one_root_in_one_batch_make_one_execution(world: RedisWorld) -> None:
    [one] = serving(world)
    entries = [start(world, f"x{n}") for n in range(5)]
    one.run_once()

    assert executions(world) == ["x0"]
    assert {answer["execution_id"] for answer in answers(world, *entries)} == {"x0"}
    assert len(world.payloads()) == 1


def test_two_coordinators_with_a_start_each_make_one_execution(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    entries = [start(world, "x0"), start(world, "x1")]
    first, second = taken(world)

    decided = [one._starts.build_all([first], Turn()), two._starts.build_all([second], Turn())]
    for coordinator, (cases, _) in zip((one, two), decided, strict=True):  # both decide before either commits
        coordinator._commits.commit(cases)

    assert executions(world) == ["x0"]
    assert {answer["execution_id"] for answer in answers(world, *entries)} == {"x0"}
    assert (world.dead(), world.pending()) == ([], [])


def test_a_repeated_start_that_two_coordinators_hold_is_answered_once(world: RedisWorld) -> None:
    one, two = serving(world, "one", "two")
    start(world, "x0")
    one.run_once()
    again = start(world, "x1")
    deliveries = taken(world)

    for coordinator in (one, two):
        [repeated], _ = coordinator._starts.build_all(deliveries[:1], Turn())
        assert coordinator._starts.retry(repeated, Committed.REPEATED) is None
    two.handle(deliveries)

    assert world.answer(again)["execution_id"] == "x0"
    assert (world.dead(), world.pending()) == ([], [])


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_start_whose_coordinator_died_is_answered_by_another(world: RedisWorld, which: str) -> None:
    one, two = serving(world, "one", "two", reclaim_after_ms=50)
    entries = [start(world, "x0")]
    if which == "second":
        one.run_once()
        entries.append(start(world, "x1"))
    taken(world, "one")
    world.age_pending(1_000)
    world.killed("one")

    world.settle(two)

    assert executions(world) == ["x0"]
    assert {answer["execution_id"] for answer in answers(world, *entries)} == {"x0"}
    assert left(world) == {}


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_reply_that_is_lost_makes_neither_two_executions_nor_two_answers(
    world: RedisWorld, proxy: Proxy, proxied: Client, nth: int
) -> None:
    one = world.coordinator("one", proxied)
    entries, dropped = [], 0
    for turn in range(1, 4):
        entries.append(start(world, f"x{turn}"))
        deliveries = one._log.read(100, 0)
        if turn == nth:
            proxy.drop_reply_of("EVALSHA")
        try:
            one.handle(deliveries)
        except Unavailable:
            dropped += 1
            one.resume_unfinished()
    world.settle(one)

    assert dropped == 1
    assert executions(world) == ["x1"]
    assert {answer["execution_id"] for answer in answers(world, *entries)} == {"x1"}
    assert left(world) == {}


def test_a_root_is_of_the_parent_alone(world: RedisWorld) -> None:
    """Its children have ids of their own, which nobody can use twice."""
    [one] = serving(world)
    spec = parent_of(ONE)
    world.start(spec, {"n": 1}, "p", idempotency_root=ROOT)
    world.settle(one)

    assert executions(world) == ["p", "p:kid:0"]
    assert world.record("p").status == "complete"


@pytest.mark.parametrize("seed", range(count(2, 4)))
def test_roots_in_a_storm(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators: list[Coordinator] = serving(world, "one", "two", "three")
    entries: dict[str, list[str]] = {f"r{n}": [] for n in range(5)}
    for n in range(40):
        root = f"r{chance.randrange(5)}"
        entries[root].append(start(world, f"x{n}", root=root))

    def over() -> bool:
        return not world.pending() and all(world.record(name).is_final for name in executions(world))

    storm(world, coordinators, chance, over)

    assert len(executions(world)) == 5
    for root, sent in entries.items():
        firsts = {answer["workflow_execution_id"] for answer in answers(world, *sent)}
        assert firsts == {first_of(world, root)}
    assert left(world) == {}
