"""Attacks by paths, redirects and methods: no spelling opens a closed path or leads to another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator import web
from orchestrator.client import Client
from orchestrator.web.instance import Instance
from servers.asgi_sender import FORM, AsgiSender, Ask
from servers.page_server import PAGE
from worlds.page_users import ADA, SHOP, WALL, bearer
from worlds.redis_world import RedisWorld

CANCEL = "/executions/x/cancel"
HOOK = "/api/v1/hooks"


@pytest.mark.parametrize(
    "path",
    [
        "/executions/../login",
        "/login/../executions",
        "/login%2f..%2fexecutions",
        "//login",
        "/login/",
        "/login;/executions",
        "/login%00",
        "/login%0a",
        "/LOGIN",
        "/%256cogin",
        "/healthz%2f..%2fexecutions",
        "/static/../executions",
        "/static/%2e%2e/executions",
        "/static/..%2fexecutions",
        "/static/page.js%2f..%2f..%2fexecutions",
        "/static%2f%2fexecutions",
        "/api/v1/hooks/order/../../executions",
        "/executions%3f/login",
        "/executions%23/login",
        "http://localhost/login",
        "*",
        "",
    ],
)
def test_no_spelling_of_a_path_is_open(page: AsgiSender, path: str) -> None:
    for method in ("GET", "HEAD", "POST"):
        assert page.send(method, path).status == 401, method


@pytest.mark.parametrize(
    "path", ["/one/login", "/one/static/page.js", "/one%2flogin", "/one/../login", "/ONE/executions", "/one"]
)
def test_no_path_below_an_instance_is_open(redis_url: str, users: Path, path: str) -> None:
    instances = [Instance.of("one", redis_url), Instance.of("two", redis_url)]
    page = AsgiSender(web.app(instances=instances, tokens=str(users)))

    assert page.send("GET", path).status == 401
    assert page.send("POST", f"/one/two{HOOK}/order", bearer(SHOP)).status == 403


@pytest.mark.parametrize("path", ["/login/executions", "x/login", "/../login", "//login"])
def test_no_path_beside_the_prefix_is_open(page: AsgiSender, path: str) -> None:
    page.root_path = "/flows"

    assert page.send("GET", path).status == 401
    assert page.send("GET", "/login").status == 200


@pytest.mark.parametrize(
    "name",
    [
        "..%2fserver.py",
        "%2e%2e%2fserver.py",
        "..%5cserver.py",
        "%252e%252e%252fserver.py",
        "page.js%00.svg",
        "%2fetc%2fpasswd",
        "PAGE.JS",
        ".",
    ],
)
def test_only_the_files_of_the_page_are_served(page: AsgiSender, name: str) -> None:
    assert page.send("GET", f"/static/{name}", bearer(ADA)).status == 404


HEADERS_OF_PROXIES = (
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Forwarded-Prefix",
    "X-Forwarded-Path",
    "X-Script-Name",
    "X-Forwarded-Host",
    "X-Forwarded-User",
    "Remote-User",
)


def test_headers_of_proxies_change_neither_path_nor_user_nor_links(page: AsgiSender) -> None:
    for name in HEADERS_OF_PROXIES:
        assert page.send("GET", "/executions", {name: "/login"}).status == 401
        shown = page.send("GET", "/login", {name: "//evil.example"})
        assert shown.status == 200
        assert "evil" not in shown.text


def test_no_redirect_leads_to_another_host_and_none_has_a_header_of_its_own(page: AsgiSender) -> None:
    hostile = (
        "//evil.example",
        "/%5Cevil.example",
        "https:evil.example",
        "%0d%0aX-Evil:%201",
        "javascript:1",
    )
    asks = [
        Ask("GET", f"{path}?{name}={value}", {**PAGE, **headers})
        for value in hostile
        for name in ("next", "notice", "view", "url")
        for path in ("/", "/login", "/executions/x")
        for headers in ({}, bearer(ADA))
    ]
    asks += [Ask("GET", value, {**PAGE, **bearer(ADA)}) for value in hostile]
    asks += [
        Ask("GET", path, {**PAGE, **bearer(ADA), "Host": "evil.example"})
        for path in ("/", "/executions/", "/login/", "/api/v1/executions/")
    ]
    fields = b"token=%s&next=//evil.example&view=%%0d%%0aX-Evil:%%201" % ADA.encode()
    asks += [Ask("POST", path, FORM, fields) for path in ("/login", "/logout")]

    for root in ("", "//evil.example", "/a\r\nX-Evil: 1", "/\\evil.example"):
        page.root_path = root
        for answer in page.send_all(asks):
            assert re.fullmatch(r"(/|/[^/\\].*)?", answer.header("location") or "")
            assert answer.header("x-evil") is None
            assert all(value.isprintable() for _, value in answer.headers)


def test_a_name_of_a_workflow_is_only_text_in_a_redirect(
    live: None, world: RedisWorld, local: AsgiSender
) -> None:
    document = b'name: "//evil.example/%0d%0aX-Evil: 1"\nsteps: [{id: a, fn: a}]'.replace(b"%", b"\\x")

    answer = local.send("POST", "/start", FORM, b"document=" + document.replace(b";", b"%3B"))

    assert answer.status == 303
    assert re.fullmatch(r"/executions/[0-9a-fT-]+\?notice=started", str(answer.header("location")))
    assert answer.header("x-evil") is None


def test_an_action_leads_back_to_its_own_page(live: None, world: RedisWorld, local: AsgiSender) -> None:
    Client(world.client).start({"steps": [{"id": "a", "fn": "a"}]}, execution_id="x")
    fields = b"step=//evil.example&view=%0d%0aX-Evil:1"

    answers = [local.send("POST", f"/executions/x/{one}", FORM, fields) for one in ("pause", "unpause")]

    for answer in answers:
        assert str(answer.header("location")).startswith(
            "/executions/x?view=%0D%0AX-Evil%3A1&step=%2F%2Fevil"
        )


def test_a_tag_that_was_sent_does_not_come_back(world: RedisWorld, local: AsgiSender) -> None:
    coordinator = world.coordinator()
    world.begin(coordinator, {"steps": [{"id": "a", "fn": "a"}]}, execution_id="x")

    answer = local.send("GET", "/api/v1/executions/x", {"If-None-Match": "*, W/<script>"})

    assert answer.status == 304
    assert re.fullmatch(r'W/"[0-9a-f-]+"', str(answer.header("etag")))


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_no_header_and_no_field_is_a_method(page: AsgiSender, name: str) -> None:
    for method, override in (("POST", "GET"), ("GET", "DELETE")):
        asks = [
            Ask(method, "/executions?_method=" + override, {**FORM, **bearer(WALL), name: override}),
            Ask(method, "/executions", {**FORM, **bearer(WALL)}, f"_method={override}".encode()),
        ]
        expected = 403 if method == "POST" else 200
        assert [one.status for one in page.send_all(asks)] == [expected] * 2


@pytest.mark.parametrize("method", ["get", "Get", "GET ", "post", "", "GETX", "HEAD\n", "QUERY"])
def test_no_spelling_of_a_method_is_a_read(page: AsgiSender, method: str) -> None:
    for path in ("/executions", CANCEL, f"{HOOK}/order"):
        assert page.send(method, path, bearer(WALL)).status == 403
