"""The rulings on holds; their numbers are in the names of the tests."""

from __future__ import annotations

import pytest

from language.stage import Stage
from language.written import jobless, resets, skips
from orchestrator.application.errors import InvalidEvent
from worlds.documents import Json, document, step

RESTING: dict[str, Json] = {
    "ready": step("t", "top"),
    "retry": step("t", retry={"max_retries": 1, "initial_delay_ms": 60_000}),
    "deferred": step("t", defer_ms=60_000),
    "waiting": jobless("t", wait={"signal": "go", "timeout": "60s"}),
}


def resting(stage: Stage, status: str, **keys: Json) -> None:
    """A step `t` that has this status; `top` and `judge` run beside it."""
    stage.start(document(RESTING[status], step("top"), step("judge", **resets("t")), **keys))
    if status == "retry":
        stage.fail("t")
    assert stage.statuses["t"] == status


@pytest.mark.parametrize("status", RESTING)
def test_ruling_09_release_returns_to_the_former_state(stage: Stage, status: str) -> None:
    resting(stage, status)
    before = stage["t"]

    stage.control("hold", "t")
    assert (stage.statuses["t"], stage["t"].held) == ("on_hold", status)

    stage.control("release", "t")
    assert stage["t"] == before


@pytest.mark.parametrize("status", ["retry", "deferred", "waiting"])
def test_ruling_09_release_returns_with_its_clock(stage: Stage, status: str) -> None:
    resting(stage, status)
    stage.pass_time("20s")
    stage.control("hold", "t")
    stage.pass_time("20s")
    stage.control("release", "t")

    stage.pass_time("19s")
    assert stage.statuses["t"] == status
    stage.pass_time("1s")

    assert stage.statuses["t"] == ("failed" if status == "waiting" else "in_progress")


@pytest.mark.parametrize("status", ["retry", "deferred", "waiting"])
def test_ruling_09_the_clock_of_a_held_step_does_not_ring_before_its_release(
    stage: Stage, status: str
) -> None:
    resting(stage, status)
    stage.control("hold", "t")

    stage.pass_time("10m")
    assert (stage.statuses["t"], stage.status) == ("on_hold", "in_progress")

    stage.control("release", "t")
    assert stage.statuses["t"] == ("failed" if status == "waiting" else "in_progress")


def test_ruling_09_a_held_step_that_is_ready_does_not_run_when_its_parents_have(stage: Stage) -> None:
    resting(stage, "ready")
    stage.control("hold", "t")

    stage.finish("top", {})
    assert (stage.statuses["t"], stage.executions_of("t")) == ("on_hold", 0)

    stage.control("release", "t")
    assert (stage.statuses["t"], stage.executions_of("t")) == ("in_progress", 1)


def test_ruling_09_a_held_step_is_skipped_when_it_is_released(stage: Stage) -> None:
    stage.start(document(step("a", **skips()), step("t", "a"), step("below", "t"), step("other")))
    stage.control("hold", "t")

    stage.finish("a", {"skip": True})
    assert stage.statuses == {"a": "skipped", "t": "on_hold", "below": "ready", "other": "in_progress"}

    stage.control("release", "t")
    assert (stage.statuses["t"], stage.statuses["below"]) == ("skipped", "skipped")


def test_ruling_09_a_held_step_is_skipped_when_it_is_released_although_another_parent_runs(
    stage: Stage,
) -> None:
    stage.start(document(step("a", **skips()), step("b"), step("t", "a b"), step("below", "t")))
    stage.control("hold", "t")
    stage.finish("a", {"skip": True})

    stage.control("release", "t")

    assert stage.statuses == {"a": "skipped", "b": "in_progress", "t": "skipped", "below": "skipped"}


def test_ruling_09_a_workflow_does_not_end_while_a_step_is_held(stage: Stage) -> None:
    stage.start(document(step("a"), step("t")), execution_id="x1")
    stage.start(document(step("a"), step("t", "a")), execution_id="x2")
    stage.control("hold", "t")

    stage.finish("a", {})

    assert (stage.status, stage.statuses) == ("in_progress", {"a": "complete", "t": "on_hold"})
    stage.control("release", "t")
    stage.finish("t", {})
    assert stage.status == "complete"


def test_ruling_09_signals_for_a_held_wait_are_kept_for_it(stage: Stage) -> None:
    resting(stage, "waiting")
    stage.control("hold", "t")

    stage.signal("go", {"n": 1})
    assert (stage.statuses["t"], len(stage.record.signals)) == ("on_hold", 1)

    stage.control("release", "t")
    assert (stage.statuses["t"], stage["t"].output, stage.record.signals) == ("complete", {"n": 1}, [])


@pytest.mark.parametrize("status", RESTING)
def test_ruling_09_a_hold_survives_a_set(stage: Stage, status: str) -> None:
    resting(stage, status)
    stage.control("hold", "t")
    before = stage["t"]

    stage.finish("judge", {"again": True})

    after = stage["t"]
    assert (after.status, after.held, after.run_id) == ("on_hold", "ready", before.run_id + 1)
    assert (after.attempt, after.has_timer, after.error) == (1, False, None)
    stage.pass_time("10m")
    stage.finish("top", {})
    assert stage.statuses["t"] == "on_hold"

    stage.control("release", "t")
    assert stage.statuses["t"] == {"deferred": "deferred", "waiting": "waiting"}.get(status, "in_progress")


def test_ruling_09_holding_a_step_that_is_in_progress_is_refused(stage: Stage) -> None:
    stage.start(document(step("a"), step("m", map={"over": [1]}), step("done"), step("below", "a")))
    stage.finish("done", {})
    before = stage.record.version

    for name, status in (("a", "in_progress"), ("m", "in_progress"), ("done", "complete")):
        with pytest.raises(InvalidEvent, match=f"step '{name}' cannot be held: it is {status}"):
            stage.control("hold", name)
    with pytest.raises(InvalidEvent, match="step 'below' cannot be released: it is ready"):
        stage.control("release", "below")
    with pytest.raises(InvalidEvent, match="has no step 'nobody' to hold"):
        stage.control("hold", "nobody")

    assert stage.record.version == before


def test_ruling_09_holding_what_is_held_is_nothing_new(stage: Stage) -> None:
    resting(stage, "deferred")
    stage.control("hold", "t")
    before = stage.record.version

    stage.control("hold", "t")

    assert (stage.record.version, stage.statuses["t"]) == (before, "on_hold")


def test_ruling_09_a_held_step_in_line_gives_its_place_away(stage: Stage) -> None:
    one: Json = {"concurrency": {"key": "k", "limit": 1}}
    stage.start(document(step("a", **one), step("t", **one), step("c", **one)))
    assert (stage.holders("k"), stage.line("k")) == (["a"], ["t", "c"])

    stage.control("hold", "t")
    assert stage.line("k") == ["c"]

    stage.control("release", "t")
    assert stage.line("k") == ["c", "t"]


def test_ruling_09_a_cancel_ends_what_is_held(stage: Stage) -> None:
    resting(stage, "waiting")
    stage.control("hold", "t")

    stage.control("cancel")

    assert (stage.status, stage.statuses["t"], stage["t"].held) == ("cancelled", "cancelled", None)
