"""The executor `http` against attacks: malicious inputs, DNS names and responses."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator_executors import http as module
from orchestrator_executors.http import NotAnswered, Rejected, http
from orchestrator_executors.settings import Refused
from servers.web import Asked, Reply, Site, said, site

Json = dict[str, Any]
CONTEXT: Json = {"idempotency_key": "x1#pay#0"}
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _a_worker_that_may_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.HOSTS_VARIABLE, "127.0.0.1")


@pytest.fixture
def inside() -> Iterator[Site]:
    """A private service, which must not be reached."""
    with site(lambda asked: said("the crown jewels")) as made:
        yield made


def call(configuration: Json | None = None, **inputs: Any) -> Json:
    given: Any = inputs
    setup: Any = configuration or {}
    return asyncio.run(http(given, setup, CONTEXT))


def resolve(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Resolve every name to these addresses, one at each lookup, and the last one again and again; an address
    in any spelling resolves as usual. Returns the names that were resolved."""
    asked: list[str] = []
    known, left = socket.getaddrinfo, list(answers)

    def getaddrinfo(host: Any, port: Any, *args: Any, **keys: Any) -> Any:
        asked.append(str(host))
        try:
            return known(host, port, *args, **{**keys, "flags": socket.AI_NUMERICHOST})
        except socket.gaierror:
            address = left.pop(0) if len(left) > 1 else left[0]
            return known(address, port, *args, **keys)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


# ---- malicious inputs


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.0x0.0x0.0x1",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "0.0.0.0",
        "0",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "10.0.0.1",
        "192.168.1.1",
    ],
)
def test_a_private_address_is_not_called_in_any_spelling(
    inside: Site, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv(module.HOSTS_VARIABLE, "*, api.example.org")

    with pytest.raises(Refused, match=r"is not a public address|cannot be used"):
        call(url=f"http://{host}:{inside.port}/")

    assert inside.asked == []


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "internal.example.org", "a.b.example.org", "ⓛocalhost"]
)
def test_a_name_of_a_private_address_is_not_called(
    inside: Site, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    resolve(monkeypatch, "127.0.0.1")
    monkeypatch.setenv(module.HOSTS_VARIABLE, "*")

    with pytest.raises(Refused, match=r"is not a public address|cannot be used"):
        call(url=f"http://{host}:{inside.port}/")

    assert inside.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.org@evil.example/",
        "http://api.example.org:80@evil.example/",
        "http://api.example.org%40evil.example/",
        "http://api.example.org\\@evil.example/",
        "http://evil.example#@api.example.org/",
        "http://evil.example?@api.example.org/",
        "http://evil.example/.api.example.org",
        "http://api.example.org.evil.example/",
        "http://xapi.example.org/",
        "http://api.example.org:8080/",
        "http://api.example.org\t.evil.example/",
        "http://api.example.org%00.evil.example/",
        "//api.example.org/",
        "file:///etc/passwd",
        "ftp://api.example.org/",
        "http:api.example.org",
        "http://api.example.org:0/",
        "http://api.example.org:65616/",
        "http://",
        "",
    ],
)
def test_a_url_that_only_looks_like_an_allowed_one_is_rejected_before_any_lookup(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    asked = resolve(monkeypatch, "93.184.216.34")
    monkeypatch.setenv(module.HOSTS_VARIABLE, "api.example.org:80")

    with pytest.raises(Refused):
        call(url=url)

    assert asked == []


def test_a_name_is_checked_by_the_address_that_is_called(
    inside: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public at the check, and private if it is resolved a second time."""
    asked = resolve(monkeypatch, "240.0.0.1", "127.0.0.1")
    monkeypatch.setenv(module.HOSTS_VARIABLE, "*")
    monkeypatch.setattr("orchestrator_executors.network._is_public", lambda address: not address.is_loopback)

    with pytest.raises(NotAnswered, match="cannot be reached"):
        call(url=f"http://rebind.example.org:{inside.port}/", connect_timeout=0.5)
    with pytest.raises(Refused, match=r"is 127\.0\.0\.1, which is not a public address"):
        call(url=f"http://rebind.example.org:{inside.port}/")

    assert (asked, inside.asked) == (2 * ["rebind.example.org"], [])


def test_a_kept_connection_is_not_used_for_another_address(
    inside: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name has an allowed address first, and another one at the next step."""
    resolve(monkeypatch, "127.0.0.1", "169.254.169.254")
    monkeypatch.setenv(module.HOSTS_VARIABLE, "api.example.org")
    url = f"http://api.example.org:{inside.port}/"

    async def scene() -> None:
        await http({"url": url}, {}, CONTEXT)
        with pytest.raises(Refused, match="is not called by name"):
            await http({"url": url}, {}, CONTEXT)
        monkeypatch.setenv(module.HOSTS_VARIABLE, "other.example.org")
        with pytest.raises(Refused, match=r"may not call api\.example\.org"):
            await http({"url": url}, {}, CONTEXT)

    asyncio.run(scene())

    assert len(inside.asked) == 1


def test_neither_a_proxy_nor_a_netrc_of_the_environment_is_used(
    inside: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with site(lambda asked: said("proxy")) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)

        call(url=inside.url)

    assert (len(inside.asked), proxy.asked) == (1, [])
    assert "authorization" not in inside.asked[0].headers


# ---- malicious redirects


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("http://169.254.169.254/latest/meta-data/", "may not call 169.254.169.254"),
        ("http://localhost:1/", "may not call localhost"),
        ("http://[::ffff:127.0.0.1]/", "may not call ::ffff:"),
        ("//evil.example/", "may not call evil.example"),
        ("http://127.0.0.1@evil.example/", "redirects to a URL that cannot be used"),
        ("file:///etc/passwd", "redirects to a URL that cannot be used"),
        ("gopher://127.0.0.1/", "redirects to a URL that cannot be used"),
        ("http://[::1", "redirects to a URL that cannot be used"),
        ("http://127.0.0.1:99999/", "redirects to a URL that cannot be used"),
    ],
)
def test_a_redirect_is_checked_like_a_url(target: str, why: str) -> None:
    with site(lambda asked: Reply(302, headers={"Location": target})) as web:
        with pytest.raises(Refused) as refusal:
            call(url=web.url)

        assert len(web.asked) == 1
    assert why in str(refusal.value)


