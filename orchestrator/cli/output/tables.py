"""Tables, drawn by rich: on a terminal they fit its width and have colours; elsewhere they are plain text."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

from orchestrator.cli.output.console import STATUS_STYLES, open_console
from orchestrator.cli.output.escaping import escape_line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

GAP = 2
"""Spaces between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Where the terminal is too narrow, a cell is cut, or wrapped if `is_wrapped`."""

    title: str
    is_number: bool = False
    is_status: bool = False
    is_wrapped: bool = False


def print_table(
    columns: Sequence[Column | str], rows: Sequence[Sequence[str]], stream: TextIO | None = None
) -> None:
    """Print a table to a stream, by default the standard output."""
    stream = stream or sys.stdout
    if stream.isatty():
        open_console(stream).print(build_table(columns, rows))
    else:
        click.echo(format_table(columns, rows), stream)


def format_table(columns: Sequence[Column | str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as plain text: no cell is cut, and no line ends with spaces."""
    buffer = io.StringIO()
    open_console(buffer).print(build_table(columns, rows))
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n"))


def build_table(columns: Sequence[Column | str], rows: Sequence[Sequence[str]]) -> Table:
    """Build the table for rich. Numbers are aligned to the right; a status has its colour."""
    from rich.table import Table

    made = [Column(column) if isinstance(column, str) else column for column in columns]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in made:
        table.add_column(_text(column.title), justify="right" if column.is_number else "left")
    for row in rows:
        table.add_row(*(_cell(column, cell) for column, cell in zip(made, row, strict=True)))
    return table


def _cell(column: Column, cell: str) -> Text:
    style = STATUS_STYLES.get(cell, "") if column.is_status else ""
    return _text(cell, style, is_wrapped=column.is_wrapped)


def _text(text: str, style: str = "", *, is_wrapped: bool = False) -> Text:
    # The text has no_wrap, and not the column: rich narrows only columns that may wrap, the widest first.
    from rich.text import Text

    if is_wrapped:
        return Text(escape_line(text), style, overflow="fold")
    return Text(escape_line(text), style, no_wrap=True, overflow="ellipsis")
