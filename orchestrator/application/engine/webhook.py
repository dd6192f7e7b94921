"""Webhooks: the end of an execution is posted to a URL.

The post is a unit of its own, `#webhook`, requested by the decision that ends the execution and dispatched by
advance(). It has attempts like every unit, and is the only unit that runs after the end; its result does not
change how the execution ended. When the execution is reopened, an unfinished webhook is cancelled, and the
next end is posted in the next round.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from orchestrator.application.engine.dispatch import dispatch
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import InvalidEvent, InvalidSpec
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import redact_text
from orchestrator.application.spec.model import WebhookSpec
from orchestrator.application.spec.report import Report, parse
from orchestrator.application.spec.step_models import WorkflowModel
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.unit_id import WEBHOOK_UNIT

MAX_ERROR_MESSAGE_LENGTH = 1_000
REJECTED_ERROR_TYPE = "Refused"
"""The exception of an executor that will not post this webhook, however often it is retried."""


def read_webhook(written: Any) -> dict[str, Any]:
    """Validate the webhook of a start, a URL or a mapping, and return it as the record stores it;
    InvalidEvent if it is not valid."""
    if isinstance(written, str):
        written = {"url": written}
    if not isinstance(written, dict):
        raise InvalidEvent(f"webhook: must be a URL or a mapping with a url, not {describe_value(written)}")
    document = {"steps": [], "webhook": written}
    report = Report(document)
    try:
        header = parse(WorkflowModel, document, (), report)
        report.raise_if_any()
    except InvalidSpec as error:
        raise InvalidEvent(str(error)) from error
    assert header.webhook is not None, "a webhook without problems is present"
    stored = asdict(header.webhook.to_spec())
    return {**stored, "on": list(stored["on"])}


def effective_webhook(record: WorkflowRecord) -> WebhookSpec | None:
    """The webhook of an execution: that of its start, or else that of its document."""
    if record.webhook is None:
        return record.spec.webhook
    return WebhookSpec(**{**record.webhook, "on": tuple(record.webhook["on"])})


def request_webhook(draft: Draft) -> None:
    """Add the webhook unit of an execution that has just ended, if its webhook covers this status. The unit
    is dispatched by the next advance()."""
    webhook = effective_webhook(draft.record)
    if webhook is None or draft.status.value not in webhook.on:
        return
    before, unit = draft.unit(WEBHOOK_UNIT), StepRecord()
    if before is not None:
        unit = StepRecord(run_id=before.run_id + 1, round=before.round + 1, dispatches=before.dispatches)
    draft.add_item(WEBHOOK_UNIT, unit)


def dispatch_webhook(draft: Draft) -> None:
    """Dispatch the webhook of an execution that has ended, if it is ready or due for a retry."""
    unit = draft.unit(WEBHOOK_UNIT)
    if unit is None or not unit.awaits_dispatch or draft.changes.deletes_execution:
        return
    webhook = effective_webhook(draft.record)
    assert webhook is not None, "a requested webhook has a spec"
    body = _body(draft)
    dispatch(draft, WEBHOOK_UNIT, {"url": webhook.url, "headers": dict(webhook.headers), "body": body})


def cancel_webhook(draft: Draft) -> None:
    """Cancel the unfinished webhook of an execution that is reopened."""
    unit = draft.unit(WEBHOOK_UNIT)
    if unit is None or unit.is_final:
        return
    draft.revoke(WEBHOOK_UNIT)
    draft.move(
        WEBHOOK_UNIT,
        StepStatus.SKIPPED if unit.status is StepStatus.READY else StepStatus.CANCELLED,
        reason="the execution runs again",
        ended_at=draft.moment.iso,
        token=None,
        deadline_ms=None,
        not_before_ms=None,
    )


def redact_webhook_error(draft: Draft, error: dict[str, Any]) -> dict[str, Any]:
    """The error of a failed post as it is recorded; its message may contain the response of any host."""
    message = redact_text(str(error["message"])[:MAX_ERROR_MESSAGE_LENGTH], draft.record.spec.redact)
    if error.get("type") == REJECTED_ERROR_TYPE:
        return make_failure("refused", message)
    return {**error, "message": message}


def _body(draft: Draft) -> dict[str, Any]:
    """The body of the post. A body that is too large is shortened to how the execution ended."""
    record, error = draft.record, draft.error or None
    if error is not None:
        error = {name: value for name, value in error.items() if name != "traceback"}
    view = RecordView(record.spec.redact, [record.inputs, dict(draft.state), draft.outcome, error])
    body: dict[str, Any] = {
        "execution_id": record.execution_id,
        "workflow_execution_id": record.workflow_execution_id,
        "workflow": record.spec.name,
        "status": draft.status.value,
        "outcome": view(draft.outcome),
        "error": view(error),
        "ended_at": draft.changes.fields.get("ended_at", record.ended_at),
        **({"labels": record.labels} if record.labels else {}),
    }
    if len(json.dumps(body)) <= record.spec.limits.max_output_bytes:
        return body
    short = None if error is None else {name: error[name] for name in ("kind", "step") if name in error}
    return {**body, "outcome": None, "error": short, "is_shortened": True}
