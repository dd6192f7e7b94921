"""Compensations: when a workflow fails or is cancelled, what its steps have done is undone.

One at a time, the newest completion first, each as an ordinary job with attempts of its own, under the name
`<step>#undo`. One that fails for good is noted, and the next one runs.
"""

from __future__ import annotations

from orchestrator.application.engine.dispatch import dispatch
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import resolve
from orchestrator.application.records.events import failure
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import COMPENSATION_PART
from orchestrator.application.values.payload_refs import MAX_JOB_BYTES, check_inputs_size


def is_compensation(unit: str) -> bool:
    return unit.endswith(f"#{COMPENSATION_PART}")


def needs_compensation(draft: Draft) -> bool:
    """Whether something has completed that can be undone, and is not."""
    return _next(draft) is not None


def compensate(draft: Draft) -> bool:
    """See to it that one compensation is under way; False when none is left."""
    unit = draft.ending.get("undoing")
    if unit is not None:
        if not draft.require_unit(unit).is_final:
            return _dispatch(draft, unit) if draft.require_unit(unit).awaits_dispatch else True
        _note_error(draft, unit)
    while (step_id := _next(draft)) is not None:
        unit = f"{step_id}#{COMPENSATION_PART}"
        draft.add_item(unit, StepRecord(run_id=draft.step(step_id).run_id))
        draft.changes.fields["ending"] = {**draft.ending, "undoing": unit}
        if _dispatch(draft, unit):
            return True
        _note_error(draft, unit)
    return False


def _dispatch(draft: Draft, unit: str) -> bool:
    """False when its inputs cannot be resolved: it has failed."""
    context = draft.context(unit, output=draft.step(unit.partition("#")[0]).output)
    try:
        inputs = {key: resolve(value, context) for key, value in draft.spec(unit).input.items()}
        check_inputs_size(inputs, unit, MAX_JOB_BYTES)
    except ExpressionError as error:
        fault = failure("expression", f"input cannot be resolved: {error}")
        draft.move(unit, StepStatus.FAILED, error=fault, ended_at=draft.moment.iso)
        return False
    dispatch(draft, unit, inputs)
    return True


def _note_error(draft: Draft, unit: str) -> None:
    error = draft.require_unit(unit).error
    if error is not None:
        step_id = unit.partition("#")[0]
        noted = {"step": step_id, "kind": error["kind"], "message": error["message"]}
        draft.changes.fields["ending"] = {**draft.ending, "errors": [*draft.ending["errors"], noted]}


def _next(draft: Draft) -> str | None:
    """The step that completed last of those that can be undone and are not."""
    latest, found = 0, None
    for spec in draft.record.spec.steps:
        if spec.compensate is None:
            continue
        step = draft.step(spec.id)
        completion = step.completion or 0
        is_undone = draft.unit(f"{spec.id}#{COMPENSATION_PART}") is not None
        if step.status is StepStatus.COMPLETE and completion > latest and not is_undone:
            latest, found = completion, spec.id
    return found
