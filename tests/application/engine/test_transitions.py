"""How an execution moves: what advance() claims, what a result does, and how a workflow ends.

Branches are in test_branches.py, what expressions see in test_context.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from orchestrator.application.engine.transitions import advance, decide, fail_workflow, on_step_result
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import Cancelled, Complete, Dispatch, Failed, Halt, Pending
from orchestrator.application.records.events import (
    ContinueEvent,
    DeclinedEvent,
    LostEvent,
    Moment,
    ResultEvent,
    StartedEvent,
    StepEvent,
    TimerEvent,
    make_failure,
)
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.timers import Timer
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.values.dispatch_tokens import dispatch_id
from worlds.documents import document, step, when
from worlds.engine_world import EngineWorld, run, world_of
from worlds.records import NOW, NOW_MS, new_record, reloaded

CHAIN = document(step("a"), step("b", after="a"), step("c", after="b"))
DIAMOND = document(step("a"), step("b", after="a"), step("c", after="a"), step("d", after="b c"))
BROKEN: Any = {"+": ["no number", 1]}  # an expression that always fails


# ---- advance


def test_a_workflow_with_no_steps_is_complete_at_the_first_advance() -> None:
    world = world_of(document(outputs={"n": {"var": "input.n"}, "literal": [1]}), inputs={"n": 3})
    world.now_ms += 1_000

    assert world.advance() == Complete({"n": 3, "literal": [1]})
    assert world.record.status is WorkflowStatus.COMPLETE
    assert world.record.ended_at == "2026-01-01T00:00:01.000Z"
    assert world.advance() == Complete({"n": 3, "literal": [1]})


def test_no_outputs_give_an_empty_outcome() -> None:
    assert world_of(document(step("a"))).play(a={"n": 1}) == Complete({})


def test_every_step_without_parents_is_claimed_at_once_in_the_order_of_the_spec() -> None:
    world = world_of(document(step("z"), step("b", after="z"), step("a"), step("m")))

    decision = world.advance()

    assert world.dispatched(decision) == ["z", "a", "m"]
    assert world.statuses == {"z": "in_progress", "b": "ready", "a": "in_progress", "m": "in_progress"}
    assert world.record.status is WorkflowStatus.IN_PROGRESS


def test_a_claim_makes_a_job_with_all_that_a_worker_needs() -> None:
    spec = document(
        step("a", fn="fetch", input={"n": {"var": "input.n"}}, queue="slow", timeout="2m"),
        limits={"max_output_bytes": 99},
    )
    world = world_of(spec, inputs={"n": 5})
    world.now_ms += 1_000

    decision = world.advance()

    assert isinstance(decision, Dispatch)
    [job] = decision.jobs
    assert (job.step_id, job.fn, job.op, job.inputs) == ("a", "fetch", "fetch", {"n": 5})
    assert (job.run_id, job.attempt, job.round, job.token) == (0, 1, 0, "n1-0")
    assert (job.queue, job.timeout_s, job.max_output_bytes) == ("slow", 120.0, 99)
    assert job.workflow_execution_id == world.record.workflow_execution_id
    assert job.dispatched_at == "2026-01-01T00:00:01.000Z"
    assert job.idempotency_key == "x1#a#0"
    assert world["a"] == StepRecord(
        StepStatus.IN_PROGRESS, dispatches=1, token="n1-0", dispatched_at="2026-01-01T00:00:01.000Z"
    )


def test_jobs_of_one_advance_have_tokens_of_their_own() -> None:
    world = world_of(document(step("a"), step("b")))

    world.advance()

    assert {job.token for job in world.jobs} == {"n1-0", "n1-1"}


def test_a_step_waits_until_every_parent_is_complete() -> None:
    world = world_of(DIAMOND)
    world.play(a={})

    assert world.finish("b", {}) == Pending()
    assert world.statuses["d"] == "ready"
    assert world.dispatched(world.finish("c", {})) == ["d"]


def test_advance_with_nothing_new_is_pending_and_changes_nothing() -> None:
    world = world_of(CHAIN)
    world.advance()

    assert world.advance() == Pending()
    assert world.last.is_empty
    assert world.jobs[1:] == []


def test_a_paused_workflow_dispatches_nothing_but_takes_results() -> None:
    world = world_of(DIAMOND)
    world.advance()
    world.record.status = WorkflowStatus.PAUSED

    assert world.finish("a", {"n": 1}) == Pending()
    assert world.statuses == {"a": "complete", "b": "ready", "c": "ready", "d": "ready"}

    world.record.status = WorkflowStatus.IN_PROGRESS
    assert world.dispatched(world.advance()) == ["b", "c"]


def test_a_cancelled_workflow_says_so_and_stays_as_it_is() -> None:
    world = world_of(CHAIN)
    world.advance()
    late = world.result("a", {"n": 1})
    world.cancel()

    assert world.advance() == Cancelled()
    assert world.decide(late) == Cancelled()
    assert world.record.state == {}
    assert world.counters == {"late": 1}


def test_a_limit_cuts_the_claims_and_says_that_more_is_ready() -> None:
    world = world_of(document(*(step(name) for name in "abcde")))

    assert world.dispatched(world.advance(limit=2)) == ["a", "b"]
    assert world.last.has_more_ready
    event = ContinueEvent(world.record.workflow_execution_id)
    assert world.dispatched(world.decide(event, limit=2)) == ["c", "d"]
    assert world.last.has_more_ready
    assert world.dispatched(world.decide(event, limit=2)) == ["e"]
    assert not world.last.has_more_ready
    assert world.decide(event, limit=2) == Pending()
    assert world.apply(event) is None


def test_a_limit_that_is_just_enough_leaves_nothing_behind() -> None:
    world = world_of(document(step("a"), step("b")))

    world.advance(limit=2)

    assert not world.last.has_more_ready


def test_what_a_limit_left_behind_is_claimed_by_a_process_that_loads_the_record() -> None:
    world = world_of(document(*(step(name) for name in "abc")))
    world.advance(limit=1)

    changes, decision = advance(reloaded(world.record), Moment(9, "other"))

    assert world.dispatched(decision) == ["b", "c"]
    assert not changes.has_more_ready


def test_a_step_left_behind_by_a_limit_and_then_reset_is_dispatched_once() -> None:
    branch = [when({"var": "again"}, {"set": ["x"]}), when(True, "complete")]
    world = world_of(document(step("a", branch=branch), step("x"), step("y")))
    world.advance(limit=1)

    decision = world.finish("a", {"again": True})

    assert world.dispatched(decision) == ["a", "x", "y"]


def test_a_join_below_a_tolerated_failure_is_dispatched_once_by_a_process_that_loads_the_record() -> None:
    world = world_of(document(step("p", on_error="continue"), step("q"), step("d", after="p q")))
    world.play(p=ValueError("boom"))
    world.record = reloaded(world.record)

    decision = world.finish("q", {})

    assert world.dispatched(decision) == ["d"]
    assert world["d"].dispatches == 1


def test_inputs_are_resolved_at_dispatch_through_objects_and_lists() -> None:
    given = {
        "plain": {"timeout": 5, "deep": {"n": {"var": "input.n"}}},
        "list": [1, {"var": "input.n"}, {"k": {"+": [{"var": "input.n"}, 1]}}],
        "quoted": {"$literal": {"var": "input.n"}},
        "absent": {"var": "input.nothing"},
    }
    world = world_of(document(step("a", input=given)), inputs={"n": 2})

    world.advance()

    assert world.jobs[0].inputs == {
        "plain": {"timeout": 5, "deep": {"n": 2}},
        "list": [1, 2, {"k": 3}],
        "quoted": {"var": "input.n"},
        "absent": None,
    }


def test_a_step_without_input_gets_an_empty_object() -> None:
    world = world_of(document(step("a"), step("b", input=None), step("c", input={})))

    world.advance()

    assert [job.inputs for job in world.jobs] == [{}, {}, {}]


def test_a_job_keeps_its_inputs_when_the_state_goes_on() -> None:
    world = world_of(document(step("a", input={"seen": {"var": "state"}}), step("b")))
    decision = world.advance()
    assert isinstance(decision, Dispatch)
    job = decision.jobs[0]

    world.finish("b", {"n": 1})

    assert job.inputs == {"seen": {}}


def test_an_outcome_keeps_its_values_when_the_record_is_used_further() -> None:
    world = world_of(document(step("a"), outputs={"seen": {"var": "state"}}))
    world.play(a={"n": 1})

    world.record.state["n"] = 2

    assert world.record.outcome == {"seen": {"n": 1}}


# ---- inputs that cannot be resolved


def test_inputs_that_cannot_be_resolved_fail_the_step_and_with_it_the_workflow() -> None:
    world = world_of(
        document(step("a", input={"n": BROKEN}, max_attempts=3), step("b"), step("c", after="a"))
    )

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert decision.error["step"] == "a"
    assert "input cannot be resolved" in decision.error["message"]
    assert world.statuses == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert world.jobs == []
    assert world.record.state == {}  # a resolution error is no result: nothing is merged
    assert world["a"].output is None


def test_inputs_that_cannot_be_resolved_fail_that_step_alone_when_its_policy_says_so() -> None:
    world = world_of(
        document(
            step("a", input={"n": BROKEN}, on_error="continue"),
            step("b"),
            step("c", after="a"),
            step("d", input={"n": BROKEN}, on_error="skip"),
            step("e", after="d"),
        )
    )

    assert world.dispatched(world.advance()) == ["b", "c"]
    assert world.statuses == {
        "a": "failed",
        "b": "in_progress",
        "c": "in_progress",
        "d": "skipped",
        "e": "skipped",
    }


def test_a_join_below_inputs_that_cannot_be_resolved_is_skipped_at_once() -> None:
    world = world_of(
        document(step("a", input={"n": BROKEN}, on_error="skip"), step("b"), step("d", after="a b"))
    )

    assert world.dispatched(world.advance()) == ["b"]
    assert world.statuses == {"a": "skipped", "b": "in_progress", "d": "skipped"}


def test_branches_do_not_see_inputs_that_cannot_be_resolved() -> None:
    world = world_of(document(step("a", input={"n": BROKEN}, branch=[when(True, "complete")])))

    assert isinstance(world.advance(), Failed)


def test_inputs_of_a_later_attempt_that_cannot_be_resolved_fail_the_step() -> None:
    once = {"if": [{"var": "state.seen"}, {"+": ["no number", 1]}, 1]}
    world = world_of(document(step("a", input={"n": once}, max_attempts=3, attempts_on="any")))

    decision = world.play(a={"seen": True})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert world.statuses == {"a": "failed"}


# ---- results


def test_a_result_completes_its_step_and_is_merged_into_the_state() -> None:
    world = world_of(CHAIN)
    world.advance()
    event = replace(
        world.result("a", {"n": 1, "o": {"k": 2}}), worker="host-1", started_at="2026-01-01T00:00:01Z"
    )
    world.now_ms += 2_000

    assert world.apply(event) is None

    assert world["a"] == StepRecord(
        StepStatus.COMPLETE,
        dispatches=1,
        output={"n": 1, "o": {"k": 2}},
        worker="host-1",
        dispatched_at=NOW,
        started_at="2026-01-01T00:00:01Z",
        ended_at="2026-01-01T00:00:02.000Z",
    )
    assert world.record.state == {"n": 1, "o": {"k": 2}}
    assert [step_id for step_id, _ in world.last.finished_dispatches] == ["a"]
    assert world.statuses["b"] == "ready"  # advance() is another call


def test_the_state_is_shallow_and_the_last_write_wins() -> None:
    world = world_of(CHAIN)

    world.play(a={"n": 1, "o": {"x": 1}}, b={"n": 2, "o": {"y": 2}}, c={})

    assert world.record.state == {"n": 2, "o": {"y": 2}}


def test_a_merge_that_changes_no_key_is_not_in_the_history() -> None:
    world = world_of(CHAIN)

    world.play(a={"n": 1}, b={"n": 1}, c={"n": 1, "m": 2})

    assert [line["state_changed"] for line in world.history if "state_changed" in line] == [["n"], ["m"]]


def test_an_empty_output_is_visible_in_steps_and_merges_nothing() -> None:
    world = world_of(document(step("a"), outputs={"a": {"var": "steps.a"}}))

    assert world.play(a={}) == Complete({"a": {"output": {}}})
    assert world.record.state == {}
    assert world.last.merged == []  # so that on_state_change is not called


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (True, "a boolean"),
        ("text", "a string"),
        ([1], "a list"),
        (7, "a number"),
        (0.5, "a number"),
        ((1,), "a tuple"),
    ],
)
def test_an_output_that_is_no_object_is_a_failure_and_not_retried(output: Any, what: str) -> None:
    world = world_of(document(step("a", max_attempts=3)))

    decision = world.play(a=output)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "bad_output"
    assert what in decision.error["message"]
    assert world["a"].output == {"ok": False, "error": decision.error["message"]}
    assert world.executed == {"a": 1}


def test_an_error_becomes_an_output_and_is_merged_as_in_runfox() -> None:
    world = world_of(document(step("a", on_error="continue"), step("b", after="a")))

    world.play(a=ValueError("no such file"))

    assert world["a"].output == {"ok": False, "error": "no such file"}
    assert world.record.state == {"ok": False, "error": "no such file"}
    assert world["a"].error == {"kind": "exception", "message": "no such file"}


def test_outputs_that_cannot_be_resolved_fail_the_workflow() -> None:
    world = world_of(document(step("a"), outputs={"n": BROKEN}))

    decision = world.play(a={})

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert "outputs cannot be resolved" in decision.error["message"]
    assert world.record.status is WorkflowStatus.FAILED
    assert world.statuses == {"a": "complete"}
    assert world.record.outcome is None


def test_a_step_that_can_never_run_stalls_the_workflow() -> None:
    """No spec leads here; a record that was written by hand, or by a later release, can."""
    world = world_of(CHAIN)
    world.record.steps["a"] = StepRecord(StepStatus.CANCELLED)
    world.record.readiness = Readiness.of(world.record.graph, world.record.steps)

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "stalled"
    assert world.record.status is WorkflowStatus.FAILED


def test_a_workflow_that_cannot_be_decided_upon_can_be_failed_from_outside() -> None:
    world = world_of(DIAMOND)
    world.play(a={})

    changes = fail_workflow(world.record, make_failure("corrupt", "a step has no status"), Moment(9, "n"))
    world.record.apply(changes)

    assert world.record.status is WorkflowStatus.FAILED
    assert world.record.error == {"kind": "corrupt", "message": "a step has no status"}
    assert world.statuses == {"a": "complete", "b": "cancelled", "c": "cancelled", "d": "skipped"}
    assert sorted(step_id for step_id, _ in changes.revoked) == ["b", "c"]
    assert fail_workflow(world.record, make_failure("corrupt", "again"), Moment(9, "n")).is_empty


# ---- the fence


def test_the_same_result_twice_in_one_batch_counts_once() -> None:
    world = world_of(CHAIN)
    world.advance()
    event = world.result("a", {"n": 1})

    assert world.dispatched(world.decide(event, event)) == ["b"]
    assert world.counters == {"stale": 1}


def test_a_result_with_another_token_is_dropped() -> None:
    world = world_of(CHAIN)
    world.advance()

    wrongs: list[dict[str, Any]] = [{"token": "n1-7"}, {"run_id": 1}, {"attempt": 2}, {"token": ""}]
    for wrong in wrongs:
        assert world.apply(replace(world.result("a", {"n": 1}), **wrong)) is None
        assert world.last.is_empty
    assert world.counters == {"stale": 4}
    assert world.statuses["a"] == "in_progress"


def test_a_result_of_a_caller_without_a_job_is_fenced_by_the_status_alone() -> None:
    world = world_of(CHAIN)
    world.advance()
    event = ResultEvent(world.record.workflow_execution_id, "a", {"n": 1})

    world.decide(event)
    assert world.statuses["a"] == "complete"
    world.decide(event)
    assert world.counters == {"stale": 1}


def test_a_result_of_a_step_that_was_never_dispatched_is_dropped() -> None:
    world = world_of(CHAIN)
    world.advance()

    world.decide(ResultEvent(world.record.workflow_execution_id, "c", {"n": 1}))

    assert world.counters == {"stale": 1}
    assert world.statuses["c"] == "ready"


@pytest.mark.parametrize("end", ["halt", "fail"])
def test_the_decision_on_a_late_result_is_the_end_of_the_workflow(end: str) -> None:
    world = world_of(document(step("a", branch=[when(True, end, result={"why": 1})]), step("b")))
    world.advance()
    late = world.result("b", {"n": 1})
    first = world.finish("a", {})

    again = world.decide(late)

    assert again == first
    assert world.last.is_empty
    assert world.counters == {"late": 1}
    assert world.statuses["b"] == "cancelled"
    assert world.record.state == {}


def test_a_result_for_an_unknown_step_is_refused() -> None:
    world = world_of(CHAIN)
    world.advance()
    foreign = ResultEvent(world.record.workflow_execution_id, "zzz", {"n": 1})

    with pytest.raises(InvalidEvent, match="has no step 'zzz'"):
        on_step_result(world.record, foreign, world.moment())

    decided = decide(world.record, [foreign, world.result("a", {"n": 1}), foreign], world.moment())
    assert [position for position, _ in decided.rejected] == [0, 2]
    assert "has no step 'zzz'" in decided.rejected[0][1]
    assert [job.step_id for job in decided.changes.jobs] == ["b"]


def test_all_results_of_a_batch_are_applied_before_the_one_advance() -> None:
    world = world_of(DIAMOND)
    world.play(a={"n": 0})

    decision = world.decide(world.result("c", {"n": 1}), world.result("b", {"n": 2}))

    assert world.dispatched(decision) == ["d"]
    assert world.record.state == {"n": 2}


def test_a_batch_decides_as_its_events_one_after_the_other() -> None:
    """Skipping what can no longer run is part of each result (7.1 step 10), not of the last one only."""
    spec = document(
        step("a", branch=[when(True, "skip")]),
        step("p"),
        step("d", after="a p", on_error="continue"),
        step("e"),
    )
    together, apart = world_of(spec), world_of(spec)
    together.advance()
    apart.advance()

    together.decide(together.result("a", {}), together.error("p"))
    apart.apply(apart.result("a", {}))
    apart.apply(apart.error("p"))
    apart.advance()

    # d is skipped by a, so it is no longer asked what p's failure means to it (ruling 11): p's fail stops.
    assert apart.statuses == {"a": "skipped", "p": "failed", "d": "skipped", "e": "cancelled"}
    assert together.statuses == apart.statuses


# ---- started, deadline


def test_a_started_event_notes_the_worker_and_starts_the_clock() -> None:
    world = world_of(document(step("a", timeout=60)))
    world.advance()
    world.now_ms += 2_000

    assert world.apply(world.started("a")) is None

    assert (world["a"].worker, world["a"].started_at) == ("host-1", "2026-01-01T00:00:09Z")
    due = NOW_MS + 2_000 + 60_000
    assert world["a"].deadline_ms == due
    assert world.last.timers_to_arm == [Timer("deadline", "a", "n1-0", due)]
    assert world.statuses["a"] == "in_progress"


def test_a_started_event_without_a_time_takes_that_of_the_event() -> None:
    world = world_of(document(step("a")))
    world.advance()
    world.now_ms += 2_000

    world.apply(replace(world.started("a"), started_at=None))

    assert world["a"].started_at == "2026-01-01T00:00:02.000Z"


def test_a_step_without_a_timeout_has_no_deadline() -> None:
    world = world_of(document(step("a", timeout="none")))
    world.advance()

    world.apply(world.started("a"))
    assert world["a"].deadline_ms is None
    assert world.last.timers_to_arm == []

    world.apply(TimerEvent("deadline", world.record.workflow_execution_id, "a", world.out["a"].token))
    assert world.last.is_empty
    assert world.statuses["a"] == "in_progress"


def test_a_step_past_its_deadline_fails_with_a_timeout_and_is_retried() -> None:
    world = world_of(document(step("a", timeout=1, max_attempts=2)))
    world.advance()
    world.apply(world.started("a"))
    first = world.out["a"]

    decision = world.pass_time(1_000)

    assert world.dispatched(decision) == ["a"]
    assert world["a"].attempt == 2
    assert world["a"].error == {"kind": "timeout", "message": "execution timeout exceeded (1 s)"}
    assert [step_id for step_id, _ in world.last.revoked] == ["a"]
    assert world["a"].deadline_ms is None
    world.decide(world.result("a", {"n": 1}, first))
    assert world.counters == {"stale": 1}


def test_a_deadline_that_comes_too_early_is_set_again() -> None:
    world = world_of(document(step("a", timeout=60)))
    world.advance()
    world.apply(world.started("a"))

    world.decide(TimerEvent("deadline", world.record.workflow_execution_id, "a", world.out["a"].token))

    assert world.statuses["a"] == "in_progress"
    assert world.last.timers_to_arm == [Timer("deadline", "a", "n1-0", world["a"].deadline_ms or 0)]


def test_a_deadline_of_another_dispatch_is_dropped() -> None:
    world = world_of(document(step("a", timeout=1)))
    world.advance()
    world.apply(world.started("a"))

    world.decide(TimerEvent("deadline", world.record.workflow_execution_id, "a", "n0-0"))

    assert world.counters == {"stale": 1}
    assert world.statuses["a"] == "in_progress"


# ---- lost workers


def test_a_lost_worker_costs_a_run_but_no_attempt() -> None:
    world = world_of(document(step("a"), step("b", after="a")))
    world.advance()
    world.apply(world.started("a"))
    first = world.out["a"]

    decision = world.decide(world.loss("a"))

    assert world.dispatched(decision) == ["a"]
    assert (world["a"].run_id, world["a"].attempt, world["a"].lost, world["a"].dispatches) == (1, 1, 1, 2)
    assert (world["a"].worker, world["a"].started_at, world["a"].deadline_ms) == (None, None, None)
    assert world["a"].reason == "worker died"
    assert world["a"].round == 0
    assert world.jobs[1].idempotency_key == first.idempotency_key
    assert [step_id for step_id, _ in world.last.revoked] == ["a"]
    assert world.counters == {"lost": 1}


def test_a_loss_may_name_the_dispatch_by_its_id() -> None:
    world = world_of(document(step("a")))
    world.has_secrets = True
    world.advance()

    decision = world.decide(replace(world.loss("a"), token=dispatch_id(world.out["a"].token)))

    assert world.dispatched(decision) == ["a"]
    assert world.counters == {"lost": 1}


def test_every_other_event_needs_the_whole_token() -> None:
    world = world_of(document(step("a")))
    world.has_secrets = True
    world.advance()
    name = dispatch_id(world.out["a"].token)

    made_up = (world.started("a"), world.declined("a"), world.result("a", {"n": 1}))
    world.decide(*(replace(event, token=name) for event in made_up))

    assert (world["a"].started_at, world["a"].declined, world.statuses["a"]) == (None, 0, "in_progress")
    assert world.counters == {"stale": 3}


def test_a_loss_is_pending_until_the_advance_that_dispatches_again() -> None:
    world = world_of(document(step("a")))
    world.advance()

    assert world.apply(world.loss("a")) == Pending()
    assert world["a"].token is None
    assert world.dispatched(world.advance()) == ["a"]


def test_a_lost_step_is_dispatched_again_by_a_process_that_loads_the_record() -> None:
    """The commit of the loss may leave the dispatch to a later one: a limit, a pause, a crash in between."""
    world = world_of(document(step("a")))
    world.advance()
    world.apply(world.loss("a"))

    changes, decision = advance(reloaded(world.record), Moment(9, "other"))

    assert [job.step_id for job in changes.jobs] == ["a"]
    assert isinstance(decision, Dispatch)


def test_a_result_between_a_loss_and_its_dispatch_is_dropped() -> None:
    world = world_of(document(step("a")))
    world.advance()
    old = world.result("a", {"n": 1})
    unfenced = ResultEvent(world.record.workflow_execution_id, "a", {"n": 2})
    world.apply(world.loss("a"))

    world.apply(old)
    world.apply(unfenced)

    assert world.counters == {"lost": 1, "stale": 2}


def test_a_loss_reported_twice_counts_once() -> None:
    world = world_of(document(step("a")))
    world.advance()
    event = world.loss("a")

    assert world.dispatched(world.decide(event, event)) == ["a"]
    assert world.counters == {"lost": 1, "stale": 1}
    assert world["a"].run_id == 1


def test_a_step_that_lost_too_many_workers_fails_as_lost() -> None:
    world = world_of(document(step("a"), limits={"max_lost": 2}))
    world.advance()
    world.lose("a")
    world.lose("a")

    decision = world.lose("a")

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "lost"
    assert "3 workers lost" in decision.error["message"]
    assert world.executed == {"a": 3}
    assert world.counters == {"lost": 3}


def test_branches_see_that_too_many_workers_were_lost() -> None:
    world = world_of(
        document(step("a", branch=[when({"!": [{"var": "ok"}]}, "complete")]), limits={"max_lost": 0})
    )
    world.advance()

    assert world.lose("a") == Complete({})
    assert world["a"].output == {"ok": False, "error": "worker died (1 workers lost with this attempt)"}


# ---- attempts


@pytest.mark.parametrize("where", ["step", "defaults"])
def test_a_success_is_repeated_when_attempts_are_counted_on_any_result(where: str) -> None:
    spec = document(step("a", max_attempts=3, **({"attempts_on": "any"} if where == "step" else {})))
    if where == "defaults":
        spec["defaults"] = {"attempts_on": "any"}
    assert [problem.code for problem in check_spec(spec).warnings] == ["repeats_on_success"]
    world = world_of(spec)
    world.advance()

    assert world.apply(world.result("a", {"n": 1})) == Pending()
    assert world.statuses == {"a": "retry"}
    assert world["a"].output == {"n": 1}  # stays visible
    assert (world["a"].run_id, world["a"].attempt, world["a"].round) == (1, 2, 0)

    world.advance()
    world.finish("a", {"n": 2})
    assert world.finish("a", {"n": 3}) == Complete({})
    assert world.executed == {"a": 3}
    assert world["a"].run_id == 2


def test_a_failure_is_tried_again_as_often_as_attempts_are_left() -> None:
    world = world_of(document(step("a", max_attempts=3), step("b", after="a")))
    world.advance()

    assert world.dispatched(world.fail("a", "one")) == ["a"]
    assert world["a"].error == {"kind": "exception", "message": "one"}
    assert world.dispatched(world.fail("a", "two")) == ["a"]
    assert world.dispatched(world.finish("a", {"n": 1})) == ["b"]

    assert (world["a"].run_id, world["a"].attempt, world["a"].dispatches) == (2, 3, 3)
    assert world["a"].error is None
    assert world["a"].output == {"n": 1}


def test_a_new_attempt_knows_nothing_of_the_worker_of_the_last() -> None:
    world = world_of(document(step("a", max_attempts=2)))
    world.advance()
    world.apply(world.started("a"))
    world.now_ms += 3_000

    world.fail("a")

    seen = world["a"]
    assert (seen.worker, seen.started_at, seen.ended_at, seen.deadline_ms) == (None, None, None, None)
    assert seen.dispatched_at == "2026-01-01T00:00:03.000Z"


def test_a_failure_without_attempts_left_is_for_good() -> None:
    world = world_of(document(step("a", max_attempts=2), step("b", after="a"), step("c")))
    world.advance()
    world.fail("a", "one")

    assert world.apply(world.error("a", "two")) == Failed(
        {"kind": "exception", "message": "two", "step": "a"}
    )
    assert world.statuses == {"a": "failed", "b": "skipped", "c": "cancelled"}
    assert world.record.status is WorkflowStatus.FAILED
    assert world.record.error == {"kind": "exception", "message": "two", "step": "a"}
    assert [step_id for step_id, _ in world.last.revoked] == ["c"]
    assert world["c"].reason == "step a failed"
    assert world["b"].reason == "step a failed"


@pytest.mark.parametrize(
    "kind", ["expression", "bad_output", "branch_target", "no_branch", "loop_limit", "declared"]
)
def test_failures_that_would_only_happen_again_are_not_retried(kind: str) -> None:
    world = world_of(document(step("a", max_attempts=3)))
    world.advance()

    assert isinstance(world.fail("a", kind=kind), Failed)
    assert world.executed == {"a": 1}


@pytest.mark.parametrize(
    "kind", ["exception", "timeout", "lost", "rejected", "child_failed", "signal_timeout"]
)
def test_other_failures_are_retried(kind: str) -> None:
    world = world_of(document(step("a", max_attempts=2)))
    world.advance()

    assert world.dispatched(world.fail("a", kind=kind)) == ["a"]


def test_a_step_between_two_attempts_is_dispatched_by_a_process_that_loads_the_record() -> None:
    world = world_of(document(step("a", max_attempts=2)))
    world.advance()
    world.apply(world.error("a"))

    _, decision = advance(reloaded(world.record), Moment(9, "other"))

    assert world.dispatched(decision) == ["a"]


# ---- failures for good: U3, one line of the table each


def test_p_default_dependents_all_skip() -> None:
    world = world_of(document(step("p"), step("d", after="p", on_error="skip"), step("e")))
    world.advance()

    assert world.fail("p") == Pending()
    assert world.statuses == {"p": "failed", "d": "skipped", "e": "in_progress"}
    assert world["d"].reason == "parent p failed"
    assert isinstance(world.finish("e", {}), Failed)


def test_p_says_continue_dependent_says_skip() -> None:
    world = world_of(document(step("p", on_error="continue"), step("d", after="p", on_error="skip")))
    world.advance()

    assert world.fail("p") == Complete({})
    assert world.statuses == {"p": "failed", "d": "skipped"}


def test_p_says_continue_dependent_says_nothing() -> None:
    world = world_of(document(step("p", on_error="continue"), step("d", after="p")))
    world.advance()

    assert world.dispatched(world.fail("p")) == ["d"]


def test_p_says_skip_dependent_says_nothing_or_fail() -> None:
    world = world_of(
        document(step("p", on_error="skip"), step("d", after="p"), step("e", after="p", on_error="fail"))
    )
    world.advance()

    assert world.fail("p") == Complete({})
    assert world.statuses == {"p": "skipped", "d": "skipped", "e": "skipped"}


@pytest.mark.parametrize(
    ("policy", "status", "ends"),
    [("fail", "failed", Failed), ("skip", "skipped", Complete), ("continue", "failed", Complete)],
)
@pytest.mark.parametrize("where", ["step", "defaults"])
def test_without_dependents_its_own_policy_decides(policy: str, status: str, ends: type, where: str) -> None:
    spec = document(step("p", **({"on_error": policy} if where == "step" else {})))
    if where == "defaults":
        spec["defaults"] = {"on_error": policy}
    world = world_of(spec)
    world.advance()

    assert isinstance(world.fail("p"), ends)
    assert world.statuses == {"p": status}


def test_two_failures_that_were_only_tolerated_end_with_the_first_of_the_spec() -> None:
    world = world_of(document(step("p"), step("q"), step("d", after="p q", on_error="continue")))
    world.advance()
    world.fail("q", "second in the spec, first in time")
    world.fail("p", "first in the spec")

    decision = world.finish("d", {})

    assert isinstance(decision, Failed)
    assert decision.error == {"kind": "exception", "message": "first in the spec", "step": "p"}


# ---- skips and joins


def test_a_result_alone_skips_what_can_no_longer_run() -> None:
    """7.1 step 10: to a fixed point, and without an advance."""
    world = world_of(
        document(step("e", after="d"), step("d", after="p"), step("p", on_error="skip"), step("f"))
    )
    world.advance()

    assert world.apply(world.error("p")) is None

    assert world.statuses == {"e": "skipped", "d": "skipped", "p": "skipped", "f": "in_progress"}


def test_a_result_alone_leaves_what_can_run_to_advance() -> None:
    world = world_of(DIAMOND)
    world.advance()

    world.apply(world.result("a", {}))

    assert world.last.jobs == []
    assert world.dispatched(world.advance()) == ["b", "c"]


def by_hand(spec: dict[str, Any], **statuses: StepStatus) -> EngineWorld:
    """A world whose record was written by hand; this release has nothing that filters a step."""
    world = world_of(spec)
    for step_id, status in statuses.items():
        world.record.steps[step_id] = StepRecord(status)
    world.record.readiness = Readiness.of(world.record.graph, world.record.steps)
    return world


def test_a_step_left_ready_below_a_skipped_parent_is_skipped_by_the_next_advance() -> None:
    """No commit leaves such a record; one that was written by hand has it settled, not stalled."""
    world = by_hand(
        document(step("p"), step("q"), step("d", after="p q"), step("e", after="d")),
        p=StepStatus.COMPLETE,
        q=StepStatus.SKIPPED,
    )

    assert world.advance() == Complete({})
    assert (world.statuses["d"], world.statuses["e"]) == ("skipped", "skipped")
    assert world["d"].reason == "parent q skipped"


def test_a_filtered_parent_does_not_let_a_step_run_before_the_others_are_final() -> None:
    world = by_hand(document(step("p"), step("q"), step("d", after="p q")), p=StepStatus.FILTERED)

    assert world.dispatched(world.advance()) == ["q"]
    assert world.statuses["d"] == "ready"
    assert world.dispatched(world.finish("q", {})) == ["d"]


# ---- implicit dependencies


def test_a_reference_in_an_input_is_a_dependency() -> None:
    for value in (
        {"var": "steps.a.output.n"},
        {"vars": "steps.a.output.items[*]"},
        {"+": [{"var": "steps.a.output.n"}, 1]},
        {"deep": {"n": {"var": "steps.a.output"}}},
        [{"var": "steps.a.output.n"}],
        {"var": "flows.a.n"},
    ):
        world = world_of(document(step("b", input={"n": value}), step("a")))

        assert world.dispatched(world.advance()) == ["a"], value
        assert world.dispatched(world.finish("a", {"n": 4, "items": []})) == ["b"], value


def test_a_reference_with_a_default_is_no_dependency() -> None:
    world = world_of(document(step("b", input={"n": {"var": ["steps.a.output.n", 0]}}), step("a")))

    assert world.dispatched(world.advance()) == ["b", "a"]
    assert world.jobs[0].inputs == {"n": 0}


def test_a_reference_to_all_steps_is_no_dependency() -> None:
    world = world_of(document(step("b", input={"n": {"vars": "steps[*].output.n"}}), step("a")))

    assert world.dispatched(world.advance()) == ["b", "a"]
    assert world.jobs[0].inputs == {"n": []}


def test_a_skip_cascades_along_implicit_dependencies() -> None:
    world = world_of(
        document(step("a", on_error="skip"), step("b", input={"n": {"var": "steps.a.output.n"}}))
    )
    world.advance()

    assert world.fail("a") == Complete({})
    assert world.statuses == {"a": "skipped", "b": "skipped"}


# ---- the whole of it


def test_a_run_reaches_its_end_with_results_in_the_order_of_dispatch() -> None:
    world = world_of(DIAMOND | {"outputs": {"sum": {"var": "steps.d.output.n"}}})

    outcome = run(world, lambda fn, inputs, calls: {"n": ord(fn)})

    assert outcome == Complete({"sum": ord("d")})
    assert [[job.step_id for job in wave] for wave in world.waves] == [["a"], ["b", "c"], ["d"]]


def test_no_transition_writes_to_the_record_it_is_given() -> None:
    """EngineWorld checks this at every call; here it is shown that the check can fail."""
    world = world_of(CHAIN)
    event = ResultEvent(world.record.workflow_execution_id, "a", {"n": 1})
    world.advance()

    with pytest.raises(AssertionError, match="wrote to the record"), world._unchanged():
        world.record.steps["a"] = StepRecord()

    record = new_record(CHAIN)
    changes, _ = on_step_result(record, event, Moment(0, "n"))
    assert changes.is_empty  # nothing was claimed
    assert changes.counter_increments == {"stale": 1}


@pytest.mark.parametrize("event_type", [LostEvent, StartedEvent, partial(DeclinedEvent, executor="b")])
def test_events_of_a_worker_after_the_end_are_late(event_type: Callable[..., StepEvent]) -> None:
    world = world_of(document(step("a", branch=[when(True, "halt")]), step("b")))
    world.advance()
    job = world.out["b"]
    world.finish("a", {})

    event = event_type(job.workflow_execution_id, "b", job.run_id, job.attempt, job.token)

    assert world.decide(event) == Halt({})
    assert world.last.is_empty
    assert world.counters == {"late": 1}
