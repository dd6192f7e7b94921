"""Commands about registered workflows: list, show, remove."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.completion import name_argument
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, check_url, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.redis_rq.queries.definitions import Definition


@click.group(invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def definitions(ctx: click.Context, as_json: bool) -> None:
    """Show what is registered, and which versions still have open executions."""
    if ctx.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("write --json behind show or remove: it belongs to that then")
        return
    found = _found(ctx.ensure_object(Target))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False))
    elif not found:
        click.echo("no workflow is registered")
    else:
        print_text("\n".join(line for one in found for line in _lines(one)))


@definitions.command()
@name_argument
@json_option
@connection_options
@pass_target
def show(target: Target, name: str, as_json: bool) -> None:
    """Print the document that is registered as NAME, as YAML."""
    from orchestrator.application.spec.yaml_writer import render_yaml

    try:
        document = target.client().store.definition(name).document
    except KeyError:
        raise _unknown(name) from None
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(render_yaml(document), nl=False)


@definitions.command()
@name_argument
@json_option
@connection_options
@pass_target
def remove(target: Target, name: str, as_json: bool) -> None:
    """Forget NAME and its schedule. Executions that have begun go on: they keep their document."""
    try:
        target.client().store.unregister(name)
    except KeyError:
        raise _unknown(name) from None
    if as_json:
        click.echo(json.dumps({"name": name, "registered": False}, ensure_ascii=False))
    else:
        print_text(f"{name} is no longer registered")


def _found(target: Target) -> list[Definition]:
    from orchestrator.redis_rq.connection import connect
    from orchestrator.redis_rq.queries.definitions import definitions

    settings = target.settings()
    check_url(settings.redis_url)
    return definitions(connect(settings.redis_url), settings.keys)


def _unknown(name: str) -> InvalidRequest:
    return InvalidRequest(f"no workflow is registered as {name!r}; orchestrator definitions lists them")


def _lines(definition: Definition) -> list[str]:
    """One line for the version that is registered, and one for each other with open executions."""
    at = f"registered {definition.registered_at}, " if definition.registered_at else ""
    scheduled = ", scheduled" if definition.is_scheduled else ""
    title = f"{definition.name}: {definition.workflow_id}"
    lines = [f"{title}, {at}{definition.open[definition.workflow_id]} open{scheduled}"]
    return lines + [
        f"  an earlier {workflow_id}, {count} open"
        for workflow_id, count in definition.open.items()
        if workflow_id != definition.workflow_id
    ]
