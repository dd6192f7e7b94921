"""Events as the fields of stream entries.

The work-horse of every step imports this module, so it must not import anything heavy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, cast, get_args

from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.events import (
    IDEMPOTENCY_WINDOW_S,
    AvailableEvent,
    ConflictPolicy,
    ContinueEvent,
    Control,
    ControlEvent,
    DeclinedEvent,
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
    make_failure,
)
from orchestrator.application.values.payload_refs import MAX_INPUT_BYTES
from orchestrator.application.values.trace_context import TRACEPARENT_RULE, parse_traceparent
from orchestrator.redis_rq.json_codec import dumps, loads
from orchestrator.redis_rq.keys import parse_schedule_address, schedule_address
from orchestrator.redis_rq.lost_reasons import describe_rq_failure

MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_WEBHOOK_BYTES = 16 * 1024
MAX_DEPTH = 200
MAX_WINDOW_S = 366 * 86_400
MAX_NAME_LENGTH = 1_000
MAX_SIGNAL_BYTES = MAX_INPUT_BYTES
MAX_LABELS, MAX_LABEL_LENGTH = 16, 256
EXECUTION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
LABEL = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def read_event(fields: Mapping[str, str], is_start: bool) -> Event:
    """Parse the fields of a stream entry, or raise InvalidEvent with a reason its sender can act on."""
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
        "traceparent",
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
        workflow=_read_optional(fields, "workflow"),
        spec=fields.get("spec"),
        inputs=_read_inputs(fields),
        execution_id=_read_execution_id(fields),
        conflict_policy=_read_conflict_policy(fields),
        labels=_read_labels(fields),
        group=_read_name(fields, "group"),
        priority=_read_number_between(fields, "priority", 1, 5) if "priority" in fields else None,
        idempotency_root=_read_name(fields, "idempotency_root"),
        idempotency_window_s=_read_number_between(fields, "idempotency_window_s", 1, MAX_WINDOW_S)
        if "idempotency_window_s" in fields
        else IDEMPOTENCY_WINDOW_S,
        schedule=_read_optional(fields, "schedule"),
        webhook=_read_webhook(fields),
        traceparent=_read_traceparent(fields),
    )


def _read_conflict_policy(fields: Mapping[str, str]) -> ConflictPolicy:
    policy = fields.get("conflict_policy", "fail")
    if policy not in _POLICIES:
        raise InvalidEvent(f"unknown conflict_policy {policy[:40]!r}; known are {', '.join(_POLICIES)}")
    return cast(ConflictPolicy, policy)


def _read_labels(fields: Mapping[str, str]) -> dict[str, str]:
    labels = _parse_json("labels", fields.get("labels", "{}"))
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
    """The name under which the sender of an event waits for its reply; None without a valid one."""
    name = fields.get("reply", "")
    return name if EXECUTION_ID.fullmatch(name) else None


def _read_child(fields: Mapping[str, str]) -> StartEvent:
    """The start of a child: its spec is the one that the parent's step describes."""
    parent = _read_parent(fields)
    return StartEvent(
        inputs=_read_inputs(fields),
        execution_id=_read_execution_id(fields),
        group=_read_name(fields, "group"),
        priority=_read_number_between(fields, "priority", 1, 5) if "priority" in fields else None,
        parent=parent,
        traceparent=_read_traceparent(fields),
    )


def read_parent(fields: Mapping[str, str]) -> Parent | None:
    """The parent that waits for the start of a child, also when the rest of the event is invalid."""
    try:
        return _read_parent(fields) if fields.get("type") == "child" else None
    except InvalidEvent:
        return None


def unreadable_result(fields: Mapping[str, str], reason: str) -> ResultEvent | None:
    """The failure that replaces an invalid result; None when the result does not name its dispatch, or is
    such a failure itself."""
    if fields.get("type") != "result" or "output" not in fields:
        return None
    try:
        error = make_failure("bad_output", f"the result was rejected: {reason}")
        return ResultEvent(error=error, **_read_dispatch(fields), **_read_worker(fields))
    except InvalidEvent:
        return None


def _read_parent(fields: Mapping[str, str]) -> Parent:
    dispatch = _read_dispatch(fields, execution="execution")
    return Parent(**dispatch, root=_read_text(fields, "root"), depth=_read_number(fields, "depth"))


def _read_inputs(fields: Mapping[str, str]) -> dict[str, Any]:
    text = fields.get("inputs", "{}")
    if len(text) > MAX_INPUT_BYTES:
        raise InvalidEvent(
            f"inputs have {len(text):,} characters; at most {MAX_INPUT_BYTES:,} are accepted: start it by a"
            " client, which passes large values by reference"
        )
    inputs = _parse_json("inputs", text)
    if not isinstance(inputs, dict):
        raise InvalidEvent("inputs must be a JSON object")
    return inputs


