"""Groups of commands: headings in --help, summaries that are never cut, old names as hidden aliases."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from orchestrator.cli.errors import InterruptedBySignal, explain_error
from orchestrator.cli.options import Target

MAX_SUMMARY_CHARS = 200
"""Far more than any summary has. click cuts a summary to the width of the terminal; here it wraps instead."""


class CommandGroup(click.Group):
    """Lists its commands in the order in which they were added, each with its whole summary."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_section(formatter, "Commands", self.commands.values(), _name_width(self.commands))


class RootGroup(CommandGroup):
    """The command `orchestrator`: its commands stand under headings, and some have an old name.

    A user's mistake ends with a message and an exit code; only a defect of the program has a traceback.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._sections: list[tuple[str, Sequence[click.Command]]] = []
        self._aliases: dict[str, str] = {}

    @property
    def aliases(self) -> Mapping[str, str]:
        """The current name of a command by its old name."""
        return self._aliases

    def add_section(self, heading: str, commands: Sequence[click.Command]) -> None:
        self._sections.append((heading, commands))
        for command in commands:
            self.add_command(command)

    def add_aliases(self, aliases: Mapping[str, str]) -> None:
        self._aliases |= aliases

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = _name_width(self.commands)
        for heading, commands in self._sections:
            _write_section(formatter, heading, commands, width)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve an old name to the current one; the hint is for people, so a script never sees it."""
        name = self._aliases.get(args[0])
        if name is None:
            return super().resolve_command(ctx, args)
        if sys.stderr.isatty() and not ctx.resilient_parsing:
            click.echo(f"hint: `orchestrator {args[0]}` is now `orchestrator {name}`", err=True)
        return super().resolve_command(ctx, [name, *args[1:]])

    def invoke(self, ctx: click.Context) -> Any:
        target = ctx.ensure_object(Target)  # one for all commands: options after a command change it too
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedBySignal(signal.SIGINT) from None
        except click.Abort as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # ^C at a question; click drops the cause
                raise InterruptedBySignal(signal.SIGINT) from None
            raise
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            failure = explain_error(error, target)
            if failure is None:
                raise
            raise failure from error


def _name_width(names: Iterable[str]) -> int:
    return max(map(len, names), default=0)


def _write_section(
    formatter: click.HelpFormatter, heading: str, commands: Iterable[click.Command], width: int
) -> None:
    """`width` is that of the longest name of all sections, so that their summaries stand in one column."""
    rows = [
        ((command.name or "").ljust(width), command.get_short_help_str(MAX_SUMMARY_CHARS))
        for command in commands
        if not command.hidden
    ]
    with formatter.section(heading):
        formatter.write_dl(rows)
