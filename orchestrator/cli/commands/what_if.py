"""The command `what-if`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.options import (
    Target,
    connection_options,
    json_option,
    merge_option,
    pass_target,
    read_one_spec,
)
from orchestrator.cli.output.escaping import print_json, print_text

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
    help="The changed workflow file; may be repeated with --merge.",
)
@merge_option
@json_option
@connection_options
@pass_target
def what_if(target: Target, execution_id: str, files: tuple[str, ...], merge: bool, as_json: bool) -> None:
    """Replay an execution with a changed workflow file.

    It feeds the recorded results to the changed workflow, and shows which steps would differ. No executor is
    called, and nothing is written.

    Exit codes: 0 nothing differs; 1 something differs, or may differ; 2 no such execution, or an invalid
    workflow.
    """
    from orchestrator.local.what_if import what_if as find_differences

    changed = read_one_spec(files, merge)
    differences = find_differences(target.client().record(execution_id), changed)
    if as_json:
        print_json({**asdict(differences), "same": differences.is_same})
    else:
        print_text(_format_differences(differences))
    raise click.exceptions.Exit(0 if differences.is_same else EXIT_DIFFERENT)


def _format_differences(differences: Differences) -> str:
    rows = [(one.step, one) for one in differences.steps] + [("the outcome", differences.outcome)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{one.verdict:9}  {name:{width}}  {one.how}".rstrip() for name, one in rows]
    if differences.not_reproduced:
        steps = ", ".join(differences.not_reproduced)
        lines.append(f"(the recorded workflow does not reproduce the status of these steps either: {steps})")
    return "\n".join(lines)
