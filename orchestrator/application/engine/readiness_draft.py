"""The readiness of a record while a decision changes it: what must be evaluated, and what can be dispatched.

Reads combine the readiness of the record with the changes of the decision; writes go to `ReadinessChanges`.
"""

from __future__ import annotations

from orchestrator.application.records.readiness import PositionQueue, ReadinessChanges
from orchestrator.application.records.record import WorkflowRecord


class ReadinessDraft:
    """The part of a draft that keeps counters and queues up to date. `dead_ends` are edges (parent, child)
    that may keep the child from ever running."""

    def __init__(self, record: WorkflowRecord) -> None:
        self.record, self.graph = record, record.graph
        self._agenda = PositionQueue(record.readiness.agenda)
        self._candidates = PositionQueue(record.readiness.candidates)
        self._readiness = ReadinessChanges(agenda=self._agenda, candidates=self._candidates)
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

    def unmet(self, step_id: str) -> int:
        """The number of parents that are not final."""
        unmet = self._readiness.unmet.get(step_id)
        return unmet if unmet is not None else self.record.readiness.unmet[step_id]

    def may_join(self, step_id: str) -> bool:
        """Whether the join of a step can be evaluated: all parents are final, or one of an eager step."""
        unmet = self.unmet(step_id)
        return not unmet or self.graph.may_join(step_id, unmet)

    # ---- queues

    def add_to_agenda(self, step_id: str) -> None:
        """Have the start conditions of a step evaluated."""
        self._agenda.add(self.graph.index[step_id])

    def next_to_evaluate(self) -> str | None:
        """Take the next step from the agenda, in spec order."""
        position = self._agenda.take()
        return None if position is None else self.graph.order[position]

    @property
    def has_agenda(self) -> bool:
        return not self._agenda.is_empty

    def add_candidate(self, step_id: str) -> None:
        """Have a step dispatched as soon as there is capacity."""
        self._candidates.add(self.graph.index[step_id])

    @property
    def has_candidates(self) -> bool:
        return not self._candidates.is_empty

    def next_candidate(self) -> str | None:
        """Take the next candidate, in spec order."""
        position = self._candidates.take()
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
