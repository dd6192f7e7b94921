"""Who takes in what a unit brought back: a step, an item of a map, a compensation, or the webhook."""

from __future__ import annotations

from orchestrator.application.engine.compensation import is_undo
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.maps import on_item
from orchestrator.application.engine.results import (
    Error,
    Output,
    StepResult,
    bring,
    judged,
    next_delay_ms,
    try_again,
    write_down,
)
from orchestrator.application.engine.webhook import error_of
from orchestrator.application.records.decisions import Pending
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import WEBHOOK


def bring_unit(
    draft: Draft,
    unit: str,
    output: Output,
    error: Error,
    worker: str | None = None,
    started_at: str | None = None,
) -> StepResult:
    if "#" not in unit:
        return bring(draft, unit, output, error, worker, started_at)
    if is_undo(unit):
        return _bring_alone(draft, unit, output, error, worker, started_at)
    if unit == WEBHOOK:
        if error is not None:
            output, error = None, error_of(draft, error)
        return _bring_alone(draft, unit, output, error, worker, started_at)
    return on_item(draft, unit, output, error, worker, started_at)


def _bring_alone(
    draft: Draft, unit: str, output: Output, error: Error, worker: str | None, started_at: str | None
) -> StepResult:
    """A unit that no branch judges and no step waits for."""
    error = None if error is None else judged(draft, unit, error)
    write_down(draft, unit, output, error, worker, started_at)
    delay_ms = next_delay_ms(draft, unit, error) if error is not None else None
    if delay_ms is not None:
        return try_again(draft, unit, delay_ms)
    status = StepStatus.COMPLETE if error is None else StepStatus.FAILED
    draft.move(unit, status, error=error, ended_at=draft.moment.iso)
    return Pending()
