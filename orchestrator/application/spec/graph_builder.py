"""Who waits for whom: the edges a spec declares and those its references imply.

A reference to `steps.<id>` makes its reader wait for that step, unless it has a default, or reads the step
itself or one of its descendants by declared edges (a loop that reads the previous round). A reference that is
the whole value of an input key has no such excuse: to a descendant it closes a cycle. The steps that a switch
lists depend on it as if they had declared it. Nothing here recurses, and nothing compares all steps with all
others: specs have 10,000 steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from orchestrator.application.expressions.evaluation import references
from orchestrator.application.spec.graph import (
    Edges,
    Graph,
    descents,
    longest_id,
    max_segments_of,
    reversed_edges,
    topological_order,
)
from orchestrator.application.spec.model import StepSpec

FieldPath = tuple[str | int, ...]

_NAMES_IN_A_CYCLE = 12


@dataclass(frozen=True, slots=True)
class EdgeProblem:
    """What is wrong with the edges of a step; `where` is inside the step, `unknown` the name nobody has."""

    step_id: str
    where: FieldPath
    code: str
    message: str
    unknown: str | None = None


def build_graph(steps: Sequence[StepSpec]) -> tuple[Graph, list[EdgeProblem]]:
    """The graph of steps with unique ids, and all that is wrong with it; with faults it is not to be used."""
    index = {step.id: position for position, step in enumerate(steps)}
    faults: list[EdgeProblem] = []
    declared = {step.id: _declared_parents(step, index, faults) for step in steps}
    switched = _switched(steps, index, faults)
    for listed, switch in switched:
        declared[listed].append(switch)
    implied = _without_loops(_implied_parents(steps, index, faults), declared)
    above = ((step_id, {*declared[step_id], *implied.get(step_id, ())}) for step_id in index)
    parents = {step_id: tuple(sorted(ids, key=index.__getitem__)) if ids else () for step_id, ids in above}
    faults += _Cycles(steps, index, implied, switched).find(parents)
    graph = Graph(
        order=tuple(index),
        index=index,
        parents=parents,
        children={step_id: tuple(below) for step_id, below in reversed_edges(parents).items()},
        roots=tuple(step_id for step_id in index if not parents[step_id]),
        eager=frozenset(step.id for step in steps if not isinstance(step.join, str)),
        switches=_switches(switched),
        max_id_segments=max_segments_of(index),
    )
    return graph, faults


@dataclass(frozen=True, slots=True)
class _Implied:
    where: FieldPath
    whole: bool


def _expressions(step: StepSpec) -> Iterator[tuple[FieldPath, Any]]:
    """Every value of a step that makes it wait for what it reads: one line per key of the language."""
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


def _declared_parents(step: StepSpec, index: Mapping[str, int], faults: list[EdgeProblem]) -> list[str]:
    if not step.depends_on:
        return []
    for position, parent in enumerate(step.depends_on):
        if parent not in index:
            message = f"step {step.id!r} depends on unknown step {parent!r}"
            faults.append(
                EdgeProblem(step.id, ("depends_on", position), "unknown_dependency", message, parent)
            )
    return [parent for parent in dict.fromkeys(step.depends_on) if parent in index]


def _switched(
    steps: Sequence[StepSpec], index: Mapping[str, int], faults: list[EdgeProblem]
) -> dict[tuple[str, str], FieldPath]:
    """Where each switch lists a step, by the step and the switch."""
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
                    faults.append(EdgeProblem(step.id, (*where, position), "unknown_target", message, listed))
    return switched


def _switches(switched: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for listed, switch in switched:
        found.setdefault(listed, []).append(switch)
    return {listed: tuple(switches) for listed, switches in found.items()}


def _implied_parents(
    steps: Sequence[StepSpec], index: Mapping[str, int], faults: list[EdgeProblem]
) -> dict[str, dict[str, _Implied]]:
    implied: dict[str, dict[str, _Implied]] = {}
    max_id_segments = max_segments_of(index)
    for step in steps:
        for where, value in _expressions(step):
            for reference in references(value):
                if reference.has_default or not reference.segments:
                    continue
                found = longest_id(index, reference.segments, max_id_segments)
                if found is None:
                    if reference.whole:  # as a part of a value, an undefined reference is null (U8)
                        unknown = reference.segments[0]
                        message = f"step {step.id!r} reads unknown step {unknown!r}"
                        faults.append(EdgeProblem(step.id, where, "unknown_dependency", message, unknown))
                elif found[0] != step.id:
                    known = implied.setdefault(step.id, {})
                    has_no_excuse = reference.whole and where[0] == "input"
                    if has_no_excuse or found[0] not in known:
                        known[found[0]] = _Implied(where, has_no_excuse)
    return implied


def _without_loops(
    implied: Mapping[str, Mapping[str, _Implied]], declared: Edges
) -> dict[str, dict[str, _Implied]]:
    """Drop the references by which a step reads the last round of something below it.

    Those to or from a declared cycle go too: "below" means nothing there, and the cycle is reported anyway.
    """
    before = topological_order(declared)
    level: dict[str, int] = {}
    for step_id in before:
        level[step_id] = 1 + max((level[parent] for parent in declared[step_id]), default=-1)
    kept = {
        reader: {read: reference for read, reference in all_read.items() if read in level}
        for reader, all_read in implied.items()
        if reader in level
    }
    suspects = {
        (reader, read)
        for reader, all_read in kept.items()
        for read, reference in all_read.items()
        if not reference.whole and level[read] > level[reader]
    }
    for reader, read in descents(suspects, declared, before):
        del kept[reader][read]
    return kept


@dataclass(frozen=True, slots=True)
class _Cycles:
    """Says of steps that wait for each other where it was written that they do."""

    steps: Sequence[StepSpec]
    index: Mapping[str, int]
    implied: Mapping[str, Mapping[str, _Implied]]
    switched: Mapping[tuple[str, str], FieldPath]

    def find(self, parents: Edges) -> Iterator[EdgeProblem]:
        """A fault for every set of steps that cannot run because of each other, and perhaps more."""
        stuck = parents.keys() - set(topological_order(parents))
        for ring in _rings({step_id: parents[step_id] for step_id in self.index if step_id in stuck}):
            first = ring.index(min(ring, key=self.index.__getitem__))
            yield self._fault(ring[first:] + ring[:first])

    def _fault(self, ring: list[str]) -> EdgeProblem:
        first, second = ring[0], ring[1 % len(ring)]
        names = [*ring, first]
        if len(names) > _NAMES_IN_A_CYCLE:
            names[_NAMES_IN_A_CYCLE - 2 : -1] = [f"... {len(names) - _NAMES_IN_A_CYCLE + 1} more ..."]
        message = f"these steps wait for each other: {' -> '.join(names)}"
        declared = self.steps[self.index[first]].depends_on
        if second in declared:
            return EdgeProblem(first, ("depends_on", declared.index(second)), "cycle", message)
        if (first, second) in self.switched:
            return EdgeProblem(second, self.switched[first, second], "cycle", message)
        return EdgeProblem(first, self.implied[first][second].where, "cycle", message)


def _rings(parents: Edges) -> Iterator[list[str]]:
    """Cycles without a step in common, by a walk upwards that looks back at its own path."""
    seen: set[str] = set()
    told: set[str] = set()
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
            elif parent in depth and parent not in told and path[-1] not in told:
                ring = path[depth[parent] :]
                if told.isdisjoint(ring):
                    told.update(ring)
                    yield ring
            elif parent in parents and parent not in seen:
                seen.add(parent)
                depth[parent] = len(path)
                path.append(parent)
                todo.append(iter(parents[parent]))
