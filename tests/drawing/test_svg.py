"""Pictures as SVG: safe to show, with a class for each status, and readable colours."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given

from orchestrator.application.explain.status_view import QUEUED
from orchestrator.application.records.status import StepStatus
from orchestrator.drawing.diagram import Diagram, Edge, EdgeKind, Node, diagram_from_spec
from orchestrator.drawing.layout import Direction, lay_out
from orchestrator.drawing.outline import STATUS_PRIORITY, make_outline
from orchestrator.drawing.svg import read_stylesheet, render_svg
from worlds.graphs import EVERYTHING, diagrams, make_diagram, make_fan

SVG = "{http://www.w3.org/2000/svg}"
STATUSES = [*(status.value for status in StepStatus), QUEUED]
NASTY = "evil\x1b]0;x\x07\x00\u202e<script>alert(1)</script>\"'&]]>\ud800\ufffe"


def draw(diagram: Diagram, max_nodes: int = 1_500, direction: Direction = "right", **options: Any) -> str:
    return render_svg(lay_out(make_outline(diagram, max_nodes=max_nodes), direction=direction), **options)


def read(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.encode())


def nodes_of(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """The elements of steps and groups by their ids."""
    return {
        str(element.get("data-step") or element.get("data-group")): element
        for element in root.iter(f"{SVG}g")
        if "node" in element.get("class", "").split()
    }


def text_of(element: ElementTree.Element, name: str) -> str | None:
    return next((one.text for one in element.iter(f"{SVG}text") if one.get("class") == name), None)


# ---- what is drawn


def test_every_step_and_edge_is_drawn() -> None:
    root = read(draw(diagram_from_spec(EVERYTHING)))

    nodes = nodes_of(root)
    assert list(nodes) == ["check", "route", "truck", "post", "confirm", "rest", "bill", "poll"]
    assert nodes["route"].get("class") == "node k-switch"
    assert text_of(nodes["rest"], "details") == "delay 1 m 30 s"
    assert nodes["post"].findtext(f"{SVG}title") == "post\nmap, 2 at once\nmay halt\nsets itself"
    classes = [path.get("class") for path in root.iter(f"{SVG}path") if "edge" in path.get("class", "")]
    assert {
        kind: classes.count(f"edge e-{kind}") for kind in ("depends_on", "reference", "switch", "set")
    } == {
        "depends_on": 6,
        "reference": 2,
        "switch": 2,
        "set": 1,
    }
    assert [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "label"] == [
        "big, huge",
        "default",
    ]


def test_the_status_of_a_step_is_a_class() -> None:
    diagram = make_diagram(dict.fromkeys(STATUSES, ""), {status: status for status in STATUSES})

    nodes = nodes_of(read(draw(diagram)))

    for status in STATUSES:
        assert nodes[status].get("class") == f"node k-task s-{status}"
        assert nodes[status].findtext(f"{SVG}title") == f"{status}: {status.replace('_', ' ')}"
        assert f".s-{status} > .box" in read_stylesheet() or status == "ready"
    assert sorted(STATUS_PRIORITY) == sorted(STATUSES)


def test_only_the_classes_of_an_inline_picture_tell_a_status() -> None:
    """A page changes the class of a node. What else told the status would stay wrong."""
    parents = {"a": "", "b": "a"}
    before = draw(make_diagram(parents, {"a": "in_progress", "b": "ready"}), is_standalone=False)
    after = draw(make_diagram(parents, {"a": "complete", "b": "queued"}), is_standalone=False)

    assert before != after
    assert re.sub(r" s-\w+", "", before) == re.sub(r" s-\w+", "", after)


def test_a_group_shows_its_size_and_how_many_steps_have_which_status() -> None:
    work = [f"work-{n}" for n in range(10)]
    statuses = {"start": "complete", **dict.fromkeys(work, "complete"), "work-3": "failed", "end": "ready"}
    diagram = make_diagram({"start": "", **dict.fromkeys(work, "start"), "end": " ".join(work)}, statuses)

    group = nodes_of(read(draw(diagram, max_nodes=5)))["fan:work-0"]

    assert group.get("class") == "node k-fan s-failed group"
    assert (text_of(group, "name"), text_of(group, "details")) == ("10 steps", "work…")
    assert group.findtext(f"{SVG}title") == "10 steps\nwork…\n1 failed\n9 complete"
    (bar,) = (one for one in group.iter(f"{SVG}g") if one.get("class") == "bar")
    widths = {part.get("class"): int(part.get("width", "0")) for part in bar}
    assert widths["s-complete"] > 5 * widths["s-failed"] > 0
    assert sum(widths.values()) == int(group.find(f"{SVG}rect").get("width", "0")) - 16  # type: ignore[union-attr]


def test_the_picture_says_what_it_shows() -> None:
    root = read(draw(make_fan(240), max_nodes=100))

    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "made"
    assert root.findtext(f"{SVG}desc") == "242 steps, 2 edges, drawn as 3 nodes"
    assert all(node.find(f"{SVG}title") is not None for node in nodes_of(root).values())


@pytest.mark.parametrize("direction", ["right", "down"])
@pytest.mark.parametrize("kind", ["depends_on", "reference", "switch", "set"])
def test_an_edge_ends_with_an_arrow_in_its_direction(kind: EdgeKind, direction: Direction) -> None:
    nodes = tuple(Node(step, None, "task", layer) for step, layer in (("a", 0), ("b", 1), ("c", 0)))
    edges = (Edge("a", "b", "depends_on"), Edge("b", "a", "set"), Edge("c", "a", "set"))
    if kind != "set":
        edges = (Edge("a", "b", kind),)  # type: ignore[assignment]

    paths = [
        path.get("d", "")
        for path in read(draw(Diagram("made", nodes, edges), direction=direction)).iter(f"{SVG}path")
        if path.get("class") == f"edge e-{kind}"
    ]

    onward, back = (
        ("m-4-5l4 5 4-5", "m-4 5l4-5 4 5") if direction == "down" else ("m-5-4l5 4-5 4", "m5-4l-5 4 5 4")
    )
    assert [path[path.index("m") :] for path in paths] == ([back, back] if kind == "set" else [onward])


# ---- as a file, and in a page


def test_a_file_has_its_stylesheet_and_an_inline_picture_has_none() -> None:
    file, inline = draw(make_fan(3)), draw(make_fan(3), is_standalone=False)

    assert file.startswith("<?xml")
    assert file.count("<style>") == 1
    assert read_stylesheet() in file
    assert "prefers-color-scheme: dark" in file
    assert inline.startswith("<svg")
    assert "<style" not in inline
    assert "background" not in inline


@pytest.mark.parametrize("is_standalone", [True, False])
@given(diagram=diagrams(20))
def test_nothing_needs_a_permission_of_a_content_security_policy(
    diagram: Diagram, is_standalone: bool
) -> None:
    root = read(draw(diagram, is_standalone=is_standalone))

    for element in root.iter():
        assert element.tag.removeprefix(SVG) in {"svg", "title", "desc", "style", "g", "rect", "path", "text"}
        assert not [
            name for name in element.attrib if name in {"style", "id", "href"} or name.startswith("on")
        ]


def test_text_of_documents_is_shown_and_not_interpreted() -> None:
    nodes = (Node("a", NASTY, "task", 0, (NASTY,)), Node("b", None, "task", 1))
    diagram = Diagram(NASTY, nodes, (Edge("a", "b", "switch", NASTY),))

    text = draw(diagram)

    assert text.isprintable() or not [char for char in text if not char.isprintable() and char != "\n"]
    root = read(text)
    visible = r"evil\x1b]0;x\x07\x00\u202e<script>alert(1)</script>" + "\"'&]]>" + r"\ud800\ufffe"
    assert root.findtext(f"{SVG}title") == visible
    assert nodes_of(root)["a"].findtext(f"{SVG}title") == f"a\n{visible}\n{visible}"
    assert not list(root.iter(f"{SVG}script"))


def test_a_long_name_is_shortened_in_the_picture_only() -> None:
    names = [f"{'a' * 100}_load", f"{'a' * 100}_store"]

    nodes = nodes_of(read(draw(make_diagram({names[0]: "", names[1]: names[0]}))))

    shown = [text_of(nodes[name], "name") or "" for name in names]
    assert [len(text) < 30 and "…" in text for text in shown] == [True, True]
    assert shown[0].endswith("_load")
    assert shown[1].endswith("_store")
    assert nodes[names[0]].findtext(f"{SVG}title") == names[0]


# ---- colours


def _rules(css: str) -> dict[str, dict[str, str]]:
    """The declarations of each selector."""
    rules: dict[str, dict[str, str]] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", css, flags=re.S)):
        for selector in selectors.split(","):
            pairs = (part.split(":", 1) for part in body.split(";") if ":" in part)
            rules.setdefault(selector.strip(), {}).update(
                {name.strip(): value.strip() for name, value in pairs}
            )
    return rules


def _modes() -> dict[str, dict[str, dict[str, str]]]:
    light, dark = read_stylesheet().split("@media (prefers-color-scheme: dark) {")
    before, after = _rules(light), _rules(dark)
    return {
        "light": before,
        "dark": {selector: before.get(selector, {}) | after.get(selector, {}) for selector in before | after},
    }


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_of_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_is_readable_on_the_colour_of_each_status(mode: str, status: str) -> None:
    rules = _modes()[mode]
    box = rules[".graph .box"] | rules.get(f".graph .s-{status} > .box", {})
    name = rules[".graph .name"] | rules.get(f".graph .s-{status} > .name", {})

    assert contrast(name["fill"], box["fill"]) >= 4.5
    assert contrast(rules[".graph .details"]["fill"], box["fill"]) >= 4.5
    assert contrast(box["stroke"], rules[".graph .background"]["fill"]) >= 3
    assert f".graph .bar .s-{status}" in rules


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_edges_and_their_labels_are_readable(mode: str) -> None:
    rules = _modes()[mode]
    background = rules[".graph .background"]["fill"]

    assert contrast(rules[".graph .label"]["fill"], background) >= 4.5
    for edge in (".edge", ".e-reference", ".e-switch", ".e-set"):
        assert contrast(rules[f".graph {edge}"]["stroke"], background) >= 3
