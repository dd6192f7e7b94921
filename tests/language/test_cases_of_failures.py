"""The edge cases of the language that are about failures, joins and maps."""

from __future__ import annotations

from typing import Any

import pytest

from language.stage import Stage
from language.written import NO, skips
from worlds.documents import Json, document, step

# ---- on_error


OUTPUTS: Json = {"outputs": {"said": {"var": "steps.d.output.said"}}}


@pytest.mark.parametrize(
    ("policy", "end", "status"),
    [(None, "failed", "failed"), ("continue", "failed", "complete"), ("skip", "skipped", "complete")],
)
def test_p_default_dependents_all_continue(stage: Stage, policy: str | None, end: str, status: str) -> None:
    written = {} if policy is None else {"on_error": policy}
    dependents = [step(name, "p", on_error="continue") for name in "de"]
    stage.start(document(step("p", **written), *dependents, **OUTPUTS))

    stage.fail("p")

    assert stage.statuses == {"p": end, "d": "in_progress", "e": "in_progress"}
    assert stage.error_kind("p") == "exception"
    stage.finish("d", {"said": 1})
    stage.finish("e", {})
    assert (stage.status, stage.outcome) == (status, {"said": 1})
    if status == "failed":
        assert stage.error == {"kind": "exception", "message": "boom", "step": "p"}


def test_p_default_dependents_continue_and_default(stage: Stage) -> None:
    stage.start(document(step("p"), step("d", "p", on_error="continue"), step("e", "p"), step("other")))

    stage.fail("p")

    assert stage.status == "failed"
    assert stage.statuses == {"p": "failed", "d": "skipped", "e": "skipped", "other": "cancelled"}
    assert stage.error == {"kind": "exception", "message": "boom", "step": "p"}
    assert {job.step_id for job in stage.jobs} == {"p", "other"}


def test_p_says_fail_dependent_says_continue(stage: Stage) -> None:
    stage.start(document(step("p", on_error="fail"), step("d", "p", on_error="continue")))

    stage.fail("p")

    assert (stage.status, stage.statuses) == ("failed", {"p": "failed", "d": "skipped"})
    assert stage.error["step"] == "p"


@pytest.mark.parametrize("fails", [False, True])
def test_p_says_continue_dependent_says_fail(stage: Stage, fails: bool) -> None:
    stage.start(document(step("p", on_error="continue"), step("d", "p", on_error="fail"), step("e", "d")))

    stage.fail("p")
    assert stage.statuses == {"p": "failed", "d": "in_progress", "e": "ready"}

    if fails:  # its `fail` is about itself
        stage.fail("d", "my own")
        assert stage.statuses == {"p": "failed", "d": "failed", "e": "skipped"}
        assert (stage.status, stage.error["step"], stage.error["message"]) == ("failed", "d", "my own")
    else:
        stage.finish("d", {})
        stage.finish("e", {})
        assert (stage.status, stage.record.error) == ("complete", None)


def test_p_says_skip_dependent_says_continue(stage: Stage) -> None:
    stage.start(document(step("p", on_error="skip"), step("d", "p", on_error="continue"), step("e", "p")))

    stage.fail("p")

    assert stage.statuses == {"p": "skipped", "d": "in_progress", "e": "skipped"}
    assert stage["p"].error == {"kind": "exception", "message": "boom"}
    assert stage["p"].reason == "failed, and its on_error is skip"
    assert stage["e"].reason == "parent p failed"
    stage.finish("d", {})
    assert (stage.status, stage.record.error) == ("complete", None)


def test_skip_reaches_a_continue_below(stage: Stage) -> None:
    stage.start(
        document(
            step("p", on_error="skip"),
            step("d", "p"),
            step("e", "d", on_error="continue"),
            step("f", "e", on_error="continue"),
        )
    )

    stage.fail("p")

    assert stage.statuses == {"p": "skipped", "d": "skipped", "e": "skipped", "f": "skipped"}
    assert [stage[name].reason for name in "def"] == [
        "parent p failed",
        "parent d skipped",
        "parent e skipped",
    ]
    assert stage.status == "complete"


# ---- joins


def three_parents(**join: Any) -> Json:
    parents = [step("skipped", **skips()), step("complete"), step("running")]
    return document(*parents, step("j", "skipped complete running", **join), step("below", "j"))


def test_join_of_one_skipped_and_one_complete_parent(stage: Stage) -> None:
    stage.start(three_parents())
    stage.finish("complete", {})

    stage.finish("skipped", {"skip": True})

    assert stage.statuses == {
        "skipped": "skipped",
        "complete": "complete",
        "running": "in_progress",
        "j": "skipped",
        "below": "skipped",
    }
    assert stage["j"].reason == "parent skipped skipped"


