"""The command `workflows`: list, show and remove registered workflows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command_group import CommandGroup
from orchestrator.cli.completers import name_argument
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.redis_rq.queries.definitions import Definition


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def workflows(ctx: click.Context, as_json: bool) -> None:
    """List, show and remove registered workflows.

    Without a command it lists them, with the versions that still have open executions.
    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("write --json after show or remove")
        return
    found = _read_definitions(ctx.ensure_object(Target))
    if as_json:
        print_json([asdict(one) for one in found], indent=2)
    elif not found:
        click.echo("no workflow is registered")
    else:
        print_text("\n".join(line for one in found for line in _format_definition(one)))


@workflows.command()
@name_argument
@json_option
@connection_options
@pass_target
def show(target: Target, name: str, as_json: bool) -> None:
    """Print a registered workflow as YAML."""
    from orchestrator.application.spec.yaml_writer import render_yaml

    try:
        document = target.client().store.load_definition(name).document
    except KeyError:
        raise _unknown_name(name) from None
    if as_json:
        print_json(document, indent=2)
    else:
        click.echo(render_yaml(document), nl=False)


@workflows.command()
@name_argument
@json_option
@connection_options
@pass_target
def remove(target: Target, name: str, as_json: bool) -> None:
    """Remove a registered workflow and its schedule.

    Executions that have started continue: each keeps the workflow that it was started with.
    """
    try:
        target.client().store.unregister(name)
    except KeyError:
        raise _unknown_name(name) from None
    if as_json:
        print_json({"name": name, "registered": False})
    else:
        print_text(f"{name} is no longer registered")


def _read_definitions(target: Target) -> list[Definition]:
    from orchestrator.redis_rq.queries.definitions import definitions
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    return definitions(client, make_keys(settings))


def _unknown_name(name: str) -> InvalidRequest:
    return InvalidRequest(f"no workflow is registered as {name!r}; `orchestrator workflows` lists them")


def _format_definition(definition: Definition) -> list[str]:
    """Format the registered version, and each earlier version with open executions."""
    at = f"registered {definition.registered_at}, " if definition.registered_at else ""
    scheduled = ", scheduled" if definition.is_scheduled else ""
    title = f"{definition.name}: {definition.workflow_id}"
    lines = [f"{title}, {at}{definition.open[definition.workflow_id]} open{scheduled}"]
    return lines + [
        f"  earlier version {workflow_id}, {count} open"
        for workflow_id, count in definition.open.items()
        if workflow_id != definition.workflow_id
    ]
