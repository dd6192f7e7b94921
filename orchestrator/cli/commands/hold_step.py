"""The command `hold-step`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.controls import control_options, send_to_each
from orchestrator.cli.options import Target

if TYPE_CHECKING:
    from orchestrator.client import ControlResult


@click.command("hold-step")
@execution_argument
@click.argument("step", metavar="STEP")
@control_options
def hold_step(target: Target, execution_id: str, step: str, by: str | None, as_json: bool) -> None:
    """Keep one step from running until it is released.

    A step in progress cannot be held. Other steps continue; to stop the whole execution, use `pause`.
    """
    client = target.client()

    def describe(reply: ControlResult) -> str:
        return f"step {step!r} is {'' if reply.changed else 'already '}on hold"

    send_to_each([execution_id], lambda one: client.hold(one, step, by), as_json, describe)
