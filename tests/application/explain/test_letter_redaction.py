"""A dead letter is shown without its secrets."""

from __future__ import annotations

from orchestrator.application.explain.letter_redaction import redact_letter
from orchestrator.application.redaction.by_key import REDACTED


def test_the_secrets_of_an_event_are_redacted_also_in_the_reason() -> None:
    fields = {"inputs": '{"user": "ada", "password": "s3cret-1"}', "note": "uses s3cret-1", "step": "check"}

    reason, shown = redact_letter("bad login with s3cret-1", fields)

    assert "s3cret-1" not in f"{reason}{shown}"
    assert shown["inputs"] == f'{{"user": "ada", "password": "{REDACTED}"}}'
    assert shown["step"] == "check"


def test_a_field_without_a_secret_stays_as_it_is() -> None:
    fields = {"inputs": '{"b":1,  "a":2}', "spec": "{not json", "deep": "[" * 100_000}

    assert redact_letter("no", fields) == ("no", fields)


def test_of_a_token_the_public_part_is_shown() -> None:
    assert redact_letter("stale", {"token": "d1.s3cret"}) == ("stale", {"token": "d1"})