def _read_webhook(fields: Mapping[str, str]) -> Any:
    """A URL, or a mapping as JSON; both are validated when the execution is created."""
    text = fields.get("webhook")
    if text is not None and len(text) > MAX_WEBHOOK_BYTES:
        raise InvalidEvent(
            f"webhook has {len(text):,} characters; at most {MAX_WEBHOOK_BYTES:,} are accepted"
        )
    return _parse_json("webhook", text) if text is not None and text.lstrip()[:1] == "{" else text


def _read_traceparent(fields: Mapping[str, str]) -> str | None:
    text = fields.get("traceparent")
    if text is None:
        return None
    if parse_traceparent(text) is None:
        raise InvalidEvent(f"traceparent {text[:80]!r} {TRACEPARENT_RULE}")
    return text


def _read_execution_id(fields: Mapping[str, str]) -> str | None:
    return _read_name(fields, "execution_id")


def _read_name(fields: Mapping[str, str], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not EXECUTION_ID.fullmatch(value):
        raise InvalidEvent(f"{name}: 1 to 256 letters, digits, '_', '-', '.' or ':'")
    return value


def _read_number_between(fields: Mapping[str, str], name: str, minimum: int, maximum: int) -> int:
    number = _read_number(fields, name)
    if not minimum <= number <= maximum:
        raise InvalidEvent(f"field {name!r} must be between {minimum} and {maximum}, not {number}")
    return number


def _read_result(fields: Mapping[str, str]) -> ResultEvent:
    error = _parse_json("error", fields["error"]) if "error" in fields else None
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("kind"), str)):
        raise InvalidEvent("error must be a JSON object with a kind")
    output = _parse_json("output", fields["output"]) if "output" in fields else None
    return ResultEvent(output=output, error=error, **_read_dispatch(fields), **_read_worker(fields))


def _read_dispatch(fields: Mapping[str, str], execution: str = "workflow_execution_id") -> dict[str, Any]:
    """The fields that identify the dispatch of an event."""
    return {
        execution: _read_text(fields, "execution"),
        "step_id": _read_text(fields, "step"),
        "run_id": _read_number(fields, "run_id"),
        "attempt": _read_number(fields, "attempt"),
        "token": _read_text(fields, "token"),
    }


def _read_worker(fields: Mapping[str, str]) -> dict[str, Any]:
    return {name: _read_optional(fields, name) for name in ("worker", "started_at")}


def _read_control(fields: Mapping[str, str]) -> ControlEvent:
    action = _read_text(fields, "action")
    _read_name(fields, "reply")
    if action not in _CONTROLS:
        raise InvalidEvent(f"unknown action {action[:40]!r}; known are {', '.join(_CONTROLS)}")
    return ControlEvent(
        _read_text(fields, "execution"),
        cast(Control, action),
        _read_optional(fields, "step") or "",
        _read_optional(fields, "reason"),
        _read_optional(fields, "by"),
        parent_token=_read_optional(fields, "parent"),
        inputs=_read_corrected_inputs(fields, action),
    )


def _read_corrected_inputs(fields: Mapping[str, str], action: str) -> dict[str, Any] | None:
    if "inputs" not in fields:
        return None
    if action not in ("retry", "rerun"):
        raise InvalidEvent(f"inputs can be corrected by retry and rerun, not by {action}")
    return _read_inputs(fields)


_CONTROLS = get_args(Control)
_POLICIES = get_args(ConflictPolicy)


def _read_signal(fields: Mapping[str, str]) -> SignalEvent:
    _read_name(fields, "reply")
    text = fields.get("payload", "null")
    if len(text) > MAX_SIGNAL_BYTES:
        raise InvalidEvent(
            f"payload has {len(text):,} characters; at most {MAX_SIGNAL_BYTES:,} are accepted:"
            " pass large data by reference"
        )
    payload = _parse_json("payload", text)
    return SignalEvent(_read_text(fields, "execution"), _read_text(fields, "name"), payload)


def _read_lost(fields: Mapping[str, str]) -> LostEvent:
    reason = describe_rq_failure(fields.get("rq_error", "")) or fields.get("reason", "lost")
    return LostEvent(**_read_dispatch(fields), reason=_check_length("reason", reason))


def _read_declined(fields: Mapping[str, str]) -> DeclinedEvent:
    executor, worker = _read_text(fields, "executor"), _read_optional(fields, "worker")
    return DeclinedEvent(**_read_dispatch(fields), executor=executor, worker=worker)


def _read_available(fields: Mapping[str, str]) -> AvailableEvent:
    return AvailableEvent(*(_read_text(fields, name) for name in ("execution", "step", "executor")))


def _timer_reader(kind: str) -> Callable[[Mapping[str, str]], TimerEvent]:
    return lambda fields: TimerEvent(
        kind, _read_text(fields, "execution"), _read_text(fields, "step"), _read_text(fields, "token")
    )


