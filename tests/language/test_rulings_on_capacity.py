"""The rulings on capacity and concurrency keys; their numbers are in the names of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from language.execution import Execution
from language.stage import Stage
from language.written import child, jobless
from worlds.documents import Json, document, step

# ---- 7: capacity


def test_ruling_07_a_due_deferred_step_without_capacity_stays_deferred_in_spec_order(stage: Stage) -> None:
    stage.start(
        document(
            step("first", defer_ms=1000),
            step("busy"),
            step("second"),
            runner={"max_workers": 1},
        )
    )
    assert stage.statuses == {"first": "deferred", "busy": "in_progress", "second": "ready"}

    stage.pass_time("1s")
    assert (stage.statuses["first"], stage["first"].wake_at_ms) == ("deferred", None)

    stage.finish("busy", {})
    assert stage.statuses == {"first": "in_progress", "busy": "complete", "second": "ready"}


def test_ruling_07_waiting_and_deferred_steps_take_no_capacity(stage: Stage) -> None:
    stage.start(
        document(
            jobless("waiting", wait={"signal": "go"}),
            jobless("delayed", delay="60s"),
            step("deferred", defer_ms=60_000),
            step("runs"),
            runner={"max_workers": 1},
        )
    )

    assert stage.statuses == {
        "waiting": "waiting",
        "delayed": "deferred",
        "deferred": "deferred",
        "runs": "in_progress",
    }


def test_ruling_07_retry_back_off_gives_back_its_place(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("a", retry=retry), step("b"), step("c"), runner={"max_workers": 1}))

    stage.fail("a")
    assert stage.statuses == {"a": "retry", "b": "in_progress", "c": "ready"}

    stage.pass_time("1s")
    assert stage.statuses == {"a": "retry", "b": "in_progress", "c": "ready"}

    stage.finish("b", {})
    assert stage.statuses == {"a": "in_progress", "b": "complete", "c": "ready"}


def test_ruling_07_held_steps_take_no_capacity(stage: Stage) -> None:
    stage.start(document(step("first"), step("held"), step("third"), runner={"max_workers": 1}))
    stage.control("hold", "held")

    stage.finish("first", {})

    assert stage.statuses == {"first": "complete", "held": "on_hold", "third": "in_progress"}
    stage.control("release", "held")
    assert stage.statuses["held"] == "ready"
    stage.finish("third", {})
    assert stage.statuses["held"] == "in_progress"


def test_ruling_07_a_child_takes_one_place_whatever_it_does(stage: Stage) -> None:
    inner = document(step("x"), step("y"), step("z"))
    stage.start(document(child("c", inner), step("a"), step("b"), runner={"max_workers": 2}))

    below = stage.child("c")

    assert stage.statuses == {"c": "in_progress", "a": "in_progress", "b": "ready"}
    assert set(below.statuses.values()) == {"in_progress"}
    for name in "xyz":
        below.finish(name, {})
    assert stage.statuses == {"c": "complete", "a": "in_progress", "b": "in_progress"}


def test_ruling_07_retry_back_off_gives_back_its_concurrency_slot(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("a", retry=retry, **one_of("k")), step("b", **one_of("k"))))
    assert (stage.holders("k"), stage.line("k")) == (["a"], ["b"])
    assert stage.statuses == {"a": "in_progress", "b": "ready"}

    stage.fail("a")
    assert (stage.holders("k"), stage.line("k")) == (["b"], [])
    assert stage.statuses == {"a": "retry", "b": "in_progress"}

    stage.pass_time("1s")
    assert (stage.holders("k"), stage.line("k")) == (["b"], ["a"])
    assert stage.statuses == {"a": "retry", "b": "in_progress"}

    stage.finish("b", {})
    assert (stage.holders("k"), stage.statuses["a"], stage["a"].attempt) == (["a"], "in_progress", 2)
    stage.finish("a", {})
    assert (stage.places("k"), stage.status) == ([], "complete")


def test_ruling_07_retry_at_once_stands_in_line_again(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=2, **one_of("k")), step("b", **one_of("k"))))

    stage.fail("a")

    assert (stage.holders("k"), stage.line("k")) == (["b"], ["a"])
    assert stage.statuses == {"a": "retry", "b": "in_progress"}


# ---- 8: concurrency keys


def one_of(key: Any, limit: int = 1) -> Json:
    return {"concurrency": {"key": key, "limit": limit}}


def of_each(stage: Stage, executions: list[str]) -> list[dict[str, str]]:
    return [Execution(stage, one).statuses for one in executions]


def test_ruling_08_at_most_so_many_steps_across_all_executions(stage: Stage) -> None:
    doc = document(step("a", **one_of({"cat": ["k-", {"var": "input.k"}]}, 2)), step("free"))
    executions = [stage.start(doc, {"k": k}) for k in (1, 1, 1, 2)]

    busy = {"a": "in_progress", "free": "in_progress"}
    waits = {"a": "ready", "free": "in_progress"}
    assert of_each(stage, executions) == [busy, busy, waits, busy]
    assert (stage.holders("k-1"), stage.line("k-1"), stage.holders("k-2")) == (["a", "a"], ["a"], ["a"])

    Execution(stage, executions[1]).finish("a", {})
    assert of_each(stage, executions)[2] == busy


def test_ruling_08_the_slot_is_freed_by_the_commit_that_ends_the_step_and_handed_over_by_an_event(
    stage: Stage,
) -> None:
    first = Execution(stage, stage.start(document(step("a", **one_of("k")))))
    second = Execution(stage, stage.start(document(step("b", **one_of("k")))))
    third = Execution(stage, stage.start(document(step("c", **one_of("k")))))
    assert (stage.holders("k"), stage.line("k")) == (["a"], ["b", "c"])

    stage.bring(first.result("a", {}))

    assert (first.status, stage.holders("k"), stage.line("k")) == ("complete", ["b"], ["c"])
    slot = second["b"].slot
    assert slot is not None
    assert (second["b"].status, slot.is_held) == ("ready", False), "the event is on its way"

    stage.settle()

    assert (second.statuses, third.statuses) == ({"b": "in_progress"}, {"c": "ready"})
    second.finish("b", {})
    third.finish("c", {})
    assert (third.status, stage.places("k")) == ("complete", [])


ENDS: dict[str, Json] = {
    "complete": {},
    "skip": {"branch": [{"condition": True, "action": "skip"}]},
    "halt": {"branch": [{"condition": True, "action": "halt"}]},
    "fail": {"branch": [{"condition": True, "action": "fail"}]},
    "continue": {"branch": [{"condition": True, "action": "fail"}], "on_error": "continue"},
    "again": {"branch": [{"condition": True, "action": {"set": "a"}}, {"condition": 0, "action": "halt"}]},
}


@pytest.mark.parametrize("end", ENDS)
def test_ruling_08_whatever_ends_or_resets_the_step_frees_its_slot(stage: Stage, end: str) -> None:
    first = Execution(stage, stage.start(document(step("a", **one_of("k"), **ENDS[end]))))
    second = Execution(stage, stage.start(document(step("b", **one_of("k")))))

    first.finish("a", {})

    assert (stage.holders("k"), second.statuses) == (["b"], {"b": "in_progress"})
    assert stage.line("k") == (["a"] if end == "again" else [])


def test_ruling_08_a_cancelled_step_releases_its_slot_or_its_request(stage: Stage) -> None:
    first, second, third = (
        Execution(stage, stage.start(document(step(name, **one_of("k")), step("other")))) for name in "abc"
    )

    second.control("cancel")
    assert (stage.holders("k"), stage.line("k")) == (["a"], ["c"])

    first.control("cancel")
    assert (stage.holders("k"), stage.line("k"), third.statuses["c"]) == (["c"], [], "in_progress")


def test_ruling_08_the_limit_counts_records_and_not_processes(stage: Stage) -> None:
    """A worker that is lost leaves its step in progress: no other step gets its slot."""
    stage.start(document(step("a", **one_of("k")), step("b", **one_of("k"))))

    stage.lose("a")

    assert (stage.holders("k"), stage.line("k")) == (["a"], ["b"])
    assert (stage.statuses, stage["a"].run_id) == ({"a": "in_progress", "b": "ready"}, 1)
    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "b": "in_progress"}


def test_ruling_08_a_map_and_a_child_take_one_place_each(stage: Stage) -> None:
    inner = document(step("x"), step("y"))
    stage.start(
        document(
            step("m", map={"over": [1, 2, 3]}, **one_of("k")),
            child("c", inner, **one_of("k")),
            step("z", **one_of("k")),
        )
    )
    assert (stage.holders("k"), stage.line("k")) == (["m"], ["c", "z"])

    for n in range(3):
        stage.finish(f"m#{n}", {})
    assert (stage.holders("k"), stage.line("k")) == (["c"], ["z"])

    for name in "xy":
        stage.child("c").finish(name, {})
    assert (stage.holders("k"), stage.statuses["z"]) == (["z"], "in_progress")


def test_ruling_08_a_step_in_line_is_judged_again_when_its_place_is_free(stage: Stage) -> None:
    closed = {"!": {"var": "state.closed"}}
    stage.start(document(step("a", **one_of("k")), step("b", when=closed, **one_of("k"))))

    stage.finish("a", {"closed": True})

    assert (stage.statuses["b"], stage.places("k"), stage.status) == ("filtered", [], "complete")


def test_ruling_08_executions_stand_in_line_as_a_whole(stage: Stage) -> None:
    doc = document(step("a"), step("b", "a"), timeout="60s", **one_of({"var": "input.k"}))
    first, second, third = (Execution(stage, stage.start(doc, {"k": "x"})) for _ in range(3))
    assert [one.status for one in (first, second, third)] == ["in_progress", "pending", "pending"]
    assert (stage.holders("x"), stage.line("x")) == ([first.execution], [second.execution, third.execution])

    stage.pass_time("50s")
    second.control("cancel")
    first.finish("a", {})
    first.finish("b", {})

    assert (first.status, second.status, third.status) == ("complete", "cancelled", "in_progress")
    assert (stage.holders("x"), stage.line("x")) == ([third.execution], [])
    stage.pass_time("50s")
    assert third.status == "in_progress", "its clock began with its first step"
    stage.pass_time("10s")
    assert (third.status, third.error["kind"], stage.places("x")) == ("failed", "timeout", [])


@pytest.mark.parametrize("key", [{"var": "input.nothing"}, {"+": ["no number", 1]}, {"var": "input.list"}])
def test_ruling_08_a_key_that_cannot_be_evaluated_is_a_failure(stage: Stage, key: Any) -> None:
    stage.start(document(step("a", on_error="continue", **one_of(key))), {"list": [1]})
    assert (stage.status, stage.statuses, stage.error_kind("a")) == (
        "complete",
        {"a": "failed"},
        "expression",
    )

    stage.start(document(step("a"), **one_of(key)), {"list": [1]})
    assert (stage.status, stage.error["kind"], stage.statuses) == ("failed", "expression", {"a": "skipped"})


def test_ruling_08_what_is_retried_asks_for_its_place_again_and_stands_at_the_end_of_the_line(
    stage: Stage,
) -> None:
    doc = document(step("a", concurrency={"key": "k", "limit": 1}))
    first = stage.start(doc, execution_id="x1")
    stage.control("cancel")
    second = stage.start(doc, execution_id="x2")
    assert [one[0] for one in stage.places("k")] == [second]

    stage.execution = first
    stage.control("retry")

    assert [(one[0], one[3]) for one in stage.places("k")] == [(second, True), (first, False)]
    assert (stage.statuses["a"], stage.out) == ("ready", {})
    Execution(stage, second).finish("a", {})
    assert sorted(stage.out) == ["a"]
    stage.finish("a", {})
    assert (stage.status, stage.places("k")) == ("complete", [])
