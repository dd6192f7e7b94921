"""A workflow as nodes and edges: which step waits for which, and how the spec says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.application.explain.formatting import format_duration, format_item_counts

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.spec.graph import Graph
    from orchestrator.application.spec.model import BranchSpec, ChildSpec, LoadedSpec, StepSpec

EdgeKind = Literal["depends_on", "reference", "switch", "set", "compensate", "child"]

EXTERNAL_EDGE_KINDS: tuple[EdgeKind, ...] = ("compensate", "child")
"""The edges that lead to an executor or to another workflow, and not to a step."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step. `layer` is the length of the longest path to it; `status` is set for an execution only."""

    id: str
    title: str | None
    kind: str
    layer: int
    marks: tuple[str, ...] = ()
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """`label` lists the cases of a switch that select this edge."""

    source: str
    target: str
    kind: EdgeKind
    label: str = ""


@dataclass(frozen=True, slots=True)
class Diagram:
    """The nodes in the order of the spec, the edges in the order of their targets."""

    name: str | None
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    execution_id: str | None = None

    @property
    def layers(self) -> list[list[Node]]:
        layers: list[list[Node]] = [
            [] for _ in range(1 + max((node.layer for node in self.nodes), default=-1))
        ]
        for node in self.nodes:
            layers[node.layer].append(node)
        return layers

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def diagram_from_spec(loaded: LoadedSpec) -> Diagram:
    layers = _assign_layers(loaded.graph)
    steps = {step.id: step for step in loaded.spec.steps}
    nodes = tuple(
        Node(step.id, _find_title(step), step.kind, layers[step.id], tuple(_list_marks(step)))
        for step in steps.values()
    )
    return Diagram(loaded.spec.name, nodes, tuple(_list_edges(steps, loaded.graph)))


def diagram_from_view(view: StatusView) -> Diagram:
    """The diagram of an execution, with the status of each step."""
    record = view.record
    diagram = diagram_from_spec(record.loaded)
    nodes = []
    for node in diagram.nodes:
        step = record.steps[node.id]
        marks = (*node.marks, format_item_counts(step.items)) if step.items is not None else node.marks
        nodes.append(replace(node, status=view.status_of(node.id, step), marks=marks))
    return replace(diagram, nodes=tuple(nodes), execution_id=record.execution_id)


def _assign_layers(graph: Graph) -> dict[str, int]:
    """Compute the length of the longest path to each step."""
    unmet = {step_id: len(parents) for step_id, parents in graph.parents.items()}
    layers = dict.fromkeys(graph.roots, 0)
    order = list(graph.roots)
    for step_id in order:  # the list grows during the loop
        for child in graph.children[step_id]:
            layers[child] = max(layers.get(child, 0), layers[step_id] + 1)
            unmet[child] -= 1
            if not unmet[child]:
                order.append(child)
    return layers


def _list_edges(steps: Mapping[str, StepSpec], graph: Graph) -> Iterator[Edge]:
    for step in steps.values():
        for parent in graph.parents[step.id]:
            cases = _find_cases(steps[parent], step.id)
            if cases:
                yield Edge(parent, step.id, "switch", ", ".join(cases))
            else:
                yield Edge(parent, step.id, "depends_on" if parent in step.depends_on else "reference")
        targets = (target for branch in step.branch for target in _find_set_targets(branch, graph))
        for target in dict.fromkeys(targets):
            yield Edge(step.id, target, "set")
        if step.compensate is not None:
            yield Edge(step.id, step.compensate.fn, "compensate")
        if step.child is not None:
            yield Edge(step.id, _child_name(step.child), "child")


def _find_cases(parent: StepSpec, step_id: str) -> list[str]:
    """Find the cases of a switch that select a step; empty if the parent is not a switch."""
    if parent.switch is None:
        return []
    cases = [case for case, ids in parent.switch.cases.items() if step_id in ids]
    return [*cases, "default"] if step_id in (parent.switch.default or ()) else cases


def _find_set_targets(branch: BranchSpec, graph: Graph) -> Iterator[str]:
    """Find the steps that a `set` names; targets of an expression are known only at run time."""
    if branch.action != "set":
        return
    for text in branch.targets if isinstance(branch.targets, list) else [branch.targets]:
        target = graph.find_target(text) if isinstance(text, str) else None
        if target is not None:
            yield target


def _child_name(child: ChildSpec) -> str:
    if child.name is not None:
        return child.name
    assert child.loaded is not None, "a child without a name is written inline"
    return child.loaded.spec.name or f"{len(child.loaded.spec.steps)} inline steps"


def _find_title(step: StepSpec) -> str | None:
    """Find the label or name of a step, if it differs from the id."""
    return next((text for text in (step.label, step.name) if text and text != step.id), None)


def _list_marks(step: StepSpec) -> Iterator[str]:
    """List what makes a step more than a plain call, in a few words each."""
    if step.switch is not None:
        yield "switch"
    if step.wait is not None:
        yield f"waits for {' or '.join(step.wait.signals)}"
    if step.delay_ms is not None:
        yield f"delay {format_duration(step.delay_ms / 1000)}"
    if step.map is not None:
        yield "map" if step.map.max_parallel is None else f"map, {step.map.max_parallel} at once"
    if step.loop is not None:
        yield f"loop, at most {step.loop.max_iterations} times"
    if step.guards:
        yield "conditional"
    if step.join != "all":
        yield f"join {step.join}" if isinstance(step.join, str | int) else "join by an expression"
    if any(branch.action == "halt" for branch in step.branch):
        yield "may halt"
    if any(isinstance(branch.targets, dict) for branch in step.branch):
        yield "sets computed targets"
