"""What answers tell: no markup of a URL, no other type, no password and no forged line of the log."""

from __future__ import annotations

import logging
import re

import pytest

from orchestrator import web
from orchestrator.client import Client
from orchestrator.web.application import all_routes
from servers.asgi_sender import FORM, JSON, AsgiSender, Ask
from servers.page_server import PAGE
from worlds.page_users import ADA, bearer
from worlds.redis_world import RedisWorld

HOOK = "/api/v1/hooks"


MARK = "<svg/onload=1>\"'"
PARAMETERS = (
    "text workflow group label since until failure status limit after view part step from order items"
)
"""Names of parameters of any page. Each gets the mark."""


def test_nothing_of_a_url_is_markup(live: None, world: RedisWorld, local: AsgiSender) -> None:
    Client(world.client).start({"steps": [{"id": "a", "fn": "a"}]}, execution_id="x")
    mark = "%3Csvg/onload=1%3E%22%27"
    paths = ("/executions", "/executions/x", "/failures", "/start", "/dead-letters", "/schedules", "/queues")
    asks = [
        Ask("GET", f"{path}?{name}={value}{mark}", PAGE)
        for path in paths
        for name in (*PARAMETERS.split(), "expand", "reason", "notice", "read")
        for value in ("a=" if name == "label" else "",)
    ]
    asks += [Ask("GET", f"/{mark}{path}", PAGE) for path in paths] + [Ask("GET", f"/executions/{mark}", PAGE)]

    answers = local.send_all(asks)

    assert {one.status for one in answers} == {200, 400, 404}
    assert all("<svg/onload" not in one.text and 'onload=1>"' not in one.text for one in answers)


def test_every_answer_has_a_type_that_no_browser_can_mistake(live: None, page: AsgiSender) -> None:
    """Also for a user who may operate, and for a browser that asks for a page."""
    paths = sorted({re.sub(r"\{[^}]+\}", "order", route.path) for route in all_routes()})
    asks = [
        Ask(method, path, {**bearer(ADA), **kind, **accept})
        for path in paths
        for method, kind in (("GET", {}), ("POST", FORM), ("POST", JSON), ("DELETE", {}))
        for accept in (PAGE, {})
    ]

    for ask, answer in zip(asks, page.send_all(asks), strict=True):
        case = f"{ask.method} {ask.path}: {answer.status} {answer.text[:300]}"
        assert answer.status < 500 or answer.code == "no_reply", case
        assert answer.header("x-content-type-options") == "nosniff", case
        assert "default-src 'none'" in str(answer.header("content-security-policy")), case
        assert answer.header("x-frame-options") == "DENY", case
        kept = str(answer.header("cache-control"))
        assert kept == "no-store" or ask.path.startswith("/static/"), case
        assert "Traceback" not in answer.text, case
        assert "site-packages" not in answer.text, case
        if ask.path.startswith("/api/"):
            assert "html" not in str(answer.header("content-type")), case


def test_the_password_of_redis_is_in_no_answer_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Neither while Redis is away, nor when a page names what it looked at."""
    page = AsgiSender(web.app("redis://ada:S3cret-word@127.0.0.1:1/0"))
    caplog.set_level(logging.DEBUG)

    paths = ("/executions", "/failures", "/queues", "/doctor", "/api/v1/doctor", "/api/v1/health", "/start")
    answers = page.send_all(Ask("GET", path, accept) for path in paths for accept in (PAGE, {}))

    assert {one.status for one in answers} == {200, 503}
    assert all("S3cret-word" not in one.text for one in answers)
    assert "S3cret-word" not in caplog.text


def test_no_request_can_write_a_line_of_the_log(
    live: None, page: AsgiSender, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.web")
    path, field, name = (
        "x%0dFORGED%1b[31m%E2%80%A8",
        "x%0aFORGED%0d%1b[31m%E2%80%AE",
        r"x\nFORGED\u001b\u2028",
    )
    form, data = {**bearer(ADA), **FORM}, {**bearer(ADA), **JSON}
    document = f'{{"name": "{name}", "document": {{"steps": [{{"id": "a", "fn": "a"}}]}}}}'

    page.send_all(
        [
            Ask("POST", f"/executions/{path}/cancel", form),
            Ask("POST", f"/executions/{path}/hold", form, f"step={field}".encode()),
            Ask("POST", "/schedules/pause", form, f"name={field}".encode()),
            Ask("POST", "/dead-letters/run", form, f"action=drop&entries={path}".encode()),
            Ask("DELETE", f"/api/v1/executions/{path}", bearer(ADA)),
            Ask("POST", f"{HOOK}/{path}", data, b"{}"),
            Ask("POST", "/api/v1/workflows", data, document.encode()),
            Ask("POST", "/api/v1/executions/x/signals", data, f'{{"name": "{name}"}}'.encode()),
            Ask("POST", "/login", FORM, f"token={field}".encode()),
        ]
    )

    lines = [one.getMessage() for one in caplog.records]
    assert len([line for line in lines if "FORGED" in line]) == 8
    assert "login of this page by nobody: wrong_token" in lines
    assert [line for line in lines if not line.isprintable()] == []
