"""Attacks by pages of others: requests in the name of their visitors, and other names for this host."""

from __future__ import annotations

import pytest

from servers.asgi_sender import FORM, HOST, AsgiSender, Ask, log_in
from worlds.page_users import ADA, bearer

CANCEL = "/executions/x/cancel"


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
    cookie = log_in(page, ADA)

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
