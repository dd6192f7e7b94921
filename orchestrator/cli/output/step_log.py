"""What executors said, among the entries of a history and beside the steps that said it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_log import LogLine

MAX_LINES_OF_ONE_UNIT = 20
MAX_LINES_PER_UNIT = 5
MAX_STEPS = 10
STATUSES_WITH_LOG = ("in_progress", "retry", "failed")
"""The statuses of steps whose last words `show` repeats: those that run, and those that did not get on."""

HistoryEntry = Mapping[str, Any]


def to_history_entry(line: LogLine) -> dict[str, Any]:
    """A line as an entry of a history."""
    return {
        "at": line.at,
        "step": line.step,
        "run_id": line.run_id,
        "attempt": line.attempt,
        "line": line.text,
    }


def merge_log_lines(entries: Iterable[HistoryEntry], lines: Iterable[LogLine]) -> Iterator[HistoryEntry]:
    """Entries and lines by their times. Of the same millisecond, a dispatch comes before what its run said,
    and all else after it."""

    def rank(entry: HistoryEntry) -> tuple[str, int]:
        return str(entry["at"]), 1 if "line" in entry else 0 if entry.get("to") == "in_progress" else 2

    return merge(entries, map(to_history_entry, lines), key=rank)


def last_log_lines(record: WorkflowRecord, lines: Iterable[LogLine]) -> dict[str, list[LogLine]]:
    """The last lines of each unit that is worth hearing, of a few of them."""
    told: dict[str, list[LogLine]] = {}
    for line in lines:
        told.setdefault(line.step, []).append(line)
    units = [unit for unit, one in record.units() if one.status in STATUSES_WITH_LOG and unit in told]
    return {unit: told[unit][-MAX_LINES_PER_UNIT:] for unit in units[-MAX_STEPS:]}


def format_log_sections(words: Mapping[str, Sequence[LogLine]]) -> list[str]:
    """The last words of several units, for people."""
    return [row for unit, lines in words.items() for row in (f"{unit} says:", *format_log_lines(lines))]


def format_log_lines(lines: Sequence[LogLine]) -> list[str]:
    """When it was said (UTC), in which attempt if there were several, and what."""
    return [
        f"  {one.at[11:23]}  {f'(attempt {one.attempt}) ' if one.attempt > 1 else ''}{one.text}"
        for one in lines
    ]


def format_unit_log(execution_id: str, unit: str, lines: Sequence[LogLine]) -> list[str]:
    """The end of what one unit said; nothing if it said nothing."""
    if not lines:
        return []
    left = len(lines) - MAX_LINES_OF_ONE_UNIT
    step = unit.partition("#")[0]
    more = f"  and {left} before; orchestrator history {execution_id} --step {step} shows all"
    return ["says:", *format_log_lines(lines[-MAX_LINES_OF_ONE_UNIT:]), *([more] if left > 0 else [])]
