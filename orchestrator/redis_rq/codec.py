"""Events as the fields of stream entries, and JSON as we write it.

The work-horse of every step imports this: nothing heavy may be needed here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from orchestrator.application.errors import InvalidEvent
from orchestrator.application.events import (
    ContinueEvent,
    Event,
    LostEvent,
    ResultEvent,
    SignalEvent,
    StartedEvent,
    StartEvent,
    TimerEvent,
)

MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_INPUT_BYTES = 1024 * 1024
MAX_DEPTH = 200
EXECUTION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,256}")

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumps(value: Any) -> str:
    return _encoder.encode(value)


def loads(text: str) -> Any:
    """What JSON can write too: ValueError for an endless number, or half a surrogate pair."""
    value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    if "\\u" in text:
        dumps(value).encode()
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


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
    return ResultEvent(output=output, error=error, **_dispatch(fields), **_worker(fields))


def _dispatch(fields: Mapping[str, str]) -> dict[str, Any]:
    """Which dispatch an event is about."""
    return {
        "workflow_execution_id": _text(fields, "execution"),
        "step_id": _text(fields, "step"),
        "run_id": _number(fields, "run_id"),
        "attempt": _number(fields, "attempt"),
        "token": _text(fields, "token"),
    }


def _worker(fields: Mapping[str, str]) -> dict[str, Any]:
    return {"worker": fields.get("worker"), "started_at": fields.get("started_at")}


def _timer_reader(kind: str) -> Callable[[Mapping[str, str]], TimerEvent]:
    return lambda fields: TimerEvent(
        kind, _text(fields, "execution"), _text(fields, "step"), _text(fields, "token")
    )


_READERS: Mapping[str, Callable[[Mapping[str, str]], Event]] = {
    "result": _read_result,
    "started": lambda fields: StartedEvent(**_dispatch(fields), **_worker(fields)),
    "lost": lambda fields: LostEvent(**_dispatch(fields), reason=fields.get("reason", "lost")),
    "signal": lambda fields: SignalEvent(
        _text(fields, "execution"), _text(fields, "name"), _json("payload", fields.get("payload", "null"))
    ),
    "timeout": lambda fields: TimerEvent("timeout", _text(fields, "execution"), "", ""),
    **{kind: _timer_reader(kind) for kind in ("deadline", "retry", "wake")},
    "continue": lambda fields: ContinueEvent(_text(fields, "execution")),
}


def event_fields(
    event: ResultEvent | StartedEvent | LostEvent | SignalEvent | ContinueEvent,
) -> dict[str, str]:
    """An event as the fields of its stream entry; what read_event() understands."""
    fields = {"type": _TYPES[type(event)], "execution": event.workflow_execution_id}
    if isinstance(event, ContinueEvent):
        return fields
    if isinstance(event, SignalEvent):
        return {**fields, "name": event.name, "payload": dumps(event.payload)}
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
    SignalEvent: "signal",
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
        value = loads(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} is not JSON: {error}") from error
    return value


def _is_deep(value: Any) -> bool:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return True
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
    return False
