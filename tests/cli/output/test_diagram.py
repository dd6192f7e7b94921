"""Graphs of workflows and executions, as a table of text and in Mermaid."""

from __future__ import annotations

import contextlib
import io
import json
import random
from typing import Any

import pytest

from mermaid_checker import NotMermaid, read_mermaid
from orchestrator.application.explain.status_view import QUEUED, StatusView
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.cli.output.diagram_text import print_diagram
from orchestrator.cli.output.mermaid import COLOURS, escape_label, render_mermaid
from orchestrator.drawing.diagram import Diagram, Node, diagram_from_spec, diagram_from_view
from worlds.documents import document_of
from worlds.graphs import END, EVERYTHING
from worlds.records import record, spec


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def text(diagram: Diagram, stream: io.StringIO | None = None) -> str:
    """The diagram as it is printed to a stream; a pipe unless given."""
    stream = stream or io.StringIO()
    with contextlib.redirect_stdout(stream):
        print_diagram(diagram)
    return stream.getvalue().removesuffix("\n")


def chain(count: int) -> LoadedSpec:
    """Steps that each depend on some of the steps before them."""
    luck = random.Random(7)
    steps: dict[str, dict[str, Any]] = {}
    for n in range(count):
        parents = sorted({luck.randrange(n) for _ in range(luck.randrange(4))}) if n else []
        steps[f"s{n}"] = {"depends_on": [f"s{parent}" for parent in parents]}
    return check_spec(document_of(steps))


# ---- as text


def test_the_table_shows_layers_and_the_dependencies_of_each_step() -> None:
    assert text(diagram_from_spec(EVERYTHING)).splitlines() == [
        "order: 8 steps in 6 layers",
        "LAYER  STEP                  HOW",
        "    1  check (Is it there?)",
        "    2  route                 after check; switch",
        "    3  truck                 case big, huge of route; conditional; compensated by call_back",
        "       post                  case default of route; reads check; map, 2 at once; may halt;"
        " sets check, post",
        "    4  confirm               after truck, post; waits for manager; join any",
        "       bill                  reads post; starts billing",
        "    5  rest                  after confirm; delay 1 m 30 s",
        "    6  poll                  after rest, bill; loop, at most 4 times; join 1",
    ]


def test_the_table_of_an_execution_has_the_status_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(
        spec({"name": "order"}, a={"map": {"over": [1]}}, b={"depends_on": ["a"]}),
        a=StepRecord(StepStatus.IN_PROGRESS, items=ItemCounts(100, settled=12, errors=1)),
    )

    assert text(diagram_from_view(StatusView(made))).splitlines() == [
        "order e1: 2 steps in 2 layers",
        "LAYER  STEP  STATUS       HOW",
        "    1  a     in progress  map; 12/100 items, 1 failed",
        "    2  b     ready        after a",
    ]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    on_terminal = text(diagram_from_view(StatusView(made)), Terminal())
    assert "\x1b[36min progress" in on_terminal
    assert "…" not in on_terminal, "a long text is wrapped, and not cut"


def test_a_workflow_without_steps_is_drawn_too() -> None:
    drawn = diagram_from_spec(spec())

    assert text(drawn) == "workflow: 0 steps in 0 layers"
    assert render_mermaid(drawn) == "flowchart TD"


def test_a_thousand_steps_are_in_the_table_with_all_their_parents() -> None:
    loaded = chain(1_000)

    lines = text(diagram_from_spec(loaded)).splitlines()[2:]

    found: dict[str, tuple[int, list[str]]] = {}
    layer = 0
    for line in lines:
        words = line.split()
        if words[0].isdigit():
            layer = int(words.pop(0))
        parents = [word.strip(",") for word in words[2:]]
        assert all(found[parent][0] < layer for parent in parents)
        found[words[0]] = (layer, parents)
    assert {step_id: tuple(parents) for step_id, (_, parents) in found.items()} == loaded.graph.parents


# ---- for Mermaid


