"""How times, names and errors are said to people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.application.records.events import parse_iso_ms

MAX_NAMES_SHOWN = 5


def format_duration(ms: float) -> str:
    """A span of time in its two largest units."""
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
    """How long ago a time of the record was, with a space before it; nothing if it has none."""
    if at is None:
        return ""
    return f" {format_duration(now_ms - parse_iso_ms(at))} ago"


def join_names(names: Iterable[str], shown: int = MAX_NAMES_SHOWN) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    words = every[:shown]
    if len(every) > shown:
        words.append(f"{len(every) - shown} more")
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def format_status(status: str) -> str:
    return status.replace("_", " ")


def summarize_error(error: dict[str, Any]) -> str:
    """The first line of an error."""
    message = str(error.get("message") or error.get("kind") or "no reason was given").strip()
    line = message.partition("\n")[0]
    return f"{error['type']}: {line}" if error.get("type") else line
