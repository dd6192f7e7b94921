"""When each unit was queued, ran, backed off and waited."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.explain.timeline import Span, Timeline, TimelineRow, make_timeline
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import RetrySpec
from worlds.documents import document, step
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW_MS
from worlds.specs import task


def begun(*source: Any, **keys: Any) -> EngineWorld:
    world = world_of(*source, **keys)
    world.advance()
    return world


def timeline_of(world: EngineWorld, *queued: str, **options: Any) -> Timeline:
    return make_timeline(StatusView(world.record, set(queued)), world.history, world.now_ms, **options)


def spans_of(world: EngineWorld, unit: str = "a", *queued: str) -> list[tuple[str, int, int | None]]:
    """The spans of a unit: kind, start and end, from the creation of the execution on."""
    (row,) = (row for row in timeline_of(world, *queued).rows if row.unit == unit)
    return [
        (span.kind, span.start_ms - NOW_MS, None if span.end_ms is None else span.end_ms - NOW_MS)
        for span in row.spans
    ]


def test_a_unit_runs_from_its_dispatch_to_its_end() -> None:
    world = begun(task("a"), task("b", "a"))
    world.pass_time(300)
    world.finish("a")
    world.pass_time(200)

    timeline = timeline_of(world)

    assert (timeline.start_ms, timeline.end_ms, timeline.is_final) == (NOW_MS, NOW_MS + 500, False)
    assert [(row.unit, row.status) for row in timeline.rows] == [("a", "complete"), ("b", "in_progress")]
    assert timeline.rows[0].spans == (Span("running", NOW_MS, NOW_MS + 300, 1, 0, "complete", None),)
    assert spans_of(world, "b") == [("running", 300, None)]
    assert timeline.rows[1].running_ms(timeline.end_ms) == 200


def test_a_unit_that_no_worker_has_taken_is_queued() -> None:
    assert spans_of(begun(task("a")), "a", "a") == [("queued", 0, None)]


def test_the_time_in_the_queue_is_known_once_the_start_is_reported() -> None:
    world = begun(task("a"))
    world.pass_time(700)
    world.apply(replace(world.started("a"), worker="w1", started_at=None))
    running = spans_of(world)
    world.pass_time(300)
    world.finish("a")

    assert running == [("queued", 0, 700), ("running", 700, None)]
    assert spans_of(world) == [("queued", 0, 700), ("running", 700, 1_000)]
    queued, ran = timeline_of(world).rows[0].spans
    assert (queued.status, ran.status, ran.worker) == (None, "complete", "w1")


def test_the_wait_for_the_next_attempt_is_a_span() -> None:
    world = begun(task("a", retry=RetrySpec(initial_delay_ms=1_000)))
    world.pass_time(100)
    world.fail("a")
    backing_off = spans_of(world)
    world.pass_time(1_000)
    world.finish("a")

    assert backing_off == [("running", 0, 100), ("back_off", 100, None)]
    assert spans_of(world) == [("running", 0, 100), ("back_off", 100, 1_100), ("running", 1_100, 1_100)]
    (row,) = timeline_of(world).rows
    assert [(span.attempt, span.status) for span in row.spans] == [
        (1, "retry"),
        (2, "in_progress"),
        (2, "complete"),
    ]
    assert not row.has_failed


@pytest.mark.parametrize(
    "waiting",
    [step("a", op=None, wait={"signal": "go"}), step("a", op=None, delay="5s")],
    ids=["signal", "delay"],
)
def test_the_wait_for_a_signal_or_a_delay_is_a_span(waiting: dict[str, Any]) -> None:
    waiting = {"id": "a", **{key: value for key, value in waiting.items() if key != "op"}}

    world = begun(document(waiting))

    assert spans_of(world) == [("waiting", 0, None)]


def test_items_of_a_map_have_rows_of_their_own() -> None:
    world = begun(document(step("a", map={"over": [1, 2]})))
    world.pass_time(50)
    world.finish("a#0")
    world.pass_time(50)
    world.finish("a#1")

    assert spans_of(world, "a") == [("running", 0, 100)]
    assert spans_of(world, "a#0") == [("running", 0, 50)]
    assert spans_of(world, "a#1") == [("running", 0, 100)]


def test_the_items_of_an_earlier_round_keep_their_rows() -> None:
    world = begun(document(step("a", map={"over": [1]})))
    world.finish("a#0")
    world.pass_time(10)
    entries = [dict(entry) for entry in world.history]
    world.record.items.pop("a#0")

    timeline = make_timeline(StatusView(world.record), entries, world.now_ms)

    assert (
        TimelineRow("a#0", "complete", (Span("running", NOW_MS, NOW_MS, 1, 0, "complete"),)) in timeline.rows
    )
    open_entries = [entry for entry in entries if entry.get("to") != "complete"]
    rows = make_timeline(StatusView(world.record), open_entries, world.now_ms).rows
    assert [row.status for row in rows if row.unit == "a#0"] == ["ready"]


def test_a_step_that_neither_ran_nor_waited_has_no_row() -> None:
    world = begun(document(step("a", when=False), step("b", after="a")))

    assert [row.unit for row in timeline_of(world).rows if row.unit == "a"] == []


def test_a_start_outside_of_its_span_is_moved_into_it() -> None:
    """The clock of a worker can differ."""
    world = begun(task("a"))
    world.pass_time(100)
    world.finish("a")
    world.record.steps["a"] = world.record.steps["a"].with_changes(started_at="2000-01-01T00:00:00.000Z")
    early = spans_of(world)
    world.record.steps["a"] = world.record.steps["a"].with_changes(started_at="2100-01-01T00:00:00.000Z")

    assert early == [("running", 0, 100)]
    assert spans_of(world) == [("queued", 0, 100), ("running", 100, 100)]


def test_the_worker_of_another_attempt_is_not_that_of_the_last_span() -> None:
    world = begun(task("a"))
    world.record.steps["a"] = world.record.steps["a"].with_changes(run_id=3, worker="w9")

    assert timeline_of(world).rows[0].spans[0].worker is None


def test_of_many_rows_the_failed_and_the_longest_are_kept() -> None:
    world = begun(*(task(f"s{n}", on_error="continue") for n in range(6)))
    for n in (3, 1, 5, 0, 2, 4):
        world.pass_time(100)
        if n == 5:
            world.fail(f"s{n}")
        else:
            world.finish(f"s{n}")

    timeline = timeline_of(world, max_rows=3)

    assert {row.unit for row in timeline.rows} == {"s5", "s4", "s2"}
    assert timeline.hidden_count == 3
    assert timeline.is_final
    assert [row.has_failed for row in timeline.rows if row.unit == "s5"] == [True]


def test_other_entries_of_a_history_are_left_out() -> None:
    world = begun(task("a"))
    others: list[dict[str, Any]] = [
        {"at": "x", "workflow": "in_progress"},
        {"at": "x", "what": "delta", "set": {}},
        {"at": "x", "step": "a", "log": "hello"},
    ]

    assert make_timeline(StatusView(world.record), [*others, *world.history], NOW_MS) == timeline_of(world)


def test_a_timeline_is_json() -> None:
    world = begun(task("a"))

    value = json.loads(json.dumps(timeline_of(world).as_dict()))

    assert value["rows"][0]["spans"][0]["kind"] == "running"
    assert (value["start_ms"], value["hidden_count"]) == (NOW_MS, 0)
    assert StepStatus(value["rows"][0]["status"]) is StepStatus.IN_PROGRESS
