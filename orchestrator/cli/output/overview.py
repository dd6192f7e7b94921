"""An execution on one screen: what it is, a line for each step, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.application.records.events import milliseconds
from orchestrator.application.spec.model import UNDO
from orchestrator.cli.output.report import error_line, seconds, words
from orchestrator.cli.output.tables import Column
from orchestrator.cli.output.values import on_one_line, visible, visible_text

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import ItemCounts, StepRecord
    from orchestrator.application.spec.model import StepSpec

MOST_STEPS = 50
"""So many steps are always shown; beyond, only those of which there is something to say."""

MOST_TOLD = 500

COLUMNS: Sequence[Column | str] = (
    "STEP",
    Column("STATUS", is_status=True),
    Column("ATTEMPT", is_number=True),
    Column("RUN", is_number=True),
    Column("TOOK", is_number=True),
    "WORKER",
    "NOTE",
)


def header(record: WorkflowRecord, now_ms: int) -> list[str]:
    """The title, and what else is known of the execution as a whole, a line each."""
    facts = {
        "id": record.workflow_execution_id,
        "created": when(record.created_at, now_ms),
        "ended": when(record.ended_at, now_ms) if record.ended_at else None,
        "timeout": until(record.deadline_ms, now_ms) if record.deadline_ms and not record.is_final else None,
        "group": record.group,
        "priority": None if record.priority is None else str(record.priority),
        "labels": labelled(record.labels),
        "schedule": record.schedule,
        "parent": _parent(record.parent),
        "place": _place(record.slot),
        "signals": ", ".join(str(signal["name"]) for signal in record.signals) or None,
        "cancelled": _cancelled(record.cancelled, now_ms),
        "undone": {True: "all of it", False: "not all of it", None: None}[record.compensated],
    }
    return [title(record, now_ms), *listed(facts)]


def title(record: WorkflowRecord, now_ms: int) -> str:
    status = words(record.status.value)
    if record.ending is not None:
        status = f"{status}, then {words(record.ending['status'])}"
    taken = seconds(
        max(
            (milliseconds(record.ended_at) if record.ended_at else now_ms) - milliseconds(record.created_at),
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
    shown = worth_showing(units, MOST_STEPS)
    rows = [step_row(record, unit, step, now_ms) for unit, step in shown]
    return rows, others(units, shown)


def worth_showing(units: Sequence[tuple[str, StepRecord]], room: int) -> Sequence[tuple[str, StepRecord]]:
    """All units if there is room; else those neither ready nor complete, and as many others as fit."""
    if len(units) <= room:
        return units
    told = [at for at, (_, step) in enumerate(units) if step.status not in ("ready", "complete")][:MOST_TOLD]
    chosen = set(told)
    for at in range(len(units)):
        if len(chosen) >= room:
            break
        chosen.add(at)
    return [units[at] for at in sorted(chosen)]


def others(units: Sequence[tuple[str, StepRecord]], shown: Sequence[tuple[str, StepRecord]]) -> str:
    left = Counter(step.status.value for _, step in units)
    left.subtract(step.status.value for _, step in shown)
    parts = [f"{count} {words(status)}" for status, count in left.items() if count]
    return f"and {len(units) - len(shown)} more: {', '.join(parts)}; --json shows all" if parts else ""


def step_row(record: WorkflowRecord, unit: str, step: StepRecord, now_ms: int) -> list[str]:
    has_run = step.dispatches > 0 or step.run_id > 0
    return [
        unit,
        words(step.status.value),
        str(step.attempt) if has_run else "",
        str(step.run_id) if has_run else "",
        took(step, now_ms),
        step.worker or "",
        "; ".join(notes(record, unit, step, now_ms)),
    ]


def result(record: WorkflowRecord) -> list[str]:
    """What came of it."""
    lines = []
    if record.error is not None:
        lines.append(f"error: {error_line(visible(record, record.error))}")
        for one in record.error.get("compensation_errors", ()):
            lines.append(f"not undone: {one['step']}: {error_line(visible(record, one))}")
    if record.outcome is not None:
        lines.append(f"outcome: {on_one_line(visible(record, record.outcome))}")
    return lines


# ---- what there is to say of one step


def took(step: StepRecord, now_ms: int) -> str:
    """How long it took, or has taken so far if a job of it is out."""
    if step.start_time is None:
        return ""
    ended_ms = (
        milliseconds(step.ended_at) if step.ended_at else now_ms if step.status == "in_progress" else None
    )
    return "" if ended_ms is None else seconds(max(ended_ms - milliseconds(step.start_time), 0) / 1000)


def notes(record: WorkflowRecord, unit: str, step: StepRecord, now_ms: int) -> Iterable[str]:
    spec = spec_of(record, unit)
    if step.items is not None:
        yield items(step.items)
    if step.status == "retry" and step.not_before_ms is not None:
        yield f"retry {until(step.not_before_ms, now_ms)}"
    if step.status == "deferred" and step.wake_at_ms is not None:
        yield f"goes on {until(step.wake_at_ms, now_ms)}"
    if step.status == "waiting" and spec.wait is not None:
        yield f"waits for {' or '.join(spec.wait.signals)}"
        if step.deadline_ms is not None:
            yield f"its time is over {until(step.deadline_ms, now_ms)}"
    if step.held is not None:
        yield f"held while {words(step.held)}"
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
        yield error_line(visible(record, step.error))
    elif step.reason:
        yield visible_text(record, step.reason)


def items(counts: ItemCounts) -> str:
    parts = [f"{counts.settled}/{counts.count} items"]
    if counts.errors:
        parts.append(f"{counts.errors} failed")
    if counts.out:
        parts.append(f"{counts.out} out")
    return ", ".join(parts)


def spec_of(record: WorkflowRecord, unit: str) -> StepSpec:
    """The spec of a step, of the map for an item, of the compensation for `<step>#undo`."""
    step_id = unit.partition("#")[0]
    spec = record.spec.steps[record.graph.index[step_id]]
    return spec.undoing if _is_undo(unit) and spec.compensate is not None else spec


# ---- words for times and facts


def when(iso: str, now_ms: int) -> str:
    """A time, and how long ago it was: 2026-01-01 00:00:00 UTC, 12 s ago."""
    return f"{iso[:10]} {iso[11:19]} UTC, {seconds(max(now_ms - milliseconds(iso), 0) / 1000)} ago"


def until(at_ms: int, now_ms: int) -> str:
    return f"in {seconds((at_ms - now_ms) / 1000)}" if at_ms > now_ms else "now"


def listed(facts: Mapping[str, str | None]) -> list[str]:
    """Facts under each other; those that are not known are left out."""
    known = {name: text for name, text in facts.items() if text is not None}
    width = max(map(len, known), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in known.items()]


def _is_undo(unit: str) -> bool:
    return unit.endswith(f"#{UNDO}")


def labelled(labels: Mapping[str, str] | None) -> str | None:
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
    return f"{when(cancelled['at'], now_ms)}{by}{why}"
