"""A decision that takes too much work is divided between events and between steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.application.engine import maps
from orchestrator.application.engine.maps import MAX_ITEMS
from orchestrator.application.engine.resolution import MAX_RESOLVED_BYTES, MAX_RESOLVED_DEPTH
from orchestrator.application.engine.transitions import decide
from orchestrator.application.engine.turn import MAX_TURN_WORK, TRANSITION_WORK, Turn
from orchestrator.application.expressions.meter import MAX_WORK
from orchestrator.application.records.events import ContinueEvent
from worlds.documents import Json, document, step, when
from worlds.engine_world import EngineWorld, world_of

COUNT = 15
HEAVY = {"some": [{"var": "input.list"}, {"==": [{"var": ""}, -1]}]}
INPUTS: Json = {"list": list(range(300)), "short": [0, 1, 2]}
HEAVY_WORK = 900  # at least, with these inputs
WORK = 500  # of a turn: less than one of the steps takes
TOO_HEAVY = {"some": [{"var": "input.list"}, {"some": [{"$literal": [1] * 1_500}, 0]}]}


def map_step(name: str, over: Any, **keys: Any) -> Json:
    return step(name, map={"over": over}, **keys)


def turns(world: EngineWorld, *events: Any, work: float = MAX_TURN_WORK, reload: bool = False) -> list[int]:
    """Decide turn by turn until nothing is left to do at once; what each turn has spent."""
    spent: list[int] = []
    pending = list(events)
    while pending or not spent or world.last.has_more_ready:
        if reload:
            world.reload()
        turn = Turn(work)
        batch = pending or [ContinueEvent(world.record.workflow_execution_id, world.last.continue_at)]
        decided = decide(world.record, batch, world.moment(), None, turn)
        pending = pending[decided.applied :]
        world._commit(decided.changes)
        spent.append(turn.spent)
        assert len(spent) < 1_000, "the decision gets no further"
    return spent


def assert_divided(spent: list[int]) -> None:
    assert len(spent) >= COUNT, "one step in a turn"
    assert max(spent) < WORK + 2 * HEAVY_WORK
    assert sum(spent) > COUNT * HEAVY_WORK


HEAVY_STEPS: dict[str, Callable[[int], Json]] = {
    "a condition": lambda n: step(f"s{n}", when=HEAVY),
    "a condition that holds": lambda n: step(f"s{n}", when={"!": [HEAVY]}),
    "an input": lambda n: step(f"s{n}", input={"x": HEAVY}),
    "a switch": lambda n: {"id": f"s{n}", "switch": {"on": {"cat": [HEAVY]}, "cases": {"False": []}}},
    "a list of items": lambda n: map_step(f"s{n}", {"if": [HEAVY, [], {"var": "input.short"}]}),
    "a key": lambda n: step(f"s{n}", concurrency={"key": {"cat": ["k", HEAVY]}, "limit": 1}),
    "a required value": lambda n: step(f"s{n}", filters={"expression": {"!": [HEAVY]}}),
}


@pytest.mark.untraced
@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("kind", HEAVY_STEPS)
def test_steps_that_take_much_work_each_are_not_evaluated_in_one_turn(kind: str, reload: bool) -> None:
    spec = document(*(HEAVY_STEPS[kind](n) for n in range(COUNT)))
    world, undivided = world_of(spec, inputs=INPUTS), world_of(spec, inputs=INPUTS)

    spent = turns(world, work=WORK, reload=reload)
    undivided.advance()

    assert_divided(spent)
    assert world.statuses == undivided.statuses
    assert {job.step_id for job in world.jobs} == {job.step_id for job in undivided.jobs}


WAITING_JOIN = {"some": [{"var": "input.list"}, {"==": [{"var": ""}, -1]}]}


def heavy_joins(**first: Any) -> Json:
    """Steps whose joins take much work, and go on waiting until both parents are final."""
    joins = (step(f"j{n}", after="a b", join=WAITING_JOIN) for n in range(COUNT))
    return document(step("a"), step("b"), *joins, step("last", after="a", **first))


@pytest.mark.parametrize("reload", [False, True])
def test_joins_that_take_much_work_and_go_on_waiting_are_divided_and_end(reload: bool) -> None:
    world = world_of(heavy_joins(), inputs=INPUTS)
    world.advance()

    spent = turns(world, world.result("a", {}), work=WORK, reload=reload)

    assert_divided(spent)
    assert len(spent) <= COUNT + 2, "every turn evaluates the next join, even if the record was loaded"
    assert {world.statuses[f"j{n}"] for n in range(COUNT)} == {"ready"}
    assert sorted(world.out) == ["b", "last"]

    spent = turns(world, world.result("b", {}), work=WORK, reload=reload)

    assert_divided(spent)
    assert len(spent) <= 2 * COUNT + 2
    assert {world.statuses[f"j{n}"] for n in range(COUNT)} == {"skipped"}


def test_joins_that_wait_are_divided_while_a_step_before_them_waits_for_a_worker() -> None:
    joins = (step(f"j{n}", after="a b", join=WAITING_JOIN) for n in range(COUNT))
    spec = document(step("a"), step("b"), step("c"), step("d"), *joins, runner={"max_workers": 2})
    world = world_of(spec, inputs=INPUTS)
    world.advance()

    spent = turns(world, world.result("a", {}), work=WORK, reload=True)

    assert len(spent) <= COUNT + 2
    assert sorted(world.out) == ["b", "c"]


def test_an_event_that_comes_between_two_turns_has_its_steps_evaluated() -> None:
    """The steps before the place where a decision stopped are evaluated again if another event allows it."""
    eager = step("early", after="a c", join={"var": "steps.c.output.ok"})
    joins = (step(f"j{n}", after="a b", join=WAITING_JOIN) for n in range(3))
    world = world_of(document(step("a"), step("b"), step("c"), eager, *joins), inputs=INPUTS)
    world.advance()
    decided = decide(world.record, [world.result("a", {})], world.moment(), None, Turn(WORK))
    world._commit(decided.changes)
    assert decided.changes.continue_at == "j1"
    resume = ContinueEvent(world.record.workflow_execution_id, "j1")
    world.reload()

    turns(world, world.result("c", {"ok": True}), resume, work=WORK, reload=True)

    assert "early" in world.out


def test_a_decision_that_begins_at_a_later_step_does_not_take_the_workflow_for_stalled() -> None:
    """An event has reset the first step, and is followed by the `continue` of a decision before it."""
    world = world_of(document(step("a"), step("b", after="a")))

    spent = turns(world, ContinueEvent(world.record.workflow_execution_id, "b"))

    assert len(spent) == 2
    assert list(world.out) == ["a"]


def test_the_items_of_a_map_are_not_resolved_in_one_turn() -> None:
    spec = document(map_step("m", {"var": "input.short"}, input={"x": HEAVY, "n": {"var": "item"}}))
    world = world_of(spec, inputs={**INPUTS, "short": list(range(COUNT))})

    assert_divided(turns(world, work=WORK))

    assert [job.inputs["n"] for job in world.jobs] == list(range(COUNT))


def test_results_that_take_much_work_each_are_not_applied_in_one_turn() -> None:
    spec = document(*(step(f"s{n}", output={"x": HEAVY}) for n in range(COUNT)), step("last", after="s0"))
    world = world_of(spec, inputs=INPUTS)
    world.advance()

    spent = turns(world, *(world.result(f"s{n}", {}) for n in range(COUNT)), work=WORK)

    assert_divided(spent)
    assert [step_id for step_id, status in world.statuses.items() if status != "complete"] == ["last"]
    assert list(world.out) == ["last"]


def test_compensations_whose_inputs_fail_are_not_tried_in_one_turn() -> None:
    undo = {"fn": "undo", "input": {"x": {"/": [1, {"if": [HEAVY, 1, 0]}]}}}
    spec = document(*(step(f"s{n}", compensate=undo) for n in range(COUNT)), step("bad", on_error="fail"))
    world = world_of(spec, inputs=INPUTS)
    world.advance()
    world.decide(*(world.result(f"s{n}", {}) for n in range(COUNT)))

    assert_divided(turns(world, world.error("bad"), work=WORK))

    assert str(world.record.status) == "failed"
    assert world.record.error is not None
    errors = world.record.error["compensation_errors"]
    assert [error["step"] for error in errors] == [f"s{n}" for n in reversed(range(COUNT))]


def test_the_outputs_of_a_workflow_have_a_turn_of_their_own() -> None:
    world = world_of(document(step("a", output={"x": HEAVY}), outputs={"x": HEAVY}), inputs=INPUTS)
    world.advance()

    spent = turns(world, world.result("a", {}), work=WORK)

    assert len(spent) == 2
    assert (str(world.record.status), world.record.outcome) == ("complete", {"x": False})


def test_many_transitions_without_expressions_are_divided() -> None:
    work = 3_000
    count = 2 * work // TRANSITION_WORK
    switch = {"switch": {"on": {"var": "input.x"}, "cases": {"1": []}}}
    spec = document(*({"id": f"s{n}", **switch} for n in range(count)))
    world = world_of(spec, inputs={"x": 1}, checked=False)

    spent = turns(world, work=work)

    assert 2 <= len(spent) < 10
    assert str(world.record.status) == "complete"


def test_a_decision_within_its_work_is_not_divided() -> None:
    world = world_of(document(*(step(f"s{n}", when=True) for n in range(100))))

    assert len(turns(world)) == 1
    assert len(world.jobs) == 100


@pytest.mark.untraced
def test_fifteen_steps_that_spend_all_they_may_take_fifteen_turns() -> None:
    spec = document(*(step(f"s{n}", when=TOO_HEAVY, on_error="continue") for n in range(COUNT)), step("b"))
    world = world_of(spec, inputs={"list": list(range(100_000))}, checked=False)

    spent = turns(world)

    assert len(spent) == COUNT + 1
    assert max(spent) < MAX_TURN_WORK + MAX_WORK
    assert [world.error_kind(f"s{n}") for n in range(COUNT)] == ["expression"] * COUNT
    assert list(world.out) == ["b"]


@pytest.mark.untraced
def test_the_expressions_of_one_step_share_its_limit() -> None:
    spec = document(
        step("a", input={f"x{n}": HEAVY for n in range(3)}, on_error="continue"),
        step("b", when={"!": [HEAVY]}, input={"x": HEAVY}, on_error="continue"),
        step("c", output={"x": HEAVY}, branch=[when(HEAVY, "skip")], on_error="continue"),
    )
    world = world_of(spec, inputs={"list": list(range(20_000))})
    turns(world)

    turns(world, world.result("c", {}))

    assert [world.error_kind(step_id) for step_id in "abc"] == ["expression"] * 3
    assert "more than 100,000 units of work" in (world["a"].error or {})["message"]


@pytest.mark.parametrize(
    "keys",
    [
        {"input": {f"k{n}": {"var": "input.big"} for n in range(1_000)}},
        {"map": {"over": [{"var": "input.big"}] * 1_000}},
    ],
)
def test_values_that_share_a_large_part_are_measured_before_they_are_written(keys: Json) -> None:
    world = world_of(document(step("a", **keys)), inputs={"big": "x" * 1_000_000})

    world.advance()

    assert world.error_kind("a") == "expression"
    assert re.search("more than [0-9,]+ bytes", (world["a"].error or {})["message"])


def test_large_inputs_are_measured_exactly() -> None:
    spec = document(
        step("a", input={"x": {"var": "input.x"}}),
        step("b", input={"x": {"var": "input.x"}, "y": {"var": "input.x"}}, on_error="continue"),
    )
    world = world_of(spec, inputs={"x": "\u017e" * 3_000_000})  # each character has two bytes

    turns(world)

    assert list(world.out) == ["a"]
    assert "have 12,000,015 bytes; the limit is 8,388,608" in (world["b"].error or {})["message"]


@pytest.mark.parametrize("where", ["output", "result_expr", "outputs"])
def test_outputs_that_share_a_large_part_are_measured_before_they_are_written(where: str) -> None:
    large = {f"k{n}": {"var": "input.big"} for n in range(1_000)}
    branch = [when(True, "halt", result_expr=large)] if where == "result_expr" else []
    output = large if where == "output" else None
    spec = document(step("a", branch=branch, output=output), outputs=large if where == "outputs" else {})
    world = world_of(spec, inputs={"big": "x" * 1_000_000})
    world.advance()

    world.finish("a", {})

    assert str(world.record.status) == "failed"
    assert (world.record.error or {})["kind"] == "expression"
    assert f"more than {MAX_RESOLVED_BYTES:,} bytes" in (world.record.error or {})["message"]


def test_a_value_that_is_too_deep_is_a_failure() -> None:
    deep: Any = 1
    for _ in range(MAX_RESOLVED_DEPTH):
        deep = [deep]
    world = world_of(document(step("a", input={"x": {"var": "input.deep"}})), inputs={"deep": deep})

    world.advance()

    assert "levels deep" in (world["a"].error or {})["message"]


def test_a_map_has_a_limited_number_of_items() -> None:
    inputs = {"few": [0] * MAX_ITEMS, "many": [0] * (MAX_ITEMS + 1)}
    spec = document(
        map_step("few", {"var": "input.few"}), map_step("many", {"var": "input.many"}, on_error="continue")
    )
    world = world_of(spec, inputs=inputs, checked=False)

    turns(world)

    assert world.counts("few").count == MAX_ITEMS
    assert "gives 10,001 items; the limit is 10,000" in (world["many"].error or {})["message"]


def test_a_map_that_has_begun_with_more_items_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was started by an earlier release, which had no such limit."""
    over = {"var": "input.items"}
    world = world_of(
        document({**map_step("m", over), "map": {"over": over, "max_parallel": 1}}),
        inputs={"items": [1, 2, 3]},
    )
    world.advance()
    monkeypatch.setattr(maps, "MAX_ITEMS", 2)
    world.reload()

    for n in range(3):
        world.finish(f"m#{n}", {})

    assert world.statuses == {"m": "complete"}


def test_maps_that_wait_for_their_turn_are_started_later() -> None:
    spec = document(*(map_step(f"m{n}", {"var": "input.items"}) for n in range(5)))
    world = world_of(spec, inputs={"items": list(range(800))}, checked=False)

    spent = turns(world, work=4_000)

    assert len(spent) >= 5
    assert set(world.statuses.values()) == {"in_progress"}
    assert len(world.jobs) == 5 * 800
