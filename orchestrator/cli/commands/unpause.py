"""The command `unpause`."""

from __future__ import annotations

import click

from orchestrator.cli.completers import executions_argument
from orchestrator.cli.controls import control_options, send_to_each
from orchestrator.cli.options import Target


@click.command()
@executions_argument
@control_options
def unpause(target: Target, ids: tuple[str, ...], by: str | None, as_json: bool) -> None:
    """Continue paused executions."""
    client = target.client()
    send_to_each(ids, lambda one: client.unpause(one, by), as_json)
