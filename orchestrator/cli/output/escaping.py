"""Words for people, in which others may have had a say: producers, executors, whoever names things.

What they wrote is shown to people and not obeyed by their terminals. What has a table or a page of its own
(tables.py, show, history, watch) is made harmless there; everything else goes through here. Programs read
--json, where nothing is changed.
"""

from __future__ import annotations

import click

from orchestrator.cli.output.tables import escape_line


def print_text(text: str, *, err: bool = False) -> None:
    click.echo(escape_control_chars(text), err=err)


def escape_control_chars(text: str) -> str:
    """A text of several lines, without characters that do something else than to be read."""
    return "\n".join(map(escape_line, text.split("\n")))
