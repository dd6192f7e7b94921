"""The command start."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.completion import complete_workflow_names
from orchestrator.cli.options import (
    Target,
    connection_options,
    inputs_option,
    json_option,
    pass_target,
    read_spec,
    start_options,
)

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.client import StartOptions


@click.command()
@click.argument(
    "workflow", metavar="NAME|FILE...", nargs=-1, required=True, shell_complete=complete_workflow_names
)
@inputs_option
@click.option("--execution-id", help="What to call the execution; made from the time unless given.")
@start_options
@json_option
@connection_options
@pass_target
def start(
    target: Target,
    workflow: tuple[str, ...],
    inputs: dict[str, Any],
    execution_id: str | None,
    options: StartOptions,
    as_json: bool,
) -> None:
    """Start the workflow in FILE, or a registered NAME, and print the execution's id.

    Several files are one document, merged from left to right. It returns as soon as a coordinator has
    accepted the start.
    """
    started = target.client().start(_spec_or_name(workflow), inputs, execution_id, **asdict(options))
    if as_json:
        told = {name: value for name, value in asdict(started).items() if value not in (None, False)}
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    click.echo(started.execution_id)
    if started.existing:
        click.echo(f"It was there before, and is {started.status or 'not known any more'}.", err=True)


def _spec_or_name(words: tuple[str, ...]) -> LoadedSpec | str:
    names = [word for word in words if not is_file(word)]
    if not names:
        return read_spec(*words)
    if len(words) > 1:
        raise click.UsageError(f"{names[0]!r} is no file, and the name of a registered workflow stands alone")
    return names[0]


def is_file(workflow: str) -> bool:
    """A registered name has no suffix of a document and no slash: such a word was meant as a file."""
    path = Path(workflow)
    return workflow == "-" or path.exists() or "/" in workflow or path.suffix in {".yaml", ".yml", ".json"}
