"""The command graph: a workflow, or an execution of one, as a picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.completion import complete_graph_target
from orchestrator.cli.commands.start import is_file
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.options import Target, connection_options, json_option, pass_target, read_spec
from orchestrator.cli.output.diagram import Diagram, Edge, Node
from orchestrator.cli.output.report import humanize
from orchestrator.cli.output.tables import Column, escape_line, is_coloured, table

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord

PHRASES = {
    "depends_on": "after {}",
    "switch": "case {label} of {}",
    "reference": "reads {}",
    "set": "sets {}",
    "compensate": "undone by {}",
    "child": "starts {}",
}


@click.command()
@click.argument(
    "what", metavar="FILE...|ID|NAME", nargs=-1, required=True, shell_complete=complete_graph_target
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid"]),
    default="text",
    show_default=True,
    help="A list by layers, or a diagram for Markdown and browsers.",
)
@json_option
@connection_options
@pass_target
def graph(target: Target, what: tuple[str, ...], form: str, as_json: bool) -> None:
    """Draw who waits for whom: of the workflow in FILE, of a registered NAME, or of an execution by its ID.

    Several files are one document, merged from left to right. Of an execution every step has its status.
    """
    from orchestrator.cli.output.mermaid import mermaid

    drawn = _find(target, what)
    if as_json:
        click.echo(json.dumps(drawn.as_dict(), indent=2, ensure_ascii=False))
    elif form == "mermaid":
        click.echo(mermaid(drawn))
    else:
        click.echo(text(drawn, is_coloured=is_coloured(sys.stdout)))


def _find(target: Target, what: tuple[str, ...]) -> Diagram:
    """Files, else an execution of that id, else a registered workflow of that name."""
    from orchestrator.cli.output.diagram import diagram_from_record, diagram_from_spec

    names = [word for word in what if not is_file(word)]
    if not names:
        return diagram_from_spec(read_spec(*what))
    if len(what) > 1:
        raise click.UsageError(f"{names[0]!r} is no file, and an id or a name stands alone")
    record = _record(target, names[0])
    if record is not None:
        return diagram_from_record(record)
    try:
        return diagram_from_spec(target.client().store.definition(names[0]))
    except KeyError:
        raise InvalidRequest(
            f"there is no file, no execution and no registered workflow {names[0]!r}"
        ) from None


def _record(target: Target, execution_id: str) -> WorkflowRecord | None:
    from orchestrator.application.errors import RecordNotFound

    try:
        return target.client().record(execution_id)
    except RecordNotFound:
        return None


# ---- as a list


def text(drawn: Diagram, *, is_coloured: bool = False) -> str:
    """The steps by layers: those of one layer may run side by side, and each says whom it waits for."""
    into, out = _by_step(drawn.edges)
    has_status = drawn.execution_id is not None
    rows = []
    for number, layer in enumerate(drawn.layers, 1):
        for at, node in enumerate(layer):
            said = "; ".join([*_phrases(into.get(node.id, ())), *node.marks, *_phrases(out.get(node.id, ()))])
            status = [humanize(node.status or "")] if has_status else []
            rows.append([str(number) if at == 0 else "", _named(node), *status, said])
    columns: list[Column | str] = [Column("LAYER", is_number=True), "STEP"]
    columns += [Column("STATUS", is_status=True)] if has_status else []
    title = " ".join(part for part in (drawn.name or "workflow", drawn.execution_id) if part)
    count, layers = len(drawn.nodes), len(drawn.layers)
    lines = [escape_line(f"{title}: {_counted(count, 'step')} in {_counted(layers, 'layer')}")]
    if rows:
        lines.append(table([*columns, "HOW"], rows, is_coloured=is_coloured))
    return "\n".join(lines)


def _by_step(edges: Sequence[Edge]) -> tuple[dict[str, list[Edge]], dict[str, list[Edge]]]:
    """The edges that hold a step back, and those of what it does to others."""
    into: dict[str, list[Edge]] = {}
    out: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.kind in ("depends_on", "reference", "switch"):
            into.setdefault(edge.target, []).append(edge)
        else:
            out.setdefault(edge.source, []).append(edge)
    return into, out


def _phrases(edges: Sequence[Edge]) -> list[str]:
    """after a, b; reads c; case big of route"""
    grouped: dict[tuple[str, str], list[str]] = {}
    for edge in sorted(edges, key=lambda edge: list(PHRASES).index(edge.kind)):
        other = edge.source if edge.kind in ("depends_on", "reference", "switch") else edge.target
        grouped.setdefault((edge.kind, edge.label), []).append(other)
    return [PHRASES[kind].format(", ".join(names), label=label) for (kind, label), names in grouped.items()]


def _named(node: Node) -> str:
    return f"{node.id} ({node.title})" if node.title else node.id


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
