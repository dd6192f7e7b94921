"""Attacks by single requests: what each is meant to reach, it does not reach. docs/security.md has the table.

Those on connections are in test_attacks_on_connections.py, those by stored values in test_stored_attacks.py.
Every route with every method and role is in test_routes.py.
"""

from __future__ import annotations

import gzip
import hmac
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import web
from orchestrator.client import Client
from orchestrator.web.access.bodies import MAX_PUBLIC_BODY_BYTES
from orchestrator.web.access.sessions import COOKIE
from orchestrator.web.application import all_routes
from orchestrator.web.instance import Instance
from servers.asgi_sender import FORM, HOST, JSON, AsgiSender, Ask
from servers.page_server import PAGE
from worlds.page_users import ADA, SHOP, USERS, WALL, bearer, write_users
from worlds.redis_world import RedisWorld, running

CANCEL = "/executions/x/cancel"
HOOK = "/api/v1/hooks"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return write_users(tmp_path)


@pytest.fixture
def page(redis_url: str, users: Path) -> AsgiSender:
    """A page with users, asked without one."""
    return AsgiSender(web.app(redis_url, tokens=str(users)))


@pytest.fixture
def local(redis_url: str) -> AsgiSender:
    """A page without users: every request of this machine may operate."""
    return AsgiSender(web.app(redis_url))


@pytest.fixture
def live(world: RedisWorld) -> Iterator[None]:
    """A coordinator, so that no action waits for its reply."""
    with running(world.coordinator("live")):
        yield


def log_in(page: AsgiSender, token: str = ADA, **headers: str) -> str:
    """The cookie of a login, as a header has it."""
    answer = page.send("POST", "/login", {**FORM, **headers}, f"token={token}".encode())
    return str(answer.header("set-cookie")).partition(";")[0]


# ---- requests of pages of others


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost",
        "http://localhost:8322",
        "http://localhost:83210",
        f"http://{HOST}.evil.example",
        f"http://{HOST}@evil.example",
        f"http://ada@{HOST}",
        "http://127.0.0.1:8321",
        "http://l\u043ecalhost:8321",
        "http://localhost:\uff18\uff13\uff12\uff11",
        f"http://{HOST}, http://evil.example",
        f"http://{HOST}\\.evil.example",
        f"http:{HOST}",
        HOST,
        "http://[::1",
        "file://",
        "chrome-extension://abcdef",
    ],
)
def test_no_other_origin_can_act(page: AsgiSender, local: AsgiSender, origin: str) -> None:
    cookie = log_in(page)

    answers = [
        page.send("POST", CANCEL, {**FORM, "Cookie": cookie, "Origin": origin}),
        local.send("POST", CANCEL, {**FORM, "Origin": origin}),
        local.send("DELETE", "/api/v1/executions/x", {"Origin": origin, "Sec-Fetch-Site": "same-origin"}),
    ]

    assert [(one.status, one.code) for one in answers] == [(403, "other_origin")] * 3


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Same-Origin", "same-origin, none", "x", ""])
def test_only_a_page_of_ours_and_a_user_can_act(local: AsgiSender, site: str) -> None:
    own = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": site}

    assert local.send("POST", CANCEL, {**FORM, **own}).code == "other_origin"


def test_a_login_cannot_be_forced_by_another_page(page: AsgiSender) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for path in ("/login", "/logout"):
            answer = page.send("POST", path, {**FORM, **headers}, f"token={ADA}".encode())
            assert (answer.status, answer.header("set-cookie")) == (403, None)


def test_no_other_origin_may_read(page: AsgiSender) -> None:
    asks = [
        Ask(method, path, {**bearer(ADA), "Origin": "http://evil.example", **preflight})
        for path in ("/executions", "/api/v1/executions", "/healthz", "/login", "/static/page.js")
        for method, preflight in (
            ("GET", {}),
            ("OPTIONS", {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "*"}),
        )
    ]

    answers = page.send_all(asks)

    assert {one.status for one in answers if one.status != 200} == {403}
    for answer in answers:
        assert [name for name, _ in answer.headers if name.startswith("access-control-")] == []
        assert answer.header("cross-origin-resource-policy") == "same-origin"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "localhost.",
        "evil.example:localhost",
        "localhost:80:evil.example",
        "localhost@evil.example",
        "127.0.0.1.nip.io",
        "127.1",
        "0.0.0.0:8321",
        "2130706433",
        "[::]",
        "[::1]evil.example",
        "[::ffff:127.0.0.1]",
        "l\u043ecalhost",
        "localhost\u0000",
        "localhost, evil.example",
        "",
    ],
)
def test_no_other_name_reaches_a_page_without_users(local: AsgiSender, host: str) -> None:
    for path in ("/executions", "/api/v1/executions", "/healthz", "/static/page.js"):
        assert local.send("GET", path, {"Host": host}).code == "unknown_host"


