"""Everything about one step, one item of a map, or one compensation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.application.explain.formatting import (
    format_countdown,
    format_error,
    format_facts,
    format_past_time,
    humanize,
)
from orchestrator.application.records.replay import HOW_TO_KEEP
from orchestrator.application.values.unit_id import UnitId, step_of
from orchestrator.cli.output.overview import (
    count_hidden,
    find_unit_spec,
    format_step_duration,
    list_notes,
    select_units,
)
from orchestrator.cli.output.values import format_value_lines, redact_value

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import StepRecord
    from orchestrator.application.spec.model import StepSpec

MAX_ITEMS = 20


def find_unit(record: WorkflowRecord, unit: str) -> StepRecord | None:
    return record.steps.get(unit) or record.items.get(unit)


def format_details(
    view: StatusView,
    unit: str,
    now_ms: int,
    inputs: dict[str, Any] | None,
    attempts: Sequence[dict[str, Any]] | None = None,
) -> list[str]:
    """Format all that is known about a unit. `inputs` are those of its queued or running job, `attempts`
    those in the history. Without both, the input is shown as it is written in the spec."""
    record = view.record
    step = find_unit(record, unit)
    assert step is not None, f"{unit} is not in the record"
    spec = find_unit_spec(record, unit)
    lines = [f"step {unit} of {record.execution_id}: {humanize(view.status_of(unit, step))}"]
    lines += format_facts(_list_facts(view, unit, spec, step, now_ms))
    if inputs is None and attempts:
        inputs = attempts[-1]["inputs"]
    if inputs is not None:
        lines += _format_section("input", redact_value(record, inputs))
    elif spec.input:
        lines += _format_section("input, as written", redact_value(record, spec.input))
    if step.value is not None and step.items is None:
        title = "value" if UnitId(unit).is_step else "item"
        lines += _format_section(title, redact_value(record, step.value))
    if step.output is not None:
        lines += _format_section("output", redact_value(record, step.output))
    if step.error is not None:
        lines += _format_error_section(redact_value(record, step.error))
    if step.items is not None:
        lines += _format_items(view, unit, now_ms)
    if attempts is None and inputs is None and step.dispatches:
        lines.append(f"the history has no inputs and outputs of attempts; {HOW_TO_KEEP}")
    return [*lines, *_format_attempts(attempts or (), now_ms)]


def _format_attempts(attempts: Sequence[dict[str, Any]], now_ms: int) -> list[str]:
    """Format the attempts before the last one, which the other sections show."""
    lines = []
    for one in attempts[:-1]:
        dispatched = format_past_time(one["dispatched_at"], now_ms)
        lines.append(f"attempt {one['attempt']}, run {one['run_id']}, dispatched {dispatched}:")
        values = {"input": one["inputs"], "output": one["output"], "error": one["error"]}
        for name, value in values.items():
            if value is not None:
                lines += (f"  {line}" for line in _format_section(name, value))
    return lines


def _list_facts(
    view: StatusView, unit: str, spec: StepSpec, step: StepRecord, now_ms: int
) -> dict[str, str | None]:
    record = view.record
    is_step = UnitId(unit).is_step
    max_attempts = max(spec.max_attempts, 1 + spec.retry.max_retries if spec.retry else 1)
    deadline_ms = step.deadline_ms if step.status == "in_progress" else None
    notes = list_notes(record, unit, replace(step, error=None), now_ms)  # the error has its own section
    slot = step.slot if step.slot and step.slot.is_held else None
    return {
        "kind": None if spec.kind == "task" else spec.kind,
        "executor": spec.fn or None,
        "queue": f"{spec.queue}, priority {spec.priority}" if spec.kind == "task" else None,
        "after": ", ".join(record.graph.parents[unit]) or None if is_step else None,
        "before": ", ".join(record.graph.children[unit]) or None if is_step else None,
        "attempt": f"{step.attempt} of {max_attempts}",
        "run": str(step.run_id),
        "round": str(step.round) if step.round else None,
        "dispatches": str(step.dispatches) if step.dispatches else None,
        "worker": step.worker,
        "dispatched": format_past_time(step.dispatched_at, now_ms) if step.dispatched_at else None,
        "started": format_past_time(step.started_at, now_ms) if step.started_at else None,
        "ended": format_past_time(step.ended_at, now_ms) if step.ended_at else None,
        "took": format_step_duration(view, unit, step, now_ms) or None,
        "timeout": None if deadline_ms is None else format_countdown(deadline_ms, now_ms),
        "slot": None if slot is None else f"holds one of {slot.limit} of {slot.key}",
        "compensation": spec.compensate.fn if spec.compensate is not None and is_step else None,
        "note": "; ".join(notes) or None,
    }


def _format_section(name: str, value: Any) -> list[str]:
    return [f"{name}:", *(f"  {line}" for line in format_value_lines(value))]


def _format_error_section(error: dict[str, Any]) -> list[str]:
    """Format an error: one line, its other fields, then the message and the traceback in full."""
    traceback = error.get("traceback")
    lines = [f"error: {format_error(error)}"]
    others = {
        name: str(value) for name, value in error.items() if name not in ("traceback", "message", "type")
    }
    lines += format_facts(others)
    message = str(error.get("message", "")).strip()
    if "\n" in message:
        lines += _format_section("message", message)
    if traceback:
        lines += _format_section("traceback", str(traceback).rstrip())
    return lines


def _format_items(view: StatusView, step_id: str, now_ms: int) -> list[str]:
    record = view.record
    items = [
        (unit, item)
        for unit, item in record.items.items()
        if step_of(unit) == step_id and UnitId(unit).is_item
    ]
    items.sort(key=lambda pair: UnitId(pair[0]).item_index or 0)
    shown: Sequence[tuple[str, StepRecord]] = select_units(items, MAX_ITEMS)
    width = max((len(unit) for unit, _ in shown), default=0)
    lines = ["items:"]
    for unit, item in shown:
        notes = [format_step_duration(view, unit, item, now_ms), *list_notes(record, unit, item, now_ms)]
        text = "; ".join(note for note in notes if note)
        lines.append(f"  {unit:<{width}}  {humanize(view.status_of(unit, item)):<11}  {text}".rstrip())
    hidden = count_hidden(view, items, shown)
    return [*lines, f"  {hidden}"] if hidden else lines
