"""Commands about executions: start, status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.failures import EXIT_CODES
from orchestrator.cli.options import (
    Target,
    connection_options,
    inputs_option,
    json_option,
    pass_target,
    read_spec,
)


@click.command()
@click.argument("workflow", metavar="FILE|NAME")
@inputs_option
@click.option("--execution-id", help="What to call the execution; made from the time unless given.")
@json_option
@connection_options
@pass_target
def start(
    target: Target, workflow: str, inputs: dict[str, Any], execution_id: str | None, as_json: bool
) -> None:
    """Start the workflow in FILE, or a registered NAME, and print the execution's id.

    It returns as soon as a coordinator has accepted the start.
    """
    what = read_spec(workflow) if _is_file(workflow) else workflow
    started = target.client().start(what, inputs, execution_id)
    if as_json:
        ids = {
            "workflow_execution_id": started.workflow_execution_id,
            "execution_id": started.execution_id,
        }
        click.echo(json.dumps(ids))
    else:
        click.echo(started.execution_id)


def _is_file(workflow: str) -> bool:
    """A registered name has no suffix of a document and no slash: such a word was meant as a file."""
    path = Path(workflow)
    return workflow == "-" or path.exists() or "/" in workflow or path.suffix in {".yaml", ".yml", ".json"}


@click.command()
@click.argument("execution_id", metavar="ID")
@json_option
@connection_options
@pass_target
def status(target: Target, execution_id: str, as_json: bool) -> None:
    """Show an execution, by its execution id or its full id.

    The exit code is that of `run` for an execution that has ended, and 0 while it runs.
    """
    from orchestrator.cli import report

    record = target.client().record(execution_id)
    click.echo(report.as_json(record) if as_json else report.summary(record))
    raise click.exceptions.Exit(EXIT_CODES.get(record.status.value, 0))
