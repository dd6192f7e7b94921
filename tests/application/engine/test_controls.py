"""What an operator may say, in every status: cancel, pause, unpause; and of one step: hold, release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.application.engine.transitions import decide
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import Cancelled, Complete, Dispatch, Failed, Halt, Pending
from orchestrator.application.records.events import Control, Parent, ResultEvent
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.spec.model import RetrySpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, child, delay, key, map_step, resets, switch, task, undo, wait_step

# ---- a workflow in each of its statuses


def pending() -> EngineWorld:
    return world_of(task("a"), task("b", after="a"), timeout_s=60.0)


def in_progress() -> EngineWorld:
    world = pending()
    world.advance()
    return world


def paused() -> EngineWorld:
    world = in_progress()
    world.pause()
    return world


def compensating() -> EngineWorld:
    world = world_of(task("a", **undo()), task("b", after="a"))
    world.play(a={}, b=ValueError("boom"))
    return world


def complete() -> EngineWorld:
    world = world_of(task("a"))
    world.play(a={})
    return world


def halted() -> EngineWorld:
    world = world_of(task("a", branch=(branch(True, "halt"),)), task("b", after="a"))
    world.play(a={})
    return world


def failed() -> EngineWorld:
    world = world_of(task("a"))
    world.play(a=ValueError("boom"))
    return world


def cancelled() -> EngineWorld:
    world = in_progress()
    world.cancel("first")
    return world


STATUSES: list[Callable[[], EngineWorld]] = [
    pending,
    in_progress,
    paused,
    compensating,
    complete,
    halted,
    failed,
    cancelled,
]

ANSWERS: dict[Control, dict[str, str]] = {
    "cancel": {
        "pending": "cancelled",
        "in_progress": "cancelled",
        "paused": "cancelled",
        "cancelled": "cancelled",
    },
    "pause": {"pending": "paused", "in_progress": "paused", "paused": "paused"},
    "unpause": {"paused": "in_progress"},
}


@pytest.mark.parametrize("action", ANSWERS)
@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.__name__)
def test_every_word_to_a_workflow_is_followed_or_refused(
    status: Callable[[], EngineWorld], action: Control
) -> None:
    world, before = status(), status.__name__
    assert world.record.status == before
    allowed = ANSWERS[action].get(before)

    if allowed is None:
        with pytest.raises(InvalidEvent, match=f"'w1#x1' cannot be {action.rstrip('e')}.*: it is {before}"):
            world.apply(world.control(action))
        decided = decide(world.record, [world.control(action)], world.moment())
        assert [position for position, _ in decided.rejected] == [0]
    else:
        world.apply(world.control(action))
        assert world.record.status == allowed
        assert world.last.is_empty == (allowed == before)


def test_a_refused_word_does_not_keep_the_others_of_its_batch_from_counting() -> None:
    world = in_progress()

    decided = decide(world.record, [world.control("unpause"), world.result("a", {})], world.moment())

    assert [position for position, _ in decided.rejected] == [0]
    assert isinstance(decided.decision, Dispatch)


# ---- cancel


def test_a_cancel_ends_everything_at_once_and_records_the_operator_and_the_reason() -> None:
    world = world_of(
        task("a"),
        task("b", after="a"),
        task("c", retry=RetrySpec(1, 9000)),
        wait_step("w", "go", timeout_ms=9000),
        delay("d", 9000),
        map_step("m", [1, 2], max_parallel=1),
        child("k"),
        task("h"),
        task("f", guards=(False,)),
        timeout_s=60.0,
    )
    world.decide(world.control("hold", "h"))
    world.fail("c")

    result = world.apply(world.control("cancel", reason="too dear", by="ann"))

    assert result == Cancelled("too dear")
    assert world.advance() == Cancelled("too dear")
    assert world.statuses == {
        "a": "cancelled",
        "b": "skipped",
        "c": "cancelled",
        "w": "cancelled",
        "d": "cancelled",
        "m": "cancelled",
        "k": "cancelled",
        "h": "cancelled",
        "f": "filtered",
    }
    assert [world.item(f"m#{n}").status for n in (0, 1)] == ["cancelled", "skipped"]
    assert world.reason("a") == "workflow cancelled: too dear"
    assert world["h"].held is None
    cancelled = world.record.cancelled
    assert cancelled == {"at": world.moment().iso, "reason": "too dear", "by": "ann"}
    assert world.armed == set()


def test_a_cancel_without_a_reason_gives_none() -> None:
    world = in_progress()

    assert world.cancel() == Cancelled(None)

    assert world.reason("a") == "workflow cancelled"
    assert world.record.cancelled == {"at": world.moment().iso}


def test_a_second_cancel_changes_nothing() -> None:
    world = cancelled()

    assert world.cancel("second") == Cancelled("first")

    assert world.last.is_empty


@pytest.mark.parametrize("status", [compensating, complete, halted, failed, cancelled])
def test_a_parent_that_cancels_too_late_is_ignored(status: Callable[[], EngineWorld]) -> None:
    world = status()
    world.record.parent = PARENT
    before = world.record.status

    assert world.apply(world.control("cancel", parent_token="t")) is None

    assert world.record.status == before
    assert world.last.is_empty


def test_a_parent_cancels_only_its_child() -> None:
    """Another execution may have been started under the id that a child would have had."""
    stranger, child = in_progress(), in_progress()
    child.record.parent = PARENT

    for world in (stranger, child):
        world.apply(world.control("cancel", parent_token="t"))

    assert (stranger.record.status, child.record.status) == ("in_progress", "cancelled")


def test_what_comes_after_a_cancel_is_late() -> None:
    world = in_progress()
    job = world.out["a"]
    world.cancel()

    world.decide(world.result("a", {}, job))

    assert (world.counters["late"], world.statuses["a"]) == (1, "cancelled")


PARENT = Parent("w0#p1", "c", 0, 1, "t", "p1")


# ---- pause and unpause


def test_a_paused_workflow_takes_in_results_and_dispatches_nothing() -> None:
    world = paused()

    assert world.finish("a", {"n": 1}) == Pending()

    assert world.statuses == {"a": "complete", "b": "ready"}
    assert world.state == {"n": 1}
    assert world.dispatched(world.unpause()) == ["b"]


def test_a_pause_keeps_its_reason_and_its_requester_until_it_ends() -> None:
    world = in_progress()

    world.pause("the supplier is closed", "ada")
    first = world.record.paused
    world.pause("another reason", "bob")  # it is paused already
    again, noted = world.record.pause_details, [one for one in world.history if "control" in one]
    world.unpause()

    assert first == again == {"at": world.moment().iso, "reason": "the supplier is closed", "by": "ada"}
    assert [(one["control"], one["reason"], one["by"]) for one in noted] == [
        ("pause", "the supplier is closed", "ada")
    ]
    assert world.record.paused is world.record.pause_details is None


def test_a_pause_without_a_reason_keeps_its_time_alone() -> None:
    world = paused()

    assert world.record.paused == {"at": world.moment().iso}


def test_a_paused_workflow_that_ends_is_not_paused_any_more() -> None:
    cancelled, failed = paused(), paused()

    cancelled.cancel()
    failed.fail("a")

    assert cancelled.record.paused is failed.record.paused is None


def test_what_an_earlier_release_left_behind_is_not_taken_for_a_pause() -> None:
    world = in_progress()
    world.record.paused = {"at": world.moment().iso}

    assert world.record.pause_details is None


def test_a_paused_workflow_does_not_complete_before_it_is_unpaused() -> None:
    world = paused()
    world.finish("a", {})
    world.unpause()
    world.pause()

    assert world.finish("b", {}) == Pending()

    assert world.unpause() == Complete({})


def test_a_halt_ends_a_paused_workflow() -> None:
    world = world_of(task("a", branch=(branch(True, "halt", result=1),)))
    world.advance()
    world.pause()

    assert world.finish("a", {}) == Halt(1)


def test_a_failure_ends_a_paused_workflow() -> None:
    assert isinstance(paused().fail("a"), Failed)


def test_clocks_go_on_while_paused() -> None:
    world = world_of(task("a", defer_ms=100), task("b", retry=RetrySpec(1, 100)), delay("c", 100))
    world.advance()
    world.fail("b")
    world.pause()

    assert world.pass_time(100) == Pending()

    assert world.statuses == {"a": "deferred", "b": "retry", "c": "complete"}
    assert world.dispatched(world.unpause()) == ["a", "b"]


def test_a_timeout_while_paused_counts_and_its_retry_waits() -> None:
    world = world_of(task("a", timeout_s=5.0, retry=RetrySpec(1, 100)))
    world.advance()
    world.decide(world.started("a"))
    world.pause()

    assert world.pass_time(5000) == Pending()
    assert world.pass_time(100) == Pending()

    assert world.statuses["a"] == "retry"
    assert world.dispatched(world.unpause()) == ["a"]


def test_the_timeout_of_the_workflow_ends_it_while_paused() -> None:
    world = paused()

    decision = world.pass_time(60_000)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "timeout"


def test_a_workflow_that_is_paused_before_anything_began_has_no_clock_yet() -> None:
    world = pending()
    world.pause()

    assert world.armed == set()
    world.now_ms += 100_000
    assert world.dispatched(world.unpause()) == ["a"]

    assert [timer.due_ms - world.now_ms for timer in world.armed] == [60_000]


def test_the_clock_of_a_workflow_is_not_started_again_by_unpause() -> None:
    world = in_progress()
    due_ms = world.record.deadline_ms
    world.pause()
    world.now_ms += 1000

    world.unpause()

    assert world.record.deadline_ms == due_ms


def test_a_paused_workflow_can_be_cancelled() -> None:
    assert paused().cancel() == Cancelled()


def test_a_signal_while_paused_completes_the_wait_and_no_more() -> None:
    world = world_of(wait_step("w", "go"), task("a", "w"))
    world.advance()
    world.pause()

    assert world.signal("go") == Pending()

    assert world.statuses == {"w": "complete", "a": "ready"}
    assert world.dispatched(world.unpause()) == ["a"]


def test_a_pause_survives_another_process() -> None:
    world = paused()
    world.reload()
    world.finish("a", {})
    world.reload()

    assert world.dispatched(world.unpause()) == ["b"]


# ---- hold and release


def test_a_held_step_is_not_dispatched_and_the_others_are() -> None:
    world = world_of(task("a"), task("b"))
    world.apply(world.control("hold", "a"))

    assert world.dispatched(world.advance()) == ["b"]
    assert world.finish("b", {}) == Pending()
    assert (world.statuses["a"], world["a"].held) == ("on_hold", "ready")

    assert world.dispatched(world.release("a")) == ["a"]
    assert world["a"].held is None


def test_a_step_is_held_before_its_parents_are_done() -> None:
    world = world_of(task("a"), task("b", after="a"))
    world.advance()
    world.hold("b")

    assert world.finish("a", {}) == Pending()

    assert world.dispatched(world.release("b")) == ["b"]


def test_a_step_that_is_released_too_early_waits_for_its_parents() -> None:
    world = world_of(task("a"), task("b", after="a"))
    world.advance()
    world.hold("b")

    assert world.release("b") == Pending()

    assert world.statuses["b"] == "ready"
    assert world.dispatched(world.finish("a", {})) == ["b"]


def held_in_retry() -> EngineWorld:
    world = world_of(task("a", retry=RetrySpec(1, 1000)), task("z"))
    world.advance()
    world.fail("a")
    return world


def held_deferred() -> EngineWorld:
    world = world_of(task("a", defer_ms=1000), task("z"))
    world.advance()
    return world


def held_in_a_delay() -> EngineWorld:
    world = world_of(delay("a", 1000), task("z"))
    world.advance()
    return world


def held_waiting() -> EngineWorld:
    world = world_of(wait_step("a", "go", timeout_ms=1000, on_timeout="continue"), task("z"))
    world.advance()
    return world


WITH_CLOCKS = [held_in_retry, held_deferred, held_in_a_delay, held_waiting]


@pytest.mark.parametrize("make", WITH_CLOCKS)
def test_a_held_step_keeps_its_clock_and_what_it_was(make: Callable[[], EngineWorld]) -> None:
    world = make()
    before, armed = world["a"], set(world.armed)
    world.hold("a")

    assert world.armed == set(), "nothing comes of its clock"
    world.now_ms += 400
    world.release("a")

    assert (world["a"], world.armed) == (before, armed)


@pytest.mark.parametrize("make", WITH_CLOCKS)
def test_what_became_due_meanwhile_happens_when_it_is_released(make: Callable[[], EngineWorld]) -> None:
    world = make()
    world.hold("a")
    [held] = [step.held for step in world.record.steps.values() if step.held]
    assert world.pass_time(5000) == Pending()
    assert world.statuses["a"] == "on_hold"

    world.release("a")
    assert world.statuses["a"] == held
    world.pass_time(0)

    assert world.statuses["a"] in ("in_progress", "complete")


@pytest.mark.parametrize("make", WITH_CLOCKS)
def test_a_timer_that_rings_for_a_held_step_is_stale(make: Callable[[], EngineWorld]) -> None:
    world = make()
    [timer] = world.armed
    world.hold("a")
    world.now_ms = timer.due_ms

    world.decide(world.timer_event(timer))

    assert (world.statuses["a"], world.counters["stale"]) == ("on_hold", 1)


def test_a_signal_while_held_is_kept_for_the_release() -> None:
    world = world_of(wait_step("w", "go"), outputs={"w": {"var": "steps.w.output"}})
    world.advance()
    world.hold("w")

    assert world.signal("go", {"by": "ann"}) == Pending()
    assert world.record.signals == [{"name": "go", "payload": {"by": "ann"}}]

    assert world.release("w") == Complete({"w": {"by": "ann"}})
    assert world.record.signals == []


def test_a_wait_that_is_released_without_a_signal_goes_on_waiting() -> None:
    world = world_of(wait_step("w", "go"))
    world.advance()
    world.hold("w")
    world.signal("other")

    assert world.release("w") == Pending()

    assert world.statuses["w"] == "waiting"
    assert world.signal("go") == Complete({})


def test_a_hold_survives_a_reset() -> None:
    world = world_of(
        task("a", branch=(resets({"var": "again"}, "b"),)), task("b", retry=RetrySpec(1, 1000)), task("z")
    )
    world.advance()
    world.fail("b")
    world.hold("b")

    world.finish("a", {"again": True})

    step = world["b"]
    assert (step.status, step.held, step.run_id, step.attempt, step.round) == ("on_hold", "ready", 2, 1, 1)
    assert (step.not_before_ms, step.error) == (None, None)
    assert world.dispatched(world.release("b")) == ["b"]


def test_a_parent_that_failed_while_the_step_was_held_skips_it_at_the_release() -> None:
    world = world_of(task("a", on_error="skip"), task("b", after="a"), task("c", after="b"), task("z"))
    world.advance()
    world.hold("b")
    world.fail("a")
    assert world.statuses == {"a": "skipped", "b": "on_hold", "c": "ready", "z": "in_progress"}

    world.release("b")

    assert world.statuses == {"a": "skipped", "b": "skipped", "c": "skipped", "z": "in_progress"}
    assert world.reason("b") == "parent a failed"


def test_a_switch_that_took_another_path_filters_a_held_step_at_the_release() -> None:
    world = world_of(
        switch("s", "x", {"x": "a", "y": "b"}, after="p"), task("a", "s"), task("b", "s"), task("p")
    )
    world.advance()
    world.hold("b")
    world.finish("p", {})
    assert world.statuses["b"] == "on_hold"

    world.release("b")

    assert world.statuses["b"] == "filtered"
    assert world.reason("b") == "not selected by switch s"


def test_a_condition_that_became_false_filters_a_held_step_at_the_release() -> None:
    world = world_of(task("a", guards=({"!": [{"var": "state.closed"}]},)), task("b"))
    world.apply(world.control("hold", "a"))
    world.advance()
    world.finish("b", {"closed": True})

    assert world.release("a") == Complete({})

    assert world.statuses["a"] == "filtered"


def test_a_hold_gives_back_the_place_in_a_line_and_the_release_asks_again() -> None:
    world = world_of(task("a", **key("k")))
    world.advance()
    first = world.slot("a").token

    world.hold("a")
    assert (world.slots, world["a"].slot) == ({}, None)
    world.release("a")

    assert world.slot("a").token != first
    assert world.dispatched(world.grant("a")) == ["a"]


def test_a_hold_before_anything_began_keeps_the_workflow_pending() -> None:
    world = world_of(task("a"), timeout_s=5.0)

    assert world.hold("a") == Pending()

    assert (world.record.status, world.armed) == (WorkflowStatus.PENDING, set())
    assert world.dispatched(world.release("a")) == ["a"]


def test_a_second_hold_changes_nothing() -> None:
    world = held_deferred()
    world.hold("a")

    world.hold("a")

    assert world.last.is_empty
    assert world["a"].held == "deferred"


def test_a_step_can_be_held_and_released_while_paused() -> None:
    world = world_of(task("a"), task("b", after="a"))
    world.advance()
    world.pause()
    world.hold("b")
    world.finish("a", {})
    world.release("b")

    assert world.statuses["b"] == "ready"
    assert world.dispatched(world.unpause()) == ["b"]


@pytest.mark.parametrize("status", ["in_progress", "complete", "failed", "skipped", "filtered"])
def test_a_step_that_is_under_way_or_final_cannot_be_held(status: str) -> None:
    world = world_of(
        task("in_progress"),
        task("complete"),
        task("failed", on_error="continue"),
        task("skipped", on_error="skip"),
        task("filtered", guards=(False,)),
    )
    world.advance()
    world.finish("complete", {})
    world.fail("failed")
    world.fail("skipped")
    assert world.statuses[status] == status

    with pytest.raises(InvalidEvent, match=f"step '{status}' cannot be held: it is {status}"):
        world.apply(world.control("hold", status))


@pytest.mark.parametrize("status", ["ready", "in_progress"])
def test_a_step_that_is_not_held_cannot_be_released(status: str) -> None:
    world = world_of(task("in_progress"), task("ready", after="in_progress"))
    world.advance()

    with pytest.raises(InvalidEvent, match=f"step '{status}' cannot be released: it is {status}"):
        world.apply(world.control("release", status))


def test_a_ready_step_of_a_halted_workflow_cannot_be_held() -> None:
    world = halted()

    with pytest.raises(InvalidEvent, match="step 'b' cannot be held: it is ready"):
        world.apply(world.control("hold", "b"))


@pytest.mark.parametrize("action", ["hold", "release"])
def test_a_step_that_is_not_there_is_refused(action: Control) -> None:
    world = in_progress()

    with pytest.raises(InvalidEvent, match=f"'w1#x1' has no step 'nobody' to {action}"):
        world.apply(world.control(action, "nobody"))


def test_a_hold_survives_another_process() -> None:
    world = held_in_retry()
    world.hold("a")
    world.reload()
    world.finish("z", {})
    world.reload()
    world.release("a")

    assert world.dispatched(world.pass_time(1000)) == ["a"]


def test_a_release_may_end_the_workflow() -> None:
    world = world_of(task("a", guards=(BROKEN,)), task("b"))
    world.apply(world.control("hold", "a"))
    world.advance()

    assert isinstance(world.release("a"), Failed)


# ---- other events


def test_a_result_for_a_step_that_is_not_there_is_refused() -> None:
    world = in_progress()
    event = ResultEvent(world.record.workflow_execution_id, "nobody#3", {})

    with pytest.raises(InvalidEvent, match="has no step 'nobody#3'"):
        world.apply(event)
