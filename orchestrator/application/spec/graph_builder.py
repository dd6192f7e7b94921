"""Builds the step dependency graph of a spec, from declared dependencies and from references.

A reference to `steps.<id>` makes its step depend on that step. Exceptions: the reference has a default, or it
reads the step itself, or a descendant by declared edges (a loop that reads the previous round). The last
exception does not hold for a reference that is the whole value of an input key: to a descendant, it is a
cycle. The steps that a switch lists depend on the switch, as if they declared it.

A spec may have 10,000 steps and more, so nothing here recurses or compares each step with every other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from orchestrator.application.expressions.evaluation import find_references
from orchestrator.application.spec.graph import (
    Edges,
    Graph,
    count_max_segments,
    find_dependent_pairs,
    find_longest_id,
    reverse_edges,
    sort_topologically,
)
from orchestrator.application.spec.model import StepSpec

FieldPath = tuple[str | int, ...]

_MAX_NAMES_IN_MESSAGE = 12


@dataclass(frozen=True, slots=True)
class EdgeProblem:
    """A problem with the dependencies of a step. `where` is a path inside the step, `unknown` the name of a
    step that does not exist."""

    step_id: str
    where: FieldPath
    code: str
    message: str
    unknown: str | None = None


def build_graph(steps: Sequence[StepSpec]) -> tuple[Graph, list[EdgeProblem]]:
    """Build the graph of steps with unique ids, and find its problems. A graph with problems is unusable."""
    index = {step.id: position for position, step in enumerate(steps)}
    problems: list[EdgeProblem] = []
    declared = {step.id: _declared_parents(step, index, problems) for step in steps}
    switched = _find_switched(steps, index, problems)
    for listed, switch in switched:
        declared[listed].append(switch)
    implied = _without_loops(_implied_parents(steps, index), declared)
    merged = ((step_id, {*declared[step_id], *implied.get(step_id, ())}) for step_id in index)
    parents = {step_id: tuple(sorted(ids, key=index.__getitem__)) if ids else () for step_id, ids in merged}
    problems += _CycleFinder(steps, index, implied, switched).find(parents)
    graph = Graph(
        order=tuple(index),
        index=index,
        parents=parents,
        children={step_id: tuple(ids) for step_id, ids in reverse_edges(parents).items()},
        roots=tuple(step_id for step_id in index if not parents[step_id]),
        eager=frozenset(step.id for step in steps if not isinstance(step.join, str)),
        switches=_group_switches(switched),
        max_id_segments=count_max_segments(index),
    )
    return graph, problems


@dataclass(frozen=True, slots=True)
class _ImpliedEdge:
    """A reference that makes a step depend on another. `is_strict`: to a descendant, it is a cycle."""

    where: FieldPath
    is_strict: bool


def _expressions(step: StepSpec) -> Iterator[tuple[FieldPath, Any]]:
    """Yield every value of a step whose references make it depend on other steps."""
    for key, value in step.input.items():
        yield ("input", key), value
    for key, value in zip_longest(step.guard_keys, step.guards, fillvalue="when"):
        yield (key,), value
    for position, path in enumerate(step.required):
        yield ("required", position), {"var": path}
    if step.map is not None:
        yield ("map", "over"), step.map.over
    if step.switch is not None:
        yield ("switch", "on"), step.switch.on
    if step.concurrency is not None:
        yield ("concurrency", "key"), step.concurrency.key
    if step.join != "all":
        yield ("join",), step.join


def _declared_parents(step: StepSpec, index: Mapping[str, int], problems: list[EdgeProblem]) -> list[str]:
    if not step.depends_on:
        return []
    for position, parent in enumerate(step.depends_on):
        if parent not in index:
            message = f"step {step.id!r} depends on unknown step {parent!r}"
            where: FieldPath = ("depends_on", position)
            problems.append(EdgeProblem(step.id, where, "unknown_dependency", message, parent))
    return [parent for parent in dict.fromkeys(step.depends_on) if parent in index]


def _find_switched(
    steps: Sequence[StepSpec], index: Mapping[str, int], problems: list[EdgeProblem]
) -> dict[tuple[str, str], FieldPath]:
    """Map each pair of a listed step and its switch to the path in the switch that lists the step."""
    switched: dict[tuple[str, str], FieldPath] = {}
    for step in steps:
        if step.switch is None:
            continue
        lists: list[tuple[FieldPath, Sequence[str]]] = [
            (("switch", "cases", key), ids) for key, ids in step.switch.cases.items()
        ]
        lists.append((("switch", "default"), step.switch.default or ()))
        for where, ids in lists:
            for position, listed in enumerate(ids):
                if listed in index:
                    switched.setdefault((listed, step.id), (*where, position))
                else:
                    message = f"there is no step {listed!r}"
                    problems.append(
                        EdgeProblem(step.id, (*where, position), "unknown_target", message, listed)
                    )
    return switched


def _group_switches(switched: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    switches_of: dict[str, list[str]] = {}
    for listed, switch in switched:
        switches_of.setdefault(listed, []).append(switch)
    return {listed: tuple(switches) for listed, switches in switches_of.items()}


def _implied_parents(
    steps: Sequence[StepSpec], index: Mapping[str, int]
) -> dict[str, dict[str, _ImpliedEdge]]:
    """Map each step to the steps that its references read; References reports those that do not exist."""
    implied: dict[str, dict[str, _ImpliedEdge]] = {}
    max_id_segments = count_max_segments(index)
    for step in steps:
        for where, value in _expressions(step):
            for reference in find_references(value):
                if reference.has_default or not reference.segments:
                    continue
                found = find_longest_id(index, reference.segments, max_id_segments)
                if found is not None and found[0] != step.id:
                    edges = implied.setdefault(step.id, {})
                    is_strict = reference.is_whole and where[0] == "input"
                    if is_strict or found[0] not in edges:
                        edges[found[0]] = _ImpliedEdge(where, is_strict)
    return implied


def _without_loops(
    implied: Mapping[str, Mapping[str, _ImpliedEdge]], declared: Edges
) -> dict[str, dict[str, _ImpliedEdge]]:
    """Drop the references by which a step reads the previous round of its descendants.

    References to or from a declared cycle are dropped too: there, every step is a descendant of itself, and
    the cycle is reported anyway.
    """
    order = sort_topologically(declared)
    level: dict[str, int] = {}
    for step_id in order:
        level[step_id] = 1 + max((level[parent] for parent in declared[step_id]), default=-1)
    kept = {
        reader: {read: edge for read, edge in edges.items() if read in level}
        for reader, edges in implied.items()
        if reader in level
    }
    candidates = {
        (reader, read)
        for reader, edges in kept.items()
        for read, edge in edges.items()
        if not edge.is_strict and level[read] > level[reader]
    }
    for reader, read in find_dependent_pairs(candidates, declared, order):
        del kept[reader][read]
    return kept


@dataclass(frozen=True, slots=True)
class _CycleFinder:
    """Finds cycles, and the path in the document that causes each."""

    steps: Sequence[StepSpec]
    index: Mapping[str, int]
    implied: Mapping[str, Mapping[str, _ImpliedEdge]]
    switched: Mapping[tuple[str, str], FieldPath]

    def find(self, parents: Edges) -> Iterator[EdgeProblem]:
        """Yield a problem for every set of steps that block each other, and perhaps more than one."""
        stuck = parents.keys() - set(sort_topologically(parents))
        for cycle in _find_cycles({step_id: parents[step_id] for step_id in self.index if step_id in stuck}):
            first = cycle.index(min(cycle, key=self.index.__getitem__))
            yield self._build_problem(cycle[first:] + cycle[:first])

    def _build_problem(self, cycle: list[str]) -> EdgeProblem:
        first, second = cycle[0], cycle[1 % len(cycle)]
        names = [*cycle, first]
        if len(names) > _MAX_NAMES_IN_MESSAGE:
            left_out = len(names) - _MAX_NAMES_IN_MESSAGE + 1
            names[_MAX_NAMES_IN_MESSAGE - 2 : -1] = [f"... {left_out} more ..."]
        message = f"these steps wait for each other: {' -> '.join(names)}"
        declared = self.steps[self.index[first]].depends_on
        if second in declared:
            return EdgeProblem(first, ("depends_on", declared.index(second)), "cycle", message)
        if (first, second) in self.switched:
            return EdgeProblem(second, self.switched[first, second], "cycle", message)
        return EdgeProblem(first, self.implied[first][second].where, "cycle", message)


def _find_cycles(parents: Edges) -> Iterator[list[str]]:
    """Yield cycles that have no step in common, by a depth-first walk from child to parent."""
    seen: set[str] = set()
    reported: set[str] = set()
    for start in parents:
        if start in seen:
            continue
        seen.add(start)
        path, depth, todo = [start], {start: 0}, [iter(parents[start])]
        while todo:
            parent = next(todo[-1], None)
            if parent is None:
                todo.pop()
                del depth[path.pop()]
            elif parent in depth and parent not in reported and path[-1] not in reported:
                cycle = path[depth[parent] :]
                if reported.isdisjoint(cycle):
                    reported.update(cycle)
                    yield cycle
            elif parent in parents and parent not in seen:
                seen.add(parent)
                depth[parent] = len(path)
                path.append(parent)
                todo.append(iter(parents[parent]))
