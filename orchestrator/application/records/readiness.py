"""Counters and queues derived from a record, and updated with it, so that an event costs only the steps it
changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.application.records.status import FINAL_STEP_STATUSES, StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.graph import Graph
from orchestrator.application.values.unit_id import split_unit


@dataclass(slots=True)
class PositionChanges:
    taken: set[int] = field(default_factory=set)
    added: set[int] = field(default_factory=set)


@dataclass(slots=True)
class ReadinessChanges:
    unmet: dict[str, int] = field(default_factory=dict)
    open: int = 0
    active: int = 0
    in_flight: int = 0
    agenda: PositionChanges = field(default_factory=PositionChanges)
    candidates: PositionChanges = field(default_factory=PositionChanges)
    waiting: dict[str, bool] = field(default_factory=dict)
    timed: dict[str, bool] = field(default_factory=dict)
    due: dict[str, PositionChanges] = field(default_factory=dict)
    retried: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class Readiness:
    """Counters and queues derived from one record. `of` computes them; `apply` updates them after a commit.

    unmet       for each step, the number of its parents that are not final
    open        the number of steps that are not final
    active      the number of steps that are in progress, waiting, deferred, in retry, on hold, or that hold
                or wait for a slot
    in_flight   the number of dispatches without a result
    agenda      the spec positions of the steps that the next advance() must evaluate, in order
    candidates  the spec positions of the steps that were evaluated and not dispatched, for lack of capacity
    waiting     the steps that wait for a signal
    timed       the units that have a timer
    due         the items of each map that must be dispatched again, in order; only maps that have such items
    retried     the steps that have `retried_keys`
    """

    unmet: dict[str, int]
    open: int
    active: int
    in_flight: int
    agenda: list[int]
    candidates: list[int] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    timed: set[str] = field(default_factory=set)
    due: dict[str, list[int]] = field(default_factory=dict)
    retried: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, graph: Graph, steps: Mapping[str, StepRecord], items: Mapping[str, StepRecord] | None = None
    ) -> Readiness:
        final = {step_id for step_id, step in steps.items() if step.status in FINAL_STEP_STATUSES}
        unmet = {
            step_id: sum(1 for parent in graph.parents[step_id] if parent not in final)
            for step_id in graph.order
        }
        agenda = [
            position
            for position, step_id in enumerate(graph.order)
            if steps[step_id].awaits_dispatch and graph.may_join(step_id, unmet[step_id])
        ]
        active = sum(1 for step in steps.values() if step.is_active)
        units = {**steps, **(items or {})}
        in_flight = sum(1 for unit in units.values() if unit.token is not None)
        timed = {name for name, unit in units.items() if unit.has_timer}
        waiting = {step_id for step_id, step in steps.items() if step.status is StepStatus.WAITING}
        due: dict[str, list[int]] = {}
        for name, item in (items or {}).items():
            step_id, part = split_unit(name)
            if part.isdecimal() and item.is_due:
                insort(due.setdefault(step_id, []), int(part))
        retried = {step_id for step_id, step in steps.items() if step.retried_keys}
        return cls(
            unmet,
            len(steps) - len(final),
            active,
            in_flight,
            agenda,
            waiting=waiting,
            timed=timed,
            due=due,
            retried=retried,
        )

    @classmethod
    def of_new(cls, graph: Graph) -> Readiness:
        """The readiness of an execution of which no step has begun: of() would find the same."""
        unmet = {step_id: len(parents) for step_id, parents in graph.parents.items()}
        return cls(unmet, len(unmet), 0, 0, [graph.index[step_id] for step_id in graph.roots])

    def apply(self, changes: ReadinessChanges) -> None:
        self.unmet.update(changes.unmet)
        self.open += changes.open
        self.active += changes.active
        self.in_flight += changes.in_flight
        self.agenda = _update(self.agenda, changes.agenda)
        self.candidates = _update(self.candidates, changes.candidates)
        for step_id, is_waiting in changes.waiting.items():
            (self.waiting.add if is_waiting else self.waiting.discard)(step_id)
        for unit, has_timer in changes.timed.items():
            (self.timed.add if has_timer else self.timed.discard)(unit)
        for step_id, has_keys in changes.retried.items():
            (self.retried.add if has_keys else self.retried.discard)(step_id)
        for step_id, positions in changes.due.items():
            self.due[step_id] = _update(self.due.get(step_id, []), positions)
            if not self.due[step_id]:
                del self.due[step_id]


def _update(positions: list[int], changes: PositionChanges) -> list[int]:
    """Remove the taken positions from a sorted list and insert the added ones; in place if they are few."""
    if len(changes.taken) > 64:
        positions = [position for position in positions if position not in changes.taken]
    else:
        for position in changes.taken:
            at = bisect_left(positions, position)
            if at < len(positions) and positions[at] == position:
                del positions[at]
    for position in changes.added:
        at = bisect_left(positions, position)
        if at == len(positions) or positions[at] != position:
            insort(positions, position)
    return positions
