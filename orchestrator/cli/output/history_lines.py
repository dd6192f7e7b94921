"""Entries of a history as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orchestrator.application.explain.formatting import humanize
from orchestrator.application.explain.history_text import describe_entry
from orchestrator.application.values.unit_id import step_of
from orchestrator.cli.output.step_log import HistoryEntry

_VALUES = ("inputs", "output")
"""The fields with values, of a history that has them. `watch` does not show them."""


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


def describe_change(entry: HistoryEntry, created_at: datetime) -> str | None:
    """Describe a change of a status, a request or a log line for `watch`; None for any other entry."""
    if not {"to", "workflow", "control", "line"} & set(entry):
        return None
    entry = {name: value for name, value in entry.items() if name not in _VALUES or "to" not in entry}
    after = (datetime.fromisoformat(entry["at"]) - created_at).total_seconds()
    attempt = f" (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
    return f"{after:8.3f} s  {entry.get('step', 'workflow')}: {describe_entry(entry)}{attempt}"
