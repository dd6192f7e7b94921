"""The edge cases of the language that are about results: late, repeated, retried or empty."""

from __future__ import annotations

from contextlib import suppress

import pytest

from language.redis_stage import RedisStage
from language.stage import Stage
from language.written import FAILED, branches, halts, jobless, resets
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.spec.validation import check_spec
from worlds.documents import document, step

# ---- results that come twice, late or from long ago


def test_the_same_result_delivered_twice(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", "a"), step("c")))
    said = stage.finish("a", {"n": 1})
    stage.finish("c", {"n": 2})
    before, entries = stage.record, len(stage.history)

    stage.deliver(said)

    assert stage.counter("stale") == 1
    assert (stage.record.version, stage.state, len(stage.history)) == (before.version, {"n": 2}, entries)
    assert [job.step_id for job in stage.jobs] == ["a", "c", "b"]


def test_the_same_result_delivered_twice_is_one_attempt(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=3)))
    said = stage.fail("a")

    stage.deliver(said)

    assert stage.counter("stale") == 1
    assert (stage["a"].status, stage["a"].attempt, stage["a"].run_id) == ("in_progress", 2, 1)
    assert stage.executions_of("a") == 2


def test_result_of_an_older_run_while_a_newer_one_is_in_progress(stage: Stage) -> None:
    stage.start(document(step("a"), step("judge", **resets("a"))))
    runs = [stage.out["a"]]
    for _ in range(2):
        stage.finish("judge", {"again": True})
        runs.append(stage.out["a"])
    assert [job.run_id for job in runs] == [0, 1, 2]
    before = stage.record.version

    stage.finish("a", {"run": 0}, job=runs[0])
    stage.fail("a", job=runs[1])

    assert stage.counter("stale") == 2
    assert (stage.record.version, stage.statuses["a"]) == (before, "in_progress")
    assert "run" not in stage.state

    stage.finish("a", {"run": 2}, job=runs[2])

    assert (stage.statuses["a"], stage.state["run"]) == ("complete", 2)


@pytest.mark.parametrize("end", ["halted", "failed"])
def test_result_after_halt_failure_cancel(stage: Stage, end: str) -> None:
    stage.start(document(step("a", **halts("why")) if end == "halted" else step("a"), step("b")))
    late = stage.out["b"]
    if end == "halted":
        stage.finish("a", {})
    else:
        stage.fail("a")
    before, entries = stage.record, len(stage.history)
    assert before.status == end

    stage.finish("b", {"n": 1}, job=late)
    stage.fail("b", job=late)
    stage.report_started("b", job=late)

    assert (stage.counter("late"), stage.counter("stale")) == (3, 0)
    after = stage.record
    assert (after.version, after.steps, after.state) == (before.version, before.steps, before.state)
    assert (after.status, after.outcome, after.error) == (before.status, before.outcome, before.error)
    assert len(stage.history) == entries


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_two_halts_race(stage: Stage, first: str, second: str) -> None:
    stage.start(document(step("a", **halts({"by": "a"})), step("b", **halts({"by": "b"}))))
    other = stage.out[second]

    stage.finish(first, {})
    stage.finish(second, {}, job=other)

    assert (stage.status, stage.outcome) == ("halted", {"by": first})
    assert (stage.statuses[first], stage.statuses[second]) == ("halted", "cancelled")
    assert stage.counter("late") == 1


def test_two_halts_race_in_one_batch(stage: Stage) -> None:
    stage.start(document(step("a", **halts({"by": "a"})), step("b", **halts({"by": "b"}))))

    stage.deliver(stage.result("b", {}), stage.result("a", {}))

    assert (stage.status, stage.outcome) == ("halted", {"by": "b"})
    assert (stage.statuses, stage.counter("late")) == ({"a": "cancelled", "b": "halted"}, 1)


IN_FLIGHT = document(
    step("stop", **halts({"why": "enough"})),
    step("running"),
    step("retrying", retry=1),
    step("deferred", defer_ms=60_000),
    jobless("delayed", delay="60s"),
    jobless("waiting", wait={"signal": "go", "timeout": "60s"}),
    step("mapped", map={"over": [1, 2, 3], "max_parallel": 2}),
    step("below", "running"),
    timeout="60s",
)


