"""Formats durations, names, statuses and errors for people to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.application.records.events import parse_iso_ms

MAX_NAMES_SHOWN = 5


def format_duration(ms: float) -> str:
    """Format a duration in its two largest units, such as `3 m 20 s`."""
    if ms < 1_000:
        return f"{max(round(ms), 0)} ms"
    s = int(ms / 1_000)
    if s < 60:
        return f"{s} s"
    if s < 3_600:
        return f"{s // 60} m {s % 60} s"
    if s < 86_400:
        return f"{s // 3_600} h {s % 3_600 // 60} m"
    return f"{s // 86_400} d {s % 86_400 // 3_600} h"


def format_ago(at: str | None, now_ms: int) -> str:
    """Format how long ago a time of the record was, as ` 7 s ago` with a leading space; empty for None."""
    if at is None:
        return ""
    return f" {format_duration(now_ms - parse_iso_ms(at))} ago"


def join_names(names: Iterable[str], max_shown: int = MAX_NAMES_SHOWN) -> str:
    """Join the first few names, and count the rest: `a, b and 3 more`."""
    every = list(names)
    parts = every[:max_shown]
    if len(every) > max_shown:
        parts.append(f"{len(every) - max_shown} more")
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def format_status(status: str) -> str:
    """Format a status for reading: `in_progress` becomes `in progress`."""
    return status.replace("_", " ")


def summarize_error(error: dict[str, Any]) -> str:
    """Return the first line of an error, with its type if it has one."""
    message = str(error.get("message") or error.get("kind") or "no reason given").strip()
    first_line = message.partition("\n")[0]
    return f"{error['type']}: {first_line}" if error.get("type") else first_line


def describe_requester(details: Mapping[str, Any]) -> str:
    """Name the requester of a control and its reason, as far as they are known; ` by ada (a duplicate)`."""
    by = f" by {details['by']}" if details.get("by") else ""
    return f"{by} ({details['reason']})" if details.get("reason") else by
