"""Why an execution makes no progress, as far as its record shows."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from orchestrator.application.engine.transitions import decide
from orchestrator.application.explain.reasons import (
    MAX_ITEMS_SHOWN,
    OVERDUE_ADVICE,
    Reason,
    ReasonCode,
    explain_execution,
    explain_unit,
)
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.explain.text import format_duration, join_names, summarize_error
from orchestrator.application.records.events import Parent, StepEvent, iso
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import RetrySpec, WebhookSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.random_worlds import any_event, any_world
from worlds.records import NOW_MS
from worlds.specs import BROKEN, branch, child, delay, key, map_step, switch, task, undo, wait_step

XS = {"var": "input.xs"}


def reasons_for(world: EngineWorld, step: str = "", after_ms: int = 0) -> list[Reason]:
    """The reasons for a step, or for the execution, some time after now."""
    found = explain_execution(StatusView(world.record), world.now_ms + after_ms)
    return [reason for reason in found if reason.step == step]


def explained(world: EngineWorld, unit: str, after_ms: int = 0) -> Reason:
    """The reason for one unit that is named in the query; it may be final."""
    found = explain_unit(StatusView(world.record), unit, world.now_ms + after_ms)
    return next(reason for reason in found if reason.step == unit)


def started(*steps: Any, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def code_and_words(reason: Reason) -> tuple[str, str]:
    return reason.code, reason.words


# ---- parents


def test_a_step_names_the_parents_that_have_not_ended() -> None:
    world = started(task("a"), task("b"), task("c"), task("d", after="a b c"), max_workers=2)
    world.finish("a")

    [reason] = reasons_for(world, "d")

    assert code_and_words(reason) == ("parents", "step d waits for b (in progress) and c (in progress)")


def test_a_parent_that_no_worker_has_taken_is_called_queued() -> None:
    world = started(task("a"), task("b"), task("c", after="a b"))

    reasons = explain_execution(StatusView(world.record, {"a"}), world.now_ms)

    assert reasons[-1].words == "step c waits for a (queued) and b (in progress)"


def test_many_parents_are_counted() -> None:
    names = [f"p{n}" for n in range(8)]
    world = started(*(task(name) for name in names), task("z", after=names))

    [reason] = reasons_for(world, "z")

    assert reason.words == (
        "step z waits for p0 (in progress), p1 (in progress), p2 (in progress), p3 (in progress),"
        " p4 (in progress) and 3 more"
    )


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (2, "step z waits for b (in progress) and c (in progress) (join: 2)"),
        ("any", "step z waits for b (in progress) and c (in progress) (join: any)"),
        (
            {"==": [{"var": "ctx.status.b"}, "complete"]},
            "step z waits for b (in progress) and c (in progress) (join: an expression)",
        ),
    ],
)
def test_a_join_that_is_not_of_all_parents_is_named(join: Any, words: str) -> None:
    world = started(task("a"), task("b"), task("c"), task("z", after="a b c", join=join))
    world.finish("a")

    [reason] = reasons_for(world, "z")

    assert code_and_words(reason) == ("parents", words)


def test_a_step_whose_join_is_met_does_not_wait_for_the_other_parents() -> None:
    world = started(task("a"), task("b"), task("z", after="a b", join=1), max_workers=2)
    world.pause()
    world.finish("a")

    [reason] = reasons_for(world, "z")

    assert code_and_words(reason) == ("paused", "step z is ready, but the execution is paused")


def test_a_join_that_cannot_be_evaluated_is_left_to_the_next_decision() -> None:
    world = started(task("a"), task("b"), task("z", after="a b", join=BROKEN))
    world.pause()
    world.finish("a")

    [reason] = reasons_for(world, "z")

    assert reason.code == "paused"


def test_a_step_is_explained_together_with_the_open_steps_it_depends_on() -> None:
    world = started(
        task("a"),
        wait_step("b", "go"),
        task("c", after="a"),
        task("d", after="b c"),
        task("e", after="d c"),
        task("x"),
    )

    found = explain_unit(StatusView(world.record), "e", world.now_ms)

    assert [(one.step, one.code) for one in found] == [("e", "parents"), ("a", "dispatched"), ("b", "signal")]


def test_a_unit_that_does_not_exist_is_a_lookup_error() -> None:
    world = started(task("a"))

    for unit in ("b", "a#0", "a#undo"):
        with pytest.raises(LookupError):
            explain_unit(StatusView(world.record), unit, world.now_ms)


# ---- the whole execution


def test_a_paused_execution_says_since_when_if_that_is_known() -> None:
    world = started(task("a"))
    world.pause()

    [unknown] = reasons_for(world)
    known = explain_execution(StatusView(world.record), NOW_MS + 200_000, NOW_MS)[0]

    assert unknown.words == ("the execution has been paused: no step is dispatched; running steps continue")
    assert known.words.startswith("the execution has been paused for 3 m 20 s: ")
    assert known.advice == "resume it: orchestrator unpause x1"


def test_an_execution_without_a_slot_says_so_and_so_do_its_steps() -> None:
    world = started(task("a"), **key("only", 3))

    assert code_and_words(reasons_for(world)[0]) == (
        "in_line",
        "the execution waits for a slot of the concurrency key 'only' (limit 3)",
    )
    assert code_and_words(reasons_for(world, "a")[0]) == (
        "in_line",
        "step a is ready, but the execution itself waits for a concurrency slot",
    )

    world.grant()

    assert reasons_for(world) == []


def test_a_compensating_execution_says_why_and_which_steps_are_left() -> None:
    world = started(task("a", **undo()), task("b", **undo()), task("z", after="a b"))
    world.finish("a")
    world.finish("b")
    world.fail("z", "no money")

    execution, unit = explain_execution(StatusView(world.record), world.now_ms + 5_000, world.now_ms)

    assert code_and_words(execution) == (
        "compensating",
        "the execution has been compensating for 5 s; it will end as failed (step z: no money);"
        " still to compensate: a",
    )
    assert (unit.step, unit.code) == ("b#undo", "dispatched")
    assert unit.words.startswith("the compensation of step b was dispatched 5 s ago")


def test_a_compensating_execution_that_was_cancelled_says_so() -> None:
    world = started(task("a", **undo()), task("b", after="a"))
    world.finish("a")
    world.cancel("not wanted")

    assert reasons_for(world)[0].words == (
        "the execution has been compensating; it will end as cancelled (requested by an operator)"
    )


def test_a_compensation_that_was_lost_is_not_kept_back_by_max_workers() -> None:
    world = started(task("a", **undo(retry=RetrySpec(1))), task("b", after="a"), max_workers=1)
    world.finish("a")
    world.fail("b")
    world.apply(world.loss("a#undo"))

    assert explained(world, "a#undo").code == "lost"


# ---- clocks


def test_a_wait_names_its_signals_and_how_long_it_waits() -> None:
    world = started(wait_step("w", "approve", "reject", timeout_ms=90_000))

    [reason] = reasons_for(world, "w", 30_000)

    assert code_and_words(reason) == (
        "signal",
        "step w waits for the signal 'approve' or 'reject'; its timeout is due in 1 m 0 s,"
        f" at {iso(NOW_MS + 90_000)}, then it fails",
    )
    assert reason.until_ms == NOW_MS + 90_000
    assert reason.advice == "send it: orchestrator signal x1 approve"


def test_a_wait_may_go_on_without_its_signal_or_wait_for_ever() -> None:
    world = started(
        wait_step("w", "go", timeout_ms=1_000, on_timeout="continue"), wait_step("v", "go", after="")
    )

    assert reasons_for(world, "w")[0].words.endswith(", then it continues without the signal")
    assert reasons_for(world, "v")[0].words == "step v waits for the signal 'go', without a timeout"
    assert reasons_for(world, "v")[0].advice == "send it: orchestrator signal x1 go"


def test_an_overdue_timeout_says_that_no_coordinator_has_acted() -> None:
    world = started(wait_step("w", "go", timeout_ms=1_000))

    [reason] = reasons_for(world, "w", 4_000)

    assert f"its timeout is overdue by 3 s (due at {iso(NOW_MS + 1_000)}), then it fails" in reason.words
    assert reason.advice == OVERDUE_ADVICE


def test_a_deferred_step_a_delay_and_a_delay_that_is_deferred_are_told_apart() -> None:
    world = started(
        task("a", defer_ms=2_000), delay("b", 3_000), delay("c", 60_000, defer_ms=1_000), task("z", after="c")
    )

    assert code_and_words(reasons_for(world, "a")[0]) == (
        "deferred",
        f"step a is deferred, due in 2 s, at {iso(NOW_MS + 2_000)}",
    )
    assert code_and_words(reasons_for(world, "b")[0]) == (
        "delay",
        f"step b is a delay, due in 3 s, at {iso(NOW_MS + 3_000)}",
    )
    assert reasons_for(world, "c")[0].code == "deferred"

    world.pass_time(1_000)

    assert reasons_for(world, "c")[0].code == "delay"


def test_a_deferred_step_that_is_due_may_still_be_kept_back() -> None:
    world = started(task("a"), task("b", defer_ms=1_000), max_workers=1)
    world.pass_time(1_000)

    assert code_and_words(reasons_for(world, "b")[0]) == (
        "no_room",
        "step b was deferred and is now ready, but runner.max_workers (1) is reached; in flight: a",
    )


def test_a_retry_says_when_it_comes_and_why_it_is_needed() -> None:
    world = started(task("a", retry=RetrySpec(initial_delay_ms=5_000)))
    world.fail("a", "no route\nto host")

    [reason] = reasons_for(world, "a")

    assert code_and_words(reason) == (
        "retry",
        f"attempt 2 of step a is due in 5 s, at {iso(NOW_MS + 5_000)}; the last attempt failed: no route",
    )
    assert reason.until_ms == NOW_MS + 5_000


def test_a_retry_that_is_due_may_be_kept_back() -> None:
    world = started(task("a", max_attempts=2), task("b"))
    world.pause()
    world.fail("a")

    assert reasons_for(world, "a")[0].words == (
        "attempt 2 of step a is ready, but the execution is paused; the last attempt failed: boom"
    )


def test_a_success_that_is_repeated_shows_no_failure() -> None:
    world = started(task("a", max_attempts=2, attempts_on="any"))
    world.pause()
    world.finish("a")

    assert reasons_for(world, "a")[0].words == "attempt 2 of step a is ready, but the execution is paused"


def test_a_held_step_says_what_it_was_and_how_it_is_released() -> None:
    world = started(task("a"), wait_step("w", "go"))
    world.hold("w")

    [reason] = reasons_for(world, "w")

    assert code_and_words(reason) == ("held", "step w is held (previous status: waiting)")
    assert reason.advice == "release it: orchestrator release-step x1 w"


# ---- capacity


def test_a_step_without_a_slot_names_its_key() -> None:
    world = started(task("a", **key("printer")))

    assert code_and_words(reasons_for(world, "a")[0]) == (
        "in_line",
        "step a waits for a slot of the concurrency key 'printer' (limit 1)",
    )


def test_a_step_held_up_by_max_workers_names_the_units_in_flight() -> None:
    world = started(task("a"), task("b"), task("c"), max_workers=2)

    assert code_and_words(reasons_for(world, "c")[0]) == (
        "no_room",
        "step c is ready, but runner.max_workers (2) is reached; in flight: a and b",
    )


def test_a_step_that_no_coordinator_has_dispatched_yet_is_ready() -> None:
    world = world_of(task("a"))

    [reason] = reasons_for(world, "a")

    assert code_and_words(reason) == ("ready", "step a is ready; no coordinator has dispatched it yet")
    assert "orchestrator doctor" in reason.advice


def test_a_map_says_how_far_it_is_and_what_keeps_its_items_back() -> None:
    world = started(map_step("m", XS, max_parallel=2, on_error="continue"), inputs={"xs": [1, 2, 3, 4]})
    world.fail("m#0")

    counted, waiting, *items = [
        one for one in explain_execution(StatusView(world.record), NOW_MS) if one.step.startswith("m")
    ]

    assert code_and_words(counted) == (
        "items",
        "step m: 1 of 4 items ended, 1 with an error; 2 in flight",
    )
    assert code_and_words(waiting) == (
        "max_parallel",
        "1 more item of step m is ready, but map.max_parallel (2) is reached; items in flight: 2",
    )
    assert [(one.step, one.code) for one in items] == [("m#1", "dispatched"), ("m#2", "dispatched")]
    assert explained(world, "m#3").code == "max_parallel"


def test_items_wait_for_room_in_the_whole_execution_too() -> None:
    world = started(map_step("m", XS), inputs={"xs": [1, 2, 3]}, max_workers=1)

    waiting = reasons_for(world, "m")[1]

    assert code_and_words(waiting) == (
        "no_room",
        "2 more items of step m are ready, but runner.max_workers (1) is reached; in flight: m#0",
    )


def test_an_item_that_is_due_again_is_one_of_those_that_wait() -> None:
    world = started(map_step("m", XS, max_attempts=2), inputs={"xs": [1, 2]}, max_workers=2)
    world.pause()
    world.fail("m#1")

    assert code_and_words(reasons_for(world, "m")[1]) == (
        "paused",
        "1 more item of step m is ready, but the execution is paused",
    )


def test_after_a_fatal_item_no_other_item_is_reported_as_waiting() -> None:
    world = started(map_step("m", XS, max_parallel=2), inputs={"xs": [1, 2, 3]})
    world.fail("m#0")

    [counted] = reasons_for(world, "m")

    assert counted.words == (
        "step m: 1 of 3 items ended, 1 with an error; 1 in flight;"
        " no more items are dispatched because one failed"
    )


def test_of_a_large_map_only_the_first_items_are_explained() -> None:
    world = started(map_step("m", XS), inputs={"xs": list(range(MAX_ITEMS_SHOWN + 5))})

    found = explain_execution(StatusView(world.record), NOW_MS)

    assert len([one for one in found if one.step.startswith("m#")]) == MAX_ITEMS_SHOWN
    assert found[-1].words == "5 more items of step m are in progress"


def test_an_item_that_is_retried_is_explained() -> None:
    world = started(map_step("m", XS, retry=RetrySpec()), inputs={"xs": [1]})
    world.fail("m#0")

    [reason] = reasons_for(world, "m#0")

    assert reason.words.startswith("attempt 2 of item 0 of step m is due in 1 s")


# ---- in progress


def test_a_step_that_was_dispatched_says_how_long_ago() -> None:
    world = started(task("a"))

    [reason] = reasons_for(world, "a", 7_000)

    assert code_and_words(reason) == (
        "dispatched",
        "step a was dispatched 7 s ago; no worker has reported its start yet"
        " (workers report it after one second)",
    )


def test_a_step_that_runs_says_since_when_where_and_until_when() -> None:
    world = started(task("a", timeout_s=60, max_attempts=2))
    world.fail("a")
    world.decide(world.started("a"))

    [reason] = reasons_for(world, "a", 10_000)

    assert code_and_words(reason) == (
        "running",
        "step a started 1 s ago on host-1 (attempt 2) and is still running; its timeout is due in 50 s,"
        f" at {iso(NOW_MS + 60_000)}",
    )
    assert reason.until_ms == NOW_MS + 60_000
    assert reasons_for(world, "a", 70_000)[0].advice == OVERDUE_ADVICE


def test_a_step_that_runs_without_a_deadline_or_a_name_says_less() -> None:
    world = started(task("a", timeout_s=None))
    world.decide(replace(world.started("a"), worker=None))

    [reason] = reasons_for(world, "a", 10_000)

    assert code_and_words(reason) == ("running", "step a started 1 s ago and is still running")


def test_a_step_whose_worker_was_lost_waits_to_be_dispatched_again() -> None:
    world = started(task("a"))
    world.apply(world.loss("a"))

    [reason] = reasons_for(world, "a")

    assert code_and_words(reason) == (
        "lost",
        "the worker of step a was lost (worker died); it is ready to be dispatched again;"
        " no coordinator has dispatched it yet",
    )


def test_a_lost_step_may_be_kept_back_too() -> None:
    world = started(task("a"))
    world.pause()
    world.lose("a")

    assert code_and_words(reasons_for(world, "a")[0]) == (
        "paused",
        "the worker of step a was lost (worker died); it is ready to be dispatched again,"
        " but the execution is paused",
    )


def test_a_declined_step_names_the_executor_that_it_waits_for() -> None:
    world = started(task("a", fn="add"))
    world.decline("a")

    [reason] = reasons_for(world, "a")

    assert code_and_words(reason) == (
        "declined",
        "step a waits for a worker with its executor: the last worker did not have the executor 'add'"
        f" (worker w1 has no executor 'add'); its next try is due in 100 ms, at {iso(NOW_MS + 100)}",
    )
    assert reason.until_ms == NOW_MS + 100


def test_a_declined_step_that_is_in_its_queue_again_says_so() -> None:
    world = started(task("a", fn="add"))
    for _ in range(2):
        world.decline("a")
        world.pass_time(5_000)

    [reason] = reasons_for(world, "a")

    assert reason.code == "dispatched"
    assert reason.words.endswith(
        "; the last 2 workers did not have the executor 'add' (worker w1 has no executor 'add')"
    )


def test_a_declined_step_whose_wait_is_over_is_ready() -> None:
    world = started(task("a", fn="add"))
    world.decline("a")
    world.record = replace(
        world.record, steps={"a": world["a"].with_changes(not_before_ms=None, reason=None)}
    )

    [reason] = reasons_for(world, "a")

    assert code_and_words(reason) == (
        "declined",
        "step a is ready to be dispatched again (the last worker did not have the executor 'add');"
        " no coordinator has dispatched it yet",
    )


def test_a_declined_step_may_be_kept_back_too() -> None:
    world = started(task("a", fn="add"))
    world.decline("a")
    world.pause()
    world.pass_time(100)

    [reason] = reasons_for(world, "a")

    assert reason.code == "paused"
    assert reason.words.endswith("(worker w1 has no executor 'add')), but the execution is paused")


def test_a_step_with_a_child_names_it() -> None:
    world = started(child("c", timeout_s=30))

    [reason] = reasons_for(world, "c", 2_000)

    assert code_and_words(reason) == (
        "child",
        "step c waits for its child x1:c:0, requested 2 s ago; its timeout is due in 28 s,"
        f" at {iso(NOW_MS + 30_000)}",
    )


# ---- ended


def test_what_is_complete_says_so() -> None:
    world = started(task("a"))
    world.finish("a")

    assert code_and_words(reasons_for(world, after_ms=3_000)[0]) == (
        "complete",
        "the execution completed 3 s ago",
    )
    assert code_and_words(explained(world, "a", 3_000)) == ("complete", "step a completed 3 s ago")


def test_a_failure_names_its_step_and_its_error() -> None:
    world = started(task("a", max_attempts=2), task("b", after="a"), task("c", after="b"), task("x"))
    world.fail("a")
    world.fail("a", "out of paper")

    [execution] = reasons_for(world)

    assert code_and_words(execution) == ("failed", "the execution failed 0 ms ago: step a: out of paper")
    show, retry = "orchestrator show x1 --step a", "orchestrator retry x1"
    assert execution.advice == f"see the full error: {show}; run it again: {retry}"
    assert explained(world, "a").words == "step a failed 0 ms ago (attempt 2): out of paper"
    assert explained(world, "b").words.endswith("; root cause: step a: out of paper")
    assert explained(world, "c").words.endswith("; root cause: step a: out of paper")
    assert code_and_words(explained(world, "x")) == (
        "cancelled",
        "step x was cancelled 0 ms ago: step a failed; root cause: step a: out of paper",
    )


def test_a_child_that_failed_is_not_to_be_retried_but_its_parent_is_to_be_explained() -> None:
    world = started(task("a"))
    world.record.parent = Parent("w0#p1", "kid", 0, 1, "t", "p1", 1)
    world.fail("a")

    [execution] = reasons_for(world)

    assert execution.advice == (
        "see the full error: orchestrator show x1 --step a; a child cannot be retried itself:"
        " orchestrator explain p1"
    )
    assert "cannot be retried" in world.rejection(world.control("retry"))


def test_a_compensated_execution_is_not_to_be_retried() -> None:
    world = started(task("a", **undo()), task("b", after="a"))
    world.finish("a")
    world.fail("b")
    world.finish("a#undo")

    [execution] = reasons_for(world)

    assert execution.advice == (
        "see the full error: orchestrator show x1 --step b; it cannot be retried: its steps were compensated;"
        " start a new execution"
    )
    assert "cannot be retried" in world.rejection(world.control("retry"))


def test_a_chain_of_skipped_steps_leads_to_the_failure() -> None:
    world = started(task("a", on_error="skip"), task("b", after="a"), task("c", after="b"), task("x"))
    world.fail("a", "no money")

    assert code_and_words(explained(world, "a")) == ("skipped", "step a was skipped 0 ms ago: no money")
    assert code_and_words(explained(world, "c")) == (
        "skipped",
        "step c was skipped 0 ms ago: parent b skipped; root cause: step a: no money",
    )


def test_a_step_that_a_branch_skipped_has_no_other_root_cause() -> None:
    world = started(
        task("a", on_error="skip"),
        task("b"),
        task("c", after="a b", join="any", branch=(branch(True, "skip"),)),
        task("x"),
    )
    world.fail("a")
    world.finish("b")
    world.finish("c")

    assert explained(world, "c").words == "step c was skipped 0 ms ago: a branch skipped it"


def test_a_path_that_was_not_taken_leads_to_its_condition() -> None:
    world = started(task("a", guards=(False,)), task("b", after="a"), task("c", after="b"), task("x"))

    assert code_and_words(explained(world, "a")) == (
        "filtered",
        "step a was filtered 0 ms ago: its condition is false",
    )
    assert code_and_words(explained(world, "c")) == (
        "filtered",
        "step c was filtered 0 ms ago: every parent was filtered; root cause: step a: its condition is false",
    )


def test_a_switch_is_the_reason_of_those_it_did_not_select() -> None:
    world = started(
        switch("s", "left", {"left": "l", "right": "r"}), task("l", after="s"), task("r", after="s")
    )

    assert explained(world, "r").words == "step r was filtered 0 ms ago: not selected by switch s"


def test_a_halt_names_its_step_and_leaves_others_unrun() -> None:
    world = started(task("a", branch=(branch(True, "halt"),)), task("b"), task("z", after="b"))
    world.finish("a")

    assert code_and_words(reasons_for(world)[0]) == (
        "halted",
        "the execution was halted 0 ms ago by a branch of step a",
    )
    assert code_and_words(explained(world, "a")) == (
        "halted",
        "a branch of step a halted the execution 0 ms ago",
    )
    assert explained(world, "b").words == (
        "step b was cancelled 0 ms ago: workflow halted by step a; root cause: step a: halted"
    )
    assert code_and_words(explained(world, "z")) == ("never_ran", "step z never ran: the execution is halted")


@pytest.mark.parametrize(
    ("reason", "by", "words"),
    [
        ("too late", "ada", "the execution was cancelled 0 ms ago by ada: too late"),
        (None, "ada", "the execution was cancelled 0 ms ago by ada"),
        (None, None, "the execution was cancelled 0 ms ago"),
    ],
)
def test_a_cancelled_execution_names_the_operator_and_the_reason(
    reason: str | None, by: str | None, words: str
) -> None:
    world = started(task("a"), task("b", after="a"))
    world.decide(world.control("cancel", reason=reason, by=by))

    assert code_and_words(reasons_for(world)[0]) == ("cancelled", words)
    assert explained(world, "b").code == "skipped"
    assert "root cause" not in explained(world, "b").words


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (False, "; its completed steps were compensated"),
        (True, "; not all of its completed steps could be compensated"),
    ],
)
def test_a_compensated_execution_says_whether_all_steps_were_compensated(fails: bool, words: str) -> None:
    world = started(task("a", **undo()), task("b", after="a"))
    world.finish("a")
    world.fail("b")
    (world.fail if fails else world.finish)("a#undo")

    assert reasons_for(world)[0].words.endswith(words)
    assert explained(world, "a#undo").code == ("failed" if fails else "complete")


def test_an_execution_without_a_time_of_its_end_says_none() -> None:
    world = started(task("a"))
    world.finish("a")
    world.record.ended_at = None

    assert reasons_for(world)[0].words == "the execution completed"


def test_an_execution_that_timed_out_blames_no_step() -> None:
    world = started(task("a"), task("b", after="a"), timeout_s=1)
    world.pass_time(1_000)

    assert (
        reasons_for(world)[0].words
        == "the execution failed 0 ms ago: the workflow exceeded its timeout (1 s)"
    )
    assert explained(world, "b").words == "step b was skipped 0 ms ago: workflow timed out"


def test_the_failure_of_a_child_leads_to_the_child() -> None:
    world = started(child("c"))
    world.decide(
        replace(
            world.child_end(world.awaited["c"], error="gone"),
            error={"kind": "child_failed", "message": "gone", "child": "w2#x1:c:0"},
        )
    )

    assert explained(world, "c").advice == "explain the child: orchestrator explain w2#x1:c:0"


# ---- the webhook of an execution that has ended


WEBHOOK = WebhookSpec("https://hooks.example.org/")


def test_a_webhook_that_was_not_delivered_is_a_reason_of_the_execution() -> None:
    world = started(task("a"), webhook=WEBHOOK)
    world.finish("a")

    [waiting] = reasons_for(world, "#webhook", 3_000)
    world.fail("#webhook", "hooks.example.org answered 503")
    [retried] = reasons_for(world, "#webhook")
    world.pass_time(10_000)
    refused = {"kind": "exception", "type": "Refused", "message": "not allowed"}
    world.decide(replace(world.error("#webhook"), error=refused))
    [rejected] = reasons_for(world, "#webhook")

    assert waiting.code == "dispatched"
    assert waiting.words.startswith("the webhook was dispatched 3 s ago; no worker has reported its start")
    assert retried.code == "retry"
    assert retried.words.startswith("attempt 2 of the webhook is due in ")
    assert code_and_words(rejected) == ("failed", "the webhook failed 0 ms ago (attempt 2): not allowed")
    assert rejected.advice == "this end is not posted again: correct the cause for the next executions"
    assert explained(world, "#webhook") == rejected


def test_a_webhook_that_was_delivered_is_not_worth_a_line() -> None:
    world = started(task("a"), webhook=WEBHOOK)
    world.finish("a")
    world.finish("#webhook")

    assert [reason.code for reason in explain_execution(StatusView(world.record), world.now_ms)] == [
        "complete"
    ]
    assert explained(world, "#webhook").words == "the webhook completed 0 ms ago"


def test_an_item_that_was_cancelled_says_why() -> None:
    world = started(map_step("m", XS, max_parallel=1), inputs={"xs": [1, 2]})
    world.fail("m#0")

    assert explained(world, "m#1").words.startswith("item 1 of step m was skipped 0 ms ago: ")
    assert explained(world, "m#0").code == "failed"


def test_a_step_that_was_skipped_without_a_reason_says_so() -> None:
    world = started(task("a"), task("x"))
    world.record.steps["a"] = replace(world["a"], status=StepStatus.SKIPPED, token=None)

    assert explained(world, "a").words == "step a was skipped: no reason given"


def test_a_cycle_of_causes_ends_the_search() -> None:
    world = started(task("a"), task("b", after="a"))
    world.cancel()
    world.record.error = {"message": "made up", "step": "b"}

    assert explained(world, "b").code == "skipped"


# ---- any sequence of events


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(40))
def test_after_any_event_every_open_step_has_a_reason_and_none_is_left_undispatched(
    seed: int,
) -> None:
    draw = Random(seed)
    world = any_world(draw)
    seen: list[StepEvent] = []
    world.advance()
    for _ in range(60):
        event = any_event(draw, world, seen)
        if event is None:
            world.now_ms += 1_000
        elif not decide(world.record, [event], world.moment()).rejected:
            seen.append(event)
            world.decide(event)

        found = explain_execution(StatusView(world.record), world.now_ms)
        explained_steps = {reason.step.partition("#")[0] for reason in found}
        open_steps = {one for one, step in world.record.steps.items() if not step.is_final}
        assert explained_steps >= (set() if world.record.is_final else open_steps)
        assert {reason.code for reason in found} <= set(ReasonCode)
        assert not [reason for reason in found if reason.code in (ReasonCode.READY, ReasonCode.LOST)]
        for unit, _ in world.record.units():
            assert explain_unit(StatusView(world.record), unit, world.now_ms)
    assert world.record.status in WorkflowStatus


# ---- text


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (-5, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_999, "59 s"),
        (60_000, "1 m 0 s"),
        (3_599_000, "59 m 59 s"),
        (3_600_000, "1 h 0 m"),
        (86_400_000, "1 d 0 h"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations_have_two_units(ms: int, words: str) -> None:
    assert format_duration(ms) == words


def test_names_are_listed() -> None:
    assert [join_names([]), join_names(["a"]), join_names(["a", "b"]), join_names(["a", "b", "c"], 1)] == [
        "",
        "a",
        "a and b",
        "a and 2 more",
    ]


def test_an_error_is_summarized_by_its_first_line() -> None:
    assert summarize_error({"type": "ValueError", "message": "no\nway"}) == "ValueError: no"
    assert summarize_error({"kind": "timeout"}) == "timeout"
    assert summarize_error({}) == "no reason given"


@pytest.mark.parametrize(
    ("reason", "by", "words"),
    [
        (None, None, "paused"),
        (None, "ada", "paused by ada"),
        ("a strike", None, "paused (a strike)"),
        ("a strike", "ada", "paused by ada (a strike)"),
    ],
)
def test_a_pause_is_explained_with_its_requester_and_its_reason(
    reason: str | None, by: str | None, words: str
) -> None:
    world = started(task("a"))
    world.pause(reason, by)

    [found, _] = explain_execution(StatusView(world.record), NOW_MS)

    assert found.words == f"the execution has been {words}: no step is dispatched; running steps continue"
