"""The keys `ok` and `error` of retried attempts are removed from the state when the step completes."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.audit.history import audit
from orchestrator.application.records.decisions import Complete
from orchestrator.application.spec.model import LoopSpec, MapSpec, RetrySpec, StepSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import branch, resets, task, undo

BOTH = ["ok", "error"]
FAILED = {"ok": False, "error": "boom"}
NOT_OK = {"===": [{"var": "ok"}, False]}


def started(*steps: StepSpec, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def patient(name: str, after: str = "", **keys: Any) -> StepSpec:
    return task(name, after, max_attempts=3, **keys)


def removals(world: EngineWorld) -> list[tuple[str, list[str]]]:
    return [(entry["step"], entry["state_removed"]) for entry in world.history if "state_removed" in entry]


@pytest.mark.parametrize("by_exception", [True, False])
def test_a_completed_execution_does_not_look_failed(by_exception: bool) -> None:
    world = started(patient("a"), outputs={"state": {"var": "state"}})
    world.fail("a") if by_exception else world.finish("a", FAILED)
    assert (world.state, world["a"].retried_keys) == (FAILED, BOTH)
    world.reload()

    assert world.finish("a", {"n": 1}) == Complete({"state": {"n": 1}})

    assert (world.state, world["a"].retried_keys) == ({"n": 1}, None)
    assert removals(world) == [("a", BOTH)]
    assert not audit(world.record, world.history)


def test_a_step_that_completes_without_an_output_removes_them_too() -> None:
    world = started(patient("a"))
    world.fail("a")

    world.finish("a", None)

    assert world.state == {}


def test_the_steps_after_it_no_longer_see_them() -> None:
    world = started(
        patient("a"), task("b", "a", input={"state": {"var": "state"}, "ok": {"var": "state.ok"}})
    )
    world.fail("a")

    world.finish("a", {"n": 1})

    assert world.inputs_of("b") == {"state": {"n": 1}, "ok": None}


def test_until_then_they_are_in_the_state() -> None:
    world = started(patient("a", input={"last": {"var": "state.error"}}))

    world.fail("a")

    assert world.inputs_of("a") == {"last": "boom"}


def test_keys_of_the_final_output_stay() -> None:
    world = started(patient("a"))
    world.fail("a")

    world.finish("a", {"ok": True})

    assert (world.state, removals(world)) == ({"ok": True}, [("a", ["error"])])


def test_keys_that_were_there_before_are_removed_and_not_restored() -> None:
    world = started(task("a"), patient("b", "a"))
    world.finish("a", {"ok": True, "n": 1})
    world.fail("b")

    world.finish("b", {"m": 2})

    assert world.state == {"n": 1, "m": 2}


def test_a_step_that_needed_no_retry_removes_nothing() -> None:
    world = started(task("a"), patient("b", "a"))
    world.finish("a", FAILED)

    world.finish("b", {"n": 1})

    assert (world.state, removals(world)) == ({**FAILED, "n": 1}, [])
    assert all("retried_keys" not in step.as_dict() for step in world.record.steps.values())


def test_an_output_that_is_not_merged_leaves_nothing_to_remove() -> None:
    world = started(patient("a", skip_output_mapping=True))

    world.fail("a")

    assert (world.state, world["a"].retried_keys) == ({}, None)


def test_a_scope_in_the_name_of_a_key_is_left_out() -> None:
    world = started(patient("a"), kv_scopes=("flow", "global"))

    world.finish("a", {"ok": False, "flow:error": "busy", "global:error": "shared"})
    assert (world.state, world["a"].retried_keys) == ({"ok": False, "error": "busy"}, BOTH)
    world.finish("a", {"flow:ok": 1})

    assert world.state == {"ok": 1}


# ---- other writers


def test_a_key_that_another_step_has_written_since_stays() -> None:
    world = started(patient("a"), task("b"))
    world.fail("a")
    world.finish("b", {"ok": True})
    world.reload()

    world.finish("a", {"n": 1})

    assert world.state == {"ok": True, "n": 1}


def test_a_key_that_another_step_wrote_before_is_removed() -> None:
    world = started(patient("a"), task("b"))
    world.finish("b", {"ok": True})
    world.fail("a")

    world.finish("a", {"n": 1})

    assert world.state == {"n": 1}


def test_the_same_value_from_another_step_is_a_write() -> None:
    world = started(patient("a"), task("b"))
    world.fail("a")
    world.finish("b", {"ok": False})

    world.finish("a", {"n": 1})

    assert world.state == {"ok": False, "n": 1}


def test_an_addition_of_another_step_is_a_write() -> None:
    world = started(patient("a"), task("b", kv_add={"ok": 1}))
    world.finish("a", {"ok": False, "error": "busy"})

    world.finish("b")  # false is no number
    assert world.error_kind("b") == "expression"

    world = started(patient("a"), task("b", kv_add={"error": 1}))
    world.finish("a", {"ok": False, "error": 3})
    world.finish("b")
    world.finish("a", {"n": 1})
    assert world.state == {"error": 4, "n": 1}


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_two_retried_steps_the_last_writer_removes_the_keys(first: str) -> None:
    world = started(patient("a"), patient("b"))
    world.fail("a", "of a")
    world.fail("b", "of b")
    assert [world[one].retried_keys for one in "ab"] == [None, BOTH]
    second = "b" if first == "a" else "a"

    world.finish(first, {first: 1})
    assert "ok" in world.state if first == "a" else "ok" not in world.state
    world.finish(second, {second: 1})

    assert world.state == {"a": 1, "b": 1}


def test_retries_of_several_steps_in_one_decision() -> None:
    world = started(patient("a"), patient("b"), patient("c"))
    world.decide(world.error("a", "of a"), world.error("b", "of b"), world.result("c", {"ok": False}))
    assert [world[one].retried_keys for one in "abc"] == [None, ["error"], ["ok"]]

    world.decide(
        world.result("b", {"b": 1}), world.result("c", {"error": "data"}), world.result("a", {"ok": 1})
    )

    assert world.state == {"b": 1, "error": "data", "ok": 1}
    assert not audit(world.record, world.history)


def test_a_key_that_is_removed_and_written_in_one_decision_is_in_the_state() -> None:
    world = started(patient("a"), task("b"))
    world.fail("a")

    world.decide(world.result("a", {"n": 1}), world.result("b", {"ok": False}))

    assert world.state == {"n": 1, "ok": False}
    assert not audit(world.record, world.history)
    assert (world.last.dropped_state, world.last.state) == ({"error"}, {"n": 1, "ok": False})


# ---- loops, retries and reruns of an execution


def test_a_set_keeps_them_until_the_step_completes() -> None:
    again = resets({"var": "again"}, "a")
    world = started(patient("a", branch=(again,)))
    world.fail("a")

    world.finish("a", {"again": True})
    assert (world["a"].attempt, world["a"].retried_keys) == (1, BOTH)
    world.finish("a", {"again": False})

    assert world.state == {"again": False}


def test_a_result_that_a_branch_answers_with_set_is_not_retried() -> None:
    world = started(patient("a", branch=(resets(NOT_OK, "a"),)))

    world.fail("a")
    world.finish("a", {"n": 1})

    assert (world.state, world.executed) == ({**FAILED, "n": 1}, {"a": 2})


def test_a_result_that_a_branch_rejects_is_retried() -> None:
    world = started(patient("a", branch=(branch({"var": "bad"}, "retry"),)))

    world.finish("a", {"ok": True, "bad": True})
    world.finish("a", {"bad": False})

    assert world.state == {"bad": False}


@pytest.mark.parametrize("action", ["complete", "skip"])
def test_a_result_that_a_branch_accepts_stays(action: str) -> None:
    world = started(patient("a", branch=(branch(NOT_OK, action),)))

    world.fail("a")

    assert (world.state, world["a"].retried_keys, removals(world)) == (FAILED, None, [])


def test_a_retried_execution_removes_those_of_the_attempt_that_failed_it() -> None:
    world = started(task("a"), task("b"))
    world.finish("b", {"m": 1})
    world.fail("a")
    assert (world.record.status, world.state) == ("failed", {**FAILED, "m": 1})

    world.retry()
    assert world.state == {**FAILED, "m": 1}
    world.finish("a", {"n": 1})

    assert (world.record.status, world.state) == ("complete", {"n": 1, "m": 1})


def test_a_rerun_removes_those_of_earlier_rounds() -> None:
    world = started(task("a", on_error="continue"), task("b"))
    world.fail("a")
    world.finish("b", {"m": 1})
    assert (world.record.status, world.state) == ("complete", {**FAILED, "m": 1})

    world.rerun("a")
    world.finish("a", {"n": 1})

    assert (world.record.status, world.state) == ("complete", {"n": 1, "m": 1})


def test_a_rerun_does_not_remove_what_a_completed_step_wrote() -> None:
    world = started(task("a"))
    world.finish("a", FAILED)

    world.rerun("a")
    world.finish("a", {"n": 1})

    assert world.state == {**FAILED, "n": 1}


def test_a_skipped_failure_is_removed_when_the_execution_is_retried() -> None:
    world = started(task("a", on_error="skip"), task("b", skip_output_mapping=True))
    world.fail("a")
    world.fail("b")
    assert (world.statuses["a"], world.record.status, world.state) == ("skipped", "failed", FAILED)

    world.retry()
    world.finish("a", {"n": 1})
    world.finish("b")

    assert (world.record.status, world.state) == ("complete", {"n": 1})


def test_a_success_whose_addition_fails_is_removed_when_the_step_is_rerun() -> None:
    world = started(task("a", on_error="continue", kv_add={"n": {"var": "amount"}}))
    world.finish("a", {"ok": True, "amount": "none"})
    assert (world.error_kind("a"), world["a"].retried_keys) == ("expression", ["ok"])

    world.rerun("a")
    world.finish("a", {"amount": 2})

    assert world.state == {"amount": 2, "n": 2}


# ---- units that merge nothing


def test_items_loops_and_compensations_write_nothing_to_remove() -> None:
    retry = RetrySpec(max_retries=1, initial_delay_ms=0)
    world = started(task("a", map=MapSpec(over=[1]), retry=retry, **undo(retry=retry)))
    world.fail("a#0")
    assert (world.state, world["a"].retried_keys, world.item("a#0").retried_keys) == ({}, None, None)
    world.finish("a#0", {"n": 1})
    assert world.state == {}

    world = started(task("a", **undo(retry=retry)), task("b", "a"))
    world.finish("a")
    world.fail("b", "final")
    world.fail("a#undo")
    assert (world.state["error"], world.item("a#undo").retried_keys) == ("final", None)

    world = started(patient("a", loop=LoopSpec()))
    world.finish("a", {"_loop": "again", "value": FAILED})
    assert (world.state, world["a"].retried_keys) == ({}, None)
    world.fail("a")
    world.finish("a", {"_loop": "done", "value": {"n": 1}})
    assert world.state == {"n": 1}
