"""Concurrency keys: a limit on how many steps or executions are in progress under one key, across all
executions.

Only the store sees all executions. A decision requests a slot; the store grants it, or puts the request among
the waiters, and sends a SlotEvent when the slot is granted. Until then the step is not dispatched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.events import SlotEvent, make_failure
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import Slot
from orchestrator.application.spec.model import ConcurrencySpec
from orchestrator.application.values.dispatch_tokens import dispatch_id
from orchestrator.application.values.json_types import describe_type

MAX_CONCURRENCY_KEY_LENGTH = 256


def acquire_slot(draft: Draft, step_id: str) -> bool:
    """Whether a step may be dispatched under its concurrency key; if not, it waits for a slot."""
    spec = draft.specs[step_id].concurrency
    if spec is None or draft.step(step_id).slot is not None:
        return True
    draft.amend(step_id, slot=_make_slot(draft, spec, step_id))
    return False


def acquire_workflow_slot(draft: Draft) -> bool:
    """Whether the execution may run under the workflow's concurrency key; if not, it waits for a slot."""
    spec = draft.record.spec.concurrency
    if spec is None:
        return True
    if draft.slot is None:
        try:
            draft.set_workflow_slot(_make_slot(draft, spec, ""))
        except ExpressionError as error:
            failure = make_failure("expression", f"concurrency.key cannot be evaluated: {error}")
            end_workflow(draft, WorkflowStatus.FAILED, "workflow failed", error=failure)
            return False
    return draft.slot is not None and draft.slot.is_held


def on_slot(draft: Draft, event: SlotEvent) -> None:
    """Record that a slot was granted. An event for a slot that was released meanwhile is stale."""
    if not event.step_id:
        if draft.slot is not None and draft.slot.token == event.token:
            draft.changes.fields["slot"] = replace(draft.slot, is_held=True)
            return
    elif event.step_id in draft.graph.index:
        slot = draft.step(event.step_id).slot
        if slot is not None and slot.token == event.token:
            draft.amend(event.step_id, slot=replace(slot, is_held=True))
            return
    draft.count("stale")


def _make_slot(draft: Draft, spec: ConcurrencySpec, step_id: str) -> Slot:
    key = _key_text(evaluate(spec.key, draft.context(step_id or None), draft.turn))
    token = draft.moment.token(draft.token_count)
    draft.token_count += 1
    return Slot(key, spec.limit, dispatch_id(token))  # a slot has no secret


def _key_text(key: Any) -> str:
    """The key as a string; a number becomes its text."""
    if isinstance(key, bool) or not isinstance(key, str | int | float):
        raise ExpressionError(f"it must be a string or a number, not {describe_type(key)}")
    text = str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)
    if not 0 < len(text) <= MAX_CONCURRENCY_KEY_LENGTH:
        raise ExpressionError(f"it must have 1 to {MAX_CONCURRENCY_KEY_LENGTH} characters, not {len(text)}")
    return text