def test_halt_with_steps_in_flight(stage: Stage) -> None:
    stage.start(IN_FLIGHT)
    stage.fail("retrying")
    stage.finish("mapped#0", {})
    assert stage.statuses == {
        "stop": "in_progress",
        "running": "in_progress",
        "retrying": "retry",
        "deferred": "deferred",
        "delayed": "deferred",
        "waiting": "waiting",
        "mapped": "in_progress",
        "below": "ready",
    }

    stage.finish("stop", {"n": 1})

    assert (stage.status, stage.outcome, stage.record.error) == ("halted", {"why": "enough"}, None)
    flying = ("running", "retrying", "deferred", "delayed", "waiting", "mapped")
    assert stage.statuses == {"stop": "halted", **dict.fromkeys(flying, "cancelled"), "below": "ready"}
    assert {stage[name].reason for name in flying} == {"workflow halted by step stop"}
    items = [stage[f"mapped#{n}"].status for n in range(3)]
    assert items == ["complete", "cancelled", "cancelled"]
    assert stage.out == {}

    ended = stage.record.version
    stage.pass_time("2m")
    with suppress(InvalidEvent):  # raised in memory; on Redis only a caller that asks for a reply sees it
        stage.signal("go")

    assert (stage.record.version, stage.statuses["below"]) == (ended, "ready")


def test_halt_with_steps_in_flight_removes_queued_jobs_and_asks_running_ones_to_stop(
    redis_stage: RedisStage,
) -> None:
    redis_stage.start(document(step("stop", **halts({})), step("queued"), step("running")))
    queued, running = redis_stage.out["queued"], redis_stage.take("running")
    assert redis_stage.is_queued(queued)
    assert redis_stage.may_go_on(running)

    redis_stage.finish("stop", {})

    assert not redis_stage.is_queued(queued)
    assert not redis_stage.is_known(queued)
    assert redis_stage.is_known(running)  # it is RQ's to clean up
    assert not redis_stage.may_go_on(running)


# ---- attempts


def test_retry_and_branch(stage: Stage) -> None:
    ends = branches({"==": [{"var": "error"}, "no use"]}, "complete")
    stage.start(document(step("a", retry={"max_retries": 5, "initial_delay_ms": 1000}, **ends)))
    stage.fail("a", "try again")
    assert (stage["a"].status, stage["a"].attempt) == ("retry", 2)
    stage.pass_time("1s")

    stage.fail("a", "no use")

    assert (stage["a"].status, stage["a"].attempt, stage["a"].run_id) == ("complete", 2, 1)
    assert (stage.status, stage.executions_of("a")) == ("complete", 2)


def test_retry_and_branch_that_fires_on_the_first_failure(stage: Stage) -> None:
    seen = branches(FAILED, "halt", result_expr={"saw": {"var": "error"}})
    stage.start(document(step("a", max_attempts=3, **seen)))

    stage.fail("a", "the first")

    assert (stage.status, stage.outcome, stage.executions_of("a")) == ("halted", {"saw": "the first"}, 1)


def test_complete_branch_on_a_failed_attempt(stage: Stage) -> None:
    stage.start(document(step("a", **branches(FAILED, "complete")), step("b", "a")))

    stage.fail("a")

    assert stage.statuses == {"a": "complete", "b": "in_progress"}
    assert (stage["a"].output, stage["a"].error) == ({"ok": False, "error": "boom"}, None)
    assert stage.state == {"ok": False, "error": "boom"}
    stage.finish("b", {})
    assert (stage.status, stage.record.error) == ("complete", None)


def test_success_with_max_attempts_3_no_branch(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=3)))

    stage.finish("a", {"n": 1})

    assert (stage.status, stage.executions_of("a")) == ("complete", 1)
    assert check_spec(stage.record.loaded.document).warnings == ()


def test_success_with_max_attempts_3_no_branch_is_repeated_with_attempts_on_any(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=3, attempts_on="any"), step("b", "a")))

    for n in (1, 2):
        stage.finish("a", {"n": n})
        assert (stage["a"].status, stage["a"].attempt, stage["a"].run_id) == ("in_progress", n + 1, n)
        assert stage["a"].output == {"n": n}
        assert stage.statuses["b"] == "ready"
    stage.finish("a", {"n": 3})

    assert stage.statuses == {"a": "complete", "b": "in_progress"}
    assert (stage.executions_of("a"), stage.moves("a").count("retry")) == (3, 2)
    warnings = check_spec(stage.record.loaded.document).warnings
    assert [problem.code for problem in warnings] == ["repeats_on_success"]


def test_max_attempts_and_retry_together(stage: Stage) -> None:
    """More attempts than retries: those that no retry grants have no delay."""
    stage.start(document(step("a", max_attempts=4, retry={"max_retries": 2, "initial_delay_ms": 1000})))

    for delay in ("1s", "2s"):
        stage.fail("a")
        assert stage["a"].status == "retry"
        stage.pass_time(delay)
        assert stage["a"].status == "in_progress"
    stage.fail("a")
    assert (stage["a"].status, stage["a"].attempt) == ("in_progress", 4)

    stage.fail("a", "the last")
    assert (stage.status, stage.error["message"], stage.executions_of("a")) == ("failed", "the last", 4)