def test_join_of_one_skipped_and_one_complete_parent_with_join_any_waits_and_runs(stage: Stage) -> None:
    stage.start(three_parents(join="any"))
    stage.finish("complete", {})

    stage.finish("skipped", {"skip": True})
    assert (stage.statuses["j"], stage.statuses["below"]) == ("ready", "ready")

    stage.finish("running", {})
    assert stage.statuses["j"] == "in_progress"


def test_join_of_filtered_and_complete(stage: Stage) -> None:
    reads = {"f": {"var": "steps.f.output.n"}, "c": {"var": "steps.c.output.n"}}
    stage.start(document(step("f", when=NO), step("c"), step("j", "f c", input=reads)))

    stage.finish("c", {"n": 1})

    assert stage.statuses == {"f": "filtered", "c": "complete", "j": "in_progress"}
    assert stage.out["j"].inputs == {"f": None, "c": 1}


def test_join_of_filtered_and_skipped(stage: Stage) -> None:
    stage.start(document(step("f", when=NO), step("s", **skips()), step("j", "f s")))

    stage.finish("s", {"skip": True})

    assert stage.statuses == {"f": "filtered", "s": "skipped", "j": "skipped"}
    assert (stage["j"].reason, stage.status) == ("parent s skipped", "complete")


def test_all_parents_filtered(stage: Stage) -> None:
    stage.start(document(step("f", when=NO), step("g", when=NO), step("j", "f g"), step("below", "j")))

    assert stage.statuses == dict.fromkeys(("f", "g", "j", "below"), "filtered")
    assert stage["f"].reason == "its condition is false"
    assert stage["j"].reason == "every parent was filtered"
    assert (stage.status, stage.jobs) == ("complete", [])


def test_filter_false_on_the_fan_in_step_itself(stage: Stage) -> None:
    stage.start(
        document(
            step("a"),
            step("b"),
            step("j", "a b", filters={"operator": "AND", "filters": [{"expression": NO}]}),
            step("only", "j"),
            step("also", "j a"),
            step("skipped", **skips()),
            step("kept_from_running", "j skipped"),
        )
    )
    stage.finish("a", {})
    stage.finish("skipped", {"skip": True})
    assert stage.statuses["j"] == "ready"

    stage.finish("b", {})

    assert (stage.statuses["j"], stage["j"].reason) == ("filtered", "its condition is false")
    assert stage.statuses["only"] == "filtered"
    assert stage.statuses["also"] == "in_progress"
    assert stage.statuses["kept_from_running"] == "skipped"


def test_all_steps_filtered(stage: Stage) -> None:
    outputs = {"a": {"var": "steps.a.output.n"}, "b": {"var": "steps.b.output"}, "fixed": "text"}
    stage.start(document(step("a", when=NO), step("b", when=NO), outputs=outputs))

    assert (stage.status, stage.record.error) == ("complete", None)
    assert stage.outcome == {"a": None, "b": None, "fixed": "text"}
    assert stage.jobs == []


# ---- maps


@pytest.mark.parametrize("items", [[], None])
def test_empty_map(stage: Stage, items: Any) -> None:
    mapped = step("m", map={"over": {"var": "input.items"}})
    below = step("below", "m", input={"of": {"var": "steps.m.output"}})
    stage.start(document(mapped, below), {"items": items})

    assert stage["m"].output == {"items": [], "count": 0, "errors": 0}
    assert stage.statuses == {"m": "complete", "below": "in_progress"}
    assert [job.step_id for job in stage.jobs] == ["below"]
    assert stage.out["below"].inputs == {"of": {"items": [], "count": 0, "errors": 0}}


def test_map_item_fails_for_good_on_error_fail(stage: Stage) -> None:
    stage.start(document(step("m", map={"over": [1, 2, 3]}, on_error="fail"), step("below", "m")))

    stage.fail("m#1", "bad item")

    assert (stage.status, stage.statuses) == ("in_progress", {"m": "in_progress", "below": "ready"})
    assert stage["m#1"].status == "failed"
    stage.finish("m#2", {})
    assert (stage.status, stage.statuses["m"]) == ("in_progress", "in_progress")

    stage.finish("m#0", {})

    assert (stage.status, stage.statuses) == ("failed", {"m": "failed", "below": "skipped"})
    assert [stage[f"m#{n}"].status for n in range(3)] == ["complete", "failed", "complete"]
    assert stage.error == {"kind": "exception", "message": "item 1: bad item", "step": "m"}
