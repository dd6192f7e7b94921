"""The command `rerun-steps`."""

from __future__ import annotations

from typing import Any

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.controls import control_options, reason_option, send_to_each
from orchestrator.cli.options import Target, corrections_option


@click.command("rerun-steps")
@execution_argument
@click.option("--from", "step", metavar="STEP", required=True, help="The first step to run again.")
@corrections_option
@reason_option
@control_options
def rerun_steps(
    target: Target,
    execution_id: str,
    step: str,
    inputs: dict[str, Any],
    reason: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Run a step and all steps after it again.

    The execution must have ended. Completed steps run again too; to run only unfinished steps, use `retry`.
    """
    client = target.client()
    send_to_each([execution_id], lambda one: client.rerun(one, step, reason, by, inputs or None), as_json)
