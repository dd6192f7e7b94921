"""The command `schema`."""

from __future__ import annotations

import click

from orchestrator.cli.options import write_text
from orchestrator.cli.output.escaping import format_json


@click.command()
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the standard output.")
def schema(output: str | None) -> None:
    """Print the JSON Schema of workflow files, for editors.

    An editor then checks and completes a workflow file whose first line is
    "# yaml-language-server: $schema=FILE".
    """
    from orchestrator.application.spec.json_schema import build_schema

    text = format_json(build_schema(), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
