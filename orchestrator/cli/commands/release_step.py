"""The command `release-step`."""

from __future__ import annotations

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.controls import control_options, send_to_each
from orchestrator.cli.options import Target


@click.command("release-step")
@execution_argument
@click.argument("step", metavar="STEP")
@control_options
def release_step(target: Target, execution_id: str, step: str, by: str | None, as_json: bool) -> None:
    """Let a held step run."""
    client = target.client()
    text = f"step {step!r} is released"
    send_to_each([execution_id], lambda one: client.release(one, step, by), as_json, lambda _: text)