def test_endless_redirects_end() -> None:
    numbers = itertools.count()
    with site(lambda asked: Reply(302, headers={"Location": f"/{next(numbers)}"})) as web:
        with pytest.raises(Refused, match="max_redirects is 5"):
            call(url=web.url)

        assert len(web.asked) == 6


def test_secrets_are_not_sent_to_another_origin() -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(307, headers={"Location": f"{other.url}/there"})

    with (
        site(lambda asked: Reply(302, headers={"Location": f"{web.url}/again"})) as other,
        site(answer) as web,
        pytest.raises(Refused),
    ):
        call(
            url=web.url,
            headers={
                "X-Api-Key": "k-123",
                "Cookie": "c=1",
                "Accept-Language": "de",
                "User-Agent": "shop",
            },
            query={"key": "k-456"},
            auth={"bearer": "abcdef"},
            method="GET",
            json={"pin": 1234},
            max_redirects=3,
        )

    first, back = web.asked[0], web.asked[1]
    assert (first.headers["authorization"], first.headers["x-api-key"], first.json) == (
        "Bearer abcdef",
        "k-123",
        {"pin": 1234},
    )
    for seen in (other.asked[0], back):
        assert set(seen.headers) == {"host", "user-agent", "accept", "accept-encoding", "accept-language"}
        assert (seen.headers["user-agent"], seen.body) == ("shop", b"")
        assert "k-456" not in seen.path


def test_a_redirect_from_https_to_http_is_rejected(
    inside: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from servers.certificates import LOCALHOST

    (tmp_path / "localhost.pem").write_text(LOCALHOST)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "localhost.pem"))
    monkeypatch.setenv(module.HOSTS_VARIABLE, "localhost, 127.0.0.1")
    resolve(monkeypatch, "127.0.0.1")
    certificate = str(tmp_path / "localhost.pem")
    with site(lambda asked: Reply(302, headers={"Location": inside.url}), certificate=certificate) as web:
        with pytest.raises(Refused, match=r"localhost redirects from https to http, at 127\.0\.0\.1"):
            call(url=f"https://localhost:{web.port}/")

        assert inside.asked == []


# ---- malicious responses


