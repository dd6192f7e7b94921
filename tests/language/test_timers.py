"""Timers, in memory and on Redis. After each move the stage checks that exactly the timers of the records are
armed, so a timer that is disarmed too late, or not at all, fails any of these tests."""

from __future__ import annotations

from language.stage import Stage
from language.written import halts, jobless, resets
from worlds.documents import document, step

# ---- each of them fires when its time has come


def test_a_retry_waits_for_its_delay_and_the_next_one_for_twice_as_long(stage: Stage) -> None:
    stage.start(document(step("a", retry={"max_retries": 2, "initial_delay_ms": 1_000})))

    for attempt, delay_ms in ((2, 1_000), (3, 2_000)):
        stage.fail("a")
        assert (stage["a"].status, stage["a"].attempt, stage.out) == ("retry", attempt, {})
        stage.pass_time(f"{delay_ms - 1}ms")
        assert stage["a"].status == "retry"
        stage.pass_time("1ms")
        assert (stage["a"].status, stage["a"].attempt) == ("in_progress", attempt)

    stage.finish("a", {"n": 1})
    assert (stage.status, stage.state["n"]) == ("complete", 1)


def test_a_deferred_step_waits_for_its_time_and_the_others_do_not(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", "a", defer_ms=500), step("c", "a")))

    stage.finish("a", {})

    assert stage.statuses == {"a": "complete", "b": "deferred", "c": "in_progress"}
    stage.pass_time("499ms")
    assert stage.statuses["b"] == "deferred"
    stage.pass_time("1ms")
    assert stage.statuses["b"] == "in_progress"


def test_a_delay_ends_when_its_time_has_come(stage: Stage) -> None:
    stage.start(document(jobless("d", delay="300ms"), step("b", "d")))
    stage.pass_time("299ms")
    assert stage.statuses == {"d": "deferred", "b": "ready"}

    stage.pass_time("1ms")

    assert stage.statuses == {"d": "complete", "b": "in_progress"}
    assert stage["d"].output == {}


def test_a_delay_that_is_itself_deferred_takes_both_times(stage: Stage) -> None:
    stage.start(document(jobless("d", delay="300ms", defer_ms=200)))

    for _ in range(2):
        stage.pass_time("200ms")
        assert stage.status == "in_progress"
    stage.pass_time("100ms")

    assert stage.status == "complete"


def test_a_wait_without_a_signal_fails_when_its_time_has_come(stage: Stage) -> None:
    stage.start(document(jobless("w", wait={"signal": "go", "timeout": "700ms"})))
    stage.pass_time("699ms")
    assert stage.status == "in_progress"

    stage.pass_time("1ms")

    assert (stage.status, stage.error["kind"]) == ("failed", "signal_timeout")
    assert stage.error["message"] == "no signal go within 0.7 s"


def test_a_wait_without_a_signal_may_go_on(stage: Stage) -> None:
    wait = {"signal": "go", "timeout": "200ms", "on_timeout": "continue"}
    stage.start(document(jobless("w", wait=wait), step("b", "w")))

    stage.pass_time("200ms")

    assert stage.statuses == {"w": "complete", "b": "in_progress"}


def test_a_workflow_fails_when_its_time_has_come(stage: Stage) -> None:
    wait = {"signal": "go", "timeout": "1h"}
    stage.start(document(step("a"), jobless("w", wait=wait), timeout="2s"))
    stage.pass_time("1999ms")
    assert stage.status == "in_progress"

    stage.pass_time("1ms")

    message = "the workflow exceeded its timeout (2 s)"
    assert (stage.status, stage.error) == ("failed", {"kind": "timeout", "message": message})
    assert stage.statuses == {"a": "cancelled", "w": "cancelled"}
    assert stage.out == {}


def test_an_attempt_fails_when_its_deadline_has_come(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s")))
    stage.pass_time("61s")
    assert stage.status == "in_progress", "the time in the queue does not count"
    stage.report_started("a")
    stage.pass_time("59s")
    assert stage.status == "in_progress"

    stage.pass_time("1s")

    assert (stage.status, stage.error["kind"]) == ("failed", "timeout")
    assert stage.error["message"] == "execution timeout exceeded (60 s)"


def test_an_item_is_tried_again_after_its_own_delay(stage: Stage) -> None:
    fan = step("m", map={"over": [1, 2, 3]}, retry={"max_retries": 1, "initial_delay_ms": 400})
    stage.start(document(fan, outputs={"all": {"var": "steps.m.output.items"}}))
    stage.finish("m#0", {"r": 10})
    stage.fail("m#1")
    stage.finish("m#2", {"r": 30})
    stage.pass_time("399ms")
    assert (stage["m#1"].status, stage.out) == ("retry", {})

    stage.pass_time("1ms")

    stage.finish("m#1", {"r": 20})
    assert (stage.status, stage.outcome) == ("complete", {"all": [{"r": 10}, {"r": 20}, {"r": 30}]})
    assert [stage.executions_of(f"m#{n}") for n in range(3)] == [1, 2, 1]


# ---- what is not needed any more is disarmed


def test_a_signal_in_time_disarms_the_timeout_of_a_wait(stage: Stage) -> None:
    stage.start(document(jobless("w", wait={"signal": "go", "timeout": "1h"}), step("a")))

    stage.signal("go", {"n": 1})

    stage.pass_time("2h")
    assert stage.statuses == {"w": "complete", "a": "in_progress"}
    assert (stage["w"].output, stage.counter("stale")) == ({"n": 1}, 0)


def test_a_result_in_time_disarms_the_deadline_of_its_attempt(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s"), step("b")))
    stage.report_started("a")

    stage.finish("a", {})

    stage.pass_time("2m")
    assert (stage.statuses, stage.counter("stale")) == ({"a": "complete", "b": "in_progress"}, 0)


def test_an_end_in_time_disarms_the_timeout_of_the_workflow(stage: Stage) -> None:
    stage.start(document(step("a"), timeout="10m"))

    stage.finish("a", {})

    stage.pass_time("11m")
    assert (stage.status, stage.counter("late")) == ("complete", 0)


def test_an_execution_that_ends_as_it_begins_leaves_no_timer(stage: Stage) -> None:
    no_list = step("k", map={"over": {"var": "input.k"}})
    stage.start(document(jobless("d", delay="1h"), no_list, timeout="10m"), {"k": "no list"})

    assert (stage.status, stage.statuses["d"]) == ("failed", "cancelled")
    stage.pass_time("2h")
    assert stage.counter("late") == 0


def test_a_halt_disarms_everything(stage: Stage) -> None:
    stage.start(
        document(
            step("s", **halts(1)),
            jobless("d", delay="1h"),
            jobless("w", wait={"signal": "go", "timeout": "1h"}),
            step("m", map={"over": [1, 2]}, retry={"max_retries": 1, "initial_delay_ms": 60_000}),
            timeout="10m",
        )
    )
    stage.fail("m#0")
    stage.report_started("m#1")

    stage.finish("s", {})

    stage.pass_time("2h")
    assert (stage.status, stage.counter("late"), stage.counter("stale")) == ("halted", 0, 0)


def test_a_set_disarms_what_it_resets(stage: Stage) -> None:
    stage.start(document(step("a", defer_ms=60_000), step("s", **resets("a"))))
    stage.pass_time("30s")

    stage.finish("s", {"again": True})

    stage.pass_time("30s")
    assert (stage.statuses["a"], stage.counter("stale")) == ("deferred", 0)
    stage.pass_time("30s")
    assert (stage.statuses["a"], stage["a"].run_id) == ("in_progress", 1)
