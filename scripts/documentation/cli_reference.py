"""A page with every command of `orchestrator`, its arguments and its options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from orchestrator.cli import main
from scripts.documentation.markdown import cell, escape_prose

INTRODUCTION = """\
# Every command and option

This page is generated from the commands. [The command line](../cli.md) has examples of each, and the exit
codes. Every command has `--help`.
"""


def render_cli() -> str:
    root = click.Context(main, info_name="orchestrator")
    sections = [_render_command(context, command) for context, command in walk(main, root)]
    return "\n".join([INTRODUCTION, *sections])


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """This command and all below it, in the order of the help."""
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from walk(inner, click.Context(inner, info_name=name, parent=context))


def _render_command(context: click.Context, command: click.Command) -> str:
    path = context.command_path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"## {path}", "", f"```text\n{usage}\n```", "", _help_of(command), ""]
    rows = list(_rows(context, command))
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _help_of(command: click.Command) -> str:
    return escape_prose(inspect.cleandoc(command.help or "").replace("\b\n", "").partition("\f")[0])


def _rows(context: click.Context, command: click.Command) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        names, meaning = record
        if "--help" not in names:
            yield f"| `{names.replace('|', chr(92) + '|')}` | {cell(meaning)} |"
