"""The console of rich: colours and the terminal's width on a terminal, plain whole lines everywhere else.

User data is printed as rich's Text or with markup off, so `[red]` and `:smile:` stay as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

import click

from orchestrator.cli.output.escaping import escape_line

if TYPE_CHECKING:
    from rich.console import Console

STATUS_STYLES: Mapping[str, str] = {
    "complete": "green",
    "in progress": "cyan",
    "compensating": "magenta",
    "queued": "blue",
    "waiting": "blue",
    "deferred": "blue",
    "retry": "yellow",
    "on hold": "yellow",
    "paused": "yellow",
    "halted": "yellow",
    "failed": "red",
    "cancelled": "red",
}
"""The colour of a status, by its text; a status that is not listed has no colour."""

UNLIMITED_WIDTH = 1_000_000


def open_console(stream: TextIO) -> Console:
    """Open a console. NO_COLOR and TERM=dumb turn colours off; FORCE_COLOR does not turn a pipe into a
    terminal, because scripts read pipes."""
    from rich.console import Console

    is_terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=is_terminal,
        force_jupyter=False,
        width=None if is_terminal else UNLIMITED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


class LinePrinter:
    """Prints lines one by one: on a terminal cut to its width and coloured by status."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._console = open_console(self._stream) if self._stream.isatty() else None

    def print(self, line: str, status: str = "") -> None:
        line = escape_line(line)
        if self._console is None:
            click.echo(line, self._stream)
            return
        from rich.text import Text

        style = STATUS_STYLES.get(status, "")
        self._console.print(Text(line, style), no_wrap=True, overflow="ellipsis")


def can_redraw(stream: TextIO) -> bool:
    """Whether text on the stream can be overwritten: a terminal that knows cursor movements."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
