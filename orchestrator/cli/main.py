"""The command `orchestrator` and its subcommands."""

from __future__ import annotations

from typing import Any

import click

from orchestrator import __version__
from orchestrator.cli.commands.completion import completion
from orchestrator.cli.commands.controls import (
    cancel,
    delete,
    hold,
    pause,
    release,
    rerun,
    retry,
    signal,
    unpause,
)
from orchestrator.cli.commands.convert import convert
from orchestrator.cli.commands.dead_letters import dead
from orchestrator.cli.commands.definitions import definitions
from orchestrator.cli.commands.diagnosis import doctor, health, why
from orchestrator.cli.commands.executors import executors
from orchestrator.cli.commands.graph import graph
from orchestrator.cli.commands.history import history
from orchestrator.cli.commands.list import list_executions
from orchestrator.cli.commands.payload import payload
from orchestrator.cli.commands.run import run
from orchestrator.cli.commands.schedules import schedules
from orchestrator.cli.commands.services import coordinator, worker
from orchestrator.cli.commands.show import show, status
from orchestrator.cli.commands.specs import register, schema, validate
from orchestrator.cli.commands.start import start
from orchestrator.cli.commands.verify import verify
from orchestrator.cli.commands.watch import watch
from orchestrator.cli.commands.what_if import what_if
from orchestrator.cli.errors import explain_error
from orchestrator.cli.options import Target, global_connection_options


class Commands(click.Group):
    """A group that tells a user's mistake from a defect: the first gets a message, the second a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            failure = explain_error(error, ctx.ensure_object(Target))
            if failure is None:
                raise
            raise failure from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order a newcomer needs them


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@global_connection_options
def main() -> None:
    """Durable workflows, written as data, on Redis and RQ.

    Exit codes: 0 complete, 2 wrong usage or invalid spec, 3 halted, 4 failed, 5 cancelled, 6 converted in
    part, 7 busy, try later, 1 anything else.
    """


# In groups: write and run, look, steer, find out what is wrong, run the system.
COMMANDS = (
    *(run, validate, convert, graph, schema, executors),
    *(register, definitions, schedules, start),
    *(show, status, list_executions, history, watch, payload),
    *(cancel, pause, unpause, signal, hold, release, retry, rerun, delete),
    *(why, doctor, health, verify, what_if, dead),
    *(coordinator, worker, completion),
)
for command in COMMANDS:
    main.add_command(command)
