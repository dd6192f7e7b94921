"""Events as the fields of stream entries, and JSON as we write it.

The work-horse of every step imports this: nothing heavy may be needed here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast, get_args

import orjson

from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.events import (
    IDEMPOTENCY_WINDOW_S,
    ConflictPolicy,
    ContinueEvent,
    Control,
    ControlEvent,
    Event,
    LostEvent,
    Parent,
    ResultEvent,
    ScheduleEvent,
    SignalEvent,
    SlotEvent,
    StartedEvent,
    StartEvent,
    TimerEvent,
    failure,
)
from orchestrator.application.values.payload_refs import MAX_INPUT_BYTES
from orchestrator.redis_rq.keys import parse_schedule_address, schedule_address

MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_WEBHOOK_BYTES = 16 * 1024
MAX_DEPTH = 200
MAX_WINDOW_S = 366 * 86_400
MAX_NAME_LENGTH = 1_000
MAX_SIGNAL_BYTES = MAX_INPUT_BYTES
MAX_LABELS, MAX_LABEL_LENGTH = 16, 256
EXECUTION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
LABEL = re.compile(r"[A-Za-z0-9_.-]{1,64}")

LONG_NUMBER = re.compile(r"\d{18}")
"""What may be a whole number of more than 64 bits, which orjson reads as a float."""

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def dumps(value: Any) -> str:
    """By orjson, which takes a tenth of the time. What it would not write as the standard library does is
    left to that: a null may be a number that is none, and some values are no JSON at all."""
    try:
        text = orjson.dumps(value, option=_STRICT)
    except orjson.JSONEncodeError:
        return canonical_json(value)
    return canonical_json(value) if b"null" in text else text.decode()


def dumps_envelope(value: Any) -> str:
    """What we have made ourselves, where a null is a null; values of others go into it as `part`."""
    return orjson.dumps(value, option=_STRICT).decode()


def json_fragment(value: Any) -> orjson.Fragment:
    return orjson.Fragment(dumps(value))


def canonical_json(value: Any) -> str:
    """Always the same text for the same value: for what is compared as a text."""
    return _encoder.encode(value)


def loads(text: str) -> Any:
    """What JSON can write too: ValueError for an endless number, or half a surrogate pair."""
    if LONG_NUMBER.search(text) is None:
        with suppress(orjson.JSONDecodeError):  # the standard library says better what is wrong
            return orjson.loads(text)
    value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    if "\\u" in text:
        canonical_json(value).encode()
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
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
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


START_FIELDS = frozenset(
    {
        "workflow",
        "spec",
        "inputs",
        "execution_id",
        "conflict_policy",
        "labels",
        "group",
        "priority",
        "idempotency_root",
        "idempotency_window_s",
        "schedule",
        "webhook",
    }
)


def _read_start(fields: Mapping[str, str]) -> StartEvent:
    unknown = sorted(set(fields) - START_FIELDS)
    if unknown:
        raise InvalidEvent(f"unknown field {unknown[0]!r}; a start has {', '.join(sorted(START_FIELDS))}")
    if ("workflow" in fields) == ("spec" in fields):
        raise InvalidEvent(
            "a start names a registered 'workflow' or carries a 'spec': exactly one of the two"
        )
    return StartEvent(
        workflow=_optional(fields, "workflow"),
        spec=fields.get("spec"),
        inputs=_inputs(fields),
        execution_id=_execution_id(fields),
        conflict_policy=_conflict_policy(fields),
        labels=_labels(fields),
        group=_name(fields, "group"),
        priority=_within(fields, "priority", 1, 5) if "priority" in fields else None,
        idempotency_root=_name(fields, "idempotency_root"),
        idempotency_window_s=_within(fields, "idempotency_window_s", 1, MAX_WINDOW_S)
        if "idempotency_window_s" in fields
        else IDEMPOTENCY_WINDOW_S,
        schedule=_optional(fields, "schedule"),
        webhook=_webhook(fields),
    )


def _conflict_policy(fields: Mapping[str, str]) -> ConflictPolicy:
    policy = fields.get("conflict_policy", "fail")
    if policy not in _POLICIES:
        raise InvalidEvent(f"unknown conflict_policy {policy[:40]!r}; known are {', '.join(_POLICIES)}")
    return cast(ConflictPolicy, policy)


def _labels(fields: Mapping[str, str]) -> dict[str, str]:
    labels = _json("labels", fields.get("labels", "{}"))
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidEvent('labels must be a JSON object of texts, such as {"customer": "acme"}')
    if len(labels) > MAX_LABELS:
        raise InvalidEvent(f"there are {len(labels)} labels; at most {MAX_LABELS} are accepted")
    for name, value in labels.items():
        if not LABEL.fullmatch(name):
            raise InvalidEvent(f"label {name[:80]!r}: 1 to 64 letters, digits, '_', '-' or '.'")
        if not 0 < len(value) <= MAX_LABEL_LENGTH or not value.isprintable():
            raise InvalidEvent(
                f"label {name!r}: its value must have 1 to {MAX_LABEL_LENGTH} printable characters"
            )
    return labels


def reply_of(fields: Mapping[str, str]) -> str | None:
    """The name under which whoever sent an event waits for its answer; None when there is none to use."""
    name = fields.get("reply", "")
    return name if EXECUTION_ID.fullmatch(name) else None


def _read_child(fields: Mapping[str, str]) -> StartEvent:
    """A start that a parent asks for: its spec is the one that the parent's step describes."""
    parent = _parent(fields)
    return StartEvent(
        inputs=_inputs(fields),
        execution_id=_execution_id(fields),
        group=_name(fields, "group"),
        priority=_within(fields, "priority", 1, 5) if "priority" in fields else None,
        parent=parent,
    )


