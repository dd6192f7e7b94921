"""A diagram in the language of Mermaid, which draws it in Markdown and in a browser.

Nodes are called s0, s1 and so on, whatever the steps are called: an id may be a keyword there. What people
have written stands in quotes, and every character that could mean something to Mermaid as its number.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli.output.diagram import EXTERNAL_EDGE_KINDS, Diagram, Edge, Node
from orchestrator.cli.output.report import humanize

SHAPES = {
    "task": '["{}"]',
    "switch": '{{"{}"}}',
    "wait": '(["{}"])',
    "delay": '(["{}"])',
    "workflow": '[["{}"]]',
}
UNDO_SHAPE, CHILD_SHAPE = '>"{}"]', '[["{}"]]'
ARROWS = {
    "depends_on": "-->",
    "reference": '-.->|"reads"|',
    "switch": '-->|"case {}"|',
    "set": '-.->|"sets"|',
    "compensate": '-.->|"undone by"|',
    "child": '-.->|"starts"|',
}
COLOURS = {
    "ready": "fill:#f5f5f5,stroke:#9e9e9e,color:#212121",
    "deferred": "fill:#e3f2fd,stroke:#1e88e5,color:#212121",
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
"""By the status of a step."""

_PLAIN = frozenset(" _-.,()/")


def mermaid(diagram: Diagram) -> str:
    names = {node.id: f"s{at}" for at, node in enumerate(diagram.nodes)}
    lines = ["flowchart TD"]
    lines += (f"    {names[node.id]}{_node(node)}" for node in diagram.nodes)
    lines += (f"    {line}" for at, edge in enumerate(diagram.edges) for line in _edge(at, edge, names))
    lines += (f"    {line}" for line in _colours(diagram, names))
    return "\n".join(lines)


def _node(node: Node) -> str:
    parts = [node.id, node.title, *node.marks, humanize(node.status) if node.status else None]
    return SHAPES[node.kind].format("<br/>".join(escape_label(part) for part in parts if part))


def _edge(at: int, edge: Edge, names: dict[str, str]) -> Iterator[str]:
    """A step, or what is outside of the workflow: that has a node of its own for each edge."""
    target = names.get(edge.target, "")
    if edge.kind in EXTERNAL_EDGE_KINDS:
        target = f"x{at}"
        yield target + (UNDO_SHAPE if edge.kind == "compensate" else CHILD_SHAPE).format(
            escape_label(edge.target)
        )
    yield f"{names[edge.source]} {ARROWS[edge.kind].format(escape_label(edge.label))} {target}"


def _colours(diagram: Diagram, names: dict[str, str]) -> Iterator[str]:
    """A class for each status that occurs, and which nodes are of it."""
    members: dict[str, list[str]] = {}
    for node in diagram.nodes:
        if node.status is not None:
            members.setdefault(node.status, []).append(names[node.id])
    for status, style in COLOURS.items():
        if status in members:
            yield f"classDef {status} {style}"
            yield f"class {','.join(members[status])} {status}"


def escape_label(text: str) -> str:
    """A text as it may stand between quotes: only letters, digits and a few others as they are."""
    joined = " ".join(text.split())
    return "".join(char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in joined)
