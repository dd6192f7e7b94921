"""Everything that is known of one step, of one item of a map, or of one compensation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.application.spec.model import COMPENSATION_PART
from orchestrator.cli.output.overview import (
    count_hidden,
    find_unit_spec,
    format_countdown,
    format_facts,
    format_past_time,
    format_step_duration,
    list_notes,
    select_units,
)
from orchestrator.cli.output.report import error_line, humanize
from orchestrator.cli.output.values import format_value_lines, redact_value

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import StepRecord
    from orchestrator.application.spec.model import StepSpec

MAX_ITEMS = 20


def find_unit(record: WorkflowRecord, unit: str) -> StepRecord | None:
    return record.steps.get(unit) or record.items.get(unit)


def details(record: WorkflowRecord, unit: str, now_ms: int, inputs: dict[str, Any] | None) -> list[str]:
    """`inputs` are those of the job that is out; without one the input is shown as it was written."""
    step = find_unit(record, unit)
    assert step is not None, f"{unit} is not there"
    spec = find_unit_spec(record, unit)
    lines = [f"step {unit} of {record.execution_id}: {humanize(step.status.value)}"]
    lines += format_facts(_facts(record, unit, spec, step, now_ms))
    if inputs is not None:
        lines += _section("input", redact_value(record, inputs))
    elif spec.input:
        lines += _section("input, as written", redact_value(record, spec.input))
    if step.value is not None and step.items is None:
        lines += _section("item" if "#" in unit else "value", redact_value(record, step.value))
    if step.output is not None:
        lines += _section("output", redact_value(record, step.output))
    if step.error is not None:
        lines += _error(redact_value(record, step.error))
    if step.items is not None:
        lines += _items(record, unit, now_ms)
    return lines


def _facts(
    record: WorkflowRecord, unit: str, spec: StepSpec, step: StepRecord, now_ms: int
) -> dict[str, str | None]:
    is_step = "#" not in unit
    attempts = max(spec.max_attempts, 1 + spec.retry.max_retries if spec.retry else 1)
    timed = step.status == "in_progress" and step.deadline_ms is not None
    said = list_notes(record, unit, replace(step, error=None), now_ms)  # the error has a section of its own
    return {
        "kind": None if spec.kind == "task" else spec.kind,
        "executor": spec.fn or None,
        "queue": f"{spec.queue}, priority {spec.priority}" if spec.kind == "task" else None,
        "after": ", ".join(record.graph.parents[unit]) or None if is_step else None,
        "before": ", ".join(record.graph.children[unit]) or None if is_step else None,
        "attempt": f"{step.attempt} of {attempts}",
        "run": str(step.run_id),
        "round": str(step.round) if step.round else None,
        "dispatches": str(step.dispatches) if step.dispatches else None,
        "worker": step.worker,
        "dispatched": format_past_time(step.dispatched_at, now_ms) if step.dispatched_at else None,
        "started": format_past_time(step.started_at, now_ms) if step.started_at else None,
        "ended": format_past_time(step.ended_at, now_ms) if step.ended_at else None,
        "took": format_step_duration(step, now_ms) or None,
        "timeout": format_countdown(step.deadline_ms, now_ms)
        if timed and step.deadline_ms is not None
        else None,
        "place": f"under {step.slot.key} (limit {step.slot.limit})"
        if step.slot and step.slot.is_held
        else None,
        "undone by": spec.compensate.fn if spec.compensate is not None and is_step else None,
        "note": "; ".join(said) or None,
    }


def _section(name: str, value: Any) -> list[str]:
    return [f"{name}:", *(f"  {line}" for line in format_value_lines(value))]


def _error(error: dict[str, Any]) -> list[str]:
    """In words, then what else it says; a traceback as it was printed."""
    traceback = error.get("traceback")
    told = {"traceback", "message", "type"}
    lines = [f"error: {error_line(error)}"]
    lines += format_facts({name: str(value) for name, value in error.items() if name not in told})
    message = str(error.get("message", "")).strip()
    if "\n" in message:
        lines += _section("message", message)
    if traceback:
        lines += _section("traceback", str(traceback).rstrip())
    return lines


def _items(record: WorkflowRecord, step_id: str, now_ms: int) -> list[str]:
    found = [
        (unit, item)
        for unit, item in record.items.items()
        if unit.startswith(f"{step_id}#") and not unit.endswith(f"#{COMPENSATION_PART}")
    ]
    found.sort(key=lambda pair: int(pair[0].rpartition("#")[2]))
    shown: Sequence[tuple[str, StepRecord]] = select_units(found, MAX_ITEMS)
    width = max((len(unit) for unit, _ in shown), default=0)
    lines = ["items:"]
    for unit, item in shown:
        said = "; ".join(
            [format_step_duration(item, now_ms), *list_notes(record, unit, item, now_ms)]
        ).removeprefix("; ")
        lines.append(f"  {unit:<{width}}  {humanize(item.status.value):<11}  {said}".rstrip())
    left = count_hidden(found, shown)
    return [*lines, f"  {left}"] if left else lines
