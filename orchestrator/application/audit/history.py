"""Whether the history of an execution is a legal one, and leads to what its record says.

The history is read once, from the beginning: everything starts ready or pending, every move is one that the
tables of `states` allow, begins where the one before ended, and the last one leads to the record. What must
be true of the record by itself is in `invariants`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from orchestrator.application.audit.findings import Finding
from orchestrator.application.audit.invariants import can_have_unit, check_record, is_webhook
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import (
    FINAL_WORKFLOW_STATUSES,
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
)

_E = TypeVar("_E", bound=StrEnum)


def audit(record: WorkflowRecord, history: Iterable[Any]) -> list[Finding]:
    """Everything that is wrong with a record and its history; nothing, if all is well."""
    replay = Replay(record)
    for number, entry in enumerate(history, 1):
        replay.apply_entry(number, entry)
    return [*replay.findings, *replay.find_differences(), *check_record(record)]


@dataclass(slots=True)
class _Seen:
    """A unit as the history has left it so far. `round` is that of its step: a unit of an earlier round may
    have been dropped with it, and begun anew."""

    status: StepStatus = StepStatus.READY
    run_id: int = 0
    held: StepStatus | None = None
    round: int = 0


class Replay:
    """A history being read."""

    def __init__(self, record: WorkflowRecord) -> None:
        self._record, self.findings = record, list[Finding]()
        self._status, self._ended_by = WorkflowStatus.PENDING, ""
        self._units: dict[str, _Seen] = {}
        self._rounds: dict[str, int] = {}
        self._entries = 0

    def apply_entry(self, number: int, entry: Any) -> None:
        self._entries = number
        if not isinstance(entry, dict):
            self._found("unreadable_entry", "", f"entry {number} of the history is no object")
        elif "workflow" in entry:
            self._take_workflow(number, entry)
        elif "to" in entry:
            self._take_unit(number, entry)
        elif "state_changed" in entry:
            self._take_state(number, entry)

    def find_differences(self) -> Iterator[Finding]:
        """Where the history does not lead to what the record says."""
        record = self._record
        units = dict(record.units())
        if not self._entries:
            if record.status is not WorkflowStatus.PENDING:
                words = f"it is {record.status}, and there is no history that says how it came to be"
                yield Finding("history_missing", "", words)
            return
        if self._status is not record.status:
            yield Finding("status", "", f"it is {record.status}, and {self._status} by its history")
        for unit, one in units.items():
            seen = self._units.get(unit, _Seen(run_id=one.run_id))
            is_new = self._may_be_new(unit, seen, one.run_id)
            if one.status is not seen.status and not (is_new and one.status is StepStatus.READY):
                yield Finding("status", unit, f"it is {one.status}, and {seen.status} by the history")
            elif one.run_id != seen.run_id and not is_new:
                yield Finding(
                    "run_id", unit, f"it is at run {one.run_id}, and at {seen.run_id} by the history"
                )
        for unit, seen in self._units.items():
            if unit not in units and not self._is_of_earlier_round(unit, seen):
                yield Finding("unit_missing", unit, "the history knows it, and the record does not")

    # ---- one entry

    def _take_workflow(self, number: int, entry: dict[str, Any]) -> None:
        after = _status(WorkflowStatus, entry["workflow"])
        if after is None:
            self._found("unreadable_entry", "", f"entry {number} of the history names no status")
            return
        if after not in WORKFLOW_TRANSITIONS[self._status]:
            self._found("illegal_move", "", f"entry {number}: from {self._status} to {after}")
        self._status = after
        self._ended_by = str(entry.get("cause")) if after in FINAL_WORKFLOW_STATUSES else ""

    def _take_unit(self, number: int, entry: dict[str, Any]) -> None:
        unit, run_id = entry.get("step"), entry.get("run_id")
        before, after = _status(StepStatus, entry.get("from")), _status(StepStatus, entry["to"])
        if before is None or after is None or not isinstance(run_id, int) or not isinstance(unit, str):
            self._found("unreadable_entry", str(unit), f"entry {number} of the history is no move")
            return
        if not can_have_unit(self._record, unit):
            self._found("unknown_unit", str(unit), f"entry {number}: the workflow has no such step")
            return
        seen = self._units.setdefault(unit, _Seen(round=self._rounds.get(_step_of(unit), 0)))
        is_new = self._may_be_new(unit, seen, run_id) and before is StepStatus.READY
        if before is not seen.status and not is_new:
            self._found("broken_chain", unit, f"entry {number}: from {before}, and it was {seen.status}")
        if run_id < seen.run_id:
            self._found("run_id", unit, f"entry {number}: from run {seen.run_id} down to {run_id}")
        # A hold survives a reset: the step stays where it is, at a new run.
        is_held_anew = before is after is StepStatus.ON_HOLD and run_id > seen.run_id
        if after not in STEP_TRANSITIONS[before] and not is_held_anew:
            self._found("illegal_move", unit, f"entry {number}: from {before} to {after}")
        elif seen.held is not None and after not in (seen.held, StepStatus.CANCELLED) and not is_held_anew:
            self._found("illegal_move", unit, f"entry {number}: held when {seen.held}, released to {after}")
        is_reset = is_held_anew or (after is StepStatus.READY and before is not StepStatus.ON_HOLD)
        if self._is_late(unit, entry) and not is_reset:
            self._found("moved_after_end", unit, f"entry {number}: to {after}, and the workflow had ended")
        if is_reset:
            self._rounds[unit] = self._rounds.get(unit, 0) + 1
        held = None
        if after is StepStatus.ON_HOLD:
            held = StepStatus.READY if is_held_anew else before
        self._units[unit] = _Seen(after, run_id, held, self._rounds.get(_step_of(unit), 0))

    def _take_state(self, number: int, entry: dict[str, Any]) -> None:
        for key in entry["state_changed"]:
            if key not in self._record.state:
                self._found(
                    "state", str(entry.get("step")), f"entry {number}: it wrote {key!r}, which is gone"
                )

    def _is_late(self, unit: str, entry: dict[str, Any]) -> bool:
        """Whether the workflow had ended before, by another decision; only its webhook goes on after that."""
        return self._ended_by not in ("", str(entry.get("cause"))) and not is_webhook(unit)

    def _may_be_new(self, unit: str, seen: _Seen, run_id: int) -> bool:
        """Whether a unit may have begun anew since: with its step, or, if it tells of ends, with the next."""
        return self._is_of_earlier_round(unit, seen) or (is_webhook(unit) and run_id > seen.run_id)

    def _is_of_earlier_round(self, unit: str, seen: _Seen) -> bool:
        return "#" in unit and seen.round < self._rounds.get(_step_of(unit), 0)

    def _found(self, code: str, where: str, words: str) -> None:
        self.findings.append(Finding(code, where, words))


def _step_of(unit: str) -> str:
    return unit.partition("#")[0]


def _status(kind: type[_E], name: Any) -> _E | None:
    try:
        return kind(name)
    except ValueError:
        return None
