"""Tables in Markdown, with aligned columns for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table. Columns with numbers are aligned right; the first and those with spaces are text."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    is_text = [
        column == 0 or any(" " in row[column].strip("× ") for row in rows) for column in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(cells, widths, is_text, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = (
        "-" * (width + 2) if text else "-" * (width + 1) + ":"
        for width, text in zip(widths, is_text, strict=True)
    )
    return "\n".join([line(header), f"|{'|'.join(rule)}|", *map(line, rows)])
