"""The clock of a rehearsal, and how its times are read and written."""

from __future__ import annotations

from datetime import UTC, datetime


class Clock:
    """Stands still until it is moved."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def __call__(self) -> int:
        return self.at_ms


def to_datetime(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def format_time(at: datetime) -> str:
    """ISO 8601 in UTC, with milliseconds only where there are some."""
    spec = "milliseconds" if at.microsecond else "seconds"
    return at.isoformat(timespec=spec).replace("+00:00", "Z")
