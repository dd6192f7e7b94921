"""What becomes of an output: `output` reshapes it, the state takes it in; and what a job carries."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed, Halt
from orchestrator.application.spec.model import RetrySpec
from worlds.engine_world import world_of
from worlds.records import NOW_MS
from worlds.specs import BROKEN, branch, delay, switch, task

SIZE: Any = {"var": "result.bytes"}


def test_output_reshapes_what_the_executor_returned_before_anybody_sees_it() -> None:
    world = world_of(
        task("a", output={"size": SIZE, "kind": "file"}),
        task("b", after="a", input={"n": {"var": "steps.a.output.size"}, "all": {"var": "flows.a"}}),
        outputs={"size": {"var": "steps.a.output.size"}},
    )
    world.play(a={"bytes": 5, "noise": True})

    assert world["a"].output == {"size": 5, "kind": "file"}
    assert world.state == {"size": 5, "kind": "file"}
    assert world.out["b"].inputs == {"n": 5, "all": {"size": 5, "kind": "file"}}
    assert world.finish("b", None) == Complete({"size": 5})


def test_branches_see_the_reshaped_output() -> None:
    world = world_of(
        task(
            "a", output={"size": SIZE}, branch=(branch({"==": [{"var": "size"}, 5]}, "halt", result="five"),)
        )
    )

    assert world.play(a={"bytes": 5}) == Halt("five")


def test_output_sees_every_root_and_result_is_the_raw_output() -> None:
    output = {
        "raw": {"var": "result"},
        "input": {"var": "input.i"},
        "state": {"var": "state.s"},
        "step": {"var": "steps.z.output.s"},
        "me": {"var": "ctx.step.id"},
        "deep": {"list": [{"var": "result.n"}]},
    }
    world = world_of(task("z"), task("a", after="z", output=output), inputs={"i": 1})
    world.play(z={"s": 2}, a={"n": 3})

    assert world["a"].output == {
        "raw": {"n": 3},
        "input": 1,
        "state": 2,
        "step": 2,
        "me": "a",
        "deep": {"list": [3]},
    }


def test_the_output_of_an_executor_that_returns_nothing_is_reshaped_too() -> None:
    world = world_of(task("a", output={"n": {"var": ["result.n", 7]}}))
    world.play(a=None)

    assert world["a"].output == {"n": 7}


def test_an_empty_output_mapping_leaves_nothing() -> None:
    world = world_of(task("a", output={}))
    world.play(a={"n": 1})

    assert (world["a"].output, world.state) == ({}, {})


def test_an_error_is_not_reshaped() -> None:
    world = world_of(task("a", output={"size": SIZE}, on_error="continue"))
    world.advance()
    world.fail("a")

    assert world["a"].output == {"ok": False, "error": "boom"}
    assert world.state == {"ok": False, "error": "boom"}


def test_an_output_that_cannot_be_reshaped_is_a_failure_expression_that_is_not_retried() -> None:
    world = world_of(task("a", output={"n": BROKEN}, max_attempts=3, retry=RetrySpec()))

    decision = world.play(a={"n": 1})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert decision.error["message"].startswith("output cannot be resolved: ")
    assert world["a"].attempt == 1


def test_branches_see_that_an_output_could_not_be_reshaped() -> None:
    world = world_of(
        task("a", output={"n": BROKEN}, branch=(branch({"==": [{"var": "ok"}, False]}, "complete"),))
    )

    assert world.play(a={"n": 1}) == Complete({})


@pytest.mark.parametrize("raw", [[1], "text", 3, 2.5, True])
def test_an_output_that_is_no_object_is_bad_with_or_without_a_mapping(raw: Any) -> None:
    for output in (None, {"n": {"var": "result"}}):
        world = world_of(task("a", output=output))

        assert isinstance(world.play(a=raw), Failed)
        assert world.error_kind("a") == "bad_output"


# ---- the state


def test_skip_output_mapping_keeps_the_output_out_of_the_state() -> None:
    world = world_of(task("a", skip_output_mapping=True), task("b", after="a"))
    world.play(a={"n": 1})

    assert world.state == {}
    assert world["a"].output == {"n": 1}
    assert world.last.merged == []


def test_skip_output_mapping_keeps_errors_out_of_the_state_too() -> None:
    world = world_of(task("a", skip_output_mapping=True, on_error="continue", max_attempts=2))
    world.advance()
    world.fail("a")
    world.fail("a")

    assert world.state == {}


def test_skip_output_mapping_wins_over_output() -> None:
    world = world_of(
        task("a", skip_output_mapping=True, output={"n": 1}), switch("s", 1, {"1": ""}, output={"m": 1})
    )
    world.play(a={})

    assert (world["a"].output, world.state) == ({"n": 1}, {"m": 1})


def test_what_a_switch_and_a_delay_make_is_not_merged() -> None:
    world = world_of(
        switch("s", "a", {"a": ""}), delay("d", 1000), outputs={"key": {"var": "steps.s.output.branch"}}
    )
    world.advance()

    assert world.pass_time(1000) == Complete({"key": "a"})
    assert world.state == {}


def test_what_a_switch_and_a_delay_make_is_merged_if_output_names_its_keys() -> None:
    world = world_of(
        switch("s", "a", {"a": ""}, output={"way": {"var": "result.branch"}}),
        delay("d", 1000, output={"waited": True, "raw": {"var": "result"}}),
    )
    world.advance()
    world.pass_time(1000)

    assert world.state == {"way": "a", "waited": True, "raw": {}}


def test_a_delay_whose_output_cannot_be_reshaped_fails() -> None:
    world = world_of(delay("d", 1000, output={"n": BROKEN}))
    world.advance()

    decision = world.pass_time(1000)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"


def test_a_switch_whose_output_cannot_be_reshaped_fails() -> None:
    world = world_of(switch("s", "a", {"a": "x"}, output={"n": BROKEN}), task("x", after="s"))

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"


def test_the_error_of_a_switch_is_merged_no_more_than_its_output() -> None:
    world = world_of(switch("s", "a", on_error="continue"))

    assert world.advance() == Complete({})
    assert world["s"].output == {"ok": False, "error": "no case for 'a', and no default; the cases are: none"}
    assert world.state == {}


# ---- what a job carries


def test_queue_and_priority_go_with_the_job() -> None:
    world = world_of(task("a", queue="gpu", priority=1), task("b"), task("c", timeout_s=None))
    world.advance()

    assert [(job.queue, job.priority, job.timeout_s) for job in world.jobs] == [
        ("gpu", 1, 300.0),
        ("default", 3, 300.0),
        ("default", 3, None),
    ]


def test_queue_and_priority_stay_the_same_when_a_step_is_dispatched_again() -> None:
    world = world_of(task("a", queue="gpu", priority=5, max_attempts=2))
    world.advance()
    world.lose("a")
    world.fail("a")

    assert {(job.queue, job.priority) for job in world.jobs} == {("gpu", 5)}
    assert len(world.jobs) == 3


def test_the_idempotency_key_is_that_of_the_round() -> None:
    world = world_of(
        task("a", max_attempts=2),
        task("b", after="a", branch=(branch({"var": "again"}, {"set": "a"}),)),
    )
    world.advance()
    world.lose("a")
    world.fail("a")
    world.finish("a", {})
    world.finish("b", {"again": True})
    world.finish("a", {})

    keys = [job.idempotency_key for job in world.jobs]
    assert keys == ["x1#a#0", "x1#a#0", "x1#a#0", "x1#b#0", "x1#a#1", "x1#b#1"]


def test_the_moment_of_a_decision_is_what_expressions_see_as_now() -> None:
    world = world_of(task("a", defer_ms=1500, input={"now": {"var": "ctx.now"}}))
    world.advance()
    world.pass_time(1500)

    assert world.now_ms == NOW_MS + 1500
    assert world.out["a"].inputs == {"now": "2026-01-01T00:00:01.500Z"}
