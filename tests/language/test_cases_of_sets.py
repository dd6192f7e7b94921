"""The edge cases of the language that are about `set`."""

from __future__ import annotations

from typing import Any

import pytest

from language.redis_stage import RedisStage
from language.stage import Stage
from language.written import jobless, resets, skips
from worlds.documents import Json, document, step


def test_set_on_a_step_that_is_running(stage: Stage) -> None:
    stage.start(document(step("slow"), step("judge", **resets("slow")), step("below", after="slow")))
    old = stage.out["slow"]

    stage.finish("judge", {"again": True})

    assert stage.moves("slow") == ["in_progress", "ready", "in_progress"]
    assert stage.run_ids == {"slow": 1, "judge": 1, "below": 1}
    assert (stage["slow"].attempt, stage.out["slow"].run_id) == (1, 1)
    assert stage.out["slow"].token != old.token

    stage.finish("slow", {"from": "the old run"}, job=old)

    assert stage.counter("stale") == 1
    assert (stage.statuses["slow"], stage.state) == ("in_progress", {"again": True})

    stage.finish("slow", {"from": "the new run"})

    assert stage["slow"].output == {"from": "the new run"}
    assert stage.statuses == {"slow": "complete", "judge": "in_progress", "below": "in_progress"}


def test_set_on_a_step_that_is_running_below_the_target_dispatches_it_when_its_dependencies_are_met(
    stage: Stage,
) -> None:
    stage.start(document(step("top"), step("slow", after="top"), step("judge", after="top", **resets("top"))))
    stage.finish("top", {})
    old = stage.out["slow"]

    stage.finish("judge", {"again": True})

    assert stage.statuses == {"top": "in_progress", "slow": "ready", "judge": "ready"}
    assert stage.run_ids == {"top": 1, "slow": 1, "judge": 1}

    stage.finish("slow", {}, job=old)
    assert (stage.counter("stale"), stage.statuses["slow"]) == (1, "ready")

    stage.finish("top", {})
    assert (stage.statuses["slow"], stage.out["slow"].run_id) == ("in_progress", 1)


def test_set_on_a_step_that_is_running_takes_its_job_off_the_queue(redis_stage: RedisStage) -> None:
    redis_stage.start(document(step("slow"), step("judge", **resets("slow"))))
    old = redis_stage.out["slow"]
    assert redis_stage.is_queued(old)

    redis_stage.finish("judge", {"again": True})

    assert not redis_stage.is_queued(old)
    assert redis_stage.is_queued(redis_stage.out["slow"])


def test_set_on_a_step_that_is_running_leaves_a_job_alone_that_a_worker_has(redis_stage: RedisStage) -> None:
    redis_stage.start(document(step("slow"), step("judge", **resets("slow"))))
    old = redis_stage.take("slow")

    redis_stage.finish("judge", {"again": True})

    assert redis_stage.is_known(old)
    assert not redis_stage.may_go_on(old)


RESTING: dict[str, Json] = {
    "retry": step("t", retry={"max_retries": 1, "initial_delay_ms": 60_000}),
    "deferred": step("t", defer_ms=60_000),
    "waiting": jobless("t", wait={"signal": "go", "timeout": "60s"}),
}


@pytest.mark.parametrize("status", RESTING)
def test_set_on_a_step_in_retry_back_off_deferred_or_waiting(stage: Stage, status: str) -> None:
    stage.start(document(RESTING[status], step("judge", **resets("t"))))
    if status == "retry":
        stage.fail("t")
    before = stage["t"]
    assert before.status == status
    stage.pass_time("30s")

    stage.finish("judge", {"again": True})

    after = stage["t"]
    assert (after.run_id, after.attempt, after.error, after.output) == (before.run_id + 1, 1, None, None)
    assert after.status == ("in_progress" if status == "retry" else status)

    stage.pass_time("31s")  # when the old timer would have rung

    assert stage["t"] == after

    stage.pass_time("30s")  # when the new one rings, if there is one

    assert stage.statuses["t"] == {"waiting": "failed"}.get(status, "in_progress")
    assert stage.counter("stale") == 0


