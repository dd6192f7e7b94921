"""Text that contains data of users, safe for a terminal.

Producers, executors and workflow files choose names, messages and values. Control characters in them could
move the cursor, change colours or reorder text, so they are printed as escapes (`\\x1b`). Everything that is
printed for people passes through here. --json output is not changed: JSON escapes control characters itself.
"""

from __future__ import annotations

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
