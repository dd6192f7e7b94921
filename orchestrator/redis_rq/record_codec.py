"""Records as the fields of their Redis hash, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import (
    RECORD_PARTS,
    RECORD_SCHEMA_VERSION,
    SHORT_REFERENCES,
    WorkflowRecord,
    read_parts,
)
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.values.unit_id import UnitId, item_field
from orchestrator.redis_rq.json_codec import dumps, loads


def created_fields(record: WorkflowRecord) -> dict[str, str]:
    """All fields of a new record."""
    stored = {
        "schema": str(RECORD_SCHEMA_VERSION),
        "workflow_id": record.workflow_id,
        "execution_id": record.execution_id,
        "status": record.status.value,
        "inputs": dumps(record.inputs),
        "created_at": record.created_at,
    }
    if record.spec.name is not None:
        stored["name"] = record.spec.name
    if record.loaded.has_short_references:
        stored[SHORT_REFERENCES] = "1"
    if record.start_event is not None:
        stored["start_event"] = record.start_event
    stored.update((f"step:{step_id}", dumps(step.as_dict())) for step_id, step in record.steps.items())
    stored.update((item_field(unit), dumps(item.as_dict())) for unit, item in record.items.items())
    stored.update((f"state:{key}", dumps(value)) for key, value in record.state.items())
    for name in _JSON_FIELDS:
        value = getattr(record, name)
        if value is not None and not (name in ("signals", "completions", "labels") and not value):
            stored[name] = dumps(asdict(value) if name in RECORD_PARTS else value)
    for name in ("group", "schedule", "ended_at", "idempotency_root", "traceparent", "delta"):
        if getattr(record, name) is not None:
            stored[name] = getattr(record, name)
    return stored


_JSON_FIELDS = (
    "outcome",
    "error",
    "deadline_ms",
    "signals",
    "labels",
    "priority",
    "parent",
    "slot",
    "cancelled",
    "paused",
    "ending",
    "compensated",
    "completions",
    "webhook",
)


def changed_fields(changes: Changes) -> dict[str, str]:
    """The fields that a commit writes: only what changed."""
    stored = {f"step:{step_id}": dumps(step.as_dict()) for step_id, step in changes.steps.items()}
    for unit, item in changes.items.items():
        if item is not None:
            stored[item_field(unit)] = dumps(item.as_dict())
    stored.update((f"state:{key}", dumps(value)) for key, value in changes.state.items())
    for name, value in changes.fields.items():
        if name in RECORD_PARTS and value is not None:
            stored[name] = dumps(asdict(value))
        elif name not in _PLAIN_FIELDS:
            stored[name] = dumps(value)
        elif value is not None:
            stored[name] = value
    return stored


_PLAIN_FIELDS = frozenset({"status", "ended_at"})


def dropped_fields(changes: Changes) -> list[str]:
    """The fields that a commit deletes: the items of a map that was reset, keys that were removed from the
    state, and `ended_at` of a reopened record."""
    dropped = [item_field(unit) for unit, item in changes.items.items() if item is None]
    if changes.dropped_state:
        dropped += [f"state:{key}" for key in sorted(changes.dropped_state)]
    return dropped + [name for name in _PLAIN_FIELDS if changes.fields.get(name, name) is None]


def unit_field(unit: str) -> str:
    """The field of a step, or of an item of one."""
    return f"step:{unit}" if UnitId(unit).is_step else item_field(unit)


def read_record(stored: Mapping[str, str], loaded: LoadedSpec) -> WorkflowRecord:
    steps = {
        step_id: StepRecord.from_dict(loads(stored[f"step:{step_id}"]))
        for step_id in loaded.graph.order
        if f"step:{step_id}" in stored
    }
    items = {}
    for name, value in stored.items():
        if name.startswith("item:"):
            step_id, _, n = name[5:].rpartition(":")
            items[UnitId.for_item(step_id, n)] = StepRecord.from_dict(loads(value))
    state = {name[6:]: loads(value) for name, value in stored.items() if name.startswith("state:")}
    record = WorkflowRecord(
        loaded=loaded,
        execution_id=stored["execution_id"],
        inputs=loads(stored["inputs"]),
        created_at=stored["created_at"],
        status=WorkflowStatus(stored["status"]),
        state=state,
        steps=steps,
        items=items,
        ended_at=stored.get("ended_at"),
        group=stored.get("group"),
        idempotency_root=stored.get("idempotency_root"),
        schedule=stored.get("schedule"),
        start_event=stored.get("start_event"),
        version=stored["version"],
        traceparent=stored.get("traceparent"),
        delta=stored.get("delta"),
        **read_parts({name: loads(stored[name]) for name in _JSON_FIELDS if name in stored}),
    )
    record.size = sum(map(len, stored.values()))
    return record
