"""A schedule as JSON, as `schedules --json` and the HTTP API return it."""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.schedules import Schedule, upcoming_slots
from orchestrator.application.records.events import iso

MAX_SLOTS = 3


def schedule_as_dict(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule with its next slots."""
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        "paused": schedule.is_paused,
        "next": [iso(at_ms) for at_ms in upcoming_slots(schedule, MAX_SLOTS)],
        "last": schedule.last,
        "open": list(schedule.open),
        "queued": [iso(at_ms) for at_ms in schedule.queued],
        "started": schedule.started,
        "missed": schedule.missed,
        "skipped": schedule.skipped,
    }
