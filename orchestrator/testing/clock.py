"""The clock of a workflow test, and the format of its times."""

from __future__ import annotations

from datetime import UTC, datetime


class Clock:
    """A clock that stands still until `at_ms` is set."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def __call__(self) -> int:
        return self.at_ms


def to_datetime(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def format_time(at: datetime) -> str:
    """Format a time as ISO 8601 in UTC, with milliseconds only if they are not zero."""
    spec = "milliseconds" if at.microsecond else "seconds"
    return at.isoformat(timespec=spec).replace("+00:00", "Z")
