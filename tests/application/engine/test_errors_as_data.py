"""A result whose `ok` is false: without a branch that fires, the attempt has failed for `max_attempts`."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Halt
from orchestrator.application.spec.model import LoopSpec, MapSpec, RetrySpec, StepSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import branch, child, task, undo

REJECTED = {"ok": False, "error": "busy"}


def started(*steps: StepSpec, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def test_a_result_that_is_not_ok_is_retried_without_a_delay() -> None:
    world = started(task("a", max_attempts=3))

    world.finish("a", REJECTED)

    assert (world.statuses["a"], world["a"].attempt, world["a"].run_id) == ("in_progress", 2, 1)
    assert world["a"].error is None
    world.finish("a", {"n": 1})
    assert (world.record.status, world.executed) == ("complete", {"a": 2})


def test_after_the_last_attempt_the_step_completes_with_that_output() -> None:
    world = started(task("a", max_attempts=2), task("b", "a"))
    world.finish("a", REJECTED)

    world.finish("a", {"ok": False, "error": "still busy"})

    assert (world.statuses["a"], world["a"].output) == ("complete", {"ok": False, "error": "still busy"})
    assert (world.statuses["b"], world["a"].error) == ("in_progress", None)
    assert world.state == {"ok": False, "error": "still busy"}


@pytest.mark.parametrize(
    "output", [{"ok": 0}, {"ok": None}, {"ok": ""}, {"error": "busy"}, {"ok": True}, {}, None]
)
def test_only_the_json_value_false_is_not_ok(output: Any) -> None:
    world = started(task("a", max_attempts=3))

    world.finish("a", output)

    assert (world.record.status, world.executed) == ("complete", {"a": 1})


def test_retry_does_not_apply_to_a_result_that_is_not_ok() -> None:
    world = started(task("a", retry=RetrySpec(max_retries=5)))

    world.finish("a", REJECTED)

    assert (world.record.status, world.executed) == ("complete", {"a": 1})


def test_with_both_only_max_attempts_counts_and_there_is_no_delay() -> None:
    world = started(task("a", max_attempts=2, retry=RetrySpec(max_retries=5, initial_delay_ms=1000)))

    world.finish("a", REJECTED)
    assert (world.statuses["a"], world["a"].not_before_ms) == ("in_progress", None)
    world.finish("a", REJECTED)

    assert (world.record.status, world.executed) == ("complete", {"a": 2})


def test_branches_see_the_result_first() -> None:
    is_rejected = {"==": [{"var": "ok"}, False]}
    halting = started(task("a", max_attempts=3, branch=(branch(is_rejected, "halt", result="no"),)))
    content = started(task("a", max_attempts=3, branch=(branch(is_rejected, "complete"),)))

    assert halting.finish("a", REJECTED) == Halt("no")
    assert content.finish("a", REJECTED) == Complete({})
    assert (halting.executed, content.executed) == ({"a": 1}, {"a": 1})


def test_a_branch_that_does_not_fire_changes_nothing() -> None:
    world = started(task("a", max_attempts=2, branch=(branch({"var": "urgent"}, "halt"),)))

    world.finish("a", REJECTED)

    assert (world.statuses["a"], world["a"].attempt) == ("in_progress", 2)


def test_the_output_mapping_decides_what_is_ok() -> None:
    world = started(task("a", max_attempts=2, output={"ok": {"var": "result.accepted"}}))

    world.finish("a", {"accepted": False, "ok": True})

    assert (world.statuses["a"], world["a"].attempt) == ("in_progress", 2)


def test_the_outcome_of_a_child_that_is_not_ok_starts_another_child() -> None:
    world = started(child("a", max_attempts=2))

    world.end_child("a", REJECTED)
    assert (world.statuses["a"], world["a"].attempt) == ("in_progress", 2)
    world.end_child("a", REJECTED)

    assert (world.record.status, world["a"].output) == ("complete", REJECTED)


def test_items_of_a_map_are_data() -> None:
    world = started(task("a", max_attempts=3, map=MapSpec(over=[1])))

    world.finish("a#0", REJECTED)

    assert world["a"].output == {"items": [REJECTED], "count": 1, "errors": 0}
    assert (world.record.status, world.item("a#0").attempt, world.state) == ("complete", 1, {})


def test_a_map_whose_output_is_not_ok_is_not_repeated() -> None:
    world = started(task("a", max_attempts=3, map=MapSpec(over=[1]), output={"ok": {"var": "result.ok"}}))

    world.finish("a#0", REJECTED)

    assert world.record.status == "complete"


def test_the_value_of_a_loop_is_data() -> None:
    world = started(task("a", max_attempts=3, loop=LoopSpec()))

    world.finish("a", {"_loop": "done", "value": REJECTED})

    assert (world.record.status, world.executed) == ("complete", {"a": 1})


def test_the_output_of_a_compensation_is_data() -> None:
    world = started(task("a", **undo(retry=RetrySpec(max_retries=3))), task("b", "a"))
    world.finish("a")
    world.fail("b")

    world.finish("a#undo", REJECTED)

    assert (world.record.status, world.record.compensated) == ("failed", True)
    assert (world.item("a#undo").attempt, world.state) == (1, REJECTED | {"error": "boom"})


@pytest.mark.parametrize("output", [{"n": 1}, REJECTED])
def test_with_attempts_on_any_every_result_is_repeated(output: Any) -> None:
    world = started(task("a", max_attempts=3, attempts_on="any"))

    for _ in range(3):
        world.finish("a", output)

    assert (world.record.status, world.executed) == ("complete", {"a": 3})


def test_an_exception_after_a_result_that_is_not_ok_is_a_failure() -> None:
    world = started(task("a", max_attempts=2))

    world.finish("a", REJECTED)
    world.fail("a")

    assert (world.record.status, world["a"].error["message"] if world["a"].error else "") == (
        "failed",
        "boom",
    )
