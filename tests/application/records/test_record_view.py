"""What stands under a key that names a secret is not shown anywhere else either, in any view."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.spec.model import WebhookSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.cli.commands.dead_letters import _redact_letter
from orchestrator.cli.output import overview, report
from orchestrator.cli.output.progress import PlainProgress
from orchestrator.cli.output.step_details import format_details
from orchestrator.cli.output.values import redact_text, redact_value
from orchestrator.local.what_if import what_if
from orchestrator.redis_rq.dead_letters import DeadLetter
from worlds.engine_world import world_of
from worlds.specs import task

PASSWORD = "hunter2-hunter2"
NOW_MS = 1_800_000_000_000
ERROR = {"kind": "exception", "type": "LoginError", "message": f"no login with {PASSWORD} for ada"}


@pytest.fixture
def record() -> WorkflowRecord:
    spec = {
        "name": "login",
        "steps": [{"op": "login", "input": {"user": "ada"}}, {"op": "next"}],
        "redact": ["iban"],
    }
    return WorkflowRecord(
        check_spec(spec),
        "l-1",
        inputs={"user": "ada", "password": PASSWORD},
        created_at="2026-01-01T00:00:00.000Z",
        status=WorkflowStatus.FAILED,
        state={"said": f"the password is {PASSWORD}"},
        error={**ERROR, "step": "login", "compensation_errors": [{"step": "login", **ERROR}]},
        outcome={"said": PASSWORD, "of": "DE001234"},
        steps={
            "login": StepRecord(
                StepStatus.FAILED, error=ERROR, output={"ok": False, "error": ERROR["message"]}
            ),
            "next": StepRecord(StepStatus.SKIPPED, reason=f"login said {PASSWORD}"),
        },
        items={"login#undo": StepRecord(StepStatus.COMPLETE, output={"iban": "DE001234"})},
    )


def test_the_same_value_is_hidden_wherever_else_it_stands(record: WorkflowRecord) -> None:
    assert redact_value(record, ERROR)["message"] == f"no login with {REDACTED} for ada"
    assert redact_value(record, {"a": ["of DE001234", "ada"], "token": 1}) == {
        "a": [f"of {REDACTED}", "ada"],
        "token": REDACTED,
    }
    assert redact_text(record, f'{{"error": "{PASSWORD}"}}') == f'{{"error": "{REDACTED}"}}'


def test_each_record_has_its_own(record: WorkflowRecord) -> None:
    other = WorkflowRecord(record.loaded, "l-2", inputs={"token": "swordfish"}, created_at=record.created_at)

    assert redact_value(record, "swordfish") == "swordfish"
    assert redact_value(other, "swordfish") == REDACTED
    assert redact_value(record, PASSWORD) == REDACTED


def test_no_view_has_it(record: WorkflowRecord) -> None:
    views = [
        report.as_json(StatusView(record)),
        report.summary(record),
        "\n".join(overview.format_result(record)),
        str(overview.step_rows(StatusView(record), NOW_MS)),
        *(
            "\n".join(format_details(StatusView(record), unit, NOW_MS, {"again": PASSWORD}))
            for unit in ("login", "next", "login#undo")
        ),
    ]

    for view in views:
        assert PASSWORD not in view
        assert "DE001234" not in view
    assert "ada" in views[0]
    assert REDACTED in "".join(views)


def test_the_progress_of_a_run_does_not_have_it(
    record: WorkflowRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    entry = {"at": "2026-01-01T00:00:01.000Z", "step": "login", "to": "failed", "attempt": 1, "error": ERROR}

    PlainProgress(sys.stdout).show(StatusView(record), [entry])

    assert f"login: failed: LoginError: no login with {REDACTED} for ada" in capsys.readouterr().out


def test_names_that_the_spec_does_not_list_are_redacted_too(record: WorkflowRecord) -> None:
    record.inputs["pin"] = "0815-4711"

    assert make_record_view(record)("0815-4711") == "0815-4711"
    assert make_record_view(record, ["pin"])("0815-4711") == REDACTED
    assert RecordView([], [])("0815-4711") == "0815-4711"


# ---- what leaves


def test_a_webhook_does_not_have_it() -> None:
    world = world_of(task("a"), webhook=WebhookSpec("https://hooks.example.org"))
    world.record.inputs["password"] = PASSWORD
    world.advance()

    world.fail("a", f"no login with {PASSWORD}")

    [job] = world.last.jobs
    assert job.inputs["body"]["error"]["message"] == f"no login with {REDACTED}"


def test_what_if_does_not_have_it() -> None:
    old = {"steps": [{"op": "a", "input": {"password": {"var": "input.password"}, "n": 1, "note": PASSWORD}}]}
    new = {
        "steps": [{"op": "a", "input": {"password": "another", "n": PASSWORD, "note": 60 * "x" + PASSWORD}}]
    }
    record = WorkflowRecord(check_spec(old), "w-1", {"password": PASSWORD}, "2026-01-01T00:00:00.000Z")
    record.steps["a"] = StepRecord(StepStatus.COMPLETE, output={"x": PASSWORD}, dispatches=1)

    found = what_if(record, check_spec(new))

    [step] = found.steps
    assert step.how == (
        f'it would run again: input n would be "{REDACTED}" instead of 1; '
        f'input note would be "{58 * "x"}… instead of "{REDACTED}"; '
        f'input password would be "{REDACTED}" instead of "{REDACTED}"'
    )


def test_what_if_sees_a_difference_beyond_what_it_shows() -> None:
    old, new = ({"steps": [{"op": "a", "input": {"text": 100 * "x" + end}}]} for end in "ab")
    record = WorkflowRecord(check_spec(old), "w-1", {}, "2026-01-01T00:00:00.000Z")
    record.steps["a"] = StepRecord(StepStatus.COMPLETE, output={}, dispatches=1)

    assert not what_if(record, check_spec(new)).is_same
    assert what_if(record, check_spec(old)).is_same


# ---- dead letters


def letter(reason: str, **fields: Any) -> DeadLetter:
    texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in fields.items()}
    return DeadLetter("1-0", reason, "orchestrator:events", "2-0", texts)


def test_a_dead_letter_is_shown_without_it() -> None:
    reason, fields = _redact_letter(
        letter(
            f"cannot take {PASSWORD}",
            type="result",
            token="t-0",
            inputs={"password": PASSWORD, "n": [1]},
            output={"said": PASSWORD, "t-0": "t-0"},
            note=f"it said {PASSWORD}, token=abc",
            plain={"n": 1},
        )
    )

    assert reason == f"cannot take {REDACTED}"
    assert fields == {
        "type": "result",
        "token": "t-0",
        "inputs": json.dumps({"password": REDACTED, "n": [1]}),
        "output": json.dumps({"said": REDACTED, "t-0": "t-0"}),
        "note": f"it said {REDACTED}, token={REDACTED}",
        "plain": '{"n": 1}',
    }


def test_a_dead_letter_is_shown_with_the_public_part_of_its_token() -> None:
    _, fields = _redact_letter(letter("unknown", type="result", token="d1.secret"))

    assert fields == {"type": "result", "token": "d1"}


def test_moments_are_not_hidden_by_chance() -> None:
    """A number is only a secret if it is one as a whole."""
    at = datetime(2026, 1, 1, tzinfo=UTC).isoformat()

    assert RecordView([], [{"token": "2026-01"}])({"at": at, "n": 2026}) == {
        "at": f"{REDACTED}-01T00:00:00+00:00",
        "n": 2026,
    }


def test_a_view_says_whether_secrets_occur_elsewhere() -> None:
    assert RecordView((), [{"password": PASSWORD}]).has_secrets
    assert not RecordView((), [{"name": PASSWORD}]).has_secrets
