"""Secrets are redacted by value, in their usual encodings, and nothing else is changed."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.application.redaction.by_key import MAX_REDACTION_DEPTH, REDACTED, collect_secrets
from orchestrator.application.redaction.by_value import MIN_SECRET_LENGTH, ValueRedactor, encoded_forms

SECRET = 'p/a+s "w\\ord" \n ü&1'
texts = st.text(st.characters(codec="utf-8"), min_size=MIN_SECRET_LENGTH, max_size=30)


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        repr(SECRET)[1:-1],
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(SECRET))[3:-3],
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_secret_is_hidden_as_it_is_and_in_its_usual_encodings(written: str) -> None:
    assert ValueRedactor([SECRET]).redact_text(f"with {written}, it said") == f"with {REDACTED}, it said"


@pytest.mark.parametrize("user", ["", "a", "ad", "ada", "adaa", "é"])
@pytest.mark.parametrize("rest", ["", "!", "!!", "!!!"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_in_base64_a_secret_is_hidden_also_as_a_part_of_a_longer_text(
    user: str, rest: str, encode: Any
) -> None:
    secret = "hunter2>>??~correct horse"
    basic = encode(f"{user}:{secret}{rest}".encode()).decode()

    shown = ValueRedactor([secret]).redact_text(f"Basic {basic}")

    assert REDACTED in shown
    left = shown.removeprefix("Basic ").replace(REDACTED, "")
    assert len(left) <= len(encode(f"{user}:{rest}".encode())) + 4


def test_the_lines_of_a_secret_are_secrets_if_they_are_long_enough() -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nend\n-----END KEY-----\n"

    hiding = ValueRedactor([key])

    assert hiding.redact_text("it has MIIEpAIBAAKCAQEA in line 2, end") == f"it has {REDACTED} in line 2, end"
    assert hiding.redact_text(key.strip()) == REDACTED


def test_a_short_secret_is_not_hidden() -> None:
    hiding = ValueRedactor(["abc", ""])

    assert not hiding
    assert hiding.redact_text("abc, and an abcissa") == "abc, and an abcissa"
    assert hiding.redact_value(["abc"]) == ["abc"]


def test_the_longest_secret_wins_and_overlapping_ones_are_hidden_together() -> None:
    hiding = ValueRedactor(["abcd", "abcdef", "efgh1234", "wxyz"])

    assert hiding.redact_text("abcdef abcd") == f"{REDACTED} {REDACTED}"
    assert hiding.redact_text("abcdefgh1234.") == f"{REDACTED}."
    assert hiding.redact_text("wxyzwxyz") == 2 * REDACTED
    assert hiding.redact_text("aabcd wxy ab") == f"a{REDACTED} wxy ab"


def test_a_secret_is_hidden_in_strings_in_keys_and_as_a_number() -> None:
    hiding = ValueRedactor(["12345", "hunter2", "true", "1.25"])

    value = {"hunter2": [12345, 112345, 1.25, True, None, "is hunter2"], "deep": ({"a": "b"},)}

    assert hiding.redact_value(value) == {
        REDACTED: [REDACTED, 112345, REDACTED, True, None, f"is {REDACTED}"],
        "deep": [{"a": "b"}],
    }
    assert value["deep"] == ({"a": "b"},)


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_a_value_below_the_depth_limit_is_hidden(wrap: Any) -> None:
    value: Any = "hunter2"
    for _ in range(2 * MAX_REDACTION_DEPTH):
        value = wrap(value)

    shown = json.dumps(ValueRedactor(["hunter2"]).redact_value(value))

    assert REDACTED in shown
    assert "hunter2" not in shown


@given(st.lists(texts, min_size=1, max_size=4), st.lists(st.text(max_size=20), max_size=5), st.data())
def test_no_secret_is_left_in_any_text(secrets: list[str], others: list[str], data: st.DataObject) -> None:
    assume(not any(secret in REDACTED for secret in secrets))
    parts = data.draw(st.lists(st.sampled_from([*secrets, *others]), max_size=8))
    text = "".join(parts)

    shown = ValueRedactor(secrets).redact_text(text)

    assert not any(secret in part for secret in secrets for part in shown.split(REDACTED))
    if not any(form in text for secret in secrets for form in encoded_forms(secret)):
        assert shown == text


def test_many_secrets_take_hardly_longer_than_one() -> None:
    text = "the quick brown fox jumps over the lazy dog; " * 20_000
    few, many = (
        ValueRedactor(["hunter2hunter2"]),
        ValueRedactor(f"{n:05}hunter{n * 7919}" for n in range(2_000)),
    )

    def took(hiding: ValueRedactor) -> float:
        began = time.process_time()
        assert hiding.redact_text(text) == text
        return time.process_time() - began

    once = min(took(few) for _ in range(3))
    assert min(took(many) for _ in range(3)) < 50 * once + 0.5


# ---- by the names of keys


def test_every_string_under_a_key_that_names_a_secret_is_a_secret() -> None:
    value = {
        "user": "ada",
        "password": "one",
        "tokens": ["two", {"value": "three"}, 4],
        "deep": [{"iban": "five", "n": 6}],
        "secret": None,
    }

    assert list(collect_secrets(value, ["IBAN"])) == ["one", "two", "three", "five"]
    assert list(collect_secrets("password")) == []


def test_values_below_the_depth_limit_are_not_searched() -> None:
    value: Any = {"password": "x"}
    for _ in range(MAX_REDACTION_DEPTH):
        value = [value]

    assert list(collect_secrets(value)) == []


@given(
    st.sampled_from([SECRET, "plain-secret", "1e-07", "12345"]),
    st.recursive(
        st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([SECRET, "plain-secret"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    ),
)
def test_a_json_text_that_cannot_change_is_that_of_a_value_that_does_not(secret: str, value: Any) -> None:
    redactor = ValueRedactor([secret])
    text = json.dumps(value, ensure_ascii=False)

    assert redactor.may_change_json(text) or redactor.redact_value(value) == value


def test_a_text_without_the_secret_cannot_change() -> None:
    assert not ValueRedactor(["plain-secret"]).may_change_json('{"a": "plain"}')
    assert not ValueRedactor().may_change_json("plain-secret")
