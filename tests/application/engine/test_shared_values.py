"""Values beyond one execution: where outputs are written by their prefix, and what `kv_add` adds to."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.changes import SharedChange, add_numbers
from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.application.spec.model import KvScope, RetrySpec, StepSpec
from orchestrator.application.values.json_types import describe_type
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, map_step, task

ALL: tuple[KvScope, ...] = ("flow", "global", "flow_group")


def sharing(*steps: StepSpec, group: str | None = "g1", scopes: Any = ALL, **workflow: Any) -> EngineWorld:
    world = world_of(*steps, kv_scopes=scopes, **workflow)
    world.record.group = group
    return world


# ---- prefixes


def test_a_prefix_says_which_scope_an_output_is_written_to() -> None:
    world = sharing(task("a"))

    world.play(a={"own": 1, "flow:mine": 2, "global:all": 3, "flow_group:team": 4})

    assert world.state == {"own": 1, "mine": 2}
    assert world.shared == [SharedChange("global", "all", 3), SharedChange("flow_group", "team", 4)]
    assert [entry["shared"] for entry in world.history if "shared" in entry] == [
        "global:all",
        "flow_group:team",
    ]
    assert world["a"].output == {"own": 1, "flow:mine": 2, "global:all": 3, "flow_group:team": 4}


def test_without_kv_a_prefix_is_part_of_a_name() -> None:
    world = sharing(task("a"), scopes=None)

    world.play(a={"global:all": 3, "flow_group:team": 4, "flow:mine": 5})

    assert world.state == {"global:all": 3, "flow_group:team": 4, "flow:mine": 5}
    assert world.shared == []


def test_a_scope_that_is_not_declared_is_part_of_a_name() -> None:
    world = sharing(task("a"), scopes=("flow",), group=None)

    world.play(a={"global:all": 3, "flow_group:team": 4, "flow:mine": 5})

    assert world.state == {"global:all": 3, "flow_group:team": 4, "mine": 5}
    assert world.shared == []


@pytest.mark.parametrize("key", ["global:", "global", ":x", "other:x", "Global:x"])
def test_what_is_no_prefix_is_part_of_a_name(key: str) -> None:
    world = sharing(task("a"))

    world.play(a={key: 1})

    assert (world.state, world.shared) == ({key: 1}, [])


def test_only_the_first_colon_parts_scope_and_name() -> None:
    world = sharing(task("a"))

    world.play(a={"global:a:b": 1})

    assert world.shared == [SharedChange("global", "a:b", 1)]


def test_an_output_for_others_alone_leaves_the_state_as_it_is() -> None:
    world = sharing(task("a"))

    world.play(a={"global:all": 3})

    assert world.state == {}
    assert not [entry for entry in world.history if "state_changed" in entry]


def test_an_output_that_is_not_merged_is_not_shared_either() -> None:
    world = sharing(task("a", skip_output_mapping=True))

    world.play(a={"global:all": 3})

    assert world.shared == []


def test_an_error_is_no_value_to_share() -> None:
    world = sharing(task("a", on_error="continue"))

    world.play(a=ValueError("boom"))

    assert world.shared == []
    assert world.state == {"ok": False, "error": "boom"}


# ---- the scope of a group


def test_an_output_for_a_group_needs_one() -> None:
    world = sharing(task("a", retry=RetrySpec()), group=None)

    decision = world.play(a={"flow_group:team": 4, "n": 1})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "bad_output"
    assert decision.error["message"] == (
        "'flow_group:team' needs a group, and the execution was started without one"
    )
    assert "n" not in world.state


def test_an_output_that_is_not_merged_needs_no_group() -> None:
    world = sharing(task("a", skip_output_mapping=True), group=None)

    assert world.play(a={"flow_group:team": 4}) == Complete({})


def test_the_items_of_a_map_are_not_merged_and_need_no_group() -> None:
    world = world_of(map_step("m", [1]), kv_scopes=ALL)
    world.advance()

    assert world.finish("m#0", {"flow_group:team": 4}) == Complete({})


def test_adding_to_a_group_needs_one() -> None:
    world = sharing(task("a", kv_add={"flow_group:team": 1}), group=None)

    decision = world.play(a={})

    assert isinstance(decision, Failed)
    assert decision.error["message"] == (
        "kv_add of 'flow_group:team' needs a group, and the execution was started without one"
    )


# ---- kv_add


def test_what_is_added_is_said_as_an_addition_and_not_as_a_sum() -> None:
    """Others add too: only the store knows the sum."""
    world = sharing(task("a", kv_add={"global:total": {"var": "output.n"}, "flow_group:team": 2, "own": 3}))
    world.record.shared = {"global": {"total": 10}}

    world.play(a={"n": 5})

    assert world.shared == [
        SharedChange("global", "total", 5, is_increment=True),
        SharedChange("flow_group", "team", 2, is_increment=True),
    ]
    assert world.state == {"n": 5, "own": 3}
    assert [entry["shared"] for entry in world.history if "shared" in entry] == [
        "global:total",
        "flow_group:team",
    ]


def test_it_adds_without_kv_being_declared() -> None:
    world = sharing(task("a", kv_add={"global:total": 1, "flow:own": 2}), scopes=None)

    world.play(a={})

    assert world.shared == [SharedChange("global", "total", 1, is_increment=True)]
    assert world.state == {"own": 2}


@pytest.mark.parametrize(
    ("before", "amount", "total"),
    [
        (0, 1, 1),
        (1, -3, -2),
        (1.5, 1.5, 3),
        (0.1, 0.2, 0.1 + 0.2),
        (2**60, 1, 2**60 + 1),
        (1, 0.5, 1.5),
    ],
)
def test_numbers_add_up_and_whole_ones_stay_whole(before: Any, amount: Any, total: Any) -> None:
    world = sharing(task("a", kv_add={"sum": amount}))
    world.record.state["sum"] = before

    world.play(a={})

    assert repr(world.state["sum"]) == repr(total)


def test_a_float_beyond_the_whole_ones_stays_a_float() -> None:
    assert repr(add_numbers(1e15, 0.0)) == "1000000000000000.0"
    assert repr(add_numbers(1e14, 0.0)) == "100000000000000"


@pytest.mark.parametrize("amount", ["1", True, None, [1], {"n": 1}])
def test_only_a_number_can_be_added(amount: Any) -> None:
    world = sharing(task("a", kv_add={"sum": {"var": "n"}}, on_error="continue"))

    world.play(a={"n": amount})

    error = world["a"].error
    assert error is not None
    assert error["kind"] == "expression"
    assert error["message"].endswith(f"the amount must be a number, not {describe_type(amount)}")
    assert "sum" not in world.state


@pytest.mark.parametrize("there", ["text", True, None, [1]])
@pytest.mark.parametrize("key", ["global:sum", "sum"])
def test_a_number_can_only_be_added_to_a_number(key: str, there: Any) -> None:
    world = sharing(task("a", kv_add={key: 1}))
    world.record.shared = {"global": {"sum": there}}
    world.record.state["sum"] = there

    decision = world.play(a={})

    assert isinstance(decision, Failed)
    assert "the present value must be a number" in decision.error["message"]
    assert (world.shared, world.state["sum"]) == ([], there)


@pytest.mark.parametrize(("before", "amount"), [(1e308, 1e308), (0.5, 10**400), (10**400, 0.5)])
def test_a_sum_beyond_all_numbers_is_a_failure(before: Any, amount: Any) -> None:
    world = sharing(task("a", kv_add={"sum": {"var": "output.n"}}))
    world.record.state["sum"] = before

    decision = world.play(a={"n": amount})

    assert isinstance(decision, Failed)
    assert decision.error["message"] == "kv_add of 'sum': the sum is out of range"
    assert world.state["sum"] == before


@pytest.mark.parametrize("wrong", [BROKEN, "no number"])
def test_several_additions_are_made_all_or_none(wrong: Any) -> None:
    world = sharing(task("a", kv_add={"first": 1, "global:second": 1, "third": wrong}, on_error="continue"))

    world.play(a={"n": 1})

    assert (world.state, world.shared) == ({"n": 1}, [])
    assert world.error_kind("a") == "expression"


def test_a_failure_to_add_is_not_tried_again() -> None:
    world = sharing(task("a", kv_add={"sum": "x"}, retry=RetrySpec(), max_attempts=3))

    assert isinstance(world.play(a={}), Failed)


def test_nothing_is_added_when_the_step_does_not_complete() -> None:
    world = sharing(
        task("failed", kv_add={"global:n": 1}, on_error="continue"),
        task("skipped", kv_add={"global:n": 1}, branch=(branch(True, "skip"),)),
        task("retried", kv_add={"global:n": 1}, max_attempts=2),
        task("filtered", kv_add={"global:n": 1}, guards=(False,)),
    )

    world.play(failed=ValueError("boom"), skipped={}, retried=ValueError("boom"))

    assert world.shared == []


def test_a_branch_that_completes_a_failed_attempt_adds_too() -> None:
    forgives = branch({"==": [{"var": "ok"}, False]}, "complete")
    world = sharing(task("a", kv_add={"global:n": 1}, branch=(forgives,)))

    assert world.play(a=ValueError("boom")) == Complete({})

    assert world.shared == [SharedChange("global", "n", 1, is_increment=True)]


def test_each_repetition_of_a_success_adds_only_when_it_is_the_last() -> None:
    world = sharing(task("a", kv_add={"global:n": 1}, max_attempts=2, attempts_on="any"))
    world.advance()
    world.finish("a", {})

    assert world.shared == []
    world.finish("a", {})

    assert world.shared == [SharedChange("global", "n", 1, is_increment=True)]


def test_a_map_adds_once_for_all_its_items() -> None:
    world = world_of(map_step("m", [1, 2], kv_add={"global:n": {"var": "output.count"}}))
    world.advance()
    world.finish("m#0", {})

    world.finish("m#1", {})

    assert world.shared == [SharedChange("global", "n", 2, is_increment=True)]


def test_an_addition_without_an_output_sees_the_bare_context() -> None:
    world = sharing(task("a", kv_add={"sum": {"var": ["output.n", 7]}}))

    world.play(a=None)

    assert world.state == {"sum": 7}


# ---- reading what was written a moment before


def test_what_a_decision_writes_is_read_by_what_it_decides_next() -> None:
    world = sharing(
        task("a", kv_add={"global:total": 5, "flow_group:team": 1}),
        task(
            "b",
            after="a",
            input={
                "total": {"var": "kv.global.total"},
                "seen": {"var": "kv.global.seen"},
                "team": {"var": "kv.flow_group.team"},
                "kept": {"var": "kv.global.kept"},
                "short": {"var": "kv.total"},
            },
        ),
    )
    world.record.shared = {"global": {"total": 10, "kept": "k"}, "flow_group": {"team": 3}}

    world.play(a={"global:seen": "yes"})

    assert world.out["b"].inputs == {"total": 15, "seen": "yes", "team": 4, "kept": "k", "short": 15}


def test_two_additions_of_one_decision_both_count() -> None:
    world = sharing(
        task("a", kv_add={"global:total": 5, "own": 1}),
        task("b", kv_add={"global:total": 2, "own": 1}),
        task("c", after="a b", input={"total": {"var": "kv.global.total"}, "own": {"var": "state.own"}}),
    )
    world.record.shared = {"global": {"total": 10}}
    world.advance()

    world.decide(world.result("a", {}), world.result("b", {}))

    assert world.out["c"].inputs == {"total": 17, "own": 2}
    assert [change.value for change in world.shared] == [5, 2]


def test_an_addition_sees_the_output_it_belongs_to_and_the_state_with_it() -> None:
    amount = {"+": [{"var": "n"}, {"var": "state.n"}]}
    world = sharing(task("a", kv_add={"sum": amount}))

    world.play(a={"n": 4})

    assert world.state["sum"] == 8