# ---- paths


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


# ---- redirects and headers


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


# ---- methods


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


# ---- tokens and cookies


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        f"Basic {ADA}",
        f"Token {ADA}",
        f"Bearer{ADA}",
        f"Bearer {ADA}\u0000",
        f"Bearer {ADA} {ADA}",
        f"Bearer {ADA[:-1]}",
        f"Bearer {ADA}, Bearer {WALL}",
        f"Bearer {ADA.upper()}",
        "Bearer *",
        "Bearer " + "a" * 60_000,
    ],
)
def test_only_a_whole_token_is_one(page: AsgiSender, header: str) -> None:
    assert page.send("GET", "/executions", {"Authorization": header}).status == 401


def test_a_token_in_a_url_is_read_by_webhooks_alone(page: AsgiSender) -> None:
    paths = sorted({re.sub(r"\{[^}]+\}", "order", route.path) for route in all_routes()})
    closed = [path for path in paths if not re.fullmatch(r"/login|/logout|/healthz|/static/.*", path)]

    answers = page.send_all(
        Ask(method, f"{path}?token={ADA}&access_token={ADA}")
        for path in closed
        for method in ("GET", "POST", "DELETE")
        if not (method == "POST" and path.startswith(HOOK))
    )

    assert {one.status for one in answers} == {401}


@pytest.mark.parametrize(
    "workflow",
    ["other", "Order", "order%0a", "order%00", "%20order", "ord%D0%B5r", "order%2f..%2fother", "*"],
)
def test_the_token_of_a_webhook_starts_only_its_workflow(page: AsgiSender, workflow: str) -> None:
    answer = page.send("POST", f"{HOOK}/{workflow}?token={SHOP}", JSON, b"{}")

    assert answer.status in (401, 403)


def test_the_token_of_a_webhook_is_no_login(page: AsgiSender, users: Path) -> None:
    assert log_in(page, SHOP) == "None"


def test_every_comparison_of_a_secret_takes_the_same_time(
    page: AsgiSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done by compare_digest, with each user, whether or not one before it fits."""
    cookie, compared, compare = log_in(page), [], hmac.compare_digest

    def note(a: Any, b: Any) -> bool:
        compared.append((a, b))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", note)
    for headers in (
        bearer(ADA),
        bearer(SHOP),
        bearer("x" * 40),
        {"Cookie": cookie},
        {"Cookie": f"{COOKIE}=1.x"},
    ):
        page.send("GET", "/executions", headers)

    assert len(compared) == 4 * 3, "the last cookie has ended, and is not compared"


@pytest.mark.parametrize(
    "cookie",
    [
        f"{COOKIE}=",
        f"{COOKIE}=.",
        f'{COOKIE}="',
        f"{COOKIE}=9999999999.{'A' * 43}",
        f"{COOKIE}=99999999999999999999.",
        f"{COOKIE}={ADA}",
        f"{COOKIE.upper()}=VALID",
        f"{COOKIE}x=VALID",
        f"a={COOKIE}=VALID",
        f"{COOKIE}=VALID.",
        f"{COOKIE}=%20VALID",
        f"{COOKIE}=VALID; {COOKIE}=x",
        ";" * 10_000,
    ],
)
def test_no_other_cookie_is_a_login(page: AsgiSender, cookie: str) -> None:
    valid = log_in(page).partition("=")[2]
    assert page.send("GET", "/executions", {"Cookie": f"{COOKIE}={valid}"}).status == 200

    assert page.send("GET", "/executions", {"Cookie": cookie.replace("VALID", valid)}).status == 401


def test_a_cookie_belongs_to_the_users_who_made_it(page: AsgiSender, redis_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    tokens = str(write_users(folder, USERS.replace(ADA, ADA[::-1])))

    other = AsgiSender(web.app(redis_url, tokens=tokens))

    assert other.send("GET", "/executions", {"Cookie": log_in(page)}).status == 401


def test_a_login_makes_a_cookie_of_its_own(page: AsgiSender) -> None:
    given = log_in(page, WALL)

    made = log_in(page, Cookie=given)

    assert made.startswith(COOKIE)
    assert made != given


def test_a_removed_token_ends_at_once_wherever_it_is_used(page: AsgiSender, users: Path) -> None:
    cookie = log_in(page)

    write_users(users.parent, USERS.replace(ADA, ADA[::-1]))

    for headers in ({"Cookie": cookie}, bearer(ADA)):
        assert page.send("GET", "/executions", headers).status == 401
    assert page.send("POST", f"{HOOK}/order?token={ADA}", JSON, b"{}").status == 401
    assert log_in(page) == "None"


# ---- bodies


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


# ---- what answers tell

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
