"""What a page is told of a change: the new state of each unit that changed, small and without secrets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.redis_rq.queries.record_changes import Heading
from orchestrator.web.live.delta import LiveView, last_moves
from worlds.documents import document, step

S, W = StepStatus, WorkflowStatus
AT = "2026-01-01T00:00:00.000Z"
RUNNING = Heading("2-x", W.IN_PROGRESS, AT, None)
SECRET = "correct-horse-battery"


def view_of(*units: str, queued: tuple[str, ...] = (), inputs: Any = None, **steps: StepRecord) -> LiveView:
    loaded = check_spec(document(*(step(unit) for unit in units)))
    record = WorkflowRecord(loaded, "x1", inputs or {}, AT, W.IN_PROGRESS, steps=dict(steps), version="1-x")
    return LiveView(StatusView(record, frozenset(queued)), position=5)


def moved(unit: str, to: str, **more: Any) -> dict[str, Any]:
    return {"step": unit, "to": to, "at": AT, "attempt": 1, "run_id": 0, **more}


def running(**changes: Any) -> StepRecord:
    return replace(StepRecord(S.IN_PROGRESS, token="t-1", dispatched_at=AT), **changes)


def test_a_change_has_the_new_state_of_each_unit_and_the_counts() -> None:
    view = view_of("a", "b", a=running())

    change = view.apply(
        RUNNING,
        [moved("a", "complete"), moved("b", "in_progress")],
        {"a": StepRecord(S.COMPLETE, attempt=2, worker="w1", ended_at=AT, output={"n": 1}), "b": running()},
    )

    assert change["position"] == 7
    assert change["status"] == "in_progress"
    assert change["counts"] == {"complete": 1, "in_progress": 1}
    assert [(one["step"], one["status"]) for one in change["steps"]] == [
        ("a", "complete"),
        ("b", "in_progress"),
    ]
    assert change["steps"][0] == {
        "step": "a",
        "status": "complete",
        "attempt": 2,
        "run_id": 0,
        "dispatched_at": None,
        "started_at": None,
        "ended_at": AT,
        "worker": "w1",
        "error": None,
        "items": None,
    }
    assert "output" not in json.dumps(change)


def test_a_unit_that_no_worker_has_taken_is_queued_until_one_has() -> None:
    view = view_of("a")

    queued = view.apply(RUNNING, [moved("a", "in_progress")], {"a": running()}, untaken=["a"])
    taken = view.note_queued(set())
    nothing_new = view.note_queued(set())

    assert queued["steps"][0]["status"] == "queued"
    assert queued["counts"] == {"queued": 1}
    assert taken is not None
    assert taken["steps"][0]["status"] == "in_progress"
    assert taken["counts"] == {"in_progress": 1}
    assert nothing_new is None


def test_only_a_start_that_is_not_reported_needs_a_lease() -> None:
    view = view_of("a", "b", a=running(), b=running(started_at=AT))
    assert list(view.unreported) == ["a"]

    view.apply(RUNNING, [], {"a": running(started_at=AT)})

    assert view.unreported == {}


def test_a_unit_that_did_not_change_is_not_told() -> None:
    view = view_of("a", a=running())

    assert view.apply(RUNNING, [], {"a": running()})["steps"] == []


def test_the_end_is_told_with_its_time() -> None:
    view = view_of("a", a=running())

    change = view.apply(Heading("2-x", W.COMPLETE, AT, AT), [{"workflow": "complete", "at": AT}], {})

    assert (change["status"], change["ended_at"], view.is_final) == ("complete", AT, True)


def test_a_map_is_told_with_the_items_that_changed() -> None:
    loaded = check_spec(document(step("m", map={"over": [1, 2], "as": "n"})))
    counts = ItemCounts(count=2, next=2, out=2)
    steps = {"m": StepRecord(S.IN_PROGRESS, items=counts)}
    items = {"m#0": running(), "m#1": running()}
    record = WorkflowRecord(loaded, "x1", {}, AT, W.IN_PROGRESS, steps=steps, items=items, version="1-x")
    view = LiveView(StatusView(record, frozenset(["m#0", "m#1"])), 0)

    change = view.note_queued({"m#1"})

    assert change is not None
    shown = {one["step"]: one["status"] for one in change["steps"]}
    assert shown == {"m#0": "in_progress", "m": "in_progress"}, "a map runs when its first item does"
    assert change["counts"] == {"in_progress": 1}, "items are not counted as steps"


def test_an_error_is_short_and_has_no_secret_of_any_unit() -> None:
    view = view_of("a", "b", inputs={"password": SECRET})
    error = {
        "kind": "exception",
        "type": "ValueError",
        "message": f"cannot log in with {SECRET}\n" + "x" * 900,
    }

    change = view.apply(RUNNING, [moved("a", "failed")], {"a": StepRecord(S.FAILED, error=error)})

    assert change["steps"][0]["error"] == "ValueError: cannot log in with <redacted>"


def test_a_secret_that_a_unit_returned_later_is_redacted_too() -> None:
    view = view_of("a", "b")
    view.apply(RUNNING, [moved("a", "complete")], {"a": StepRecord(S.COMPLETE, output={"api_key": SECRET})})

    change = view.apply(
        RUNNING, [moved("b", "failed")], {"b": StepRecord(S.FAILED, error={"type": "E", "message": SECRET})}
    )

    assert SECRET not in json.dumps(change)


def test_after_a_unit_that_was_too_large_to_be_read_no_error_is_quoted() -> None:
    view = view_of("a", "b")
    large = view.apply(RUNNING, [moved("a", "complete", attempt=3)], {"a": None})

    change = view.apply(
        RUNNING,
        [moved("b", "failed")],
        {"b": StepRecord(S.FAILED, error={"kind": "exception", "message": "x"})},
    )

    assert (large["steps"][0]["status"], large["steps"][0]["attempt"]) == ("complete", 3)
    assert change["steps"][0]["error"] == "exception"


def test_an_item_that_is_gone_is_not_told_any_more() -> None:
    loaded = check_spec(document(step("m", map={"over": [1], "as": "n"})))
    record = WorkflowRecord(loaded, "x1", {}, AT, W.IN_PROGRESS, items={"m#0": running()}, version="1-x")
    view = LiveView(StatusView(record), 0)

    change = view.apply(RUNNING, [moved("m#0", "ready")], {})

    assert change["steps"] == []
    assert view.unreported == {}


def test_a_page_that_connects_again_is_told_what_it_missed_and_what_runs() -> None:
    view = view_of("a", "b", "c", a=StepRecord(S.COMPLETE), b=running())

    change = view.since([moved("a", "in_progress"), moved("a", "complete"), moved("gone#1", "complete")])

    assert [(one["step"], one["status"]) for one in change["steps"]] == [
        ("a", "complete"),
        ("b", "in_progress"),
    ]


def test_hostile_names_and_workers_are_told_as_visible_text() -> None:
    view = view_of("a")

    change = view.apply(RUNNING, [moved("a", "failed")], {"a": StepRecord(S.FAILED, worker="w\x1b[2J\u202e")})

    assert change["steps"][0]["worker"] == "w\\x1b[2J\\u202e"


def test_the_last_change_of_each_unit_counts() -> None:
    entries = [moved("a", "in_progress"), {"workflow": "failed", "at": AT}, moved("a", "failed")]

    assert {unit: entry["to"] for unit, entry in last_moves(entries).items()} == {"a": "failed"}
