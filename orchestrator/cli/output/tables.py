"""Columns of text for people: aligned, cut to the terminal's width, coloured by status.

table() draws and knows nothing of where its text goes. echo_table() looks: on a terminal it cuts and colours,
by rich where that is installed; into a pipe everything goes whole and plain. The information is the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.table import Table

COLOURS: Mapping[str, str] = {
    "complete": "green",
    "in progress": "cyan",
    "compensating": "magenta",
    "waiting": "blue",
    "deferred": "blue",
    "retry": "yellow",
    "on hold": "yellow",
    "paused": "yellow",
    "halted": "yellow",
    "failed": "red",
    "cancelled": "red",
}
"""By a status in words; all others have the colour of the text around them."""

GAP = "  "
MIN_COLUMN_WIDTH = 6
"""No column is cut below this many characters: then rather the line is."""


@dataclass(frozen=True, slots=True)
class Column:
    """`is_number` stands at the right; `is_status` has the colour of the status that it names."""

    title: str
    is_number: bool = False
    is_status: bool = False


def table(
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    is_coloured: bool = False,
) -> str:
    """The rows under their titles, a line each; cut to a width, if one is given, the widest column first."""
    made = _columns(columns)
    cells = [[escape_line(cell) for cell in row] for row in rows]
    titles = [column.title for column in made]
    widths = _widths(titles, cells, width)
    lines = []
    for row in [titles, *cells]:
        parts = [
            _aligned(truncate(cell, room), room, column)
            for column, cell, room in zip(made, row, widths, strict=True)
        ]
        plain = GAP.join(parts).rstrip()
        if width is not None and display_width(plain) > width:
            lines.append(truncate(plain, width))
        elif is_coloured and row is titles:
            lines.append(click.style(plain, bold=True))
        elif is_coloured:
            shown = [_painted(*cell) for cell in zip(parts, made, row, strict=True)]
            lines.append(GAP.join(shown).rstrip())
        else:
            lines.append(plain)
    return "\n".join(lines)


def echo_table(
    columns: Sequence[Column | str], rows: Sequence[Sequence[str]], stream: TextIO | None = None
) -> None:
    """Print a table as the stream wants it: the standard output, unless another is given."""
    stream = stream or sys.stdout
    if not stream.isatty():
        click.echo(table(columns, rows), stream)
    elif has_rich():
        console = _rich_console(stream)
        console.print(_rich_table(_columns(columns), rows, console.width))
    else:
        drawn = table(columns, rows, width=terminal_width(), is_coloured=is_coloured(stream))
        click.echo(drawn, stream, color=True)


def is_coloured(stream: TextIO) -> bool:
    """Whether colours may be used: on a terminal, unless somebody set NO_COLOR or the terminal has none."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def has_rich() -> bool:
    return find_spec("rich") is not None


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def colour_by_status(text: str, status: str) -> str:
    """A text in the colour of a status, which is in words."""
    colour = COLOURS.get(status)
    return click.style(text, fg=colour) if colour else text


def escape_line(text: str) -> str:
    """A text without line breaks, and without characters that move the cursor or turn the line around: what
    an executor raised is shown to people and not obeyed by their terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char.isspace() else char.encode("unicode_escape").decode()
        for char in text
    )


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def truncate(text: str, width: int) -> str:
    """A text in no more than so many columns; an ellipsis says that there is more."""
    if display_width(text) <= width:
        return text
    kept, left = "", width - 1
    for char in text:
        left -= _char_width(char)
        if left < 0:
            break
        kept += char
    return f"{kept}…" if width > 0 else ""


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _columns(columns: Sequence[Column | str]) -> list[Column]:
    return [Column(column) if isinstance(column, str) else column for column in columns]


def _widths(titles: list[str], cells: list[list[str]], width: int | None) -> list[int]:
    """How wide each column is. To fit into a width, the widest gives until all fit or none can any more."""
    widths = [max(map(display_width, texts)) for texts in zip(titles, *cells, strict=True)]
    if width is None:
        return widths
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while excess > 0 and max(widths) > MIN_COLUMN_WIDTH:
        widest = widths.index(max(widths))
        others = [one for at, one in enumerate(widths) if at != widest]
        floor = max(MIN_COLUMN_WIDTH, min(max(others, default=0), widths[widest] - 1))
        taken = min(excess, widths[widest] - floor)
        widths[widest] -= taken
        excess -= taken
    return widths


def _aligned(text: str, width: int, column: Column) -> str:
    space = " " * (width - display_width(text))
    return space + text if column.is_number else text + space


def _painted(part: str, column: Column, cell: str) -> str:
    """What stands in the table for a cell; its whole text says which status it names."""
    return colour_by_status(part, cell) if column.is_status else part


# ---- with rich


def _rich_console(stream: TextIO) -> Any:
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    cells = [[escape_line(cell) for cell in row] for row in rows]
    widths = _widths([column.title for column in columns], cells, width)
    made = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for column, room in zip(columns, widths, strict=True):
        made.add_column(
            Text(column.title),
            width=room,
            justify="right" if column.is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in cells:
        styles = [
            COLOURS.get(cell, "") if column.is_status else ""
            for column, cell in zip(columns, row, strict=True)
        ]
        made.add_row(*(Text(cell, style=style) for cell, style in zip(row, styles, strict=True)))
    return made
