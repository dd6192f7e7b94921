"""Log in and out, in a real browser; and the cookie of a login."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie
from pathlib import Path

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

from browsers import Tabs, axe_violations
from orchestrator import web
from orchestrator.web.access.sessions import COOKIE, MAX_AGE_S
from servers.page_server import PAGE, PageServer, Serve, serve
from worlds.page_users import ADA, SHOP, WALL, write_users


@pytest.fixture
def guarded(serve_page: Serve, tmp_path: Path) -> PageServer:
    """A page with the users of page_users.py."""
    return serve_page(tokens=str(write_users(tmp_path)))


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_user_logs_in_reads_and_logs_out(
    tabs: Tabs, guarded: PageServer, caplog: pytest.LogCaptureFixture, has_scripts: bool
) -> None:
    page = tabs.open(base_url=guarded.url, java_script_enabled=has_scripts)

    page.goto("/executions")
    expect(page).to_have_url(f"{guarded.url}/login")
    page.get_by_label("Token").fill(WALL)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Executions")).to_be_visible()
    expect(page.locator(".user")).to_contain_text("wall")
    page.get_by_role("button", name="Log out").click()

    expect(page).to_have_url(f"{guarded.url}/login")
    page.goto("/executions")
    expect(page).to_have_url(f"{guarded.url}/login")
    assert page.context.cookies() == []


def test_every_login_is_logged_with_its_user_and_without_its_token(
    guarded: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orchestrator.web.actions")

    guarded.post("/login", data={"token": ADA})
    guarded.post("/login", data={"token": f"{ADA}x"})

    logged = [record for record in caplog.records if record.name == "orchestrator.web.actions"]
    assert [record.getMessage() for record in logged] == [
        "login of this page by ada: ok",
        "login of this page by nobody: wrong_token",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wrong_token_is_said_on_the_form_which_axe_finds_right(
    tabs: Tabs, guarded: PageServer, scheme: str
) -> None:
    page = tabs.open(base_url=guarded.url, color_scheme=scheme)

    page.goto("/login")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("alert")).to_have_text("This token is not valid here.")
    assert axe_violations(page) == []
    tabs.errors.expect("401")


def test_the_token_of_a_webhook_is_no_login(guarded: PageServer) -> None:
    response = guarded.post("/login", data={"token": SHOP}, headers=PAGE)

    assert (response.status_code, response.headers.get("Set-Cookie")) == (401, None)


def read_cookie(header: str) -> Morsel[str]:
    return SimpleCookie(header)[COOKIE]


def test_the_cookie_is_kept_from_scripts_and_from_pages_of_others(guarded: PageServer) -> None:
    response = guarded.post("/login", data={"token": ADA})

    cookie = read_cookie(response.headers["Set-Cookie"])
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    assert (cookie["max-age"], cookie["domain"]) == (str(MAX_AGE_S), "")
    assert not cookie["secure"], "the page was asked for without TLS"


def test_the_cookie_is_only_sent_with_tls_where_the_login_had_it(
    serve_page: Serve, redis_url: str, tmp_path: Path
) -> None:
    application = web.app(redis_url, tokens=str(write_users(tmp_path)))

    with serve(application, proxy_headers=True, forwarded_allow_ips="127.0.0.1") as site:
        response = site.post("/login", data={"token": ADA}, headers={"X-Forwarded-Proto": "https"})

    assert read_cookie(response.headers["Set-Cookie"])["secure"] is True


def test_the_cookie_belongs_to_the_prefix_of_the_page(redis_url: str, tmp_path: Path, tabs: Tabs) -> None:
    page_of_ours = web.app(redis_url, tokens=str(write_users(tmp_path)))

    with serve(Starlette(routes=[Mount("/tools/flows", page_of_ours)])) as site:
        cookie = read_cookie(site.post("/tools/flows/login", data={"token": ADA}).headers["Set-Cookie"])
        assert cookie["path"] == "/tools/flows"
        page = tabs.open(base_url=site.url)
        page.goto("/tools/flows/")
        page.get_by_label("Token").fill(ADA)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{site.url}/tools/flows/executions")
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(f"{site.url}/tools/flows/login")
        assert page.context.cookies() == []


def test_a_cookie_that_was_changed_leads_to_the_login(tabs: Tabs, guarded: PageServer) -> None:
    page = tabs.open(base_url=guarded.url)
    page.goto("/login")
    page.get_by_label("Token").fill(WALL)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Executions")).to_be_visible()

    [cookie] = page.context.cookies()
    until, signature = cookie["value"].split(".")
    page.context.add_cookies([{**cookie, "value": f"{int(until) + 1}.{signature}"}])  # type: ignore[typeddict-item]
    page.goto("/executions")

    expect(page).to_have_url(f"{guarded.url}/login")


def test_a_page_without_tokens_has_no_login(site: PageServer) -> None:
    assert site.get("/login").status_code == 404
    assert site.post("/login", data={"token": ADA}).status_code == 404
