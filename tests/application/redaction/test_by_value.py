"""Secrets are found by value, in the forms in which they usually occur, and nothing else is touched."""

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
def test_a_secret_is_hidden_as_it_is_and_as_it_is_usually_quoted(written: str) -> None:
    assert ValueRedactor([SECRET]).text(f"with {written}, it said") == f"with {REDACTED}, it said"


@pytest.mark.parametrize("user", ["", "a", "ad", "ada", "adaa", "é"])
@pytest.mark.parametrize("rest", ["", "!", "!!", "!!!"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_in_base64_it_is_hidden_also_as_a_part_of_something_longer(user: str, rest: str, encode: Any) -> None:
    secret = "hunter2>>??~correct horse"
    basic = encode(f"{user}:{secret}{rest}".encode()).decode()

    shown = ValueRedactor([secret]).text(f"Basic {basic}")

    assert REDACTED in shown
    left = shown.removeprefix("Basic ").replace(REDACTED, "")
    assert len(left) <= len(encode(f"{user}:{rest}".encode())) + 4


def test_the_lines_of_a_secret_are_secrets_if_they_are_long_enough() -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nend\n-----END KEY-----\n"

    hiding = ValueRedactor([key])

    assert hiding.text("it has MIIEpAIBAAKCAQEA in line 2, end") == f"it has {REDACTED} in line 2, end"
    assert hiding.text(key.strip()) == REDACTED


def test_what_is_too_short_is_in_too_many_words() -> None:
    hiding = ValueRedactor(["abc", ""])

    assert not hiding
    assert hiding.text("abc, and an abcissa") == "abc, and an abcissa"
    assert hiding.value(["abc"]) == ["abc"]


def test_the_longest_secret_counts_and_those_that_overlap_are_hidden_whole() -> None:
    hiding = ValueRedactor(["abcd", "abcdef", "efgh1234", "wxyz"])

    assert hiding.text("abcdef abcd") == f"{REDACTED} {REDACTED}"
    assert hiding.text("abcdefgh1234.") == f"{REDACTED}."
    assert hiding.text("wxyzwxyz") == 2 * REDACTED
    assert hiding.text("aabcd wxy ab") == f"a{REDACTED} wxy ab"


def test_a_value_is_hidden_in_texts_in_keys_and_as_a_number() -> None:
    hiding = ValueRedactor(["12345", "hunter2", "true", "1.25"])

    value = {"hunter2": [12345, 112345, 1.25, True, None, "is hunter2"], "deep": ({"a": "b"},)}

    assert hiding.value(value) == {
        REDACTED: [REDACTED, 112345, REDACTED, True, None, f"is {REDACTED}"],
        "deep": [{"a": "b"}],
    }
    assert value["deep"] == ({"a": "b"},)


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_what_is_too_deep_to_be_looked_at_is_hidden(wrap: Any) -> None:
    value: Any = "hunter2"
    for _ in range(2 * MAX_REDACTION_DEPTH):
        value = wrap(value)

    shown = json.dumps(ValueRedactor(["hunter2"]).value(value))

    assert REDACTED in shown
    assert "hunter2" not in shown


@given(st.lists(texts, min_size=1, max_size=4), st.lists(st.text(max_size=20), max_size=5), st.data())
def test_no_secret_is_left_in_any_text(secrets: list[str], others: list[str], data: st.DataObject) -> None:
    assume(not any(secret in REDACTED for secret in secrets))
    parts = data.draw(st.lists(st.sampled_from([*secrets, *others]), max_size=8))
    text = "".join(parts)

    shown = ValueRedactor(secrets).text(text)

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
        assert hiding.text(text) == text
        return time.process_time() - began

    once = min(took(few) for _ in range(3))
    assert min(took(many) for _ in range(3)) < 50 * once + 0.5


# ---- by the names of keys


def test_every_text_under_a_key_that_names_a_secret_is_one() -> None:
    value = {
        "user": "ada",
        "password": "one",
        "tokens": ["two", {"value": "three"}, 4],
        "deep": [{"iban": "five", "n": 6}],
        "secret": None,
    }

    assert list(collect_secrets(value, ["IBAN"])) == ["one", "two", "three", "five"]
    assert list(collect_secrets("password")) == []


def test_what_is_too_deep_is_not_searched() -> None:
    value: Any = {"password": "x"}
    for _ in range(MAX_REDACTION_DEPTH):
        value = [value]

    assert list(collect_secrets(value)) == []
