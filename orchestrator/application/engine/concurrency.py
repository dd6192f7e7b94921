"""Concurrency keys: at most so many in progress under one key, across all executions.

Whether there is room is known only where all executions meet: a decision asks for a place, the store gives
it or puts the asker in line, and says so with a SlotEvent. Meanwhile the step is not dispatched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.finish import end_workflow
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.events import SlotEvent, failure
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import Slot
from orchestrator.application.spec.model import ConcurrencySpec

MAX_CONCURRENCY_KEY_LENGTH = 256


def acquire_slot(draft: Draft, step_id: str) -> bool:
    """Whether a step may be dispatched as far as its concurrency key goes; if not, it stands in line."""
    spec, step = draft.specs[step_id].concurrency, draft.step(step_id)
    if spec is None or step.slot is not None:
        return True
    draft.amend(step_id, slot=_wanted(draft, spec, step_id))
    return False


def acquire_workflow_slot(draft: Draft) -> bool:
    """The same for the whole execution, before its first step."""
    spec = draft.record.spec.concurrency
    if spec is None:
        return True
    if draft.slot is None:
        try:
            draft.set_workflow_slot(_wanted(draft, spec, ""))
        except ExpressionError as error:
            fault = failure("expression", f"concurrency.key cannot be evaluated: {error}")
            end_workflow(draft, WorkflowStatus.FAILED, "workflow failed", error=fault)
            return False
    return draft.slot is not None and bool(draft.slot["is_held"])


def on_slot(draft: Draft, event: SlotEvent) -> None:
    """A place is ours. One that nobody waits for any more was given back when that was decided."""
    if not event.step_id:
        if draft.slot is not None and draft.slot["token"] == event.token:
            draft.changes.fields["slot"] = {**draft.slot, "is_held": True}
            return
    elif event.step_id in draft.graph.index:
        slot = draft.step(event.step_id).slot
        if slot is not None and slot.token == event.token:
            draft.amend(event.step_id, slot=replace(slot, is_held=True))
            return
    draft.count("stale")


def _wanted(draft: Draft, spec: ConcurrencySpec, step_id: str) -> Slot:
    key = _text(evaluate(spec.key, draft.context(step_id or None)))
    token = f"{draft.moment.nonce}-{draft.token_count}"
    draft.token_count += 1
    return Slot(key, spec.limit, token)


def _text(key: Any) -> str:
    """A key is a text; a number counts as its text."""
    if isinstance(key, bool) or not isinstance(key, str | int | float):
        raise ExpressionError(f"it must give a text or a number, not {type(key).__name__}")
    text = str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)
    if not 0 < len(text) <= MAX_CONCURRENCY_KEY_LENGTH:
        raise ExpressionError(f"it must have 1 to {MAX_CONCURRENCY_KEY_LENGTH} characters, not {len(text)}")
    return text
