"""Workflows as nodes and edges."""

from __future__ import annotations

import json

from orchestrator.drawing.diagram import Edge, diagram_from_spec
from worlds.graphs import END, EVERYTHING
from worlds.records import spec


def test_the_kind_of_an_edge_is_how_it_was_written() -> None:
    assert diagram_from_spec(EVERYTHING).edges == (
        Edge("check", "route", "depends_on"),
        Edge("route", "truck", "switch", "big, huge"),
        Edge("truck", "call_back", "compensate"),
        Edge("check", "post", "reference"),
        Edge("route", "post", "switch", "default"),
        Edge("post", "check", "set"),
        Edge("post", "post", "set"),
        Edge("truck", "confirm", "depends_on"),
        Edge("post", "confirm", "depends_on"),
        Edge("confirm", "rest", "depends_on"),
        Edge("post", "bill", "reference"),
        Edge("bill", "billing", "child"),
        Edge("rest", "poll", "depends_on"),
        Edge("bill", "poll", "depends_on"),
    )


def test_an_inline_child_is_named_by_its_name_or_its_size() -> None:
    own = {"steps": [{"op": "a"}, {"op": "b"}]}

    (edge,) = diagram_from_spec(spec(a={"fn": None, "workflow": own})).edges
    (named,) = diagram_from_spec(spec(a={"fn": None, "workflow": {"name": "kid", **own}})).edges

    assert (edge.target, named.target) == ("2 inline steps", "kid")


def test_a_set_whose_target_is_computed_is_a_mark() -> None:
    branch = {"condition": True, "action": {"set": {"var": "state.target"}}}

    drawn = diagram_from_spec(spec(a={"branch": [branch, END], "join": {"==": [1, 1]}}))

    assert drawn.edges == ()
    assert drawn.nodes[0].marks == ("join by an expression", "sets computed targets")


def test_a_layer_is_the_longest_path_in_any_order_of_the_spec() -> None:
    loaded = spec(d={"depends_on": ["c", "a"]}, c={"depends_on": ["b"]}, b={"depends_on": ["a"]}, a={})

    assert [(node.id, node.layer) for node in diagram_from_spec(loaded).nodes] == [
        ("d", 3),
        ("c", 2),
        ("b", 1),
        ("a", 0),
    ]


def test_the_diagram_is_json() -> None:
    told = json.loads(json.dumps(diagram_from_spec(EVERYTHING).as_dict()))

    assert told["nodes"][0] == {
        "id": "check",
        "title": "Is it there?",
        "kind": "task",
        "layer": 0,
        "marks": [],
        "status": None,
    }
    assert told["edges"][1] == {"source": "route", "target": "truck", "kind": "switch", "label": "big, huge"}
    assert (told["name"], told["execution_id"]) == ("order", None)
