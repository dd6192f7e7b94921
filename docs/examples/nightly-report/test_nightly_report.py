"""Tests of the nightly report: `pytest` in this folder. Six hours of waiting take milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fake_office
import pytest

from orchestrator.testing import WorkflowTest

WORKFLOW = Path(__file__).with_name("workflow.yaml")
SLOT = "nightly-report:20260301T233000Z"  # 00:30 of the next day in Berlin
Start = Callable[..., WorkflowTest]


@pytest.fixture
def start(
    workflow_test: type[WorkflowTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WorkflowTest]:
    monkeypatch.setenv("OFFICE_DB", str(tmp_path / "office.db"))
    monkeypatch.setenv("REPORTS", str(tmp_path / "reports"))
    fake_office.sell("2026-03-01", "berlin", 1250)
    fake_office.sell("2026-03-01", "rome", 800)

    def start(execution_id: str = SLOT, **inputs: str) -> WorkflowTest:
        return workflow_test(
            WORKFLOW,
            inputs,
            executors="nightly_report",
            execution_id=execution_id,
            starts_at="2026-03-01T23:30:00Z",
        )

    return start


def test_a_slot_reports_the_day_before(start: Start, tmp_path: Path) -> None:
    fake_office.close_books("2026-03-01")

    test = start().run()

    assert test.outcome == {"day": "2026-03-01", "file": "2026-03-01.csv", "total": 2050}
    assert (tmp_path / "reports" / "2026-03-01.csv").read_text() == "shop,total\nberlin,1250\nrome,800\n"
    assert fake_office.mails() == ["Sales of 2026-03-01: 2026-03-01.csv"]


@pytest.mark.parametrize(
    ("slot", "day"),
    [
        ("nightly-report:20260228T233000Z", "2026-02-28"),  # 00:30 in winter
        ("nightly-report:20260328T233000Z", "2026-03-28"),  # 00:30, two hours before summer time
        ("nightly-report:20260329T223000Z", "2026-03-29"),  # 00:30 in summer
    ],
)
def test_the_day_is_that_of_the_slot_in_its_time_zone(start: Start, slot: str, day: str) -> None:
    assert start(slot).run().step("period").output == {"day": day}


def test_the_report_waits_until_all_shops_have_closed_their_books(start: Start) -> None:
    fake_office.close_books("2026-03-01", "berlin", "paris")
    test = start().run()
    assert test.step("sales").error["message"] == "2026-03-01 is still open in rome"
    assert test.waits_for == ["sales: back-off before attempt 2 until 2026-03-01T23:40:00Z"]

    fake_office.close_books("2026-03-01")
    test.run(skip_waits=True)

    assert test.status == "complete"
    assert test.executed("sales") == 2


def test_books_that_stay_open_fail_the_report_after_six_hours(start: Start) -> None:
    test = start().run(skip_waits=True)

    assert test.status == "failed"
    assert test.error["type"] == "BooksOpen"
    assert test.now.isoformat() == "2026-03-02T05:30:00+00:00"
    assert fake_office.mails() == []


def test_a_day_can_be_reported_by_hand_and_again(start: Start, tmp_path: Path) -> None:
    fake_office.close_books("2026-03-01")
    start().run()
    fake_office.sell("2026-03-01", "paris", 10)

    test = start("by-hand", day="2026-03-01").run()

    assert test.outcome["total"] == 2060
    assert len(fake_office.mails()) == 1
    assert "paris,10" in (tmp_path / "reports" / "2026-03-01.csv").read_text()


def test_a_day_that_is_no_day_fails_at_once(start: Start) -> None:
    test = start("by-hand", day="yesterday")

    assert test.run(skip_waits=True).error["type"] == "ValueError"
    assert test.executed("sales") == 0


def test_a_worker_that_dies_after_the_mail_sends_one(start: Start) -> None:
    fake_office.close_books("2026-03-01")
    test = start()
    test.kill("worker.result", step="mail")

    test.run()

    assert test.executed("mail") == 2
    assert len(fake_office.mails()) == 1
