"""Attacks by bodies and filters: too large, ambiguous, compressed, or no plain JSON."""

from __future__ import annotations

import gzip

import pytest

from orchestrator.web.access.bodies import MAX_PUBLIC_BODY_BYTES
from servers.asgi_sender import FORM, JSON, AsgiSender
from servers.page_server import PAGE
from worlds.redis_world import RedisWorld

CANCEL = "/executions/x/cancel"


def test_a_body_without_a_user_is_small(page: AsgiSender) -> None:
    fitting = b"token=" + b"x" * (MAX_PUBLIC_BODY_BYTES - 6)

    for path, status in (("/login", 401), ("/logout", 303)):
        assert page.send("POST", path, FORM, fitting).status == status
        assert page.send("POST", path, FORM, fitting + b"x").code == "too_large"
        length = {"Content-Length": str(MAX_PUBLIC_BODY_BYTES + 1)}
        assert page.send("POST", path, {**FORM, **length}).code == "too_large"


def test_a_body_with_two_lengths_is_rejected(page: AsgiSender, local: AsgiSender) -> None:
    both = {"Content-Length": "0", "Transfer-Encoding": "chunked"}

    for answer in (
        page.send("POST", "/x", both),
        page.send("GET", "/login", both),
        local.send("GET", "/", both),
    ):
        assert (answer.code, answer.header("connection")) == ("bad_header", "close")


BODIES: dict[str, tuple[dict[str, str], bytes, int]] = {
    "a flood of fields": (FORM, b"a&" * 2_001, 400),
    "no text": (FORM, b"\xff\xfe", 400),
    "a file": ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x--", 400),
    "no type": ({}, b"action=cancel", 400),
    "JSON": (JSON, b"{}", 400),
    "text, as a form of another page can send": ({"Content-Type": "text/plain"}, b"action=cancel", 400),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_form_takes_only_a_form(local: AsgiSender, kind: str) -> None:
    headers, body, status = BODIES[kind]

    answers = [local.send("POST", path, headers, body) for path in ("/bulk", "/start", CANCEL)]

    assert [one.status for one in answers] == [status] * 3


def test_a_compressed_body_is_not_unpacked(local: AsgiSender) -> None:
    bomb = gzip.compress(b'{"name": "' + b"x" * 20_000_000 + b'"}')

    answer = local.send("POST", "/api/v1/executions", {**JSON, "Content-Encoding": "gzip"}, bomb)

    assert answer.code == "bad_json"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("1e999", "too large"),
        ("[-1e400]", "too large"),
        ("NaN", "NaN"),
        ("-Infinity", "Infinity"),
        ("9" * 400, "number this long"),
        ("9" * 5_000, "digits"),
        (r'"\ud800"', "surrogate"),
        ("[" * 60 + "]" * 60, "deeper"),
        ("[" * 100_000, "too deep"),
        ("\x00", "not JSON"),
    ],
)
def test_a_payload_that_is_no_plain_json_is_said_on_the_form(
    world: RedisWorld, local: AsgiSender, payload: str, reason: str
) -> None:
    world.begin(world.coordinator(), {"steps": [{"id": "a", "wait": {"signal": "s"}}]}, execution_id="x")

    answer = local.send(
        "POST", "/executions/x/signals", {**FORM, **PAGE}, f"name=s&payload={payload}".encode()
    )

    assert answer.status == 422
    assert reason in answer.text
    assert world.events() == []


@pytest.mark.parametrize(
    "query",
    [
        "since=0001-01-01T00:00%2B23:59",
        "until=9999-12-31T23:59-23:59",
        "since=%00",
        "limit=%D9%A1",
        "limit=-1",
        "limit=1e3",
        "limit=" + "9" * 5_000,
        "status=%3Cscript%3E",
        "label==",
    ],
)
def test_a_wrong_filter_is_a_problem_everywhere(local: AsgiSender, query: str) -> None:
    for path in ("/executions", "/failures", "/api/v1/executions", "/api/v1/failures"):
        assert local.send("GET", f"{path}?{query}").status == 400, path
