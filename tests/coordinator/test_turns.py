"""A turn of a coordinator ends when its work is spent; what is left follows in further turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.application.engine.turn import DOCUMENT_BYTE_WORK, MAX_TURN_WORK
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Commit, Committed
from orchestrator.coordinator import decider
from orchestrator.coordinator.loop import Coordinator
from worlds.documents import Json, document, step
from worlds.families import executions
from worlds.redis_world import RedisWorld, result_fields

COUNT = 15
HEAVY = {"some": [{"var": "input.list"}, {"some": [{"$literal": [1] * 1_500}, 0]}]}
HEAVY_STEPS = document(*(step(f"s{n}", when=HEAVY, on_error="continue") for n in range(COUNT)))
LIST: Json = {"list": list(range(10_000))}
SMALL = document(step("a", when={"!": [{"var": "input.no"}]}), step("b", after="a"))


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many executions each round of commits has written to."""
    sizes: list[int] = []
    commit = Backend.commit

    def counted(backend: Backend, commits: Sequence[Commit]) -> list[Committed]:
        sizes.append(len(commits))
        return commit(backend, commits)

    monkeypatch.setattr(Backend, "commit", counted)
    return sizes


def failed(world: RedisWorld, execution: str) -> int:
    return sum(str(one.status) == "failed" for one in world.record(execution).steps.values())


def test_steps_that_take_much_work_do_not_hold_up_other_executions(world: RedisWorld) -> None:
    one = world.coordinator(small_document_bytes=1_000_000)
    world.start(HEAVY_STEPS, LIST, execution_id="heavy")
    one.run_once()
    first = failed(world, "heavy")

    world.start(SMALL, execution_id="small")
    one.run_once()
    second = failed(world, "heavy")
    dispatched = str(world.record("small").steps["a"].status)
    world.settle(one)

    assert (first, second, dispatched) == (0, 1, "in_progress"), "its large document took the first turn"
    assert str(world.record("small").status) == "complete"
    assert str(world.record("heavy").status) == "complete"
    assert failed(world, "heavy") == COUNT
    assert (world.dead(), world.pending()) == ([], [])


def test_a_divided_decision_goes_on_when_its_coordinator_dies_between(world: RedisWorld) -> None:
    one = world.coordinator("one")
    world.start(HEAVY_STEPS, LIST, execution_id="heavy")
    one.run_once()
    one.run_once()
    assert 0 < failed(world, "heavy") < COUNT

    world.killed("one")
    world.settle(world.coordinator("two"))

    assert failed(world, "heavy") == COUNT
    assert world.pending() == []


def test_a_batch_that_takes_much_work_is_committed_in_several_turns(
    world: RedisWorld, commits: list[int]
) -> None:
    one = world.coordinator(work_per_turn=1)
    for n in range(5):
        world.start(SMALL, execution_id=f"x{n}")

    one.run_once()
    at_the_start = list(commits)
    while one.run_once():
        pass  # the steps are dispatched in turns of their own
    del commits[:]
    jobs = [world.pop() for _ in range(5)]
    for job in jobs:
        assert job is not None
        world.send(world.keys.events_of(job["execution"]), result_fields(job, {}))
    one.run_once()

    assert at_the_start == [1] * 5
    assert commits == [1] * 5
    assert [str(world.record(f"x{n}").steps["a"].status) for n in range(5)] == ["complete"] * 5
    world.settle(one)
    assert [str(world.record(f"x{n}").status) for n in range(5)] == ["complete"] * 5
    assert world.pending() == []


