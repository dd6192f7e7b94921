"""Measures how long a picture of a workflow graph takes: python -m scripts.benchmarks.drawing [STEPS...]

It prints milliseconds of processor time, the least of several runs, for outline, layout and SVG. Graphs above
the limit of nodes are also measured without collapsing.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from orchestrator.drawing.diagram import Diagram, Edge, Node
from orchestrator.drawing.layout import lay_out
from orchestrator.drawing.outline import MAX_NODES, make_outline
from orchestrator.drawing.svg import render_svg

T = TypeVar("T")
ROUNDS = 5
GRID_WIDTH = 25
RANDOM_SEED = 7


def main(sizes: list[int]) -> None:
    print(
        f"{'shape':<8}{'steps':>7}{'edges':>7}{'nodes':>7}{'outline':>9}{'layout':>8}{'svg':>7}{'bytes':>9}"
    )
    for size in sizes:
        for name, find_parents in SHAPES.items():
            diagram = make_diagram(size, find_parents)
            for max_nodes in (MAX_NODES, size) if size > MAX_NODES else (MAX_NODES,):
                print(f"{name:<8}{size:>7}{len(diagram.edges):>7}{measure(diagram, max_nodes)}", flush=True)


def measure(diagram: Diagram, max_nodes: int) -> str:
    outline_ms, outline = _time(lambda: make_outline(diagram, max_nodes=max_nodes))
    layout_ms, layout = _time(lambda: lay_out(outline))
    svg_ms, svg = _time(lambda: render_svg(layout))
    return f"{len(outline.nodes):>7}{outline_ms:>9.1f}{layout_ms:>8.1f}{svg_ms:>7.1f}{len(svg.encode()):>9,}"


def _time(make: Callable[[], T]) -> tuple[float, T]:
    """Return the least processor time of several calls in milliseconds, and the result."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        result = make()
        times.append(time.process_time() - began)
    return min(times) * 1_000, result


# ---- shapes: the parents of step n of `size`


def _chain(n: int, size: int) -> Iterator[int]:
    if n:
        yield n - 1


def _fan(n: int, size: int) -> Iterator[int]:
    yield from range(1, size - 1) if n == size - 1 else range(min(n, 1))


def _tree(n: int, size: int) -> Iterator[int]:
    if n:
        yield (n - 1) // 3


def _grid(n: int, size: int) -> Iterator[int]:
    """Each step waits for two of the layer before."""
    layer, place = divmod(n, GRID_WIDTH)
    if layer:
        yield from ((layer - 1) * GRID_WIDTH + one for one in sorted({place, (place + 2) % GRID_WIDTH}))


def _random(n: int, size: int) -> Iterator[int]:
    """Each step waits for up to three of the 40 before it."""
    luck = random.Random(f"{RANDOM_SEED}-{n}")
    yield from sorted({luck.randrange(max(0, n - 40), n) for _ in range(luck.randrange(4))}) if n else ()


SHAPES: dict[str, Callable[[int, int], Iterator[int]]] = {
    "chain": _chain,
    "fan": _fan,
    "tree": _tree,
    "grid": _grid,
    "random": _random,
}


def make_diagram(size: int, find_parents: Callable[[int, int], Iterator[int]]) -> Diagram:
    layers: list[int] = []
    edges = []
    for n in range(size):
        parents = list(find_parents(n, size))
        layers.append(max((layers[parent] + 1 for parent in parents), default=0))
        edges += [Edge(f"step{parent}", f"step{n}", "depends_on") for parent in parents]
    nodes = tuple(Node(f"step{n}", None, "task", layer) for n, layer in enumerate(layers))
    return Diagram("benchmark", nodes, tuple(edges))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1_000, 10_000])
