"""Live progress: what an execution looks like right now, and screens that draw it over and over."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from orchestrator.cli.output.overview import COLUMNS, format_title, step_row
from orchestrator.cli.output.progress import UP_AND_CLEAR
from orchestrator.cli.output.report import humanize
from orchestrator.cli.output.tables import escape_line, has_rich, is_coloured, table, truncate

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import StepRecord

BAR_WIDTH = 24
LINES_BESIDE_STEPS = 6
"""The title, the bar, the titles of the columns, how many are not shown, and room for the cursor."""


def render_frame(
    record: WorkflowRecord, now_ms: int, columns: int, lines: int, *, is_coloured: bool = False
) -> list[str]:
    """The title, a bar, and a line for each step that there is room for: those that move come first."""
    units = list(record.steps.items())
    shown = _chosen(units, max(lines - LINES_BESIDE_STEPS, 1))
    rows = [step_row(record, unit, step, now_ms) for unit, step in shown]
    drawn = [
        truncate(escape_line(line), columns) for line in (format_title(record, now_ms), render_bar(record))
    ]
    if rows:
        drawn += table(COLUMNS, rows, width=columns, is_coloured=is_coloured).splitlines()
    if len(shown) < len(units):
        drawn.append(f"and {len(units) - len(shown)} more")
    return drawn


def render_bar(record: WorkflowRecord) -> str:
    """How many steps are final, as a bar and in words."""
    count = len(record.steps)
    final = sum(step.is_final for step in record.steps.values())
    filled = BAR_WIDTH if not count else BAR_WIDTH * final // count
    others = Counter(step.status.value for step in record.steps.values())
    told = [f"{others[one]} {humanize(one)}" for one in others if one not in ("ready", "complete")]
    return ", ".join([f"{'█' * filled}{'░' * (BAR_WIDTH - filled)} {final} of {count} steps", *told])


def _chosen(units: Sequence[tuple[str, StepRecord]], room: int) -> list[tuple[str, StepRecord]]:
    def rank(at: int) -> tuple[int, int]:
        step = units[at][1]
        return (0 if step.is_active else 1 if step.error is not None else 2), at

    return [units[at] for at in sorted(sorted(range(len(units)), key=rank)[:room])]


class Screen(Protocol):
    def draw(self, record: WorkflowRecord, now_ms: int) -> None:
        """Show how the execution stands, in place of what was shown before."""

    def print_text(self, line: str) -> None:
        """Show a remark above it."""


@contextmanager
def open_screen(stream: TextIO) -> Iterator[Screen]:
    if not has_rich():
        yield PlainScreen(stream)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield RichScreen(live)


class PlainScreen:
    """Writes over what it wrote, by two codes that every terminal knows."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._drawn = stream, list[str]()

    def draw(self, record: WorkflowRecord, now_ms: int) -> None:
        columns, lines = shutil.get_terminal_size()
        # One column less: a line that fills the terminal would make some of them begin a new one.
        self._put(render_frame(record, now_ms, columns - 1, lines, is_coloured=is_coloured(self._stream)))

    def print_text(self, line: str) -> None:
        drawn = self._drawn
        self._put([])
        self._stream.write(f"{line}\n")
        self._put(drawn)

    def _put(self, lines: list[str]) -> None:
        self._stream.write(UP_AND_CLEAR * len(self._drawn) + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = lines


class RichScreen:
    """The same, drawn by rich."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def draw(self, record: WorkflowRecord, now_ms: int) -> None:
        from rich.text import Text

        columns, lines = self._live.console.size
        drawn = render_frame(
            record, now_ms, columns - 1, lines, is_coloured=True
        )  # rich takes colours away itself
        self._live.update(Text.from_ansi("\n".join(drawn), no_wrap=True), refresh=True)

    def print_text(self, line: str) -> None:
        self._live.console.print(click.unstyle(line))
