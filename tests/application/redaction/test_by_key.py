"""Values under keys that name a secret are redacted, at any depth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.redaction.by_key import (
    MAX_REDACTION_DEPTH,
    REDACTED,
    has_secret_key,
    is_secret_key,
    redact_by_key,
    redact_text,
)
from worlds.documents import document, step
from worlds.engine_world import world_of

keys = st.sampled_from(["user", "password", "n", "Api-Key", "iban", "deep"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.sampled_from(["hidden", "shown"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "bind_password",
        "dbPassword",
        "passwd",
        "passphrase",
        "secret",
        "client-secret",
        "token",
        "accessToken",
        "refresh_token",
        "Authorization",
        "Proxy-Authorization",
        "api_key",
        "apiKey",
        "X-API-Key",
        "aws_access_key_id",
        "private-key",
        "credentials",
        "Set-Cookie",
        "pw",
        "bind_pw",
        "PWD",
        f"{'of_' * 100}password",
    ],
)
def test_a_usual_name_of_a_secret_is_recognized(key: str) -> None:
    assert is_secret_key(key)
    assert redact_by_key({key: "s3cret"}) == {key: REDACTED}


@pytest.mark.parametrize(
    "key", ["user", "key", "pwned", "passenger", "name", "author", "", "apikeeper", "of_" * 100]
)
def test_other_names_are_not_secret(key: str) -> None:
    assert not is_secret_key(key)


def test_a_document_may_add_names_which_match_whole_keys_in_any_case() -> None:
    value = {"iban": 1, "IBAN": 2, "ibans": 3, "password": 4}

    assert redact_by_key(value, ["Iban"]) == {
        "iban": REDACTED,
        "IBAN": REDACTED,
        "ibans": 3,
        "password": REDACTED,
    }


def test_a_secret_key_is_found_at_any_depth_and_hides_everything_below_it() -> None:
    value = {"users": [{"name": "ada", "password": {"hash": "x"}}, ("a", {"token": [1, 2]})], "n": 1}

    assert redact_by_key(value) == {
        "users": [{"name": "ada", "password": REDACTED}, ["a", {"token": REDACTED}]],
        "n": 1,
    }


def test_null_is_not_hidden() -> None:
    assert redact_by_key({"password": None}) == {"password": None}
    assert redact_by_key("password") == "password"
    assert redact_by_key(None) is None


def test_the_original_value_stays_unchanged() -> None:
    value = {"password": "x", "below": [{"token": "y"}]}

    redact_by_key(value)

    assert value == {"password": "x", "below": [{"token": "y"}]}


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_a_value_below_the_depth_limit_is_hidden(wrap: Any) -> None:
    value: Any = {"password": "s3cret"}
    for _ in range(5 * MAX_REDACTION_DEPTH):
        value = wrap(value)

    assert "s3cret" not in json.dumps(redact_by_key(value))


@given(values)
def test_no_secret_is_left_and_nothing_else_is_touched(value: Any) -> None:
    shown = redact_by_key(value, ["iban"])

    assert redact_by_key(shown, ["iban"]) == shown
    assert _pairs(shown) == [
        (key, REDACTED if one is not None and is_secret_key(key, ["iban"]) else one)
        for key, one in _pairs(value, until=["iban"])
    ]


def _pairs(value: Any, until: Any = None) -> list[tuple[str, Any]]:
    """Every key with its value if that is a scalar, in order, except below a secret."""
    if isinstance(value, list):
        return [pair for one in value for pair in _pairs(one, until)]
    if not isinstance(value, dict):
        return []
    found: list[tuple[str, Any]] = []
    for key, one in value.items():
        is_hidden = until is not None and one is not None and is_secret_key(key, until)
        found.append((key, None if isinstance(one, dict | list) and not is_hidden else one))
        found += [] if is_hidden else _pairs(one, until)
    return found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=abc, user=ada", "password=<redacted>, user=ada"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "<redacted>", "n": 1}'),
        ("Token: abc def", "Token: <redacted> def"),
        ("?iban=DE00&n=1", "?iban=<redacted>&n=1"),
        ("it answered 500: token=abc", "it answered 500: token=<redacted>"),
        ("a=password=b=c", "a=password=<redacted>"),
        ("authorization: Bearer abc.def, n", "authorization: <redacted>, n"),
        ("password=token=abc n=1", "password=<redacted> n=1"),
        ("password=, token:", "password=, token:"),
        (200_000 * "a", 200_000 * "a"),
        (100_000 * "a=", 100_000 * "a="),
        (100_000 * "a ", 100_000 * "a "),
        ("no secret at all", "no secret at all"),
        ("a password was wrong", "a password was wrong"),
    ],
)
def test_what_looks_like_a_secret_in_a_text_is_hidden(text: str, shown: str) -> None:
    assert redact_text(text, ["iban"]) == shown


@given(values)
def test_a_value_has_a_secret_key_if_redacting_it_by_key_changes_it(value: Any) -> None:
    assert has_secret_key(value, ["iban"]) == (redact_by_key(value, ["iban"]) != value)


def test_a_secret_key_is_found_inside_other_values() -> None:
    assert has_secret_key({"shop": {"password": "s3cret"}})
    assert has_secret_key([{"shop": [{"password": "s3cret"}]}])
    assert not has_secret_key({"shop": {"address": "Main Street"}})


def test_a_value_that_is_too_deep_counts_as_one_with_a_secret_key() -> None:
    deep: Any = 1
    for _ in range(MAX_REDACTION_DEPTH + 1):
        deep = [deep]

    assert has_secret_key(deep)
    assert not has_secret_key(deep[0])


# ---- the history


def test_a_logged_value_is_in_the_history_without_secrets() -> None:
    spec = document(step("a", input={"n": {"log": {"var": "input"}}}), redact=["iban"])
    world = world_of(spec, inputs={"user": "ada", "password": "s3cret", "iban": "DE00"})

    world.advance()

    [line] = [entry["log"] for entry in world.history if "log" in entry]
    assert json.loads(line) == {"user": "ada", "password": REDACTED, "iban": REDACTED}


def test_the_details_of_an_error_are_in_the_history_without_secrets() -> None:
    world = world_of(document(step("a")))
    world.advance()
    event = world.error("a")
    assert event.error is not None
    event.error["request"] = {"url": "u", "headers": {"Authorization": "Bearer x"}}

    world.decide(event)

    shown = [entry["error"]["request"] for entry in world.history if "error" in entry]
    assert shown == 2 * [{"url": "u", "headers": {"Authorization": REDACTED}}]
    assert world["a"].error is not None
    assert world["a"].error["request"]["headers"] == {"Authorization": "Bearer x"}, "the record has it all"
