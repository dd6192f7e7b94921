"""The command `register`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    Target,
    connection_options,
    files_argument,
    json_option,
    merge_option,
    pass_target,
    read_spec,
)
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec


@click.command()
@files_argument
@merge_option
@click.option("--name", help="The name to register; by default the name in the file.")
@json_option
@connection_options
@pass_target
def register(target: Target, files: tuple[str, ...], merge: bool, name: str | None, as_json: bool) -> None:
    """Register workflows, so that they can be started by name.

    Each file is a workflow, unless --merge makes one of all files. If one of the files is invalid, nothing is
    registered. Registering a name again replaces its workflow; executions that have started keep theirs.
    """
    specs = _read_specs([files] if merge else [(file,) for file in files], name)
    client = target.client()
    registered = [
        {"name": one, "workflow_id": client.register(one, loaded.document)} for one, loaded in specs.items()
    ]
    if as_json:
        result = registered[0] if merge or len(files) == 1 else registered
        print_json(result)
        return
    for one in registered:
        print_text(f"{one['name']} is now {one['workflow_id']}")


def _read_specs(groups: list[tuple[str, ...]], name: str | None) -> dict[str, LoadedSpec]:
    """Load all workflows, by name, before the first is registered; InvalidSpec has the problems of all."""
    from orchestrator.application.errors import InvalidSpec, Problem

    if name and len(groups) > 1:
        raise click.UsageError("--name is for one workflow: give one file, or merge the files with --merge")
    specs: dict[str, LoadedSpec] = {}
    problems: list[Problem] = []
    for group in groups:
        try:
            loaded = read_spec(*group)
        except InvalidSpec as error:
            problems += [replace(one, source=one.source or error.source) for one in error.problems]
            continue
        found = name or loaded.spec.name
        if not found:
            raise click.UsageError(f"{' + '.join(group)} has no name: add one, or use --name NAME")
        if found in specs:
            raise click.UsageError(
                f"two files have the name {found!r}: rename one, or merge them into one workflow with --merge"
            )
        specs[found] = loaded
    if problems:
        raise InvalidSpec(problems)
    return specs
