"""Checks whether the history of an execution is legal and leads to its record.

The history is replayed once, from the beginning. Every step starts as ready and the workflow as pending. Each
transition must be allowed by the tables in `records/status.py` and start where the previous one ended. The
last one must lead to the record. `invariants.py` checks what must be true of the record by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from orchestrator.application.audit.deltas import check_deltas
from orchestrator.application.audit.findings import Finding
from orchestrator.application.audit.invariants import can_have_unit, check_record, is_webhook
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.replay import is_delta
from orchestrator.application.records.status import (
    FINAL_WORKFLOW_STATUSES,
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
)
from orchestrator.application.records.visible_fields import Encode
from orchestrator.application.values.unit_id import UnitId, step_of

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_E = TypeVar("_E", bound=StrEnum)


def audit(record: WorkflowRecord, history: Iterable[Any], encode: Encode = _encoder.encode) -> list[Finding]:
    """List every inconsistency of a record and its history; empty if there is none. `encode` is that of the
    store, which wrote the deltas."""
    replay = Replay(record)
    for number, entry in enumerate(history, 1):
        replay.apply_entry(number, entry)
    findings = [*replay.findings, *replay.find_differences(), *check_deltas(record, replay.deltas, encode)]
    return [*findings, *check_record(record)]


@dataclass(slots=True)
class _UnitState:
    """The state of a unit after the entries replayed so far. `round` is the round of its step: a reset of the
    step drops the units of an earlier round, and they may start again from ready."""

    status: StepStatus = StepStatus.READY
    run_id: int = 0
    held: StepStatus | None = None
    round: int = 0


@dataclass(frozen=True, slots=True)
class _UnitChange:
    """A history entry about one unit."""

    number: int
    unit: str
    before: StepStatus
    after: StepStatus
    run_id: int

    @classmethod
    def parse(cls, number: int, entry: dict[str, Any]) -> _UnitChange | None:
        unit, run_id = entry.get("step"), entry.get("run_id")
        before = _parse_status(StepStatus, entry.get("from"))
        after = _parse_status(StepStatus, entry["to"])
        if before is None or after is None or not isinstance(run_id, int) or not isinstance(unit, str):
            return None
        return cls(number, unit, before, after, run_id)

    def is_held_again(self, seen: _UnitState) -> bool:
        """Whether a step on hold was reset: the hold survives, and the step gets a new run_id."""
        return self.before is self.after is StepStatus.ON_HOLD and self.run_id > seen.run_id


class Replay:
    """Replays a history entry by entry and collects findings."""

    def __init__(self, record: WorkflowRecord) -> None:
        self._record, self.findings = record, list[Finding]()
        self._status, self._final_cause = WorkflowStatus.PENDING, ""
        self._units: dict[str, _UnitState] = {}
        self._rounds: dict[str, int] = {}
        self._missing_keys: dict[str, Finding] = {}
        self._removed_keys: dict[str, Finding] = {}
        self._entries = 0
        self.deltas: list[dict[str, Any]] = []

    def apply_entry(self, number: int, entry: Any) -> None:
        """Check one entry and apply it. Entries of other kinds, such as signals, are ignored."""
        self._entries = number
        if not isinstance(entry, dict):
            self._add("unreadable_entry", "", f"history entry {number} is not an object")
        elif is_delta(entry):
            self.deltas.append(entry)
        elif "workflow" in entry:
            self._apply_workflow_entry(number, entry)
        elif "to" in entry:
            self._apply_unit_entry(number, entry)
        elif "state_changed" in entry:
            self._apply_state_entry(number, entry)
        elif "state_removed" in entry:
            self._apply_removal_entry(number, entry)

    def find_differences(self) -> Iterator[Finding]:
        """Compare the replayed state with the record."""
        yield from self._missing_keys.values()
        yield from self._removed_keys.values()
        record = self._record
        units = dict(record.units())
        if not self._entries:
            if record.status is not WorkflowStatus.PENDING:
                yield Finding(
                    "history_missing", "", f"the status is {record.status}, but there is no history"
                )
            return
        if self._status is not record.status:
            words = f"the status is {record.status}, but {self._status} in the history"
            yield Finding("status", "", words)
        for unit, one in units.items():
            seen = self._units.get(unit, _UnitState(run_id=one.run_id))
            is_new = self._may_be_new(unit, seen, one.run_id)
            if one.status is not seen.status and not (is_new and one.status is StepStatus.READY):
                words = f"the status is {one.status}, but {seen.status} in the history"
                yield Finding("status", unit, words)
            elif one.run_id != seen.run_id and not is_new:
                words = f"the run_id is {one.run_id}, but {seen.run_id} in the history"
                yield Finding("run_id", unit, words)
        for unit, seen in self._units.items():
            if unit not in units and not self._is_of_earlier_round(unit, seen):
                yield Finding("unit_missing", unit, "it is in the history, but not in the record")

    # ---- one entry

    def _apply_workflow_entry(self, number: int, entry: dict[str, Any]) -> None:
        after = _parse_status(WorkflowStatus, entry["workflow"])
        if after is None:
            self._add("unreadable_entry", "", f"history entry {number} has no valid status")
            return
        if after not in WORKFLOW_TRANSITIONS[self._status]:
            words = f"history entry {number}: illegal transition from {self._status} to {after}"
            self._add("illegal_move", "", words)
        self._status = after
        self._final_cause = str(entry.get("cause")) if after in FINAL_WORKFLOW_STATUSES else ""

    def _apply_unit_entry(self, number: int, entry: dict[str, Any]) -> None:
        change = _UnitChange.parse(number, entry)
        if change is None:
            where = str(entry.get("step"))
            self._add("unreadable_entry", where, f"history entry {number} is not a valid transition")
            return
        unit, after = change.unit, change.after
        if not can_have_unit(self._record, unit):
            self._add("unknown_unit", unit, f"history entry {number}: the workflow has no such step")
            return
        seen = self._units.setdefault(unit, _UnitState(round=self._rounds.get(step_of(unit), 0)))
        self._check_change(change, seen)
        is_held_again = change.is_held_again(seen)
        is_reset = is_held_again or (after is StepStatus.READY and change.before is not StepStatus.ON_HOLD)
        if self._is_after_finish(unit, entry) and not is_reset:
            words = f"history entry {number}: it changed to {after} after the workflow had ended"
            self._add("moved_after_end", unit, words)
        if is_reset:
            self._rounds[unit] = self._rounds.get(unit, 0) + 1
        held = None
        if after is StepStatus.ON_HOLD:
            held = StepStatus.READY if is_held_again else change.before
        self._units[unit] = _UnitState(after, change.run_id, held, self._rounds.get(step_of(unit), 0))

    def _check_change(self, change: _UnitChange, seen: _UnitState) -> None:
        unit, before, after, run_id = change.unit, change.before, change.after, change.run_id
        where = f"history entry {change.number}"
        is_new = self._may_be_new(unit, seen, run_id) and before is StepStatus.READY
        is_held_again = change.is_held_again(seen)
        if before is not seen.status and not is_new:
            words = f"{where}: it starts from {before}, but the status was {seen.status}"
            self._add("broken_chain", unit, words)
        if run_id < seen.run_id:
            self._add("run_id", unit, f"{where}: the run_id decreases from {seen.run_id} to {run_id}")
        if after not in STEP_TRANSITIONS[before] and not is_held_again:
            self._add("illegal_move", unit, f"{where}: illegal transition from {before} to {after}")
        elif seen.held is not None and after not in (seen.held, StepStatus.CANCELLED) and not is_held_again:
            self._add("illegal_move", unit, f"{where}: held as {seen.held}, but released to {after}")

    def _apply_state_entry(self, number: int, entry: dict[str, Any]) -> None:
        for key in entry["state_changed"]:
            self._removed_keys.pop(key, None)
            if key not in self._record.state:
                words = f"history entry {number}: it wrote {key!r}, which is not in the state"
                self._missing_keys[key] = Finding("state", str(entry.get("step")), words)

    def _apply_removal_entry(self, number: int, entry: dict[str, Any]) -> None:
        for key in entry["state_removed"]:
            self._missing_keys.pop(key, None)
            if key in self._record.state:
                words = f"history entry {number}: it removed {key!r}, which is in the state"
                self._removed_keys[key] = Finding("state", str(entry.get("step")), words)

    def _is_after_finish(self, unit: str, entry: dict[str, Any]) -> bool:
        """Whether an earlier decision had ended the workflow. Only its webhook may change after that."""
        return self._final_cause not in ("", str(entry.get("cause"))) and not is_webhook(unit)

    def _may_be_new(self, unit: str, seen: _UnitState, run_id: int) -> bool:
        """Whether a unit may have started again: after a reset of its step, or a webhook in a new run."""
        return self._is_of_earlier_round(unit, seen) or (is_webhook(unit) and run_id > seen.run_id)

    def _is_of_earlier_round(self, unit: str, seen: _UnitState) -> bool:
        return not UnitId(unit).is_step and seen.round < self._rounds.get(step_of(unit), 0)

    def _add(self, code: str, where: str, words: str) -> None:
        self.findings.append(Finding(code, where, words))


def _parse_status(kind: type[_E], name: Any) -> _E | None:
    try:
        return kind(name)
    except ValueError:
        return None
