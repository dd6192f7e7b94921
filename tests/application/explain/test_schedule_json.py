"""A schedule as JSON."""

from __future__ import annotations

from orchestrator.application.engine.schedules import Schedule
from orchestrator.application.explain.schedule_json import schedule_as_dict


def test_a_schedule_as_json_has_its_next_slots() -> None:
    schedule = Schedule(
        "report", "0 6 * * *", "UTC", "one", "queue", 1_767_247_200_000, queued=(1_767_160_800_000,)
    )

    assert schedule_as_dict(schedule) == {
        "name": "report",
        "cron": "0 6 * * *",
        "timezone": "UTC",
        "catch_up": "one",
        "overlap": "queue",
        "paused": False,
        "next": ["2026-01-01T06:00:00.000Z", "2026-01-02T06:00:00.000Z", "2026-01-03T06:00:00.000Z"],
        "last": None,
        "open": [],
        "queued": ["2025-12-31T06:00:00.000Z"],
        "started": 0,
        "missed": 0,
        "skipped": 0,
    }
