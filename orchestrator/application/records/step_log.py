"""The step log: lines that executors write while they run, by `log` and by the notes of a heartbeat.

Log lines belong to an execution and are kept as long as it is. No decision reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.application.values.unit_id import step_of

MAX_LINES_PER_RUN = 1_000
"""The lines that one run of a step may write."""
MAX_LINE_LENGTH = 2_000
"""The characters that are kept of a line."""
MAX_LINES_PER_EXECUTION = 10_000
"""The lines that are kept for one execution, approximately: the newest ones."""
LINES_OMITTED = "... more lines were left out"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log line. `step` is a unit id: a step, an item of a map (m#0), or a compensation (a#undo)."""

    step: str
    run_id: int
    attempt: int
    at: str
    text: str


class StepLogLimiter:
    """Limits the log lines of one run."""

    def __init__(self) -> None:
        self._line_count = 0

    def accept(self, text: str) -> list[str]:
        """Split a text into lines, cut long lines, and return those within the limit of the run."""
        kept: list[str] = []
        if self._line_count > MAX_LINES_PER_RUN:
            return kept
        for line in text.splitlines() or [""]:
            self._line_count += 1
            if self._line_count > MAX_LINES_PER_RUN:
                return [*kept, LINES_OMITTED]
            cut = line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}..."
            kept.append(cut.encode(errors="replace").decode())  # half a surrogate pair cannot be stored
        return kept


def filter_by_step(lines: Iterable[LogLine], step: str | None) -> list[LogLine]:
    """The lines of one unit; for a step, also those of its items and its compensation. All lines for None."""
    return [line for line in lines if step is None or step in (line.step, step_of(line.step))]
