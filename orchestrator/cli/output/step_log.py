"""Log lines of executors: merged into a history, and shown beside their steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any

from orchestrator.application.values.unit_id import step_of

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_log import LogLine

MAX_LINES_OF_ONE_UNIT = 20
MAX_LINES_PER_UNIT = 5
MAX_STEPS = 10
STATUSES_WITH_LOG = ("in_progress", "retry", "failed")
"""`show` prints the last log lines of units in these statuses."""

HistoryEntry = Mapping[str, Any]


def to_history_entry(line: LogLine) -> dict[str, Any]:
    return {
        "at": line.at,
        "step": line.step,
        "run_id": line.run_id,
        "attempt": line.attempt,
        "line": line.text,
    }


def merge_log_lines(entries: Iterable[HistoryEntry], lines: Iterable[LogLine]) -> Iterator[HistoryEntry]:
    """Merge history entries and log lines by time. Within a millisecond, a dispatch comes first, then log
    lines, then all other entries."""

    def rank(entry: HistoryEntry) -> tuple[str, int]:
        return str(entry["at"]), 1 if "line" in entry else 0 if entry.get("to") == "in_progress" else 2

    return merge(entries, map(to_history_entry, lines), key=rank)


def last_log_lines(record: WorkflowRecord, lines: Iterable[LogLine]) -> dict[str, list[LogLine]]:
    """Find the last lines of the last units whose status is in STATUSES_WITH_LOG."""
    by_unit: dict[str, list[LogLine]] = {}
    for line in lines:
        by_unit.setdefault(line.step, []).append(line)
    units = [unit for unit, one in record.units() if one.status in STATUSES_WITH_LOG and unit in by_unit]
    return {unit: by_unit[unit][-MAX_LINES_PER_UNIT:] for unit in units[-MAX_STEPS:]}


def format_log_sections(lines_by_unit: Mapping[str, Sequence[LogLine]]) -> list[str]:
    return [
        row for unit, lines in lines_by_unit.items() for row in (f"log of {unit}:", *format_log_lines(lines))
    ]


def format_log_lines(lines: Sequence[LogLine]) -> list[str]:
    """Format the time (UTC), the attempt if it is not the first, and the text of each line."""
    return [
        f"  {line.at[11:23]}  {f'(attempt {line.attempt}) ' if line.attempt > 1 else ''}{line.text}"
        for line in lines
    ]


def format_unit_log(execution_id: str, unit: str, lines: Sequence[LogLine]) -> list[str]:
    """Format the last lines of one unit; an empty list if it logged nothing."""
    if not lines:
        return []
    hidden = len(lines) - MAX_LINES_OF_ONE_UNIT
    step = step_of(unit)
    more = f"  and {hidden} earlier; orchestrator history {execution_id} --step {step} shows all"
    return ["log:", *format_log_lines(lines[-MAX_LINES_OF_ONE_UNIT:]), *([more] if hidden > 0 else [])]
