"""Statuses, times, durations and errors as short text for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.step_record import ItemCounts


def humanize(status: str) -> str:
    return status.replace("_", " ")


def format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_duration(duration_s: float) -> str:
    """Format a duration by its two largest units."""
    if duration_s < 0.9995:
        return f"{duration_s * 1000:.0f} ms"
    if duration_s < 59.95:
        return f"{duration_s:.1f} s"
    whole = round(duration_s)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole // 60} m {whole % 60} s"


def format_interval(started_at: str | None, ended_at: str | None) -> str | None:
    if started_at is None or ended_at is None:
        return None
    duration = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    return format_duration(max(duration.total_seconds(), 0.0))


def format_past_time(iso: str, now_ms: int) -> str:
    """Format a time and its age: 2026-01-01 00:00:00 UTC, 12 s ago."""
    return f"{iso[:10]} {iso[11:19]} UTC, {format_duration(max(now_ms - parse_iso_ms(iso), 0) / 1000)} ago"


def format_countdown(at_ms: int, now_ms: int) -> str:
    return f"in {format_duration((at_ms - now_ms) / 1000)}" if at_ms > now_ms else "now"


def format_facts(facts: Mapping[str, str | None]) -> list[str]:
    """Format facts as aligned lines; a fact that is None is left out."""
    known = {name: text for name, text in facts.items() if text is not None}
    width = max(map(len, known), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in known.items()]


def format_error(error: dict[str, Any]) -> str:
    """Format an error on one line: its type and the first line of its message."""
    message = str(error.get("message") or error.get("kind") or error).strip().partition("\n")[0]
    return f"{error['type']}: {message}" if error.get("type") else message


def format_item_counts(counts: ItemCounts) -> str:
    """Format how far a map is: 12/100 items, 1 failed."""
    parts = [f"{counts.settled}/{counts.count} items"]
    if counts.errors:
        parts.append(f"{counts.errors} failed")
    if counts.out:
        parts.append(f"{counts.out} in progress")
    return ", ".join(parts)
