"""The command `register`."""

from __future__ import annotations

import click

from orchestrator.cli.options import (
    Target,
    connection_options,
    files_argument,
    json_option,
    pass_target,
    read_spec,
)
from orchestrator.cli.output.escaping import print_json, print_text


@click.command()
@files_argument
@click.option("--name", help="The name to register; by default the name in the file.")
@json_option
@connection_options
@pass_target
def register(target: Target, files: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Register a workflow, so that it can be started by name.

    Several files are merged, from left to right, into one workflow. Registering a name again replaces its
    workflow; executions that have started keep theirs.
    """
    loaded = read_spec(*files)
    name = name or loaded.spec.name
    if not name:
        raise click.UsageError(f"{' + '.join(files)} has no name: add one, or use --name NAME")
    workflow_id = target.client().register(name, loaded.document)
    if as_json:
        print_json({"name": name, "workflow_id": workflow_id})
    else:
        print_text(f"{name} is now {workflow_id}")
