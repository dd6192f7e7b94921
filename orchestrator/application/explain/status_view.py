"""The statuses of the units of an execution as they are shown, and the time at which each began.

A record has `in_progress` from the dispatch on, because no commit is made when a worker takes the job. Until
then the unit is shown as `queued`. Only its lease tells: `redis_rq/queued_units.py` reads it. All
commands take the statuses that they show from here, so that they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.values.unit_id import UnitId

QUEUED = "queued"
"""The status of a unit that was dispatched and that no worker has taken. No record stores it."""


def may_be_queued(step: StepRecord) -> bool:
    """Whether only its lease tells if a worker has taken the job of a unit. A worker that has run it for a
    second has reported its start."""
    return (
        step.status is StepStatus.IN_PROGRESS
        and step.token is not None
        and step.child is None
        and step.started_at is None
    )


@dataclass(frozen=True, slots=True)
class StatusView:
    """A record, and its units whose job no worker has taken."""

    record: WorkflowRecord
    queued: Set[str] = frozenset()

    def status_of(self, unit: str, step: StepRecord) -> str:
        """Return the status of a unit: that of its record, or `queued`."""
        return QUEUED if self.is_queued(unit, step) else step.status.value

    def is_queued(self, unit: str, step: StepRecord) -> bool:
        """Whether a unit in progress waits for a worker. One that has lost its worker does too; a map does
        until a worker takes the first of its items."""
        if step.status is not StepStatus.IN_PROGRESS or step.child is not None:
            return False
        if step.items is not None:
            return self._is_queued_map(unit, step.items)
        return step.started_at is None and (step.token is None or unit in self.queued)

    def started_at(self, unit: str, step: StepRecord) -> str | None:
        """Return when a worker started a unit, the first item of a map, or when a child was requested; None
        if that has not happened, or no worker has reported it yet."""
        if step.items is not None:
            times = (item.started_at for _, item in self._items(unit, step.items))
            return min((at for at in times if at is not None), default=None)
        return step.started_at if step.child is None else step.dispatched_at

    def _is_queued_map(self, step_id: str, counts: ItemCounts) -> bool:
        if counts.settled or not counts.out:
            return False
        items = self._items(step_id, counts)
        return all(item.status is StepStatus.READY or self.is_queued(unit, item) for unit, item in items)

    def _items(self, step_id: str, counts: ItemCounts) -> Iterator[tuple[str, StepRecord]]:
        units = (UnitId.for_item(step_id, n) for n in range(counts.count))
        return ((unit, self.record.items[unit]) for unit in units if unit in self.record.items)
