"""What a picture shows: every step, or, of a large graph, fewer nodes that stand for many steps each.

outline = make_outline(diagram)                                  # at most 1,500 nodes
outline = make_outline(diagram, expanded=frozenset({"fan:a"}))   # with the group `fan:a` open

A graph of more steps than `max_nodes` collapses, in this order and no further than needed:

    fan      steps with the same parents and the same children
    chain    a run of steps, each the only child of the one before
    alike    steps of one layer whose ids differ in their digits only
    layer    all steps of a layer, the largest layers first
    band     consecutive layers

Fans and chains repeat, because a chain can become part of a fan. So a group can have groups as its members.
A group that is expanded shows its members; if there are more than MAX_PARTS, it shows parts of equal size,
which are groups too. The id of a group is the same in every outline of the same graph with the same
`max_nodes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.application.explain.formatting import format_count
from orchestrator.drawing.diagram import EXTERNAL_EDGE_KINDS, Diagram, Edge, EdgeKind, Node
from orchestrator.drawing.groups import Group, Member, collapse, divide

MAX_NODES = 1_500

STATUS_PRIORITY = (
    "failed",
    "in_progress",
    "retry",
    "queued",
    "waiting",
    "deferred",
    "on_hold",
    "ready",
    "halted",
    "cancelled",
    "complete",
    "skipped",
    "filtered",
)
"""Which status a group has, if its steps have several: the first of these that occurs."""

COLLAPSED_SHARE = 2 / 3
"""A graph that collapses is left with this part of the limit. The rest is for groups that are expanded."""

MAX_NAMED = 50
"""How many steps of a group are looked at to name it."""

_NUMBER = "0123456789-_."
_EXTERNAL_PHRASES = {"compensate": "compensated by {}", "child": "starts {}"}
_EDGE_PRIORITY: tuple[EdgeKind, ...] = ("switch", "depends_on", "reference", "set")


# Nodes and edges are not frozen: a frozen one takes three times as long to make, and there are thousands.
@dataclass(slots=True)
class OutlineNode:
    """A step, or a group of steps.

    id       the id of the step or of the group; the id of a group contains a colon, that of a step never does
    name     what is written on the node
    details  what else is known of it, in a few words each
    kind     the kind of the step, or that of the group: fan, chain, alike, layer, band or part
    steps    the steps that the node stands for, in the order of the spec
    counts   how many of these steps have which status; empty for a graph without statuses
    """

    id: str
    name: str
    details: tuple[str, ...]
    kind: str
    steps: tuple[str, ...]
    counts: Mapping[str, int]
    is_group: bool = False

    @property
    def status(self) -> str | None:
        return next((status for status in STATUS_PRIORITY if status in self.counts), None)


@dataclass(slots=True)
class OutlineEdge:
    """An edge between two nodes, given by their positions in the list of nodes. It stands for `count` edges
    of the diagram."""

    source: int
    target: int
    kind: EdgeKind
    label: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Outline:
    """The nodes in the order of the spec, and the edges in the order of the diagram.

    title     the name of the workflow, and the id of the execution
    expanded  the groups that are open
    places    the position of the node that stands for each step
    """

    title: str
    nodes: tuple[OutlineNode, ...]
    edges: tuple[OutlineEdge, ...]
    step_count: int
    has_status: bool = False
    expanded: frozenset[str] = frozenset()
    places: Mapping[str, int] = field(default_factory=dict, repr=False)

    def node_of(self, step_id: str) -> OutlineNode:
        """Return the node that stands for a step."""
        return self.nodes[self.places[step_id]]


def make_outline(
    diagram: Diagram,
    *,
    max_nodes: int = MAX_NODES,
    expanded: frozenset[str] = frozenset(),
    max_opened: int | None = None,
) -> Outline:
    """Decide what is drawn of a diagram: at most `max_nodes` nodes. A group in `expanded` stays closed if the
    nodes with its members would be more than `max_opened`, by default `max_nodes`."""
    if max_nodes < 1:
        raise ValueError("max_nodes must be at least 1")
    index = {node.id: place for place, node in enumerate(diagram.nodes)}
    edges = [edge for edge in diagram.edges if edge.kind not in EXTERNAL_EDGE_KINDS]
    opened: set[str] = set()
    if len(index) <= max_nodes:
        nodes, places = _draw_members(range(len(index)), diagram), list(range(len(index)))
    else:
        max_members = max(int(max_nodes * COLLAPSED_SHARE), 1)
        members = collapse(list(index), _list_parents(edges, index), max_members)
        members, opened = _open(members, expanded, max_opened or max_nodes)
        nodes, places = _draw_members(members, diagram), _list_places(members, len(index))
    return Outline(
        title=" ".join(part for part in (diagram.name or "workflow", diagram.execution_id) if part),
        nodes=tuple(nodes),
        edges=_merge_edges(edges, index, places),
        step_count=len(index),
        has_status=diagram.execution_id is not None,
        expanded=frozenset(opened),
        places=dict(zip(index, places, strict=True)),
    )


def _list_parents(edges: Sequence[Edge], index: Mapping[str, int]) -> list[list[int]]:
    """List the parents of each step, each once and in order."""
    parents: list[list[int]] = [[] for _ in index]
    for edge in edges:
        if edge.kind != "set":
            parents[index[edge.target]].append(index[edge.source])
    return [sorted(set(some)) if len(some) > 1 else some for some in parents]


def _open(
    members: Sequence[Member], expanded: frozenset[str], max_nodes: int
) -> tuple[list[Member], set[str]]:
    """Replace the groups that are expanded by their members, as long as there is room. Return the members,
    and the ids of the groups that are open now."""
    room = max_nodes - len(members)
    todo = list(reversed(members))
    found: list[Member] = []
    opened: set[str] = set()
    while todo:
        member = todo.pop()
        if isinstance(member, Group) and member.id in expanded:
            parts = divide(member)
            if len(parts) - 1 <= room:
                room -= len(parts) - 1
                opened.add(member.id)
                todo += reversed(parts)
                continue
        found.append(member)
    found.sort(key=lambda member: member if isinstance(member, int) else min(member.leaves))
    return found, opened


def _list_places(members: Sequence[Member], count: int) -> list[int]:
    """List the position of the node that stands for each step."""
    places = [0] * count
    for place, member in enumerate(members):
        for step in (member,) if isinstance(member, int) else member.leaves:
            places[step] = place
    return places


def _draw_members(members: Sequence[Member], diagram: Diagram) -> list[OutlineNode]:
    external = _describe_external_edges(diagram.edges)
    steps = diagram.nodes
    return [
        _draw_step(steps[member], external)
        if isinstance(member, int)
        else _draw_group(member, [steps[step] for step in sorted(member.leaves)])
        for member in members
    ]


def _draw_step(node: Node, external: Mapping[str, Sequence[str]]) -> OutlineNode:
    details = (*((node.title,) if node.title else ()), *node.marks, *external.get(node.id, ()))
    counts = {} if node.status is None else {node.status: 1}
    return OutlineNode(node.id, node.id, details, node.kind, (node.id,), counts)


def _draw_group(group: Group, nodes: Sequence[Node]) -> OutlineNode:
    ids = tuple([node.id for node in nodes])
    counts = Counter([node.status for node in nodes if node.status is not None])
    name = format_count(len(ids), "step")
    about = f"{ids[0]} … {ids[-1]}" if group.kind == "part" else _name_steps(ids)
    return OutlineNode(group.id, name, (about,), group.kind, ids, counts, is_group=True)


def _name_steps(ids: Sequence[str]) -> str:
    """Name many steps by what their ids begin with, or else by the ids without their last number."""
    first, last = min(ids), max(ids)
    length = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    prefix = first[:length].rstrip(_NUMBER)
    if len(prefix) > 1:
        return f"{prefix}…"
    return ", ".join(dict.fromkeys(step_id.rstrip(_NUMBER) or step_id for step_id in ids[:MAX_NAMED]))


def _describe_external_edges(edges: Sequence[Edge]) -> dict[str, list[str]]:
    """Describe the edges of each step that lead to no other step."""
    found: dict[str, list[str]] = {}
    for edge in edges:
        if edge.kind in EXTERNAL_EDGE_KINDS:
            found.setdefault(edge.source, []).append(_EXTERNAL_PHRASES[edge.kind].format(edge.target))
        elif edge.kind == "set" and edge.source == edge.target:
            found.setdefault(edge.source, []).append("sets itself")
    return found


def _merge_edges(
    edges: Sequence[Edge], index: Mapping[str, int], places: Sequence[int]
) -> tuple[OutlineEdge, ...]:
    """Merge the edges between the same two nodes. A `set` stays an edge of its own, because it leads back."""
    merged: dict[tuple[int, int, bool], OutlineEdge] = {}
    for edge in edges:
        source, target, kind = places[index[edge.source]], places[index[edge.target]], edge.kind
        if source == target:
            continue
        key = (source, target, kind == "set")
        one = merged.get(key)
        if one is None:
            merged[key] = OutlineEdge(source, target, kind, edge.label)
        else:
            one.count += 1
            if kind != one.kind:
                one.kind = min(one.kind, kind, key=_EDGE_PRIORITY.index)
            if edge.label and edge.label != one.label:
                one.label = f"{one.label}, {edge.label}" if one.label else edge.label
    return tuple(merged.values())
