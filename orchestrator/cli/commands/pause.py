"""The command `pause`."""

from __future__ import annotations

import click

from orchestrator.cli.completers import executions_argument
from orchestrator.cli.controls import control_options, reason_option, send_to_each
from orchestrator.cli.options import Target


@click.command()
@executions_argument
@reason_option
@control_options
def pause(target: Target, ids: tuple[str, ...], reason: str | None, by: str | None, as_json: bool) -> None:
    """Stop dispatching steps of executions.

    Running steps continue, and their results count. `unpause` continues the executions; to stop a single
    step, use `hold-step`.
    """
    client = target.client()
    send_to_each(ids, lambda one: client.pause(one, by, reason=reason), as_json)
