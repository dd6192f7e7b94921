"""Tests of the daily usage and of the backfill: `pytest` in this folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import backfill
import daily_usage
import pytest

from orchestrator import load_spec
from orchestrator.testing import WorkflowTest

WORKFLOW = Path(__file__).with_name("workflow.yaml")
Start = Callable[[str], WorkflowTest]


@pytest.fixture
def start(
    workflow_test: type[WorkflowTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], WorkflowTest]:
    monkeypatch.setenv("USAGE_DB", str(tmp_path / "usage.db"))
    daily_usage.write_events("2026-02-28", "2026-03-01", "2026-03-01")
    return lambda slot: workflow_test(
        WORKFLOW,
        executors="daily_usage",
        execution_id=f"daily-usage:{slot}",
        starts_at="2026-05-01T00:00:00Z",
    )


def test_a_slot_computes_the_day_before_however_late_it_starts(start: Start) -> None:
    test = start("20260302T011500Z").run()

    assert test.outcome == {"day": "2026-03-01", "customers": 1}
    assert daily_usage.stored() == [("2026-03-01", "acme", 120)]


def test_a_day_without_events_has_no_usage(start: Start) -> None:
    assert start("20260101T011500Z").run().outcome == {"day": "2025-12-31", "customers": 0}


def test_a_day_that_is_computed_again_replaces_its_rows(start: Start) -> None:
    start("20260302T011500Z").run()
    daily_usage.write_events("2026-03-01")

    start("20260302T011500Z").run()

    assert daily_usage.stored() == [("2026-03-01", "acme", 180)]


def test_a_worker_that_dies_after_the_write_writes_the_same(start: Start) -> None:
    test = start("20260302T011500Z")
    test.kill("worker.result", step="store")

    test.run()

    assert test.executed("store") == 2
    assert daily_usage.stored() == [("2026-03-01", "acme", 120)]


def test_a_database_that_is_locked_is_tried_again(start: Start) -> None:
    test = start("20260302T011500Z")
    test.mock("count_usage", [OSError("locked"), {"usage": []}])

    assert test.run(skip_waits=True).step("count").attempt == 2


def test_two_days_are_computed_at_a_time(workflow_test: type[WorkflowTest]) -> None:
    days = [{"id": f"day-{n}", "workflow": "daily-usage"} for n in range(5)]
    test = workflow_test({"steps": days}, workflows={"daily-usage": WORKFLOW})
    test.mock("usage_day", {"day": "2026-03-01"})
    test.mock("count_usage", {"usage": []}, takes="10s")
    test.mock("store_usage", {})

    test.run()
    assert test.executed("count_usage") == 2

    test.skip("10s")
    assert test.executed("count_usage") == 4


def test_the_backfill_names_its_executions_as_the_schedule_does() -> None:
    schedule = load_spec(WORKFLOW.read_text()).spec.schedule
    assert schedule is not None

    assert schedule.cron == "15 1 * * *"
    assert schedule.timezone == "UTC"
    assert backfill.execution_id(date(2026, 2, 28)) == "daily-usage:20260301T011500Z"


def test_the_backfill_covers_both_ends_and_changes_nothing_that_is_there() -> None:
    days = backfill.days_between(date(2026, 2, 27), date(2026, 3, 1))

    assert [day.isoformat() for day in days] == ["2026-02-27", "2026-02-28", "2026-03-01"]
    options = backfill.request(days[0], "label", is_again=False).options
    assert options is not None
    assert (options.conflict_policy, options.priority) == ("use_existing", 5)
