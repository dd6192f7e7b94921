"""Where everything is in a picture: the nodes in columns from left to right, the edges between them.

layout = lay_out(make_outline(diagram))

All nodes have one size. All numbers are integers, in pixels, and the same graph gives the same layout. With
the direction "down" the columns are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from orchestrator.drawing.columns import place_layers
from orchestrator.drawing.labels import estimate_width
from orchestrator.drawing.layers import LayeredGraph, arrange
from orchestrator.drawing.outline import Outline, OutlineEdge, OutlineNode

Direction = Literal["right", "down"]
Point = tuple[int, int]

MARGIN = 16
NAME_SIZE, DETAIL_SIZE = 13, 11
TEXT_LEFT, TEXT_RIGHT = 32, 10
"""The space before the text of a node, for its icon, and after it."""

MIN_WIDTH, MAX_NAME_WIDTH, MAX_DETAIL_WIDTH = 88, 178, 160
NAME_HEIGHT, DETAIL_HEIGHT, BAR_HEIGHT = 32, 14, 6
ROW_GAP, BEND_GAP = 12, 10
COLUMN_GAP, MAX_COLUMN_GAP = 40, 200
MAX_LABEL_WIDTH = 110
SET_SHIFT = 8
"""A `set` begins and ends beside the middle of a node, because it often leads back along another edge."""

STEEPNESS = 10
"""The space between two columns grows by one pixel for so many pixels that an edge climbs between them."""


# Not frozen, as in outline.py.
@dataclass(slots=True)
class PlacedNode:
    node: OutlineNode
    x: int
    y: int
    width: int
    height: int


@dataclass(slots=True)
class PlacedEdge:
    """An edge and its points.

    From the source to the target, a curve leads from each point at an even place to the next, and a straight
    line from there to the curve after it. Only a `set` can lead back. If it stays in one column, its four
    points are the start, two control points and the end of one curve.
    """

    edge: OutlineEdge
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """`nodes` and `edges` are in the order of the outline."""

    outline: Outline
    direction: Direction
    width: int
    height: int
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]


def lay_out(outline: Outline, *, direction: Direction = "right") -> Layout:
    """Compute the layout of an outline."""
    width, height = _measure_node(outline)
    is_down = direction == "down"
    along, across = (height, width) if is_down else (width, height)
    flow = [(edge.source, edge.target) for edge in outline.edges if edge.kind != "set"]
    sets = [(edge.source, edge.target) for edge in outline.edges if edge.kind == "set"]
    graph = arrange(len(outline.nodes), flow, sets)
    middles = place_layers(graph, across, ROW_GAP * (2 if is_down else 1), BEND_GAP)
    starts = _place_columns(graph, middles, along, 0 if is_down else _measure_labels(outline))
    corners, routes = _trace(outline, graph, middles, starts, (along, across))
    if is_down:
        corners = [(y, x) for x, y in corners]
        routes = [tuple([(y, x) for x, y in route]) for route in routes]
    return _frame(outline, direction, corners, routes, (width, height))


def _measure_node(outline: Outline) -> tuple[int, int]:
    """Return the size that all nodes have."""
    names = max([estimate_width(node.name, NAME_SIZE) for node in outline.nodes], default=0)
    details = max(
        [estimate_width(join_details(node), DETAIL_SIZE) for node in outline.nodes if node.details], default=0
    )
    has_bar = outline.has_status and any(node.is_group for node in outline.nodes)
    widest = max(min(names, MAX_NAME_WIDTH), min(details, MAX_DETAIL_WIDTH))
    width = max(widest + TEXT_LEFT + TEXT_RIGHT, MIN_WIDTH)
    return width + width % 2, NAME_HEIGHT + DETAIL_HEIGHT * (details > 0) + BAR_HEIGHT * has_bar


def join_details(node: OutlineNode) -> str:
    return "; ".join(node.details)


def _measure_labels(outline: Outline) -> int:
    """Return the width of the widest label of an edge, as far as it is shown."""
    widths = (estimate_width(edge.label, DETAIL_SIZE) for edge in outline.edges if edge.label)
    return min(max(widths, default=0), MAX_LABEL_WIDTH)


def _place_columns(graph: LayeredGraph, middles: Sequence[int], along: int, label_width: int) -> list[int]:
    """Return where each column starts. Where edges climb far, the space before it is wider."""
    starts = [0]
    for layer in graph.layers[:-1]:
        climb = 0
        for node in layer:
            here = middles[node]
            for other in graph.after[node]:
                difference = middles[other] - here
                if difference > climb or -difference > climb:
                    climb = abs(difference)
        gap = max(
            min(COLUMN_GAP + climb // STEEPNESS, MAX_COLUMN_GAP), label_width and label_width + COLUMN_GAP
        )
        starts.append(starts[-1] + along + gap)
    return starts


def _trace(
    outline: Outline,
    graph: LayeredGraph,
    middles: Sequence[int],
    starts: Sequence[int],
    size: tuple[int, int],
) -> tuple[list[Point], list[tuple[Point, ...]]]:
    """Return the upper left corner of each node, and the points of each edge."""
    along, across = size
    start = [0] * len(middles)
    for layer, at in zip(graph.layers, starts, strict=False):  # an empty picture has no layer
        for node in layer:
            start[node] = at
    corners = [(start[node], middles[node] - across // 2) for node in range(graph.node_count)]
    flow, sets = (
        iter(graph.routes),
        islice(graph.routes, sum(edge.kind != "set" for edge in outline.edges), None),
    )
    routes: list[tuple[Point, ...]] = []
    for edge in outline.edges:
        source, target = edge.source, edge.target
        bends = next(sets if edge.kind == "set" else flow)
        if start[source] == start[target]:
            routes.append(_arc(start[source] + along, middles[source], middles[target]))
            continue
        leads_back = start[source] > start[target]
        if leads_back:
            source, target = target, source
        shift = SET_SHIFT if edge.kind == "set" else 0
        points = [(start[source] + along, middles[source] + shift)]
        for bend in bends:
            points += ((start[bend], middles[bend]), (start[bend] + along, middles[bend]))
        points.append((start[target], middles[target] + shift))
        routes.append(tuple(points[::-1] if leads_back else points))
    return corners, routes


def _arc(x: int, y: int, to_y: int) -> tuple[Point, ...]:
    """Return the curve between two nodes of one column, beside it."""
    far = x + COLUMN_GAP // 2
    return (x, y), (far, y), (far, to_y), (x, to_y)


def _frame(
    outline: Outline,
    direction: Direction,
    corners: Sequence[Point],
    routes: Sequence[tuple[Point, ...]],
    size: tuple[int, int],
) -> Layout:
    """Move everything so that it begins at the margin, and measure the picture."""
    width, height = size
    # A bend can be above or below all nodes.
    left = MARGIN - min([x for x, _ in corners] + [x for route in routes for x, _ in route], default=0)
    top = MARGIN - min([y for _, y in corners] + [y for route in routes for _, y in route], default=0)
    right = max([x + width for x, _ in corners] + [x for route in routes for x, _ in route], default=0)
    bottom = max([y + height for _, y in corners] + [y for route in routes for _, y in route], default=0)
    return Layout(
        outline=outline,
        direction=direction,
        width=right + left + MARGIN,
        height=bottom + top + MARGIN,
        nodes=tuple(
            [
                PlacedNode(node, x + left, y + top, width, height)
                for node, (x, y) in zip(outline.nodes, corners, strict=True)
            ]
        ),
        edges=tuple(
            [
                PlacedEdge(edge, tuple([(x + left, y + top) for x, y in route]))
                for edge, route in zip(outline.edges, routes, strict=True)
            ]
        ),
    )
