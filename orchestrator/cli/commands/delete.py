"""The command `delete`."""

from __future__ import annotations

import click

from orchestrator.cli.completers import executions_argument
from orchestrator.cli.controls import send_to_each
from orchestrator.cli.options import Target, connection_options, json_option, pass_target


@click.command()
@executions_argument
@json_option
@connection_options
@pass_target
def delete(target: Target, ids: tuple[str, ...], as_json: bool) -> None:
    """Permanently delete ended executions and their history."""
    client = target.client()
    send_to_each(ids, client.delete, as_json)
