"""Compensations: when a workflow fails or is cancelled, its completed steps are undone.

They run one at a time, the latest completion first. Each is an ordinary job with its own attempts, under the
unit id `<step>#undo`. One that fails permanently is noted in the errors, and the next one runs.
"""

from __future__ import annotations

from orchestrator.application.engine.dispatch import dispatch
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.resolution import resolve_inputs
from orchestrator.application.errors import ExpressionError
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import UnitId, step_of


def needs_compensation(draft: Draft) -> bool:
    """Whether a completed step has a compensation that has not been started."""
    return _next_step(draft) is not None


def advance_compensation(draft: Draft) -> bool:
    """Make sure that one compensation is in progress; False when none is left."""
    unit = draft.ending.get("undoing")
    if unit is not None:
        if not draft.require_unit(unit).is_final:
            return _dispatch(draft, unit) if draft.require_unit(unit).awaits_dispatch else True
        _note_error(draft, unit)
    while (step_id := _next_step(draft)) is not None:
        unit = UnitId.for_compensation(step_id)
        draft.add_item(unit, StepRecord(run_id=draft.step(step_id).run_id))
        draft.changes.fields["ending"] = {**draft.ending, "undoing": unit}
        if _dispatch(draft, unit):
            return True
        if draft.is_turn_over:
            draft.changes.has_more_ready = True  # the next decision notes the error, and goes on
            return True
        _note_error(draft, unit)
    return False


def _dispatch(draft: Draft, unit: str) -> bool:
    """Dispatch a compensation; False when its inputs cannot be resolved and it has failed."""
    context = draft.context(unit, output=draft.step(step_of(unit)).output)
    try:
        inputs = resolve_inputs(draft, unit, draft.spec(unit).input, context)
    except ExpressionError as error:
        failure = make_failure("expression", f"input cannot be resolved: {error}")
        draft.move(unit, StepStatus.FAILED, error=failure, ended_at=draft.moment.iso)
        return False
    dispatch(draft, unit, inputs)
    return True


def _note_error(draft: Draft, unit: str) -> None:
    """Add the error of a failed compensation to those of the ending."""
    error = draft.require_unit(unit).error
    if error is not None:
        noted = {"step": step_of(unit), "kind": error["kind"], "message": error["message"]}
        draft.changes.fields["ending"] = {**draft.ending, "errors": [*draft.ending["errors"], noted]}


def _next_step(draft: Draft) -> str | None:
    """The step that completed last among those whose compensation has not been started."""
    latest, found = 0, None
    for spec in draft.record.spec.steps:
        if spec.compensate is None:
            continue
        step = draft.step(spec.id)
        completion = step.completion or 0
        is_started = draft.unit(UnitId.for_compensation(spec.id)) is not None
        if step.status is StepStatus.COMPLETE and completion > latest and not is_started:
            latest, found = completion, spec.id
    return found
