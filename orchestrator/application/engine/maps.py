"""Maps: one step, one job for each item of a list.

The step's record counts the items (`ItemCounts`), and each item has a record of its own under `<step>#<n>`.
An item is retried and lost like a step. When the last item ends, `finish_item`, `requeue_item` or
`dispatch_items` return the result of the whole map, and the caller applies it to the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.application.engine.dispatch import dispatch
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_items
from orchestrator.application.engine.outputs import Error, Output, make_error_result
from orchestrator.application.engine.resolution import resolve_inputs, resolve_value
from orchestrator.application.errors import ExpressionError
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.values.json_types import describe_type
from orchestrator.application.values.payload_refs import is_payload_reference, opaque_reference_error
from orchestrator.application.values.unit_id import UnitId, split_unit, step_of

MAX_ITEMS = 10_000
"""The items of one map: one commit creates all of them."""

MapResult = tuple[Output, Error]
"""The output and the error of a map whose items have all ended."""


def resolve_items(draft: Draft, step_id: str) -> list[Any]:
    """Resolve the list of a map; null counts as empty. ExpressionError when it is anything else."""
    spec = draft.spec(step_id).map
    assert spec is not None
    values = resolve_value(draft, spec.over, draft.context(step_id))
    if values is None:
        return []
    if is_payload_reference(values):
        raise opaque_reference_error(values, "the list of map.over")
    if not isinstance(values, list):
        raise ExpressionError(f"map.over must give a list, not {describe_type(values)}")
    if len(values) > MAX_ITEMS:
        raise ExpressionError(
            f"map.over gives {len(values):,} items; the limit is {MAX_ITEMS:,}:"
            " put several into one item, or divide them among child workflows"
        )
    return values


def start_map(draft: Draft, step_id: str, values: list[Any]) -> MapResult | None:
    """Create a record for each item and move the map to in progress; without items, return its result."""
    spec = draft.spec(step_id).map
    assert spec is not None
    if not values:
        return _aggregate([]), None
    run_id = draft.step(step_id).run_id  # so that no item repeats a run_id from before a reset
    for n, value in enumerate(values):
        draft.add_item(UnitId.for_item(step_id, n), StepRecord(value=value, run_id=run_id))
    draft.turn.count(created_steps=len(values))
    counts = ItemCounts(len(values), most=spec.max_parallel)
    draft.move(step_id, StepStatus.IN_PROGRESS, items=counts, dispatched_at=draft.moment.iso)
    draft.begin_workflow()
    return None


def dispatch_items(draft: Draft, step_id: str, capacity: int | None) -> MapResult | None:
    """Dispatch items within the capacity, the limit of the map and the work of the turn. Returns the result
    of the map if it ends because the inputs of its last items cannot be resolved."""
    dispatched = 0
    while (capacity is None or dispatched < capacity) and not draft.may_stop:
        n = _take_item(draft, step_id)
        if n is None:
            break
        unit = UnitId.for_item(step_id, n)
        try:
            inputs = _resolve_inputs(draft, step_id, unit)
        except ExpressionError as error:
            message = f"input cannot be resolved: {error}"
            finished = finish_item(draft, unit, *make_error_result(make_failure("expression", message)))
            if finished is not None:
                return finished
        else:
            dispatch(draft, unit, inputs)
            dispatched += 1
    return None


def _take_item(draft: Draft, step_id: str) -> int | None:
    """Take the next item to dispatch, and count it as in progress; None when there is none."""
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
    """The first ready item from `start` on: `start` itself, unless the map was resumed and some of its items
    had completed before."""
    ready = (
        n
        for n in range(start, count)
        if draft.require_unit(UnitId.for_item(step_id, n)).status is StepStatus.READY
    )
    return next(ready, count)


def _resolve_inputs(draft: Draft, step_id: str, unit: str) -> dict[str, Any]:
    spec = draft.spec(step_id)
    context = draft.context(unit, **item_roots(draft, unit))
    return resolve_inputs(draft, unit, spec.input, context)


def item_roots(draft: Draft, unit: str) -> dict[str, Any]:
    """The roots that expressions of an item see besides the usual ones: the item by its name, and `index`."""
    step_id, index = split_unit(unit)
    spec, item = draft.spec(step_id).map, draft.unit(unit)
    assert spec is not None
    assert item is not None
    return {spec.as_: item.value, "index": int(index)}


def requeue_item(draft: Draft, unit: str) -> MapResult | None:
    """Count an item as no longer in progress: it failed, its worker was lost, or its loop continues, and it
    must be dispatched again. Returns the result of the map if another item was fatal and this was the last
    one in progress."""
    step_id = step_of(unit)
    _count(draft, step_id, out=-1)
    return _result_if_finished(draft, step_id)


def finish_item(draft: Draft, unit: str, output: Output, error: Error) -> MapResult | None:
    """End an item. Returns the result of the map if this was its last item."""
    step_id, is_failed = step_of(unit), error is not None
    status = StepStatus.FAILED if is_failed else StepStatus.COMPLETE
    draft.move(unit, status, output=output, error=error, ended_at=draft.moment.iso)
    is_fatal = is_failed and draft.spec(step_id).on_error == "fail"
    _count(draft, step_id, out=-1, settled=1, errors=int(is_failed), fatal=is_fatal)
    return _result_if_finished(draft, step_id)


def _count(
    draft: Draft, step_id: str, *, out: int, settled: int = 0, errors: int = 0, fatal: bool = False
) -> None:
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


def _result_if_finished(draft: Draft, step_id: str) -> MapResult | None:
    counts = draft.step(step_id).items
    assert counts is not None
    if not counts.is_finished:
        return None
    items = [draft.require_unit(UnitId.for_item(step_id, n)) for n in range(counts.count)]
    if counts.fatal:
        end_items(draft, step_id, "another item of the map failed")
        n, error = next((n, item.error) for n, item in enumerate(items) if item.error)
        return make_error_result({**error, "message": f"item {n}: {error['message']}"})
    return _aggregate([_item_output(draft, step_id, item) for item in items], counts.errors), None


def _item_output(draft: Draft, step_id: str, item: StepRecord) -> Any:
    """The output of an item in the result of its map. A failed item is null if `on_error` is `skip`, and else
    its error object."""
    if item.status is StepStatus.FAILED and draft.spec(step_id).on_error == "skip":
        return None
    return item.output


def _aggregate(items: list[Any], errors: int = 0) -> dict[str, Any]:
    return {"items": items, "count": len(items), "errors": errors}
