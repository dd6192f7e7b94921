"""What must be true of every record, however it came to be."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.application.audit.findings import Finding
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import ACTIVE_STEP_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.records.timers import timers_for_step
from orchestrator.application.spec.model import COMPENSATION_PART, StepSpec

WEBHOOK = "webhook"

S, W = StepStatus, WorkflowStatus


def check_record(record: WorkflowRecord) -> list[Finding]:
    """Everything about a record that contradicts itself or its spec."""
    found = [*_check_readiness(record), *_check_workflow(record), *_check_capacity(record)]
    for unit, one in record.units():
        found += (Finding(code, unit, words) for code, words in _check_unit(record, unit, one))
    for spec in record.spec.steps:
        found += (Finding("items", spec.id, words) for words in _check_items(record, spec.id))
    return found


def can_have_unit(record: WorkflowRecord, unit: str) -> bool:
    """Whether a workflow can have a unit of this name."""
    step_id, _, part = unit.partition("#")
    if is_webhook(unit):
        return True
    if step_id not in record.graph.index:
        return False
    spec = _spec_of(record, step_id)
    return not part or (spec.compensate if part == COMPENSATION_PART else spec.map) is not None


def is_webhook(unit: str) -> bool:
    """The one unit that goes on after the end of its workflow: it tells somebody of it."""
    return unit.endswith(f"#{WEBHOOK}")


def can_still_progress(record: WorkflowRecord) -> bool:
    """Whether anything can still happen to an execution that has not ended: a result, a time, a signal, an
    operator or a place will move it. If not, it needs an event that is still on its way."""
    if record.status is W.PAUSED or (record.deadline_ms is not None):
        return True
    in_line = [one.slot for one in record.steps.values() if one.slot is not None and not one.slot.is_held]
    if in_line or (record.slot is not None and not record.slot["is_held"]):
        return True
    return any(
        one.token is not None
        or one.status in (S.WAITING, S.ON_HOLD)
        or any(True for _ in timers_for_step(unit, one))
        for unit, one in record.units()
    )


# ---- the whole


def _check_readiness(record: WorkflowRecord) -> Iterator[Finding]:
    """What is kept beside a record is what can be computed from it."""
    kept, made = record.readiness, Readiness.of(record.graph, record.steps, record.items)
    for name in ("unmet", "open", "active", "in_flight", "waiting", "timed"):
        if getattr(kept, name) != getattr(made, name):
            words = f"{name} is {getattr(kept, name)}, and {getattr(made, name)} by the steps"
            yield Finding("readiness", "", words)


def _check_workflow(record: WorkflowRecord) -> Iterator[Finding]:
    if (record.ending is not None) != (record.status is W.COMPENSATING):
        yield Finding("ending", "", f"it is {record.status}, and what it will end with is {record.ending}")
    if record.is_final and record.ended_at is None:
        yield Finding("ended_at", "", f"it is {record.status}, and nobody knows since when")
    if record.is_final and record.slot is not None:
        yield Finding("left_over", "", "it has ended, and has a place under a concurrency key")
    left = {W.HALTED: {S.READY}}.get(record.status, set())
    if record.is_final or record.status is W.COMPENSATING:
        for step_id, step in record.steps.items():
            if not step.is_final and step.status not in left:
                words = f"it is {step.status}, and the workflow is {record.status}"
                yield Finding("left_over", step_id, words)


def _check_capacity(record: WorkflowRecord) -> Iterator[Finding]:
    out = [unit for unit, one in record.units() if one.token is not None and not is_webhook(unit)]
    most = 1 if record.status is W.COMPENSATING else record.spec.max_workers
    if most is not None and len(out) > most:
        yield Finding("capacity", "", f"{len(out)} dispatches are out, and {most} may be: {', '.join(out)}")


# ---- one unit


def _check_unit(record: WorkflowRecord, unit: str, one: StepRecord) -> Iterator[tuple[str, str]]:
    if not can_have_unit(record, unit):
        yield "unknown_unit", "the workflow has no such step"
        return
    if is_webhook(unit):
        return
    spec = _spec_of(record, unit.partition("#")[0])
    if one.token is not None and one.status is not S.IN_PROGRESS:
        yield "token", f"it is {one.status}, and a dispatch is out"
    if one.status is S.IN_PROGRESS and one.token is None and one.items is None and not one.lost:
        yield "token", "it is in progress, and no dispatch is out"
    if one.token is not None and (one.child is not None) != (spec.child is not None and unit == spec.id):
        yield "child", f"its child is {one.child}"
    if (one.held is not None) != (one.status is S.ON_HOLD):
        yield "hold", f"it is {one.status}, and was {one.held} before it was held"
    if one.status is S.WAITING and spec.wait is None:
        yield "kind", "it waits for a signal, and is no such step"
    if one.slot is not None and _is_at_rest(one):
        yield "place", f"it is {one.status}, and has a place under the key {one.slot.key!r}"
    if one.has_timer and one.status not in ACTIVE_STEP_STATUSES:
        yield "timer", f"it is {one.status}, and has a time to wait for"
    if (one.completion or 0) > record.completions:
        yield "completion", f"it was the {one.completion}. to complete, of {record.completions}"


def _is_at_rest(one: StepRecord) -> bool:
    return one.is_final or one.status in (S.WAITING, S.ON_HOLD) or one.not_before_ms is not None


def _spec_of(record: WorkflowRecord, step_id: str) -> StepSpec:
    return record.spec.steps[record.graph.index[step_id]]


# ---- maps


def _check_items(record: WorkflowRecord, step_id: str) -> Iterator[str]:
    """The counters of a map are those of its items."""
    step = record.steps[step_id]
    names = [f"{step_id}#{n}" for n in range(step.items.count if step.items is not None else 0)]
    known = [unit for unit in record.items if unit.partition("#")[0] == step_id and _is_item(unit)]
    if sorted(known) != sorted(names):
        yield f"it counts {len(names)} items, and {len(known)} are kept"
        return
    if step.items is None:
        return
    items = [record.items[name] for name in names]
    settled = sum(1 for item in items if item.status in (S.COMPLETE, S.FAILED))
    errors = sum(1 for item in items if item.status is S.FAILED)
    counts = [("settled", step.items.settled, settled), ("errors", step.items.errors, errors)]
    if not step.is_final:
        counts.append(("out", step.items.out, sum(1 for item in items if item.token is not None)))
    if step.status is S.IN_PROGRESS:  # a map that is retried takes up its items when it runs
        yield from _check_order(step.items, items)
    for name, counted, found in counts:
        if counted != found:
            yield f"{name} is {counted}, and {found} by its items"


def _check_order(counts: ItemCounts, items: list[StepRecord]) -> Iterator[str]:
    """Whatever can be dispatched is due and counted, or the next one that never was, or stands behind it."""
    due = sum(1 for item in items if item.is_due)
    if counts.due != due:
        yield f"due is {counts.due}, and {due} by its items"
    following = next((n for n, item in enumerate(items) if item.status is S.READY), counts.count)
    if counts.next != following:
        yield f"next is {counts.next}, and {following} by its items"


def _is_item(unit: str) -> bool:
    return not unit.endswith((f"#{COMPENSATION_PART}", f"#{WEBHOOK}"))
