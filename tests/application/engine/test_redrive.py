"""Retry and rerun: an execution that has ended is opened again, and runs what did not complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.decisions import Cancelled, Complete, Failed, Pending
from orchestrator.application.records.events import Parent, StartEvent, TimerEvent
from orchestrator.application.spec.model import RetrySpec, StepSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, child, delay, key, switch, task, undo, wait_step


def told(*steps: StepSpec, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def key_of(world: EngineWorld, unit: str) -> tuple[int, int | None]:
    """What differs in the idempotency key of a unit from run to run."""
    job = world.out[unit]
    return job.round, job.iteration


CHAIN = (task("a"), task("b", "a"), task("c", "b"))
DIAMOND = (task("a"), task("b", "a"), task("c", "a"), task("d", "b c"))


# ---- retry: what failed, was cancelled or never came to run


def test_a_retried_chain_goes_on_where_it_failed() -> None:
    world = told(*CHAIN)
    world.finish("a", {"n": 1})
    world.fail("b")

    world.retry()

    assert world.statuses == {"a": "complete", "b": "in_progress", "c": "ready"}
    assert (world.record.status, world.record.error, world.record.ended_at) == ("in_progress", None, None)
    world.finish("b")
    world.finish("c")
    assert world.record.status == "complete"
    assert world.executed == {"a": 1, "b": 2, "c": 1}
    assert world.state == {"n": 1}


def test_a_retry_is_a_new_run_of_the_same_round_with_all_attempts() -> None:
    world = told(task("a", retry=RetrySpec(1, 0)))
    world.fail("a")
    world.fail("a")
    assert (world["a"].attempt, world["a"].run_id) == (2, 1)

    world.retry()

    a = world["a"]
    assert (a.run_id, a.attempt, a.round, a.lost, a.dispatches) == (2, 1, 0, 0, 3)
    assert (a.output, a.error, a.reason, a.worker, a.ended_at) == (None, None, None, None, None)
    world.fail("a")
    assert world["a"].status == "in_progress", "its attempts are counted anew"


def test_a_retried_diamond_runs_the_arm_that_failed_the_one_it_cancelled_and_what_follows() -> None:
    world = told(*DIAMOND)
    world.finish("a")
    world.fail("b")
    assert world.statuses == {"a": "complete", "b": "failed", "c": "cancelled", "d": "skipped"}

    assert world.dispatched(world.retry()) == ["b", "c"]

    world.finish("c")
    world.finish("b")
    world.finish("d")
    assert world.record.status == "complete"


def test_a_failure_that_others_tolerated_is_retried_too_and_they_keep_what_they_have() -> None:
    world = told(task("a"), task("b", "a", on_error="continue"), task("z", "b"))
    world.fail("a")
    world.finish("b", {"n": 1})
    world.fail("z")

    assert world.dispatched(world.retry()) == ["a", "z"]

    world.finish("a")
    world.finish("z")
    assert world.record.status == "complete"
    assert world.executed == {"a": 2, "b": 1, "z": 2}


def test_a_retry_completes_a_workflow_that_failed_by_a_failure_that_no_step_tolerated() -> None:
    world = told(task("a"), task("b", "a", on_error="continue"))
    world.fail("a")
    assert isinstance(world.finish("b"), Failed)

    world.retry()

    assert isinstance(world.finish("a"), Complete)


@pytest.mark.parametrize("policy", ["skip", "continue"])
def test_what_a_policy_let_pass_is_tried_again(policy: str) -> None:
    world = told(task("a", on_error=policy), task("b", "a"), task("z"))
    world.fail("a")
    if policy == "continue":
        world.finish("b")
    world.fail("z")

    world.retry()

    b = "ready" if policy == "skip" else "complete"
    assert world.statuses == {"a": "in_progress", "b": b, "z": "in_progress"}


def test_a_step_that_its_own_branch_skipped_has_had_its_say() -> None:
    world = told(task("a", branch=(branch(True, "skip"),)), task("b", "a"), task("z"))
    world.finish("a", {"n": 1})
    world.fail("z")

    assert world.dispatched(world.retry()) == ["z"]

    assert world.statuses == {"a": "skipped", "b": "skipped", "z": "in_progress"}
    assert world.reason("b") == "parent a skipped"
    assert isinstance(world.finish("z"), Complete)


def test_what_was_filtered_below_a_step_that_runs_again_is_decided_anew() -> None:
    open_ = {"var": "state.open"}
    world = told(
        task("a", on_error="continue"),
        task("b", "a", guards=(open_,)),
        task("c", "b"),
        task("beside", guards=(open_,)),
        task("z"),
    )
    world.fail("a")
    assert world.statuses["b"] == world.statuses["c"] == world.statuses["beside"] == "filtered"
    world.fail("z")

    world.retry()
    world.finish("a", {"open": True})

    statuses = {"a": "complete", "b": "in_progress", "c": "ready", "beside": "filtered", "z": "in_progress"}
    assert world.statuses == statuses


def test_a_switch_keeps_the_path_it_took_and_one_that_failed_takes_another() -> None:
    world = told(
        switch("s", {"var": "input.k"}, {"x": "b"}, "c"),
        task("b", "s"),
        task("c", "s"),
        switch("t", {"var": "state.k"}, {"y": "d"}, on_error="continue"),
        task("d", "t"),
        inputs={"k": "x"},
    )
    assert (world.error_kind("t"), world.statuses["c"]) == ("no_branch", "filtered")
    world.finish("d")
    world.fail("b")

    world.retry()

    assert world.statuses == {
        "s": "complete",
        "b": "in_progress",
        "c": "filtered",
        "t": "failed",
        "d": "complete",
    }


def test_what_a_switch_filtered_below_a_step_that_runs_again_is_filtered_again() -> None:
    world = told(
        switch("s", "x", {"x": ""}, "c"), task("p", on_error="continue"), task("c", "s p"), task("z")
    )
    world.fail("p")
    world.fail("z")
    assert world.statuses["c"] == "filtered"

    world.retry()
    assert world.statuses["c"] == "ready", "it waits for its parents as before"
    world.finish("p")

    assert (world.statuses["c"], world.reason("c")) == ("filtered", "not selected by switch s")


def test_joins_are_met_by_what_has_completed() -> None:
    world = told(
        task("a"), task("b", on_error="continue"), task("one", "a b", join=1), task("any", "a b", join="any")
    )
    world.finish("a")
    world.fail("b")
    world.fail("one")

    assert world.dispatched(world.retry()) == ["b", "one"]
    world.finish("b")

    assert world.statuses == {"a": "complete", "b": "complete", "one": "in_progress", "any": "in_progress"}


def test_what_an_operator_cancelled_goes_on() -> None:
    world = told(*DIAMOND)
    world.finish("a")
    world.finish("b")
    world.cancel("too dear")

    assert world.dispatched(world.retry()) == ["c"]

    assert (world.record.cancelled, world.statuses["d"]) == (None, "ready")
    world.finish("c")
    assert isinstance(world.finish("d"), Complete)


def test_a_step_that_was_held_when_it_ended_is_not_held_any_more() -> None:
    world = told(task("a"), task("b", "a"))
    world.hold("b")
    world.cancel()

    world.retry()
    world.finish("a")

    assert (world.statuses["b"], world["b"].held) == ("in_progress", None)


def test_one_that_was_paused_when_it_ended_goes_on_at_once() -> None:
    world = told(task("a"), task("b"))
    world.pause()
    world.cancel()

    assert world.dispatched(world.retry()) == ["a", "b"]


def test_one_that_was_cancelled_before_anything_had_begun_begins() -> None:
    world = world_of(*CHAIN)
    world.cancel()

    assert world.dispatched(world.retry()) == ["a"]


def test_state_and_kept_signals_are_what_they_were() -> None:
    world = told(task("a", kv_add={"n": 1}), task("b", "a"), wait_step("w", "go", after="b"))
    world.signal("go", {"early": True})
    world.finish("a", {"k": 1})
    world.fail("b")

    world.retry()
    assert world.state["n"] == 1
    world.finish("b")

    assert (world.statuses["w"], world["w"].output) == ("complete", {"early": True})
    assert world.state == {"k": 1, "n": 1, "early": True}


# ---- clocks


def test_the_clock_of_the_workflow_starts_again() -> None:
    world = told(task("a"), timeout_s=10.0)
    assert isinstance(world.pass_time(10_000), Failed)

    world.retry()

    assert world.record.deadline_ms == world.now_ms + 10_000
    world.pass_time(9_999)
    assert world.record.status == "in_progress"
    assert isinstance(world.pass_time(1), Failed)


def test_an_old_timeout_that_rings_late_does_not_end_what_was_retried() -> None:
    world = told(task("a"), timeout_s=10.0)
    world.pass_time(10_000)
    late = TimerEvent("timeout", world.record.workflow_execution_id, "", "")

    world.retry()
    world.decide(late)

    assert world.record.status == "in_progress"


def test_waits_and_delays_and_deferrals_begin_anew() -> None:
    world = told(
        wait_step("w", "go", timeout_ms=5_000),
        delay("d", 5_000),
        task("t", defer_ms=5_000),
        task("z"),
    )
    world.pass_time(4_000)
    world.fail("z")
    assert world.armed == set()

    world.retry()

    assert world.statuses == {"w": "waiting", "d": "deferred", "t": "deferred", "z": "in_progress"}
    assert {timer.due_ms for timer in world.armed} == {world.now_ms + 5_000}
    world.pass_time(4_999)
    assert world.statuses["d"] == "deferred"
    world.pass_time(1)
    assert (world.error_kind("w"), world.statuses["d"]) == ("signal_timeout", "complete")


def test_a_delay_that_was_deferred_first_is_deferred_and_delayed_again() -> None:
    world = told(delay("d", 5_000, defer_ms=1_000), task("z"))
    world.pass_time(1_000)
    assert world["d"].iteration == 1
    world.fail("z")

    world.retry()
    world.pass_time(1_000)
    assert world.statuses["d"] == "deferred", "its own time begins only now"
    world.pass_time(5_000)

    assert world.statuses["d"] == "complete"


def test_a_step_in_back_off_is_tried_at_once() -> None:
    world = told(task("a", retry=RetrySpec(3, 60_000)), task("z"))
    world.fail("a")
    world.fail("z")

    assert world.dispatched(world.retry()) == ["a", "z"]


def test_timers_of_the_old_run_are_stale() -> None:
    world = told(delay("d", 5_000), task("z"))
    [old] = world.armed
    world.fail("z")
    world.retry()

    world.now_ms += 60_000
    world.decide(world.timer_event(old))

    assert (world.statuses["d"], world.counters["stale"]) == ("deferred", 1)


# ---- places, children, compensation


def test_a_step_asks_for_its_place_again() -> None:
    world = told(task("a", **key("k")))
    world.grant("a")
    first = world.slot("a").token
    world.fail("a")
    assert world.slots == {}

    assert world.retry() == Pending()

    assert not world.slot("a").is_held
    assert world.slot("a").token != first
    assert world.dispatched(world.grant("a")) == ["a"]


def test_a_step_that_stood_in_line_stands_in_line_again() -> None:
    world = told(task("a", **key("k")), task("z"))
    world.fail("z")

    world.retry()

    assert not world.slot("a").is_held


def test_a_workflow_asks_for_its_place_again() -> None:
    world = told(task("a"), **key("k"))
    old = world.slot_event()
    world.decide(old)
    world.fail("a")

    assert world.retry() == Pending()
    assert world.statuses == {"a": "ready"}
    world.decide(old)
    assert (world.statuses, world.counters["stale"]) == ({"a": "ready"}, 1)

    assert world.dispatched(world.grant()) == ["a"]


def test_a_retry_starts_a_child_anew() -> None:
    world = told(child("c"))
    world.end_child("c", error="died")

    world.retry()

    assert [start.execution_id for start in world.children] == ["x1:c:0", "x1:c:1"]
    world.end_child("c", {"n": 1})
    assert world.record.status == "complete"


def test_a_child_that_was_cancelled_with_its_parent_is_started_anew_and_the_old_end_is_stale() -> None:
    world = told(child("c"), task("z"))
    old = world.children[0]
    world.fail("z")

    world.retry()
    world.decide(world.child_end(old, error="was cancelled"))

    assert (world.statuses["c"], world.counters["stale"]) == ("in_progress", 1)
    assert [start.execution_id for start in world.children] == ["x1:c:0", "x1:c:1"]
    assert dict(world.cancels) == {"x1:c:0": 1}


@pytest.mark.parametrize("action", ["retry", "rerun"])
def test_a_child_is_not_driven_on_by_itself(action: Any) -> None:
    world = told(task("a"))
    world.record.parent = Parent("w0#p1", "c", 0, 1, "t", "p1")
    world.fail("a")

    assert world.rejection(world.control(action, "a")) == (
        f"workflow 'w1#x1' cannot be {'retried' if action == 'retry' else 'rerun'}:"
        " step 'c' of 'w0#p1' already has its result; retry that one"
    )


@pytest.mark.parametrize("action", ["retry", "rerun"])
@pytest.mark.parametrize("undoing", ["works", "fails"])
def test_what_was_compensated_is_not_driven_on(action: Any, undoing: str) -> None:
    world = told(task("a", **undo()), task("z", "a"))
    world.finish("a")
    world.fail("z")
    (world.finish if undoing == "works" else world.fail)("a#undo")
    assert world.record.compensated is (undoing == "works")

    assert "were compensated; start a new execution" in world.rejection(world.control(action, "a"))


def test_what_had_nothing_to_compensate_is_driven_on_and_compensated_when_it_fails_again() -> None:
    world = told(task("a", **undo()), task("z", "a"))
    world.fail("a")

    world.retry()
    world.finish("a", {"n": 1})
    world.fail("z")

    assert (world.record.status, sorted(world.out)) == ("compensating", ["a#undo"])


# ---- what may be retried


def complete() -> EngineWorld:
    world = told(task("a"))
    world.finish("a")
    return world


def halted() -> EngineWorld:
    world = told(task("a", branch=(branch(True, "halt"),)))
    world.finish("a")
    return world


def compensating() -> EngineWorld:
    world = told(task("a", **undo()), task("b", "a"))
    world.finish("a")
    world.cancel()
    return world


def paused() -> EngineWorld:
    world = told(task("a"))
    world.pause()
    return world


OPEN: dict[str, Callable[[], EngineWorld]] = {
    "pending": lambda: world_of(task("a")),
    "in_progress": lambda: told(task("a")),
    "paused": paused,
    "compensating": compensating,
    "halted": halted,
}


@pytest.mark.parametrize("status", [*OPEN, "complete"])
def test_a_retry_of_anything_but_failed_and_cancelled_is_refused(status: str) -> None:
    world = {**OPEN, "complete": complete}[status]()
    assert world.record.status == status

    assert world.rejection(world.control("retry")) == f"workflow 'w1#x1' cannot be retried: it is {status}"


@pytest.mark.parametrize("status", OPEN)
def test_a_rerun_of_anything_that_has_not_ended_or_was_halted_is_refused(status: str) -> None:
    world = OPEN[status]()

    reason = world.rejection(world.control("rerun", "a"))

    assert reason == f"workflow 'w1#x1' cannot be rerun: it is {status}"


def test_a_rerun_of_a_step_that_is_not_there_is_refused_and_opens_nothing() -> None:
    world = complete()

    assert world.rejection(world.control("rerun", "b")) == "workflow 'w1#x1' has no step 'b' to rerun"
    assert world.rejection(world.control("rerun")) == "workflow 'w1#x1' has no step '' to rerun"


# ---- at once


def test_outputs_that_cannot_be_resolved_fail_again_at_once() -> None:
    world = told(task("a"), outputs={"n": BROKEN}, timeout_s=10.0)
    world.finish("a")
    first = world.record.ended_at
    world.pass_time(1_000)

    assert isinstance(world.retry(), Failed)

    assert (world.statuses, world.executed) == ({"a": "complete"}, {"a": 1})
    assert world.record.error is not None
    assert world.record.error["message"].startswith("outputs cannot be resolved")
    assert world.record.ended_at != first


def test_a_step_that_cannot_be_judged_fails_again_at_once() -> None:
    world = told(task("a", guards=(BROKEN,)), task("b"))

    assert isinstance(world.retry(), Failed)

    assert world.statuses == {"a": "failed", "b": "skipped"}


def test_a_workflow_whose_place_cannot_be_named_fails_again_at_once() -> None:
    world = told(task("a"), **key(BROKEN))

    assert isinstance(world.retry(), Failed)

    assert world.statuses == {"a": "skipped"}


def test_a_retry_can_be_retried() -> None:
    world = told(*CHAIN)
    for n, name in enumerate("abc"):
        world.fail(name)
        assert world.record.status == "failed"
        world.retry()
        assert world.statuses[name] == "in_progress"
        world.fail(name)
        world.retry()
        world.finish(name, {"n": n})

    assert world.record.status == "complete"
    assert world.executed == {"a": 3, "b": 3, "c": 3}


# ---- several events at once


def test_a_result_of_the_old_run_in_one_batch_with_the_retry_is_stale_or_late() -> None:
    world = told(task("a"), task("z"))
    old = world.out["a"]
    world.fail("z")

    world.decide(world.result("a", {"n": 1}, old), world.control("retry"), world.result("a", {"n": 2}, old))

    assert (world.counters["late"], world.counters["stale"]) == (1, 1)
    assert (world.statuses["a"], world.state) == ("in_progress", {"ok": False, "error": "boom"})
    assert world["a"].run_id == 1


def test_a_failure_and_its_retry_in_one_batch() -> None:
    world = told(task("a", **key("k")), child("c"), timeout_s=60.0, **key("w"))
    world.grant()
    world.grant("a")

    world.decide(world.error("a"), world.control("retry"))
    world.grant()
    world.grant("a")

    assert world.statuses == {"a": "in_progress", "c": "in_progress"}
    assert [start.execution_id for start in world.children] == ["x1:c:0", "x1:c:1"]
    assert dict(world.cancels) == {"x1:c:0": 1}
    assert [entry["workflow"] for entry in world.history if "workflow" in entry][-2:] == [
        "failed",
        "in_progress",
    ]


def test_a_retry_and_a_cancel_in_one_batch_end_it_once_more() -> None:
    world = told(*CHAIN)
    world.fail("a")

    decision = world.decide(world.control("retry"), world.control("cancel", reason="no"))

    assert decision == Cancelled("no")
    assert world.statuses == {"a": "skipped", "b": "skipped", "c": "skipped"}
    assert (world.record.error, world.last.jobs) == (None, [])


def test_the_second_retry_of_a_batch_is_refused_and_the_first_counts() -> None:
    world = told(task("a"))
    world.fail("a")

    decided = decide(world.record, [world.control("retry")] * 2, world.moment())

    assert decided.rejected == [(1, "workflow 'w1#x1' cannot be retried: it is in_progress")]
    assert decided.replies == {0: {"ok": True, "changed": True, "status": "in_progress"}}
    assert [job.step_id for job in decided.changes.jobs] == ["a"]


def test_who_wanted_a_retry_and_why_is_in_the_history() -> None:
    world = told(task("a"))
    world.fail("a")

    world.decide(world.control("retry", reason="the disk was full", by="ann"))

    noted = [entry for entry in world.history if "control" in entry]
    assert [(one["control"], one["by"], one["reason"]) for one in noted] == [
        ("retry", "ann", "the disk was full")
    ]


# ---- rerun


def test_a_rerun_of_a_completed_workflow_runs_the_step_and_all_below_in_a_new_round() -> None:
    world = told(*DIAMOND, outputs={"n": {"var": "steps.d.output.n"}})
    for name in "abcd":
        world.finish(name, {"n": 1})
    assert world.record.outcome == {"n": 1}

    assert world.dispatched(world.rerun("b")) == ["b"]

    assert world.statuses == {"a": "complete", "b": "in_progress", "c": "complete", "d": "ready"}
    assert (world.record.status, world.record.outcome) == ("in_progress", None)
    assert [world[name].round for name in "abcd"] == [0, 1, 0, 1]
    world.finish("b", {"n": 2})
    assert world.finish("d", {"n": 3}) == Complete({"n": 3})


def test_a_rerun_of_a_failed_workflow_also_retries_the_rest_in_its_round() -> None:
    world = told(task("a"), task("b", "a"), task("c"), task("d", "c"))
    world.finish("a")
    world.finish("b")
    world.fail("c")

    assert world.dispatched(world.rerun("b")) == ["b", "c"]

    assert [world[name].round for name in "abcd"] == [0, 1, 0, 0]
    assert key_of(world, "b") == (1, None)
    assert key_of(world, "c") == (0, None)


def test_a_rerun_below_what_failed_waits_for_it() -> None:
    world = told(*CHAIN)
    world.fail("a")

    assert world.dispatched(world.rerun("c")) == ["a"]

    assert world.statuses == {"a": "in_progress", "b": "ready", "c": "ready"}
    assert [world[name].round for name in "abc"] == [0, 0, 1]


def test_a_rerun_runs_what_its_own_branch_skipped_or_a_switch_filtered_below() -> None:
    world = told(
        switch("s", {"var": "state.k"}, {"x": "b"}, "c", after="p"),
        task("b", "s", branch=(branch({"var": "no"}, "skip"),)),
        task("c", "s"),
        task("p"),
    )
    world.finish("p", {"k": "x"})
    world.finish("b", {"no": True})
    assert world.statuses == {"p": "complete", "s": "complete", "b": "skipped", "c": "filtered"}

    world.rerun("p")
    world.finish("p", {"k": "other"})

    assert world.statuses == {"p": "complete", "s": "complete", "b": "filtered", "c": "in_progress"}


def test_a_rerun_of_a_step_that_a_switch_filtered_filters_it_again() -> None:
    world = told(switch("s", "x", {"x": "b"}, "c"), task("b", "s"), task("c", "s"))
    world.finish("b")

    assert isinstance(world.rerun("c"), Complete)

    assert world.statuses == {"s": "complete", "b": "complete", "c": "filtered"}


def test_a_rerun_of_a_child_starts_another_one() -> None:
    world = told(child("c"))
    world.end_child("c", {"n": 1})

    world.rerun("c")

    assert [start.execution_id for start in world.children] == ["x1:c:0", "x1:c:1"]
    assert isinstance(world.children[1], StartEvent)


def test_only_the_completions_of_now_are_compensated_after_a_rerun() -> None:
    world = told(task("a", **undo()), task("b", "a", **undo()))
    world.finish("a")
    world.finish("b")

    world.rerun("b")
    world.fail("b")

    assert sorted(world.out) == ["a#undo"]
    world.finish("a#undo")
    assert (world.record.status, world.record.compensated) == ("failed", True)


# ---- with corrected inputs

PRICED: dict[str, Any] = {
    "inputs": {"price": {"type": "number"}, "text": {}},
    "steps": [
        {"op": "reserve", "input": {"text": {"var": "input.text"}}},
        {"op": "charge", "depends_on": ["reserve"], "input": {"price": {"var": "input.text"}}},
    ],
}


def unpriced() -> EngineWorld:
    """An execution whose `charge` has failed."""
    world = world_of(PRICED, inputs={"text": "12,50", "price": 1})
    world.advance()
    world.finish("reserve")
    world.fail("charge")
    return world


def test_a_retry_may_correct_inputs_and_the_others_stay() -> None:
    world = unpriced()

    world.decide(world.control("retry", reason="a comma", by="ada", inputs={"text": "12.5"}))

    assert world.record.inputs == {"text": "12.5", "price": 1}
    assert (world.out["charge"].inputs, world.executed["reserve"]) == ({"price": "12.5"}, 1)
    [noted] = [entry for entry in world.history if "control" in entry]
    assert (noted["control"], noted["by"], noted["reason"]) == ("retry", "ada", "a comma")
    assert noted["inputs"] == ["text"], "their names, and no values"


def test_a_rerun_may_correct_inputs_too() -> None:
    world = unpriced()

    world.decide(world.control("rerun", "reserve", inputs={"text": "3"}))

    assert world.out["reserve"].inputs == {"text": "3"}


@pytest.mark.parametrize("action", ["retry", "rerun"])
def test_inputs_that_the_workflow_does_not_accept_are_rejected_and_nothing_changes(action: Any) -> None:
    world = unpriced()

    reason = world.rejection(world.control(action, "reserve", inputs={"price": "dear"}))

    assert "inputs.price: must be of type number" in reason
    assert (world.record.status, world.record.inputs["price"]) == ("failed", 1)


# ---- delete


def test_what_has_ended_is_deleted_and_nothing_follows() -> None:
    world = complete()

    decided = decide(
        world.record,
        [
            world.control("delete"),
            world.control("rerun", "a"),
            world.control("cancel"),
            world.control("delete"),
            world.signal_event("go"),
        ],
        world.moment(),
    )

    assert decided.changes.deletes_execution
    assert decided.rejected == [
        (n, "workflow 'w1#x1' cannot be controlled: it is deleted") for n in (1, 2, 3)
    ]
    assert decided.replies[0] == {"ok": True, "changed": True, "status": "deleted"}
    assert (decided.replies[4]["ok"], decided.replies[4]["status"]) == (False, "deleted")
    assert not decided.changes.jobs


@pytest.mark.parametrize("status", [one for one in OPEN if one != "halted"])
def test_what_has_not_ended_is_not_deleted(status: str) -> None:
    world = OPEN[status]()

    assert world.rejection(world.control("delete")) == f"workflow 'w1#x1' cannot be deleted: it is {status}"


def test_what_a_retry_opened_is_not_deleted_in_the_same_batch() -> None:
    world = told(task("a"))
    world.fail("a")

    decided = decide(world.record, [world.control("retry"), world.control("delete")], world.moment())

    assert decided.rejected == [(1, "workflow 'w1#x1' cannot be deleted: it is in_progress")]
    assert not decided.changes.deletes_execution


def test_what_was_cancelled_in_the_same_batch_is_deleted_with_all_that_was_out() -> None:
    world = told(task("a", **key("k")), child("c"), delay("d", 1_000), timeout_s=9.0)
    world.grant("a")

    decided = decide(world.record, [world.control("cancel"), world.control("delete")], world.moment())

    assert decided.changes.deletes_execution
    assert {unit for unit, _ in decided.changes.revoked} == {"a", "c"}
    assert {timer.kind for timer in decided.changes.timers_to_disarm} == {"wake", "timeout"}
    assert [one.is_acquire for one in decided.changes.slots] == [False]
