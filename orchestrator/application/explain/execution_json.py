"""An execution and its steps as JSON, as `show --json` and the HTTP API return them.

Secrets are redacted, and of the token of a dispatch only the public part is shown.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.visible_fields import hide_token_secret


def as_dict(view: StatusView, redact: RecordView | None = None) -> dict[str, Any]:
    """Return an execution with all of its steps and items. `redact` is the view of its record, for callers
    that need it again."""
    record = view.record
    redact = redact or make_record_view(record)
    return {
        "workflow_execution_id": record.workflow_execution_id,
        "execution_id": record.execution_id,
        "workflow_id": record.workflow_id,
        "name": record.spec.name,
        "status": record.status.value,
        "outcome": redact(record.outcome),
        "error": redact(record.error),
        "inputs": redact(record.inputs),
        "state": redact(record.state),
        "group": record.group,
        "schedule": record.schedule,
        "parent": None if record.parent is None else hide_token_secret(asdict(record.parent)),
        "paused": record.pause_details,
        "cancelled": record.cancelled,
        "compensated": record.compensated,
        "created_at": record.created_at,
        "ended_at": record.ended_at,
        "steps": {unit: step_as_dict(view, unit, step, redact) for unit, step in record.steps.items()},
        "items": {unit: step_as_dict(view, unit, item, redact) for unit, item in record.items.items()},
    }


def step_as_dict(view: StatusView, unit: str, step: StepRecord, redact: RecordView) -> dict[str, Any]:
    """Return a step, an item of a map or a compensation."""
    return {
        "status": view.status_of(unit, step),
        "run_id": step.run_id,
        "attempt": step.attempt,
        "output": redact(step.output),
        "error": redact(step.error),
        "reason": redact(step.reason),
        "worker": step.worker,
        "child": step.child,
        "dispatched_at": step.dispatched_at,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
    }
