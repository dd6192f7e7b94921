"""The rulings on waits, losses and times; their numbers are in the names of the tests."""

from __future__ import annotations

from language.redis_stage import RedisStage
from language.stage import Stage
from language.written import jobless
from orchestrator.application.engine.transitions import on_step_result
from orchestrator.application.records.events import Moment, iso
from worlds.documents import Json, document, step

# ---- 6: wait any


ANY: Json = {"any": [{"signal": "approve"}, {"signal": "reject"}, {"timeout": "24h"}]}


def test_ruling_06_the_earliest_buffered_signal_wins_and_the_others_stay(stage: Stage) -> None:
    stage.start(
        document(step("a"), jobless("w", "a", wait=ANY), jobless("v", "w", wait={"signal": "approve"}))
    )
    stage.signal("other", {"n": 0})
    stage.signal("reject", {"n": 1})
    stage.signal("approve", {"n": 2})

    stage.finish("a", {})

    assert stage["w"].output == {"event": "reject", "n": 1}
    assert stage["v"].output == {"n": 2}
    assert [signal["name"] for signal in stage.record.signals] == ["other"]


def test_ruling_06_the_event_beats_a_key_of_that_name(stage: Stage) -> None:
    stage.start(document(jobless("w", wait=ANY)))

    stage.signal("approve", {"event": "forged", "n": 1})

    assert stage["w"].output == {"event": "approve", "n": 1}


def test_ruling_06_a_timeout_is_an_event_and_no_failure(stage: Stage) -> None:
    hours = {"any": [{"signal": "approve"}, {"timeout": "12h"}]}
    stage.start(document(jobless("w", wait=hours)))
    stage.pass_time("11h")
    assert stage["w"].status == "waiting"

    stage.pass_time("1h")

    assert (stage["w"].output, stage["w"].error) == ({"event": "timeout"}, None)
    assert stage.status == "complete"


def test_ruling_06_two_waits_on_one_name_have_it_in_spec_order(stage: Stage) -> None:
    stage.start(document(step("a"), jobless("x", "a", wait=ANY), jobless("y", wait={"signal": "approve"})))
    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "x": "waiting", "y": "waiting"}

    stage.signal("approve", {"n": 1})
    assert stage.statuses == {"a": "complete", "x": "complete", "y": "waiting"}
    stage.signal("approve", {"n": 2})

    assert (stage["x"].output, stage["y"].output) == ({"event": "approve", "n": 1}, {"n": 2})


def test_ruling_06_signals_to_an_execution_that_is_not_there_yet_move_into_its_record(
    redis_stage: RedisStage,
) -> None:
    for n in range(3):
        redis_stage.signal("approve", {"n": n}, execution="order-42")

    redis_stage.start(document(jobless("w", wait=ANY), step("a")), execution_id="order-42")

    assert redis_stage["w"].output == {"event": "approve", "n": 0}
    assert [signal["payload"] for signal in redis_stage.record.signals] == [{"n": 1}, {"n": 2}]
    redis_stage.start(document(jobless("w", wait=ANY)), execution_id="order-43")
    assert redis_stage["w"].status == "waiting"


# ---- 10: loss and time


def test_ruling_10_lease_and_deadline_both_past_is_a_timeout_and_then_a_retry(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("a", timeout="60s", retry=retry)))
    stage.report_started("a")

    stage.lose("a", after="61s")

    assert (stage["a"].status, stage["a"].attempt, stage.error_kind("a")) == ("retry", 2, "timeout")
    assert stage["a"].lost == 0
    stage.pass_time("1s")
    stage.report_started("a")
    stage.lose("a", after="61s")
    assert (stage.status, stage.error["kind"], stage.executions_of("a")) == ("failed", "timeout", 2)


def test_ruling_10_a_lease_that_is_past_before_the_deadline_is_a_loss(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s")))
    stage.report_started("a")

    stage.lose("a", after="30s")

    assert (stage["a"].status, stage["a"].run_id, stage["a"].attempt) == ("in_progress", 1, 1)
    assert (stage["a"].lost, stage.deadline_in("a"), stage["a"].error) == (1, None, None)


def test_ruling_10_max_lost_counts_per_attempt(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=2), limits={"max_lost": 2}))

    for attempt in (1, 2):
        for _ in range(2):
            stage.lose("a")
            assert (stage["a"].status, stage["a"].attempt) == ("in_progress", attempt)
        stage.lose("a")

    assert (stage.status, stage.error["kind"]) == ("failed", "lost")
    assert (stage.executions_of("a"), stage.counter("lost")) == (6, 6)


def test_ruling_10_now_is_the_time_of_the_stream_entry(stage: Stage) -> None:
    times = {"ctx": {"var": "ctx.now"}, "now": {"time.now": []}, "began": {"var": "ctx.workflow.started_at"}}
    stage.start(document(step("a", input=times), step("b", "a", input=times), outputs=times))
    began = stage.now
    assert stage.out["a"].inputs == {"ctx": began, "now": began, "began": began}

    stage.pass_time("90m")
    stage.finish("a", {})
    assert stage.out["b"].inputs == {"ctx": stage.now, "now": stage.now, "began": began}
    assert stage["a"].ended_at == stage.now

    stage.pass_time("1s")
    stage.finish("b", {})
    assert stage.outcome == {"ctx": stage.now, "now": stage.now, "began": began}
    assert stage.now == iso(stage.now_ms) != began


# ---- 16: jitter


RETRY_WITH_JITTER = {"max_retries": 3, "initial_delay_ms": 10_000, "jitter_fraction": 0.5}


def test_ruling_16_jitter_follows_from_the_dispatch_and_not_from_chance(stage: Stage) -> None:
    stage.start(document(*(step(f"s{n}", retry=RETRY_WITH_JITTER) for n in range(4))))
    expected = []
    for n in range(4):
        told = [
            on_step_result(stage.record, stage.error_of(f"s{n}"), Moment(stage.now_ms, nonce))[0]
            for nonce in ("one process", "another")
        ]
        [delay_ms] = {changes.steps[f"s{n}"].not_before_ms for changes in told}
        expected.append(delay_ms)

    for n in range(4):
        stage.fail(f"s{n}")

    delays = [stage[f"s{n}"].not_before_ms for n in range(4)]
    assert delays == expected
    assert all(10_000 <= (delay or 0) - stage.now_ms <= 15_000 for delay in delays)
    assert len(set(delays)) > 1, "they are spread; two of them may meet, as executions have ids of their own"
