"""Compensations: what was done is undone when the workflow fails or is cancelled, the newest first."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import Cancelled, Complete, Failed, Halt, Pending
from orchestrator.application.records.events import SlotEvent
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.spec.model import Limits, RetrySpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, child, delay, key, map_step, resets, switch, task, undo, wait_step


def failing(*done: str, **keys: Any) -> EngineWorld:
    """An execution whose steps have completed in this order, and whose last one then fails."""
    world = world_of(
        *(task(name, **undo(f"un-{name}", **keys)) for name in sorted(done)), task("z", after=done)
    )
    world.advance()
    for name in done:
        world.finish(name, {"id": f"id-{name}"})
    world.fail("z")
    return world


def undone(world: EngineWorld) -> list[str]:
    """What was undone, in the order of dispatch."""
    return [job.fn for job in world.jobs if job.step_id.endswith("#undo")]


# ---- what is undone, and in which order


def test_completions_are_undone_one_at_a_time_the_newest_first() -> None:
    world = failing("b", "a", "c")

    assert (world.record.status, list(world.out)) == (WorkflowStatus.COMPENSATING, ["c#undo"])
    assert world.dispatched(world.finish("c#undo")) == ["a#undo"]
    assert world.dispatched(world.finish("a#undo")) == ["b#undo"]
    decision = world.finish("b#undo")

    assert decision == Failed({"kind": "exception", "message": "boom", "step": "z"})
    assert undone(world) == ["un-c", "un-a", "un-b"]
    assert (world.record.status, world.record.compensated) == (WorkflowStatus.FAILED, True)
    assert world.record.ending is None


def test_completions_of_one_batch_are_undone_by_their_order_in_it() -> None:
    world = world_of(task("a", **undo("un-a")), task("b", **undo("un-b")), task("z", after="a b"))
    world.advance()
    world.decide(world.result("b", {}), world.result("a", {}))
    world.fail("z")

    world.finish("a#undo")

    assert undone(world) == ["un-a", "un-b"]


def test_a_step_that_has_nothing_to_undo_is_passed_over() -> None:
    world = world_of(task("a", **undo("un-a")), task("b", after="a"), task("z", after="b"))

    world.play(a={}, b={}, z=ValueError("boom"))

    assert isinstance(world.finish("a#undo"), Failed)
    assert undone(world) == ["un-a"]


def test_without_anything_to_undo_a_failure_is_final_at_once() -> None:
    world = world_of(task("a", **undo()), task("z"))
    world.advance()

    assert isinstance(world.fail("z"), Failed)

    assert (world.record.compensated, undone(world)) == (None, [])


def test_only_steps_that_completed_are_undone() -> None:
    skips = (branch({"var": "skip"}, "skip"),)
    world = world_of(
        task("failed", on_error="continue", **undo("un-failed")),
        task("skipped", branch=skips, **undo("un-skipped")),
        task("filtered", guards=(False,), **undo("un-filtered")),
        task("running", **undo("un-running")),
        task("done", **undo("un-done")),
    )
    world.advance()
    world.fail("failed")
    world.finish("skipped", {"skip": True})
    world.finish("done", {})

    world.cancel()

    assert isinstance(world.finish("done#undo"), Cancelled)
    assert undone(world) == ["un-done"]


def test_only_completions_of_the_current_round_are_undone() -> None:
    again = resets({"var": "again"}, "a")
    world = world_of(
        task("a", **undo("un-a")), task("b", **undo("un-b")), task("c", after="a", branch=(again,))
    )
    world.advance()
    world.finish("a", {"n": 1})
    world.finish("b", {})
    world.finish("c", {"again": True})

    world.cancel()

    assert undone(world) == ["un-b"]
    assert isinstance(world.finish("b#undo"), Cancelled)


def test_a_step_that_completed_again_after_a_reset_is_undone_as_the_newest() -> None:
    again = resets({"var": "again"}, "a")
    world = world_of(
        task("a", input={}, **undo("un-a")), task("b", **undo("un-b")), task("c", after="a", branch=(again,))
    )
    world.advance()
    world.finish("a", {"n": 1})
    world.finish("b", {})
    world.finish("c", {"again": True})
    world.finish("a", {"n": 2})

    world.fail("c")
    world.finish("a#undo")

    assert undone(world) == ["un-a", "un-b"]
    assert [job.run_id for job in world.jobs if job.fn == "un-a"] == [1]


def test_a_halt_never_compensates() -> None:
    world = world_of(task("a", **undo()), task("b", after="a", branch=(branch(True, "halt", result=1),)))

    assert world.play(a={}, b={}) == Halt(1)

    assert undone(world) == []


def test_an_end_that_is_no_failure_never_compensates() -> None:
    world = world_of(task("a", **undo()))

    assert world.play(a={}) == Complete({})

    assert undone(world) == []


def test_steps_of_every_kind_are_undone() -> None:
    world = world_of(
        map_step("m", [1, 2], **undo("un-m", input={"items": {"var": "output.items"}})),
        child("c", "m", **undo("un-c", input={"n": {"var": "output.n"}})),
        wait_step("w", "go", after="c", **undo("un-w", input={"by": {"var": "output.by"}})),
        switch("s", "x", {"x": "z"}, after="w", **undo("un-s", input={"took": {"var": "output.branch"}})),
        delay("d", 10, "s", **undo("un-d")),
        task("z", "d s"),
    )
    world.advance()
    world.finish("m#0", {"k": 1})
    world.finish("m#1", {"k": 2})
    world.end_child("c", {"n": 7})
    world.signal("go", {"by": "me"})
    world.pass_time(10)
    world.fail("z")

    for name in ("d", "s", "w", "c", "m"):
        world.finish(f"{name}#undo")

    assert undone(world) == ["un-d", "un-s", "un-w", "un-c", "un-m"]
    assert [job.inputs for job in world.jobs if job.step_id.endswith("#undo")] == [
        {},
        {"took": "x"},
        {"by": "me"},
        {"n": 7},
        {"items": [{"k": 1}, {"k": 2}]},
    ]
    assert not world.cancels


# ---- what leads to it


def test_a_cancel_compensates() -> None:
    world = world_of(task("a", **undo()), task("b", after="a"))
    world.play(a={})

    world.cancel("enough")

    assert world.statuses == {"a": "complete", "b": "cancelled"}
    assert list(world.out) == ["a#undo"], "the job of b is gone"
    assert world.finish("a#undo") == Cancelled("enough")
    assert world.record.cancelled is not None
    assert world.record.cancelled["reason"] == "enough"


def test_the_timeout_of_the_workflow_compensates() -> None:
    world = world_of(task("a", **undo()), task("b", after="a"), timeout_s=10.0)
    world.play(a={})

    world.pass_time(10_000)

    assert list(world.out) == ["a#undo"]
    assert world.record.deadline_ms is None
    decision = world.finish("a#undo")
    assert isinstance(decision, Failed)
    assert decision.error["message"] == "the workflow exceeded its timeout (10 s)"


def test_a_failure_that_no_step_tolerates_compensates_at_the_end() -> None:
    world = world_of(
        task("a", **undo()),
        task("p", after="a"),
        task("d", after="p", on_error="continue"),
        outputs={"n": {"var": "steps.a.output.n"}},
    )

    world.play(a={"n": 1}, p=ValueError("boom"), d={})

    assert list(world.out) == ["a#undo"]
    assert world.finish("a#undo") == Failed({"kind": "exception", "message": "boom", "step": "p"}, {"n": 1})


def test_outputs_that_cannot_be_resolved_compensate() -> None:
    world = world_of(task("a", **undo()), outputs={"n": BROKEN})

    world.play(a={})

    assert list(world.out) == ["a#undo"]
    assert isinstance(world.finish("a#undo"), Failed)


def test_a_step_that_cannot_be_judged_compensates() -> None:
    world = world_of(task("a", **undo()), task("b", after="a", guards=(BROKEN,)))

    assert world.dispatched(world.play(a={})) == ["a#undo"]


def test_a_failure_while_paused_compensates_at_once() -> None:
    world = world_of(task("a", **undo()), task("b", after="a"), task("c"))
    world.play(a={})
    world.pause()

    assert world.dispatched(world.fail("b")) == ["a#undo"]

    with pytest.raises(InvalidEvent, match="cannot be unpaused: it is compensating"):
        world.apply(world.control("unpause"))
    assert isinstance(world.finish("a#undo"), Failed)


def test_a_result_alone_leaves_the_compensation_to_advance() -> None:
    """Only advance() dispatches: in two-step use the second call returns the job."""
    world = world_of(task("a", **undo()), task("b", after="a"))
    world.play(a={})

    assert world.apply(world.error("b")) == Pending()
    assert (world.record.status, world.out) == (WorkflowStatus.COMPENSATING, {})

    assert world.dispatched(world.advance()) == ["a#undo"]


# ---- while it goes on


def test_the_job_of_a_compensation() -> None:
    given = {"id": {"var": "output.id"}, "n": {"var": "input.n"}}
    world = world_of(
        task("a", priority=2, has_own_priority=True, **undo("refund", given, timeout_s=7.0, queue="q")),
        task("b", after="a"),
        inputs={"n": 3},
    )
    world.play(a={"id": "p1"}, b=ValueError("boom"))

    job = world.out["a#undo"]

    assert (job.fn, job.inputs, job.queue, job.timeout_s) == ("refund", {"id": "p1", "n": 3}, "q", 7.0)
    assert (job.attempt, job.round, job.priority) == (1, 0, 2)
    assert job.idempotency_key == "x1#a#0#undo"


def test_an_undo_in_a_later_round_has_another_idempotency_key() -> None:
    world = world_of(task("a", **undo()), task("b", after="a", branch=(resets({"var": "again"}, "a"),)))
    world.play(a={}, b={"again": True})
    world.finish("a", {})
    world.fail("b")

    assert world.out["a#undo"].idempotency_key == "x1#a#1#undo"


def test_an_error_is_noted_and_the_next_one_runs() -> None:
    world = failing("a", "b")

    assert world.dispatched(world.fail("b#undo", "no refund")) == ["a#undo"]
    decision = world.finish("a#undo")

    noted = [{"step": "b", "kind": "exception", "message": "no refund"}]
    error = {"kind": "exception", "message": "boom", "step": "z", "compensation_errors": noted}
    assert decision == Failed(error)
    assert world.record.compensated is False
    assert world.record.items["b#undo"].status == "failed"
    assert world.record.items["a#undo"].status == "complete"


def test_an_error_after_a_cancel_is_the_error_of_the_execution() -> None:
    world = world_of(task("a", **undo()), task("b", after="a"))
    world.play(a={})
    world.cancel()

    assert world.fail("a#undo", "no refund") == Cancelled()

    assert world.record.error is not None
    assert world.record.error["kind"] == "compensation"
    assert world.record.error["message"] == "not compensated: a"
    assert world.record.compensated is False


def test_inputs_that_cannot_be_resolved_are_an_error_like_any_other() -> None:
    world = world_of(
        task("a", **undo("un-a", input={"n": BROKEN})),
        task("b", after="a", **undo("un-b")),
        task("c", after="b", **undo("un-c", input={"n": BROKEN})),
        task("z", after="c"),
    )
    world.play(a={}, b={}, c={}, z=ValueError("boom"))

    assert list(world.out) == ["b#undo"], "c cannot be undone: b is next"
    decision = world.finish("b#undo")

    assert isinstance(decision, Failed)
    errors = decision.error["compensation_errors"]
    assert [(error["step"], error["kind"]) for error in errors] == [("c", "expression"), ("a", "expression")]
    assert errors[0]["message"].startswith("input cannot be resolved: ")


def test_when_no_compensation_can_begin_the_end_comes_at_once() -> None:
    world = world_of(task("a", **undo(input={"n": BROKEN})), task("z", after="a"))

    decision = world.play(a={}, z=ValueError("boom"))

    assert isinstance(decision, Failed)
    assert (world.record.compensated, undone(world)) == (False, [])


def test_a_compensation_is_tried_again_with_its_own_back_off() -> None:
    world = failing("a", retry=RetrySpec(max_retries=2, initial_delay_ms=100))

    assert world.fail("a#undo") == Pending()
    assert world.next_due_ms == 100
    world.pass_time(100)
    assert world.fail("a#undo") == Pending()
    assert world.next_due_ms == 200
    world.pass_time(200)

    assert world.out["a#undo"].attempt == 3
    assert isinstance(world.finish("a#undo"), Failed)
    assert world.record.compensated is True


def test_a_compensation_fails_when_its_attempts_are_used_up() -> None:
    world = failing("a", retry=RetrySpec(1, 100))
    world.fail("a#undo")
    world.pass_time(100)

    world.fail("a#undo", "no")

    assert (world.record.status, world.record.compensated) == (WorkflowStatus.FAILED, False)


def test_a_lost_worker_does_not_count_as_an_attempt() -> None:
    world = failing("a")

    assert world.dispatched(world.lose("a#undo")) == ["a#undo"]

    job = world.out["a#undo"]
    assert (job.attempt, job.run_id) == (1, 1)
    assert isinstance(world.finish("a#undo"), Failed)
    assert world.record.compensated is True


def test_too_many_lost_workers_are_an_error() -> None:
    world = world_of(task("a", **undo()), task("z", after="a"), limits=Limits(max_lost=1))
    world.play(a={}, z=ValueError("boom"))
    world.lose("a#undo")

    decision = world.lose("a#undo")

    assert isinstance(decision, Failed)
    assert decision.error["compensation_errors"][0]["kind"] == "lost"


def test_a_compensation_has_a_timeout_of_its_own() -> None:
    world = failing("b", "a", timeout_s=3.0)
    world.decide(world.started("a#undo"))

    assert world.dispatched(world.pass_time(3000)) == ["b#undo"]

    assert world.record.items["a#undo"].error == {
        "kind": "timeout",
        "message": "execution timeout exceeded (3 s)",
    }


def test_results_that_come_late_or_twice_change_nothing() -> None:
    world = failing("b", "a")
    job = world.out["a#undo"]
    world.finish("a#undo")

    world.decide(world.error("a#undo", job=job))
    world.finish("b#undo")
    world.decide(world.error("a#undo", job=job))

    assert world.record.compensated is True
    assert (world.counters["stale"], world.counters["late"]) == (1, 1)


def test_what_a_compensation_returns_goes_nowhere() -> None:
    world = failing("a")

    world.finish("a#undo", {"id": "other"})

    assert world.state["id"] == "id-a"
    assert world["a"].output == {"id": "id-a"}


def test_what_was_under_way_is_cancelled_before_anything_is_undone() -> None:
    world = world_of(
        task("a", **undo()), task("b"), child("c"), task("d", **key("k")), task("z"), timeout_s=60.0
    )
    world.advance()
    world.finish("a", {})
    slot = world.slot_event("d")

    world.fail("z")

    assert world.statuses == {
        "a": "complete",
        "b": "cancelled",
        "c": "cancelled",
        "d": "skipped",
        "z": "failed",
    }
    assert (list(world.out), world.slots, world.armed) == (["a#undo"], {}, set())
    assert world.cancels == {"x1:c:0": 1}
    world.decide(SlotEvent(slot.workflow_execution_id, "d", slot.token))
    assert world.counters["stale"] == 1


def test_an_execution_keeps_its_own_place_until_all_is_undone() -> None:
    world = world_of(task("a", **undo()), task("z", after="a"), **key("k"))
    world.advance()
    world.grant()
    world.finish("a", {})
    world.fail("z")

    assert [owner for owner, _ in world.slots.values()] == [""]
    world.finish("a#undo")

    assert world.slots == {}


def test_another_process_goes_on_where_the_first_one_stopped() -> None:
    world = failing("c", "b", "a", retry=RetrySpec(1, 100))
    world.fail("a#undo")
    world.reload()
    world.pass_time(100)
    world.reload()
    world.fail("a#undo", "no")
    world.reload()
    world.finish("b#undo")
    world.reload()

    decision = world.finish("c#undo")

    assert isinstance(decision, Failed)
    assert [error["step"] for error in decision.error["compensation_errors"]] == ["a"]
