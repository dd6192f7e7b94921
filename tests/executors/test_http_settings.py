"""The settings of the executor `http`: which are rejected, with which message, and which an input may set."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator_executors.http_settings import BYTES_VARIABLE, HttpConfiguration, HttpInputs, read_call
from orchestrator_executors.settings import Refused

Json = dict[str, Any]
URL = "https://api.example.org/v1"


def refusal(inputs: Json, configuration: Json | None = None) -> str:
    with pytest.raises(Refused) as refused:
        read_call(inputs, configuration or {}, "x1#pay#0")
    assert refused.value.non_retryable
    return str(refused.value)


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (
            {"metod": "GET"},
            "the input has an unknown setting 'metod'; did you mean 'method'?",
        ),
        ({"zzz": 1, "url": URL}, "'zzz'; available: auth, base_url, body,"),
        ({"input_mode": "body", "url": URL}, "the input has an unknown setting 'input_mode'"),
        ({}, "a call needs either url, or base_url and path"),
        ({"url": None}, "a call needs either url, or base_url and path"),
        ({"url": URL, "base_url": URL}, "a call needs either url, or base_url and path"),
        ({"url": 17}, "url must be a string"),
        ({"url": URL, "path": "x"}, "path goes with base_url, not with url"),
        ({"base_url": f"{URL}?a=1"}, "base_url has a query, which belongs in"),
        ({"base_url": URL, "path": "a?b=1"}, "a query belongs in the setting query"),
        ({"base_url": URL, "path": "a#b"}, "path has a ? #"),
        ({"base_url": URL, "path": "a\\b"}, "path has a ? #"),
        ({"base_url": URL, "path": "a\r\nb"}, "path has a ? # \\ or a control character"),
        ({"base_url": URL, "path": "../admin"}, "path has a segment . or .."),
        ({"base_url": URL, "path": "a/%2e%2E/admin"}, "path has a segment . or .."),
        ({"base_url": URL, "path": "a/..%2fadmin"}, "path has a segment . or .."),
        ({"base_url": URL, "path": "a/..%5cadmin"}, "path has a segment . or .."),
        ({"base_url": URL, "path": ["a"]}, "path must be a string"),
        ({"url": "https://ada:pw@api.example.org/"}, "it contains credentials, which belong in auth"),
        ({"url": URL, "method": "BREW"}, "method must be one of GET, HEAD"),
        ({"url": URL, "method": "GET\r\nX: y"}, "method must be one of GET, HEAD"),
        ({"url": URL, "json": {}}, "json needs a method"),
        ({"url": URL, "method": "POST", "json": {}, "body": ""}, "json and body cannot both be the body"),
        ({"url": URL, "method": "POST", "json": float("nan")}, "json cannot be encoded as JSON: ValueError"),
        ({"url": URL, "method": "POST", "json": "\ud800"}, "json has half a character"),
        ({"url": URL, "method": "POST", "body": {"a": 1}}, "body must be a string"),
        ({"url": URL, "method": "POST", "form": [1]}, "form must be a mapping"),
        ({"url": URL, "query": "a=1"}, "query must be a mapping"),
        ({"url": URL, "query": {"a": {"b": 1}}}, "query.a must be a string, a number or a boolean"),
        ({"url": f"{URL}?a=1", "query": {"a": 2}}, "query.a is in the url already"),
        ({"url": URL, "headers": {"X-A": "b\r\nX-B: c"}}, "headers.X-A has a line break"),
        (
            {"url": URL, "headers": {"X-A": "b\x00"}},
            "headers.X-A has a line break or another control character",
        ),
        ({"url": URL, "headers": {"X-A\r\nX-B": "c"}}, "is not the name of a header"),
        ({"url": URL, "headers": {"": "c"}}, "is not the name of a header"),
        ({"url": URL, "headers": {"X-A": ["b"]}}, "headers.X-A must be a string, a number or a boolean"),
        ({"url": URL, "headers": {"X-A": "b", "x-a": "c"}}, "headers.x-a is set twice"),
        ({"url": URL, "headers": {"Host": "b"}}, "headers.Host cannot be set: the worker sets it"),
        ({"url": URL, "headers": {"content-length": 5}}, "headers.content-length cannot be set"),
        (
            {"url": URL, "headers": {"Transfer-Encoding": "chunked"}},
            "headers.Transfer-Encoding cannot be set",
        ),
        ({"url": URL, "headers": {"Authorization": "x"}, "auth": {"bearer": "y"}}, "set the same header"),
        ({"url": URL, "auth": "abc"}, "auth must be a mapping"),
        ({"url": URL, "auth": {}}, "auth must be {basic: {user, password}}, {bearer: token} or"),
        ({"url": URL, "auth": {"bearer": ""}}, "auth must be {basic"),
        ({"url": URL, "auth": {"bearer": "a", "basic": {}}}, "auth must be {basic"),
        ({"url": URL, "auth": {"basic": {"user": "a", "password": None}}}, "auth must be {basic"),
        (
            {"url": URL, "auth": {"basic": {"user": "a:b", "password": "c"}}},
            "auth.basic.user cannot have a colon",
        ),
        ({"url": URL, "auth": {"bearer": "a\nb"}}, "auth.bearer has a line break"),
        ({"url": URL, "auth": {"header": {"name": "Host", "value": "x"}}}, "auth.header.name cannot be Host"),
        ({"url": URL, "auth": {"header": {"name": "a b", "value": "x"}}}, "is not the name of a header"),
        ({"url": URL, "method": "POST", "idempotency_key": 7}, "idempotency_key must be a string"),
        ({"url": URL, "timeout": 0}, "timeout must be a number of seconds above 0, at most 86400"),
        ({"url": URL, "timeout": "30s"}, "timeout must be a number of seconds"),
        ({"url": URL, "timeout": True}, "timeout must be a number of seconds"),
        ({"url": URL, "connect_timeout": float("inf")}, "connect_timeout must be a number of seconds"),
        ({"url": URL, "success": "ok"}, "success must be codes and ranges"),
        ({"url": URL, "success": True}, "success must be codes and ranges"),
        ({"url": URL, "success": []}, "success must have at least one status code"),
        ({"url": URL, "success": "300-200"}, "success must have at least one status code"),
        ({"url": URL, "max_redirects": 21}, "max_redirects must be a whole number from 0 to 20"),
        ({"url": URL, "max_redirects": 1.5}, "max_redirects must be a whole number"),
        ({"url": URL, "max_response_bytes": -1}, "max_response_bytes must be a whole number"),
        (
            {"url": URL, "max_response_bytes": 11_000_000},
            "but ORCHESTRATOR_HTTP_MAX_BYTES of this worker allows 10,485,760",
        ),
        ({"url": URL, "returns": "status"}, "returns must be answer or body"),
        ({"url": URL, "payload": 1}, "payload needs input_mode in the source"),
    ],
)
def test_a_wrong_setting_is_rejected_by_name(inputs: Json, why: str) -> None:
    assert why in refusal(inputs)


def test_no_error_message_contains_a_value() -> None:
    for wrong in (
        {"headers": {"X-Key": "s3cret\n"}},
        {"auth": {"bearer": "s3cret\n"}},
        {"auth": {"basic": {"user": "s3cret:", "password": "s3cret"}}},
        {"auth": {"bearer": "s3cret", "token": "s3cret"}},
        {"query": {"key": ["s3cret", {}]}},
        {"timeout": "s3cret"},
        {"success": "s3cret"},
        {"method": "s3cret"},
        {"url": "https://s3cret:s3cret@api.example.org/"},
        {"url": "s3cret"},
    ):
        assert "s3cret" not in refusal({"url": URL, **wrong})


def test_values_are_used_unchanged_and_null_counts_as_absent() -> None:
    call = read_call(
        {"url": URL, "timeout": 2, "success": None, "headers": None, "query": {"a": None}}, {}, "k"
    )

    assert (str(call.url), call.timeout_s, call.connect_timeout_s) == (URL, 2.0, 2.0)
    assert call.success == frozenset(range(200, 300))


@pytest.mark.parametrize(("said", "most"), [(None, 1024 * 1024), ("500", 500), ("50000000", 1024 * 1024)])
def test_the_worker_limits_the_size_of_a_response(
    monkeypatch: pytest.MonkeyPatch, said: str | None, most: int
) -> None:
    monkeypatch.delenv(BYTES_VARIABLE, raising=False)
    if said is not None:
        monkeypatch.setenv(BYTES_VARIABLE, said)

    assert read_call({"url": URL}, {}, "k").max_bytes == most


def test_a_bad_limit_of_the_worker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, "10MB")

    assert refusal({"url": URL}) == "ORCHESTRATOR_HTTP_MAX_BYTES must be a whole number of bytes"


# ---- sources and inputs


def test_inputs_add_to_a_source_and_change_the_overridable_settings() -> None:
    source = {
        "base_url": URL,
        "auth": {"bearer": "abc"},
        "headers": {"X-Team": "shop"},
        "query": {"tenant": "a"},
        "timeout": 5,
        "success": "2xx",
        "max_redirects": 0,
        "max_response_bytes": 10,
        "returns": "body",
    }
    inputs = {
        "path": "users",
        "method": "DELETE",
        "headers": {"X-Trace": "t"},
        "query": {"id": 17},
        "timeout": 50,
        "success": [404],
        "max_redirects": 1,
        "max_response_bytes": 20,
        "returns": "answer",
    }

    call = read_call(inputs, source, "k")

    assert (call.method, str(call.url)) == ("DELETE", f"{URL}/users?tenant=a&id=17")
    assert {("X-Team", "shop"), ("X-Trace", "t"), ("Authorization", "Bearer abc")} <= set(call.headers)
    assert (call.timeout_s, call.success, call.max_redirects, call.max_bytes) == (
        50.0,
        frozenset({404}),
        1,
        20,
    )
    assert not call.returns_body


@pytest.mark.parametrize(
    ("source", "inputs", "why"),
    [
        ({"url": URL}, {"url": "https://evil.example/"}, "url cannot be an input: the source sets the URL"),
        ({"url": URL}, {"base_url": "https://evil.example/"}, "base_url cannot be an input"),
        ({"base_url": URL}, {"url": "https://evil.example/"}, "url cannot be an input"),
        ({"base_url": URL, "path": "users"}, {"path": "admin"}, "path cannot be an input"),
        ({"url": URL, "method": "GET"}, {"method": "DELETE"}, "method cannot be an input"),
        ({"url": URL, "auth": {"bearer": "a"}}, {"auth": {"bearer": "b"}}, "auth cannot be an input"),
        ({"url": URL, "method": "POST", "json": {}}, {"json": {"a": 1}}, "json cannot be an input"),
        (
            {"url": URL, "headers": {"X-Key": "a"}},
            {"headers": {"x-key": "b"}},
            "headers.x-key cannot be an input",
        ),
        (
            {"url": URL, "query": {"tenant": "a"}},
            {"query": {"tenant": "b"}},
            "query.tenant cannot be an input",
        ),
        ({"url": URL, "auth": {"bearer": "a"}}, {"headers": {"Authorization": "b"}}, "set the same header"),
        (
            {"auth": {"bearer": "a"}},
            {"url": "https://evil.example/"},
            "the source has auth, so the source, not the input, must set url",
        ),
        ({"headers": {"X-Key": "a"}}, {"url": "https://evil.example/"}, "the source has headers"),
        ({"query": {"key": "a"}}, {"base_url": "https://evil.example/"}, "the source has query"),
        (
            {"url": URL, "payload": 1},
            {},
            "the configuration has an unknown setting 'payload'",
        ),
        ({"url": URL, "input_mode": "cookie"}, {"payload": 1}, "input_mode must be parameter or body"),
        ({"url": URL, "input_mode": "parameter"}, {"payload": {"a": 1}}, "query.id must be a string"),
        (
            {"url": URL, "input_mode": "parameter", "query": {"id": 1}},
            {"payload": 2},
            "query.id cannot be an input",
        ),
        (
            {"url": URL, "input_mode": "body", "json": {}, "method": "POST"},
            {"payload": 2},
            "payload and json",
        ),
    ],
)
def test_inputs_cannot_change_the_settings_of_a_source(source: Json, inputs: Json, why: str) -> None:
    assert why in refusal(inputs, source)


def test_the_types_name_every_setting() -> None:
    assert HttpInputs.__annotations__.keys() ^ HttpConfiguration.__annotations__.keys() == {
        "payload",
        "input_mode",
        "param_name",
    }
