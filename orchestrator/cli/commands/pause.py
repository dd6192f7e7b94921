"""The command `pause`."""

from __future__ import annotations

import click

from orchestrator.cli.completers import executions_argument
from orchestrator.cli.controls import control_options, send_to_each
from orchestrator.cli.options import Target


@click.command()
@executions_argument
@control_options
def pause(target: Target, ids: tuple[str, ...], by: str | None, as_json: bool) -> None:
    """Stop dispatching steps of executions.

    Running steps continue, and their results count. `unpause` continues the executions; to stop a single
    step, use `hold-step`.
    """
    client = target.client()
    send_to_each(ids, lambda one: client.pause(one, by), as_json)
