"""What an open page is told: a change of an execution as a small JSON object.

    {"position": 17, "status": "in_progress", "ended_at": null, "new_entries": 2, "counts": {"complete": 3},
     "steps": [{"step": "charge", "status": "complete", "attempt": 1, ...}]}

A change has the new state of each unit, not the difference, so one that arrives twice does no harm. It has no
inputs and no outputs. The text of an error may quote a secret that is an output elsewhere. So a view knows
the secrets of all units that it has seen, and shows no such text once a unit was too large to be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from orchestrator.application.explain.formatting import format_error
from orchestrator.application.explain.status_view import StatusView, may_be_queued
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.status import FINAL_STEP_STATUSES, StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import UnitId
from orchestrator.redis_rq.queries.record_changes import Heading
from orchestrator.web.filters import shorten

MAX_ERROR_CHARS = 200
MAX_OPEN_UNITS = 500
"""Of more units whose start is not known, only these are looked at."""

Entry = Mapping[str, Any]


class LiveView:
    """An execution as its open pages show it. The outputs of its units are dropped when they are read."""

    def __init__(self, view: StatusView, position: int) -> None:
        record = view.record
        self.position, self.created_at = position, record.created_at
        self.version, self.status, self.ended_at = record.version, record.status, record.ended_at
        self._names = record.spec.redact
        self._redactors: list[RecordView] = [make_record_view(record)]
        self._hides_errors = False
        for unit, step in list(record.units()):
            _units(record, unit)[unit] = _without_values(step)
        self._record = record
        self._set_queued(frozenset(view.queued))
        self._shown = {unit: self._view.status_of(unit, step) for unit, step in record.units()}
        self._counts = Counter(self._shown[unit] for unit in record.steps)
        self._unreported = {unit: step for unit, step in record.units() if may_be_queued(step)}

    @property
    def is_final(self) -> bool:
        return self._record.is_final

    @property
    def unreported(self) -> dict[str, StepRecord]:
        """The units of which a worker may have taken the job without a commit: some of them, if many."""
        some = list(self._unreported)[:MAX_OPEN_UNITS]
        return {unit: self._unreported[unit] for unit in some}

    def apply(
        self,
        heading: Heading,
        entries: Sequence[Entry],
        units: Mapping[str, StepRecord | None],
        untaken: Collection[str] = (),
    ) -> dict[str, Any]:
        """Take over new history entries and the units that were read for them, and return the change.
        `untaken` are those of the units whose job no worker has taken."""
        self.position += len(entries)
        self.version, self.status, self.ended_at = heading.version, heading.status, heading.ended_at
        self._record.status = heading.status
        self._set_queued((self._queued - units.keys()) | set(untaken))
        last = last_moves(entries)
        changed = [unit for unit in units if self._take(unit, units[unit], last.get(unit))]
        gone = [unit for unit in last if unit not in units and self._record.items.pop(unit, None) is not None]
        for unit in gone:
            self._unreported.pop(unit, None)
        maps = {UnitId(unit).step_id for unit in changed if UnitId(unit).is_item}
        return self._change([*changed, *(step for step in sorted(maps) if step not in changed)], len(entries))

    def note_queued(self, queued: Set[str]) -> dict[str, Any] | None:
        """Take over which of the unreported units wait for a worker; returns the change, if there is one."""
        before = self._queued
        self._set_queued(queued)
        differing = [unit for unit in self._unreported if (unit in before) != (unit in queued)]
        maps = {UnitId(unit).step_id for unit in differing if UnitId(unit).is_item}
        changed = [
            unit for unit in (*differing, *sorted(maps)) if self._status(unit) != self._shown.get(unit)
        ]
        return self._change(changed, 0) if changed else None

    def since(self, entries: Iterable[Entry]) -> dict[str, Any]:
        """The change for a page that has not seen these entries: of the units that they name, and of those
        that are queued or running."""
        named = [unit for unit in last_moves(entries) if self._find(unit) is not None]
        more = [unit for unit in self.unreported if unit not in named]
        running = (unit for unit, step in self._record.units() if step.status is StepStatus.IN_PROGRESS)
        known = {*named, *more}
        others = [unit for unit in running if unit not in known][:MAX_OPEN_UNITS]
        return self._change([*named, *more, *others], 0)

    def _set_queued(self, queued: Set[str]) -> None:
        self._queued: Set[str] = queued
        self._view = StatusView(self._record, queued)

    def _take(self, unit: str, step: StepRecord | None, entry: Entry | None) -> bool:
        """Replace a unit; returns whether a page may show it differently now."""
        before = self._find(unit)
        if step is None:
            self._hides_errors = True
            step = _step_from_entry(before or StepRecord(), entry or {})
        else:
            self._learn(step)
            step = _without_values(step)
        if before == step:
            return False
        _units(self._record, unit)[unit] = step
        self._unreported.pop(unit, None)
        if may_be_queued(step):
            self._unreported[unit] = step
        return True

    def _learn(self, step: StepRecord) -> None:
        """Note the secrets of a unit, so that they are redacted in every error."""
        values = [
            value for value in (step.output, step.error, step.value, step.loop_value) if value is not None
        ]
        if values:
            found = RecordView(self._names, values)
            if found.has_secrets:
                self._redactors.append(found)

    def _change(self, units: Sequence[str], new_entries: int) -> dict[str, Any]:
        steps = [self._describe(unit) for unit in units]
        return {
            "position": self.position,
            "status": self.status.value,
            "ended_at": self.ended_at,
            "new_entries": new_entries,
            "counts": {status: count for status, count in sorted(self._counts.items()) if count},
            "steps": steps,
        }

    def _describe(self, unit: str) -> dict[str, Any]:
        step, status = self._find(unit), self._status(unit)
        assert step is not None, f"{unit} is not in the record"
        before = self._shown.get(unit)
        if status != before and unit in self._record.steps:
            self._counts[status] += 1
            if before is not None:
                self._counts[before] -= 1
        self._shown[unit] = status
        return {
            "step": unit,
            "status": status,
            "attempt": step.attempt,
            "run_id": step.run_id,
            "dispatched_at": step.dispatched_at,
            "started_at": step.started_at,
            "ended_at": step.ended_at,
            "worker": None if step.worker is None else shorten(step.worker),
            "error": self._describe_error(step),
            "items": None if step.items is None else dict(_item_counts(step)),
        }

    def _describe_error(self, step: StepRecord) -> str | None:
        if step.error is None:
            return None
        if self._hides_errors:
            return shorten(step.error.get("kind") or "failed")
        error: Any = step.error
        for redact in self._redactors:
            error = redact(error)
        return shorten(format_error(error), MAX_ERROR_CHARS)

    def _status(self, unit: str) -> str:
        step = self._find(unit)
        return StepStatus.READY.value if step is None else self._view.status_of(unit, step)

    def _find(self, unit: str) -> StepRecord | None:
        return self._record.steps.get(unit) or self._record.items.get(unit)


def last_moves(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The last change of the status of each unit that has one."""
    return {entry["step"]: entry for entry in entries if "to" in entry and "step" in entry}


def _units(record: WorkflowRecord, unit: str) -> dict[str, StepRecord]:
    return record.steps if unit in record.steps else record.items


def _without_values(step: StepRecord) -> StepRecord:
    if step.output is None and step.value is None and step.loop_value is None:
        return step
    return step.with_changes(output=None, value=None, loop_value=None)


def _step_from_entry(before: StepRecord, entry: Entry) -> StepRecord:
    """A unit that was too large to be read, as its last history entry tells."""
    if not entry:
        return before
    status = StepStatus(entry["to"])
    at = str(entry["at"])
    return before.with_changes(
        status=status,
        attempt=entry.get("attempt", before.attempt),
        run_id=entry.get("run_id", before.run_id),
        error=entry.get("error"),
        token="" if status is StepStatus.IN_PROGRESS else None,
        dispatched_at=at if status is StepStatus.IN_PROGRESS else before.dispatched_at,
        ended_at=at if status in FINAL_STEP_STATUSES else None,
    )


def _item_counts(step: StepRecord) -> Iterator[tuple[str, int]]:
    assert step.items is not None
    yield "count", step.items.count
    yield "settled", step.items.settled
    yield "failed", step.items.errors
    yield "out", step.items.out
