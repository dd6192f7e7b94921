"""What a branch sees, which one fires, and what each action does."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed, Halt, Pending
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from worlds.documents import document, step, when
from worlds.engine_world import run, world_of

BROKEN: Any = {"+": ["no number", 1]}
AGAIN: Any = {"var": "again"}
END = when(True, "complete")


def loops(*targets: str) -> list[Any]:
    """Branches that set these steps, one by its bare name, more as a list, while the output says again."""
    return [when(AGAIN, {"set": list(targets) if len(targets) > 1 else targets[0]}), END]


# ---- which branch fires


def test_the_first_branch_whose_condition_holds_decides_and_the_rest_is_not_evaluated() -> None:
    branches = [
        when({">": [{"var": "n"}, 5]}, "halt", result={"which": 1}),
        when({">": [{"var": "n"}, 3]}, "halt", result={"which": 2}),
        when(BROKEN, "halt", result={"which": 3}),
    ]
    world = world_of(document(step("a", branch=branches)))

    assert world.play(a={"n": 4}) == Halt({"which": 2})


def test_when_no_branch_fires_the_step_is_complete() -> None:
    world = world_of(document(step("a", branch=[when(False, "halt"), when({"var": "nothing"}, "halt")])))

    assert world.play(a={"n": 1}) == Complete({})


@pytest.mark.parametrize(
    ("literal", "fires"), [(True, True), (1, True), (False, False), (0, False), (None, False)]
)
def test_a_condition_may_be_a_literal(literal: Any, fires: bool) -> None:
    world = world_of(document(step("a", branch=[when(literal, "halt")])))

    assert isinstance(world.play(a={}), Halt) == fires


def test_a_branch_sees_the_fresh_output_at_the_top_and_as_output() -> None:
    condition = {"and": [{"==": [{"var": "n"}, 1]}, {"==": [{"var": "output.n"}, 1]}]}
    world = world_of(document(step("a", branch=[when(condition, "halt")])))

    assert world.play(a={"n": 1}) == Halt({})


def test_a_branch_sees_the_state_before_the_merge() -> None:
    branches = [when({"==": [{"var": "state.n"}, 1]}, "halt", result="old")]
    world = world_of(document(step("a"), step("b", after="a", branch=branches)))

    assert world.play(a={"n": 1}, b={"n": 2}) == Halt("old")
    assert world.record.state == {"n": 2}


def test_a_branch_sees_the_previous_output_of_its_own_step() -> None:
    branches = [when({"==": [{"var": "steps.a.output.n"}, 1]}, "halt", result="second attempt")]
    world = world_of(document(step("a", max_attempts=2, attempts_on="any", branch=branches)))
    world.advance()

    world.finish("a", {"n": 1})

    assert world.finish("a", {"n": 2}) == Halt("second attempt")


def test_a_branch_sees_which_run_and_attempt_it_judges() -> None:
    condition = {"and": [{"==": [{"var": "ctx.step.id"}, "a"]}, {"==": [{"var": "ctx.step.attempt"}, 2]}]}
    world = world_of(document(step("a", max_attempts=3, branch=[when(condition, "halt")])))
    world.advance()

    world.fail("a")

    assert world.fail("a") == Halt({})


def test_a_branch_sees_an_error_as_an_output() -> None:
    condition = {"and": [{"==": [{"var": "ok"}, False]}, {"==": [{"var": "error"}, "no such file"]}]}
    world = world_of(document(step("a", branch=[when(condition, "halt", result="caught")])))

    assert world.play(a=ValueError("no such file")) == Halt("caught")
    assert world["a"].error is None


def test_a_condition_that_cannot_be_judged_fails_the_step_with_its_output_kept() -> None:
    world = world_of(document(step("a", max_attempts=3, branch=[when(BROKEN, "complete"), END])))

    decision = world.play(a={"n": 1})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert "branch cannot be evaluated" in decision.error["message"]
    assert world["a"].output == {"n": 1}
    assert world.record.state == {"n": 1}
    assert world.executed == {"a": 1}


def test_a_condition_that_cannot_be_judged_obeys_the_policy_of_the_step() -> None:
    world = world_of(
        document(step("a", on_error="continue", branch=[when(BROKEN, "halt")]), step("b", after="a"))
    )

    world.play(a={})

    assert world.statuses == {"a": "failed", "b": "in_progress"}


# ---- halt


def test_halt_ends_the_workflow_with_its_result_verbatim() -> None:
    result = {"status": "rejected", "quoted": {"var": "input.n"}}
    world = world_of(document(step("a", branch=[when(True, "halt", result=result)]), step("b", after="a")))
    world.advance()
    world.now_ms += 2_000

    assert world.apply(world.result("a", {"n": 1})) == Halt(result)
    assert world.record.status is WorkflowStatus.HALTED
    assert world.record.outcome == result
    assert Halt(result).outcome == result
    assert world.record.ended_at == world["a"].ended_at == "2026-01-01T00:00:02.000Z"
    assert world.record.state == {"n": 1}
    assert world.advance() == Halt(result)


def test_halt_without_a_result_gives_an_empty_object_and_null_gives_null() -> None:
    assert world_of(document(step("a", branch=[when(True, "halt")]))).play(a={}) == Halt({})
    assert world_of(document(step("a", branch=[when(True, "halt", result=None)]))).play(a={}) == Halt(None)


def test_result_expr_is_evaluated_with_the_fresh_output() -> None:
    expr = {"fresh": {"var": "n"}, "old": {"var": ["state.n", "none"]}, "list": [{"var": "input.k"}]}
    world = world_of(document(step("a", branch=[when(True, "halt", result_expr=expr)])), inputs={"k": 7})

    assert world.play(a={"n": 1}) == Halt({"fresh": 1, "old": "none", "list": [7]})


def test_a_result_expr_that_is_null_gives_null() -> None:
    assert world_of(document(step("a", branch=[when(True, "halt", result_expr=None)]))).play(a={}) == Halt(
        None
    )


def test_a_result_expr_that_cannot_be_resolved_fails_the_workflow_whatever_the_policy() -> None:
    branches = [when(True, "halt", result_expr=BROKEN)]
    world = world_of(document(step("a", on_error="continue", max_attempts=3, branch=branches), step("b")))
    world.advance()

    decision = world.finish("a", {"n": 1})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert decision.error["step"] == "a"
    assert "result_expr cannot be resolved" in decision.error["message"]
    assert world.statuses == {"a": "failed", "b": "cancelled"}


# ---- complete, skip, fail, retry


def test_complete_on_a_success_ends_the_attempts() -> None:
    branches = [when({">": [{"var": "n"}, 1]}, "complete")]
    world = world_of(document(step("a", max_attempts=9, attempts_on="any", branch=branches)))
    world.advance()
    world.finish("a", {"n": 1})

    assert world.finish("a", {"n": 2}) == Complete({})
    assert world.executed == {"a": 2}


def test_skip_skips_the_step_and_all_below() -> None:
    world = world_of(
        document(
            step("a", branch=[when(True, "skip")]),
            step("b", after="a", on_error="continue"),
            step("c", after="b"),
        )
    )

    assert world.play(a={"n": 1}) == Complete({})
    assert world.statuses == {"a": "skipped", "b": "skipped", "c": "skipped"}
    assert world["a"].reason == "a branch skipped it"
    assert world["b"].reason == "parent a skipped"
    assert world.record.state == {"n": 1}


def test_skip_on_a_failed_result_forgives_the_failure() -> None:
    """Dependents see a skip and not a failure: continue does not help them."""
    world = world_of(
        document(
            step("a", branch=[when({"!": [{"var": "ok"}]}, "skip")]),
            step("b", after="a", on_error="continue"),
        )
    )

    assert world.play(a=ValueError("boom")) == Complete({})
    assert world["a"].error is None
    assert world.statuses["b"] == "skipped"


def test_fail_is_a_declared_failure_and_not_retried() -> None:
    world = world_of(document(step("a", max_attempts=3, branch=[when(True, "fail")])))

    decision = world.play(a={"n": 1})

    assert decision == Failed({"kind": "declared", "message": "a branch declared it failed", "step": "a"})
    assert world["a"].output == {"n": 1}
    assert world.executed == {"a": 1}


def test_fail_obeys_the_policies() -> None:
    world = world_of(document(step("a", on_error="skip", branch=[when(True, "fail")]), step("b", after="a")))

    assert world.play(a={}) == Complete({})
    assert world.statuses == {"a": "skipped", "b": "skipped"}


def test_retry_treats_the_result_as_an_error_and_uses_the_attempts() -> None:
    branches = [when({"<": [{"var": "quality"}, 5]}, "retry")]
    world = world_of(document(step("a", max_attempts=2, branch=branches)))
    world.advance()

    assert world.apply(world.result("a", {"quality": 1})) == Pending()
    assert world["a"].status is StepStatus.RETRY
    assert world["a"].error == {"kind": "rejected", "message": "a branch rejected the result"}
    assert world["a"].output == {"quality": 1}
    world.advance()

    assert world.finish("a", {"quality": 9}) == Complete({})
    assert world.executed == {"a": 2}
    assert world["a"].error is None


def test_retry_without_attempts_left_is_a_failure_for_good() -> None:
    world = world_of(document(step("a", max_attempts=2, branch=[when(True, "retry")])))
    world.advance()
    world.finish("a", {})

    decision = world.finish("a", {})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "rejected"


# ---- set


def test_set_on_its_own_step_runs_it_again_as_a_new_run_of_a_new_round() -> None:
    branches = [when(AGAIN, {"set": "a"}), when({"var": "done"}, "complete")]
    world = world_of(document(step("a", branch=branches, max_attempts=2)))
    world.advance()
    world.fail("a")
    assert (world["a"].run_id, world["a"].attempt) == (1, 2)

    decision = world.finish("a", {"again": True})

    assert world.dispatched(decision) == ["a"]
    seen = world["a"]
    assert (seen.run_id, seen.attempt, seen.round, seen.dispatches, seen.lost) == (2, 1, 1, 3, 0)
    assert (seen.output, seen.error, seen.reason) == (None, None, None)
    assert world.jobs[-1].idempotency_key == "x1#a#1"
    assert world.record.state == {"again": True, "ok": False, "error": "boom"}
    assert world.finish("a", {"done": True}) == Complete({})


def test_set_resets_targets_the_step_and_everything_below_them_once() -> None:
    world = world_of(
        document(
            step("a"),
            step("b", after="a"),
            step("c", after="b", branch=loops("a")),
            step("d", after="b"),
            step("e", after="c d"),
            step("other"),
        )
    )
    world.play(a={}, b={}, d={})

    decision = world.finish("c", {"again": True})

    assert world.dispatched(decision) == ["a"]
    assert world.run_ids == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "other": 0}
    assert world["d"] == StepRecord(run_id=1, round=1, dispatches=1)
    assert world["e"] == StepRecord(run_id=1, round=1)  # never dispatched, and yet
    assert world.statuses["other"] == "in_progress"


def test_set_on_a_step_whose_worker_was_lost() -> None:
    world = world_of(document(step("a", branch=loops("b")), step("b")))
    world.advance()
    world.apply(world.loss("b"))

    world.apply(world.result("a", {"again": True}))

    assert (world["b"].run_id, world["b"].lost, world["b"].status) == (2, 0, StepStatus.READY)
    assert world.dispatched(world.advance()) == ["a", "b"]


def test_set_on_a_skipped_step_also_resets_what_was_skipped_below_it() -> None:
    world = world_of(
        document(
            step("p", on_error="skip"),
            step("q", on_error="continue"),
            step("d", after="p"),
            step("a", branch=loops("p", "q")),
        )
    )
    world.advance()
    world.fail("p")
    world.fail("q")
    assert world.statuses == {"p": "skipped", "q": "failed", "d": "skipped", "a": "in_progress"}

    decision = world.finish("a", {"again": True})

    assert world.dispatched(decision) == ["p", "q", "a"]
    assert world["d"] == StepRecord(run_id=1, round=1)
    assert world["q"].error is None
    world.finish("p", {})
    world.finish("q", {})
    assert world.statuses["d"] == "in_progress"


def test_a_step_below_a_skipped_parent_is_skipped_again_at_once_after_a_reset() -> None:
    """7.2 step 3: the rule reads the record alone, so that every process gives the same answer."""
    world = world_of(
        document(step("p", branch=[when(True, "skip")]), step("q", branch=loops("q")), step("d", after="p q"))
    )
    world.advance()
    world.finish("p", {})
    assert world.statuses["d"] == "skipped"

    world.finish("q", {"again": True})

    assert world.statuses == {"p": "skipped", "q": "in_progress", "d": "skipped"}
    assert world["d"].run_id == 1


@pytest.mark.parametrize(
    "target",
    [
        "a",
        "steps.a.status",
        "steps.a",
        ["a"],
        ["steps.a.status", "b"],
        {"var": "input.target"},
        {"if": [True, ["a"], "b"]},
        {"cat": ["steps.", "a", ".status"]},
    ],
)
def test_targets_may_be_spelled_in_many_ways(target: Any) -> None:
    branches = [when(AGAIN, {"set": target, "value": "ready"}), END]
    world = world_of(document(step("a"), step("b", after="a", branch=branches)), inputs={"target": "a"})
    world.play(a={})

    assert world.dispatched(world.finish("b", {"again": True})) == ["a"]
    assert world.run_ids == {"a": 1, "b": 1}


def test_a_target_may_have_dots_and_the_longest_id_wins() -> None:
    spec = document(
        step("etl"),
        step("etl.load"),
        step("z", after=["etl", "etl.load"], branch=loops("steps.etl.load.status")),
    )
    world = world_of(spec)
    world.advance()
    world.finish("etl", {})
    world.finish("etl.load", {})

    assert world.dispatched(world.finish("z", {"again": True})) == ["etl.load"]


def test_a_target_expression_does_not_see_the_fresh_output_nor_the_merged_state() -> None:
    fresh = {"var": {"cat": ["fre", "sh"]}}  # a constant path would be rejected
    target = {"if": [{"or": [fresh, {"var": "state.fresh"}]}, "a", "b"]}
    branches = [when({"var": "fresh"}, {"set": target}), END]
    world = world_of(document(step("a"), step("b", branch=branches)))
    world.advance()

    world.finish("b", {"fresh": True})

    assert world.run_ids == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    "target", ["nobody", "steps.nobody.status", 7, None, ["a", "nobody"], {"k": "a"}, [["a"]]]
)
def test_a_target_that_is_no_step_fails_the_step_and_resets_no_step(target: Any) -> None:
    branches = [when(AGAIN, {"set": {"var": "input.target"}}), END]
    world = world_of(
        document(step("a"), step("b", after="a", branch=branches, max_attempts=3)), inputs={"target": target}
    )
    world.play(a={})

    decision = world.finish("b", {"again": True})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "branch_target"
    assert world.run_ids == {"a": 0, "b": 0}
    assert world["b"].output == {"again": True}
    assert world.executed == {"a": 1, "b": 1}


def test_a_target_expression_that_fails_is_a_failure_of_the_step() -> None:
    branches = [when(AGAIN, {"set": BROKEN}), END]
    world = world_of(document(step("a", branch=branches)))

    decision = world.play(a={"again": True})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"


def test_a_loop_that_does_not_end_fails_with_loop_limit() -> None:
    world = world_of(document(step("a", branch=[when(True, {"set": "a"}), END]), limits={"max_runs": 3}))
    world.advance()

    for _ in range(3):
        world.finish("a", {})
    assert world["a"].run_id == 3
    decision = world.finish("a", {})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "loop_limit"
    assert "step 'a' was reset 3 times" in decision.error["message"]
    assert world.executed == {"a": 4}


def test_a_loop_is_limited_by_whichever_step_it_resets_too_often() -> None:
    branches = [when(True, {"set": "a"}), END]
    spec = document(step("a"), step("b", after="a", on_error="skip", branch=branches), limits={"max_runs": 1})
    world = world_of(spec)

    world.play(a={}, b={})
    world.finish("a", {})
    decision = world.finish("b", {})

    assert decision == Complete({})
    assert world["b"].status is StepStatus.SKIPPED
    assert world["b"].error is not None
    assert world["b"].error["kind"] == "loop_limit"
    assert world.run_ids == {"a": 1, "b": 1}  # the reset is refused whole


def test_the_loop_of_the_seed_ends_at_233_after_13_runs() -> None:
    """One round later than its condition suggests, because branches see the state before the merge."""
    iterate = step(
        "iterate",
        after="seed",
        fn="fib_step",
        input={"a": {"var": "state.fib_n"}, "b": {"var": "state.fib_n1"}},
        branch=[
            when({"<": [{"var": "state.fib_n"}, 100]}, {"set": "steps.iterate.status", "value": "ready"}),
            when({">=": [{"var": "state.fib_n"}, 100]}, "complete"),
        ],
    )
    world = world_of(document(step("seed"), iterate, outputs={"n": {"var": "state.fib_n"}}))

    def execute(fn: str, inputs: dict[str, Any], calls: int) -> Any:
        if fn == "seed":
            return {"fib_n": 0, "fib_n1": 1}
        return {"fib_n": inputs["b"], "fib_n1": inputs["a"] + inputs["b"]}

    assert run(world, execute) == Complete({"n": 233})
    assert world.executed == {"seed": 1, "iterate": 13}
    assert world.run_ids == {"seed": 0, "iterate": 12}


# ---- result_expr beside halt


def test_complete_with_a_result_expr_replaces_the_output() -> None:
    branches = [when({"==": [{"var": "State"}, "DONE"]}, "complete", result_expr={"var": "Output"})]
    world = world_of(document(step("a", branch=branches), step("b", after="a")))

    world.play(a={"State": "DONE", "Output": {"n": 1}}, b={})

    assert world["a"].output == {"n": 1}
    assert world.record.state == {"n": 1}


def test_complete_with_a_result_expr_gives_a_failure_another_output() -> None:
    branches = [when({"===": [{"var": "ok"}, False]}, "complete", result_expr={"n": 0})]
    world = world_of(document(step("a", branch=branches)))
    world.advance()

    world.fail("a", "busy")

    assert world["a"].status is StepStatus.COMPLETE
    assert world["a"].output == {"n": 0}


@pytest.mark.parametrize(("value", "status"), [(None, "complete"), ("text", "failed"), ([1], "failed")])
def test_an_output_of_a_branch_must_be_an_object_or_null(value: Any, status: str) -> None:
    branches = [when(True, "complete", result_expr={"var": "value"})]
    world = world_of(document(step("a", on_error="continue", retry=2, branch=branches)))
    world.advance()

    world.finish("a", {"value": value})

    assert world.statuses == {"a": status}
    if status == "failed":
        assert (world["a"].error or {})["kind"] == "bad_output"
        assert (world["a"].output or {})["ok"] is False


def test_an_output_of_a_branch_that_writes_to_a_group_needs_one() -> None:
    branches = [when(True, "complete", result_expr={"flow_group:n": 1})]
    world = world_of(document(step("a", on_error="continue", branch=branches), kv={}))
    world.advance()

    world.finish("a", {})

    assert (world["a"].error or {})["kind"] == "bad_output"


@pytest.mark.parametrize(("action", "kind"), [("retry", "rejected"), ("fail", "declared")])
@pytest.mark.parametrize(
    ("value", "message"), [("no paper", "no paper"), ({"code": 5}, '{"code": 5}'), (["ä"], '["ä"]')]
)
def test_the_result_expr_of_a_failure_is_its_message(
    action: str, kind: str, value: Any, message: str
) -> None:
    branches = [when(True, action, result_expr={"var": "value"})]
    world = world_of(document(step("a", on_error="continue", branch=branches)))
    world.advance()

    world.finish("a", {"value": value})

    assert world["a"].error == {"kind": kind, "message": message}
    assert world["a"].output == world.record.state == {"ok": False, "error": message}


@pytest.mark.parametrize("value", [None, "", {}])
def test_an_empty_message_is_no_message(value: Any) -> None:
    branches = [when(True, "retry", result_expr={"var": "value"})]
    world = world_of(document(step("a", on_error="continue", branch=branches)))
    world.advance()

    world.finish("a", {"value": value})

    assert world["a"].error == {"kind": "rejected", "message": "a branch rejected the result"}
    assert world["a"].output == {"value": value}


def test_a_message_is_cut() -> None:
    branches = [when(True, "fail", result_expr={"var": "value"})]
    world = world_of(document(step("a", on_error="continue", branch=branches)))
    world.advance()

    world.finish("a", {"value": "x" * 20_000})

    assert (world["a"].error or {})["message"] == "x" * 10_000


@pytest.mark.parametrize("action", ["complete", "retry", "fail", "skip"])
def test_a_result_expr_that_cannot_be_resolved_fails_the_step(action: str) -> None:
    branches = [when(True, action, result_expr=BROKEN)]
    world = world_of(document(step("a", on_error="continue", branch=branches)))
    world.advance()

    world.finish("a", {"n": 1})

    assert world.statuses == {"a": "failed"}
    assert (world["a"].error or {})["kind"] == "expression"
