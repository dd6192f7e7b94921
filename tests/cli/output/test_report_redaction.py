"""The output for an execution contains no secret, in any format, and has a line for its webhook."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fakeredis import FakeRedis, FakeServer

from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import Parent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.cli.output import report
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore

SPEC = {"name": "order", "steps": [{"op": "check"}], "redact": ["iban"]}
SECRETS = {"user": "ada", "password": "s3cret", "deep": [{"iban": "s3cret"}], "note": None}
SHOWN = {"user": "ada", "password": REDACTED, "deep": [{"iban": REDACTED}], "note": None}
ERROR = {"kind": "exception", "message": "no", "request": SECRETS}


@pytest.fixture
def record() -> WorkflowRecord:
    return WorkflowRecord(
        check_spec(SPEC),
        "order-1",
        inputs=SECRETS,
        created_at="2026-01-01T00:00:00.000Z",
        status=WorkflowStatus.FAILED,
        state={"token": "s3cret", "found": SECRETS},
        outcome=SECRETS,
        error=ERROR,
        steps={"check": StepRecord(StepStatus.FAILED, output=SECRETS, error=ERROR)},
        items={
            "check#undo": StepRecord(StepStatus.COMPLETE, output=SECRETS, value=SECRETS),
            WEBHOOK_UNIT: StepRecord(
                StepStatus.RETRY, attempt=3, error={"kind": "exception", "message": "500"}
            ),
        },
        parent=Parent("w#p", "kid", 0, 1, "n-0", "p"),
        webhook={"url": "https://hooks.example.org", "headers": {"X-Key": "s3cret"}, "on": []},
    )


def test_as_json_no_secret_is_shown(record: WorkflowRecord) -> None:
    shown = json.loads(report.as_json(StatusView(record)))

    assert "s3cret" not in report.as_json(StatusView(record))
    assert (shown["inputs"], shown["outcome"]) == (SHOWN, SHOWN)
    assert shown["state"] == {"token": REDACTED, "found": SHOWN}
    assert shown["error"] == {**ERROR, "request": SHOWN}
    assert (shown["steps"]["check"]["output"], shown["items"]["check#undo"]["output"]) == (SHOWN, SHOWN)
    assert shown["steps"]["check"]["error"] == {**ERROR, "request": SHOWN}


def test_our_own_fields_are_shown_even_if_they_look_secret(record: WorkflowRecord) -> None:
    shown: Any = as_dict(StatusView(record))

    assert shown["parent"]["token"] == "n-0"


def test_of_the_token_of_a_dispatch_the_public_part_is_shown(record: WorkflowRecord) -> None:
    running = StepRecord(StepStatus.IN_PROGRESS, token="d1.s3cret")
    parent = Parent("w#p", "kid", 0, 1, "d2.s3cret", "p")
    record = replace(record, steps={"check": running}, parent=parent)
    redis = FakeRedis(server=FakeServer(), protocol=2, decode_responses=True)
    RedisStore(redis).write(record)

    dump = report.dump_redis_keys(record, redis, Keys()).splitlines()
    shown: Any = as_dict(StatusView(record))

    fields = {name: json.loads(dump[dump.index(name) + 1]) for name in ("step:check", "parent")}
    assert {name: field["token"] for name, field in fields.items()} == {"step:check": "d1", "parent": "d2"}
    assert shown["parent"]["token"] == "d2"
    assert "d1.s3cret" in str(redis.hgetall(Keys().workflow(record.workflow_execution_id)))


def test_a_summary_has_no_secret_and_a_line_for_the_webhook(record: WorkflowRecord) -> None:
    told = report.summary(record)

    assert "s3cret" not in told
    assert f"outcome: {json.dumps(SHOWN)}" in told
    assert "  #webhook    retry                  attempt 3  500" in told.splitlines()


def test_the_dump_of_redis_has_no_secrets_and_is_otherwise_unchanged(record: WorkflowRecord) -> None:
    redis = FakeRedis(server=FakeServer(), protocol=2, decode_responses=True)
    RedisStore(redis).write(record)
    key = Keys().workflow(record.workflow_execution_id)
    held: Any = redis.hgetall(key)

    shown = report.dump_redis_keys(record, redis, Keys())

    assert "s3cret" in json.dumps(held)
    assert "s3cret" not in shown
    lines = shown.splitlines()
    of = {name: lines[lines.index(name) + 1] for name in held}
    assert json.loads(of["inputs"]) == SHOWN
    assert json.loads(of["state:token"]) == REDACTED
    assert json.loads(of["state:found"]) == SHOWN
    assert json.loads(of["step:check"])["output"] == SHOWN
    assert json.loads(of["item:check:undo"])["value"] == SHOWN
    assert json.loads(of["webhook"])["headers"] == {"X-Key": REDACTED}
    for name in ("parent", "status", "created_at", "version", "item::webhook", "name"):
        assert of[name] == held[name]
