"""The tool that reads one step: its inputs, output, error, attempts and log lines, or a part of a value."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from orchestrator.application.explain.execution_json import step_as_dict
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.replay import list_attempts
from orchestrator.application.records.step_log import LogLine
from orchestrator.application.values.payload_refs import is_payload_reference
from orchestrator.diagnosis.why import UnknownStep
from orchestrator.mcp.arguments import Arguments, ExecutionId, JsonObject, Name
from orchestrator.mcp.errors import ToolError
from orchestrator.mcp.folding import MAX_CHARS
from orchestrator.mcp.system import System
from orchestrator.mcp.tool import Tool

MAX_LINES = 50
PART_CHARS = MAX_CHARS // 2
PART_ENTRIES = 200


class StepArguments(Arguments):
    execution_id: ExecutionId
    step: Name = Field(description="A step, an item of a map (STEP#0) or a compensation (STEP#undo).")
    path: str | None = Field(
        None, description="Return only this value of the step, such as output.rows.5", max_length=1_000
    )
    offset: Annotated[int, Field(ge=0)] = Field(
        0, description="With `path`: begin at this character of a text, or this entry of a list."
    )


def get_step(system: System, args: StepArguments) -> JsonObject:
    """Get everything about one step: status, inputs, output, error, attempts and its last log lines. With
    `path` and `offset` it returns a part of a large value, piece by piece."""
    view = system.client.status_view(args.execution_id)
    record, unit = view.record, args.step
    if unit not in record.steps and unit not in record.items:
        raise UnknownStep(record, unit)
    step = record.steps[unit] if unit in record.steps else record.items[unit]
    redact = make_record_view(record)
    found: JsonObject = {
        "execution_id": record.execution_id,
        "step": unit,
        **step_as_dict(view, unit, step, redact),
        **_read_attempts(system, record, unit, step.token, redact),
    }
    if args.path is not None:
        return _read_part(system, found, args.path, args.offset, redact)
    lines = system.client.step_log(record.workflow_execution_id, unit)
    return {
        **{name: value for name, value in found.items() if value is not None},
        "log_lines": [_show_line(one, redact) for one in lines[-MAX_LINES:]],
        **({"earlier_log_lines": len(lines) - MAX_LINES} if len(lines) > MAX_LINES else {}),
    }


def _read_attempts(
    system: System, record: WorkflowRecord, unit: str, token: str | None, redact: RecordView
) -> JsonObject:
    """The inputs of the last dispatch, and all attempts if the history has values."""
    attempts = None
    if record.delta is not None:
        attempts = list_attempts(system.client.store.history(record.workflow_execution_id), unit)
    inputs = None if token is None else system.queries.inputs_of(token)
    if inputs is None and attempts:
        inputs = attempts[-1].inputs
    shown = None if attempts is None else [redact(one.as_dict()) for one in attempts]
    return {"inputs": redact(inputs), "attempts": shown}


def _read_part(system: System, step: JsonObject, path: str, offset: int, redact: RecordView) -> JsonObject:
    """A part of the value at a path. A value that is stored by reference is loaded."""
    value: Any = step
    for part in path.split("."):
        value = _find_in(_load(system, value, redact), part, path)
    value = _load(system, value, redact)
    head = {"execution_id": step["execution_id"], "step": step["step"], "path": path}
    if not isinstance(value, str | list):
        return {**head, "value": value}
    end = offset + (PART_CHARS if isinstance(value, str) else PART_ENTRIES)
    next_offset = {"next_offset": end} if end < len(value) else {}
    return {**head, "value": value[offset:end], "length": len(value), **next_offset}


def _load(system: System, value: Any, redact: RecordView) -> Any:
    if not is_payload_reference(value):
        return value
    return redact(system.client.payload(value["$payload"]))


def _find_in(value: Any, part: str, path: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part.isdecimal() and len(part) < 10 and int(part) < len(value):
        return value[int(part)]
    known = (
        f"it has {', '.join(list(value)[:20])}" if isinstance(value, dict) else "there is nothing below it"
    )
    raise ToolError("invalid_request", f"path: there is no {part[:80]!r} in {path[:200]!r}: {known[:500]}")


def _show_line(one: LogLine, redact: RecordView) -> JsonObject:
    return {"at": one.at, "step": one.step, "attempt": one.attempt, "line": redact.text(one.text)}


TOOLS = [Tool(get_step)]
