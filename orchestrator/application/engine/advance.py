"""Advancing an execution: claim the steps that can run, within the capacity, or end the workflow.

    evaluate the start conditions of the steps on the agenda -> dispatch candidates -> finish

The first two repeat until nothing changes: a map without items or a failed expression ends its step at once.
When the work of the turn is spent, the decision stops before the next step, and `has_more_ready` asks for
another one. It has evaluated a step by then. That may have changed nothing, if the step goes on waiting, so
`continue_at` says where the next decision begins: even one that loads the record gets further.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.concurrency import acquire_slot, acquire_workflow_slot
from orchestrator.application.engine.dependencies import skip_dead_ends
from orchestrator.application.engine.dispatch import dispatch, start_child
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import continue_compensation, end_workflow, final_decision
from orchestrator.application.engine.maps import dispatch_items, resolve_items, start_map
from orchestrator.application.engine.redrive import resume_map
from orchestrator.application.engine.resolution import resolve_inputs, resolve_outputs
from orchestrator.application.engine.results import apply_step_result, fail_permanently
from orchestrator.application.engine.start_conditions import evaluate_start_conditions, is_eligible
from orchestrator.application.engine.webhook import dispatch_webhook
from orchestrator.application.errors import ExpressionError
from orchestrator.application.records.decisions import Decision, Dispatch, Pending
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.payload_refs import MAX_INPUT_BYTES, MAX_JOB_BYTES


def advance_draft(draft: Draft, limit: int | None) -> Decision:
    """Claim every step that can run, at most `limit` of them, or end the workflow."""
    if draft.status is WorkflowStatus.PAUSED:
        return Pending()
    if draft.is_open and acquire_workflow_slot(draft):
        while True:
            _evaluate_agenda(draft)
            if not draft.is_open or not _dispatch_candidates(draft, limit):
                break
        if draft.is_open and not draft.changes.jobs and not draft.changes.has_more_ready:
            _finish(draft)
    decision: Decision
    if draft.status is WorkflowStatus.COMPENSATING:
        decision = continue_compensation(draft)
    elif draft.is_final:
        decision = final_decision(draft)
    else:
        decision = Dispatch(draft.changes.jobs) if draft.changes.jobs else Pending()
    if draft.is_final:
        dispatch_webhook(draft)
    return decision


def _evaluate_agenda(draft: Draft) -> None:
    """Evaluate the start conditions of every step on the agenda."""
    while draft.is_open and not (draft.has_turn and draft.is_turn_over):
        step_id = draft.next_to_evaluate()
        if step_id is None:
            break
        if evaluate_start_conditions(draft, step_id):
            draft.add_candidate(step_id)
        if draft.dead_ends:
            skip_dead_ends(draft)


def _dispatch_candidates(draft: Draft, limit: int | None) -> bool:
    """Claim candidates in spec order within the capacity. True when this must be repeated: there are steps to
    evaluate, or there is capacity again because a map had nothing to dispatch.

    The inputs of all candidates are resolved before the first one is claimed, because an input that cannot be
    resolved may end the workflow. A map that has nothing to dispatch may end it too, or reset the steps after
    it.
    """
    ready: list[tuple[str, StepRecord, Any]] = []
    has_limit = limit is not None or draft.record.spec.max_workers is not None
    while not has_limit or (capacity := _capacity(draft, limit)) is None or len(ready) < capacity:
        if draft.has_turn and draft.is_turn_over and (ready or not draft.changes.is_empty):
            break
        step_id = draft.next_candidate()
        if step_id is None:
            break
        # A candidate left by an earlier decision is evaluated again: a process that loads the record does so.
        is_passed = (
            draft.evaluated[step_id]
            if step_id in draft.evaluated
            else evaluate_start_conditions(draft, step_id)
        )
        if is_passed and is_eligible(draft, step_id):
            _prepare(draft, step_id, ready)
        if draft.dead_ends:
            skip_dead_ends(draft)
        if not draft.is_open:
            return False
    for step_id, step, resolved in ready:
        if not draft.is_open:
            return False
        if draft.step(step_id) is not step:
            continue
        capacity = _capacity(draft, limit) if has_limit else None
        if capacity is not None and capacity <= 0:
            draft.add_candidate(step_id)
        elif draft.specs[step_id].map is not None:
            _advance_map(draft, step_id, resolved, capacity)
        elif draft.specs[step_id].child is not None:
            start_child(draft, step_id, resolved)
        else:
            dispatch(draft, step_id, resolved)
    is_over = draft.has_turn and draft.is_turn_over
    is_limited = is_over or limit is not None
    draft.changes.has_more_ready = is_limited and _has_more_ready(draft, limit, is_over)
    if is_over or not draft.agenda.is_empty:
        return not is_over
    if draft.candidates.is_empty:
        return False
    return (capacity := _capacity(draft, limit)) is None or capacity > 0


def _prepare(draft: Draft, step_id: str, ready: list[tuple[str, StepRecord, Any]]) -> None:
    """Resolve what the dispatch of a step needs, unless the step must wait for a slot first."""
    problem = "concurrency.key cannot be evaluated"
    try:
        if _nests_too_deep(draft, step_id):
            max_depth = draft.record.spec.limits.max_depth
            message = f"child workflows may nest at most {max_depth} levels deep (limits.max_depth)"
            fail_permanently(draft, step_id, make_failure("child_failed", message))
        elif acquire_slot(draft, step_id):
            problem = "input cannot be resolved"
            ready.append((step_id, draft.step(step_id), _resolve(draft, step_id)))
    except ExpressionError as error:
        fail_permanently(draft, step_id, make_failure("expression", f"{problem}: {error}"))


def _nests_too_deep(draft: Draft, step_id: str) -> bool:
    limits = draft.record.spec.limits
    return draft.specs[step_id].child is not None and draft.record.depth >= limits.max_depth


def _capacity(draft: Draft, limit: int | None) -> int | None:
    """How many more dispatches this commit and the workflow's max_workers allow; None for no limit."""
    max_workers = draft.record.spec.max_workers
    by_commit = None if limit is None else limit - draft.dispatch_count
    if max_workers is None:
        return by_commit
    by_workflow = max_workers - draft.in_flight
    return by_workflow if by_commit is None else min(by_commit, by_workflow)


