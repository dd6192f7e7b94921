"""A diagram as a table of steps by layers; steps of one layer may run in parallel."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.application.explain.formatting import format_count, humanize
from orchestrator.cli.output.tables import Column, print_table
from orchestrator.drawing.diagram import Diagram, Edge, Node

PHRASES = {
    "depends_on": "after {}",
    "switch": "case {label} of {}",
    "reference": "reads {}",
    "set": "sets {}",
    "compensate": "compensated by {}",
    "child": "starts {}",
}
INCOMING = ("depends_on", "reference", "switch")
"""The edges for which a step waits; the others say what it does to other steps."""


def print_diagram(diagram: Diagram) -> None:
    from orchestrator.cli.output.escaping import print_text

    print_text(format_heading(diagram))
    if diagram.nodes:
        print_table(*build_rows(diagram))


def format_heading(diagram: Diagram) -> str:
    title = " ".join(part for part in (diagram.name or "workflow", diagram.execution_id) if part)
    counts = f"{format_count(len(diagram.nodes), 'step')} in {format_count(len(diagram.layers), 'layer')}"
    return f"{title}: {counts}"


def build_rows(diagram: Diagram) -> tuple[list[Column | str], list[list[str]]]:
    """Build the columns and one row per step; the number of a layer stands before its first step."""
    incoming, outgoing = _group_edges(diagram.edges)
    has_status = diagram.execution_id is not None
    columns: list[Column | str] = [Column("LAYER", is_number=True), "STEP"]
    columns += [Column("STATUS", is_status=True)] if has_status else []
    columns += [Column("HOW", is_wrapped=True)]
    rows = []
    for number, layer in enumerate(diagram.layers, 1):
        for index, node in enumerate(layer):
            phrases = [
                *_format_edges(incoming.get(node.id, ())),
                *node.marks,
                *_format_edges(outgoing.get(node.id, ())),
            ]
            status = [humanize(node.status or "")] if has_status else []
            rows.append([str(number) if index == 0 else "", _full_name(node), *status, "; ".join(phrases)])
    return columns, rows


def _group_edges(edges: Sequence[Edge]) -> tuple[dict[str, list[Edge]], dict[str, list[Edge]]]:
    """Group the incoming edges by their target, and the outgoing ones by their source."""
    incoming: dict[str, list[Edge]] = {}
    outgoing: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.kind in INCOMING:
            incoming.setdefault(edge.target, []).append(edge)
        else:
            outgoing.setdefault(edge.source, []).append(edge)
    return incoming, outgoing


def _format_edges(edges: Sequence[Edge]) -> list[str]:
    """Format the edges of a step: after a, b; reads c; case big of route."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for edge in sorted(edges, key=lambda edge: list(PHRASES).index(edge.kind)):
        other = edge.source if edge.kind in INCOMING else edge.target
        grouped.setdefault((edge.kind, edge.label), []).append(other)
    return [PHRASES[kind].format(", ".join(names), label=label) for (kind, label), names in grouped.items()]


def _full_name(node: Node) -> str:
    return f"{node.id} ({node.title})" if node.title else node.id
