"""Records and events in one line each, so that a test names only its subject; and ways to compare records.

DIAMOND = spec(a={}, b={"depends_on": ["a"]}, c={"depends_on": ["a"]}, d={"depends_on": ["b", "c"]})
before = record(DIAMOND, a=COMPLETE, b=IN_PROGRESS)
changes, outcome = on_step_result(before, result("b", {"n": 1}), moment())
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, fields, replace
from typing import Any

from orchestrator.application.records.record import WorkflowRecord, read_parts
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.testing.contracts.records import NOW, NOW_MS, moment, record, result, spec
from worlds.documents import Json
from worlds.specs import nameless

__all__ = [
    "NOW",
    "NOW_MS",
    "ended_legally",
    "essence",
    "moment",
    "new_record",
    "record",
    "record_of",
    "reloaded",
    "result",
    "same_numbers",
    "spec",
]


def record_of(*steps: StepSpec, inputs: Json | None = None, **workflow: Any) -> WorkflowRecord:
    """A new execution of these steps, as StepSpec objects."""
    return WorkflowRecord(nameless(*steps, **workflow), "x1", dict(inputs or {}), created_at=NOW)


def new_record(document: Json, inputs: Json | None = None) -> WorkflowRecord:
    """A new execution of a document."""
    return WorkflowRecord(check_spec(document), "x1", dict(inputs or {}), created_at=NOW)


def reloaded(record: WorkflowRecord) -> WorkflowRecord:
    """The record as another process would have it: its stored fields, and readiness computed again."""
    stored = {
        field.name: json.loads(json.dumps(getattr(record, field.name), default=asdict))
        for field in fields(record)
        if field.init and field.name not in ("loaded", "status", "steps", "items")
    }
    units = [
        {unit: StepRecord.from_dict(json.loads(json.dumps(one.as_dict()))) for unit, one in kept.items()}
        for kept in (record.steps, record.items)
    ]
    again = replace(record, steps=units[0], items=units[1], **read_parts(stored))
    again.shared = deepcopy(record.shared)
    return again


def essence(record: WorkflowRecord, *, without: Iterable[str] = ()) -> Json:
    """A record without times, tokens and workers: what must not depend on the order of events."""
    hidden = {"token", "worker", "dispatched_at", "started_at", "ended_at", *without}
    return {
        "status": str(record.status),
        "state": record.state,
        "outcome": record.outcome,
        "error": record.error,
        "steps": {
            step_id: {key: value for key, value in step.as_dict().items() if key not in hidden}
            for step_id, step in record.steps.items()
        },
    }


def ended_legally(record: WorkflowRecord) -> bool:
    """Final, with nothing active left and, except after a halt, nothing ready either."""
    left = {step.status for step in record.steps.values() if not step.is_final}
    return record.is_final and left <= (
        {StepStatus.READY} if record.status is WorkflowStatus.HALTED else set()
    )


def same_numbers(value: Any) -> Any:
    """The same value, with every whole float as an integer and the others rounded a little."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 9)
    if isinstance(value, Mapping):
        return {key: same_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [same_numbers(one) for one in value]
    return value
