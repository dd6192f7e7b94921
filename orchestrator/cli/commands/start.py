"""The command `start`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.completers import complete_workflow_names
from orchestrator.cli.options import (
    Target,
    connection_options,
    inputs_option,
    json_option,
    merge_option,
    pass_target,
    read_one_spec,
    start_options,
)
from orchestrator.cli.output.escaping import print_json

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec


@click.command()
@click.argument(
    "workflow", metavar="NAME|FILE...", nargs=-1, required=True, shell_complete=complete_workflow_names
)
@merge_option
@inputs_option
@click.option("--execution-id", help="The id of the execution; by default made from the time.")
@start_options
@json_option
@connection_options
@pass_target
def start(
    target: Target,
    workflow: tuple[str, ...],
    merge: bool,
    inputs: dict[str, Any],
    execution_id: str | None,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Start a workflow and print its execution id.

    Give a registered NAME or a FILE; several files need --merge. The command returns as soon as a coordinator
    has accepted the start.
    """
    source = _read_workflow(workflow, merge)
    started = target.client().start(source, inputs, execution_id, **options)
    if as_json:
        fields = {name: value for name, value in asdict(started).items() if value not in (None, False)}
        print_json(fields)
        return
    click.echo(started.execution_id)
    if started.existing:
        click.echo(f"It was started before; its status is {started.status or 'unknown'}.", err=True)


def _read_workflow(arguments: tuple[str, ...], merge: bool) -> LoadedSpec | str:
    """Load the files, or return the registered name."""
    names = [argument for argument in arguments if not is_file(argument)]
    if not names:
        return read_one_spec(arguments, merge)
    if len(arguments) > 1:
        raise click.UsageError(f"{names[0]!r} is not a file; give files, or one registered name")
    return names[0]


def is_file(argument: str) -> bool:
    """Whether an argument means a file: it exists, has a slash, ends like a workflow file, or is a name like
    `app.py:order`. A registered name does not."""
    from orchestrator.cli.python_files import is_python_name

    path = Path(argument)
    if is_python_name(argument):
        return True
    return argument == "-" or path.exists() or "/" in argument or path.suffix in {".yaml", ".yml", ".json"}
