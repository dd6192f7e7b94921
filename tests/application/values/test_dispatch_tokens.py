"""Tokens of dispatches: what others may know of them, and what they may not."""

from __future__ import annotations

from orchestrator.application.records.events import Moment
from orchestrator.application.values.dispatch_tokens import dispatch_id, has_secret


def test_a_token_of_a_decision_with_secrets_has_an_id_and_a_secret() -> None:
    token = Moment(0, "nonce", has_secrets=True).token(0)

    name, _, secret = token.partition(".")
    assert has_secret(token)
    assert dispatch_id(token) == name
    assert (len(name), len(secret)) == (12, 12)
    assert token == Moment(9, "nonce", has_secrets=True).token(0), "a decision can be repeated"


def test_tokens_of_one_decision_have_nothing_in_common() -> None:
    moment = Moment(0, "nonce", has_secrets=True)
    parts = [part for number in range(100) for part in moment.token(number).split(".")]

    assert len(set(parts)) == 200
    assert not [part for part in parts if "nonce" in part]


def test_a_token_without_a_secret_is_its_own_id() -> None:
    token = Moment(0, "nonce").token(3)

    assert (token, dispatch_id(token), has_secret(token)) == ("nonce-3", "nonce-3", False)