def test_max_attempts_and_retry_together_the_larger_budget_counts(stage: Stage) -> None:
    """More retries than attempts: all of them have their delay."""
    stage.start(document(step("a", max_attempts=2, retry={"max_retries": 3, "initial_delay_ms": 1000})))

    for delay in ("1s", "2s", "4s"):
        stage.fail("a")
        assert stage["a"].status == "retry"
        stage.pass_time(delay)
    stage.fail("a")

    assert (stage.status, stage.executions_of("a")) == ("failed", 4)


def test_max_attempts_and_retry_together_successes_use_max_attempts_only(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=2, attempts_on="any", retry=5)))

    stage.finish("a", {"n": 1})
    assert stage["a"].status == "in_progress"  # at once: the delay is for failures
    stage.finish("a", {"n": 2})

    assert (stage.status, stage.executions_of("a")) == ("complete", 2)


# ---- workers


def test_late_started_event(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s", max_attempts=2), step("b")))
    old = stage.out["a"]
    stage.report_started("a")
    assert stage.deadline_in("a") == 60
    stage.fail("a")
    before = stage.record.version

    stage.report_started("a", job=old)

    assert (stage.counter("stale"), stage.record.version) == (1, before)
    assert (stage.deadline_in("a"), stage["a"].started_at) == (None, None)

    stage.report_started("a")
    stage.pass_time("30s")
    assert stage.deadline_in("a") == 30
    stage.report_started("a")
    assert stage.deadline_in("a") == 60

    stage.pass_time("59s")
    assert stage.status == "in_progress"
    stage.pass_time("1s")
    assert (stage.status, stage.error["kind"]) == ("failed", "timeout")


def test_late_started_event_after_the_result(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s"), step("b")))
    job = stage.out["a"]
    stage.finish("a", {})

    stage.report_started("a", job=job)

    assert stage.counter("stale") == 1
    assert (stage.statuses["a"], stage.deadline_in("a")) == ("complete", None)


def test_lease_lost_but_the_old_worker_finishes(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", "a")))
    old = stage.out["a"]

    stage.lose("a")

    assert (stage["a"].status, stage["a"].run_id, stage["a"].attempt) == ("in_progress", 1, 1)
    assert stage.counter("lost") == 1

    stage.finish("a", {"by": "the old worker"}, job=old)

    assert (stage.counter("stale"), stage.statuses["a"], stage.state) == (1, "in_progress", {})

    stage.finish("a", {"by": "the new worker"})

    assert (stage.state, stage.statuses["b"]) == ({"by": "the new worker"}, "in_progress")


# ---- outputs


def test_output_key_state_steps_input(stage: Stage) -> None:
    shadowed = [
        {"==": [{"var": "state.k"}, "fresh state"]},
        {"==": [{"var": "steps.first"}, "fresh steps"]},
        {"==": [{"var": "input.k"}, "fresh input"]},
    ]
    reads = {
        "state": {"var": "state"},
        "first": {"var": "steps.first.output.k"},
        "input": {"var": "input.k"},
    }
    stage.start(
        document(
            step("first"),
            step(
                "a", "first", branch=[{"condition": {"and": shadowed}, "action": "complete"}], on_error="fail"
            ),
            step("b", "a first", input=reads, **branches({"==": [{"var": "input.k"}, "given"]}, "halt")),
        ),
        {"k": "given"},
    )
    stage.finish("first", {"k": "kept"})
    fresh = {"state": {"k": "fresh state"}, "steps": {"first": "fresh steps"}, "input": {"k": "fresh input"}}

    stage.finish("a", fresh)

    assert stage.statuses["a"] == "complete"
    assert stage.state == {"k": "kept", **fresh}
    assert stage.out["b"].inputs == {"state": {"k": "kept", **fresh}, "first": "kept", "input": "given"}

    stage.finish("b", {})
    assert stage.status == "halted"  # another step's branches see the real roots again


def test_output_null(stage: Stage) -> None:
    bare = {
        "and": [
            {"==": [{"var": "output"}, None]},
            {"==": [{"var": "state.k"}, "kept"]},
            {"==": [{"var": "steps.first.output.k"}, "kept"]},
            {"==": [{"var": "input.k"}, "given"]},
        ]
    }
    reads = {"a": {"var": "steps.a.output"}, "all": {"vars": "steps[*].output"}}
    stage.start(
        document(
            step("first"),
            step(
                "a",
                "first",
                branch=[{"condition": bare, "action": "complete"}, {"condition": True, "action": "fail"}],
            ),
            step("b", "a", input=reads),
        ),
        {"k": "given"},
    )
    stage.finish("first", {"k": "kept"})

    stage.finish("a", None)

    assert (stage.statuses["a"], stage["a"].output) == ("complete", None)
    assert stage.state == {"k": "kept"}
    assert stage.out["b"].inputs == {"a": None, "all": [{"k": "kept"}]}
