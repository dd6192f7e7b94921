"""A workflow as nodes and edges: who waits for whom, and how that was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.cli.output.report import format_duration

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.spec.graph import Graph
    from orchestrator.application.spec.model import BranchSpec, ChildSpec, LoadedSpec, StepSpec

EdgeKind = Literal["depends_on", "reference", "switch", "set", "compensate", "child"]

EXTERNAL_EDGE_KINDS: tuple[EdgeKind, ...] = ("compensate", "child")
"""The edges that do not lead to a step, but to an executor, or to another workflow."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step. `layer` is how many steps at least must end before it; `status` is that of an execution."""

    id: str
    title: str | None
    kind: str
    layer: int
    marks: tuple[str, ...] = ()
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """`label` says which cases of a switch lead along it."""

    source: str
    target: str
    kind: EdgeKind
    label: str = ""


@dataclass(frozen=True, slots=True)
class Diagram:
    """The nodes in the order of the spec; the edges by what they lead to."""

    name: str | None
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    execution_id: str | None = None

    @property
    def layers(self) -> list[list[Node]]:
        found: list[list[Node]] = [
            [] for _ in range(1 + max((node.layer for node in self.nodes), default=-1))
        ]
        for node in self.nodes:
            found[node.layer].append(node)
        return found

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def diagram_from_spec(loaded: LoadedSpec) -> Diagram:
    layers = _layers(loaded.graph)
    steps = {step.id: step for step in loaded.spec.steps}
    nodes = tuple(
        Node(step.id, _title(step), step.kind, layers[step.id], tuple(_marks(step)))
        for step in steps.values()
    )
    return Diagram(loaded.spec.name, nodes, tuple(_edges(steps, loaded.graph)))


def diagram_from_record(record: WorkflowRecord) -> Diagram:
    from orchestrator.cli.output.overview import items

    drawn = diagram_from_spec(record.loaded)
    nodes = []
    for node in drawn.nodes:
        step = record.steps[node.id]
        marks = (*node.marks, items(step.items)) if step.items is not None else node.marks
        nodes.append(replace(node, status=step.status.value, marks=marks))
    return replace(drawn, nodes=tuple(nodes), execution_id=record.execution_id)


def _layers(graph: Graph) -> dict[str, int]:
    """For each step the length of the longest way to it."""
    unmet = {step_id: len(parents) for step_id, parents in graph.parents.items()}
    layers = dict.fromkeys(graph.roots, 0)
    order = list(graph.roots)
    for step_id in order:  # grows while we walk it
        for child in graph.children[step_id]:
            layers[child] = max(layers.get(child, 0), layers[step_id] + 1)
            unmet[child] -= 1
            if not unmet[child]:
                order.append(child)
    return layers


def _edges(steps: Mapping[str, StepSpec], graph: Graph) -> Iterator[Edge]:
    for step in steps.values():
        for parent in graph.parents[step.id]:
            cases = _cases(steps[parent], step.id)
            if cases:
                yield Edge(parent, step.id, "switch", ", ".join(cases))
            else:
                yield Edge(parent, step.id, "depends_on" if parent in step.depends_on else "reference")
        for target in dict.fromkeys(target for branch in step.branch for target in _targets(branch, graph)):
            yield Edge(step.id, target, "set")
        if step.compensate is not None:
            yield Edge(step.id, step.compensate.fn, "compensate")
        if step.child is not None:
            yield Edge(step.id, _name_of(step.child), "child")


def _cases(switch: StepSpec, step_id: str) -> list[str]:
    if switch.switch is None:
        return []
    found = [case for case, ids in switch.switch.cases.items() if step_id in ids]
    return [*found, "default"] if step_id in (switch.switch.default or ()) else found


def _targets(branch: BranchSpec, graph: Graph) -> Iterator[str]:
    """What a `set` names; what an expression will name is not known before."""
    if branch.action != "set":
        return
    for text in branch.targets if isinstance(branch.targets, list) else [branch.targets]:
        target = graph.find_target(text) if isinstance(text, str) else None
        if target is not None:
            yield target


def _name_of(child: ChildSpec) -> str:
    if child.name is not None:
        return child.name
    assert child.loaded is not None, "a child without a name is written in its place"
    return child.loaded.spec.name or f"{len(child.loaded.spec.steps)} steps of its own"


def _title(step: StepSpec) -> str | None:
    """What else the user calls it."""
    return next((text for text in (step.label, step.name) if text and text != step.id), None)


def _marks(step: StepSpec) -> Iterator[str]:
    """What sort of step it is, as far as it is more than a call, in a few words each."""
    if step.switch is not None:
        yield "switch"
    if step.wait is not None:
        yield f"waits for {' or '.join(step.wait.signals)}"
    if step.delay_ms is not None:
        yield f"delay {format_duration(step.delay_ms / 1000)}"
    if step.map is not None:
        yield "map" if step.map.max_parallel is None else f"map, {step.map.max_parallel} at once"
    if step.loop is not None:
        yield f"loop, {step.loop.max_iterations} times at most"
    if step.guards:
        yield "conditional"
    if step.join != "all":
        yield f"join {step.join}" if isinstance(step.join, str | int) else "join by an expression"
    if any(branch.action == "halt" for branch in step.branch):
        yield "may halt"
    if any(isinstance(branch.targets, dict) for branch in step.branch):
        yield "sets what an expression names"
