"""Entries of a history as lines of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orchestrator.application.values.unit_id import step_of
from orchestrator.cli.output.formatting import format_error, humanize
from orchestrator.cli.output.step_log import HistoryEntry

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

_VALUES = ("inputs", "output")
"""The fields with values, of a history that has them. `watch` does not show them."""

MAX_VALUE_CHARS = 200


class HistoryFormatter:
    """Formats entries as aligned lines: time, time since the start, step, run, attempt, cause, event; and the
    number of the commit, if the history `has_commits`."""

    def __init__(self, created_at: str, steps: Sequence[str], has_commits: bool = False) -> None:
        self._has_commits = has_commits
        self._created_at = datetime.fromisoformat(created_at)
        self._step_width = max([8, *map(len, steps)])

    @property
    def heading(self) -> str:
        return self._align("COMMIT", "TIME (UTC)", "AFTER", "STEP", "RUN", "ATTEMPT", "CAUSE", "WHAT")

    def format(self, entry: HistoryEntry) -> str:
        at = datetime.fromisoformat(entry["at"])
        return self._align(
            str(entry.get("commit", "")),
            at.isoformat(sep=" ", timespec="milliseconds")[:23],
            f"+{(at - self._created_at).total_seconds():.3f}s",
            str(entry.get("step", "workflow")),
            str(entry.get("run_id", "")),
            str(entry.get("attempt", "")),
            entry.get("cause") or "-",
            describe_entry(entry),
        )

    def _align(self, commit: str, time: str, after: str, step: str, *rest: str) -> str:
        run, attempt, cause, event = rest
        number = f"{commit:>6}  " if self._has_commits else ""
        unit = f"{step:<{self._step_width}}  {run:>3}  {attempt:>7}"
        return f"{number}{time:<23}  {after:>10}  {unit}  {cause:<17}  {event}"


def is_about(entry: HistoryEntry, step: str) -> bool:
    """Whether an entry is about a step, one of its items, or its compensation."""
    unit = str(entry.get("step", ""))
    return step in (unit, step_of(unit))


def entry_status(entry: HistoryEntry) -> str:
    """The new status of the step or of the workflow; empty if the entry changes none."""
    return humanize(str(entry.get("to") or entry.get("workflow") or ""))


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


def describe_change(entry: HistoryEntry, created_at: datetime) -> str | None:
    """Describe a change of a status, a request or a log line for `watch`; None for any other entry."""
    if not {"to", "workflow", "control", "line"} & set(entry):
        return None
    entry = {name: value for name, value in entry.items() if name not in _VALUES or "to" not in entry}
    after = (datetime.fromisoformat(entry["at"]) - created_at).total_seconds()
    attempt = f" (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
    return f"{after:8.3f} s  {entry.get('step', 'workflow')}: {describe_entry(entry)}{attempt}"


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
