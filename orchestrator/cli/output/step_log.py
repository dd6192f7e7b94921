"""What executors said, among the entries of a history and beside the steps that said it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_log import Line

LAST_OF_A_STEP = 20
LAST_WORDS = 5
MOST_STEPS = 10
WORTH_HEARING = ("in_progress", "retry", "failed")
"""The statuses of steps whose last words `show` repeats: those that run, and those that did not get on."""

Entry = Mapping[str, Any]


def entry_of(line: Line) -> dict[str, Any]:
    """A line as an entry of a history."""
    return {
        "at": line.at,
        "step": line.step,
        "run_id": line.run_id,
        "attempt": line.attempt,
        "line": line.text,
    }


def among(entries: Iterable[Entry], lines: Iterable[Line]) -> Iterator[Entry]:
    """Entries and lines by their times. Of the same millisecond, a dispatch comes before what its run said,
    and all else after it."""

    def rank(entry: Entry) -> tuple[str, int]:
        return str(entry["at"]), 1 if "line" in entry else 0 if entry.get("to") == "in_progress" else 2

    return merge(entries, map(entry_of, lines), key=rank)


def last_words(record: WorkflowRecord, lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The last lines of each unit that is worth hearing, of a few of them."""
    told: dict[str, list[Line]] = {}
    for line in lines:
        told.setdefault(line.step, []).append(line)
    units = [unit for unit, one in record.units() if one.status in WORTH_HEARING and unit in told]
    return {unit: told[unit][-LAST_WORDS:] for unit in units[-MOST_STEPS:]}


def sections(words: Mapping[str, Sequence[Line]]) -> list[str]:
    """The last words of several units, for people."""
    return [row for unit, lines in words.items() for row in (f"{unit} says:", *rows(lines))]


def rows(lines: Sequence[Line]) -> list[str]:
    """When it was said (UTC), in which attempt if there were several, and what."""
    return [
        f"  {one.at[11:23]}  {f'(attempt {one.attempt}) ' if one.attempt > 1 else ''}{one.text}"
        for one in lines
    ]


def of_one(execution_id: str, unit: str, lines: Sequence[Line]) -> list[str]:
    """The end of what one unit said; nothing if it said nothing."""
    if not lines:
        return []
    left = len(lines) - LAST_OF_A_STEP
    step = unit.partition("#")[0]
    more = f"  and {left} before; orchestrator history {execution_id} --step {step} shows all"
    return ["says:", *rows(lines[-LAST_OF_A_STEP:]), *([more] if left > 0 else [])]
