"""The progress of `orchestrator run` on the standard error: redrawn in place on a terminal, else lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from orchestrator.application.explain.formatting import format_error
from orchestrator.application.explain.history_text import describe_move
from orchestrator.cli.output.console import can_redraw
from orchestrator.cli.output.escaping import escape_line
from orchestrator.cli.output.values import redact_value

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.cli.output.live import LiveDisplay


class Progress(Protocol):
    def print_text(self, line: str, child: str = "") -> None:
        """Print a line of `run` itself, or one that a child process or an executor printed."""

    def show(self, view: StatusView, history: Iterable[dict[str, Any]]) -> None:
        """Show the current state of the execution."""


@contextmanager
def open_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    stream = stream or sys.stderr
    if not can_redraw(stream):
        yield PlainProgress(stream)
        return
    from orchestrator.cli.output.live import LiveDisplay

    with LiveDisplay(stream, is_transient=True) as display:
        yield LiveProgress(display)


class PlainProgress:
    """Prints one line for each change of a step."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._seen = stream, 0

    def print_text(self, line: str, child: str = "") -> None:
        print(escape_line(_with_child(child, line)), file=self._stream, flush=True)

    def show(self, view: StatusView, history: Iterable[dict[str, Any]]) -> None:
        entries = list(history)
        for entry in entries[self._seen :]:
            if "to" in entry:
                self.print_text(self._format(view.record, entry))
        self._seen = len(entries)

    def _format(self, record: WorkflowRecord, entry: dict[str, Any]) -> str:
        after = datetime.fromisoformat(entry["at"]) - datetime.fromisoformat(record.created_at)
        attempt = f" (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
        error = f": {format_error(redact_value(record, entry['error']))}" if entry.get("error") else ""
        return f"{after.total_seconds():8.3f} s  {entry['step']}: {describe_move(entry)}{attempt}{error}"


class LiveProgress:
    """Draws the steps in place. At the end the drawing disappears: the summary on the standard output
    replaces it.

    The times in a record are those of Redis; its clock is assumed to agree with that of this host.
    """

    def __init__(self, display: LiveDisplay) -> None:
        self._display = display

    def print_text(self, line: str, child: str = "") -> None:
        self._display.print_text(_with_child(child, line))

    def show(self, view: StatusView, history: Iterable[dict[str, Any]]) -> None:
        if view.record.is_final:
            self._display.stop()
        else:
            self._display.draw(view, round(time.time() * 1000))


def _with_child(child: str, line: str) -> str:
    return f"{child}: {line}" if child else line
