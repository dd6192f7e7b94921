"""The command `graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.start import is_file
from orchestrator.cli.completers import complete_graph_target
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import (
    Target,
    connection_options,
    json_option,
    merge_option,
    pass_target,
    read_one_spec,
)
from orchestrator.cli.output.escaping import print_json

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.drawing.diagram import Diagram


@click.command()
@click.argument(
    "what", metavar="FILE...|ID|NAME", nargs=-1, required=True, shell_complete=complete_graph_target
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "svg"]),
    default="text",
    show_default=True,
    help="A table of steps by layers, a Mermaid diagram for Markdown, or a picture.",
)
@click.option(
    "--max-nodes",
    metavar="N",
    type=click.IntRange(1),
    help="Of the picture: with more steps, similar ones are drawn as one node.  [default: 1500]",
)
@merge_option
@json_option
@connection_options
@pass_target
def graph(
    target: Target, what: tuple[str, ...], form: str, max_nodes: int | None, merge: bool, as_json: bool
) -> None:
    """Show the step dependency graph.

    Give a workflow FILE, the ID of an execution, or a registered NAME. Several files need --merge. The graph
    of an execution has the status of each step. `--format svg` prints a picture for browsers, in light and
    dark colours.
    """
    from orchestrator.cli.output.diagram_text import print_diagram
    from orchestrator.cli.output.mermaid import render_mermaid

    if max_nodes is not None and (form != "svg" or as_json):
        raise click.UsageError("--max-nodes needs --format svg")
    diagram = _find_diagram(target, what, merge)
    if as_json:
        print_json(diagram.as_dict(), indent=2)
    elif form == "mermaid":
        click.echo(render_mermaid(diagram))
    elif form == "svg":
        click.echo(_render_svg(diagram, max_nodes), nl=False)
    else:
        print_diagram(diagram)


def _render_svg(diagram: Diagram, max_nodes: int | None) -> bytes:
    """Render a picture as UTF-8, in which its first line says that it is, whatever the terminal uses."""
    from orchestrator.drawing.layout import lay_out
    from orchestrator.drawing.outline import MAX_NODES, make_outline
    from orchestrator.drawing.svg import render_svg

    return render_svg(lay_out(make_outline(diagram, max_nodes=max_nodes or MAX_NODES))).encode()


def _find_diagram(target: Target, arguments: tuple[str, ...], merge: bool) -> Diagram:
    """Find files, then an execution with this id, then a registered workflow with this name."""
    from orchestrator.drawing.diagram import diagram_from_spec, diagram_from_view

    names = [argument for argument in arguments if not is_file(argument)]
    if not names:
        return diagram_from_spec(read_one_spec(arguments, merge))
    if len(arguments) > 1:
        raise click.UsageError(f"{names[0]!r} is not a file; give files, or one id or name")
    view = _find_execution(target, names[0])
    if view is not None:
        return diagram_from_view(view)
    try:
        return diagram_from_spec(target.client().store.load_definition(names[0]))
    except KeyError:
        raise InvalidRequest(
            f"there is no file, no execution and no registered workflow {names[0]!r}"
        ) from None


def _find_execution(target: Target, execution_id: str) -> StatusView | None:
    from orchestrator.application.errors import RecordNotFound

    try:
        return target.client().status_view(execution_id)
    except RecordNotFound:
        return None