def test_our_secrets_in_a_response_are_redacted() -> None:
    def echo(asked: Asked) -> Reply:
        return Reply(401, " ".join(asked.headers.values()).encode())

    with site(echo) as web:
        for auth in (
            {"basic": {"user": "ada", "password": "hunter22"}},
            {"bearer": "abcdef-123"},
            {"header": {"name": "X-Key", "value": "abcdef-123"}},
        ):
            with pytest.raises(Rejected) as failed:
                call(url=web.url, auth=auth, headers={"X-Other": "abcdef-456"})
            text = str(failed.value)
            assert "<redacted>" in text
            assert not [word for word in ("abcdef", "hunter22", "YWRhOmh1bnRlcjIy") if word in text], text


@contextmanager
def taking_less_than(most: int) -> Iterator[None]:
    """The peak memory of the process within the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_gigabyte_is_not_read(is_announced: bool) -> None:
    pieces = itertools.repeat(64 * 1024 * b"x", 16 * 1024)
    headers = {"Content-Length": str(1024 * MIB)} if is_announced else {}
    with site(lambda asked: Reply(200, headers=headers, pieces=pieces)) as web, taking_less_than(8 * MIB):
        with pytest.raises(Refused, match="answers with more than 1,048,576 bytes; raise max_response_bytes"):
            call(url=web.url)

        assert web.sent < 64 * MIB


def bomb(times: int) -> bytes:
    """A hundred megabytes of zeros, compressed this many times."""
    press = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    content = b"".join(press.compress(bytes(MIB)) for _ in range(100)) + press.flush()
    for _ in range(times - 1):
        content = gzip.compress(content)
    return content


@pytest.mark.parametrize(
    ("encoding", "times", "kind", "why"),
    [
        ("gzip", 1, Refused, "more than 1,048,576 bytes"),
        ("gzip, gzip", 2, NotAnswered, "an encoding that was not requested: gzip, gzip"),
    ],
)
def test_a_compression_bomb_is_limited(encoding: str, times: int, kind: type[Exception], why: str) -> None:
    reply = Reply(200, bomb(times), {"Content-Encoding": encoding})
    with site(lambda asked: reply) as web, taking_less_than(8 * MIB), pytest.raises(kind, match=why):
        call(url=web.url)


def test_gzip_that_decompresses_to_nothing_is_limited_too() -> None:
    def nothing() -> Iterator[bytes]:
        yield gzip.compress(b"")[:10]
        flush = zlib.compressobj(wbits=-zlib.MAX_WBITS).flush(zlib.Z_FULL_FLUSH)
        yield from itertools.repeat(flush * 10_000, 100_000)

    reply = Reply(200, headers={"Content-Encoding": "gzip"}, pieces=nothing())
    with site(lambda asked: reply) as web, pytest.raises(Refused, match="more than 1,048,576 bytes"):
        call(url=web.url)


def test_the_limit_itself_is_allowed() -> None:
    with site(lambda asked: Reply(200, 100 * b"x")) as web:
        assert len(call(url=web.url, max_response_bytes=100)["text"]) == 100
        with pytest.raises(Refused, match="more than 99 bytes"):
            call(url=web.url, max_response_bytes=99)


@pytest.mark.parametrize("in_headers", [True, False])
def test_a_slow_response_ends_at_the_timeout(in_headers: bool) -> None:
    """No single byte is slow; all of them together are, and they never end."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            line, _ = server.accept()
            with line:
                line.recv(10_000)
                line.sendall(b"HTTP/1.1 200 OK\r\n" + (b"X-A: " if in_headers else b"\r\n"))
                try:
                    while not is_over.wait(0.02):
                        line.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(NotAnswered, match=r"127\.0\.0\.1 did not answer within 0\.3 s"):
            call(url=f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=0.3)
        is_over.set()
        thread.join()


def test_endless_headers_are_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def flood() -> None:
            line, _ = server.accept()
            with line:
                line.recv(10_000)
                try:
                    line.sendall(b"HTTP/1.1 200 OK\r\n")
                    for n in range(100_000):
                        line.sendall(f"X-{n}: {1000 * 'x'}\r\n".encode())
                except OSError:
                    return

        thread = threading.Thread(target=flood)
        thread.start()
        with pytest.raises(NotAnswered, match="cannot be reached"):
            call(url=f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
