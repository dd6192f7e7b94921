"""How an execution advances: what can run is claimed, as far as there is room; or the workflow ends."""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.concurrency import acquire_slot, acquire_workflow_slot
from orchestrator.application.engine.dependencies import skip_dead_ends
from orchestrator.application.engine.dispatch import dispatch, start_child
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import continue_compensation, end_workflow, final_decision
from orchestrator.application.engine.maps import dispatch_items, resolve_items, start_map
from orchestrator.application.engine.redrive import resume_map
from orchestrator.application.engine.results import (
    fail_permanently,
)
from orchestrator.application.engine.start_conditions import evaluate_start_conditions, is_eligible
from orchestrator.application.engine.webhook import update_webhook
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import resolve
from orchestrator.application.records.decisions import Decision, Dispatch, Pending
from orchestrator.application.records.events import (
    failure,
)
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.payload_refs import MAX_INPUT_BYTES, MAX_JOB_BYTES, check_inputs_size


def advance_draft(draft: Draft, limit: int | None) -> Decision:
    update_webhook(draft)  # of an execution that runs again, before anything else is dispatched
    decision = _advance(draft, limit)
    update_webhook(draft)
    return decision


def _advance(draft: Draft, limit: int | None) -> Decision:
    if draft.status is WorkflowStatus.PAUSED:
        return Pending()
    if draft.is_open and acquire_workflow_slot(draft):
        while draft.is_open and (_judge(draft) or _dispatch(draft, limit)):
            pass
        if draft.is_open and not draft.changes.jobs:
            _finish(draft)
    if draft.status is WorkflowStatus.COMPENSATING:
        return continue_compensation(draft)
    if draft.is_final:
        return final_decision(draft)
    return Dispatch(draft.changes.jobs) if draft.changes.jobs else Pending()


def _judge(draft: Draft) -> bool:
    """Take every step on the agenda through its gates; False when there was none."""
    evaluated = False
    while draft.is_open and (step_id := draft.next_to_evaluate()) is not None:
        evaluated = True
        if evaluate_start_conditions(draft, step_id):
            draft.add_candidate(step_id)
        skip_dead_ends(draft)
    return evaluated


def _dispatch(draft: Draft, limit: int | None) -> bool:
    """Claim candidates in spec order while there is room; True when that must be done once more: somebody is
    to be judged, or there is room again because a map had nothing to dispatch.

    The inputs of all are resolved before any is claimed: one that cannot be may end the workflow. A map that
    has nothing to dispatch may end it too, or reset those that stand after it.
    """
    ready: list[tuple[str, StepRecord, Any]] = []
    while (room := _room(draft, limit)) is None or len(ready) < room:
        step_id = draft.next_candidate()
        if step_id is None:
            break
        # What waited for room is judged again: a process that loads the record would do so too.
        passed = (
            draft.evaluated[step_id]
            if step_id in draft.evaluated
            else evaluate_start_conditions(draft, step_id)
        )
        if passed and is_eligible(draft, step_id):
            _prepare(draft, step_id, ready)
        skip_dead_ends(draft)
        if not draft.is_open:
            return False
    for step_id, step, resolved in ready:
        if not draft.is_open:
            return False
        if draft.step(step_id) is not step:
            continue
        if (room := _room(draft, limit)) is not None and room <= 0:
            draft.add_candidate(step_id)
        elif draft.specs[step_id].map is not None:
            _map(draft, step_id, resolved, room)
        elif draft.specs[step_id].child is not None:
            start_child(draft, step_id, resolved)
        else:
            dispatch(draft, step_id, resolved)
    draft.changes.more = _has_more(draft, limit)
    room = _room(draft, limit)
    return draft.has_agenda or (draft.has_candidates and (room is None or room > 0))


