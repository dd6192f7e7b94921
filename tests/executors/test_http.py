"""The executor `http` against a local server: its requests, its output and its failures."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator_executors import http as module
from orchestrator_executors import http_connections
from orchestrator_executors.http import NotAnswered, Rejected, Unavailable, http
from orchestrator_executors.http_connections import Connections
from orchestrator_executors.settings import Refused
from servers.certificates import LOCALHOST
from servers.web import Asked, Reply, Site, said, site

Json = dict[str, Any]
CONTEXT: Json = {"idempotency_key": "x1#pay#0"}


@pytest.fixture(autouse=True)
def _a_worker_that_may_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.HOSTS_VARIABLE, "127.0.0.1")


@pytest.fixture
def web() -> Iterator[Site]:
    """A server that returns the request as JSON."""
    with site(lambda asked: said({"method": asked.method, "path": asked.path})) as made:
        yield made


def call(configuration: Json | None = None, **inputs: Any) -> Json:
    given: Any = inputs
    setup: Any = configuration or {}
    return asyncio.run(http(given, setup, CONTEXT))


def answering(*replies: Reply) -> Any:
    left = list(replies)
    return lambda asked: left.pop(0)


# ---- requests


def test_a_url_is_enough(web: Site) -> None:
    assert call(url=f"{web.url}/one") == {
        "status": 200,
        "headers": {"content-type": "application/json"},
        "json": {"method": "GET", "path": "/one"},
        "url": f"{web.url}/one",
    }

    [asked] = web.asked
    assert asked.headers == {
        "host": f"127.0.0.1:{web.port}",
        "user-agent": "rq-orchestrator",
        "accept": "*/*",
        "accept-encoding": "gzip",
    }


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "put", "DELETE", "post", "Patch"])
def test_any_usual_method_is_sent(web: Site, method: str) -> None:
    assert call(url=web.url, method=method)["json"]["method"] == method.upper()


def test_a_head_response_has_no_content(web: Site) -> None:
    assert call(url=web.url, method="HEAD")["json"] is None


@pytest.mark.parametrize(
    ("base", "path", "asked"),
    [
        ("", "", "/"),
        ("/", "/", "/"),
        ("/v1", "users/17", "/v1/users/17"),
        ("/v1/", "/users/17/", "/v1/users/17/"),
        ("/v1", "//elsewhere.example/x", "/v1/elsewhere.example/x"),
        ("/v1", "@elsewhere.example", "/v1/@elsewhere.example"),
        ("/v1", "grün und blau", "/v1/gr%C3%BCn%20und%20blau"),
        ("/v1", "a%20b/..c", "/v1/a%20b/..c"),
    ],
)
def test_a_path_is_below_its_base(web: Site, base: str, path: str, asked: str) -> None:
    assert call({"base_url": web.url + base}, path=path)["json"]["path"] == asked


def test_a_query_is_written_out(web: Site) -> None:
    query = {"q": "a&b ü", "page": 2, "tag": ["x", None, "y"], "deep": True, "none": None}

    given = call(url=f"{web.url}/find?lang=de", query=query)

    assert given["json"]["path"] == "/find?lang=de&q=a%26b+%C3%BC&page=2&tag=x&tag=y&deep=true"
    assert given["url"] == f"{web.url}/find"


def test_a_body_is_sent_with_its_content_type(web: Site) -> None:
    call(url=web.url, method="POST", json={"text": "grün", "n": [1, None]})
    call(url=web.url, method="POST", form={"a": "x y", "b": [1, 2]})
    call(url=web.url, method="PUT", body="grün")
    call(url=web.url, method="PUT", body="<a/>", headers={"content-type": "text/xml"})

    assert [(asked.body.decode(), asked.headers["content-type"]) for asked in web.asked] == [
        ('{"text":"grün","n":[1,null]}', "application/json"),
        ("a=x+y&b=1&b=2", "application/x-www-form-urlencoded"),
        ("grün", "text/plain; charset=utf-8"),
        ("<a/>", "text/xml"),
    ]


def test_headers_are_sent(web: Site) -> None:
    call(url=web.url, headers={"X-Team": "grün", "X-Count": 3, "user-agent": "shop", "X-None": "  "})

    headers = web.asked[0].headers
    assert headers["x-team"].encode("latin-1").decode() == "grün"
    assert (headers["x-count"], headers["user-agent"], headers["x-none"]) == ("3", "shop", "")


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        ({"basic": {"user": "ada", "password": "p:w"}}, "authorization", "Basic YWRhOnA6dw=="),
        ({"bearer": "abc"}, "authorization", "Bearer abc"),
        ({"header": {"name": "X-Api-Key", "value": "abc"}}, "x-api-key", "abc"),
    ],
)
def test_auth_is_sent_as_a_header(web: Site, auth: Json, name: str, value: str) -> None:
    call(url=web.url, auth=auth)

    assert web.asked[0].headers[name] == value


def test_requests_that_are_not_idempotent_have_an_idempotency_key(web: Site) -> None:
    for settings in (
        {"method": "POST"},
        {"method": "PATCH"},
        {"method": "PUT"},
        {"method": "PUT", "idempotency_key": True},
        {"method": "POST", "idempotency_key": False},
        {"method": "POST", "idempotency_key": "order-17"},
        {"method": "POST", "headers": {"idempotency-key": "mine"}},
    ):
        call(url=web.url, **settings)

    found = [asked.headers.get("idempotency-key") for asked in web.asked]
    assert found == ["x1#pay#0", "x1#pay#0", None, "x1#pay#0", None, "order-17", "mine"]


def test_the_payload_of_a_step_is_sent_as_its_source_says(web: Site) -> None:
    source = {"url": f"{web.url}/users"}
    call({**source, "input_mode": "parameter"}, payload="a b")
    call({**source, "input_mode": "parameter", "param_name": "user"}, payload=17)
    call({**source, "input_mode": "body", "method": "POST"}, payload={"id": 1})
    call({**source, "input_mode": "body", "method": "POST"}, payload="text")
    call({**source, "input_mode": "parameter"})

    assert [(one.method, one.path, one.body) for one in web.asked] == [
        ("GET", "/users?id=a+b", b""),
        ("GET", "/users?user=17", b""),
        ("POST", "/users", b'{"id":1}'),
        ("POST", "/users", b'"text"'),
        ("GET", "/users", b""),
    ]


# ---- output


@pytest.mark.parametrize(
    ("content_type", "content", "body"),
    [
        ("application/json", b'{"a": [1, "\xc3\xbc"]}', {"json": {"a": [1, "ü"]}}),
        ("application/problem+json; charset=utf-8", b"7", {"json": 7}),
        ("Application/JSON", b"", {"json": None}),
        ("text/plain", "grün".encode(), {"text": "grün"}),
        ("text/plain; charset=ISO-8859-1", "grün".encode("latin-1"), {"text": "grün"}),
        ('text/html; charset="windows-1252"', b"\x80", {"text": "€"}),
        ("text/plain; charset=nonsense", "grün".encode(), {"text": "grün"}),
        ("text/plain; charset=punycode", b"bcher-kva", {"text": "bcher-kva"}),
        ("text/plain; charset=hex", b"00", {"text": "00"}),
        ("text/csv", b"\xff", {"text": "�"}),
        ("application/xml", b"<a/>", {"text": "<a/>"}),
        ("image/svg+xml", b"<svg/>", {"text": "<svg/>"}),
        ("image/png", b"\x89PNG", {"base64": "iVBORw=="}),
        ("application/octet-stream", b"plain", {"base64": "cGxhaW4="}),
        ("", b"plain", {"text": "plain"}),
    ],
)
def test_content_is_decoded_by_its_type(content_type: str, content: bytes, body: Json) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    with site(lambda asked: Reply(200, content, headers)) as web:
        given = call(url=web.url)

    kept = {"content-type": content_type} if content_type else {}
    assert given == {"status": 200, "headers": kept, "url": web.url, **body}


def test_content_may_be_compressed_in_several_members() -> None:
    content = gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two")
    with site(
        lambda asked: Reply(200, content, {"Content-Encoding": "gzip", "Content-Type": "text/csv"})
    ) as web:
        assert call(url=web.url)["text"] == "one,two"


def test_few_headers_are_kept_and_cookies_neither_kept_nor_sent_back() -> None:
    headers = {
        "ETag": '"1"',
        "Set-Cookie": "session=abc",
        "Location": "/x",
        "Server": "x",
        "Retry-After": "9",
    }

    async def scene(url: str) -> Json:
        await http({"url": url}, {}, CONTEXT)
        return await http({"url": url}, {}, CONTEXT)

    with site(lambda asked: Reply(201, b"", headers)) as web:
        given = asyncio.run(scene(web.url))

    assert given["headers"] == {"etag": '"1"', "location": "/x", "retry-after": "9"}
    assert not [asked for asked in web.asked if "cookie" in asked.headers]


def test_a_source_may_return_only_the_content() -> None:
    """The key is always the same, and JSON is recognized without its content type."""
    replies = answering(
        said({"users": [1]}),
        said([1, 2]),
        Reply(200, b"hello"),
        Reply(200, b"[3]", {"Content-Type": "text/plain"}),
        Reply(200, b"NaN", {"Content-Type": "text/plain"}),
        Reply(200, b"[3]", {"Content-Type": "image/png"}),
    )
    with site(replies) as web:
        source = {"url": web.url, "returns": "body"}

        assert [call(source)["value"] for _ in range(6)] == [
            {"users": [1]},
            [1, 2],
            "hello",
            [3],
            "NaN",
            "WzNd",
        ]


@pytest.mark.parametrize(
    ("success", "statuses"),
    [
        (404, {404}),
        ([200, 404], {200, 404}),
        ("2xx", {200, 201, 204}),
        (["2XX", "302-404"], {200, 201, 204, 302, 404}),
        (None, {200, 201, 204}),
    ],
)
def test_success_can_be_configured(success: Any, statuses: set[int]) -> None:
    found = set()
    with site(lambda asked: Reply(int(asked.path[1:]), headers={"Location": "/200"})) as web:
        for status in (200, 201, 204, 302, 404, 500):
            try:
                found.add(call(url=f"{web.url}/{status}", success=success, max_redirects=0)["status"])
            except (Rejected, Unavailable):
                continue

    assert found == statuses


# ---- failures


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, Rejected),
        (404, Rejected),
        (422, Rejected),
        (304, Rejected),
        (408, Unavailable),
        (425, Unavailable),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_the_exception_of_an_error_response_says_whether_to_retry(status: int, kind: type[Exception]) -> None:
    content = b"" if status == 304 else b"so\n it  is"
    with site(lambda asked: Reply(status, content)) as web, pytest.raises(kind) as failed:
        call(url=web.url)

    assert str(failed.value) == f"127.0.0.1 answered {status}" + (": so it is" if status != 304 else "")
    assert getattr(failed.value, "non_retryable", False) is (kind is Rejected)


def test_a_2xx_response_that_is_not_a_success_is_retried() -> None:
    with site(lambda asked: Reply(202, b"not yet")) as web, pytest.raises(Unavailable, match="202: not yet"):
        call(url=web.url, success=200)


def test_only_the_start_of_a_long_error_response_is_kept() -> None:
    compressed = Reply(500, gzip.compress(1_000_000 * b"y"), {"Content-Encoding": "gzip"})
    with site(answering(Reply(500, 1_000_000 * b"x"), compressed)) as web:
        for letter in "xy":
            with pytest.raises(Unavailable) as failed:
                call(url=web.url)
            assert str(failed.value) == "127.0.0.1 answered 500: " + 200 * letter


def test_an_unreachable_host_is_retried() -> None:
    with site(answering()) as gone:
        url = gone.url

    with pytest.raises(NotAnswered, match=r"127\.0\.0\.1 cannot be reached: ConnectError") as failed:
        call(url=url)

    assert not hasattr(failed.value, "non_retryable")


def test_a_name_that_cannot_be_resolved_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*args: Any, **keys: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setenv(module.HOSTS_VARIABLE, "*")
    monkeypatch.setattr(socket, "getaddrinfo", nowhere)

    with pytest.raises(NotAnswered, match=r"api\.example\.org cannot be resolved"):
        call(url="https://api.example.org/")


def test_a_malformed_response_is_a_failure() -> None:
    replies = answering(
        Reply(200, headers={"Content-Length": "50"}, pieces=[b"half"]),
        Reply(200, gzip.compress(b"whole")[:-4], {"Content-Encoding": "gzip"}),
        Reply(200, b"no gzip", {"Content-Encoding": "gzip"}),
        Reply(200, b"x", {"Content-Encoding": "br"}),
        Reply(200, b'{"a":', {"Content-Type": "application/json"}),
        Reply(200, b"[NaN]", {"Content-Type": "application/json"}),
        Reply(200, 100_000 * b"[", {"Content-Type": "application/json"}),
    )
    with site(replies) as web:
        for why in (
            "RemoteProtocolError",
            "truncated gzip",
            "invalid gzip",
            "an encoding that was not requested: br",
            "invalid JSON: JSONDecodeError",
            "invalid JSON: ValueError",
            "invalid JSON: RecursionError",
        ):
            with pytest.raises(NotAnswered, match=why):
                call(url=web.url)


def test_the_error_without_httpx_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)

    with pytest.raises(NotAnswered, match=r"pip install 'rq-orchestrator\[http\]'"):
        call(url="http://127.0.0.1/")


# ---- redirects


def test_a_redirect_is_followed_for_get_and_head() -> None:
    def answer(asked: Asked) -> Reply:
        if asked.path == "/end":
            return said("here")
        return Reply(302, headers={"Location": "end"})

    with site(answer) as web:
        given = call(url=f"{web.url}/begin", headers={"X-Key": "k"}, auth={"bearer": "abc"}, query={"a": 1})
        assert call(url=f"{web.url}/begin", method="HEAD")["url"] == f"{web.url}/end"
        with pytest.raises(Rejected, match="answered 302"):
            call(url=f"{web.url}/begin", method="POST")
        with pytest.raises(Rejected, match="answered 302"):
            call(url=f"{web.url}/begin", max_redirects=0)

    assert (given["json"], given["url"]) == ("here", f"{web.url}/end")
    assert [
        (one.path, one.headers.get("x-key"), one.headers.get("authorization")) for one in web.asked[:2]
    ] == [
        ("/begin?a=1", "k", "Bearer abc"),
        ("/end", "k", "Bearer abc"),
    ]


def test_the_last_redirect_that_is_allowed_is_followed() -> None:
    def answer(asked: Asked) -> Reply:
        left = int(asked.path[1:])
        return Reply(301, headers={"Location": f"/{left - 1}"}) if left else Reply(200, b"here")

    with site(answer) as web:
        assert call(url=f"{web.url}/5")["text"] == "here"
        with pytest.raises(Refused, match="redirects again, but max_redirects is 5"):
            call(url=f"{web.url}/6")


# ---- https and kept connections


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "localhost.pem"
    path.write_text(LOCALHOST)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return str(path)


def resolve(monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> list[str]:
    """Resolve these names to these addresses; returns the names that were resolved."""
    asked: list[str] = []

    def getaddrinfo(host: Any, port: Any, *args: Any, **keys: Any) -> Any:
        asked.append(str(host))
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in names[str(host).partition(".")[0]]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_https_verifies_the_name_although_the_request_goes_to_the_address(
    certificate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(monkeypatch, localhost=["127.0.0.1"], other=["127.0.0.1"])
    monkeypatch.setenv(module.HOSTS_VARIABLE, "localhost, other.example.org")

    async def scene(port: int) -> None:
        """A connection that was verified for one name is not used for another name at the same address."""
        await http({"url": f"https://localhost:{port}/"}, {}, CONTEXT)
        await http({"url": f"https://other.example.org:{port}/"}, {}, CONTEXT)

    with site(lambda asked: said(1), certificate=certificate) as web:
        with pytest.raises(NotAnswered, match=r"not valid for 'other\.example\.org'"):
            asyncio.run(scene(web.port))
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(NotAnswered, match="CERTIFICATE_VERIFY_FAILED"):
            call(url=f"https://localhost:{web.port}/")

    assert [asked.headers["host"] for asked in web.asked] == [f"localhost:{web.port}"]


def test_one_reachable_address_of_several_is_enough(web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve(monkeypatch, api=["127.0.0.2", "127.0.0.3", "127.0.0.1"])
    monkeypatch.setenv(module.HOSTS_VARIABLE, "api.example.org")

    call(url=f"http://api.example.org:{web.port}/")

    assert web.asked[0].headers["host"] == f"api.example.org:{web.port}"
    assert asked == ["api.example.org"]


def test_steps_that_share_a_loop_share_connections_and_run_concurrently() -> None:
    everybody = threading.Barrier(20)

    def answer(asked: Asked) -> Reply:
        if asked.path == "/together":
            everybody.wait(180)
        return said(asked.line)

    async def scene(url: str) -> list[int]:
        one_by_one = [(await http({"url": url}, {}, CONTEXT))["json"] for _ in range(5)]
        at_once = [http({"url": f"{url}/together"}, {}, CONTEXT) for _ in range(20)]
        await asyncio.gather(*at_once)
        return one_by_one

    with site(answer) as web:
        lines = asyncio.run(scene(web.url))

        assert len(set(lines)) == 1
        assert call(url=web.url)["json"] not in lines, "the connections of a loop end with it"


def test_a_loop_that_ends_leaves_nothing_open(web: Site) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(url=web.url)
        gc.collect()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(http({"url": web.url}, {}, CONTEXT))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        call(url=web.url)
        gc.collect()

    assert [str(one.message) for one in caught] == []


def test_connections_are_kept_for_a_bounded_number_and_time(
    web: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"h{n}": ["127.0.0.1"] for n in range(6)}
    resolve(monkeypatch, **names)
    monkeypatch.setenv(module.HOSTS_VARIABLE, ",".join(names))
    monkeypatch.setattr(http_connections, "MAX_TRANSPORTS", 4)

    async def scene() -> tuple[int, int]:
        for name in names:
            await http({"url": f"http://{name}:{web.port}/"}, {}, CONTEXT)
        connections = await Connections.for_running_loop()
        many = len(connections._pool)
        monkeypatch.setattr(http_connections, "IDLE_S", -1.0)
        await http({"url": f"http://h5:{web.port}/"}, {}, CONTEXT)
        return many, len(connections._pool)

    assert asyncio.run(scene()) == (4, 1)


def test_no_url_is_logged(web: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        call(url=f"{web.url}/path-17", query={"key": "k-17"})

    assert "17" not in caplog.text


def test_a_stopped_step_ends_at_once_and_returns_its_connection() -> None:
    held, let_go = threading.Event(), threading.Event()

    def answer(asked: Asked) -> Reply:
        held.set()
        let_go.wait(180)
        return said(1)

    async def scene(url: str) -> int:
        step = asyncio.ensure_future(http({"url": url}, {}, CONTEXT))
        while not held.is_set():
            await asyncio.sleep(0)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        [pooled] = (await Connections.for_running_loop())._pool.values()
        return pooled.borrowers

    with site(answer) as web:
        assert asyncio.run(scene(web.url)) == 0
        let_go.set()
