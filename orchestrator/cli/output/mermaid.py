"""A diagram in the language of Mermaid, for Markdown and browsers.

Nodes are named s0, s1 and so on, because a step id may be a keyword of Mermaid. Text of users stands in
quotes, and every character that Mermaid could interpret is written as its number.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.application.explain.formatting import humanize
from orchestrator.drawing.diagram import EXTERNAL_EDGE_KINDS, Diagram, Edge, Node

SHAPES = {
    "task": '["{}"]',
    "switch": '{{"{}"}}',
    "wait": '(["{}"])',
    "delay": '(["{}"])',
    "workflow": '[["{}"]]',
}
COMPENSATION_SHAPE, CHILD_SHAPE = '>"{}"]', '[["{}"]]'
ARROWS = {
    "depends_on": "-->",
    "reference": '-.->|"reads"|',
    "switch": '-->|"case {}"|',
    "set": '-.->|"sets"|',
    "compensate": '-.->|"compensated by"|',
    "child": '-.->|"starts"|',
}
COLOURS = {
    "ready": "fill:#f5f5f5,stroke:#9e9e9e,color:#212121",
    "deferred": "fill:#e3f2fd,stroke:#1e88e5,color:#212121",
    "queued": "fill:#e3f2fd,stroke:#1e88e5,color:#212121",
    "waiting": "fill:#e3f2fd,stroke:#1e88e5,color:#212121",
    "in_progress": "fill:#b2ebf2,stroke:#00838f,color:#212121",
    "retry": "fill:#fff9c4,stroke:#f9a825,color:#212121",
    "on_hold": "fill:#fff9c4,stroke:#f9a825,color:#212121",
    "complete": "fill:#c8e6c9,stroke:#2e7d32,color:#212121",
    "failed": "fill:#ffcdd2,stroke:#c62828,color:#212121",
    "skipped": "fill:#eeeeee,stroke:#757575,color:#757575",
    "filtered": "fill:#eeeeee,stroke:#757575,color:#757575",
    "cancelled": "fill:#ffcdd2,stroke:#c62828,color:#212121",
    "halted": "fill:#ffe0b2,stroke:#ef6c00,color:#212121",
}
"""The style of a node, by the status of its step."""

_PLAIN = frozenset(" _-.,()/")


def render_mermaid(diagram: Diagram) -> str:
    names = {node.id: f"s{index}" for index, node in enumerate(diagram.nodes)}
    lines = ["flowchart TD"]
    lines += (f"    {names[node.id]}{_render_node(node)}" for node in diagram.nodes)
    for index, edge in enumerate(diagram.edges):
        lines += (f"    {line}" for line in _render_edge(index, edge, names))
    lines += (f"    {line}" for line in _render_styles(diagram, names))
    return "\n".join(lines)


def _render_node(node: Node) -> str:
    parts = [node.id, node.title, *node.marks, humanize(node.status) if node.status else None]
    return SHAPES[node.kind].format("<br/>".join(escape_label(part) for part in parts if part))


def _render_edge(index: int, edge: Edge, names: dict[str, str]) -> Iterator[str]:
    """Render an edge; a target outside of the workflow gets a node of its own for each edge."""
    target = names.get(edge.target, "")
    if edge.kind in EXTERNAL_EDGE_KINDS:
        target = f"x{index}"
        yield target + (COMPENSATION_SHAPE if edge.kind == "compensate" else CHILD_SHAPE).format(
            escape_label(edge.target)
        )
    yield f"{names[edge.source]} {ARROWS[edge.kind].format(escape_label(edge.label))} {target}"


def _render_styles(diagram: Diagram, names: dict[str, str]) -> Iterator[str]:
    """Render a class for each status in the diagram, and assign its nodes to it."""
    members: dict[str, list[str]] = {}
    for node in diagram.nodes:
        if node.status is not None:
            members.setdefault(node.status, []).append(names[node.id])
    for status, style in COLOURS.items():
        if status in members:
            yield f"classDef {status} {style}"
            yield f"class {','.join(members[status])} {status}"


def escape_label(text: str) -> str:
    """Escape text for a quoted label: only letters, digits and a few other characters stay as they are."""
    joined = " ".join(text.split())
    return "".join(char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in joined)
