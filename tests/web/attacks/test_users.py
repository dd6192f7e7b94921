"""Attacks on tokens and cookies: what is not exactly the secret of a user is not the user."""

from __future__ import annotations

import hmac
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator import web
from orchestrator.web.access.sessions import COOKIE
from orchestrator.web.application import all_routes
from servers.asgi_sender import JSON, AsgiSender, Ask, log_in
from worlds.page_users import ADA, SHOP, USERS, WALL, bearer, write_users

HOOK = "/api/v1/hooks"


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
    cookie, compared, compare = log_in(page, ADA), [], hmac.compare_digest

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
    valid = log_in(page, ADA).partition("=")[2]
    assert page.send("GET", "/executions", {"Cookie": f"{COOKIE}={valid}"}).status == 200

    assert page.send("GET", "/executions", {"Cookie": cookie.replace("VALID", valid)}).status == 401


def test_a_cookie_belongs_to_the_users_who_made_it(page: AsgiSender, redis_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    tokens = str(write_users(folder, USERS.replace(ADA, ADA[::-1])))

    other = AsgiSender(web.app(redis_url, tokens=tokens))

    assert other.send("GET", "/executions", {"Cookie": log_in(page, ADA)}).status == 401


def test_a_login_makes_a_cookie_of_its_own(page: AsgiSender) -> None:
    given = log_in(page, WALL)

    made = log_in(page, ADA, Cookie=given)

    assert made.startswith(COOKIE)
    assert made != given


def test_a_removed_token_ends_at_once_wherever_it_is_used(page: AsgiSender, users: Path) -> None:
    cookie = log_in(page, ADA)

    write_users(users.parent, USERS.replace(ADA, ADA[::-1]))

    for headers in ({"Cookie": cookie}, bearer(ADA)):
        assert page.send("GET", "/executions", headers).status == 401
    assert page.send("POST", f"{HOOK}/order?token={ADA}", JSON, b"{}").status == 401
    assert log_in(page, ADA) == "None"
