"""Where the nodes and the edges of a picture are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.drawing.diagram import Diagram, diagram_from_spec
from orchestrator.drawing.layers import arrange
from orchestrator.drawing.layout import Direction, Layout, PlacedNode, lay_out
from orchestrator.drawing.outline import make_outline
from worlds.graphs import (
    EVERYTHING,
    diagrams,
    make_chain,
    make_diagram,
    make_fan,
    make_grid,
    make_lanes,
    make_random,
)

DIRECTIONS: tuple[Direction, ...] = ("right", "down")


def laid_out(diagram: Diagram, direction: Direction = "right") -> Layout:
    return lay_out(make_outline(diagram), direction=direction)


def placed(layout: Layout) -> dict[str, PlacedNode]:
    return {one.node.id: one for one in layout.nodes}


def check(layout: Layout) -> None:
    """Nothing overlaps, everything is inside of the picture, and edges lead in its direction."""
    is_down = layout.direction == "down"
    for one in layout.nodes:
        assert one.x >= 0
        assert one.y >= 0
        assert one.x + one.width <= layout.width
        assert one.y + one.height <= layout.height
    columns: dict[int, list[PlacedNode]] = {}
    for one in layout.nodes:
        columns.setdefault(one.y if is_down else one.x, []).append(one)
    starts = sorted(columns)
    size = layout.nodes[0].height if is_down else layout.nodes[0].width
    assert all(after - before > size for before, after in pairwise(starts))
    for column in columns.values():
        tops = sorted(
            (one.x, one.x + one.width) if is_down else (one.y, one.y + one.height) for one in column
        )
        assert all(end < start for (_, end), (start, _) in pairwise(tops))
    assert len(layout.edges) == len(layout.outline.edges)
    for edge in layout.edges:
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in edge.points)
        assert len(edge.points) % 2 == 0
        source, target = layout.nodes[edge.edge.source], layout.nodes[edge.edge.target]
        assert is_beside(edge.points[0], source)
        assert is_beside(edge.points[-1], target)
        if edge.edge.kind != "set":
            along = [y if is_down else x for x, y in edge.points]
            assert all(before < after for before, after in pairwise(along))


def is_beside(point: tuple[int, int], node: PlacedNode) -> bool:
    """Whether a point is on the border of a node."""
    (x, y) = point
    return (
        node.x <= x <= node.x + node.width
        and node.y <= y <= node.y + node.height
        and (x in (node.x, node.x + node.width) or y in (node.y, node.y + node.height))
    )


@given(diagram=diagrams(), direction=st.sampled_from(DIRECTIONS), max_nodes=st.integers(5, 50))
def test_any_graph_is_laid_out_without_overlaps(
    diagram: Diagram, direction: Direction, max_nodes: int
) -> None:
    outline = make_outline(diagram, max_nodes=max_nodes)

    layout = lay_out(outline, direction=direction)

    assert [one.node for one in layout.nodes] == list(outline.nodes)
    if layout.nodes:
        check(layout)
    assert lay_out(outline, direction=direction) == layout


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "diagram",
    [
        make_chain(200),
        make_fan(500),
        make_grid(30, 30),
        make_random(1_400),
        make_lanes(40, 10),
        diagram_from_spec(EVERYTHING),
    ],
    ids=["chain", "fan", "grid", "random", "lanes", "everything"],
)
def test_large_graphs_of_many_shapes_are_laid_out(diagram: Diagram, direction: Direction) -> None:
    check(laid_out(diagram, direction))


def test_a_chain_is_a_straight_line() -> None:
    layout = laid_out(make_chain(20))

    assert {one.y for one in layout.nodes} == {16}
    assert {y for edge in layout.edges for _, y in edge.points} == {32}


def test_the_middle_of_a_diamond_is_beside_its_ends() -> None:
    nodes = placed(laid_out(make_diagram({"a": "", "b": "a", "c": "a", "d": "b c"})))

    assert nodes["a"].y == nodes["d"].y == (nodes["b"].y + nodes["c"].y) // 2
    assert nodes["b"].x == nodes["c"].x


def test_lanes_are_straight_and_do_not_cross() -> None:
    nodes = placed(laid_out(make_lanes(6, 5)))

    for lane in range(6):
        assert len({nodes[f"lane{lane}-{n}"].y for n in range(5)}) == 1


def test_a_tree_has_no_crossings() -> None:
    edges = [((n - 1) // 2, n) for n in range(1, 63)]

    graph = arrange(63, edges)

    for layer, after in pairwise(graph.layers):
        ends = [graph.after[node] for node in layer]
        assert [child for some in ends for child in some] == after


def test_sweeps_undo_the_crossings_of_the_written_order() -> None:
    """The parents of the second layer are written in the opposite order."""
    parents = {f"a{n}": "" for n in range(8)} | {f"b{n}": f"a{7 - n}" for n in range(8)}

    nodes = placed(laid_out(make_diagram(parents)))

    for n in range(8):
        assert nodes[f"b{n}"].y == nodes[f"a{7 - n}"].y


def test_a_long_edge_goes_around_the_nodes_between() -> None:
    layout = laid_out(make_diagram({"a": "", "b": "a", "c": "b", "d": "c a"}))

    (long,) = (edge for edge in layout.edges if edge.edge.source == 0 and edge.edge.target == 3)

    nodes = placed(layout)
    for name, (x, y) in zip(("b", "c"), long.points[1:5:2], strict=True):
        node = nodes[name]
        assert x == node.x
        assert not node.y <= y <= node.y + node.height


def test_the_long_edges_of_one_source_share_their_bends() -> None:
    parents = {f"s{n}": f"s{n - 1}" if n else "" for n in range(10)}
    parents |= {f"s{n}": f"s{n - 1} s0" for n in range(2, 10)}

    layout = laid_out(make_diagram(parents))

    bends = {point for edge in layout.edges for point in edge.points[1:-1]}
    assert len(bends) == 2 * 8


def test_a_huge_graph_has_few_bends() -> None:
    """A bend in each layer that an edge spans would be 100 times as many."""
    count = 500
    edges = [(n, n + 1) for n in range(count)] + [(n, count) for n in range(count - 1)]
    edges += [(n, m) for n in range(0, count, 2) for m in range(n + 100, count, 100)]

    graph = arrange(count + 1, edges)

    assert len(graph.before) < 3 * count


def test_a_set_leads_back_from_the_left_side() -> None:
    layout = laid_out(make_diagram({"a": "", "b": "a", "c": "b"}, sets={"c": "a", "a": "c"}))
    nodes = placed(layout)

    back, forward = (edge.points for edge in layout.edges if edge.edge.kind == "set")

    assert back[0][0] == nodes["c"].x
    assert back[-1][0] == nodes["a"].x + nodes["a"].width
    assert forward[0][0] == nodes["a"].x + nodes["a"].width
    assert forward[-1][0] == nodes["c"].x


def test_a_set_within_a_column_stays_beside_it() -> None:
    layout = laid_out(make_diagram({"a": "", "b": ""}, sets={"b": "a"}))

    (edge,) = layout.edges

    assert len({x for x, _ in edge.points}) == 2
    assert max(x for x, _ in edge.points) <= layout.width
    check(layout)


def test_an_empty_graph_is_a_small_picture() -> None:
    layout = laid_out(Diagram(None, (), ()))

    assert (layout.nodes, layout.edges) == ((), ())
    assert (layout.width, layout.height) == (32, 32)


def test_nodes_are_as_wide_as_their_names_need_within_limits() -> None:
    def width(name: str) -> int:
        return laid_out(make_diagram({name: ""})).nodes[0].width

    assert width("a") < width("a-longer-name") < width("a" * 60) == width("a" * 128)
