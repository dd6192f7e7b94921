"""What a commit adds to the counters of the metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest

from orchestrator.application.engine.transitions import advance, decide
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import ControlEvent, DeclinedEvent, ResultEvent, StepEvent, iso
from orchestrator.application.records.metric_counts import (
    BUCKETS_MS,
    Counts,
    count_commit,
    cumulate,
    queue_label,
    workflow_label,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from worlds.records import NOW, NOW_MS, moment, record, spec

BOOM = {"kind": "exception", "message": "boom"}


def counts_of(changes: Changes, before: WorkflowRecord | None = None, **options: Any) -> Counts:
    return count_commit(before or record(), changes, lambda unit: f"queue of {unit}", **options)


def run(before: WorkflowRecord, *events: StepEvent, at_ms: int = 0) -> Counts:
    """Apply events to a record, and return what is counted."""
    changes = decide(before, events, moment(NOW_MS + at_ms)).changes
    counts = counts_of(changes, before)
    before.apply(changes)
    return counts


def dispatched(before: WorkflowRecord) -> WorkflowRecord:
    changes, _ = advance(before, moment())
    before.apply(changes)
    return before


def result_of(
    one: WorkflowRecord, unit: str = "a", started_ms: int | None = None, **keys: Any
) -> ResultEvent:
    step = one.steps.get(unit) or one.items[unit]
    started_at = None if started_ms is None else iso(NOW_MS + started_ms)
    return ResultEvent(
        one.workflow_execution_id,
        unit,
        keys.get("output", {}),
        keys.get("error"),
        step.run_id,
        step.attempt,
        step.token,
        started_at=started_at,
    )


def test_a_new_execution_is_counted_once_as_started() -> None:
    assert counts_of(Changes(), creates=True) == Counts({"started": 1}, {})
    assert counts_of(Changes()) == Counts({}, {})


def test_a_step_that_completes_counts_with_its_run_time_and_its_wait() -> None:
    before = dispatched(record(spec(a={}, b={"depends_on": ["a"]})))

    counts = run(before, result_of(before, started_ms=40), at_ms=240)

    assert counts.workflow == {"steps|complete": 1, "run|250": 1, "run|sum": 200}
    assert counts.queues == {"queue of a": {"wait|50": 1, "wait|sum": 40}}


def test_the_last_step_also_ends_its_execution() -> None:
    before = dispatched(record())

    counts = run(before, result_of(before, started_ms=0))

    assert counts.workflow == {"steps|complete": 1, "executions|complete": 1, "run|5": 1, "run|sum": 0}


def test_a_dispatch_alone_counts_nothing() -> None:
    changes, _ = advance(record(), moment())

    assert counts_of(changes) == Counts({}, {})


def test_results_of_one_commit_are_added_up() -> None:
    before = dispatched(record(spec(a={}, b={}, c={"depends_on": ["a", "b"]})))

    counts = run(before, result_of(before, "a", 10), result_of(before, "b", 10), at_ms=20)

    assert counts.workflow == {"steps|complete": 2, "run|10": 2, "run|sum": 20}


def test_a_retry_counts_with_the_kind_of_the_failure_and_the_time_of_its_attempt() -> None:
    before = dispatched(record(spec(a={"max_attempts": 2})))

    counts = run(before, result_of(before, started_ms=0, error=BOOM), at_ms=30)

    assert counts.workflow == {"retries": 1, "failures|exception": 1, "run|50": 1, "run|sum": 30}
    counts = run(before, result_of(before, started_ms=30, error=BOOM), at_ms=30)
    assert counts.workflow["failures|exception"] == 1
    assert counts.workflow["steps|failed"] == counts.workflow["executions|failed"] == 1
    assert "retries" not in counts.workflow


@pytest.mark.parametrize("kind", ["none of ours", None, 7])
def test_a_kind_of_failure_that_is_not_ours_counts_as_other(kind: object) -> None:
    entry = {"step": "a", "from": "in_progress", "to": "failed", "attempt": 1, "error": {"kind": kind}}

    assert counts_of(Changes(history=[entry])).workflow == {"steps|failed": 1, "failures|other": 1}


def test_a_failure_that_is_skipped_is_a_failure() -> None:
    before = dispatched(record(spec(a={"on_error": "skip"})))

    counts = run(before, result_of(before, error=BOOM))

    assert counts.workflow == {"steps|skipped": 1, "failures|exception": 1, "executions|complete": 1}


def test_a_step_that_is_cancelled_between_two_attempts_fails_no_second_time() -> None:
    before = dispatched(record(spec(a={"retry": {"max_retries": 2, "initial_delay_ms": 60_000}})))
    run(before, result_of(before, error=BOOM))

    counts = run(before, ControlEvent(before.workflow_execution_id, "cancel"))

    assert counts.workflow == {"steps|cancelled": 1, "executions|cancelled": 1}


def test_iterations_of_a_loop_are_no_retries_and_each_has_a_run_time() -> None:
    before = dispatched(record(spec(a={"loop": {"max_iterations": 3}})))

    counts = run(before, result_of(before, started_ms=0, output={"_loop": "again", "value": {}}), at_ms=3)

    assert counts.workflow == {"run|5": 1, "run|sum": 3}


def test_items_of_a_map_have_run_times_and_only_the_map_is_a_step() -> None:
    before = dispatched(record(spec(a={"map": {"over": {"$literal": [1, 2]}}})))

    first = run(before, result_of(before, "a#0", 0), at_ms=7)
    last = run(before, result_of(before, "a#1", 0, error=BOOM), at_ms=7)

    assert first.workflow == {"run|10": 1, "run|sum": 7}
    assert last.workflow["steps|failed"] == 1
    assert last.workflow["failures|exception"] == 2, "that of the item, and that of the map"


def test_a_declined_step_did_not_run() -> None:
    before = dispatched(record())
    token = before.steps["a"].token or ""
    declined = DeclinedEvent(before.workflow_execution_id, "a", 0, 1, token, "an executor")

    assert run(before, declined, at_ms=9) == Counts({}, {})


@pytest.mark.parametrize("unit", ["a", WEBHOOK_UNIT])
def test_children_and_webhooks_have_no_run_time(unit: str) -> None:
    child = "e1:a:0" if unit == "a" else None
    before = StepRecord(StepStatus.IN_PROGRESS, child=child, dispatched_at=NOW, started_at=NOW)

    assert counts_of(Changes(finished_dispatches=[(unit, before)], at_ms=NOW_MS)) == Counts({}, {})


@pytest.mark.parametrize(
    ("started_ms", "wait_ms", "run_ms"),
    [(-5_000, 0, 100), (5_000, 100, 0), (30, 30, 70)],
    ids=["clock behind", "clock ahead", "same clock"],
)
def test_the_clock_of_a_worker_cannot_make_times_negative(started_ms: int, wait_ms: int, run_ms: int) -> None:
    before = dispatched(record())

    counts = run(before, result_of(before, started_ms=started_ms), at_ms=100)

    assert counts.queues["queue of a"]["wait|sum"] == wait_ms
    assert counts.workflow["run|sum"] == run_ms


def test_a_result_that_is_older_than_its_dispatch_ran_for_no_time() -> None:
    """Redis was rolled back, or its clock was set back."""
    before = dispatched(record())

    counts = run(before, result_of(before, started_ms=0), at_ms=-1_000)

    assert (counts.workflow["run|sum"], counts.queues["queue of a"]["wait|sum"]) == (0, 0)


@pytest.mark.parametrize(
    "started_at",
    ["", "yesterday", "2026-01-01T00:00:00.xyzZ", "2026-13-01T00:00:00.000Z", "²" * 24, "9" * 10_000],
)
def test_a_start_time_that_is_none_is_left_out(started_at: str) -> None:
    before = StepRecord(StepStatus.IN_PROGRESS, dispatched_at=NOW, started_at=started_at)

    assert counts_of(Changes(finished_dispatches=[("b", before)], at_ms=NOW_MS)) == Counts({}, {})


@pytest.mark.parametrize(
    ("run_ms", "bucket"), [(0, "5"), (5, "5"), (6, "10"), (7_200_000, "7200000"), (7_200_001, "inf")]
)
def test_a_value_is_in_the_smallest_bucket_that_is_not_below_it(run_ms: int, bucket: str) -> None:
    before = dispatched(record())

    counts = run(before, result_of(before, started_ms=0), at_ms=run_ms)

    assert counts.workflow[f"run|{bucket}"] == 1


def test_buckets_are_added_up_and_the_last_one_has_every_value() -> None:
    found = cumulate({"5": 1, "10": 2, "inf": 4})

    assert found[0] == (0.005, 1)
    assert found[1] == (0.01, 3)
    assert found[-1] == (math.inf, 7)
    assert len(found) == len(BUCKETS_MS) + 1


def test_labels_are_short_and_name_a_priority_that_is_not_the_default() -> None:
    assert workflow_label(record(spec({"name": "n" * 500}, a={}))) == "n" * 100
    assert workflow_label(record()) == ""
    assert (queue_label("default", 3), queue_label("q" * 500, 1)) == ("default", f"{'q' * 100}:1")
