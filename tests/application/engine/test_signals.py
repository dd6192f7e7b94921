"""Waits: a signal completes them, in whatever order the two come."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.engine.signals import MAX_KEPT_SIGNAL_BYTES, MAX_KEPT_SIGNALS
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.decisions import Complete, Failed, Halt, Pending
from orchestrator.application.records.events import Moment
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.timers import Timer
from worlds.engine_world import EngineWorld, units, world_of
from worlds.specs import branch, map_step, resets, task, wait_step


def waiting(*signals: str, **keys: Any) -> EngineWorld:
    world = world_of(wait_step("w", *(signals or ("go",)), **keys))
    world.advance()
    return world


def kept(world: EngineWorld) -> list[tuple[str, Any]]:
    return [(one["name"], one["payload"]) for one in world.record.signals]


# ---- a signal


def test_a_wait_has_no_job_and_takes_the_payload_of_its_signal_as_its_output() -> None:
    world = world_of(wait_step("w", "go"), task("n", "w", input={"by": {"var": "steps.w.output.by"}}))

    assert world.advance() == Pending()
    assert world.statuses == {"w": "waiting", "n": "ready"}
    assert world.record.status is WorkflowStatus.IN_PROGRESS

    assert units(world.signal("go", {"by": "ada"})) == ["n"]
    assert world.inputs_of("n") == {"by": "ada"}
    assert world.record.state == {"by": "ada"}
    assert world["w"].status is StepStatus.COMPLETE
    assert (world["w"].dispatches, world["w"].token) == (0, None)


@pytest.mark.parametrize("payload", [None, 5, 0, False, "text", [], ["a"]])
def test_a_payload_that_is_no_object_becomes_a_value(payload: Any) -> None:
    world = waiting()

    assert world.signal("go", payload) == Complete({})
    assert world["w"].output == {"value": payload}


def test_an_empty_object_is_an_empty_output() -> None:
    world = waiting()

    assert world.signal("go", {}) == Complete({})
    assert world["w"].output == {}
    assert world.record.state == {}


def test_no_more_signals_are_kept_than_a_record_can_hold() -> None:
    world = waiting()
    world.record.signals = [{"name": "other", "payload": n} for n in range(MAX_KEPT_SIGNALS)]

    decided = decide(world.record, [world.signal_event("other")], Moment(1, "n", "1-0"))

    assert [position for position, _ in decided.rejected] == [0]
    assert "at most 1,000 of 4 MiB in all" in decided.rejected[0][1]
    world.signal("go")
    assert world["w"].status is StepStatus.COMPLETE, "a signal that a step waits for is not kept"


def test_no_more_bytes_of_signals_are_kept_than_a_turn_can_write() -> None:
    world, large = waiting(), "x" * (MAX_KEPT_SIGNAL_BYTES // 4)
    for _ in range(3):
        world.signal("other", large)

    decided = decide(world.record, [world.signal_event("other", large)], Moment(1, "n", "1-0"))

    assert [position for position, _ in decided.rejected] == [0]
    assert "no room is left" in decided.rejected[0][1]
    assert len(kept(world)) == 3


def test_a_signal_of_another_name_is_kept_for_a_later_step() -> None:
    world = waiting()

    assert world.signal("other", 1) == Pending()
    assert kept(world) == [("other", 1)]
    assert world.statuses == {"w": "waiting"}
    assert {"signal": "other"}.items() <= world.history[-1].items()


def test_a_signal_that_comes_before_the_wait_is_taken_at_once() -> None:
    world = world_of(task("a"), wait_step("w", "go", after="a"))
    world.advance()
    world.signal("go", {"n": 1})
    assert kept(world) == [("go", {"n": 1})]

    assert world.finish("a", {}) == Complete({})
    assert world["w"].output == {"n": 1}
    assert kept(world) == []


def test_a_signal_may_come_before_anything_has_begun() -> None:
    world = world_of(wait_step("w", "go"))

    assert world.signal("go", {"n": 1}) == Complete({})


def test_signals_of_one_name_are_taken_in_the_order_in_which_they_came() -> None:
    world = world_of(
        task("a"), *(wait_step(f"w{n}", "go", after="a" if n == 0 else f"w{n - 1}") for n in range(3))
    )
    world.advance()
    for n in range(3):
        world.signal("go", {"n": n})
    world.signal("go", {"n": "left"})

    assert world.finish("a", {}) == Complete({})
    assert [world[f"w{n}"].output for n in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert kept(world) == [("go", {"n": "left"})]


def test_signals_of_other_names_are_left_where_they_are() -> None:
    world = world_of(task("a"), wait_step("w", "go", after="a"))
    world.advance()
    for name in ("x", "go", "y", "go"):
        world.signal(name, name)
    world.finish("a", {})

    assert kept(world) == [("x", "x"), ("y", "y"), ("go", "go")]


def test_of_two_waits_for_one_name_the_first_in_the_spec_has_the_first_signal() -> None:
    world = world_of(
        task("a"), wait_step("w1", "go", after="a"), wait_step("w2", "go"), wait_step("w3", "go")
    )
    world.advance()
    world.finish("a", {})

    for n in range(2):
        assert world.signal("go", {"n": n}) == Pending()
    assert world.signal("go", {"n": 2}) == Complete({})

    assert [world[one].output["n"] for one in ("w1", "w2", "w3")] == [0, 1, 2]


def test_of_two_waits_that_begin_together_the_first_in_the_spec_has_the_oldest_signal() -> None:
    world = world_of(task("a"), wait_step("w1", "go", after="a"), wait_step("w2", "go", after="a"))
    world.advance()
    world.decide(world.signal_event("go", {"n": 0}), world.signal_event("go", {"n": 1}))

    assert world.finish("a", {}) == Complete({})
    assert [world[one].output["n"] for one in ("w1", "w2")] == [0, 1]


def test_two_signals_in_one_batch_go_to_two_waits() -> None:
    world = world_of(wait_step("w1", "go"), wait_step("w2", "go"))
    world.advance()

    assert world.decide(world.signal_event("go", {"n": 0}), world.signal_event("go", {"n": 1})) == Complete(
        {}
    )
    assert [world[one].output["n"] for one in ("w1", "w2")] == [0, 1]


def test_a_signal_after_the_end_is_late() -> None:
    world = waiting()
    world.signal("go")

    assert world.signal("go", {"n": 2}) == Complete({})
    assert world.counters["late"] == 1
    assert kept(world) == []


def test_a_wait_takes_no_worker() -> None:
    world = world_of(wait_step("w", "go"), map_step("m", [1, 2, 3]), max_workers=1)

    assert units(world.advance()) == ["m#0"]


def test_output_reshapes_a_payload_and_the_branches_see_it() -> None:
    no = branch({"!": {"var": "ok"}}, "halt", result={"why": "refused"})
    world = waiting(output={"ok": {"var": "result.yes"}}, branch=(no,))

    assert world.signal("go", {"yes": False}) == Halt({"why": "refused"})
    assert world["w"].output == {"ok": False}


def test_a_payload_that_a_branch_rejects_fails_the_wait() -> None:
    world = waiting(branch=(branch({"!": {"var": "yes"}}, "retry"),), max_attempts=3)

    decision = world.signal("go", {"yes": False})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "rejected"


def test_an_output_of_a_wait_that_cannot_be_resolved_fails_it() -> None:
    world = waiting(output={"r": {"/": [1, {"var": "result.n"}]}})

    decision = world.signal("go", {"n": 0})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"


def test_a_wait_may_go_round_and_take_signal_after_signal() -> None:
    world = world_of(
        wait_step("w", "go", branch=(resets({"!": {"var": "last"}}, "w"),)),
    )
    world.advance()
    world.signal("go", {"n": 1})
    assert world.statuses == {"w": "waiting"}
    world.decide(world.signal_event("go", {"n": 2}), world.signal_event("go", {"n": 3, "last": True}))

    assert world.record.status is WorkflowStatus.COMPLETE
    assert world.record.state == {"n": 3, "last": True}
    assert world["w"].run_id == 2


# ---- the first of several events


def test_the_first_of_several_events_wins_and_is_named() -> None:
    world = waiting("approve", "reject", is_any=True)

    assert world.signal("reject", {"by": "ada"}) == Complete({})
    assert world["w"].output == {"by": "ada", "event": "reject"}


def test_the_earliest_that_is_kept_wins_and_the_others_stay() -> None:
    world = world_of(task("a"), wait_step("w", "approve", "reject", after="a", is_any=True))
    world.advance()
    for name, payload in (("other", 0), ("reject", 1), ("approve", 2), ("reject", 3)):
        world.signal(name, payload)

    world.finish("a", {})

    assert world["w"].output == {"value": 1, "event": "reject"}
    assert kept(world) == [("other", 0), ("approve", 2), ("reject", 3)]


def test_the_name_of_the_event_beats_a_key_of_the_payload() -> None:
    world = waiting("approve", "reject", is_any=True)
    world.signal("approve", {"event": "mine", "n": 1})

    assert world["w"].output == {"event": "approve", "n": 1}


def test_the_event_of_one_signal_is_a_key_like_any_other() -> None:
    world = waiting()
    world.signal("go", {"event": "mine"})

    assert world["w"].output == {"event": "mine"}


def test_of_several_events_a_timeout_is_one_and_no_failure() -> None:
    world = waiting("approve", "reject", is_any=True, timeout_ms=1_000, on_timeout="continue")

    assert world.pass_time(999) == Pending()
    assert world.pass_time(1) == Complete({})
    assert world["w"].output == {"event": "timeout"}
    assert world["w"].error is None


# ---- time


def test_a_wait_that_takes_too_long_has_failed() -> None:
    world = waiting("go", timeout_ms=1_500)
    assert world["w"].deadline_ms == world.now_ms + 1_500

    assert world.pass_time(1_499) == Pending()
    decision = world.pass_time(1)

    assert isinstance(decision, Failed)
    assert decision.error == {
        "kind": "signal_timeout",
        "message": "no signal go within 1.5 s",
        "step": "w",
    }
    assert world.armed == set()


def test_branches_see_a_wait_that_took_too_long() -> None:
    world = waiting("go", timeout_ms=100, branch=(branch({"==": [{"var": "ok"}, False]}, "complete"),))

    assert world.pass_time(100) == Complete({})
    assert world["w"].output == {"ok": False, "error": "no signal go within 0.1 s"}


def test_a_wait_that_takes_too_long_may_go_on_without() -> None:
    world = world_of(wait_step("w", "go", timeout_ms=100, on_timeout="continue"), task("n", "w"))
    world.advance()

    assert units(world.pass_time(100)) == ["n"]
    assert world["w"].output == {}


def test_the_failure_of_a_wait_follows_its_policy_and_is_not_tried_again() -> None:
    world = world_of(
        wait_step("w", "go", timeout_ms=100, on_error="continue", max_attempts=3), task("n", "w")
    )
    world.advance()

    assert units(world.pass_time(100)) == ["n"]
    assert world["w"].status is StepStatus.FAILED


def test_a_signal_in_time_disarms_the_timer() -> None:
    world = world_of(wait_step("w", "go", timeout_ms=100), task("n", "w"))
    world.advance()
    [timer] = world.armed
    world.signal("go")

    assert world.armed == set()
    assert world["w"].deadline_ms is None
    world.now_ms += 100
    world.decide(world.timer_event(timer))
    assert world.counters["stale"] == 1
    assert world["w"].status is StepStatus.COMPLETE


def test_a_timer_that_comes_too_early_is_armed_again() -> None:
    world = waiting("go", timeout_ms=100)
    [timer] = world.armed

    assert world.fire(timer) == Pending()

    assert world.armed == {timer}
    assert world.last.is_empty


def test_a_signal_and_the_end_of_the_time_in_one_batch_count_in_their_order() -> None:
    for first in ("signal", "timer"):
        world = waiting("go", timeout_ms=100, on_timeout="continue")
        [timer] = world.armed
        world.armed.clear()
        world.now_ms += 100
        events = [world.signal_event("go", {"n": 1}), world.timer_event(timer)]

        world.decide(*(events if first == "signal" else reversed(events)))

        assert world["w"].output == ({"n": 1} if first == "signal" else {})


def test_a_signal_that_is_kept_arms_no_timer() -> None:
    world = world_of(task("a"), wait_step("w", "go", after="a", timeout_ms=100))
    world.advance()
    world.signal("go")

    world.finish("a", {})

    assert world.last.timers_to_arm == []


def test_a_deferred_wait_begins_when_its_time_has_come() -> None:
    world = world_of(wait_step("w", "go", defer_ms=100, timeout_ms=50))
    assert world.advance() == Pending()
    assert world.statuses == {"w": "deferred"}

    world.signal("go", {"n": 1})
    assert world.statuses == {"w": "deferred"}
    assert world.pass_time(100) == Complete({})
    assert world["w"].output == {"n": 1}


# ---- set, and the end


def test_a_set_on_a_step_that_waits_takes_its_timer_away_and_begins_anew() -> None:
    world = world_of(
        wait_step("w", "go", timeout_ms=1_000),
        task("s", branch=(resets({"!": {"var": "state.once"}}, "w"),)),
    )
    world.advance()
    world.pass_time(400)
    [before] = world.armed

    assert units(world.finish("s", {"once": True})) == ["s"]

    assert world.armed == {Timer("deadline", "w", "1", world.now_ms + 1_000)}
    assert before in world.last.timers_to_disarm
    assert world.statuses["w"] == "waiting"
    world.finish("s", {})
    assert world.pass_time(600) == Pending(), "the timeout of the first wait is stale"
    assert isinstance(world.pass_time(400), Failed)


def test_a_signal_that_was_taken_is_not_given_back_by_a_set() -> None:
    world = world_of(
        wait_step("w", "go"), task("s", "w", branch=(resets({"!": {"var": "state.once"}}, "w"),))
    )
    world.advance()
    world.signal("go", {"n": 1})
    world.signal("go", {"n": 2})
    assert kept(world) == [("go", {"n": 2})]

    world.finish("s", {"once": True})

    assert world["w"].output == {"n": 2}
    assert kept(world) == []
    assert world.statuses == {"w": "complete", "s": "in_progress"}


def test_a_set_above_a_wait_takes_it_back_to_ready() -> None:
    world = world_of(
        task("a"),
        wait_step("w", "go", after="a", timeout_ms=100),
        task("s", branch=(resets({"!": {"var": "state.once"}}, "a"),)),
    )
    world.advance()
    world.finish("a", {})
    world.finish("s", {"once": True})

    assert world.statuses["w"] == "ready"
    assert world.armed == set()
    assert world.record.readiness.waiting == set()
    world.signal("go", {"n": 1})
    assert kept(world) == [("go", {"n": 1})]


def test_the_end_of_the_workflow_cancels_a_wait_and_its_timer() -> None:
    world = world_of(wait_step("w", "go", timeout_ms=100), task("s"), timeout_s=9.0)
    world.advance()
    assert len(world.armed) == 2

    world.fail("s")

    assert world.statuses == {"w": "cancelled", "s": "failed"}
    assert world.armed == set()
    assert world.record.readiness.waiting == set()


def test_a_wait_goes_on_in_another_process() -> None:
    world = world_of(wait_step("w1", "go", timeout_ms=100), wait_step("w2", "go"), task("a"))
    world.advance()
    world.signal("x", {"n": 0})
    world.reload()

    world.signal("go", {"n": 1})
    assert world["w1"].output == {"n": 1}
    assert kept(world) == [("x", {"n": 0})]
    world.reload()
    assert world.record.readiness.waiting == {"w2"}