def read_parent(fields: Mapping[str, str]) -> Parent | None:
    """Who waits for the start of a child, also when the rest of the event cannot be understood."""
    try:
        return _parent(fields) if fields.get("type") == "child" else None
    except InvalidEvent:
        return None


def unreadable_result(fields: Mapping[str, str], reason: str) -> ResultEvent | None:
    """The failure that a result is which cannot be understood; None when it does not even say of which
    dispatch, or is such a failure itself."""
    if fields.get("type") != "result" or "output" not in fields:
        return None
    try:
        error = failure("bad_output", f"the result was refused: {reason}")
        return ResultEvent(error=error, **_dispatch(fields), **_worker(fields))
    except InvalidEvent:
        return None


def _parent(fields: Mapping[str, str]) -> Parent:
    of_dispatch = _dispatch(fields, execution="execution")
    return Parent(**of_dispatch, root=_text(fields, "root"), depth=_number(fields, "depth"))


def _inputs(fields: Mapping[str, str]) -> dict[str, Any]:
    text = fields.get("inputs", "{}")
    if len(text) > MAX_INPUT_BYTES:
        raise InvalidEvent(
            f"inputs have {len(text):,} characters; at most {MAX_INPUT_BYTES:,} are accepted: start it by a"
            " client, which passes large values by reference"
        )
    inputs = _json("inputs", text)
    if not isinstance(inputs, dict):
        raise InvalidEvent("inputs must be a JSON object")
    return inputs


def _webhook(fields: Mapping[str, str]) -> Any:
    """A URL, or a mapping as JSON; what is wrong with either is found by who begins the execution."""
    text = fields.get("webhook")
    if text is not None and len(text) > MAX_WEBHOOK_BYTES:
        raise InvalidEvent(
            f"webhook has {len(text):,} characters; at most {MAX_WEBHOOK_BYTES:,} are accepted"
        )
    return _json("webhook", text) if text is not None and text.lstrip()[:1] == "{" else text


def _execution_id(fields: Mapping[str, str]) -> str | None:
    return _name(fields, "execution_id")


def _name(fields: Mapping[str, str], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not EXECUTION_ID.fullmatch(value):
        raise InvalidEvent(f"{name}: 1 to 256 letters, digits, '_', '-', '.' or ':'")
    return value


def _within(fields: Mapping[str, str], name: str, least: int, most: int) -> int:
    number = _number(fields, name)
    if not least <= number <= most:
        raise InvalidEvent(f"field {name!r} must be between {least} and {most}, not {number}")
    return number


def _read_result(fields: Mapping[str, str]) -> ResultEvent:
    error = _json("error", fields["error"]) if "error" in fields else None
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("kind"), str)):
        raise InvalidEvent("error must be a JSON object with a kind")
    output = _json("output", fields["output"]) if "output" in fields else None
    return ResultEvent(output=output, error=error, **_dispatch(fields), **_worker(fields))


def _dispatch(fields: Mapping[str, str], execution: str = "workflow_execution_id") -> dict[str, Any]:
    """Which dispatch an event is about."""
    return {
        execution: _text(fields, "execution"),
        "step_id": _text(fields, "step"),
        "run_id": _number(fields, "run_id"),
        "attempt": _number(fields, "attempt"),
        "token": _text(fields, "token"),
    }


def _worker(fields: Mapping[str, str]) -> dict[str, Any]:
    return {name: _optional(fields, name) for name in ("worker", "started_at")}


