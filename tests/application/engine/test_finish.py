"""How a workflow ends when it cannot be decided upon any more, and what it leaves behind then."""

from __future__ import annotations

import pytest

from orchestrator.application.engine.transitions import advance, fail_workflow
from orchestrator.application.records.decisions import Failed, make_final_decision
from orchestrator.application.records.events import Parent, ResultEvent, make_failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import RetrySpec
from worlds.engine_world import world_of
from worlds.specs import branch, child, key, map_step, task, undo

DEFECT = make_failure("internal", "a defect of ours")


def test_an_execution_that_is_given_up_fails_and_leaves_nothing_behind() -> None:
    world = world_of(
        task("a"),
        task("b", after="a"),
        child("c"),
        task("r", retry=RetrySpec(1, 1000)),
        map_step("m", [1, 2], max_parallel=1),
        task("k", **key("k")),
        timeout_s=60.0,
        **key("w"),
    )
    world.advance()
    world.grant()
    world.fail("r")

    world.give_up(DEFECT)

    assert world.record.error == DEFECT
    assert world.record.status is WorkflowStatus.FAILED
    assert set(world.statuses.values()) == {"cancelled", "skipped"}
    assert world.reason("a") == "workflow failed: a defect of ours"
    assert world.cancels == {"x1:c:0": 1}
    assert advance(world.record, world.moment())[1] == Failed(DEFECT)


def test_what_cannot_be_judged_is_not_undone_either() -> None:
    world = world_of(task("a", **undo()), task("b", after="a"))
    world.play(a={})

    world.give_up(DEFECT)

    assert (world.record.status, world.record.compensated) == (WorkflowStatus.FAILED, None)


@pytest.mark.parametrize("is_tried_again", [False, True])
def test_an_execution_that_is_given_up_while_it_compensates_is_not_compensated(is_tried_again: bool) -> None:
    world = world_of(task("a", **undo(retry=RetrySpec(1, 1000))), task("b", after="a"))
    world.play(a={}, b=ValueError("boom"))
    if is_tried_again:
        world.fail("a#undo")

    world.give_up(DEFECT)

    assert (world.record.compensated, world.record.ending) == (False, None)
    assert world.record.items["a#undo"].status is StepStatus.CANCELLED
    assert world.record.error == DEFECT


def test_an_execution_that_is_given_up_between_two_compensations_has_none_under_way() -> None:
    world = world_of(task("a", **undo()), task("b", after="a"))
    world.play(a={})
    world.apply(world.error("b"))

    world.give_up(DEFECT)

    assert (world.record.compensated, world.record.items) == (False, {})

    world = world_of(task("a", **undo()), task("b", **undo()), task("z", after="a b"))
    world.play(a={}, b={}, z=ValueError("boom"))
    world.apply(world.result("b#undo"))

    world.give_up(DEFECT)

    assert world.record.items["b#undo"].status is StepStatus.COMPLETE


def test_the_parent_of_an_execution_that_is_given_up_hears_of_it() -> None:
    world = world_of(task("a"))
    world.record.parent = Parent("w0#p1", "c", 0, 1, "t", "p1")
    world.advance()

    world.give_up(DEFECT)

    [post] = world.sent
    assert isinstance(post, ResultEvent)
    assert post.error is not None
    assert post.error["message"] == "child x1 failed: a defect of ours"


@pytest.mark.parametrize("status", ["complete", "halted", "failed", "cancelled"])
def test_an_execution_that_has_ended_cannot_be_given_up(status: str) -> None:
    world = world_of(task("a", branch=(branch({"var": "halt"}, "halt"),)))
    world.advance()
    match status:
        case "cancelled":
            world.cancel()
        case "failed":
            world.fail("a")
        case _:
            world.finish("a", {"halt": status == "halted"})

    changes = fail_workflow(world.record, DEFECT, world.moment())

    assert changes.is_empty
    assert world.record.status == status


def test_a_decision_after_the_end_says_how_it_ended() -> None:
    assert make_final_decision("failed", {"n": 1}, None) == Failed({}, {"n": 1})


def test_those_in_line_leave_it_when_a_halt_leaves_them_ready() -> None:
    world = world_of(task("a", **key("k")), task("b", branch=(branch(True, "halt"),)), task("c", after="b"))
    world.advance()

    world.finish("b", {})

    assert world.statuses == {"a": "ready", "b": "halted", "c": "ready"}
    assert (world["a"].slot, world.slots) == (None, {})
