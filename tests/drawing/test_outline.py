"""What is drawn of a graph: all of its steps, or groups of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.drawing.diagram import Diagram, Edge, Node, diagram_from_spec
from orchestrator.drawing.groups import MAX_PARTS, find_layers
from orchestrator.drawing.outline import Outline, OutlineEdge, make_outline
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


def names(outline: Outline) -> dict[str, str]:
    """What is written on each node."""
    return {node.id: f"{node.name}: {'; '.join(node.details)}" for node in outline.nodes}


def is_acyclic(outline: Outline) -> bool:
    """Whether no path along the edges for which steps wait leads back."""
    parents: list[list[int]] = [[] for _ in outline.nodes]
    flow = [edge for edge in outline.edges if edge.kind != "set"]
    for edge in flow:
        parents[edge.target].append(edge.source)
    layers = find_layers(parents)
    return all(layers[edge.source] < layers[edge.target] for edge in flow)


def covered(outline: Outline) -> list[str]:
    return sorted(step for node in outline.nodes for step in node.steps)


# ---- a small graph


def test_a_small_graph_is_drawn_step_by_step() -> None:
    outline = make_outline(diagram_from_spec(EVERYTHING))

    assert [node.id for node in outline.nodes] == [
        "check",
        "route",
        "truck",
        "post",
        "confirm",
        "rest",
        "bill",
        "poll",
    ]
    assert outline.nodes[0].details == ("Is it there?",)
    assert outline.nodes[2].details == ("conditional", "compensated by call_back")
    assert outline.nodes[3].details == ("map, 2 at once", "may halt", "sets itself")
    assert outline.nodes[6].details == ("starts billing",)
    assert OutlineEdge(1, 2, "switch", "big, huge") in outline.edges
    assert OutlineEdge(3, 0, "set") in outline.edges
    assert not {"compensate", "child"} & {edge.kind for edge in outline.edges}
    assert (outline.title, outline.step_count, outline.has_status) == ("order", 8, False)


def test_an_empty_graph_has_an_outline() -> None:
    outline = make_outline(Diagram(None, (), ()))

    assert (outline.title, outline.nodes, outline.edges) == ("workflow", (), ())


def test_a_limit_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_nodes must be at least 1"):
        make_outline(make_chain(2), max_nodes=0)


# ---- groups


def test_steps_with_the_same_parents_and_children_become_one_node() -> None:
    outline = make_outline(make_fan(240), max_nodes=100)

    assert names(outline) == {"start": "start: ", "fan:work-0": "240 steps: work…", "end": "end: "}
    assert outline.node_of("work-7") is outline.nodes[1]
    assert outline.edges == (
        OutlineEdge(0, 1, "depends_on", count=240),
        OutlineEdge(1, 2, "depends_on", count=240),
    )


def test_a_run_of_steps_becomes_one_node() -> None:
    diagram = make_diagram({"a": "", "b": "a", "c": "b", "d": "c", "e": "c", "f": "d"})

    outline = make_outline(diagram, max_nodes=5)

    assert names(outline) == {"chain:a": "3 steps: a, b, c", "chain:d": "2 steps: d, f", "e": "e: "}


def test_chains_side_by_side_become_a_fan() -> None:
    outline = make_outline(make_lanes(30, 5), max_nodes=20)

    assert [node.id for node in outline.nodes] == ["start", "fan:lane0-0", "end"]
    assert len(outline.nodes[1].steps) == 150


def test_steps_of_a_layer_whose_ids_differ_in_digits_become_one_node() -> None:
    outline = make_outline(make_grid(20, 5), max_nodes=40)

    assert [node.kind for node in outline.nodes] == ["alike"] * 5
    assert is_acyclic(outline)


def test_no_more_collapses_than_needed() -> None:
    """The fan is enough, so the chain stays."""
    fan = make_fan(50)
    tail = {f"t{n}": f"t{n - 1}" if n else "end" for n in range(10)}
    nodes = (*fan.nodes, *(Node(step, None, "task", 3 + n) for n, step in enumerate(tail)))
    edges = (*fan.edges, *(Edge(parent, step, "depends_on") for step, parent in tail.items()))

    outline = make_outline(Diagram("made", nodes, edges), max_nodes=20)

    assert [node.id for node in outline.nodes if node.is_group] == ["fan:work-0"]


@pytest.mark.parametrize(("max_nodes", "kinds"), [(36, {"task", "layer"}), (6, {"band"})])
def test_layers_collapse_at_last(max_nodes: int, kinds: set[str]) -> None:
    letters = "abcde"
    parents = {
        f"{letters[n]}{layer}": f"{letters[n]}{layer - 1} {letters[n - 1]}{layer - 1}" if layer else ""
        for layer in range(10)
        for n in range(5)
    }

    outline = make_outline(make_diagram(parents), max_nodes=max_nodes)

    assert len(outline.nodes) <= max_nodes
    assert {node.kind for node in outline.nodes} == kinds
    assert is_acyclic(outline)


def test_a_group_counts_the_statuses_of_its_steps() -> None:
    statuses = {"start": "complete", "end": "ready", "work-1": "failed", "work-2": "in_progress"}
    work = {f"work-{n}": "start" for n in range(10)}
    diagram = make_diagram(
        {"start": "", **work, "end": " ".join(work)}, {**dict.fromkeys(work, "queued"), **statuses}
    )

    group = make_outline(diagram, max_nodes=5).nodes[1]

    assert group.counts == {"queued": 8, "failed": 1, "in_progress": 1}
    assert group.status == "failed"
    assert make_outline(make_fan(10), max_nodes=5).nodes[1].status is None


def test_the_edges_between_two_groups_are_one() -> None:
    nodes = tuple(
        Node(step, None, "task", layer) for step, layer in (("a", 0), ("b1", 1), ("b2", 1), ("b3", 1))
    )
    edges = (
        Edge("a", "b1", "reference"),
        Edge("a", "b2", "switch", "x"),
        Edge("a", "b3", "switch", "y"),
        Edge("b1", "a", "set"),
        Edge("b2", "a", "set"),
        Edge("b1", "b2", "set"),
    )

    outline = make_outline(Diagram("made", nodes, edges), max_nodes=3)

    assert outline.edges == (
        OutlineEdge(0, 1, "switch", "x, y", count=3),
        OutlineEdge(1, 0, "set", count=2),
    )


# ---- expanded groups


def test_an_expanded_group_shows_its_members() -> None:
    diagram = make_lanes(30, 5)
    closed = make_outline(diagram, max_nodes=45)

    lanes = make_outline(diagram, max_nodes=45, expanded=frozenset({"fan:lane0-0"}))
    steps = make_outline(diagram, max_nodes=45, expanded=frozenset({"fan:lane0-0", "chain:lane7-0"}))

    assert len(closed.nodes) == 3
    assert [node.kind for node in lanes.nodes] == ["task", *["chain"] * 30, "task"]
    assert [node.id for node in steps.nodes if node.id.startswith("lane7")] == [
        f"lane7-{n}" for n in range(5)
    ]
    assert steps.expanded == {"fan:lane0-0", "chain:lane7-0"}
    assert {node.id for node in lanes.nodes} - {node.id for node in steps.nodes} == {"chain:lane7-0"}


def test_a_large_group_opens_in_parts() -> None:
    diagram, fan = make_fan(1_000), "fan:work-0"

    parts = make_outline(diagram, max_nodes=300, expanded=frozenset({fan}))
    part = make_outline(diagram, max_nodes=300, expanded=frozenset({fan, f"{fan}/2"}))

    assert [node.name for node in parts.nodes] == ["start", *["100 steps"] * 10, "end"]
    assert [node.id for node in parts.nodes[1:3]] == [f"{fan}/0", f"{fan}/1"]
    assert parts.nodes[2].details == ("work-100 … work-199",)
    assert sum(not node.is_group for node in part.nodes) == 2 + MAX_PARTS


def test_a_group_without_room_for_its_members_stays_closed() -> None:
    outline = make_outline(make_fan(90), max_nodes=50, expanded=frozenset({"fan:work-0", "unknown"}))

    assert [node.id for node in outline.nodes] == ["start", "fan:work-0", "end"]
    assert not outline.expanded


# ---- any graph


@given(diagram=diagrams(), max_nodes=st.integers(1, 45), data=st.data())
def test_every_step_is_drawn_once_within_the_limit(
    diagram: Diagram, max_nodes: int, data: st.DataObject
) -> None:
    closed = make_outline(diagram, max_nodes=max_nodes)
    groups = [node.id for node in closed.nodes if node.is_group]
    expanded = frozenset(data.draw(st.sets(st.sampled_from(groups))) if groups else ())

    opened = make_outline(diagram, max_nodes=max_nodes, expanded=expanded)

    ids = [node.id for node in diagram.nodes]
    for outline in (closed, opened):
        assert covered(outline) == sorted(ids)
        assert len(outline.nodes) <= max_nodes
        assert len({node.id for node in outline.nodes}) == len(outline.nodes)
        assert all(step in outline.node_of(step).steps for step in ids)
        assert is_acyclic(outline)
        assert [node.steps[0] for node in outline.nodes] == sorted(
            (node.steps[0] for node in outline.nodes), key=ids.index
        )
    assert opened.expanded <= expanded
    assert {node.id for node in closed.nodes} - {node.id for node in opened.nodes} == opened.expanded


@pytest.mark.parametrize("diagram", [make_random(3_000), make_grid(60, 50), make_chain(3_000)])
@pytest.mark.parametrize("max_nodes", [1, 30, 1_500])
def test_a_large_graph_is_within_the_limit(diagram: Diagram, max_nodes: int) -> None:
    outline = make_outline(diagram, max_nodes=max_nodes)

    assert 1 <= len(outline.nodes) <= max_nodes
    assert Counter(covered(outline)) == Counter(node.id for node in diagram.nodes)
    assert is_acyclic(outline)
    assert make_outline(diagram, max_nodes=max_nodes) == outline
