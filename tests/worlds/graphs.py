"""Workflow graphs of many shapes, as diagrams.

make_diagram({"a": "", "b": "a", "c": "a b"})   # each step with its parents
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import strategies as st

from orchestrator.drawing.diagram import Diagram, Edge, Node
from worlds.records import spec

END = {"condition": True, "action": "complete"}
EVERYTHING = spec(
    {"name": "order"},
    check={"label": "Is it there?"},
    route={
        "fn": None,
        "depends_on": ["check"],
        "switch": {
            "on": {"var": "steps.check.output.size"},
            "cases": {"big": ["truck"], "huge": ["truck"]},
            "default": ["post"],
        },
    },
    truck={"compensate": {"fn": "call_back"}, "when": {"==": [1, 1]}},
    post={
        "map": {"over": {"var": "steps.check.output.parts"}, "max_parallel": 2},
        "branch": [
            {"condition": True, "action": {"set": ["check", "steps.post.status"]}},
            {"condition": True, "action": {"set": "check"}},
            {"condition": True, "action": "halt"},
        ],
    },
    confirm={"fn": None, "wait": {"signal": "manager"}, "depends_on": ["truck", "post"], "join": "any"},
    rest={"fn": None, "delay": "90s", "depends_on": ["confirm"]},
    bill={"fn": None, "workflow": "billing", "input": {"of": {"var": "steps.post.output.items"}}},
    poll={"loop": {"max_iterations": 4}, "depends_on": ["bill", "rest"], "join": 1},
)
"""A workflow with every kind of step and of edge."""


def make_diagram(
    parents: Mapping[str, str],
    statuses: Mapping[str, str] | None = None,
    sets: Mapping[str, str] | None = None,
    title: str | None = None,
) -> Diagram:
    """A diagram of steps with their parents, separated by spaces; `sets` names the targets of a `set`."""
    layers: dict[str, int] = {}
    for step, names in parents.items():
        layers[step] = max((layers[name] + 1 for name in names.split()), default=0)
    nodes = tuple(
        Node(step, title, "task", layer, status=(statuses or {}).get(step)) for step, layer in layers.items()
    )
    waits = [Edge(name, step, "depends_on") for step, names in parents.items() for name in names.split()]
    leads = [Edge(step, name, "set") for step, names in (sets or {}).items() for name in names.split()]
    return Diagram("made", nodes, (*waits, *leads), None if statuses is None else "e1")


def make_chain(count: int) -> Diagram:
    return make_diagram({f"s{n}": f"s{n - 1}" if n else "" for n in range(count)})


def make_fan(count: int) -> Diagram:
    """One step, many that wait for it, and one that waits for these."""
    work = [f"work-{n}" for n in range(count)]
    return make_diagram({"start": "", **dict.fromkeys(work, "start"), "end": " ".join(work)})


def make_lanes(lanes: int, length: int) -> Diagram:
    """Chains side by side, between two steps."""
    steps = {
        f"lane{lane}-{n}": f"lane{lane}-{n - 1}" if n else "start"
        for lane in range(lanes)
        for n in range(length)
    }
    ends = " ".join(f"lane{lane}-{length - 1}" for lane in range(lanes))
    return make_diagram({"start": "", **steps, "end": ends})


def make_grid(width: int, length: int) -> Diagram:
    """Layers of steps that each wait for two of the layer before; no two have the same parents."""
    return make_diagram(
        {
            f"l{layer}-{n}": f"l{layer - 1}-{n} l{layer - 1}-{(n + 1) % width}" if layer else ""
            for layer in range(length)
            for n in range(width)
        }
    )


def make_random(count: int, seed: int = 7, window: int = 40) -> Diagram:
    """Steps that each depend on up to three of those shortly before them."""
    luck = random.Random(seed)
    parents = {
        f"s{n}": " ".join(
            f"s{one}"
            for one in sorted({luck.randrange(max(0, n - window), n) for _ in range(luck.randrange(4))})
        )
        if n
        else ""
        for n in range(count)
    }
    return make_diagram(parents)


@st.composite
def diagrams(draw: st.DrawFn, max_steps: int = 40) -> Diagram:
    """Any diagram: also with steps that nothing connects, long edges, and sets in both directions."""
    count = draw(st.integers(0, max_steps))
    ids = [f"{draw(st.sampled_from('abc'))}{n}" for n in range(count)]
    parents, sets = {}, {}
    for n, step in enumerate(ids):
        earlier = draw(st.sets(st.integers(0, n - 1), max_size=4)) if n else ()
        parents[step] = " ".join(ids[one] for one in sorted(earlier))
        sets[step] = " ".join(
            ids[one] for one in sorted(draw(st.sets(st.integers(0, count - 1), max_size=1)))
        )
    statuses = draw(st.sampled_from([None, dict.fromkeys(ids, "complete")]))
    return make_diagram(parents, statuses, sets if draw(st.booleans()) else None)
