"""The command `orchestrator` and its subcommands."""

from __future__ import annotations

from typing import Any

import click

from orchestrator import __version__
from orchestrator.cli.conversions import convert
from orchestrator.cli.dead import dead
from orchestrator.cli.executions import start, status
from orchestrator.cli.failures import explained
from orchestrator.cli.options import Target, global_connection_options
from orchestrator.cli.run import run
from orchestrator.cli.services import coordinator, worker
from orchestrator.cli.specs import register, schema, validate
from orchestrator.cli.verify import verify
from orchestrator.cli.whatif import what_if


class Commands(click.Group):
    """A group that tells a user's mistake from a defect: the first gets a message, the second a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            failure = explained(error, ctx.ensure_object(Target))
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
    part, 1 anything else.
    """


for command in (run, validate, convert, start, status, register, schema, coordinator, worker):
    main.add_command(command)
for command in (verify, what_if, dead):
    main.add_command(command)
