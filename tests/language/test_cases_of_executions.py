"""The edge cases of the language that are about whole executions: pauses, cancels, children, starts."""

from __future__ import annotations

import pytest

from language.redis_stage import RedisStage
from language.stage import Stage
from language.written import child, halts, jobless
from orchestrator.application.errors import RecordNotFound
from worlds.documents import Json, document, step

# ---- paused


def test_timeout_while_paused(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("a", timeout="60s", retry=retry), step("b", "a"), step("c")))
    stage.report_started("a")
    stage.control("pause")

    stage.pass_time("60s")

    assert stage.status == "paused"
    assert (stage["a"].status, stage["a"].attempt, stage.error_kind("a")) == ("retry", 2, "timeout")

    stage.pass_time("10s")
    assert (stage["a"].status, stage.executions_of("a")) == ("retry", 1), "it is due, and waits for unpause"

    stage.control("unpause")
    assert (stage.status, stage["a"].status, stage.executions_of("a")) == ("in_progress", "in_progress", 2)


def test_timeout_while_paused_of_the_last_attempt_fails_the_workflow(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s"), step("b", "a"), step("c")))
    stage.report_started("a")
    stage.control("pause")

    stage.pass_time("60s")

    assert (stage.status, stage.error["kind"], stage.error["step"]) == ("failed", "timeout", "a")
    assert stage.statuses == {"a": "failed", "b": "skipped", "c": "cancelled"}


def test_timeout_while_paused_of_a_wait_and_of_the_workflow(stage: Stage) -> None:
    wait = {"signal": "go", "timeout": "30s", "on_timeout": "continue"}
    stage.start(document(jobless("w", wait=wait), step("below", "w"), step("other"), timeout="60s"))
    stage.control("pause")

    stage.pass_time("30s")
    assert (stage.status, stage.statuses["w"], stage.statuses["below"]) == ("paused", "complete", "ready")

    stage.pass_time("30s")
    assert (stage.status, stage.error["kind"]) == ("failed", "timeout")


def test_cancel_while_paused(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", "a"), step("c", defer_ms=60_000)))
    stage.control("pause")

    stage.control("cancel", reason="a duplicate", by="ada")

    assert (stage.status, stage.record.error, stage.outcome) == ("cancelled", None, None)
    assert stage.record.cancelled == {"at": stage.now, "reason": "a duplicate", "by": "ada"}
    assert stage.statuses == {"a": "cancelled", "b": "skipped", "c": "cancelled"}
    assert {step.reason for step in stage.record.steps.values()} == {"workflow cancelled: a duplicate"}
    assert stage.out == {}


# ---- cancelled


@pytest.mark.parametrize("paused", [False, True])
def test_result_after_halt_failure_cancel_that_was_cancelled(stage: Stage, paused: bool) -> None:
    stage.start(document(step("a"), step("b"), step("below", "a")))
    stage.finish("a", {"n": 1})
    late = stage.out["b"]
    if paused:
        stage.control("pause")
    stage.control("cancel")
    before, entries = stage.record, len(stage.history)
    assert before.status == "cancelled"

    stage.finish("b", {"n": 2}, job=late)
    stage.fail("b", job=late)
    stage.report_started("b", job=late)

    assert (stage.counter("late"), stage.counter("stale")) == (3, 0)
    after = stage.record
    assert (after.version, after.steps, after.state) == (before.version, before.steps, {"n": 1})
    assert (after.status, after.outcome, after.error) == ("cancelled", None, None)
    assert len(stage.history) == entries


def test_result_after_halt_failure_cancel_of_a_job_that_the_cancel_took_away(redis_stage: RedisStage) -> None:
    redis_stage.start(document(step("queued"), step("running")))
    queued, running = redis_stage.out["queued"], redis_stage.take("running")

    redis_stage.control("cancel")

    assert not redis_stage.is_known(queued)
    assert redis_stage.is_known(running)
    assert not redis_stage.may_go_on(running)


# ---- children


HALTING = document(step("x"), step("y", "x", **halts({"why": "enough"})), step("z", "y"), outputs={"n": 1})


def test_child_halted(stage: Stage) -> None:
    reads = {"halted": {"var": "steps.c.output.halted"}, "why": {"var": "steps.c.output.result.why"}}
    stage.start(document(child("c", HALTING), step("below", "c", input=reads)))
    below = stage.child("c")
    below.finish("x", {})

    below.finish("y", {})

    assert (below.status, below.outcome) == ("halted", {"why": "enough"})
    assert (stage.statuses["c"], stage["c"].error) == ("complete", None)
    assert stage["c"].output == {"halted": True, "result": {"why": "enough"}}
    assert stage.out["below"].inputs == {"halted": True, "why": "enough"}
    assert below.statuses == {"x": "complete", "y": "halted", "z": "ready"}


def test_set_on_a_step_that_is_running_as_a_child_cancels_it(stage: Stage) -> None:
    judge = step("judge", branch=[{"condition": {"var": "again"}, "action": {"set": "c"}}, DONE])
    stage.start(document(child("c", document(step("x"))), judge))
    first, job = stage.child("c"), stage.child("c").out["x"]

    stage.finish("judge", {"again": True})

    assert (first.status, first.statuses) == ("cancelled", {"x": "cancelled"})
    assert (stage["c"].status, stage["c"].run_id, stage["c"].attempt) == ("in_progress", 1, 1)
    second = stage.child("c")
    assert second.execution != first.execution
    assert second.statuses == {"x": "in_progress"}

    first.finish("x", {}, job=job)
    assert (stage.counter("late"), stage.statuses["c"]) == (1, "in_progress")

    second.finish("x", {})
    stage.finish("judge", {})
    assert (stage.statuses["c"], stage.status) == ("complete", "complete")


DONE: Json = {"condition": True, "action": "complete"}


# ---- starts


def test_start_event_with_a_known_idempotency_root(stage: Stage) -> None:
    first = stage.start(
        document(step("a"), outputs={"n": {"var": "steps.a.output.n"}}), idempotency_root="o1"
    )
    assert stage.answered() == {"workflow_execution_id": first}

    again = stage.start(document(step("other")), {"k": 1}, idempotency_root="o1")

    assert (again, stage.executions) == (first, [first])
    assert stage.answered() == {"workflow_execution_id": first}
    assert [job.step_id for job in stage.all_jobs] == ["a"]

    stage.finish("a", {"n": 7})
    stage.start(document(step("a")), idempotency_root="o1")

    ended = {"status": "complete", "outcome": {"n": 7}, "error": None}
    assert stage.answered() == {"workflow_execution_id": first, **ended}
    assert stage.executions == [first]

    other = stage.start(document(step("a")), idempotency_root="o2")
    assert other != first
    assert sorted(stage.executions) == sorted([first, other])


def test_start_event_with_a_known_idempotency_root_tells_how_the_first_one_failed(stage: Stage) -> None:
    first = stage.start(document(step("a")), execution_id="x1", idempotency_root="o1")
    stage.fail("a", "no use")

    stage.start(document(step("a")), execution_id="x2", idempotency_root="o1")

    error = {"kind": "exception", "message": "no use", "step": "a"}
    assert stage.answered() == {
        "workflow_execution_id": first,
        "status": "failed",
        "outcome": None,
        "error": error,
    }
    with pytest.raises(RecordNotFound):
        stage.record_of("x2")
