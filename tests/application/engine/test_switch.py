"""A switch takes one of its paths; what stands on the others is filtered."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed, Halt, Pending
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.spec.model import Limits, RetrySpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import branch, switch, task

ON: Any = {"var": "input.k"}


def two_ways(k: Any, *, default: str | None = None, **keys: Any) -> EngineWorld:
    """s leads to x for "a" and to y for "b"; z is below both."""
    return world_of(
        switch("s", ON, {"a": "x", "b": "y"}, default, **keys),
        task("x", after="s"),
        task("y", after="s"),
        task("z", after="x y"),
        inputs={"k": k},
    )


def test_the_steps_of_the_chosen_case_run_and_the_others_are_filtered_with_the_reason() -> None:
    world = two_ways("a")

    assert world.dispatched(world.advance()) == ["x"]
    assert world.statuses == {"s": "complete", "x": "in_progress", "y": "filtered", "z": "ready"}
    assert world["s"].output == {"branch": "a"}
    assert world["s"].ended_at is not None
    assert world.reason("y") == "not selected by switch s"
    assert world.dispatched(world.finish("x", {})) == ["z"]
    assert world.finish("z", {}) == Complete({})
    assert world.executed["s"] == 0


def test_the_filter_is_soft_and_reaches_what_stands_on_that_path_alone() -> None:
    world = world_of(
        switch("s", ON, {"a": "x", "b": "y"}),
        task("x", after="s"),
        task("y", after="s"),
        task("y2", after="y"),
        task("both", after="x y2"),
        task("s2", after="s"),
        inputs={"k": "a"},
    )

    assert world.dispatched(world.advance()) == ["x", "s2"]
    assert (world.statuses["y2"], world.reason("y2")) == ("filtered", "every parent was filtered")
    assert world.dispatched(world.finish("x", {})) == ["both"]


def test_a_listed_step_is_filtered_even_while_its_other_parents_run() -> None:
    world = world_of(
        task("p"), switch("s", ON, {"a": "", "b": "y"}), task("y", after="p s"), inputs={"k": "a"}
    )
    world.advance()

    assert (world.statuses["p"], world.statuses["y"]) == ("in_progress", "filtered")
    assert world.finish("p", {}) == Complete({})


def test_the_key_is_evaluated_when_the_switch_would_be_dispatched() -> None:
    world = world_of(
        task("p"),
        switch("s", {"var": "steps.p.output.k"}, {"a": "x"}, default="y", after="p"),
        task("x", after="s"),
        task("y", after="s"),
    )
    world.advance()
    assert world.statuses["s"] == "ready"

    assert world.dispatched(world.finish("p", {"k": "a"})) == ["x"]


def test_no_match_takes_the_default() -> None:
    world = two_ways("other", default="y")

    assert world.dispatched(world.advance()) == ["y"]
    assert world["s"].output == {"branch": "other"}
    assert world.statuses["x"] == "filtered"


def test_a_match_filters_what_only_the_default_lists() -> None:
    world = world_of(
        switch("s", ON, {"a": "x"}, default="d"),
        task("x", after="s"),
        task("d", after="s"),
        inputs={"k": "a"},
    )

    assert world.dispatched(world.advance()) == ["x"]
    assert (world.statuses["d"], world.reason("d")) == ("filtered", "not selected by switch s")


def test_an_empty_default_filters_all_that_is_listed() -> None:
    world = two_ways("other", default="")

    assert world.advance() == Complete({})
    assert world.statuses == {"s": "complete", "x": "filtered", "y": "filtered", "z": "filtered"}


def test_a_step_may_stand_in_several_cases() -> None:
    for key, runs in (("a", ["x"]), ("b", ["x", "y"]), ("c", ["y"])):
        world = world_of(
            switch("s", ON, {"a": "x", "b": "x y", "c": "y"}),
            task("x", after="s"),
            task("y", after="s"),
            inputs={"k": key},
        )
        assert world.dispatched(world.advance()) == runs


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (1, "1"),
        (1.0, "1"),
        (-3, "-3"),
        (2.5, "2.5"),
        (0, "0"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        ("", ""),
        ("true", "true"),
    ],
)
def test_numbers_booleans_and_null_are_keys_as_json_writes_them(value: Any, key: str) -> None:
    world = world_of(switch("s", ON, {key: "x"}), task("x", after="s"), inputs={"k": value})

    assert world.dispatched(world.advance()) == ["x"]
    assert world["s"].output == {"branch": key}


@pytest.mark.parametrize("value", [[1], {"a": 1}])
def test_a_key_that_is_no_text_and_no_number_fails_the_switch(value: Any) -> None:
    world = two_ways(value, default="y")

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert "switch.on must give a string or a number" in decision.error["message"]


# ---- no_branch


def test_no_match_and_no_default_is_the_failure_no_branch() -> None:
    world = two_ways("other")

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error == {
        "kind": "no_branch",
        "message": "no case for 'other', and no default; the cases are: a, b",
        "step": "s",
    }
    assert world.statuses == {"s": "failed", "x": "skipped", "y": "skipped", "z": "skipped"}


def test_a_switch_without_cases_says_that_there_are_none() -> None:
    world = world_of(switch("s", ON), inputs={"k": "a"})

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["message"] == "no case for 'a', and no default; the cases are: none"


@pytest.mark.parametrize(
    ("policy", "status", "below"), [("skip", "skipped", "skipped"), ("continue", "failed", "in_progress")]
)
def test_the_policies_of_a_failure_hold_for_no_branch(policy: str, status: str, below: str) -> None:
    world = two_ways("other", on_error=policy)
    world.advance()

    assert (world.statuses["s"], world.statuses["x"], world.statuses["y"]) == (status, below, below)
    assert world.error_kind("s") == "no_branch"


def test_no_branch_is_not_retried() -> None:
    world = two_ways("other", max_attempts=5, retry=RetrySpec())

    assert isinstance(world.advance(), Failed)
    assert world["s"].attempt == 1


def test_branches_see_no_branch_and_may_forgive_it() -> None:
    world = two_ways("other", branch=(branch({"==": [{"var": "ok"}, False]}, "complete"),))

    assert world.dispatched(world.advance()) == ["x", "y"]
    assert (world.statuses["s"], world["s"].error) == ("complete", None)


# ---- branches of a switch


def test_a_branch_of_a_switch_sees_the_key_and_may_halt() -> None:
    world = two_ways("a", branch=(branch({"==": [{"var": "branch"}, "a"]}, "halt", result="stop"),))

    assert world.advance() == Halt("stop")
    assert (world.statuses["s"], world.statuses["x"], world.statuses["z"]) == ("halted", "ready", "ready")
    assert world.record.status is WorkflowStatus.HALTED


def test_a_switch_that_a_branch_skips_skips_what_it_had_selected() -> None:
    world = two_ways("a", branch=(branch(True, "skip"),))

    assert world.advance() == Complete({})
    assert world.statuses == {"s": "skipped", "x": "skipped", "y": "filtered", "z": "skipped"}


def test_a_switch_that_sets_itself_for_ever_runs_into_the_limit() -> None:
    world = world_of(
        switch("s", 1, {"1": "x"}, branch=(branch(True, {"set": "s"}),)),
        task("x", after="s"),
        limits=Limits(max_runs=10),
    )

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "loop_limit"


# ---- with filters, joins and one another


def test_a_filtered_switch_chooses_nothing() -> None:
    world = two_ways("a", guards=({"==": [1, 2]},))

    assert world.advance() == Complete({})
    assert world.statuses == dict.fromkeys(("s", "x", "y", "z"), "filtered")
    assert world.reason("x") == "every parent was filtered"


def test_nested_switches_filter_the_whole_path_that_is_not_taken() -> None:
    def nested(outer: str, inner: str) -> EngineWorld:
        return world_of(
            switch("s", {"var": "input.o"}, {"a": "t", "b": "v"}),
            switch("t", {"var": "input.i"}, {"1": "x", "2": "y"}, after="s"),
            task("x", after="t"),
            task("y", after="t"),
            task("v", after="s"),
            task("end", after="x y v"),
            inputs={"o": outer, "i": inner},
        )

    world = nested("a", "2")
    assert world.dispatched(world.advance()) == ["y"]
    assert (world.reason("v"), world.reason("x")) == ("not selected by switch s", "not selected by switch t")
    assert world.dispatched(world.finish("y", {})) == ["end"]

    world = nested("b", "2")
    assert world.dispatched(world.advance()) == ["v"]
    assert [world.statuses[one] for one in "txy"] == ["filtered"] * 3
    assert world["t"].output is None
    assert world.dispatched(world.finish("v", {})) == ["end"]


def test_a_step_listed_by_two_switches_needs_both() -> None:
    for a, b, status in (("1", "1", "in_progress"), ("1", "0", "filtered"), ("0", "1", "filtered")):
        world = world_of(
            switch("s", {"var": "input.a"}, {"1": "x"}, default=""),
            switch("t", {"var": "input.b"}, {"1": "x"}, default=""),
            task("x", after="s t"),
            inputs={"a": a, "b": b},
        )
        world.advance()
        assert world.statuses["x"] == status


def test_an_early_join_that_ran_before_the_switch_chose_is_left_alone() -> None:
    world = world_of(
        task("p"),
        task("q"),
        switch("s", ON, {"a": "x"}, default="", after="q"),
        task("x", after="p s", join=1),
        inputs={"k": "other"},
    )
    world.play(p={}, q={})

    assert (world.statuses["s"], world.statuses["x"]) == ("complete", "in_progress")


def test_a_switch_may_choose_a_step_that_stands_before_it_in_the_spec() -> None:
    world = world_of(
        task("y", after="s"), task("x", after="s"), switch("s", ON, {"a": "x", "b": "y"}), inputs={"k": "a"}
    )

    assert world.dispatched(world.advance()) == ["x"]


# ---- resets


def test_a_reset_of_the_switch_lets_it_choose_again() -> None:
    world = world_of(
        switch("s", {"var": ["state.k", "a"]}, {"a": "x", "b": "y"}),
        task("x", after="s", branch=(branch({"var": "k"}, {"set": "s"}),)),
        task("y", after="s"),
    )
    world.advance()

    assert world.dispatched(world.finish("x", {"k": "b"})) == ["y"]
    assert world.statuses == {"s": "complete", "x": "filtered", "y": "in_progress"}
    assert world["s"].output == {"branch": "b"}
    assert (world["s"].round, world["x"].round, world["y"].round) == (1, 1, 1)


def test_what_is_not_selected_is_filtered_again_after_a_reset_of_the_switch() -> None:
    world = world_of(
        switch("s", ON, {"a": "x", "b": "y"}),
        task("x", after="s", branch=(branch({"var": "again"}, {"set": "s"}),)),
        task("y", after="s"),
        inputs={"k": "a"},
    )
    world.advance()

    assert world.dispatched(world.finish("x", {"again": True})) == ["x"]
    assert (world.statuses["y"], world["y"].round) == ("filtered", 1)
    assert world.reason("y") == "not selected by switch s"


NOT_ASKED = "a listed step that is reset without its switch runs: the chosen case is not checked"


def test_what_is_not_selected_is_filtered_again_when_it_is_reset_by_itself() -> None:
    world = world_of(
        switch("s", ON, {"a": "x", "b": "y"}),
        task("x", after="s", branch=(branch({"var": "again"}, {"set": "y"}),)),
        task("y", after="s"),
        inputs={"k": "a"},
    )
    world.advance()

    assert world.dispatched(world.finish("x", {"again": True})) == ["x"]
    assert (world.statuses["y"], world["y"].round) == ("filtered", 1)


def test_what_is_not_selected_is_filtered_again_when_another_parent_is_reset() -> None:
    world = world_of(
        task("p"),
        switch("s", ON, {"a": "x", "b": "y"}),
        task("x", after="s p", branch=(branch({"var": "again"}, {"set": "p"}),)),
        task("y", after="s p"),
        inputs={"k": "a"},
    )
    world.play(p={}, x={"again": True})

    assert world.dispatched(world.finish("p", {})) == ["x"]
    assert world.statuses["y"] == "filtered"


def test_a_selected_step_that_is_reset_by_itself_runs_again() -> None:
    world = world_of(
        switch("s", ON, {"a": "x", "b": "y"}),
        task("x", after="s", branch=(branch({"var": "again"}, {"set": "x"}),)),
        task("y", after="s"),
        inputs={"k": "a"},
    )
    world.advance()

    assert world.dispatched(world.finish("x", {"again": True})) == ["x"]
    assert world.statuses["y"] == "filtered"
    assert world.finish("x", {}) == Complete({})


def test_a_switch_waits_for_no_capacity() -> None:
    world = world_of(
        task("p"),
        switch("s", ON, {"a": "x"}, default=""),
        task("x", after="s"),
        max_workers=1,
        inputs={"k": "b"},
    )
    world.advance()

    assert world.statuses == {"p": "in_progress", "s": "complete", "x": "filtered"}
    assert world.advance() == Pending()
