"""Who takes in what a unit brought back: a step, an item of a map, a compensation, or the webhook."""

from __future__ import annotations

from orchestrator.application.engine.compensation import is_compensation
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.maps import apply_item_result
from orchestrator.application.engine.results import (
    Error,
    Output,
    StepResult,
    apply_result,
    mark_non_retryable,
    record_result,
    retry_delay_ms,
    schedule_retry,
)
from orchestrator.application.engine.webhook import redact_webhook_error
from orchestrator.application.records.decisions import Pending
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import WEBHOOK_UNIT


def apply_unit_result(
    draft: Draft,
    unit: str,
    output: Output,
    error: Error,
    worker: str | None = None,
    started_at: str | None = None,
) -> StepResult:
    if "#" not in unit:
        return apply_result(draft, unit, output, error, worker, started_at)
    if is_compensation(unit):
        return _bring_alone(draft, unit, output, error, worker, started_at)
    if unit == WEBHOOK_UNIT:
        if error is not None:
            output, error = None, redact_webhook_error(draft, error)
        return _bring_alone(draft, unit, output, error, worker, started_at)
    return apply_item_result(draft, unit, output, error, worker, started_at)


def _bring_alone(
    draft: Draft, unit: str, output: Output, error: Error, worker: str | None, started_at: str | None
) -> StepResult:
    """A unit that no branch judges and no step waits for."""
    error = None if error is None else mark_non_retryable(draft, unit, error)
    record_result(draft, unit, output, error, worker, started_at)
    delay_ms = retry_delay_ms(draft, unit, error) if error is not None else None
    if delay_ms is not None:
        return schedule_retry(draft, unit, delay_ms)
    status = StepStatus.COMPLETE if error is None else StepStatus.FAILED
    draft.move(unit, status, error=error, ended_at=draft.moment.iso)
    return Pending()