def _prepare(draft: Draft, step_id: str, ready: list[tuple[str, StepRecord, Any]]) -> None:
    """Resolve what the dispatch of a step needs, unless it must stand in line first."""
    doing = "concurrency.key cannot be evaluated"
    try:
        if _nests_too_deep(draft, step_id):
            most = draft.record.spec.limits.max_depth
            message = f"children may nest {most} deep at most (limits.max_depth)"
            fail_permanently(draft, step_id, failure("child_failed", message))
        elif acquire_slot(draft, step_id):
            doing = "input cannot be resolved"
            ready.append((step_id, draft.step(step_id), _resolved(draft, step_id)))
    except ExpressionError as error:
        fail_permanently(draft, step_id, failure("expression", f"{doing}: {error}"))


def _nests_too_deep(draft: Draft, step_id: str) -> bool:
    limits = draft.record.spec.limits
    return draft.specs[step_id].child is not None and draft.record.depth >= limits.max_depth


def _room(draft: Draft, limit: int | None) -> int | None:
    """How many dispatches are still allowed: by this commit, and by the workflow's max_workers."""
    most = draft.record.spec.max_workers
    by_commit = None if limit is None else limit - draft.dispatch_count
    if most is None:
        return by_commit
    by_workflow = most - draft.in_flight
    return by_workflow if by_commit is None else min(by_commit, by_workflow)


def _has_more(draft: Draft, limit: int | None) -> bool:
    """Whether a further advance could dispatch at once: only the size of this commit was in the way."""
    if limit is None or draft.dispatch_count < limit:
        return False
    while (step_id := draft.next_candidate()) is not None:
        if is_eligible(draft, step_id):
            draft.add_candidate(step_id)
            room = _room(draft, None)
            return room is None or room > 0
    return False


def _resolved(draft: Draft, step_id: str) -> Any:
    """What a dispatch needs: the inputs of a step; of a map, its items, unless it has them already."""
    spec = draft.specs[step_id]
    if spec.map is not None:
        return resolve_items(draft, step_id) if draft.step(step_id).items is None else None
    context = draft.context(step_id)
    inputs = {key: resolve(value, context) for key, value in spec.input.items()}
    check_inputs_size(inputs, step_id, MAX_JOB_BYTES if spec.child is None else MAX_INPUT_BYTES)
    return inputs


def _map(draft: Draft, step_id: str, items: list[Any] | None, room: int | None) -> None:
    if items is not None:
        start_map(draft, step_id, items)
    elif draft.step(step_id).status is not StepStatus.IN_PROGRESS:  # a retry goes on with its other items
        resume_map(draft, step_id)
    if draft.step(step_id).items is not None:
        dispatch_items(draft, step_id, room)
    skip_dead_ends(draft)
    if draft.is_open and draft.step(step_id).awaits_dispatch:
        draft.add_candidate(step_id)


def _finish(draft: Draft) -> None:
    """Nothing can be dispatched: the workflow is at its end, or something is still under way."""
    if draft.open:
        if not draft.active:
            message = "no step can ever run again, and not all are final"
            end_workflow(draft, WorkflowStatus.FAILED, "workflow stalled", error=failure("stalled", message))
        return
    context = draft.context()
    try:
        outcome = {name: resolve(value, context) for name, value in draft.record.spec.outputs.items()}
    except ExpressionError as error:
        message = f"outputs cannot be resolved: {error}"
        end_workflow(draft, WorkflowStatus.FAILED, "outputs failed", error=failure("expression", message))
        return
    unforgiven = _unforgiven(draft)
    if unforgiven is None:
        end_workflow(draft, WorkflowStatus.COMPLETE, "complete", outcome=outcome)
    else:
        end_workflow(draft, WorkflowStatus.FAILED, "failed", outcome=outcome, error=unforgiven)


def _unforgiven(draft: Draft) -> dict[str, Any] | None:
    """The first failure under policy `fail` that only the dependents tolerated."""
    for step_id in draft.graph.order:
        step = draft.step(step_id)
        if step.status is StepStatus.FAILED and draft.specs[step_id].on_error == "fail":
            return {**(step.error or {}), "step": step_id}
    return None
