"""Children: a step that is an execution of its own, from both sides. They communicate by outgoing events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.application.engine.create import child_spec, new_record, reject_child
from orchestrator.application.engine.dispatch import MAX_EXECUTION_ID_LENGTH, child_execution_id
from orchestrator.application.records.decisions import Cancelled, Complete, Dispatch, Failed, Halt, Pending
from orchestrator.application.records.events import (
    ContinueEvent,
    ControlEvent,
    Moment,
    Parent,
    ResultEvent,
    StartEvent,
    make_failure,
)
from orchestrator.application.spec.model import Limits, RetrySpec, StepSpec
from orchestrator.application.spec.validation import check_spec
from worlds.engine_world import EngineWorld, world_of
from worlds.records import record_of
from worlds.specs import BROKEN, branch, child, key, map_step, task, undo

PARENT = Parent("w0#p1", "call", run_id=2, attempt=3, token="t-1", root="top", depth=4)


def below(*steps: StepSpec, **workflow: Any) -> EngineWorld:
    """An execution that is a child."""
    record = record_of(*steps, **workflow)
    record.parent = PARENT
    return EngineWorld(record)


def told(world: EngineWorld) -> ResultEvent:
    """What the parent hears, which must be one thing, at the end."""
    [post] = world.sent
    assert isinstance(post, ResultEvent)
    return post


# ---- beginning


def test_a_child_is_requested_with_its_inputs_and_its_parent() -> None:
    world = world_of(child("c", input={"n": {"var": "input.n"}}), inputs={"n": 7})

    assert world.advance() == Pending()

    token = world["c"].token
    assert token is not None
    parent = Parent("w1#x1", "c", run_id=0, attempt=1, token=token, root="x1", depth=1)
    assert world.sent == [StartEvent(inputs={"n": 7}, execution_id="x1:c:0", parent=parent)]
    assert (world["c"].child, world["c"].dispatches, world.statuses["c"]) == ("x1:c:0", 1, "in_progress")
    assert world.record.status == "in_progress"


def test_group_priority_and_root_are_handed_down_and_depth_is_counted() -> None:
    world = below(child("c"))
    world.record.group, world.record.priority = "g1", 2

    world.advance()

    [start] = world.children
    assert (start.group, start.priority) == ("g1", 2)
    assert start.parent is not None
    assert (start.parent.root, start.parent.depth) == ("top", 5)


def test_a_new_record_keeps_its_parent() -> None:
    loaded = check_spec({"steps": [{"op": "a"}]})
    event = StartEvent(group="g", priority=4, parent=PARENT)

    record = new_record(loaded, "c1", {"n": 1}, event, Moment(0, "n", "e1"))

    assert (record.group, record.priority, record.start_event) == ("g", 4, "e1")
    assert (record.root, record.depth) == ("top", 4)
    assert record.parent == PARENT


def test_an_execution_without_a_parent_is_its_own_root() -> None:
    record = record_of(task("a"))

    assert (record.root, record.depth) == ("x1", 0)


def test_the_spec_of_a_child_is_what_its_step_says() -> None:
    inline = {"steps": [{"op": "a"}]}
    loaded = check_spec({"steps": [{"id": "c", "workflow": inline}, {"id": "d", "workflow": "other"}]})

    assert child_spec(loaded, "c").document == inline
    assert child_spec(loaded, "d").name == "other"


def test_inputs_that_cannot_be_resolved_fail_the_step_and_no_child_begins() -> None:
    world = world_of(child("c", input={"n": BROKEN}, on_error="continue"), task("b", after="c"))

    assert world.dispatched(world.advance()) == ["b"]

    assert (world.statuses["c"], world.error_kind("c")) == ("failed", "expression")
    assert world.sent == []


@pytest.mark.parametrize(("depth", "may_begin"), [(1, True), (2, False)])
def test_children_nest_as_deep_as_the_limit_says(depth: int, may_begin: bool) -> None:
    world = below(child("c", retry=RetrySpec()), limits=Limits(max_depth=2))
    assert world.record.parent is not None
    world.record.parent = replace(world.record.parent, depth=depth)

    decision = world.advance()

    assert bool(world.children) == may_begin
    if not may_begin:
        assert isinstance(decision, Failed)
        assert decision.error["kind"] == "child_failed"
        assert (
            decision.error["message"] == "child workflows may nest at most 2 levels deep (limits.max_depth)"
        )


def test_the_id_of_a_child_names_parent_step_and_run() -> None:
    assert child_execution_id("x1", "call", 3) == "x1:call:3"


def test_a_long_id_becomes_a_short_one_of_its_own() -> None:
    long = "x" * MAX_EXECUTION_ID_LENGTH

    ids = {
        child_execution_id(long, "a", 0),
        child_execution_id(long, "a", 1),
        child_execution_id(long, "b", 0),
    }

    assert len(ids) == 3
    assert all(len(one) <= MAX_EXECUTION_ID_LENGTH for one in ids)
    assert child_execution_id(long, "a", 0) in ids
    assert len(child_execution_id("x" * (MAX_EXECUTION_ID_LENGTH - 4), "a", 0)) == MAX_EXECUTION_ID_LENGTH


def test_a_child_takes_a_place_among_max_workers() -> None:
    world = world_of(child("c"), child("d"), task("a"), max_workers=2)

    assert world.advance() == Pending()
    assert set(world.awaited) == {"c", "d"}
    assert world.dispatched(world.end_child("c", {})) == ["a"]


def test_a_commit_is_filled_by_children_as_by_jobs() -> None:
    """How much one commit may dispatch is bounded, whatever it is; the rest is not forgotten."""
    world = world_of(child("c"), task("a"), child("d"))

    assert world.advance(1) == Pending()
    assert (set(world.awaited), world.last.has_more_ready) == ({"c"}, True)

    decision = world.decide(ContinueEvent(world.record.workflow_execution_id), limit=2)

    assert isinstance(decision, Dispatch)
    assert [job.step_id for job in decision.jobs] == ["a"]
    assert set(world.awaited) == {"c", "d"}
    assert not world.last.has_more_ready


# ---- how it ends, seen by the parent


def test_the_outcome_of_a_child_is_the_output_of_its_step() -> None:
    world = world_of(child("c"), task("b", after="c", input={"n": {"var": "steps.c.output.n"}}))
    world.advance()

    decision = world.end_child("c", {"n": 5})

    assert world.dispatched(decision) == ["b"]
    assert world.out["b"].inputs == {"n": 5}
    assert world.state == {"n": 5}
    assert (world.statuses["c"], world["c"].token) == ("complete", None)
    assert not world.cancels


def test_a_child_that_halted_completes_its_step_and_says_so() -> None:
    world = world_of(child("c"), outputs={"c": {"var": "steps.c.output"}})
    world.advance()

    decision = world.end_child("c", {"halted": True, "result": [1]})

    assert decision == Complete({"c": {"halted": True, "result": [1]}})


def test_output_and_branches_apply_to_what_a_child_brings() -> None:
    halts = branch({"==": [{"var": "total"}, 3]}, "halt", result="enough")
    world = world_of(child("c", output={"total": {"var": "result.n"}}, branch=(halts,)))
    world.advance()

    assert world.end_child("c", {"n": 3}) == Halt("enough")


def test_a_child_that_failed_fails_its_step() -> None:
    world = world_of(child("c"))
    world.advance()

    decision = world.end_child("c", error="child x1:c:0 failed: boom")

    assert isinstance(decision, Failed)
    assert decision.error == {"kind": "child_failed", "message": "child x1:c:0 failed: boom", "step": "c"}
    assert not world.cancels


def test_the_policies_of_a_failure_hold_for_a_child() -> None:
    world = world_of(child("c", on_error="continue"), task("b", after="c"))
    world.advance()

    assert world.dispatched(world.end_child("c", error="boom")) == ["b"]
    assert world.finish("b", {}) == Complete({})


def test_a_child_that_cannot_begin_fails_its_step() -> None:
    world = world_of(child("c"))
    world.advance()
    start = world.awaited["c"]
    assert start.parent is not None

    decision = world.decide(reject_child(start.parent, "no workflow is registered as 'c'"))

    assert isinstance(decision, Failed)
    message = "the child was rejected: no workflow is registered as 'c'"
    assert (decision.error["kind"], decision.error["message"]) == ("child_failed", message)


def test_a_retry_asks_for_another_child() -> None:
    world = world_of(child("c", retry=RetrySpec(max_retries=1, initial_delay_ms=500)))
    world.advance()
    first = world.awaited["c"]

    assert world.end_child("c", error="boom") == Pending()
    assert (world.statuses["c"], len(world.children)) == ("retry", 1)
    world.pass_time(500)

    second = world.awaited["c"]
    assert (first.execution_id, second.execution_id) == ("x1:c:0", "x1:c:1")
    assert second.parent is not None
    assert (second.parent.run_id, second.parent.attempt) == (1, 2)
    assert world.end_child("c", {"n": 1}) == Complete({})
    assert not world.cancels


def test_the_end_of_a_child_counts_once() -> None:
    world = world_of(child("c"), task("b", after="c"))
    world.advance()
    start = world.awaited["c"]
    world.end_child("c", {"n": 1})

    world.decide(world.child_end(start, {"n": 2}))

    assert (world["c"].output, world.counters["stale"]) == ({"n": 1}, 1)


def test_a_child_that_ends_while_its_parent_is_paused_is_heard() -> None:
    world = world_of(child("c"), task("b", after="c"))
    world.advance()
    world.pause()

    assert world.end_child("c", {"n": 1}) == Pending()

    assert world.statuses == {"c": "complete", "b": "ready"}
    assert world.dispatched(world.unpause()) == ["b"]


# ---- a child whose parent no longer waits for it


def reset(world: EngineWorld) -> Any:
    return world.finish("a", {"again": True})


def time_out(world: EngineWorld) -> Any:
    return world.pass_time(5000)


def time_out_the_workflow(world: EngineWorld) -> Any:
    return world.pass_time(9000)


def cancel(world: EngineWorld) -> Any:
    return world.cancel("enough")


def halt(world: EngineWorld) -> Any:
    return world.finish("a", {"halt": True})


def fail(world: EngineWorld) -> Any:
    return world.fail("a")


@pytest.mark.parametrize("happens", [reset, time_out, time_out_the_workflow, cancel, halt, fail])
def test_whatever_ends_the_wait_cancels_the_child_once(happens: Callable[[EngineWorld], Any]) -> None:
    branches = (branch({"var": "again"}, {"set": ["c"]}), branch({"var": "halt"}, "halt"))
    timeout_s = 5.0 if happens is time_out else None
    world = world_of(
        child("c", timeout_s=timeout_s, on_error="continue"), task("a", branch=branches), timeout_s=9.0
    )
    world.advance()
    first = world.awaited["c"]
    job = world.out["a"]

    happens(world)

    cancels = [post for post in world.sent if isinstance(post, ControlEvent)]
    assert [(one.workflow_execution_id, one.action, one.is_from_parent) for one in cancels] == [
        ("x1:c:0", "cancel", True)
    ]
    assert cancels[0].reason == "step c of x1 no longer waits for it"
    before = world["c"]
    world.decide(world.child_end(first, error="child was cancelled"), world.result("a", {}, job))
    assert world["c"] == before, "what the cancelled child says is dropped"
    assert world.cancels == {"x1:c:0": 1}


def test_after_a_reset_another_child_begins() -> None:
    world = world_of(child("c"), task("a", branch=(branch({"var": "again"}, {"set": ["c"]}),)))
    world.advance()

    world.finish("a", {"again": True})

    assert [start.execution_id for start in world.children] == ["x1:c:0", "x1:c:1"]
    assert world.awaited["c"].execution_id == "x1:c:1"


def test_a_timeout_is_retried_with_another_child() -> None:
    world = world_of(child("c", timeout_s=5.0, retry=RetrySpec(1, 100)))
    world.advance()

    assert world.pass_time(5000) == Pending()
    assert (world.statuses["c"], world.error_kind("c")) == ("retry", "timeout")
    world.pass_time(100)

    assert world.awaited["c"].execution_id == "x1:c:1"
    assert world.pass_time(5000) == Failed(
        make_failure("timeout", "execution timeout exceeded (5 s)") | {"step": "c"}
    )
    assert world.cancels == {"x1:c:0": 1, "x1:c:1": 1}


def test_a_child_that_has_ended_is_not_cancelled_later() -> None:
    world = world_of(child("c", retry=RetrySpec(1, 500)), child("d"), task("a"))
    world.advance()
    world.end_child("c", error="boom")
    world.end_child("d", {})

    assert world.cancel() == Cancelled()

    assert world.statuses == {"c": "cancelled", "d": "complete", "a": "cancelled"}
    assert not world.cancels


def test_a_child_that_is_asked_for_and_given_up_in_one_decision_is_cancelled_too() -> None:
    """It hears of both, in this order: it does not begin."""
    world = world_of(child("c"), map_step("m", [1], input={"n": BROKEN}))

    assert isinstance(world.advance(), Failed)

    assert [type(post) for post in world.sent] == [StartEvent, ControlEvent]
    assert world.cancels == {"x1:c:0": 1}


def test_a_child_under_a_concurrency_key_begins_when_it_has_a_place() -> None:
    world = world_of(child("c", **key("k")))

    assert world.advance() == Pending()
    assert world.sent == []
    world.grant("c")

    assert world.slot("c").is_held
    world.end_child("c", {})
    assert world.slots == {}


# ---- how it ends, seen by the child


def test_a_child_that_completes_tells_its_parent_the_outcome() -> None:
    world = below(task("a"), outputs={"n": {"var": "steps.a.output.n"}})

    assert world.play(a={"n": 5}) == Complete({"n": 5})

    assert told(world) == ResultEvent("w0#p1", "call", {"n": 5}, None, 2, 3, "t-1")


def test_a_child_without_steps_tells_its_parent_at_once() -> None:
    world = below()

    assert world.advance() == Complete({})

    assert told(world).output == {}


def test_a_child_that_halts_tells_its_parent_the_result() -> None:
    world = below(task("a", branch=(branch(True, "halt", result=[1, 2]),)))

    world.play(a={})

    assert told(world).output == {"halted": True, "result": [1, 2]}
    assert told(world).error is None


def test_a_child_that_fails_tells_its_parent_why() -> None:
    world = below(task("a"))

    world.play(a=ValueError("boom"))

    message = "child x1 failed: boom"
    assert (told(world).output, told(world).error) == (
        None,
        make_failure("child_failed", message, child="w1#x1"),
    )


@pytest.mark.parametrize(
    ("reason", "said"),
    [("too late", "child x1 was cancelled: too late"), (None, "child x1 was cancelled: no reason was given")],
)
def test_a_child_that_is_cancelled_tells_its_parent_why(reason: str | None, said: str) -> None:
    world = below(task("a"))
    world.advance()

    assert world.cancel(reason) == Cancelled(reason)

    error = told(world).error
    assert error is not None
    assert error["message"] == said


def test_a_child_tells_its_parent_only_when_all_is_compensated() -> None:
    world = below(task("a", **undo()), task("b", after="a"))
    world.play(a={}, b=ValueError("boom"))

    assert world.sent == []
    world.finish("a#undo")

    error = told(world).error
    assert error is not None
    assert error["message"] == "child x1 failed: boom"


@pytest.mark.parametrize("ends", ["complete", "halted"])
def test_an_outcome_that_is_too_large_fails_the_step_of_the_parent(ends: str) -> None:
    halts = (branch({"==": [ends, "halted"]}, "halt", result_expr={"var": "text"}),)
    world = below(
        task("a", branch=halts),
        outputs={"t": {"var": "state.text"}},
        limits=Limits(max_output_bytes=100),
    )

    world.play(a={"text": "x" * 200})

    assert world.record.status == ends
    error = told(world).error
    assert error is not None
    assert error["kind"] == "child_failed"
    assert error["message"].startswith("child x1 ended with 2")
    assert "limits.max_output_bytes allows 100" in error["message"]
    assert told(world).output is None


def test_an_execution_without_a_parent_sends_no_result() -> None:
    world = world_of(task("a"))

    world.play(a={})

    assert world.sent == []
