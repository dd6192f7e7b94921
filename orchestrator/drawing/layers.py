"""The nodes of a picture in layers, and their order within a layer.

A node is a number. An edge that spans several layers gets a *bend* in each layer between: a number above
those of the nodes, which takes part in the order like a node. Long edges from one source share their bends,
and so do long edges to one target. So a step that many others read is one line that they branch off from.

Barycentre sweeps reduce the crossings: a layer is sorted by the mean position of the neighbours of each node
in the layer before, then by those in the layer after, and so on.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.drawing.groups import find_layers

MAX_SWEEPS = 12
MAX_VISITS = 20_000
"""How often all sweeps together look at an edge, about; a large graph gets fewer sweeps, but at least two."""

MAX_COUNTED = 1_500
"""Up to this number of edges, crossings are counted after each sweep, and the best order wins."""


@dataclass(slots=True)
class LayeredGraph:
    """Nodes and bends in layers.

    layers  the nodes and bends of each layer, in the order in which they are drawn
    before  the neighbours of each node in the layer before it; `after` those in the layer after it
    routes  for each edge, and then for each loose edge, the bends between its two nodes, from left to right
    """

    node_count: int
    layers: list[list[int]]
    before: list[list[int]]
    after: list[list[int]]
    routes: list[tuple[int, ...]]


def arrange(
    node_count: int, edges: Sequence[tuple[int, int]], loose_edges: Sequence[tuple[int, int]] = ()
) -> LayeredGraph:
    """Put nodes into layers by the longest path to each, and order every layer. A loose edge has no influence
    on the layers, and can lead back."""
    graph = _make_layers(node_count, edges, loose_edges)
    _start_order(graph)
    _reduce_crossings(graph)
    return graph


def _make_layers(
    node_count: int, edges: Sequence[tuple[int, int]], loose_edges: Sequence[tuple[int, int]]
) -> LayeredGraph:
    parents: list[list[int]] = [[] for _ in range(node_count)]
    for source, target in edges:
        parents[target].append(source)
    layer = find_layers(parents)
    layers: list[list[int]] = [[] for _ in range(1 + max(layer, default=-1))]
    for node, number in enumerate(layer):
        layers[number].append(node)
    forward = [
        *edges,
        *((min(edge, key=layer.__getitem__), max(edge, key=layer.__getitem__)) for edge in loose_edges),
    ]
    before: list[list[int]] = [[] for _ in range(node_count)]
    after: list[list[int]] = [[] for _ in range(node_count)]
    graph = LayeredGraph(node_count, layers, before, after, [()] * len(forward))
    long = []
    for number, (source, target) in enumerate(forward):
        span = layer[target] - layer[source]
        if span > 1:
            long.append(number)
        elif span == 1:
            after[source].append(target)
            before[target].append(source)
    # A loose edge shares no bends with others.
    for numbers in (
        [number for number in long if number < len(edges)],
        [number for number in long if number >= len(edges)],
    ):
        _add_bends(graph, forward, layer, numbers)
    return graph


def _add_bends(
    graph: LayeredGraph, edges: Sequence[tuple[int, int]], layer: Sequence[int], long: Sequence[int]
) -> None:
    """Give long edges their bends: bundles that span few layers first, until there are enough. The edges of
    the other bundles have no bends, and go straight to their target."""
    room = graph.node_count + 400
    for is_target, end, numbers in _bundle(edges, layer, long):
        spans = [(layer[edges[number][0]], layer[edges[number][1]]) for number in numbers]
        first, last = min(low for low, _ in spans) + 1, max(high for _, high in spans)
        room -= last - first
        if room < 0:
            return
        bends = _make_bends(graph, first, last)
        links = list(pairwise(bends))
        links.append((bends[-1], end) if is_target else (end, bends[0]))
        for number, (low, high) in zip(numbers, spans, strict=True):
            source, target = edges[number]
            graph.routes[number] = tuple(bends[low + 1 - first : high - first])
            links.append((source, bends[low + 1 - first]) if is_target else (bends[high - 1 - first], target))
        for one, other in dict.fromkeys(links):
            graph.after[one].append(other)
            graph.before[other].append(one)


def _bundle(
    edges: Sequence[tuple[int, int]], layer: Sequence[int], long: Sequence[int]
) -> list[tuple[bool, int, list[int]]]:
    """Bundle long edges by their source, or by their target if more of them meet there; short ones first."""
    leaving: dict[int, int] = {}
    arriving: dict[int, int] = {}
    for number in long:
        source, target = edges[number]
        leaving[source] = leaving.get(source, 0) + 1
        arriving[target] = arriving.get(target, 0) + 1
    bundles: dict[tuple[bool, int], list[int]] = {}
    for number in long:
        source, target = edges[number]
        is_target = arriving[target] > leaving[source]
        bundles.setdefault((is_target, target if is_target else source), []).append(number)
    found = [(is_target, end, numbers) for (is_target, end), numbers in bundles.items()]
    return sorted(
        found, key=lambda one: max(layer[edges[number][1]] - layer[edges[number][0]] for number in one[2])
    )


def _make_bends(graph: LayeredGraph, first: int, last: int) -> list[int]:
    """Add one bend to each layer from `first` to the one before `last`."""
    start = len(graph.before)
    bends = list(range(start, start + last - first))
    for offset, bend in enumerate(bends):
        graph.layers[first + offset].append(bend)
        graph.before.append([])
        graph.after.append([])
    return bends


def _start_order(graph: LayeredGraph) -> None:
    """Order the layers by a walk from the roots in depth: a tree has no crossing then."""
    rank = [-1] * len(graph.before)
    next_rank = 0
    after = graph.after
    for root in graph.layers[0] if graph.layers else ():
        todo = [root]
        while todo:
            node = todo.pop()
            if rank[node] < 0:
                rank[node] = next_rank
                next_rank += 1
                todo += reversed(after[node])
    for layer in graph.layers:
        layer.sort(key=rank.__getitem__)


def _reduce_crossings(graph: LayeredGraph) -> None:
    edge_count = sum(map(len, graph.after))
    visits = len(graph.before) + edge_count
    sweeps = min(MAX_SWEEPS, max(2, MAX_VISITS // max(visits, 1)))
    is_counted = edge_count <= MAX_COUNTED
    best = _count_crossings(graph) if is_counted else -1
    best_layers = [list(layer) for layer in graph.layers] if is_counted else graph.layers
    worse = 0
    for number in range(sweeps):
        if best == 0 or worse == 4:
            break
        _sweep(graph, is_forward=number % 2 == 0)
        if is_counted:
            crossings = _count_crossings(graph)
            worse += 1
            if crossings < best:
                best, best_layers, worse = crossings, [list(layer) for layer in graph.layers], 0
    graph.layers = best_layers


def _sweep(graph: LayeredGraph, *, is_forward: bool) -> None:
    """Sort each layer by the mean position of the neighbours in the layer that was sorted before it."""
    layers = graph.layers if is_forward else graph.layers[::-1]
    neighbours = graph.before if is_forward else graph.after
    position = [0.0] * len(graph.before)
    for layer in layers:
        scale = 1 / len(layer)
        for place, node in enumerate(layer):
            some = neighbours[node]
            if len(some) == 1:
                position[node] = position[some[0]]
            elif some:
                position[node] = sum([position[one] for one in some]) / len(some)
            else:
                position[node] = (place + 0.5) * scale
        layer.sort(key=position.__getitem__)
        at = 0.5 * scale
        for node in layer:
            position[node] = at
            at += scale


def _count_crossings(graph: LayeredGraph) -> int:
    """Count the pairs of edges between neighbouring layers that cross."""
    place = [0] * len(graph.before)
    for layer in graph.layers:
        for number, node in enumerate(layer):
            place[node] = number
    crossings = 0
    for layer in graph.layers:
        ends: list[int] = []
        highest = -1
        for node in layer:
            for end in sorted([place[one] for one in graph.after[node]]):
                if end >= highest:
                    highest = end
                    ends.append(end)
                else:
                    crossings += len(ends) - bisect_right(ends, end)
                    insort(ends, end)
    return crossings
