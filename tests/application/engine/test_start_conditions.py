"""What stands between a step and its dispatch: conditions, and what it requires."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Dispatch, Failed, Pending
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import RetrySpec, StepSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, delay, switch, task

NO: Any = {"==": [1, 2]}
YES: Any = {"==": [1, 1]}


# ---- when and filters


def test_a_step_whose_condition_holds_runs() -> None:
    world = world_of(task("a", guards=(YES, {"==": [{"var": "input.n"}, 3]})), inputs={"n": 3})

    assert world.dispatched(world.advance()) == ["a"]


def test_a_step_whose_condition_does_not_hold_is_filtered_and_says_why() -> None:
    world = world_of(task("a", guards=(NO,)), task("b"))

    decision = world.advance()

    assert world.dispatched(decision) == ["b"]
    assert world["a"] == StepRecord(
        StepStatus.FILTERED, reason="its condition is false", ended_at="2026-01-01T00:00:00.000Z"
    )
    assert {"step": "a", "from": "ready", "to": "filtered"}.items() <= world.history[0].items()
    assert world.history[0]["reason"] == "its condition is false"


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        (True, True),
        (False, False),
        (1, True),
        (0, False),
        ("", False),
        ("0", True),
        ([], False),
        ([0], True),
        (None, False),
    ],
)
def test_a_condition_holds_if_its_value_is_truthy(value: Any, runs: bool) -> None:
    world = world_of(task("a", guards=({"var": "input.x"},)), inputs={"x": value})

    assert isinstance(world.advance(), Dispatch) == runs


def test_every_condition_must_hold() -> None:
    world = world_of(task("a", guards=(YES, NO)), task("b", guards=(NO, YES)), task("c", guards=(YES, YES)))

    world.advance()

    assert world.statuses == {"a": "filtered", "b": "filtered", "c": "in_progress"}


def test_conditions_are_evaluated_in_their_order_and_the_first_false_one_ends_it() -> None:
    world = world_of(task("a", guards=(NO, BROKEN)), task("b", guards=(BROKEN, NO), on_error="continue"))

    world.advance()

    assert world.statuses == {"a": "filtered", "b": "failed"}


def test_a_condition_is_evaluated_when_the_parents_are_final_and_sees_what_they_left() -> None:
    sees = (
        {"==": [{"var": "steps.a.output.n"}, 1]},
        {"==": [{"var": "flows.a.n"}, 1]},
        {"==": [{"var": "state.n"}, 1]},
        {"==": [{"var": "ctx.status.a"}, "complete"]},
        {"==": [{"var": "ctx.step.id"}, "b"]},
    )
    world = world_of(task("a"), task("b", after="a", guards=sees))

    assert world.dispatched(world.advance()) == ["a"]
    assert world.statuses["b"] == "ready"
    assert world.dispatched(world.finish("a", {"n": 1})) == ["b"]


def test_filter_false_on_the_fan_in_step_itself_filters_it_and_its_dependents_follow_the_rules() -> None:
    world = world_of(
        task("a"),
        task("b"),
        task("join", after="a b", guards=(NO,)),
        task("only", after="join"),
        task("both", after="a join"),
    )

    decision = world.play(a={}, b={})

    assert world.dispatched(decision) == ["both"]
    assert world.statuses["join"] == "filtered"
    assert (world.statuses["only"], world.reason("only")) == ("filtered", "every parent was filtered")


def test_all_steps_filtered_completes_the_workflow_with_outputs_mostly_null() -> None:
    world = world_of(
        task("a", guards=(NO,)),
        task("b", after="a"),
        task("c", after="b"),
        outputs={"n": {"var": "steps.c.output.n"}, "m": 1},
    )

    assert world.advance() == Complete({"n": None, "m": 1})
    assert world.statuses == dict.fromkeys("abc", "filtered")
    assert world.record.status is WorkflowStatus.COMPLETE


def test_a_chain_below_a_filtered_step_is_filtered_whatever_its_policies_and_conditions() -> None:
    world = world_of(
        task("a", guards=(NO,)),
        task("b", after="a", on_error="continue", guards=(BROKEN,)),
        task("c", after="b", on_error="skip", required=("input.none",)),
    )

    assert world.advance() == Complete({})
    assert world.statuses == dict.fromkeys("abc", "filtered")


@pytest.mark.parametrize("first", ["filtered", "skipped", "failed"])
def test_set_on_a_skipped_filtered_or_failed_step_resets_it_and_its_condition_is_evaluated_again(
    first: str,
) -> None:
    world = world_of(
        task("z"),
        task(
            "a",
            after="z",
            guards=({"var": "state.go"},),
            on_error="continue",
            branch=(branch({"var": "skip"}, "skip"),),
        ),
        task("b", after="a", join="done", branch=(branch({"var": "again"}, {"set": "a"}),)),
    )
    world.play(z={"go": first != "filtered"})
    if first == "skipped":
        world.finish("a", {"skip": True})
    if first == "failed":
        world.fail("a")
    assert world.statuses["a"] == first

    world.finish("b", {"again": True, "go": True})

    assert world.statuses["a"] == "in_progress"
    assert (world["a"].run_id, world["a"].round, world["a"].error, world["a"].reason) == (1, 1, None, None)


def test_a_filtered_step_that_is_reset_may_be_filtered_again() -> None:
    world = world_of(
        task("a", guards=(NO,)),
        task("b", after="a", join="done", branch=(branch({"var": "again"}, {"set": "a"}),)),
    )
    world.advance()

    assert world.dispatched(world.finish("b", {"again": True})) == ["b"]
    assert (world.statuses["a"], world["a"].round) == ("filtered", 1)


def test_a_condition_sees_the_state_of_the_decision_it_is_part_of() -> None:
    world = world_of(task("a"), task("b", after="a", guards=({"!": [{"var": "state.stop"}]},)))

    assert world.play(a={"stop": True}) == Complete({})
    assert world.statuses["b"] == "filtered"


# ---- required


@pytest.mark.parametrize("value", [0, "", False, [], {}, "x"])
def test_what_is_required_may_be_empty_but_not_null(value: Any) -> None:
    world = world_of(task("a", required=("input.x",)), inputs={"x": value})

    assert world.dispatched(world.advance()) == ["a"]


@pytest.mark.parametrize("inputs", [{}, {"x": None}], ids=["absent", "null"])
def test_a_required_value_that_is_null_or_absent_fails_the_step(inputs: dict[str, Any]) -> None:
    world = world_of(task("a", required=("ctx.step.id", "input.x")), inputs=inputs)

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert decision.error["message"] == "step cannot be evaluated: required 'input.x' is missing"
    assert decision.error["step"] == "a"
    assert world.jobs == []


def test_required_reads_what_the_parents_left() -> None:
    world = world_of(
        task("a"),
        task("b", guards=(NO,)),
        task("c", after="a b", required=("steps.a.output.n",)),
        task("d", after="a b", required=("steps.b.output",), on_error="continue"),
    )

    world.play(a={"n": 0})

    assert (world.statuses["c"], world.statuses["d"]) == ("in_progress", "failed")


def test_a_filtered_step_requires_nothing_and_is_not_deferred() -> None:
    world = world_of(task("a", guards=(NO,), required=("input.x",), defer_ms=1000))

    assert world.advance() == Complete({})
    assert world["a"].wake_at_ms is None


def test_a_step_that_lacks_what_it_requires_is_not_deferred() -> None:
    world = world_of(task("a", required=("input.x",), defer_ms=1000))

    assert isinstance(world.advance(), Failed)
    assert world.armed == set()


# ---- errors at the gates


def _broken_guard(**keys: Any) -> StepSpec:
    return task("p", after="z", guards=(BROKEN,), **keys)


def _lacking(**keys: Any) -> StepSpec:
    return task("p", after="z", required=("input.none",), **keys)


def _broken_join(**keys: Any) -> StepSpec:
    return task("p", after="z", join=BROKEN, **keys)


def _broken_switch(**keys: Any) -> StepSpec:
    return switch("p", BROKEN, {"a": "d"}, default="", after="z", **keys)


def _unfit_switch(**keys: Any) -> StepSpec:
    return switch("p", {"var": "input.xs"}, {"a": "d"}, default="", after="z", **keys)


def _broken_input(**keys: Any) -> StepSpec:
    return task("p", after="z", input={"n": BROKEN}, **keys)


GATES = [_broken_guard, _lacking, _broken_join, _broken_switch, _unfit_switch, _broken_input]


def at_the_gate(gate: Any, **keys: Any) -> EngineWorld:
    """z, then p that cannot be judged, then d; e is on its own."""
    world = world_of(
        task("z"), gate(**keys), task("d", after="p"), task("e", on_error="skip"), inputs={"xs": [1]}
    )
    world.advance()
    if world.statuses["p"] == "ready":
        world.finish("z", {})
    return world


@pytest.mark.parametrize("gate", GATES)
def test_an_error_at_a_gate_is_a_failure_expression_and_stops_the_workflow(gate: Any) -> None:
    world = at_the_gate(gate)

    assert world.record.status is WorkflowStatus.FAILED
    assert world.record.error is not None
    assert (world.record.error["kind"], world.record.error["step"]) == ("expression", "p")
    assert world.error_kind("p") == "expression"
    assert world.statuses["p"] == "failed"
    assert world.statuses["d"] == "skipped"
    assert world.statuses["e"] in ("cancelled", "skipped")  # as it was under way, or not yet


@pytest.mark.parametrize("gate", GATES)
def test_an_error_at_a_gate_is_not_retried_and_merges_nothing_and_no_branch_is_asked(gate: Any) -> None:
    patient = {
        "max_attempts": 5,
        "retry": RetrySpec(max_retries=5),
        "branch": (branch(True, "complete"),),
        "on_error": "continue",
    }
    world = at_the_gate(gate, **patient)

    assert world.statuses["p"] == "failed"
    assert (world["p"].attempt, world["p"].run_id, world["p"].dispatches) == (1, 0, 0)
    assert world["p"].output is None
    assert world.state == {}
    assert world["p"].ended_at is not None


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    ("policy", "failing", "dependent"),
    [("skip", "skipped", "skipped"), ("continue", "failed", "in_progress")],
)
def test_the_policies_of_a_failure_hold_for_an_error_at_a_gate(
    gate: Any, policy: str, failing: str, dependent: str
) -> None:
    world = at_the_gate(gate, on_error=policy)

    assert (world.statuses["p"], world.statuses["d"]) == (failing, dependent)
    assert world.error_kind("p") == "expression"
    assert world.record.status is WorkflowStatus.IN_PROGRESS
    assert world.statuses["e"] == "in_progress"


def test_a_step_that_fails_at_its_gate_does_not_keep_the_others_from_running() -> None:
    world = world_of(
        task("a", guards=(BROKEN,), on_error="skip"),
        task("b"),
        task("c", required=("input.x",), on_error="continue"),
        task("d", after="a"),
        task("e", after="c"),
    )

    assert world.dispatched(world.advance()) == ["b", "e"]
    assert world.statuses["d"] == "skipped"
    assert world.reason("d") == "parent a failed"


def test_when_one_gate_ends_the_workflow_nothing_that_was_judged_before_it_is_dispatched() -> None:
    world = world_of(task("a"), task("b", guards=(BROKEN,)), task("c"))

    assert isinstance(world.advance(), Failed)
    assert world.statuses == {"a": "skipped", "b": "failed", "c": "skipped"}
    assert world.jobs == []
    assert world.out == {}


def test_inputs_that_cannot_be_resolved_end_the_workflow_before_anything_is_claimed() -> None:
    world = world_of(task("a"), task("b", input={"n": BROKEN}), task("c"))

    assert isinstance(world.advance(), Failed)
    assert world.statuses == {"a": "skipped", "b": "failed", "c": "skipped"}
    assert world.last.jobs == []


def test_a_failure_in_the_inputs_of_one_step_frees_others_in_the_same_decision() -> None:
    world = world_of(
        task("b", after="a"), task("a", input={"n": BROKEN}, on_error="continue"), task("c"), max_workers=3
    )

    assert world.dispatched(world.advance()) == ["c", "b"]


# ---- other processes


def test_a_paused_workflow_evaluates_no_step() -> None:
    world = world_of(task("z"), task("a", after="z", guards=(BROKEN,), on_error="continue"))
    world.advance()
    world.pause()

    assert world.finish("z", {}) == Pending()
    assert world.statuses["a"] == "ready"
    assert world.unpause() == Complete({})
    assert world.statuses["a"] == "failed"


def test_a_step_held_back_for_want_of_capacity_fares_the_same_in_a_process_that_loads_the_record() -> None:
    fates = []
    for reloads in (False, True):
        world = world_of(task("a"), task("b", guards=({"!": [{"var": "state.stop"}]},)), max_workers=1)
        world.advance()
        if reloads:
            world.reload()
        world.finish("a", {"stop": True})
        fates.append(world.statuses["b"])

    assert fates[0] == fates[1]


def test_a_delay_is_guarded_like_any_other_step() -> None:
    world = world_of(delay("d", 1000, guards=(NO,)), task("a", after="d"))

    assert world.advance() == Complete({})
    assert world.statuses == {"d": "filtered", "a": "filtered"}
