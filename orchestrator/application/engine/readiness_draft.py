"""The readiness of a record while a decision changes it: what must be evaluated, and what can be dispatched.

Reads combine the readiness of the record with the changes of the decision; writes go to `ReadinessChanges`.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush

from orchestrator.application.records.readiness import PositionChanges, ReadinessChanges
from orchestrator.application.records.record import WorkflowRecord


class PositionQueue(PositionChanges):
    """A sorted list of positions, and what one decision takes from it and adds to it. The list itself stays
    as it is; `taken` and `added` are applied to it after the commit."""

    __slots__ = ("_has_discarded", "_heap", "_next", "_positions", "has_left")

    def __init__(self, positions: list[int]) -> None:
        self.taken, self.added = set(), set()  # every decision makes two queues: no call of the base class
        self._positions, self._next, self.has_left, self._has_discarded = positions, 0, False, False
        self._heap: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._heap and self._next >= len(self._positions)

    @property
    def lowest(self) -> int | None:
        """The position that take() would return."""
        self._skip_discarded()
        firsts = self._heap[:1] + self._positions[self._next : self._next + 1]
        return min(firsts, default=None)

    def begin_at(self, position: int) -> None:
        """Leave lower positions in the list for a later decision, except those that this one adds."""
        self._next = bisect_left(self._positions, position)
        self.has_left = self._next > 0

    def add(self, position: int) -> None:
        if position not in self.added:
            self.added.add(position)
            heappush(self._heap, position)

    def discard(self, position: int) -> None:
        """Remove a position, whether or not it is in the queue."""
        self.added.discard(position)
        self.taken.add(position)
        self._has_discarded = True

    def take(self) -> int | None:
        """Take the lowest position; None when the queue is empty."""
        heap, positions = self._heap, self._positions
        if not heap and self._next >= len(positions):
            return None
        if self._has_discarded:
            self._skip_discarded()
        at = self._next
        if heap and (at >= len(positions) or heap[0] <= positions[at]):
            position = heappop(heap)
            self.added.discard(position)
            if at < len(positions) and positions[at] == position:
                self._next = at + 1  # it is in both lists: take it once
        elif at < len(positions):
            position = positions[at]
            self._next = at + 1
        else:
            return None
        self.taken.add(position)
        return position

    def _skip_discarded(self) -> None:
        added, taken, positions = self.added, self.taken, self._positions
        while self._heap and self._heap[0] not in added:
            heappop(self._heap)
        while self._next < len(positions) and (at := positions[self._next]) in taken and at not in added:
            self._next += 1


class ReadinessDraft:
    """The part of a draft that keeps counters and queues up to date. `agenda` has the steps to evaluate,
    `candidates` those to dispatch. `dead_ends` are edges (parent, child) that may keep the child from ever
    running."""

    def __init__(self, record: WorkflowRecord) -> None:
        self.record, self.graph = record, record.graph
        self.agenda = PositionQueue(record.readiness.agenda)
        self.candidates = PositionQueue(record.readiness.candidates)
        self._readiness = ReadinessChanges(agenda=self.agenda, candidates=self.candidates)
        self._due: dict[str, PositionQueue] = {}
        self.dead_ends: list[tuple[str, str]] = []

    # ---- counters

    @property
    def open(self) -> int:
        return self.record.readiness.open + self._readiness.open

    @property
    def active(self) -> int:
        return self.record.readiness.active + self._readiness.active

    @property
    def in_flight(self) -> int:
        return self.record.readiness.in_flight + self._readiness.in_flight

    @property
    def waiting(self) -> list[str]:
        """The steps that wait for a signal, in spec order."""
        changed = self._readiness.waiting
        waiting = {*self.record.readiness.waiting, *changed}
        return sorted((s for s in waiting if changed.get(s, True)), key=self.graph.index.__getitem__)

    @property
    def retried(self) -> list[str]:
        """The steps that have `retried_keys`, in spec order."""
        changed = self._readiness.retried
        retried = {*self.record.readiness.retried, *changed}
        return sorted((s for s in retried if changed.get(s, True)), key=self.graph.index.__getitem__)

    def unmet(self, step_id: str) -> int:
        """The number of parents that are not final."""
        unmet = self._readiness.unmet.get(step_id)
        return unmet if unmet is not None else self.record.readiness.unmet[step_id]

    def may_join(self, step_id: str) -> bool:
        """Whether the join of a step can be evaluated: all parents are final, or one of an eager step."""
        unmet = self._readiness.unmet.get(step_id)
        if unmet is None:
            unmet = self.record.readiness.unmet[step_id]
        return not unmet or self.graph.may_join(step_id, unmet)

    # ---- queues

    def add_to_agenda(self, step_id: str) -> None:
        """Have the start conditions of a step evaluated."""
        self.agenda.add(self.graph.index[step_id])

    def next_to_evaluate(self) -> str | None:
        """Take the next step from the agenda, in spec order."""
        position = self.agenda.take()
        return None if position is None else self.graph.order[position]

    def begin_agenda_at(self, step_id: str) -> None:
        """Evaluate this step and the steps after it in spec order, and those before it only if this decision
        adds them to the agenda."""
        self.agenda.begin_at(self.graph.index[step_id])

    @property
    def has_left_steps(self) -> bool:
        """Whether steps were left on the agenda that this decision must not evaluate."""
        return self.agenda.has_left

    def first_left(self, with_candidates: bool) -> str:
        """The first step on the agenda, or among the candidates too; empty when there is none."""
        queues = [self.agenda, self.candidates] if with_candidates else [self.agenda]
        left = [position for queue in queues if (position := queue.lowest) is not None]
        return self.graph.order[min(left)] if left else ""

    def add_candidate(self, step_id: str) -> None:
        """Have a step dispatched as soon as there is capacity."""
        self.candidates.add(self.graph.index[step_id])

    def next_candidate(self) -> str | None:
        """Take the next candidate, in spec order."""
        position = self.candidates.take()
        return None if position is None else self.graph.order[position]

    def next_due_item(self, step_id: str) -> int:
        """Take the first item of a map that must be dispatched again. There must be one."""
        n = self._due_items(step_id).take()
        assert n is not None, f"{step_id} has no item that is due"
        return n

    def _due_items(self, step_id: str) -> PositionQueue:
        if step_id not in self._due:
            self._due[step_id] = PositionQueue(self.record.readiness.due.get(step_id, []))
            self._readiness.due[step_id] = self._due[step_id]
        return self._due[step_id]
