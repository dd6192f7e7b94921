"""The rulings on children; their numbers are in the names of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from language.execution import Execution
from language.redis_stage import RedisStage
from language.stage import Stage
from language.written import child, halts, resets
from orchestrator.application.errors import InvalidEvent, RecordNotFound
from worlds.documents import Json, document, step

ONE = document(step("x"), outputs={"n": {"var": "steps.x.output.n"}})


# ---- 2: set above a child


def test_ruling_02_a_set_above_a_child_cancels_it(stage: Stage) -> None:
    stage.start(document(step("top"), child("c", ONE, "top"), step("judge", "top", **resets("top"))))
    stage.finish("top", {})
    first = stage.child("c")

    stage.finish("judge", {"again": True})

    assert (first.status, first.statuses, first.out) == ("cancelled", {"x": "cancelled"}, {})
    assert (stage["c"].status, stage["c"].child, stage["c"].run_id) == ("ready", None, 1)
    stage.finish("top", {})
    second = stage.child("c")
    assert second.record.execution_id == f"{stage.record.execution_id}:c:1"
    second.finish("x", {"n": 2})
    assert (stage.statuses["c"], stage["c"].output) == ("complete", {"n": 2})


def test_ruling_02_a_set_above_a_child_that_has_ended_starts_another(stage: Stage) -> None:
    stage.start(document(child("c", ONE), step("judge", **resets("c"))))
    first = stage.child("c")
    first.finish("x", {"n": 1})

    stage.finish("judge", {"again": True})

    assert (first.status, stage.counter("late")) == ("complete", 0)
    stage.child("c").finish("x", {"n": 2})
    assert stage["c"].output == {"n": 2}


def test_ruling_02_a_set_above_a_child_that_has_not_begun_keeps_it_from_beginning(stage: Stage) -> None:
    """Or it is cancelled, if its start is handled before its parent is reset."""
    stage.start(document(step("top"), child("c", ONE, "top"), step("judge", **resets("top"))))

    stage.bring(stage.result("top", {}))
    assert stage.statuses["c"] == "in_progress"
    stage.bring(stage.result("judge", {"again": True}))
    stage.settle()

    assert (stage.statuses["c"], stage.counter("late")) == ("ready", 0)
    begun = [Execution(stage, one) for one in stage.executions if one != stage.execution]
    assert [one.status for one in begun] in ([], ["cancelled"])
    assert all(not one.out for one in begun)


def test_ruling_02_a_child_whose_start_is_heard_after_its_cancel_never_begins(
    redis_stage: RedisStage,
) -> None:
    redis_stage.start(document(step("top"), child("c", ONE, "top"), step("judge", **resets("top"))))
    redis_stage.bring(redis_stage.result("top", {}))
    [late] = redis_stage.world.log("slow").read(10, 0)
    assert late.fields["type"] == "child"

    redis_stage.bring(redis_stage.result("judge", {"again": True}))
    redis_stage.bring()  # the cancel, which finds no execution
    redis_stage.world.coordinator("slow")  # it goes on with what it has read

    redis_stage.settle()
    assert redis_stage.executions == [redis_stage.execution]
    assert redis_stage.statuses == {"top": "in_progress", "c": "ready", "judge": "in_progress"}


# ---- 5: children


def test_ruling_05_the_start_of_a_child_is_an_effect_of_a_commit(stage: Stage) -> None:
    stage.start(document(step("top"), child("c", ONE, "top", input={"k": {"var": "steps.top.output.k"}})))

    stage.bring(stage.result("top", {"k": 7}))

    assert (stage.statuses["c"], stage["c"].child) == ("in_progress", f"{stage.record.execution_id}:c:0")
    with pytest.raises(RecordNotFound):
        stage.child("c")

    stage.settle()

    below = stage.child("c")
    assert (below.record.inputs, below.statuses) == ({"k": 7}, {"x": "in_progress"})
    assert (below.record.root, below.record.depth) == (stage.record.execution_id, 1)


def test_ruling_05_the_result_of_a_child_is_an_effect_of_a_commit(stage: Stage) -> None:
    stage.start(document(child("c", ONE), step("below", "c", input={"n": {"var": "steps.c.output.n"}})))
    below = stage.child("c")

    stage.bring(below.result("x", {"n": 3}))

    assert (below.status, below.outcome) == ("complete", {"n": 3})
    assert stage.statuses == {"c": "in_progress", "below": "ready"}

    stage.settle()

    assert (stage["c"].output, stage.out["below"].inputs) == ({"n": 3}, {"n": 3})
    assert stage.state == {"n": 3}


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_ruling_05_a_child_that_does_not_succeed_is_a_failure_of_its_step(stage: Stage, end: str) -> None:
    stage.start(document(child("c", ONE, retry={"max_retries": 1, "initial_delay_ms": 1000})))
    first = stage.child("c")

    first.fail("x", "no use") if end == "failed" else first.control("cancel", reason="wrong one")

    assert first.status == end
    assert (stage["c"].status, stage["c"].attempt, stage.error_kind("c")) == ("retry", 2, "child_failed")
    said = "failed: no use" if end == "failed" else "was cancelled: wrong one"
    assert (stage["c"].error or {})["message"] == f"child {first.record.execution_id} {said}"
    stage.pass_time("1s")
    second = stage.child("c")
    assert second.execution != first.execution
    second.finish("x", {"n": 2})
    assert (stage.status, stage["c"].output) == ("complete", {"n": 2})


def ends_of_the_parent() -> dict[str, Any]:
    def halt(stage: Stage) -> None:
        stage.finish("other", {"halt": True})

    def failure(stage: Stage) -> None:
        stage.fail("other")

    def cancel(stage: Stage) -> None:
        stage.control("cancel")

    def timeout(stage: Stage) -> None:
        stage.pass_time("10m")

    return {"halted": halt, "failed": failure, "cancelled": cancel, "timeout": timeout}


ENDS = ends_of_the_parent()


@pytest.mark.parametrize("end", ENDS)
def test_ruling_05_any_end_of_the_parent_cancels_the_child_and_its_children(stage: Stage, end: str) -> None:
    stops = [{"condition": {"var": "halt"}, "action": "halt"}]
    middle = document(step("y"), child("inner", ONE))
    stage.start(document(child("c", middle), step("other", branch=stops, timeout="none"), timeout="10m"))
    below = stage.child("c")
    lowest = below.child("inner")
    late = lowest.out["x"]

    ENDS[end](stage)

    assert stage.status == ("failed" if end == "timeout" else end)
    assert stage.statuses["c"] == "cancelled"
    assert (below.status, below.statuses) == ("cancelled", {"y": "cancelled", "inner": "cancelled"})
    reason = f"step c of {stage.record.execution_id} no longer waits for it"
    assert (below.record.cancelled or {})["reason"] == reason
    assert (lowest.status, lowest.statuses) == ("cancelled", {"x": "cancelled"})
    lowest.finish("x", {}, job=late)
    assert lowest.status == "cancelled"


def test_ruling_05_a_timeout_of_the_step_cancels_the_child(stage: Stage) -> None:
    stage.start(document(child("c", ONE, timeout="60s", max_attempts=2)))
    first = stage.child("c")
    assert stage.deadline_in("c") == 60

    stage.pass_time("60s")

    assert (first.status, stage.error_kind("c")) == ("cancelled", "timeout")
    assert (stage["c"].status, stage["c"].attempt, stage.deadline_in("c")) == ("in_progress", 2, 60)
    stage.child("c").finish("x", {"n": 2})
    assert stage.status == "complete"
    assert stage.counter("stale") == 1, "the child told its parent of its end too late"


def test_ruling_05_a_registered_name_is_resolved_when_the_child_starts_and_recorded(stage: Stage) -> None:
    second = document(step("y"), outputs={"version": 2})
    stage.register("it", ONE)
    stage.start(document(step("top"), child("c", "it", "top", max_attempts=2)))
    stage.register("it", second)

    stage.finish("top", {})

    below = stage.child("c")
    assert below.statuses == {"y": "in_progress"}
    stage.register("it", ONE)
    below.finish("y", {})
    assert (below.record.loaded.document, stage["c"].output) == (second, {"version": 2})


def test_ruling_05_a_name_that_is_not_registered_is_a_failure_of_the_step(stage: Stage) -> None:
    stage.start(document(child("c", "nobody", on_error="continue"), step("below", "c")))

    assert (stage.statuses, stage.error_kind("c")) == (
        {"c": "failed", "below": "in_progress"},
        "child_failed",
    )
    error = stage["c"].error
    assert error is not None
    assert "no workflow is registered as 'nobody'" in error["message"]


def test_ruling_05_inputs_that_the_child_refuses_are_a_failure_of_the_step(stage: Stage) -> None:
    inner = document(step("x"), inputs={"n": {"type": "integer", "required": True}})
    stage.start(document(child("c", inner, input={"n": {"var": "input.n"}})), {"n": "seven"})

    assert (stage.status, stage.error["kind"], stage.error["step"]) == ("failed", "child_failed", "c")
    assert "must be of type integer" in stage.error["message"]


def test_ruling_05_an_execution_with_the_id_of_a_child_is_left_alone_and_the_next_attempt_has_another(
    stage: Stage,
) -> None:
    other = Execution(stage, stage.start(document(step("theirs")), execution_id="p:c:0"))
    retry = {"max_retries": 1, "initial_delay_ms": 1000}

    stage.start(document(child("c", ONE, retry=retry)), execution_id="p")

    assert (stage["c"].status, stage.error_kind("c")) == ("retry", "child_failed")
    message = "an execution with the id 'p:c:0' already exists"
    assert message in (stage["c"].error or {})["message"]
    stage.pass_time("1s")
    assert stage.child("c").record.execution_id == "p:c:1"
    stage.child("c").finish("x", {"n": 2})
    assert (stage.status, stage["c"].output) == ("complete", {"n": 2})
    assert (other.statuses, other.record.parent) == ({"theirs": "in_progress"}, None)


@pytest.mark.parametrize("given", [None, 1, 5])
def test_ruling_05_group_and_priority_are_inherited(stage: Stage, given: int | None) -> None:
    inner = document(step("plain"), step("own", priority=2), child("deeper", ONE))
    stage.start(document(child("c", inner)), group="march", priority=given)
    below = stage.child("c")
    deeper = below.child("deeper")

    for execution in (below, deeper):
        assert (execution.record.group, execution.record.priority) == ("march", given)
    suffix = f":{given}" if given is not None else ""
    assert stage.queue_of(below.out["plain"]) == f"default{suffix}"
    assert stage.queue_of(below.out["own"]) == "default:2", "what is written comes first"
    assert stage.queue_of(deeper.out["x"]) == f"default{suffix}"


def test_ruling_05_children_nest_as_deep_as_max_depth_allows(stage: Stage) -> None:
    """A name may call itself; limits.max_depth of each document holds for what it starts."""
    itself = document(step("x"), child("again", "it", on_error="continue"), limits={"max_depth": 3})
    stage.register("it", itself)

    stage.start("it")

    depths, below = [0], Execution(stage, stage.execution)
    while below.statuses["again"] == "in_progress":
        below = below.child("again")
        depths.append(below.record.depth)
    assert depths == [0, 1, 2, 3]
    assert (below.statuses["again"], below.error_kind("again")) == ("failed", "child_failed")
    assert "max_depth" in (below["again"].error or {})["message"]
    assert len(stage.executions) == 4


def test_ruling_05_the_global_scope_is_shared_and_the_state_is_not(stage: Stage) -> None:
    reads: Json = {"input": {"global": {"kv.get": "global:k"}, "state": {"var": "state.k"}}}
    inner = document(step("x", **reads), step("y", "x"), kv={"scopes": ["global"]})
    stage.start(document(step("top"), child("c", inner, "top"), step("end", "c", **reads), kv={}))
    stage.finish("top", {"global:k": 1, "k": "mine"})
    below = stage.child("c")
    assert below.out["x"].inputs == {"global": 1, "state": None}

    below.finish("x", {"global:k": 2, "k": "its own"})
    below.finish("y", {})

    assert stage.out["end"].inputs == {"global": 2, "state": "mine"}
    assert stage.shared("global", stage.record.execution_id) == {"k": 2}


def test_ruling_05_a_child_may_be_halted_and_the_parent_goes_on(stage: Stage) -> None:
    inner = document(child("deeper", document(step("x", **halts("deep down")))), outputs={"n": 1})
    stage.start(document(child("c", inner)))

    stage.child("c").child("deeper").finish("x", {})

    assert (stage.status, stage.child("c").status) == ("complete", "complete")
    assert stage.child("c")["deeper"].output == {"halted": True, "result": "deep down"}


def test_ruling_05_a_retry_starts_a_child_anew_and_the_old_one_cannot_be_re_driven(stage: Stage) -> None:
    stage.start(document(child("c", ONE)))
    first = stage.child("c")
    first.fail("x", "no use")
    assert stage.status == "failed"

    with pytest.raises(InvalidEvent, match="already has its result; retry that one"):
        first.control("retry")
    stage.control("retry")

    second = stage.child("c")
    assert second.record.execution_id == f"{stage.record.execution_id}:c:1"
    second.finish("x", {"n": 2})
    assert (stage.status, stage["c"].output, first.status) == ("complete", {"n": 2}, "failed")