def _read_control(fields: Mapping[str, str]) -> ControlEvent:
    action = _text(fields, "action")
    _name(fields, "reply")
    if action not in _CONTROLS:
        raise InvalidEvent(f"unknown action {action[:40]!r}; known are {', '.join(_CONTROLS)}")
    return ControlEvent(
        _text(fields, "execution"),
        cast(Control, action),
        _optional(fields, "step") or "",
        _optional(fields, "reason"),
        _optional(fields, "by"),
        parent_token=_optional(fields, "parent"),
        inputs=_corrected_inputs(fields, action),
    )


def _corrected_inputs(fields: Mapping[str, str], action: str) -> dict[str, Any] | None:
    if "inputs" not in fields:
        return None
    if action not in ("retry", "rerun"):
        raise InvalidEvent(f"inputs can be corrected by retry and rerun, not by {action}")
    return _inputs(fields)


_CONTROLS = get_args(Control)
_POLICIES = get_args(ConflictPolicy)


def _read_signal(fields: Mapping[str, str]) -> SignalEvent:
    _name(fields, "reply")
    text = fields.get("payload", "null")
    if len(text) > MAX_SIGNAL_BYTES:
        raise InvalidEvent(
            f"payload has {len(text):,} characters; at most {MAX_SIGNAL_BYTES:,} are accepted:"
            " pass large data by reference"
        )
    payload = _json("payload", text)
    return SignalEvent(_text(fields, "execution"), _text(fields, "name"), payload)


def _read_lost(fields: Mapping[str, str]) -> LostEvent:
    return LostEvent(**_dispatch(fields), reason=_short("reason", fields.get("reason", "lost")))


def _timer_reader(kind: str) -> Callable[[Mapping[str, str]], TimerEvent]:
    return lambda fields: TimerEvent(
        kind, _text(fields, "execution"), _text(fields, "step"), _text(fields, "token")
    )


_READERS: Mapping[str, Callable[[Mapping[str, str]], Event]] = {
    "result": _read_result,
    "started": lambda fields: StartedEvent(**_dispatch(fields), **_worker(fields)),
    "lost": _read_lost,
    "signal": _read_signal,
    "timeout": lambda fields: TimerEvent("timeout", _text(fields, "execution"), "", ""),
    **{kind: _timer_reader(kind) for kind in ("deadline", "retry", "wake")},
    "continue": lambda fields: ContinueEvent(_text(fields, "execution")),
    "child": _read_child,
    "control": _read_control,
    "schedule": lambda fields: ScheduleEvent(parse_schedule_address(_text(fields, "execution"))),
    "slot": lambda fields: SlotEvent(
        _text(fields, "execution"), _optional(fields, "step") or "", _text(fields, "token")
    ),
}


def event_fields(
    event: StartEvent
    | ResultEvent
    | StartedEvent
    | LostEvent
    | SignalEvent
    | ControlEvent
    | SlotEvent
    | ContinueEvent
    | ScheduleEvent,
) -> dict[str, str]:
    """An event as the fields of its stream entry; what read_event() understands. A start is a child's."""
    if isinstance(event, StartEvent):
        return _child_fields(event)
    if isinstance(event, ScheduleEvent):
        return {"type": "schedule", "execution": schedule_address(event.name)}
    fields = {"type": _TYPES[type(event)], "execution": event.workflow_execution_id}
    if isinstance(event, ContinueEvent):
        return fields
    if isinstance(event, ControlEvent):
        given = {"action": event.action, "step": event.step_id, "reason": event.reason, "by": event.by}
        given["parent"] = event.parent_token
        given["inputs"] = None if event.inputs is None else dumps(event.inputs)
        return {**fields, **{name: text for name, text in given.items() if text}}
    if isinstance(event, SlotEvent):
        return {**fields, "step": event.step_id, "token": event.token}
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


def _child_fields(event: StartEvent) -> dict[str, str]:
    assert event.parent is not None, "only a parent posts a start"
    fields = {"type": "child", "inputs": dumps(event.inputs), "execution_id": event.execution_id or ""}
    for name, value in asdict(event.parent).items():
        fields["step" if name == "step_id" else name] = str(value)
    for name, given in (("group", event.group), ("priority", event.priority)):
        if given is not None:
            fields[name] = str(given)
    return fields


_TYPES: Mapping[type, str] = {
    ResultEvent: "result",
    StartedEvent: "started",
    LostEvent: "lost",
    SignalEvent: "signal",
    ControlEvent: "control",
    SlotEvent: "slot",
    ContinueEvent: "continue",
}


def _text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise InvalidEvent(f"field {name!r} is missing")
    return _short(name, value)


def _optional(fields: Mapping[str, str], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else _short(name, value)


def _short(name: str, value: str) -> str:
    """Names become parts of keys and members, and are written down with every step that they concern."""
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidEvent(
            f"field {name!r} has {len(value):,} characters; at most {MAX_NAME_LENGTH:,} are accepted"
        )
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
