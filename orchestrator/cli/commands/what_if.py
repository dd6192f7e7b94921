"""The command `what-if`: what an execution would have come to by another spec."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.completion import execution_argument
from orchestrator.cli.options import Target, connection_options, json_option, pass_target, read_spec
from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.local.what_if import Differences

EXIT_DIFFERENT = 1


@click.command("what-if")
@execution_argument
@click.option(
    "--spec",
    "files",
    metavar="FILE",
    multiple=True,
    required=True,
    help="The changed document; several are merged from left to right.",
)
@json_option
@connection_options
@pass_target
def what_if(target: Target, execution_id: str, files: tuple[str, ...], as_json: bool) -> None:
    """Play the recorded results of an execution through another spec, and show which steps differ.

    Nothing is executed and nothing is written. Exit code 0: nothing would differ; 1: something would, or
    nobody knows; 2: no such execution, or no valid spec.
    """
    from orchestrator.local.what_if import what_if as differences_of

    found = differences_of(target.client().record(execution_id), read_spec(*files))
    if as_json:
        click.echo(json.dumps({**asdict(found), "same": found.is_same}))
    else:
        print_text(_lines(found))
    raise click.exceptions.Exit(0 if found.is_same else EXIT_DIFFERENT)


def _lines(found: Differences) -> str:
    shown = [(one.step, one) for one in found.steps] + [("the outcome", found.outcome)]
    width = max(len(name) for name, _ in shown)
    lines = [f"{one.verdict:9}  {name:{width}}  {one.how}".rstrip() for name, one in shown]
    if found.not_reproduced:
        steps = ", ".join(found.not_reproduced)
        lines.append(f"(not even the recorded spec brings these to where they are: {steps})")
    return "\n".join(lines)
