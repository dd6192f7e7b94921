"""Entries of a history in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.application.explain.formatting import format_error, humanize

HistoryEntry = Mapping[str, Any]

VERBS = {
    "ready": "reset",
    "deferred": "deferred",
    "waiting": "waits",
    "in_progress": "dispatched",
    "retry": "retry scheduled",
    "on_hold": "held",
    "complete": "complete",
    "failed": "failed",
    "skipped": "skipped",
    "filtered": "filtered",
    "cancelled": "cancelled",
    "halted": "halted",
}
"""What happened to a step, by its new status."""

_COLUMN_FIELDS = frozenset(
    {"at", "cause", "step", "run_id", "attempt", "commit", "from", "to", "workflow", "control", "by"}
)
"""The fields that have a column of their own, or are part of the description already."""

MAX_VALUE_CHARS = 200


def describe_entry(entry: HistoryEntry) -> str:
    """Describe an entry in words; a field without words is shown with its name and value."""
    parts = []
    if "to" in entry:
        parts.append(describe_move(entry))
    if "workflow" in entry:
        parts.append(f"is {humanize(entry['workflow'])}")
    if "control" in entry:
        by = f" by {entry['by']}" if entry.get("by") else ""
        parts.append(f"{entry['control']} requested{by}")
    for name, value in entry.items():
        if name not in _COLUMN_FIELDS:
            parts.append(_describe_field(name, value))
    return ": ".join(parts[:2]) + "".join(f"; {part}" for part in parts[2:])


def describe_move(entry: HistoryEntry) -> str:
    """Describe a change of the status of a step. A step that was dispatched may still be in its queue."""
    before, after = entry.get("from"), str(entry["to"])
    if before == "on_hold":
        return f"released, now {humanize(after)}"
    if before == after == "in_progress":
        return "dispatched again"
    return VERBS.get(after, humanize(after))


def _describe_field(name: str, value: Any) -> str:
    match name:
        case "error" if isinstance(value, dict):
            final = f"; not retried: {value['not_retried']}" if value.get("not_retried") else ""
            return f"{format_error(value)}{final}"
        case "reason" | "log":
            return str(value)
        case "line":
            return f"log: {value}"
        case "signal":
            return f"signal {value} kept until a step waits for it"
        case "inputs" if isinstance(value, list):
            return f"replaced inputs: {', '.join(map(str, value))}"
        case "inputs" | "output" if isinstance(value, dict):
            return f"{name.removesuffix('s')} {_cut(json.dumps(value, ensure_ascii=False))}"
        case "state_changed" if isinstance(value, list):
            return f"state changed: {', '.join(map(str, value))}"
        case "state_removed" if isinstance(value, list):
            return f"removed from the state: {', '.join(map(str, value))}"
        case "shared":
            return f"shared {value}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{humanize(name)} {text}"


def _cut(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARS:
        return text
    return f"{text[:MAX_VALUE_CHARS]} ... ({len(text.encode()):,} bytes in all; --json shows them)"
