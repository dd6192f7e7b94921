"""The guard: who may send what. Each request goes over a socket to a real server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from starlette.requests import HTTPConnection

from orchestrator.web.access.bodies import MAX_BODY_BYTES
from orchestrator.web.access.failures import MAX_FAILURES
from orchestrator.web.access.sessions import COOKIE, make_cookie
from orchestrator.web.access.users import Role, User
from servers.page_server import PAGE, PageServer, Serve
from worlds.page_users import ADA, SHOP, WALL, bearer, write_users

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def guarded(serve_page: Serve, tmp_path: Path) -> PageServer:
    """A page with the users of page_users.py."""
    return serve_page(tokens=str(write_users(tmp_path)))


def code_of(response: object) -> str:
    return str(response.json()["code"])  # type: ignore[attr-defined]


# ---- users and roles


def test_without_a_user_a_page_leads_to_the_login_and_data_is_rejected(guarded: PageServer) -> None:
    page, data = guarded.get("/executions", headers=PAGE), guarded.get("/executions")

    assert (page.status_code, page.headers["Location"]) == (303, "/login")
    assert (data.status_code, code_of(data)) == (401, "login_required")
    assert data.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_in_the_header_is_its_user(guarded: PageServer) -> None:
    statuses = {
        token: guarded.get("/executions", headers={"Authorization": token}).status_code
        for token in (f"Bearer {WALL}", f"bearer  {ADA}", f"Basic {ADA}", ADA, "Bearer", f"Bearer {ADA}x")
    }

    assert list(statuses.values()) == [200, 200, 401, 401, 401, 401]


def test_the_token_of_a_reader_reads_and_does_nothing_else(guarded: PageServer) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
        response = guarded.request(method, "/executions", headers=bearer(WALL))
        assert (response.status_code, code_of(response)) == (403, "forbidden"), method
    assert guarded.request("HEAD", "/executions", headers=bearer(WALL)).status_code == 200


def test_the_token_of_a_webhook_reads_nothing(guarded: PageServer) -> None:
    for path in ("/", "/executions", "/api/v1/hooks/order", "/api/v1/executions"):
        response = guarded.get(path, headers=bearer(SHOP))
        assert (response.status_code, code_of(response)) == (403, "forbidden"), path


def test_a_token_in_the_url_is_only_read_by_the_path_of_webhooks(guarded: PageServer) -> None:
    for token in (ADA, WALL, SHOP):
        assert guarded.get(f"/executions?token={token}").status_code == 401
        assert guarded.post(f"/executions?token={token}").status_code == 401


def test_headers_and_fields_that_name_another_method_change_nothing(guarded: PageServer) -> None:
    overrides = {"X-HTTP-Method-Override": "GET", "X-HTTP-Method": "GET", "X-Method-Override": "GET"}

    as_read = guarded.post("/executions", headers={**bearer(WALL), **overrides})
    as_written = guarded.get("/logout?_method=POST", headers={"X-HTTP-Method-Override": "POST"})

    assert code_of(as_read) == "forbidden"
    assert code_of(as_written) == "not_found"


def test_the_cookie_of_a_login_is_its_user_and_a_token_in_the_header_comes_first(
    guarded: PageServer,
) -> None:
    valid, wrong = make_cookie(WALL, 9_000_000_000), "9000000000.x"

    assert guarded.get("/executions", cookies={COOKIE: valid}).status_code == 200
    assert guarded.get("/executions", cookies={COOKIE: wrong}).status_code == 401
    assert guarded.get("/executions", cookies={COOKIE: wrong}, headers=bearer(WALL)).status_code == 200
    assert guarded.get("/executions", cookies={COOKIE: valid}, headers=bearer("wrong")).status_code == 401


def test_a_read_only_page_rejects_every_action_of_every_user(serve_page: Serve, tmp_path: Path) -> None:
    site = serve_page(tokens=str(write_users(tmp_path)), read_only=True)

    for method in ("POST", "PUT", "DELETE"):
        assert code_of(site.request(method, "/executions", headers=bearer(ADA))) == "read_only"
    assert code_of(site.post("/api/v1/hooks/order", headers=bearer(SHOP))) == "read_only"
    assert site.get("/executions", headers=bearer(ADA)).status_code == 200


def test_users_may_log_in_and_out_on_a_read_only_page(serve_page: Serve, tmp_path: Path) -> None:
    site = serve_page(tokens=str(write_users(tmp_path)), read_only=True)

    assert site.post("/login", data={"token": WALL}).status_code == 303
    assert site.post("/logout", headers=FORM).status_code == 303


@pytest.mark.parametrize("is_async", [False, True])
def test_an_application_around_this_one_names_the_users(serve_page: Serve, is_async: bool) -> None:
    def find(connection: HTTPConnection) -> User | None:
        name = connection.headers.get("x-name")
        return None if name is None else User(name, Role.READ)

    async def find_later(connection: HTTPConnection) -> User | None:
        return find(connection)

    site = serve_page(authenticate=find_later if is_async else find)

    assert site.get("/executions").status_code == 401
    assert site.get("/executions", headers=PAGE).status_code == 401, "there is no login to lead to"
    assert site.get("/executions", headers={"X-Name": "eve"}).status_code == 200
    assert code_of(site.post("/executions", headers={"X-Name": "eve"})) == "forbidden"
    assert code_of(site.post("/executions", headers={"X-Name": "eve", "Origin": "http://evil.example"})) == (
        "other_origin"
    )


def test_an_authentication_that_fails_lets_nobody_pass(
    serve_page: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def find(connection: HTTPConnection) -> User | None:
        raise LookupError("the database is down")

    site = serve_page(authenticate=find)

    response = site.get("/executions")

    assert (response.status_code, code_of(response)) == (500, "internal")
    assert "the database is down" not in response.text
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


# ---- origin and host


def test_a_request_of_a_page_of_another_origin_is_rejected(site: PageServer) -> None:
    own = site.url
    others = [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": ""},
        {"Sec-Fetch-Site": "Same-Origin"},
        {"Sec-Fetch-Site": "cross-site", "Origin": own},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": own.replace("http://", "http://evil.example@")},
        {"Origin": f"{own}.evil.example"},
        {"Origin": own.removeprefix("http://")},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://[::1"},
    ]

    for headers in others:
        for path in ("/executions", "/login", "/logout", "/api/v1/hooks/order", "/missing"):
            response = site.post(path, headers={**FORM, **headers})
            assert (response.status_code, code_of(response)) == (403, "other_origin"), (path, headers)
    for headers in ({}, {"Origin": own}, {"Sec-Fetch-Site": "same-origin", "Origin": own}):
        assert site.post("/logout", headers={**FORM, **headers}).status_code == 303, headers


def test_pages_of_others_may_link_to_a_page_and_load_nothing(site: PageServer) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    loads = [
        {**link, "Sec-Fetch-Dest": "iframe"},
        {**link, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {**link, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site"},
    ]

    assert site.get("/executions", headers=link).status_code == 200
    for headers in loads:
        for path in ("/executions", "/static/page.js"):
            assert code_of(site.get(path, headers=headers)) == "other_origin", headers


def raw_status(site: PageServer, *lines: str, method: str = "GET") -> int:
    """The status of a request with these headers and no others."""
    text = "\r\n".join((f"{method} /healthz HTTP/1.1", *lines, "Connection: close", "", ""))
    return int(site.send_raw(text.encode("latin-1")).split(b" ", 2)[1])


def test_without_users_only_names_of_this_host_are_served(site: PageServer) -> None:
    own = ("localhost", "LOCALHOST:80", "127.0.0.1", f"127.0.0.1:{site.port}", "[::1]", "[::1]:8321")
    others = (
        "evil.example",
        f"evil.example:{site.port}",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:localhost",
        "localhost@evil.example",
        "localhost, evil.example",
        "localhost.",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "::1",
        "[::2]",
        "[::1].evil.example",
        "[::ffff:127.0.0.1]",
        "",
    )

    assert {host: raw_status(site, f"Host: {host}") for host in own} == dict.fromkeys(own, 200)
    assert {host: raw_status(site, f"Host: {host}") for host in others} == dict.fromkeys(others, 403)


def test_a_request_without_or_with_two_hosts_is_rejected(site: PageServer) -> None:
    assert raw_status(site) == 400
    assert raw_status(site, "Host: localhost", "Host: evil.example") == 400
    assert raw_status(site, "Host: evil.example", "Host: localhost") == 400
    assert site.send_raw(b"GET /healthz HTTP/1.0\r\n\r\n").split(b" ", 2)[1] == b"403"


def test_other_headers_that_name_a_host_are_not_read(site: PageServer) -> None:
    for header in ("X-Forwarded-Host", "X-Host", "Forwarded", "X-Original-Host"):
        assert raw_status(site, "Host: evil.example", f"{header}: localhost") == 403


def test_a_host_can_be_allowed(serve_page: Serve) -> None:
    site = serve_page(allowed_hosts=["Flows.example"])

    assert raw_status(site, "Host: flows.example:8080") == 200
    assert raw_status(site, "Host: other.flows.example") == 403


def test_with_users_any_host_is_served(guarded: PageServer) -> None:
    assert raw_status(guarded, "Host: flows.example") == 200


# ---- bodies


def test_a_body_that_says_that_it_is_too_large_is_rejected_before_it_is_read(site: PageServer) -> None:
    for length in (MAX_BODY_BYTES + 1, 10**18):
        answer = site.send_raw(
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % length
        )
        assert answer.startswith(b"HTTP/1.1 413 "), answer
        assert b'"code":"too_large"' in answer


def chunks(size: int) -> Iterator[bytes]:
    """A body without a length."""
    for _ in range(size // 65_536):
        yield b"a" * 65_536
    yield b"a" * (size % 65_536)


def test_a_body_without_a_length_is_rejected_when_it_has_become_too_large(guarded: PageServer) -> None:
    headers = {**FORM, **bearer(ADA)}
    small = guarded.post("/start", content=chunks(MAX_BODY_BYTES), headers=headers)
    large = guarded.post("/start", content=chunks(MAX_BODY_BYTES + 1), headers=headers)

    assert (code_of(small), code_of(large)) == ("bad_form", "too_large")


def test_a_body_that_does_not_come_is_given_up(
    serve_page: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.web.access.guard.MAX_BODY_S", 0.1)
    site = serve_page(tokens=str(write_users(tmp_path)))
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"

    with_length = site.send_raw(head + b"Content-Length: 100\r\n\r\ntoken=")
    endless = site.send_raw(head + b"Transfer-Encoding: chunked\r\n\r\n6\r\ntoken=\r\n")

    for answer in (with_length, endless):
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"too_slow"' in answer


# ---- guessing


def test_many_wrong_tokens_are_too_many_and_a_correct_one_still_works(
    guarded: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [guarded.get("/executions", headers=bearer(f"guess-{n}")) for n in range(MAX_FAILURES + 3)]
    forms = [guarded.post("/login", data={"token": "guess"}, headers=PAGE)]

    statuses = [response.status_code for response in [*wrong, *forms]]
    assert statuses == [401] * MAX_FAILURES + [429] * 4
    assert guarded.get("/executions", headers=bearer(ADA)).status_code == 200
    assert guarded.post("/login", data={"token": ADA}).status_code == 303
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warnings == [f"more than {MAX_FAILURES} wrong tokens within a minute: are they guessed?"]


# ---- headers and methods of every response


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/executions"),
        ("GET", "/missing"),
        ("POST", "/executions"),
        ("GET", "/static/style.css"),
        ("OPTIONS", "/executions"),
    ],
)
def test_every_response_has_the_headers_that_limit_what_a_browser_may_do(
    site: PageServer, guarded: PageServer, method: str, path: str
) -> None:
    for server in (site, guarded):
        headers = server.request(method, path, headers=PAGE).headers

        assert "'unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Server" not in headers or headers["Server"] == "uvicorn"


def test_head_has_no_body_and_options_and_unknown_methods_are_not_served(site: PageServer) -> None:
    head = site.request("HEAD", "/executions")
    others = {
        method: site.request(method, "/executions").status_code for method in ("OPTIONS", "TRACE", "PUT", "X")
    }

    assert (head.status_code, head.content) == (200, b"")
    assert others == dict.fromkeys(others, 405)


def test_redis_that_is_gone_is_a_problem_and_not_a_way_in(
    serve_page: Serve, tmp_path: Path, redis_client: Redis
) -> None:
    site = serve_page(redis_url=f"unix://{tmp_path}/none.sock", tokens=str(write_users(tmp_path)))

    assert site.get("/executions").status_code == 401
    assert code_of(site.get("/executions", headers=bearer(WALL))) == "unavailable"
    assert site.get("/healthz").status_code == 200
