"""An execution on one screen: what it is, a line for each step, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.spec.model import COMPENSATION_PART
from orchestrator.cli.output.report import error_line, format_duration, humanize
from orchestrator.cli.output.tables import Column
from orchestrator.cli.output.values import format_json_line, redact_text, redact_value

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import ItemCounts, StepRecord
    from orchestrator.application.spec.model import StepSpec

MAX_STEPS = 50
"""So many steps are always shown; beyond, only those of which there is something to say."""

MAX_UNFINISHED = 500

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
    """The title, and what else is known of the execution as a whole, a line each."""
    facts = {
        "id": record.workflow_execution_id,
        "created": format_past_time(record.created_at, now_ms),
        "ended": format_past_time(record.ended_at, now_ms) if record.ended_at else None,
        "timeout": format_countdown(record.deadline_ms, now_ms)
        if record.deadline_ms and not record.is_final
        else None,
        "group": record.group,
        "priority": None if record.priority is None else str(record.priority),
        "labels": format_labels(record.labels),
        "schedule": record.schedule,
        "parent": _parent(record.parent),
        "place": _place(record.slot),
        "signals": ", ".join(str(signal["name"]) for signal in record.signals) or None,
        "cancelled": _cancelled(record.cancelled, now_ms),
        "undone": {True: "all of it", False: "not all of it", None: None}[record.compensated],
    }
    return [format_title(record, now_ms), *format_facts(facts)]


def format_title(record: WorkflowRecord, now_ms: int) -> str:
    status = humanize(record.status.value)
    if record.ending is not None:
        status = f"{status}, then {humanize(record.ending['status'])}"
    taken = format_duration(
        max(
            (parse_iso_ms(record.ended_at) if record.ended_at else now_ms) - parse_iso_ms(record.created_at),
            0,
        )
        / 1000
    )
    joined = "in" if record.is_final else "for"
    return f"{record.spec.name or 'workflow'} {record.execution_id}: {status} {joined} {taken}"


def step_rows(record: WorkflowRecord, now_ms: int) -> tuple[list[list[str]], str]:
    """A row for each step and compensation that is worth one, in the order of the spec; and how many others
    there are, in words."""
    units = [*record.steps.items(), *((unit, item) for unit, item in record.items.items() if _is_undo(unit))]
    shown = select_units(units, MAX_STEPS)
    rows = [step_row(record, unit, step, now_ms) for unit, step in shown]
    return rows, count_hidden(units, shown)


def select_units(units: Sequence[tuple[str, StepRecord]], room: int) -> Sequence[tuple[str, StepRecord]]:
    """All units if there is room; else those neither ready nor complete, and as many others as fit."""
    if len(units) <= room:
        return units
    told = [at for at, (_, step) in enumerate(units) if step.status not in ("ready", "complete")][
        :MAX_UNFINISHED
    ]
    chosen = set(told)
    for at in range(len(units)):
        if len(chosen) >= room:
            break
        chosen.add(at)
    return [units[at] for at in sorted(chosen)]


def count_hidden(units: Sequence[tuple[str, StepRecord]], shown: Sequence[tuple[str, StepRecord]]) -> str:
    left = Counter(step.status.value for _, step in units)
    left.subtract(step.status.value for _, step in shown)
    parts = [f"{count} {humanize(status)}" for status, count in left.items() if count]
    return f"and {len(units) - len(shown)} more: {', '.join(parts)}; --json shows all" if parts else ""


def step_row(record: WorkflowRecord, unit: str, step: StepRecord, now_ms: int) -> list[str]:
    has_run = step.dispatches > 0 or step.run_id > 0
    return [
        unit,
        humanize(step.status.value),
        str(step.attempt) if has_run else "",
        str(step.run_id) if has_run else "",
        format_step_duration(step, now_ms),
        step.worker or "",
        "; ".join(list_notes(record, unit, step, now_ms)),
    ]


def format_result(record: WorkflowRecord) -> list[str]:
    """What came of it."""
    lines = []
    if record.error is not None:
        lines.append(f"error: {error_line(redact_value(record, record.error))}")
        for one in record.error.get("compensation_errors", ()):
            lines.append(f"not undone: {one['step']}: {error_line(redact_value(record, one))}")
    if record.outcome is not None:
        lines.append(f"outcome: {format_json_line(redact_value(record, record.outcome))}")
    return lines


# ---- what there is to say of one step


def format_step_duration(step: StepRecord, now_ms: int) -> str:
    """How long it took, or has taken so far if a job of it is out."""
    if step.start_time is None:
        return ""
    ended_ms = (
        parse_iso_ms(step.ended_at) if step.ended_at else now_ms if step.status == "in_progress" else None
    )
    return (
        "" if ended_ms is None else format_duration(max(ended_ms - parse_iso_ms(step.start_time), 0) / 1000)
    )


def list_notes(record: WorkflowRecord, unit: str, step: StepRecord, now_ms: int) -> Iterable[str]:
    spec = find_unit_spec(record, unit)
    if step.items is not None:
        yield items(step.items)
    if step.status == "retry" and step.not_before_ms is not None:
        yield f"retry {format_countdown(step.not_before_ms, now_ms)}"
    if step.status == "deferred" and step.wake_at_ms is not None:
        yield f"goes on {format_countdown(step.wake_at_ms, now_ms)}"
    if step.status == "waiting" and spec.wait is not None:
        yield f"waits for {' or '.join(spec.wait.signals)}"
        if step.deadline_ms is not None:
            yield f"its time is over {format_countdown(step.deadline_ms, now_ms)}"
    if step.held is not None:
        yield f"held while {humanize(step.held)}"
    if step.slot is not None and not step.slot.is_held:
        yield f"waits for a place under {step.slot.key} (limit {step.slot.limit})"
    if spec.switch is not None and step.status == "complete" and isinstance(step.output, dict):
        yield f"case {step.output.get('branch')}"
    if step.iteration:
        yield f"iteration {step.iteration + 1}"
    if step.lost:
        yield f"{step.lost} worker{'' if step.lost == 1 else 's'} lost"
    if step.child is not None:
        yield f"child {step.child}"
    if step.error is not None:
        yield error_line(redact_value(record, step.error))
    elif step.reason:
        yield redact_text(record, step.reason)


def items(counts: ItemCounts) -> str:
    parts = [f"{counts.settled}/{counts.count} items"]
    if counts.errors:
        parts.append(f"{counts.errors} failed")
    if counts.out:
        parts.append(f"{counts.out} out")
    return ", ".join(parts)


def find_unit_spec(record: WorkflowRecord, unit: str) -> StepSpec:
    """The spec of a step, of the map for an item, of the compensation for `<step>#undo`."""
    step_id = unit.partition("#")[0]
    spec = record.spec.steps[record.graph.index[step_id]]
    return spec.compensation_step if _is_undo(unit) and spec.compensate is not None else spec


# ---- words for times and facts


def format_past_time(iso: str, now_ms: int) -> str:
    """A time, and how long ago it was: 2026-01-01 00:00:00 UTC, 12 s ago."""
    return f"{iso[:10]} {iso[11:19]} UTC, {format_duration(max(now_ms - parse_iso_ms(iso), 0) / 1000)} ago"


def format_countdown(at_ms: int, now_ms: int) -> str:
    return f"in {format_duration((at_ms - now_ms) / 1000)}" if at_ms > now_ms else "now"


def format_facts(facts: Mapping[str, str | None]) -> list[str]:
    """Facts under each other; those that are not known are left out."""
    known = {name: text for name, text in facts.items() if text is not None}
    width = max(map(len, known), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in known.items()]


def _is_undo(unit: str) -> bool:
    return unit.endswith(f"#{COMPENSATION_PART}")


def format_labels(labels: Mapping[str, str] | None) -> str | None:
    return ", ".join(f"{name}={value}" for name, value in labels.items()) if labels else None


def _parent(parent: Mapping[str, Any] | None) -> str | None:
    return None if parent is None else f"step {parent['step_id']} of {parent['execution']}"


def _place(slot: Mapping[str, Any] | None) -> str | None:
    if slot is None:
        return None
    has = "has one of" if slot["is_held"] else "waits for one of"
    return f"{has} {slot['limit']} under {slot['key']}"


def _cancelled(cancelled: Mapping[str, Any] | None, now_ms: int) -> str | None:
    if cancelled is None:
        return None
    by = f", by {cancelled['by']}" if cancelled.get("by") else ""
    why = f": {cancelled['reason']}" if cancelled.get("reason") else ""
    return f"{format_past_time(cancelled['at'], now_ms)}{by}{why}"
