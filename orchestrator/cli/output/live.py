"""The live display of an execution on a terminal: a title, a bar and a table of steps, redrawn in place."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from orchestrator.application.explain.formatting import humanize
from orchestrator.cli.output.console import open_console
from orchestrator.cli.output.escaping import escape_line
from orchestrator.cli.output.overview import COLUMNS, format_title, step_row
from orchestrator.cli.output.tables import build_table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.records.step_record import StepRecord

BAR_WIDTH = 24
LINES_BESIDE_STEPS = 6
"""The title, the bar, the heading of the table, the number of hidden steps, and space for the cursor."""


class LiveDisplay:
    """Draws an execution in place; other lines are printed above it. Several threads may use it.

    With `is_transient`, nothing of the drawing remains after the end.
    """

    def __init__(self, stream: TextIO, *, is_transient: bool = False) -> None:
        from rich.live import Live

        self._console = open_console(stream)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            vertical_overflow="crop",
            transient=is_transient,
            redirect_stdout=stream is sys.stdout,  # what else is printed there appears above the drawing
            redirect_stderr=stream is sys.stderr,
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def draw(self, view: StatusView, now_ms: int) -> None:
        """Draw the execution over the last drawing."""
        with self._lock:
            self._live.update(build_frame(view, now_ms, self._console.height), refresh=True)

    def draw_lines(self, lines: Sequence[str]) -> None:
        """Draw lines of text over the last drawing."""
        from rich.console import Group

        with self._lock:
            self._live.update(Group(*map(_make_line, lines)), refresh=True)

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the terminal."""
        return self._console.width, self._console.height

    def print_text(self, line: str) -> None:
        """Print a line above the drawing."""
        from rich.text import Text

        with self._lock:
            self._console.print(Text(escape_line(line)), soft_wrap=True)

    def stop(self) -> None:
        """Stop drawing; lines can still be printed."""
        with self._lock:
            self._live.stop()


def build_frame(view: StatusView, now_ms: int, max_lines: int) -> Group:
    """Build a drawing of at most `max_lines` lines. If there are too many steps, active ones come first."""
    from rich.console import Group
    from rich.text import Text

    units = list(view.record.steps.items())
    shown = _select_steps(units, max(max_lines - LINES_BESIDE_STEPS, 1))
    head = (format_title(view.record, now_ms), format_bar(view))
    parts = [_make_line(line) for line in head]
    rows = [step_row(view, unit, step, now_ms) for unit, step in shown]
    table = [build_table(COLUMNS, rows)] if rows else []
    hidden = [Text(f"and {len(units) - len(shown)} more")] if len(shown) < len(units) else []
    return Group(*parts, *table, *hidden)


def _make_line(text: str) -> Text:
    """Make a line that is cut at the edge of the terminal."""
    from rich.text import Text

    return Text(escape_line(text), no_wrap=True, overflow="ellipsis")


def format_bar(view: StatusView) -> str:
    """Format the number of finished steps, as a bar and in words."""
    steps = view.record.steps
    count = len(steps)
    final = sum(step.is_final for step in steps.values())
    filled = BAR_WIDTH if not count else BAR_WIDTH * final // count
    statuses = Counter(view.status_of(unit, step) for unit, step in steps.items())
    others = [f"{statuses[one]} {humanize(one)}" for one in statuses if one not in ("ready", "complete")]
    return ", ".join([f"{'█' * filled}{'░' * (BAR_WIDTH - filled)} {final} of {count} steps", *others])


def _select_steps(units: Sequence[tuple[str, StepRecord]], max_count: int) -> list[tuple[str, StepRecord]]:
    """Select active steps, then failed ones, then others; they stay in the order of the spec."""

    def rank(index: int) -> tuple[int, int]:
        step = units[index][1]
        return (0 if step.is_active else 1 if step.error is not None else 2), index

    return [units[index] for index in sorted(sorted(range(len(units)), key=rank)[:max_count])]
