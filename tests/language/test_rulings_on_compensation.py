"""The rulings on compensation; their numbers are in the names of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from language.stage import Stage
from language.written import child, halts, resets
from orchestrator.application.errors import InvalidEvent
from worlds.documents import Json, document, step


def undoable(name: str, after: str = "", **keys: Any) -> Json:
    """A step that can be undone; what undoes it gets its output."""
    compensate = {"fn": "undo", "input": {"of": {"var": "output.n"}}, **keys.pop("compensate", {})}
    return step(name, after, compensate=compensate, **keys)


def undone(stage: Stage) -> list[str]:
    """Which steps were undone, in order."""
    return [job.step_id for job in stage.jobs if job.step_id.endswith("#undo")]


def ended(stage: Stage) -> tuple[str, bool | None]:
    return stage.status, stage.record.compensated


def test_ruling_04_halt_never_compensates(stage: Stage) -> None:
    stage.start(document(undoable("a"), step("b", "a", **halts({"why": "enough"}))))
    stage.finish("a", {"n": 1})

    stage.finish("b", {})

    assert (stage.status, undone(stage), stage.record.compensated) == ("halted", [], None)


def test_ruling_04_a_workflow_that_completes_never_compensates(stage: Stage) -> None:
    stage.start(document(undoable("a")))

    stage.finish("a", {"n": 1})

    assert (stage.status, undone(stage), stage.record.compensated) == ("complete", [], None)


def test_ruling_04_one_at_a_time_newest_first(stage: Stage) -> None:
    stage.start(document(undoable("a"), undoable("b"), undoable("c"), step("plain"), step("last", "a b c")))
    for n, name in enumerate(["c", "plain", "a", "b"]):
        stage.finish(name, {"n": n})

    stage.fail("last", "no use")

    assert (stage.status, stage.record.error, stage.outcome) == ("compensating", None, None)
    for name, n in (("b", 3), ("a", 2), ("c", 0)):
        assert (list(stage.out), stage.status) == ([f"{name}#undo"], "compensating")
        job = stage.out[f"{name}#undo"]
        assert (job.fn, job.inputs) == ("undo", {"of": n})
        stage.finish(f"{name}#undo", {})
    assert (undone(stage), ended(stage)) == (["b#undo", "a#undo", "c#undo"], ("failed", True))
    assert stage.error == {"kind": "exception", "message": "no use", "step": "last"}
    assert {stage[f"{name}#undo"].status for name in "abc"} == {"complete"}
    assert stage.statuses["a"] == "complete", "what was undone did complete"


def test_ruling_04_the_newest_of_one_batch_is_the_one_applied_last(stage: Stage) -> None:
    stage.start(document(undoable("a"), undoable("b"), step("last", "a b")))

    stage.deliver(stage.result("b", {"n": 0}), stage.result("a", {"n": 1}))
    stage.fail("last")
    stage.finish("a#undo", {})
    stage.finish("b#undo", {})

    assert (undone(stage), ended(stage)) == (["a#undo", "b#undo"], ("failed", True))


def test_ruling_04_a_cancelled_workflow_compensates_too(stage: Stage) -> None:
    stage.start(document(undoable("a"), step("b", "a"), step("c", "b")))
    stage.finish("a", {"n": 1})

    stage.control("cancel", reason="a duplicate")

    assert (stage.status, list(stage.out)) == ("compensating", ["a#undo"])
    assert stage.statuses == {"a": "complete", "b": "cancelled", "c": "skipped"}
    stage.finish("a#undo", {})
    assert (ended(stage), stage.record.error) == (("cancelled", True), None)
    assert stage.record.cancelled is not None
    assert stage.record.cancelled["reason"] == "a duplicate"


def test_ruling_04_only_completions_of_the_current_round(stage: Stage) -> None:
    """a completed in a round that a set took back; b completed in both rounds, and before a and c did."""
    stage.start(
        document(
            undoable("b"),
            undoable("a", "b"),
            undoable("c"),
            step("judge", "a", **resets("b")),
        )
    )
    stage.finish("b", {"n": 1})
    stage.finish("c", {"n": 2})
    stage.finish("a", {"n": 3})
    stage.finish("judge", {"again": True})
    stage.finish("b", {"n": 4})

    stage.fail("a")
    while stage.out:
        [unit] = stage.out
        stage.finish(unit, {})

    assert (undone(stage), ended(stage)) == (["b#undo", "c#undo"], ("failed", True))
    assert [job.inputs for job in stage.jobs if job.fn == "undo"] == [{"of": 4}, {"of": 2}]


def test_ruling_04_only_completions_count(stage: Stage) -> None:
    stage.start(
        document(
            undoable("running"),
            undoable("skipped", branch=[{"condition": True, "action": "skip"}]),
            undoable("filtered", when=False),
            undoable("failed", on_error="continue"),
            undoable("forgiven", branch=[{"condition": True, "action": "complete"}]),
            step("last"),
        )
    )
    stage.finish("skipped", {})
    stage.fail("failed")
    stage.fail("forgiven")

    stage.fail("last")
    stage.finish("forgiven#undo", {})

    assert (undone(stage), ended(stage)) == (["forgiven#undo"], ("failed", True))


def test_ruling_04_an_error_is_noted_and_the_next_one_runs(stage: Stage) -> None:
    stage.start(document(undoable("a"), undoable("b", "a"), step("last", "b")))
    stage.finish("a", {"n": 1})
    stage.finish("b", {"n": 2})
    stage.fail("last", "no use")

    stage.fail("b#undo", "cannot be undone")

    assert (stage.status, list(stage.out), stage["b#undo"].status) == ("compensating", ["a#undo"], "failed")
    stage.finish("a#undo", {})
    noted = {"step": "b", "kind": "exception", "message": "cannot be undone"}
    assert stage.error == {
        "kind": "exception",
        "message": "no use",
        "step": "last",
        "compensation_errors": [noted],
    }
    assert ended(stage) == ("failed", False)


def test_ruling_04_a_cancelled_workflow_has_the_error_of_its_compensation(stage: Stage) -> None:
    stage.start(document(undoable("a"), step("b", "a")))
    stage.finish("a", {"n": 1})
    stage.control("cancel")

    stage.fail("a#undo", "cannot be undone")

    assert ended(stage) == ("cancelled", False)
    assert stage.error["kind"] == "compensation"
    assert [noted["step"] for noted in stage.error["compensation_errors"]] == ["a"]


def test_ruling_04_inputs_that_cannot_be_resolved_are_such_an_error(stage: Stage) -> None:
    broken = {"input": {"of": {"+": ["no number", {"var": "output.n"}]}}}
    stage.start(document(undoable("a"), undoable("b", "a", compensate=broken), step("last", "b")))
    stage.finish("a", {"n": 1})
    stage.finish("b", {"n": 2})

    stage.fail("last")

    assert (list(stage.out), stage.error_kind("b#undo")) == (["a#undo"], "expression")
    stage.finish("a#undo", {})
    assert (ended(stage), len(stage.error["compensation_errors"])) == (("failed", False), 1)


def test_ruling_04_a_compensation_has_a_retry_and_a_timeout_of_its_own(stage: Stage) -> None:
    own = {"retry": {"max_retries": 2, "initial_delay_ms": 1000}, "timeout": "10s"}
    stage.start(document(undoable("a", compensate=own), step("last", "a")))
    stage.finish("a", {"n": 1})
    stage.fail("last")

    stage.fail("a#undo")
    assert (stage["a#undo"].status, stage["a#undo"].attempt, stage.status) == ("retry", 2, "compensating")
    stage.pass_time("1s")
    stage.report_started("a#undo")
    assert stage.deadline_in("a#undo") == 10
    stage.pass_time("10s")
    assert (stage["a#undo"].status, stage.error_kind("a#undo")) == ("retry", "timeout")
    stage.pass_time("2s")
    stage.finish("a#undo", {})

    assert (ended(stage), stage["a#undo"].attempt) == (("failed", True), 3)


def test_ruling_04_a_compensation_whose_worker_is_lost_is_dispatched_again(stage: Stage) -> None:
    stage.start(document(undoable("a"), step("last", "a")))
    stage.finish("a", {"n": 1})
    stage.fail("last")
    old = stage.out["a#undo"]

    stage.lose("a#undo")

    assert (stage["a#undo"].run_id, stage["a#undo"].attempt) == (old.run_id + 1, 1)
    stage.finish("a#undo", {}, job=old)
    assert (stage.counter("stale"), stage.status) == (1, "compensating")
    stage.finish("a#undo", {})
    assert ended(stage) == ("failed", True)


def test_ruling_04_cancel_while_compensating_is_refused(stage: Stage) -> None:
    stage.start(document(undoable("a"), step("last", "a")))
    stage.finish("a", {"n": 1})
    stage.fail("last")
    before = stage.record.version

    with pytest.raises(InvalidEvent, match="cannot be cancelled: it is compensating"):
        stage.control("cancel")
    with pytest.raises(InvalidEvent, match="cannot be paused: it is compensating"):
        stage.control("pause")

    assert (stage.record.version, list(stage.out)) == (before, ["a#undo"])
    stage.finish("a#undo", {})
    assert ended(stage) == ("failed", True)


def test_ruling_04_a_timeout_of_the_workflow_compensates_and_does_not_ring_again(stage: Stage) -> None:
    stage.start(document(undoable("a"), step("b", "a"), timeout="60s"))
    stage.finish("a", {"n": 1})

    stage.pass_time("60s")
    assert (stage.status, list(stage.out)) == ("compensating", ["a#undo"])
    stage.pass_time("60s")
    assert (stage.status, list(stage.out)) == ("compensating", ["a#undo"])

    stage.finish("a#undo", {})
    assert (ended(stage), stage.error["kind"]) == (("failed", True), "timeout")


def test_ruling_04_a_parent_hears_of_a_child_when_it_is_compensated(stage: Stage) -> None:
    inner = document(undoable("x"), step("y", "x"))
    stage.start(document(child("c", inner, on_error="continue")))
    below = stage.child("c")
    below.finish("x", {"n": 1})

    below.fail("y", "no use")
    assert (below.status, stage.statuses["c"]) == ("compensating", "in_progress")

    below.finish("x#undo", {})
    assert (below.status, below.record.compensated, stage.statuses["c"]) == ("failed", True, "failed")
    assert stage.error_kind("c") == "child_failed"


@pytest.mark.parametrize("how", ["failed", "cancelled"])
@pytest.mark.parametrize("undoing", ["works", "fails"])
def test_ruling_04_a_compensated_execution_cannot_be_re_driven(stage: Stage, how: str, undoing: str) -> None:
    stage.start(document(undoable("a"), step("b", "a")))
    stage.finish("a", {"n": 1})
    if how == "failed":
        stage.fail("b")
    else:
        stage.control("cancel")
    (stage.finish if undoing == "works" else stage.fail)("a#undo")
    assert ended(stage) == (how, undoing == "works")
    before = stage.history

    with pytest.raises(InvalidEvent, match="cannot be retried: its steps were compensated"):
        stage.control("retry")
    with pytest.raises(InvalidEvent, match="cannot be rerun: its steps were compensated"):
        stage.control("rerun", "b")

    assert (ended(stage), stage.out, stage.history) == ((how, undoing == "works"), {}, before)


def test_ruling_04_what_has_to_compensate_nothing_can_be_re_driven_and_is_compensated_later(
    stage: Stage,
) -> None:
    stage.start(document(undoable("a"), step("b", "a")))
    stage.fail("a")
    assert ended(stage) == ("failed", None)

    stage.control("retry")
    stage.finish("a", {"n": 1})
    stage.fail("b")

    assert (stage.status, undone(stage)) == ("compensating", ["a#undo"])


def test_ruling_04_a_child_that_compensates_goes_on_when_its_parent_ends(stage: Stage) -> None:
    """Its parent cancels it, which is too late: it has failed, and is being undone."""
    inner = document(undoable("x"), step("y", "x"))
    stage.start(document(child("c", inner), step("other")))
    below = stage.child("c")
    below.finish("x", {"n": 1})
    below.fail("y", "no use")

    stage.fail("other")

    assert (stage.status, stage.statuses["c"], below.status) == ("failed", "cancelled", "compensating")
    below.finish("x#undo", {})
    assert (below.status, below.record.compensated, below.error["message"]) == ("failed", True, "no use")


def test_ruling_04_a_child_that_its_parent_cancels_is_compensated(stage: Stage) -> None:
    inner = document(undoable("x"), step("y", "x"))
    stage.start(document(undoable("before"), child("c", inner)))
    below = stage.child("c")
    stage.finish("before", {"n": 1})
    below.finish("x", {"n": 2})

    stage.control("cancel")

    assert (stage.status, below.status) == ("compensating", "compensating")
    stage.finish("before#undo", {})
    below.finish("x#undo", {})
    assert (ended(stage), below.status, below.record.compensated) == (("cancelled", True), "cancelled", True)