def test_the_whole_diagram_in_mermaid() -> None:
    loaded = spec(
        a={"compensate": {"fn": "undo"}},
        b={
            "input": {"n": {"var": "steps.a.output.n"}},
            "branch": [{"condition": True, "action": {"set": "a"}}, END],
        },
        c={"fn": None, "depends_on": ["b"], "switch": {"on": {"var": "input.x"}, "cases": {"y": ["d"]}}},
        d={"fn": None, "workflow": "kid"},
        e={"fn": None, "wait": {"signal": "go"}, "depends_on": ["d"]},
    )
    made = record(loaded, a=StepStatus.COMPLETE, b=StepStatus.IN_PROGRESS)

    assert render_mermaid(diagram_from_view(StatusView(made))).splitlines() == [
        "flowchart TD",
        '    s0["a<br/>complete"]',
        '    s1["b<br/>in progress"]',
        '    s2{"c<br/>switch<br/>ready"}',
        '    s3[["d<br/>ready"]]',
        '    s4(["e<br/>waits for go<br/>ready"])',
        '    x0>"undo"]',
        '    s0 -.->|"compensated by"| x0',
        '    s0 -.->|"reads"| s1',
        '    s1 -.->|"sets"| s0',
        "    s1 --> s2",
        '    s2 -->|"case y"| s3',
        '    x5[["kid"]]',
        '    s3 -.->|"starts"| x5',
        "    s3 --> s4",
        "    classDef ready fill:#f5f5f5,stroke:#9e9e9e,color:#212121",
        "    class s2,s3,s4 ready",
        "    classDef in_progress fill:#b2ebf2,stroke:#00838f,color:#212121",
        "    class s1 in_progress",
        "    classDef complete fill:#c8e6c9,stroke:#2e7d32,color:#212121",
        "    class s0 complete",
    ]


@pytest.mark.parametrize(
    "title",
    [
        'say "hello"',
        "a[b](c){d}<e>|f|",
        "%%{init: {}}%%",
        "`markdown` **bold**",
        "style: #35; classDef x fill:#fff;",
        "graph TD; end",
        "Überweisung 支払い 😀",
        "<script>alert(1)</script>",
        "a --> b",
        "back\\slash & co #quot;",
    ],
)
def test_a_label_is_shown_and_not_interpreted(title: str) -> None:
    read = read_mermaid(
        render_mermaid(diagram_from_spec(spec(end={"label": title}, graph={"depends_on": ["end"]})))
    )

    assert read.nodes == {"s0": f"end\n{title}", "s1": "graph"}
    assert read.edges == [("s0", "-->", "", "s1")]


def test_line_breaks_in_a_title_are_spaces() -> None:
    assert escape_label(" a\nb\t c ") == "a b c"


def test_the_case_of_a_switch_is_quoted_too() -> None:
    switch = {"on": {"var": "input.x"}, "cases": {'"|x|"': ["b"]}}

    read = read_mermaid(render_mermaid(diagram_from_spec(spec(a={"fn": None, "switch": switch}, b={}))))

    assert read.edges == [("s0", "-->", 'case "|x|"', "s1")]


def test_a_thousand_steps_are_the_same_graph_in_mermaid() -> None:
    loaded = chain(1_000)
    half: dict[str, Any] = {f"s{n}": StepStatus.COMPLETE for n in range(500)}
    made = record(loaded, **half)

    read = read_mermaid(render_mermaid(diagram_from_view(StatusView(made))))

    names = {name: shown.split("\n")[0] for name, shown in read.nodes.items()}
    edges = {(names[source], names[target]) for source, _, _, target in read.edges}
    assert len(names) == 1_000
    assert edges == {(parent, step) for step, above in loaded.graph.parents.items() for parent in above}
    assert sum(found == "complete" for found in read.classes.values()) == 500
    assert len(read.classes) == 1_000


def test_every_status_has_its_colour_and_the_result_is_the_same_every_time() -> None:
    statuses = [*(status.value for status in StepStatus), QUEUED]
    nodes = tuple(Node(status, None, "task", 0, status=status) for status in statuses)
    drawn = Diagram(None, nodes, ())

    assert sorted(COLOURS) == sorted(statuses)
    assert sorted(read_mermaid(render_mermaid(drawn)).classes.values()) == sorted(statuses)
    assert render_mermaid(drawn) == render_mermaid(drawn)
    again = check_spec(json.loads(json.dumps(EVERYTHING.document)))
    assert render_mermaid(diagram_from_spec(again)) == render_mermaid(diagram_from_spec(EVERYTHING))


@pytest.mark.parametrize(
    "line",
    [
        '    s0["a"b"]',
        "    s0[a]",
        '    s0["a]',
        '    s0["a;b"]',
        "    s0 --> s9",
        '    end["x"]',
        "    class s0 missing",
        "    classDef default fill:#ffffff",
        "    %% a comment",
        '    s0["a"] --> s1',
    ],
)
def test_the_checker_refuses(line: str) -> None:
    with pytest.raises(NotMermaid):
        read_mermaid(f'flowchart TD\n    s1["x"]\n{line}')
