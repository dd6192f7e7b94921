"""Maps: one step, one job for each item of a list.

The step's record counts its items (`ItemCounts`), and each has a record of its own under `<step>#<n>`. An
item is retried and lost like a step; when the last one has ended, the step brings them all as one result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.application.engine.dispatch import dispatch
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_items
from orchestrator.application.engine.results import (
    Error,
    Output,
    StepResult,
    apply_result,
    make_error_result,
    mark_non_retryable,
    record_result,
    retry_delay_ms,
    schedule_retry,
)
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import resolve
from orchestrator.application.records.events import failure
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.spec.model import COMPENSATION_PART, WEBHOOK_UNIT
from orchestrator.application.values.payload_refs import (
    MAX_JOB_BYTES,
    check_inputs_size,
    is_reference,
    opaque_reference_error,
)


def is_map_item(unit: str) -> bool:
    return "#" in unit and unit != WEBHOOK_UNIT and not unit.endswith(f"#{COMPENSATION_PART}")


def resolve_items(draft: Draft, step_id: str) -> list[Any]:
    """The list that a map goes over; null counts as empty. ExpressionError when it is anything else."""
    spec = draft.spec(step_id).map
    assert spec is not None
    values = resolve(spec.over, draft.context(step_id))
    if values is None:
        return []
    if is_reference(values):
        raise opaque_reference_error(values, "the list of map.over")
    if not isinstance(values, list):
        raise ExpressionError(f"map.over must give a list, not {type(values).__name__}")
    return values


def start_map(draft: Draft, step_id: str, values: list[Any]) -> StepResult:
    """Make a record for each item; no items at all are a result at once."""
    spec = draft.spec(step_id).map
    assert spec is not None
    if not values:
        return apply_result(draft, step_id, _aggregate([]))
    run_id = draft.step(step_id).run_id  # no run of an item has the number of one before a reset
    for n, value in enumerate(values):
        draft.add_item(f"{step_id}#{n}", StepRecord(value=value, run_id=run_id))
    counts = ItemCounts(len(values), most=spec.max_parallel)
    draft.move(step_id, StepStatus.IN_PROGRESS, items=counts, dispatched_at=draft.moment.iso)
    draft.begin_workflow()
    return None


def dispatch_items(draft: Draft, step_id: str, room: int | None) -> int:
    """Dispatch items as long as there is room, and the map allows more; returns how many."""
    sent = 0
    while (room is None or sent < room) and (n := _take_item(draft, step_id)) is not None:
        unit = f"{step_id}#{n}"
        try:
            inputs = _inputs(draft, step_id, unit)
        except ExpressionError as error:
            _settle_item(
                draft, unit, *make_error_result(failure("expression", f"input cannot be resolved: {error}"))
            )
            continue
        dispatch(draft, unit, inputs)
        sent += 1
    return sent


def _take_item(draft: Draft, step_id: str) -> int | None:
    counts = draft.step(step_id).items
    if counts is None or not counts.has_dispatchable_item:
        return None
    if counts.due:
        n, following = draft.next_due_item(step_id), counts.next
    else:
        n, following = counts.next, _first_ready(draft, step_id, counts.next + 1, counts.count)
    draft.amend(step_id, items=replace(counts, next=following, out=counts.out + 1))
    return n


def _first_ready(draft: Draft, step_id: str, start: int, count: int) -> int:
    """The first item from `start` on that is to be dispatched: the very next one, unless the map was opened
    again and has some that had completed before."""
    ready = (
        n for n in range(start, count) if draft.require_unit(f"{step_id}#{n}").status is StepStatus.READY
    )
    return next(ready, count)


def _inputs(draft: Draft, step_id: str, unit: str) -> dict[str, Any]:
    spec = draft.spec(step_id)
    context = draft.context(unit, **item_roots(draft, unit))
    inputs = {key: resolve(value, context) for key, value in spec.input.items()}
    check_inputs_size(inputs, unit, MAX_JOB_BYTES)
    return inputs


def item_roots(draft: Draft, unit: str) -> dict[str, Any]:
    """What expressions of an item see besides: the item under its name, and its index."""
    step_id, _, n = unit.partition("#")
    spec, item = draft.spec(step_id).map, draft.unit(unit)
    assert spec is not None
    assert item is not None
    return {spec.as_: item.value, "index": int(n)}


def apply_item_result(
    draft: Draft, unit: str, output: Output, error: Error, worker: str | None, started_at: str | None
) -> StepResult:
    """What one item brought back: tried again, or settled; the last one settles the map."""
    error = None if error is None else mark_non_retryable(draft, unit, error)
    record_result(draft, unit, output, error, worker, started_at)
    delay_ms = retry_delay_ms(draft, unit, error) if error is not None else None
    if delay_ms is not None:
        pending = schedule_retry(draft, unit, delay_ms)
        requeue_item(draft, unit)
        return pending
    return _settle_item(draft, unit, output, error)


def requeue_item(draft: Draft, unit: str) -> None:
    """An item is not in progress any more, and is to be dispatched once more: it failed, its worker was lost,
    or its loop goes round."""
    _count(draft, unit, out=-1)
    _close_if_over(draft, unit.partition("#")[0])


def _settle_item(draft: Draft, unit: str, output: Output, error: Error) -> StepResult:
    step_id = unit.partition("#")[0]
    failed = error is not None
    status = StepStatus.FAILED if failed else StepStatus.COMPLETE
    draft.move(unit, status, output=output, error=error, ended_at=draft.moment.iso)
    fatal = failed and draft.spec(step_id).on_error == "fail"
    _count(draft, unit, out=-1, settled=1, errors=int(failed), fatal=fatal)
    return _close_if_over(draft, step_id)


def _count(
    draft: Draft, unit: str, *, out: int, settled: int = 0, errors: int = 0, fatal: bool = False
) -> None:
    step_id = unit.partition("#")[0]
    counts = draft.step(step_id).items
    assert counts is not None
    after = replace(
        counts,
        out=counts.out + out,
        settled=counts.settled + settled,
        errors=counts.errors + errors,
        fatal=counts.fatal or fatal,
    )
    draft.amend(step_id, items=after)


def _close_if_over(draft: Draft, step_id: str) -> StepResult:
    counts = draft.step(step_id).items
    assert counts is not None
    if not counts.is_finished:
        return None
    items = [draft.unit(f"{step_id}#{n}") for n in range(counts.count)]
    if counts.fatal:
        end_items(draft, step_id, "another item of the map failed")
        n, error = next((n, one.error) for n, one in enumerate(items) if one is not None and one.error)
        return apply_result(
            draft, step_id, *make_error_result({**error, "message": f"item {n}: {error['message']}"})
        )
    return apply_result(
        draft, step_id, _aggregate([_shown(draft, step_id, one) for one in items], counts.errors)
    )


def _shown(draft: Draft, step_id: str, item: StepRecord | None) -> Any:
    """An item in the aggregate: its output; null or the error object where it failed, by the policy."""
    assert item is not None
    if item.status is StepStatus.FAILED and draft.spec(step_id).on_error == "skip":
        return None
    return item.output


def _aggregate(items: list[Any], errors: int = 0) -> dict[str, Any]:
    return {"items": items, "count": len(items), "errors": errors}