def _has_more_ready(draft: Draft, limit: int | None, is_turn_over: bool) -> bool:
    """Whether another advance could go on at once, because only the size of this commit or the work of this
    turn prevented it."""
    if is_turn_over:
        capacity = _capacity(draft, None)
        draft.changes.continue_at = draft.first_left(with_candidates=capacity is None or capacity > 0)
        if draft.changes.continue_at:
            return True
    if limit is None or draft.dispatch_count < limit:
        return False
    while (step_id := draft.next_candidate()) is not None:
        if is_eligible(draft, step_id):
            draft.add_candidate(step_id)
            capacity = _capacity(draft, None)
            return capacity is None or capacity > 0
    return False


def _resolve(draft: Draft, step_id: str) -> Any:
    """The inputs of a step; for a map its items, or None if it has them already."""
    spec = draft.specs[step_id]
    if spec.map is not None:
        return resolve_items(draft, step_id) if draft.step(step_id).items is None else None
    max_bytes = MAX_JOB_BYTES if spec.child is None else MAX_INPUT_BYTES
    return resolve_inputs(draft, step_id, spec.input, draft.context(step_id), max_bytes)


def _advance_map(draft: Draft, step_id: str, items: list[Any] | None, capacity: int | None) -> None:
    """Start or resume a map, dispatch its items, and apply its result if it has ended already. It can have
    many items, so it waits if the work of the turn is spent."""
    if draft.may_stop:
        draft.add_candidate(step_id)
        return
    finished = None
    if items is not None:
        finished = start_map(draft, step_id, items)
    elif draft.step(step_id).status is not StepStatus.IN_PROGRESS:  # a retry continues with the other items
        resume_map(draft, step_id)
    if draft.step(step_id).items is not None:
        finished = dispatch_items(draft, step_id, capacity)
    if finished is not None:
        apply_step_result(draft, step_id, *finished)
    skip_dead_ends(draft)
    if draft.is_open and draft.step(step_id).awaits_dispatch:
        draft.add_candidate(step_id)


def _finish(draft: Draft) -> None:
    """End the workflow, unless a step is still active. Nothing can be dispatched now."""
    if draft.open:
        if not draft.active and draft.has_left_steps:
            draft.changes.has_more_ready = True  # an event between two turns has put them on the agenda
        elif not draft.active:
            failure = make_failure("stalled", "no step can ever run again, and not all steps are final")
            end_workflow(draft, WorkflowStatus.FAILED, "workflow stalled", error=failure)
        return
    if draft.may_stop and draft.record.spec.outputs:
        draft.changes.has_more_ready = True
        return
    try:
        outcome = resolve_outputs(draft, draft.record.spec.outputs, draft.context())
    except ExpressionError as error:
        failure = make_failure("expression", f"outputs cannot be resolved: {error}")
        end_workflow(draft, WorkflowStatus.FAILED, "outputs failed", error=failure)
        return
    fatal = _first_fatal_failure(draft)
    if fatal is None:
        end_workflow(draft, WorkflowStatus.COMPLETE, "complete", outcome=outcome)
    else:
        end_workflow(draft, WorkflowStatus.FAILED, "failed", outcome=outcome, error=fatal)


def _first_fatal_failure(draft: Draft) -> dict[str, Any] | None:
    """The error of the first failed step with `on_error: fail`: only its dependents tolerated the failure."""
    for step_id in draft.graph.order:
        step = draft.step(step_id)
        if step.status is StepStatus.FAILED and draft.specs[step_id].on_error == "fail":
            return {**(step.error or {}), "step": step_id}
    return None
