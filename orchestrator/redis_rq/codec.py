"""Between what Redis keeps (strings) and what we decide upon (records, events)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from orchestrator.application.errors import InvalidEvent
from orchestrator.application.events import (
    ContinueEvent,
    DeadlineEvent,
    Event,
    LostEvent,
    ResultEvent,
    StartedEvent,
    StartEvent,
)
from orchestrator.application.record import (
    SCHEMA,
    Changes,
    StepRecord,
    WorkflowRecord,
    WorkflowStatus,
)
from orchestrator.application.validation import LoadedSpec

MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_INPUT_BYTES = 1024 * 1024
EXECUTION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,256}")

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumps(value: Any) -> str:
    return _encoder.encode(value)


def loads(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ---- records


def created_fields(record: WorkflowRecord) -> dict[str, str]:
    """A whole new record, as the fields of its hash."""
    stored = {
        "schema": str(SCHEMA),
        "workflow_id": record.workflow_id,
        "execution_id": record.execution_id,
        "status": record.status.value,
        "inputs": dumps(record.inputs),
        "created_at": record.created_at,
    }
    if record.spec.name is not None:
        stored["name"] = record.spec.name
    if record.start_event is not None:
        stored["start_event"] = record.start_event
    stored.update((f"step:{step_id}", dumps(step.as_dict())) for step_id, step in record.steps.items())
    stored.update((f"state:{key}", dumps(value)) for key, value in record.state.items())
    for name in ("outcome", "error"):
        if getattr(record, name) is not None:
            stored[name] = dumps(getattr(record, name))
    if record.ended_at is not None:
        stored["ended_at"] = record.ended_at
    return stored


def changed_fields(changes: Changes) -> dict[str, str]:
    """What a commit writes: only what changed."""
    stored = {f"step:{step_id}": dumps(step.as_dict()) for step_id, step in changes.steps.items()}
    stored.update((f"state:{key}", dumps(value)) for key, value in changes.state.items())
    for name, value in changes.fields.items():
        stored[name] = value if name in _PLAIN_FIELDS else dumps(value)
    return stored


_PLAIN_FIELDS = frozenset({"status", "ended_at"})


def read_record(stored: Mapping[str, str], loaded: LoadedSpec) -> WorkflowRecord:
    steps = {
        step_id: StepRecord.from_dict(loads(stored[f"step:{step_id}"]))
        for step_id in loaded.graph.order
        if f"step:{step_id}" in stored
    }
    state = {name[6:]: loads(value) for name, value in stored.items() if name.startswith("state:")}
    return WorkflowRecord(
        loaded=loaded,
        execution_id=stored["execution_id"],
        inputs=loads(stored["inputs"]),
        created_at=stored["created_at"],
        status=WorkflowStatus(stored["status"]),
        state=state,
        steps=steps,
        outcome=loads(stored["outcome"]) if "outcome" in stored else None,
        error=loads(stored["error"]) if "error" in stored else None,
        ended_at=stored.get("ended_at"),
        start_event=stored.get("start_event"),
        version=stored["version"],
    )


# ---- events


def read_event(fields: Mapping[str, str], is_start: bool) -> Event:
    """Understand the fields of a stream entry, or raise InvalidEvent with a reason its sender can act on."""
    size = sum(len(name) + len(value) for name, value in fields.items())
    if size > MAX_EVENT_BYTES:
        raise InvalidEvent(
            f"the event has {size:,} characters; at most {MAX_EVENT_BYTES:,} are accepted:"
            " pass large data by reference"
        )
    if is_start:
        return _read_start(fields)
    kind = fields.get("type", "")
    read = _READERS.get(kind)
    if read is None:
        raise InvalidEvent(f"unknown event type {kind!r}; known are {', '.join(sorted(_READERS))}")
    return read(fields)


_START_FIELDS = frozenset({"workflow", "spec", "inputs", "execution_id"})


def _read_start(fields: Mapping[str, str]) -> StartEvent:
    unknown = sorted(set(fields) - _START_FIELDS)
    if unknown:
        raise InvalidEvent(f"unknown field {unknown[0]!r}; a start has {', '.join(sorted(_START_FIELDS))}")
    if ("workflow" in fields) == ("spec" in fields):
        raise InvalidEvent(
            "a start names a registered 'workflow' or carries a 'spec': exactly one of the two"
        )
    text = fields.get("inputs", "{}")
    if len(text) > MAX_INPUT_BYTES:
        raise InvalidEvent(f"inputs have {len(text):,} characters; at most {MAX_INPUT_BYTES:,} are accepted")
    inputs = _json("inputs", text)
    if not isinstance(inputs, dict):
        raise InvalidEvent("inputs must be a JSON object")
    execution_id = fields.get("execution_id")
    if execution_id is not None and not EXECUTION_ID.fullmatch(execution_id):
        raise InvalidEvent("execution_id: 1 to 256 letters, digits, '_', '-', '.' or ':'")
    return StartEvent(fields.get("workflow"), fields.get("spec"), inputs, execution_id)


def _read_result(fields: Mapping[str, str]) -> ResultEvent:
    error = _json("error", fields["error"]) if "error" in fields else None
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("kind"), str)):
        raise InvalidEvent("error must be a JSON object with a kind")
    output = _json("output", fields["output"]) if "output" in fields else None
    return ResultEvent(
        workflow_execution_id=_text(fields, "execution"),
        step_id=_text(fields, "step"),
        output=output,
        error=error,
        run_id=_number(fields, "run_id"),
        attempt=_number(fields, "attempt"),
        token=_text(fields, "token"),
        worker=fields.get("worker"),
        started_at=fields.get("started_at"),
    )


def _read_started(fields: Mapping[str, str]) -> StartedEvent:
    return StartedEvent(
        workflow_execution_id=_text(fields, "execution"),
        step_id=_text(fields, "step"),
        run_id=_number(fields, "run_id"),
        attempt=_number(fields, "attempt"),
        token=_text(fields, "token"),
        worker=fields.get("worker"),
        started_at=fields.get("started_at"),
    )


def _read_lost(fields: Mapping[str, str]) -> LostEvent:
    return LostEvent(
        workflow_execution_id=_text(fields, "execution"),
        step_id=_text(fields, "step"),
        run_id=_number(fields, "run_id"),
        attempt=_number(fields, "attempt"),
        token=_text(fields, "token"),
        reason=fields.get("reason", "lost"),
    )


_READERS: Mapping[str, Callable[[Mapping[str, str]], Event]] = {
    "result": _read_result,
    "started": _read_started,
    "lost": _read_lost,
    "deadline": lambda fields: DeadlineEvent(
        _text(fields, "execution"), _text(fields, "step"), _text(fields, "token")
    ),
    "continue": lambda fields: ContinueEvent(_text(fields, "execution")),
}


def event_fields(event: ResultEvent | StartedEvent | LostEvent | ContinueEvent) -> dict[str, str]:
    """An event as the fields of its stream entry; what read_event() understands."""
    fields = {"type": _TYPES[type(event)], "execution": event.workflow_execution_id}
    if isinstance(event, ContinueEvent):
        return fields
    fields.update(step=event.step_id, run_id=str(event.run_id), attempt=str(event.attempt))
    fields["token"] = cast(str, event.token)
    if isinstance(event, LostEvent):
        fields["reason"] = event.reason
        return fields
    for name in ("worker", "started_at"):
        if getattr(event, name) is not None:
            fields[name] = getattr(event, name)
    if isinstance(event, ResultEvent):
        if event.error is not None:
            fields["error"] = dumps(event.error)
        else:
            fields["output"] = dumps(event.output)
    return fields


_TYPES: Mapping[type, str] = {
    ResultEvent: "result",
    StartedEvent: "started",
    LostEvent: "lost",
    ContinueEvent: "continue",
}


def _text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise InvalidEvent(f"field {name!r} is missing")
    return value


def _number(fields: Mapping[str, str], name: str) -> int:
    value = _text(fields, name)
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise InvalidEvent(f"field {name!r} must be a whole number, not {value[:40]!r}")
    return int(value)


def _json(name: str, text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} is not JSON: {error}") from error
