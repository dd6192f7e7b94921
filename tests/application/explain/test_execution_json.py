"""An execution as JSON: all fields, and no secret."""

from __future__ import annotations

import json
from dataclasses import replace

from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import Parent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.spec.validation import check_spec

SPEC = {"name": "order", "steps": [{"op": "check"}], "redact": ["iban"]}
SECRETS = {"user": "ada", "password": "s3cret", "deep": [{"iban": "s3cret"}], "note": None}
SHOWN = {"user": "ada", "password": REDACTED, "deep": [{"iban": REDACTED}], "note": None}
ERROR = {"kind": "exception", "message": "no", "request": SECRETS}
RECORD = WorkflowRecord(
    check_spec(SPEC),
    "order-1",
    inputs=SECRETS,
    created_at="2026-01-01T00:00:00.000Z",
    status=WorkflowStatus.FAILED,
    state={"token": "s3cret", "found": SECRETS},
    outcome=SECRETS,
    error=ERROR,
    steps={"check": StepRecord(StepStatus.FAILED, 2, 3, output=SECRETS, error=ERROR)},
    items={"check#undo": StepRecord(StepStatus.COMPLETE, output=SECRETS, value=SECRETS)},
    parent=Parent("w#p", "kid", 0, 1, "d2.s3cret", "p"),
)


def test_an_execution_as_json_has_no_secret() -> None:
    shown = as_dict(StatusView(RECORD))

    assert "s3cret" not in json.dumps(shown)
    assert (shown["inputs"], shown["outcome"]) == (SHOWN, SHOWN)
    assert shown["state"] == {"token": REDACTED, "found": SHOWN}
    assert shown["error"] == {**ERROR, "request": SHOWN}
    assert shown["steps"]["check"]["error"] == {**ERROR, "request": SHOWN}
    assert shown["items"]["check#undo"]["output"] == SHOWN


def test_of_the_token_of_its_parent_the_public_part_is_shown() -> None:
    assert as_dict(StatusView(RECORD))["parent"]["token"] == "d2"
    assert as_dict(StatusView(replace(RECORD, parent=None)))["parent"] is None


def test_a_step_as_json_has_the_status_that_commands_show() -> None:
    running = replace(RECORD, steps={"check": StepRecord(StepStatus.IN_PROGRESS, token="d1.s3cret")})

    shown = as_dict(StatusView(running, {"check"}), make_record_view(running))

    assert shown["steps"]["check"] == {
        "status": "queued",
        "run_id": 0,
        "attempt": 1,
        "output": None,
        "error": None,
        "reason": None,
        "worker": None,
        "child": None,
        "dispatched_at": None,
        "started_at": None,
        "ended_at": None,
    }
