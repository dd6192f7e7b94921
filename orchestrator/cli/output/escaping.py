"""Text that contains data of users, safe for a terminal.

Producers, executors and workflow files choose names, messages and values. Control characters in them could
move the cursor, change colours or reorder text, so they are printed as escapes (`\\x1b`). Everything that is
printed for people passes through here. JSON output passes through print_json: the same characters become
\\u escapes of JSON, so a parser gets the original text. (json.dumps leaves DEL and all others above it.)
"""

from __future__ import annotations

import json
from typing import Any

import click


def print_text(text: str, *, err: bool = False) -> None:
    """Print text of one or several lines."""
    click.echo(escape_control_chars(text), err=err)


def escape_control_chars(text: str) -> str:
    """Escape control characters, but keep the line breaks."""
    return "\n".join(map(escape_line, text.split("\n")))


def escape_line(text: str) -> str:
    """Escape control characters; a line break or another white space becomes a space."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char.isspace() else char.encode("unicode_escape").decode()
        for char in text
    )


def print_json(value: Any, indent: int | None = None) -> None:
    """Print a value as JSON: the only way in which commands print JSON."""
    click.echo(format_json(value, indent))


def format_json(value: Any, indent: int | None = None) -> str:
    """Format a value as JSON. Every character of it is printable, except the line breaks of the indent."""
    lines = json.dumps(value, indent=indent, ensure_ascii=False).split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_escape_in_json, line)) for line in lines)


def _escape_in_json(char: str) -> str:
    """Escape a character if it is not printable. In a line of json.dumps it is then inside of a string."""
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")  # JSON writes a character above U+FFFF as two escapes
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
