"""Webhooks: when an execution ends, somebody outside is told of it.

The word is a job of its own, under the name `#webhook`, made by the very decision that ends the execution. It
has attempts as every unit has, and is the one thing that still happens to an execution at its end; whatever
becomes of it, the execution has ended as it has. One that runs again takes its word back, and its next end is
told under the next round.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from orchestrator.application.engine.dispatch import dispatch
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import InvalidEvent, InvalidSpec
from orchestrator.application.records.events import failure
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import redact_text
from orchestrator.application.spec.model import WEBHOOK_UNIT, WebhookSpec
from orchestrator.application.spec.report import Report, kind, parse
from orchestrator.application.spec.step_models import WorkflowModel

MAX_ERROR_MESSAGE_LENGTH = 1_000
REJECTED_ERROR_TYPE = "Refused"
"""What an executor raises that is not going to post this, however often it is asked."""


def read_webhook(written: Any) -> dict[str, Any]:
    """The webhook of a start, a URL or a mapping, as the record keeps it; InvalidEvent if it is wrong."""
    if isinstance(written, str):
        written = {"url": written}
    if not isinstance(written, dict):
        raise InvalidEvent(f"webhook: must be a URL or a mapping with a url, not {kind(written)}")
    document = {"steps": [], "webhook": written}
    report = Report(document)
    try:
        header = parse(WorkflowModel, document, (), report)
        report.raise_if_any()
    except InvalidSpec as error:
        raise InvalidEvent(str(error)) from error
    assert header.webhook is not None, "what has no problem is there"
    kept = asdict(header.webhook.to_spec())
    return {**kept, "on": list(kept["on"])}


def effective_webhook(record: WorkflowRecord) -> WebhookSpec | None:
    """Whom an execution tells: the start has the first word, the document the second."""
    if record.webhook is None:
        return record.spec.webhook
    return WebhookSpec(**{**record.webhook, "on": tuple(record.webhook["on"])})


def request_webhook(draft: Draft) -> None:
    """The execution has ended: if somebody is to be told, that is to be dispatched, by whoever advances."""
    webhook = effective_webhook(draft.record)
    if webhook is None or draft.status.value not in webhook.on:
        return
    _take_back(draft)
    before, unit = draft.unit(WEBHOOK_UNIT), StepRecord()
    if before is not None:
        unit = StepRecord(run_id=before.run_id + 1, round=before.round + 1, dispatches=before.dispatches)
    draft.add_item(WEBHOOK_UNIT, unit)


def update_webhook(draft: Draft) -> None:
    """Dispatch what is to be told; of an execution that runs again, nothing is."""
    unit = draft.unit(WEBHOOK_UNIT)
    if unit is None or unit.is_final or draft.changes.deletes_execution:
        return
    if not draft.is_final:
        _take_back(draft)
    elif unit.awaits_dispatch:
        webhook = effective_webhook(draft.record)
        assert webhook is not None, "what was owed is not forgotten"
        body = _body(draft)
        dispatch(draft, WEBHOOK_UNIT, {"url": webhook.url, "headers": dict(webhook.headers), "body": body})


def redact_webhook_error(draft: Draft, error: dict[str, Any]) -> dict[str, Any]:
    """What is written down of an attempt that failed: it may say what a stranger answered."""
    message = redact_text(str(error["message"])[:MAX_ERROR_MESSAGE_LENGTH], draft.record.spec.redact)
    return (
        failure("refused", message)
        if error.get("type") == REJECTED_ERROR_TYPE
        else {**error, "message": message}
    )


def _take_back(draft: Draft) -> None:
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


def _body(draft: Draft) -> dict[str, Any]:
    """What is posted. One that is too large to be carried says how it ended and no more."""
    record, error = draft.record, draft.error or None
    if error is not None:
        error = {name: value for name, value in error.items() if name != "traceback"}
    shown = RecordView(record.spec.redact, [record.inputs, dict(draft.state), draft.outcome, error])
    body: dict[str, Any] = {
        "execution_id": record.execution_id,
        "workflow_execution_id": record.workflow_execution_id,
        "workflow": record.spec.name,
        "status": draft.status.value,
        "outcome": shown(draft.outcome),
        "error": shown(error),
        "ended_at": draft.changes.fields.get("ended_at", record.ended_at),
        **({"labels": record.labels} if record.labels else {}),
    }
    if len(json.dumps(body)) <= record.spec.limits.max_output_bytes:
        return body
    short = None if error is None else {name: error[name] for name in ("kind", "step") if name in error}
    return {**body, "outcome": None, "error": short, "is_shortened": True}
