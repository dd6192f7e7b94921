"""A record as JSON data, for stores that keep whole records."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from orchestrator.application.records.record import (
    RECORD_PARTS,
    SHORT_REFERENCES,
    WorkflowRecord,
    read_parts,
)
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.validation import load_stored_spec

_UNITS = ("steps", "items")
_FIELDS = tuple(f.name for f in fields(WorkflowRecord) if f.init and f.name not in ("loaded", *_UNITS))


def record_as_dict(record: WorkflowRecord) -> dict[str, Any]:
    """The record with its document. It shares values with the record: write it as JSON at once."""
    stored: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
    stored |= {name: asdict(stored[name]) for name in RECORD_PARTS if stored[name] is not None}
    units = {name: {unit: one.as_dict() for unit, one in getattr(record, name).items()} for name in _UNITS}
    if record.loaded.has_short_references:
        stored[SHORT_REFERENCES] = True
    return {**stored, **units, "status": record.status.value, "document": record.loaded.document}


def record_from_dict(stored: dict[str, Any]) -> WorkflowRecord:
    """The record that record_as_dict() made this data of."""
    values = read_parts({name: stored[name] for name in _FIELDS if name in stored})
    steps, items = (
        {unit: StepRecord.from_dict(one) for unit, one in stored[name].items()} for name in _UNITS
    )
    values["status"] = WorkflowStatus(stored["status"])
    loaded = load_stored_spec(stored["document"], with_short_references=SHORT_REFERENCES in stored)
    return WorkflowRecord(loaded=loaded, steps=steps, items=items, **values)