_READERS: Mapping[str, Callable[[Mapping[str, str]], Event]] = {
    "result": _read_result,
    "started": lambda fields: StartedEvent(**_read_dispatch(fields), **_read_worker(fields)),
    "lost": _read_lost,
    "declined": _read_declined,
    "available": _read_available,
    "signal": _read_signal,
    "timeout": lambda fields: TimerEvent("timeout", _read_text(fields, "execution"), "", ""),
    **{kind: _timer_reader(kind) for kind in ("deadline", "retry", "wake")},
    "continue": lambda fields: ContinueEvent(
        _read_text(fields, "execution"), _read_optional(fields, "step") or ""
    ),
    "child": _read_child,
    "control": _read_control,
    "schedule": lambda fields: ScheduleEvent(parse_schedule_address(_read_text(fields, "execution"))),
    "slot": lambda fields: SlotEvent(
        _read_text(fields, "execution"), _read_optional(fields, "step") or "", _read_text(fields, "token")
    ),
}


def event_fields(
    event: StartEvent
    | ResultEvent
    | StartedEvent
    | LostEvent
    | DeclinedEvent
    | AvailableEvent
    | SignalEvent
    | ControlEvent
    | SlotEvent
    | ContinueEvent
    | ScheduleEvent,
) -> dict[str, str]:
    """An event as the fields of its stream entry, which read_event() parses. A start must be that of a
    child."""
    if isinstance(event, StartEvent):
        return _child_fields(event)
    if isinstance(event, ScheduleEvent):
        return {"type": "schedule", "execution": schedule_address(event.name)}
    fields = {"type": _TYPES[type(event)], "execution": event.workflow_execution_id}
    if isinstance(event, ContinueEvent):
        return {**fields, "step": event.step_id} if event.step_id else fields
    if isinstance(event, ControlEvent):
        options = {"action": event.action, "step": event.step_id, "reason": event.reason, "by": event.by}
        options["parent"] = event.parent_token
        options["inputs"] = None if event.inputs is None else dumps(event.inputs)
        return {**fields, **{name: text for name, text in options.items() if text}}
    if isinstance(event, SlotEvent):
        return {**fields, "step": event.step_id, "token": event.token}
    if isinstance(event, SignalEvent):
        return {**fields, "name": event.name, "payload": dumps(event.payload)}
    if isinstance(event, AvailableEvent):
        return {**fields, "step": event.step_id, "executor": event.executor}
    fields.update(step=event.step_id, run_id=str(event.run_id), attempt=str(event.attempt))
    fields["token"] = cast(str, event.token)
    if isinstance(event, LostEvent):
        fields["reason"] = event.reason
        return fields
    if isinstance(event, DeclinedEvent):
        fields["executor"] = event.executor
    for name in ("worker", "started_at"):
        if getattr(event, name, None) is not None:
            fields[name] = getattr(event, name)
    if isinstance(event, ResultEvent):
        if event.error is not None:
            fields["error"] = dumps(event.error)
        else:
            fields["output"] = dumps(event.output)
    return fields


def _child_fields(event: StartEvent) -> dict[str, str]:
    assert event.parent is not None, "only the start of a child is sent as an event"
    fields = {"type": "child", "inputs": dumps(event.inputs), "execution_id": event.execution_id or ""}
    for name, value in asdict(event.parent).items():
        fields["step" if name == "step_id" else name] = str(value)
    for name in ("group", "priority", "traceparent"):
        option = getattr(event, name)
        if option is not None:
            fields[name] = str(option)
    return fields


_TYPES: Mapping[type, str] = {
    ResultEvent: "result",
    StartedEvent: "started",
    LostEvent: "lost",
    DeclinedEvent: "declined",
    AvailableEvent: "available",
    SignalEvent: "signal",
    ControlEvent: "control",
    SlotEvent: "slot",
    ContinueEvent: "continue",
}


def _read_text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise InvalidEvent(f"field {name!r} is missing")
    return _check_length(name, value)


def _read_optional(fields: Mapping[str, str], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else _check_length(name, value)


def _check_length(name: str, value: str) -> str:
    """Limit the length of names: they become parts of keys and members, and are stored with every step."""
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidEvent(
            f"field {name!r} has {len(value):,} characters; at most {MAX_NAME_LENGTH:,} are accepted"
        )
    return value


def _read_number(fields: Mapping[str, str], name: str) -> int:
    value = _read_text(fields, name)
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise InvalidEvent(f"field {name!r} must be a whole number, not {value[:40]!r}")
    return int(value)


def _parse_json(name: str, text: str) -> Any:
    try:
        value = loads(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(value):
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} is not JSON: {error}") from error
    return value


def _is_too_deep(value: Any) -> bool:
    level, depth = [value] if isinstance(value, dict | list) else [], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return True
        below: list[Any] = []
        for one in level:
            below += one.values() if type(one) is dict else one
        level = [one for one in below if type(one) is dict or type(one) is list]
    return False
