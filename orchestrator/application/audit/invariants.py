"""Checks what must be true of every record, whatever events led to it."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.application.audit.findings import Finding
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import ACTIVE_STEP_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.records.timers import timers_for_step
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.unit_id import UnitId, step_of

S, W = StepStatus, WorkflowStatus


def check_record(record: WorkflowRecord) -> list[Finding]:
    """List everything in a record that contradicts itself or its spec."""
    found = [*_check_readiness(record), *_check_workflow(record), *_check_capacity(record)]
    for unit, one in record.units():
        found += (Finding(code, unit, words) for code, words in _check_unit(record, unit, one))
    for spec in record.spec.steps:
        found += (Finding("items", spec.id, words) for words in _check_items(record, spec.id))
    return found


def can_have_unit(record: WorkflowRecord, unit: str) -> bool:
    """Whether the workflow can have a unit of this name."""
    unit_id = UnitId(unit)
    if unit_id.is_webhook:
        return True
    if unit_id.step_id not in record.graph.index:
        return False
    spec = _spec_of(record, unit_id.step_id)
    return unit_id.is_step or (spec.compensate if unit_id.is_compensation else spec.map) is not None


def is_webhook(unit: str) -> bool:
    """Whether this is the webhook, the only unit that still changes after the workflow has ended."""
    return UnitId(unit).is_webhook


def can_still_progress(record: WorkflowRecord) -> bool:
    """Whether an open execution waits for something that can still happen: a result, a timer, a signal, an
    operator or a slot. If not, it needs an event that is still in a stream."""
    if record.status is W.PAUSED or (record.deadline_ms is not None):
        return True
    if any(one.slot is not None and not one.slot.is_held for one in record.steps.values()):
        return True
    if record.slot is not None and not record.slot.is_held:
        return True
    return any(
        one.token is not None
        or one.status in (S.WAITING, S.ON_HOLD)
        or any(True for _ in timers_for_step(unit, one))
        for unit, one in record.units()
    )


# ---- the whole record


def _check_readiness(record: WorkflowRecord) -> Iterator[Finding]:
    """The readiness kept with a record must equal the one computed from it."""
    kept, computed = record.readiness, Readiness.of(record.graph, record.steps, record.items)
    for name in ("unmet", "open", "active", "in_flight", "waiting", "timed"):
        if getattr(kept, name) != getattr(computed, name):
            words = f"{name} is {getattr(kept, name)}, but the steps give {getattr(computed, name)}"
            yield Finding("readiness", "", words)


def _check_workflow(record: WorkflowRecord) -> Iterator[Finding]:
    if (record.ending is not None) != (record.status is W.COMPENSATING):
        words = f"the status is {record.status}, but the pending finish is {record.ending}"
        yield Finding("ending", "", words)
    if record.is_final and record.ended_at is None:
        yield Finding("ended_at", "", f"the status is {record.status}, but there is no end time")
    if record.is_final and record.slot is not None:
        yield Finding("left_over", "", "it has ended, but still has a concurrency slot")
    allowed = {W.HALTED: {S.READY}}.get(record.status, set())
    if record.is_final or record.status is W.COMPENSATING:
        for step_id, step in record.steps.items():
            if not step.is_final and step.status not in allowed:
                words = f"the status is {step.status}, but the workflow is {record.status}"
                yield Finding("left_over", step_id, words)


def _check_capacity(record: WorkflowRecord) -> Iterator[Finding]:
    in_flight = [unit for unit, one in record.units() if one.token is not None and not is_webhook(unit)]
    max_in_flight = 1 if record.status is W.COMPENSATING else record.spec.max_workers
    if max_in_flight is not None and len(in_flight) > max_in_flight:
        words = f"{len(in_flight)} dispatches in flight, limit {max_in_flight}: {', '.join(in_flight)}"
        yield Finding("capacity", "", words)


# ---- one unit


def _check_unit(record: WorkflowRecord, unit: str, one: StepRecord) -> Iterator[tuple[str, str]]:
    if not can_have_unit(record, unit):
        yield "unknown_unit", "the workflow has no such step"
        return
    if is_webhook(unit):
        return
    spec = _spec_of(record, step_of(unit))
    if one.token is not None and one.status is not S.IN_PROGRESS:
        yield "token", f"the status is {one.status}, but it has a dispatch token"
    may_lack_token = one.items is not None or one.lost or one.declined
    if one.status is S.IN_PROGRESS and one.token is None and not may_lack_token:
        yield "token", "the status is in_progress, but it has no dispatch token"
    if one.token is not None and (one.child is not None) != (spec.child is not None and unit == spec.id):
        yield "child", f"its child is {one.child}, which does not match its spec"
    if (one.held is not None) != (one.status is S.ON_HOLD):
        yield "hold", f"the status is {one.status}, but the status before the hold is {one.held}"
    if one.status is S.WAITING and spec.wait is None:
        yield "kind", "it waits for a signal, but is not a wait step"
    if one.slot is not None and _needs_no_slot(one):
        yield "place", f"the status is {one.status}, but it has a slot of the key {one.slot.key!r}"
    if one.has_timer and one.status not in ACTIVE_STEP_STATUSES:
        yield "timer", f"the status is {one.status}, but it has a timer"
    if (one.completion or 0) > record.completions:
        yield (
            "completion",
            f"its completion order is {one.completion}, but only {record.completions} completed",
        )


def _needs_no_slot(one: StepRecord) -> bool:
    return one.is_final or one.status in (S.WAITING, S.ON_HOLD) or one.not_before_ms is not None


def _spec_of(record: WorkflowRecord, step_id: str) -> StepSpec:
    return record.spec.steps[record.graph.index[step_id]]


# ---- maps


def _check_items(record: WorkflowRecord, step_id: str) -> Iterator[str]:
    """The counters of a map must match its items."""
    step = record.steps[step_id]
    names = [UnitId.for_item(step_id, n) for n in range(step.items.count if step.items is not None else 0)]
    known = [unit for unit in record.items if step_of(unit) == step_id and UnitId(unit).is_item]
    if sorted(known) != sorted(names):
        yield f"it counts {len(names)} items, but the record has {len(known)}"
        return
    if step.items is None:
        return
    items = [record.items[name] for name in names]
    settled = sum(1 for item in items if item.status in (S.COMPLETE, S.FAILED))
    errors = sum(1 for item in items if item.status is S.FAILED)
    counters = [("settled", step.items.settled, settled), ("errors", step.items.errors, errors)]
    if not step.is_final:
        counters.append(("out", step.items.out, sum(1 for item in items if item.token is not None)))
    if step.status is S.IN_PROGRESS:  # a map in retry sets these counters when it runs
        yield from _check_dispatch_order(step.items, items)
    for name, kept, computed in counters:
        if kept != computed:
            yield _describe_counter(name, kept, computed)


def _check_dispatch_order(counts: ItemCounts, items: list[StepRecord]) -> Iterator[str]:
    """Every item that can be dispatched must be counted as due, or be `next` or come after it."""
    due = sum(1 for item in items if item.is_due)
    if counts.due != due:
        yield _describe_counter("due", counts.due, due)
    following = next((n for n, item in enumerate(items) if item.status is S.READY), counts.count)
    if counts.next != following:
        yield _describe_counter("next", counts.next, following)


def _describe_counter(name: str, kept: int, computed: int) -> str:
    return f"{name} is {kept}, but its items give {computed}"
