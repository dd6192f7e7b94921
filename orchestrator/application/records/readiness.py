"""What can be computed from a record, kept beside it so that an event costs what it touches."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from orchestrator.application.records.status import FINAL_STEP_STATUSES, StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.graph import Graph


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


@dataclass(slots=True)
class Readiness:
    """What can be computed from a record, kept beside it so that an event costs what it touches.

    unmet      for each step, how many of its parents are not final
    open        how many steps are not final
    active      how many of them are under way: in progress, waiting, deferred, in retry, on hold or in line
    in_flight   how many dispatches are out
    agenda      the spec positions of steps that the next advance() must judge, in order
    candidates  those it has judged and not dispatched, for want of capacity
    waiting     the steps that wait for a signal
    timed       the units that have a time to wait for
    due         for each map that has some, the items that are to be dispatched again, in order
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
            step_id, _, n = name.partition("#")
            if n.isdecimal() and item.is_due:
                insort(due.setdefault(step_id, []), int(n))
        return cls(
            unmet, len(steps) - len(final), active, in_flight, agenda, waiting=waiting, timed=timed, due=due
        )

    def apply(self, changes: ReadinessChanges) -> None:
        self.unmet.update(changes.unmet)
        self.open += changes.open
        self.active += changes.active
        self.in_flight += changes.in_flight
        self.agenda = _edited(self.agenda, changes.agenda)
        self.candidates = _edited(self.candidates, changes.candidates)
        for step_id, waits in changes.waiting.items():
            (self.waiting.add if waits else self.waiting.discard)(step_id)
        for unit, has_timer in changes.timed.items():
            (self.timed.add if has_timer else self.timed.discard)(unit)
        for step_id, positions in changes.due.items():
            self.due[step_id] = _edited(self.due.get(step_id, []), positions)
            if not self.due[step_id]:
                del self.due[step_id]


def _edited(positions: list[int], changes: PositionChanges) -> list[int]:
    """A sorted list without what was taken and with what was added; a short edit costs no new list."""
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


class PositionQueue(PositionChanges):
    """A sorted list, of which a decision has taken some and to which it has added others."""

    __slots__ = ("_at", "_heap", "_kept")

    def __init__(self, kept: list[int]) -> None:
        super().__init__()
        self._kept, self._at = kept, 0
        self._heap: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._heap and self._at >= len(self._kept)

    def add(self, position: int) -> None:
        if position not in self.added:
            self.added.add(position)
            heappush(self._heap, position)

    def discard(self, position: int) -> None:
        """It is not to be taken any more, whether it was or not."""
        self.added.discard(position)
        self.taken.add(position)

    def take(self) -> int | None:
        """The lowest position; None when there is none left."""
        heap, kept = self._heap, self._kept
        if not heap and self._at >= len(kept):
            return None
        self._pass_over_discarded()
        at = self._at
        if heap and (at >= len(kept) or heap[0] <= kept[at]):
            position = heappop(heap)
            self.added.discard(position)
            if at < len(kept) and kept[at] == position:
                self._at = at + 1  # it stands on both: it is taken once
        elif at < len(kept):
            position = kept[at]
            self._at = at + 1
        else:
            return None
        self.taken.add(position)
        return position

    def _pass_over_discarded(self) -> None:
        added, taken = self.added, self.taken
        while self._heap and self._heap[0] not in added:
            heappop(self._heap)
        while self._at < len(self._kept) and (at := self._kept[self._at]) in taken and at not in added:
            self._at += 1
