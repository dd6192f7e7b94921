"""Tables in Markdown, with columns that a terminal shows as well."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are figures unless one of their cells has spaces."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    is_text = [
        column == 0 or any(" " in row[column].strip("× ") for row in rows) for column in range(len(head))
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
    return "\n".join([line(head), f"|{'|'.join(rule)}|", *map(line, rows)])
