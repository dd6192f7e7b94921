"""An execution on one screen: facts about it, a table of its steps, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.application.explain.formatting import (
    format_count,
    format_countdown,
    format_duration,
    format_error,
    format_facts,
    format_item_counts,
    format_past_time,
    humanize,
)
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.spec.model import WEBHOOK_STEP
from orchestrator.application.values.unit_id import UnitId
from orchestrator.cli.output.tables import Column
from orchestrator.cli.output.values import format_json_line, redact_text, redact_value

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.records.events import Parent
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import Slot, StepRecord
    from orchestrator.application.spec.model import StepSpec

MAX_STEPS = 50
"""Up to this number, all steps are shown. Beyond it, ready and complete steps are hidden."""

MAX_UNFINISHED = 500
"""The limit for the steps that are neither ready nor complete."""

COLUMNS: Sequence[Column | str] = (
    "STEP",
    Column("STATUS", is_status=True),
    Column("ATTEMPT", is_number=True),
    Column("RUN", is_number=True),
    Column("TOOK", is_number=True),
    "WORKER",
    "NOTE",
)


def format_header(record: WorkflowRecord, now_ms: int) -> list[str]:
    """Format the title and the facts about the execution as a whole."""
    has_deadline = record.deadline_ms and not record.is_final
    facts = {
        "id": record.workflow_execution_id,
        "created": format_past_time(record.created_at, now_ms),
        "ended": format_past_time(record.ended_at, now_ms) if record.ended_at else None,
        "timeout": format_countdown(record.deadline_ms or 0, now_ms) if has_deadline else None,
        "group": record.group,
        "priority": None if record.priority is None else str(record.priority),
        "labels": format_labels(record.labels),
        "schedule": record.schedule,
        "parent": _format_parent(record.parent),
        "slot": _format_slot(record.slot),
        "signals": ", ".join(str(signal["name"]) for signal in record.signals) or None,
        "paused": _format_request(record.pause_details, now_ms),
        "cancelled": _format_request(record.cancelled, now_ms),
        "compensated": {True: "all steps", False: "not all steps", None: None}[record.compensated],
    }
    return [format_title(record, now_ms), *format_facts(facts)]


def format_title(record: WorkflowRecord, now_ms: int) -> str:
    status = humanize(record.status.value)
    if record.ending is not None:
        status = f"{status}, then {humanize(record.ending['status'])}"
    until_ms = parse_iso_ms(record.ended_at) if record.ended_at else now_ms
    duration = format_duration(max(until_ms - parse_iso_ms(record.created_at), 0) / 1000)
    preposition = "in" if record.is_final else "for"
    return f"{record.spec.name or 'workflow'} {record.execution_id}: {status} {preposition} {duration}"


def step_rows(view: StatusView, now_ms: int) -> tuple[list[list[str]], str]:
    """Build a row for each selected step and compensation, in the order of the spec, and for the webhook, and
    a line about the hidden ones."""
    record = view.record
    others = (
        (unit, item)
        for unit, item in record.items.items()
        if UnitId(unit).is_compensation or UnitId(unit).is_webhook
    )
    units = [*record.steps.items(), *others]
    shown = select_units(units, MAX_STEPS)
    rows = [step_row(view, unit, step, now_ms) for unit, step in shown]
    return rows, count_hidden(view, units, shown)


def select_units(units: Sequence[tuple[str, StepRecord]], max_count: int) -> Sequence[tuple[str, StepRecord]]:
    """Select all units if they fit; otherwise those neither ready nor complete, and the first of the rest."""
    if len(units) <= max_count:
        return units
    chosen = {index for index, (_, step) in enumerate(units) if step.status not in ("ready", "complete")}
    chosen = set(sorted(chosen)[:MAX_UNFINISHED])
    for index in range(len(units)):
        if len(chosen) >= max_count:
            break
        chosen.add(index)
    return [units[index] for index in sorted(chosen)]


def count_hidden(
    view: StatusView, units: Sequence[tuple[str, StepRecord]], shown: Sequence[tuple[str, StepRecord]]
) -> str:
    """Format the number of units that are not shown, by status; empty if all are shown."""
    hidden = Counter(view.status_of(*pair) for pair in units)
    hidden.subtract(view.status_of(*pair) for pair in shown)
    parts = [f"{count} {humanize(status)}" for status, count in hidden.items() if count]
    return f"and {len(units) - len(shown)} more: {', '.join(parts)}; --json shows all" if parts else ""


def step_row(view: StatusView, unit: str, step: StepRecord, now_ms: int) -> list[str]:
    """Build the row of one unit, for COLUMNS."""
    has_run = step.dispatches > 0 or step.run_id > 0
    return [
        unit,
        humanize(view.status_of(unit, step)),
        str(step.attempt) if has_run else "",
        str(step.run_id) if has_run else "",
        format_step_duration(view, unit, step, now_ms),
        step.worker or "",
        "; ".join(list_notes(view.record, unit, step, now_ms)),
    ]


def format_result(record: WorkflowRecord) -> list[str]:
    """Format the error, the failed compensations and the outcome."""
    lines = []
    if record.error is not None:
        lines.append(f"error: {format_error(redact_value(record, record.error))}")
        for failure in record.error.get("compensation_errors", ()):
            message = format_error(redact_value(record, failure))
            lines.append(f"not compensated: {failure['step']}: {message}")
    if record.outcome is not None:
        lines.append(f"outcome: {format_json_line(redact_value(record, record.outcome))}")
    return lines


# ---- one step


def format_step_duration(view: StatusView, unit: str, step: StepRecord, now_ms: int) -> str:
    """Format how long a unit took since its start, or has taken so far if it is in progress. The time in its
    queue does not count."""
    started_at = view.started_at(unit, step)
    if started_at is None:
        return ""
    if step.ended_at:
        ended_ms = parse_iso_ms(step.ended_at)
    elif step.status == "in_progress":
        ended_ms = now_ms
    else:
        return ""
    return format_duration(max(ended_ms - parse_iso_ms(started_at), 0) / 1000)


def list_notes(record: WorkflowRecord, unit: str, step: StepRecord, now_ms: int) -> Iterable[str]:
    """List what a unit waits for and what happened to it, in a few words each."""
    spec = find_unit_spec(record, unit)
    if step.items is not None:
        yield format_item_counts(step.items)
    if step.status == "retry" and step.not_before_ms is not None:
        yield f"retry {format_countdown(step.not_before_ms, now_ms)}"
    if step.status == "deferred" and step.wake_at_ms is not None:
        yield f"resumes {format_countdown(step.wake_at_ms, now_ms)}"
    if step.status == "waiting" and spec.wait is not None:
        yield f"waits for {' or '.join(spec.wait.signals)}"
        if step.deadline_ms is not None:
            yield f"times out {format_countdown(step.deadline_ms, now_ms)}"
    if step.held is not None:
        yield f"held, was {humanize(step.held)}"
    if step.slot is not None and not step.slot.is_held:
        yield f"waits for a slot of {step.slot.key} (limit {step.slot.limit})"
    if spec.switch is not None and step.status == "complete" and isinstance(step.output, dict):
        yield f"case {step.output.get('branch')}"
    if step.iteration:
        yield f"iteration {step.iteration + 1}"
    if step.lost:
        yield f"{format_count(step.lost, 'worker')} lost"
    if step.child is not None:
        yield f"child {step.child}"
    if step.error is not None:
        yield format_error(redact_value(record, step.error))
    elif step.reason:
        yield redact_text(record, step.reason)


def find_unit_spec(record: WorkflowRecord, unit: str) -> StepSpec:
    """Find the spec of a step, of the map for an item, of the compensation for `<step>#undo`, or of the
    webhook."""
    unit_id = UnitId(unit)
    if unit_id.is_webhook:
        return WEBHOOK_STEP
    spec = record.spec.steps[record.graph.index[unit_id.step_id]]
    return spec.compensation_step if unit_id.is_compensation and spec.compensate is not None else spec


# ---- facts


def format_labels(labels: Mapping[str, str] | None) -> str | None:
    return ", ".join(f"{name}={value}" for name, value in labels.items()) if labels else None


def _format_parent(parent: Parent | None) -> str | None:
    return None if parent is None else f"step {parent.step_id} of {parent.execution}"


def _format_slot(slot: Slot | None) -> str | None:
    if slot is None:
        return None
    verb = "holds" if slot.is_held else "waits for"
    return f"{verb} one of {slot.limit} of {slot.key}"


def _format_request(details: Mapping[str, Any] | None, now_ms: int) -> str | None:
    """Format when a cancel or a pause took effect, with its requester and its reason."""
    if details is None:
        return None
    by = f", by {details['by']}" if details.get("by") else ""
    reason = f": {details['reason']}" if details.get("reason") else ""
    return f"{format_past_time(details['at'], now_ms)}{by}{reason}"
