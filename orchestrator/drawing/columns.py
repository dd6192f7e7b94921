"""Places the nodes of ordered layers: how far each is from the upper edge of the picture.

Every node wants to be beside its neighbours: at the mean of their places. In a layer, the nodes keep their
order and a distance, and the sum of the squared differences from what they want is the least that is
possible. This is an isotonic regression; pooling neighbours that are too close solves it in linear time.
The layers take turns, forward by the neighbours before and backward by those after. The last turn is
forward, so a chain is a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, repeat
from operator import le

from orchestrator.drawing.layers import LayeredGraph

MAX_TURNS = 5
MAX_VISITS = 16_000
"""How many nodes and edges all turns together look at, about; a large graph gets fewer, but three."""

BEND_WEIGHT = 4.0
"""A bend holds its place against nodes, so that long edges are straight."""

LONE_WEIGHT = 0.1
"""A node without neighbours on one side makes room for the others."""


def place_layers(graph: LayeredGraph, node_size: int, node_gap: int, bend_gap: int) -> list[int]:
    """Return the place of the middle of each node and bend; it can be negative."""
    offsets = [_measure(layer, graph.node_count, node_size, node_gap, bend_gap) for layer in graph.layers]
    middle = [0.0] * len(graph.before)
    for layer, offset in zip(graph.layers, offsets, strict=True):
        half = offset[-1] / 2
        for node, at in zip(layer, offset, strict=True):
            middle[node] = at - half
    visits = len(graph.before) + sum(map(len, graph.after))
    turns = min(MAX_TURNS, max(3, MAX_VISITS // max(visits, 1))) | 1
    for turn in range(turns if len(graph.layers) > 1 else 0):
        _take_turn(graph, offsets, middle, is_forward=turn % 2 == 0)
    return _round(graph, offsets, middle)


def _measure(
    layer: Sequence[int], node_count: int, node_size: int, node_gap: int, bend_gap: int
) -> list[int]:
    """Return the least distance of each node of a layer from the first one."""
    offset, at, was_node = [], 0, False
    for place, node in enumerate(layer):
        is_node = node < node_count
        if place:
            if is_node and was_node:
                at += node_size + node_gap
            elif is_node or was_node:
                at += node_size // 2 + bend_gap
            else:
                at += bend_gap
        offset.append(at)
        was_node = is_node
    return offset


def _take_turn(
    graph: LayeredGraph, offsets: Sequence[list[int]], middle: list[float], *, is_forward: bool
) -> None:
    neighbours = graph.before if is_forward else graph.after
    places = range(len(offsets)) if is_forward else range(len(offsets) - 1, -1, -1)
    for place in places:
        layer, offset = graph.layers[place], offsets[place]
        if len(layer) == 1:
            some = neighbours[layer[0]]
            if some:
                middle[layer[0]] = sum([middle[one] for one in some]) / len(some)
            continue
        wanted, weights = [], []
        for node, at in zip(layer, offset, strict=True):
            some = neighbours[node]
            if len(some) == 1:
                wanted.append(middle[some[0]] - at)
                weights.append(BEND_WEIGHT if node >= graph.node_count else 1.0)
            elif some:
                wanted.append(sum([middle[one] for one in some]) / len(some) - at)
                weights.append(1.0)
            else:
                wanted.append(middle[node] - at)
                weights.append(LONE_WEIGHT)
        for node, at, fitted in zip(layer, offset, _fit(wanted, weights), strict=True):
            middle[node] = fitted + at


def _fit(wanted: list[float], weights: list[float]) -> list[float]:
    """Return the ascending numbers that are nearest to the wanted ones: the weighted isotonic regression."""
    if all(map(le, wanted, islice(wanted, 1, None))):
        return wanted
    means: list[float] = []  # of pools of neighbours, with the weight and the number of each
    totals: list[float] = []
    counts: list[int] = []
    for mean, total in zip(wanted, weights, strict=True):
        count = 1
        while means and means[-1] >= mean:
            weight = totals.pop()
            mean = (mean * total + means.pop() * weight) / (total + weight)
            total += weight
            count += counts.pop()
        means.append(mean)
        totals.append(total)
        counts.append(count)
    return list(chain.from_iterable(map(repeat, means, counts)))


def _round(graph: LayeredGraph, offsets: list[list[int]], middle: list[float]) -> list[int]:
    """Round the places, and keep the distances."""
    places = [0] * len(middle)
    for layer, offset in zip(graph.layers, offsets, strict=True):
        last = None
        for node, at in zip(layer, offset, strict=True):
            place = round(middle[node]) - at
            if last is not None and place < last:
                place = last
            places[node] = place + at
            last = place
    return places