def test_starts_with_different_documents_are_divided(world: RedisWorld, commits: list[int]) -> None:
    one = world.coordinator(small_document_bytes=100_000)
    description = "x" * (MAX_TURN_WORK // DOCUMENT_BYTE_WORK)
    for n in range(3):
        world.start({**SMALL, "name": f"w{n}", "description": description}, execution_id=f"x{n}")

    one.run_once()
    with_new_documents = list(commits)
    while one.run_once():
        pass  # the steps are dispatched in turns of their own
    del commits[:]
    for n in range(3):
        world.start({**SMALL, "name": "w2", "description": description}, execution_id=f"y{n}")
    one.run_once()

    assert len(executions(world)) == 6
    assert with_new_documents == [1] * 3
    assert commits == [3], "a document that is known costs nothing"


def test_executions_that_are_not_loaded_in_a_turn_are_loaded_in_the_next(
    world: RedisWorld, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.coordinator()
    for n in range(4):
        world.start(SMALL, execution_id=f"x{n}")
    one.run_once()
    for job in [world.pop() for _ in range(4)]:
        assert job is not None
        world.send(world.keys.events_of(job["execution"]), result_fields(job, {}))
    stored: Any = world.client.hgetall(world.keys.workflow(world.record("x0").workflow_execution_id))
    monkeypatch.setattr(decider, "MAX_LOADED_BYTES", sum(map(len, stored.values())) + 1)
    del commits[:]

    one._backend.drop_cached_records()
    one.run_once()

    assert commits == [2, 2]
    assert [str(world.record(f"x{n}").steps["a"].status) for n in range(4)] == ["complete"] * 4


def test_large_events_are_parsed_in_several_turns(world: RedisWorld, commits: list[int]) -> None:
    one = world.coordinator(bytes_per_turn=1)
    for n in range(3):
        world.start(SMALL, execution_id=f"x{n}")
    world.send(world.keys.starts, {"spec": "{"})

    one.run_once()

    assert commits == [1] * 3
    assert len(world.dead()) == 1


def test_an_undivided_batch_is_committed_in_one_round_trip(world: RedisWorld, commits: list[int]) -> None:
    one = world.coordinator()
    for n in range(5):
        world.start(SMALL, execution_id=f"x{n}")

    one.run_once()

    assert commits == [5]


def test_the_events_of_one_execution_are_applied_in_several_turns(
    world: RedisWorld, commits: list[int]
) -> None:
    one = world.coordinator(work_per_turn=1)
    spec = document(*(step(f"s{n}", when=True) for n in range(4)), step("z", after="s0 s1 s2 s3"))
    world.begin(one, spec, execution_id="x")
    while one.run_once():
        pass  # each turn dispatches a step
    del commits[:]
    for job in [world.pop() for _ in range(4)]:
        assert job is not None
        world.send(world.keys.events_of(job["execution"]), result_fields(job, {}))

    one.run_once()
    statuses = {str(world.record("x").steps[f"s{n}"].status) for n in range(4)}
    world.settle(one)

    assert commits[:4] == [1] * 4
    assert statuses == {"complete"}
    assert str(world.record("x").status) == "complete"


@pytest.mark.parametrize("options", [{}, {"work_per_turn": 1}, {"bytes_per_turn": 1}])
def test_a_control_that_follows_its_start_in_a_batch_finds_the_execution(
    world: RedisWorld, options: dict[str, Any]
) -> None:
    one = world.coordinator(**options)
    for n in range(3):
        world.start(SMALL, execution_id=f"x{n}")
    control = {"type": "control", "action": "cancel", "execution": "x2", "reply": "r"}
    world.send(world.keys.events_of("x2"), control)

    one.run_once()

    assert str(world.record("x2").status) == "cancelled"
    assert world.answer("r")["ok"]


def test_what_waits_for_its_turn_is_renewed(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = world.coordinator("one", work_per_turn=1, renew_every_s=0.0), world.log("two")
    for n in range(3):
        world.start(SMALL, execution_id=f"x{n}")
    take_turn, stolen = Coordinator._take_turn, list[Any]()

    def slow(one: Coordinator, deliveries: Sequence[Any]) -> Any:
        stolen.extend(two.reclaim(5_000, 10))
        taken = take_turn(one, deliveries)
        world.age_pending(6_000, reader="one")
        return taken

    monkeypatch.setattr(Coordinator, "_take_turn", slow)
    one.run_once()

    assert stolen == []
    assert len(executions(world)) == 3