def test_set_on_a_step_in_retry_back_off_deferred_or_waiting_gives_no_consumed_signal_back(
    stage: Stage,
) -> None:
    stage.start(document(jobless("w", wait={"signal": "go"}), step("judge", **resets("w"))))
    stage.signal("go", {"n": 1})
    assert stage["w"].output == {"n": 1}

    stage.finish("judge", {"again": True})

    assert (stage.statuses["w"], stage["w"].output, stage.record.signals) == ("waiting", None, [])
    stage.signal("go", {"n": 2})
    assert (stage.statuses["w"], stage["w"].output) == ("complete", {"n": 2})


OPEN: Any = {"!": {"var": "state.closed"}}
ENDED: dict[str, tuple[Json, Any]] = {
    "skipped": (skips(), {"skip": True}),
    "failed": ({"on_error": "continue"}, None),
}


@pytest.mark.parametrize("status", ENDED)
def test_set_on_a_skipped_filtered_or_failed_continue_step(stage: Stage, status: str) -> None:
    keys, output = ENDED[status]
    stage.start(document(step("t", when=OPEN, **keys), step("judge", **resets("t"))))
    if output is None:
        stage.fail("t")
    else:
        stage.finish("t", output)
    assert stage.statuses["t"] == status

    stage.finish("judge", {"again": True})

    again = stage["t"]
    assert (again.status, again.run_id, again.attempt) == ("in_progress", 1, 1)
    assert (again.output, again.error, again.reason) == (None, None, None)

    stage.finish("judge", {"again": True, "closed": True})

    assert (stage.statuses["t"], stage.run_ids["t"]) == ("filtered", 2)


def test_set_on_a_skipped_filtered_or_failed_continue_step_that_was_filtered(stage: Stage) -> None:
    stage.start(
        document(step("t", when={"var": "state.open"}), step("below", "t"), step("judge", **resets("t")))
    )
    assert stage.statuses == {"t": "filtered", "below": "filtered", "judge": "in_progress"}

    stage.finish("judge", {"again": True, "open": False})

    assert stage.statuses == {"t": "filtered", "below": "filtered", "judge": "in_progress"}
    assert stage.run_ids == {"t": 1, "below": 1, "judge": 1}

    stage.finish("judge", {"again": True, "open": True})

    assert stage.statuses == {"t": "in_progress", "below": "ready", "judge": "in_progress"}
    assert stage.run_ids == {"t": 2, "below": 2, "judge": 2}
    assert stage["t"].reason is None


def test_set_that_names_only_a_sibling(stage: Stage) -> None:
    stage.start(
        document(
            step("root"),
            step("sibling", "root"),
            step("firing", "root", **resets("sibling")),
            step("below_sibling", "sibling"),
            step("below_firing", "firing"),
            step("other", "root"),
        )
    )
    for name in ("root", "other", "sibling", "below_sibling"):
        stage.finish(name, {"by": name})

    stage.finish("firing", {"again": True})

    assert stage.statuses == {
        "root": "complete",
        "sibling": "in_progress",
        "firing": "in_progress",
        "below_sibling": "ready",
        "below_firing": "ready",
        "other": "complete",
    }
    assert stage.run_ids == {
        "root": 0,
        "sibling": 1,
        "firing": 1,
        "below_sibling": 1,
        "below_firing": 1,
        "other": 0,
    }
    assert (stage["sibling"].output, stage["below_sibling"].output) == (None, None)


def test_set_fired_by_a_failed_result(stage: Stage) -> None:
    on_reset = resets("a", if_={"==": [{"var": "error"}, "reset me"]}, done={"var": "done"})
    stage.start(document(step("a", max_attempts=2, **on_reset)))
    stage.fail("a", "no branch is for this")
    assert (stage["a"].attempt, stage["a"].run_id) == (2, 1)

    stage.fail("a", "reset me")

    forgiven = stage["a"]
    assert (forgiven.status, forgiven.attempt, forgiven.run_id) == ("in_progress", 1, 2)
    assert (forgiven.error, forgiven.output) == (None, None)
    assert (stage.status, stage.record.error) == ("in_progress", None)

    stage.fail("a", "no branch is for this")
    stage.finish("a", {"done": True})

    assert (stage["a"].status, stage["a"].attempt, stage["a"].error) == ("complete", 2, None)
    assert (stage.status, stage.record.error) == ("complete", None)
