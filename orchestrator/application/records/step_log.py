"""What executors say while they run, line by line: by `log`, and by the notes of a heartbeat.

Lines belong to an execution and are kept as long as it is. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_LINES_PER_RUN = 1_000
"""How many lines one run of a step may say."""
MAX_LINE_LENGTH = 2_000
"""How many characters of a line are kept."""
MAX_LINES_PER_EXECUTION = 10_000
"""How many lines of one execution are kept, about: the newest."""
LINES_OMITTED = "... more lines were left out"


@dataclass(frozen=True, slots=True)
class LogLine:
    """`step` is that of a dispatch: a step, an item of a map (m#0), or a compensation (a#undo)."""

    step: str
    run_id: int
    attempt: int
    at: str
    text: str


class StepLogLimiter:
    """How much one run may still say."""

    def __init__(self) -> None:
        self._said = 0

    def lines(self, text: str) -> list[str]:
        """What is kept of a text: its lines, cut where they are too long, as long as there is room."""
        kept: list[str] = []
        if self._said > MAX_LINES_PER_RUN:
            return kept
        for line in text.splitlines() or [""]:
            self._said += 1
            if self._said > MAX_LINES_PER_RUN:
                return [*kept, LINES_OMITTED]
            cut = line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}..."
            kept.append(cut.encode(errors="replace").decode())  # half a surrogate pair cannot be stored
        return kept


def filter_by_step(lines: Iterable[LogLine], step: str | None) -> list[LogLine]:
    """The lines of a step, of its items and of its compensation; of an item alone; or all of them."""
    return [one for one in lines if step is None or one.step == step or one.step.startswith(f"{step}#")]
