"""The parts of a record: its fields under the names of its Redis hash, and those that a commit changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import RECORD_PARTS, WorkflowRecord
from orchestrator.application.records.visible_fields import (
    ABSENT,
    STATE_PREFIX,
    UNTOUCHED,
    Encode,
    VisibleFields,
)
from orchestrator.application.values.unit_id import item_field

_NOT_IF_EMPTY = ("signals", "completions", "labels")


def parts_of(record: WorkflowRecord) -> dict[str, Any]:
    """Every field that a record has: units as StepRecords, all else as JSON values."""
    parts: dict[str, Any] = {}
    for name in _record_fields(record):
        parts[name] = _plain(name, getattr(record, name))
    for step_id, step in record.steps.items():
        if step != UNTOUCHED:
            parts[f"step:{step_id}"] = step
    for unit, item in record.items.items():
        parts[item_field(unit)] = item
    for key, value in record.state.items():
        parts[f"{STATE_PREFIX}{key}"] = value
    return {name: value for name, value in parts.items() if value is not ABSENT}


def changed_parts(changes: Changes) -> dict[str, Any]:
    """The fields that a commit changes; ABSENT for those that it removes."""
    parts: dict[str, Any] = {f"step:{step_id}": step for step_id, step in changes.steps.items()}
    if changes.items:
        for unit, item in changes.items.items():
            parts[item_field(unit)] = ABSENT if item is None else item
    for key, value in changes.state.items():
        parts[f"{STATE_PREFIX}{key}"] = value
    for key in sorted(changes.dropped_state):
        parts[f"{STATE_PREFIX}{key}"] = ABSENT
    for name, value in changes.fields.items():
        parts[name] = _plain(name, value)
    return parts


def visible_fields(record: WorkflowRecord, encode: Encode) -> dict[str, str]:
    """All fields of a record as they are shown, each as JSON."""
    parts = parts_of(record)
    visible = VisibleFields.of(record.spec.redact, encode, parts)
    shown = {name: visible.show(name, value) for name, value in parts.items()}
    return {name: text for name, text in shown.items() if text is not None}


def _plain(name: str, value: Any) -> Any:
    """The value of a field of the record as JSON; ABSENT if the record counts as not having it."""
    if value is None or (not value and name in _NOT_IF_EMPTY):
        return ABSENT
    return asdict(value) if name in RECORD_PARTS else value


_HELD_ELSEWHERE: Collection[str] = ("loaded", "steps", "items", "state", "version", "delta")


def _record_fields(record: WorkflowRecord) -> list[str]:
    return [one.name for one in fields(record) if one.init and one.name not in _HELD_ELSEWHERE]
