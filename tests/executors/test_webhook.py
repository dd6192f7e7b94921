"""The executor `webhook`: what it posts, which hosts it rejects, and how posts fail."""

from __future__ import annotations

import hashlib
import hmac
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.invocation.coroutines import await_result
from orchestrator_executors import webhook as module
from orchestrator_executors.settings import Refused
from orchestrator_executors.webhook import NotDelivered, webhook
from servers.certificates import LOCALHOST
from servers.receiver import Answer, Receiver, receiver

CONTEXT = {"idempotency_key": "x1#webhook#0"}
BODY = {"status": "complete", "outcome": {"text": "grün"}}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.delenv(module.SECRET_VARIABLE, raising=False)
    allow(monkeypatch, "127.0.0.1")
    with receiver() as made:
        yield made


def allow(monkeypatch: pytest.MonkeyPatch, hosts: str) -> None:
    monkeypatch.setenv(module.HOSTS_VARIABLE, hosts)


def resolve(monkeypatch: pytest.MonkeyPatch, **names: str | list[str]) -> list[str]:
    """Resolve these names to these addresses; returns the names that were resolved."""
    asked: list[str] = []
    known = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **keys: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        asked.append(name)
        found = names.get(name.partition(".")[0], name)
        addresses = [found] if isinstance(found, str) else found
        return [entry for address in addresses for entry in known(address, *args, **keys)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def post(url: str, body: Any = BODY, **headers: str) -> dict[str, Any]:
    return send({"url": url, "headers": headers, "body": body})


def send(inputs: Any) -> dict[str, Any]:
    """Call the executor as a worker does."""
    returned: Any = await_result(webhook(inputs, CONTEXT))
    return dict(returned)


def verified(secret: str, signature: str, body: bytes) -> bool:
    """Verify the signature, as a receiver does."""
    parts = dict(part.split("=", 1) for part in signature.split(","))
    expected = hmac.new(secret.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts["v1"]) and abs(time.time() - int(parts["t"])) < 300


# ---- posts


def test_the_body_is_posted_as_json_under_the_name_of_the_delivery(hooks: Receiver) -> None:
    assert post(hooks.url) == {"status": 204}

    [got] = hooks.posts
    assert (got.path, got.json) == ("/hook", BODY)
    assert got.body == '{"status":"complete","outcome":{"text":"grün"}}'.encode()
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"] == "rq-orchestrator"
    assert got.headers["host"] == f"127.0.0.1:{hooks.port}"
    assert got.delivery == "x1#webhook#0"
    assert "orchestrator-signature" not in got.headers


def test_the_headers_of_the_document_are_sent_but_cannot_replace_the_fixed_ones(hooks: Receiver) -> None:
    post(
        hooks.url,
        **{
            "X-Team": "grün",
            "user-agent": "shop",
            "host": "elsewhere.example.org",
            "content-length": "3",
            "transfer-encoding": "chunked",
            "orchestrator-signature": "t=1,v1=forged",
            "orchestrator-delivery": "forged",
        },
    )

    [got] = hooks.posts
    assert (got.headers["x-team"].encode("latin-1").decode(), got.headers["user-agent"]) == ("grün", "shop")
    assert (got.json, got.delivery) == (BODY, "x1#webhook#0")
    assert got.headers["host"] == f"127.0.0.1:{hooks.port}"
    assert not {"orchestrator-signature", "transfer-encoding"} & set(got.headers)


def test_a_step_may_call_it_with_a_url_alone(hooks: Receiver) -> None:
    assert send({"url": hooks.url}) == {"status": 204}

    assert hooks.posts[0].json is None


def test_with_a_secret_it_is_signed_and_the_signature_holds_for_this_body_alone(
    hooks: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.SECRET_VARIABLE, "wh-s3cret")

    post(hooks.url)

    [got] = hooks.posts
    signature = got.headers["orchestrator-signature"]
    assert verified("wh-s3cret", signature, got.body)
    assert not verified("wh-s3cret", signature, got.body + b" ")
    assert not verified("another", signature, got.body)


def test_the_credentials_of_a_url_are_those_of_the_request(hooks: Receiver) -> None:
    post(hooks.url.replace("http://", "http://ada:pw@"))

    assert hooks.posts[0].headers["authorization"] == "Basic YWRhOnB3"


def test_https_verifies_the_name_although_the_request_goes_to_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "localhost.pem").write_text(LOCALHOST)
    resolve(monkeypatch, localhost="127.0.0.1", other="127.0.0.1")
    allow(monkeypatch, "localhost, other.example.org")
    with receiver(certificate=str(tmp_path / "localhost.pem")) as hooks:
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            post(f"https://localhost:{hooks.port}/")

        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "localhost.pem"))
        assert post(f"https://localhost:{hooks.port}/") == {"status": 204}
        with pytest.raises(NotDelivered, match=r"not valid for 'other\.example\.org'"):
            post(f"https://other.example.org:{hooks.port}/")

    assert [got.headers["host"] for got in hooks.posts] == [f"localhost:{hooks.port}"]


# ---- failures


def test_any_response_but_a_success_is_a_failure_with_its_status(hooks: Receiver) -> None:
    hooks.answers = [Answer(500, "out of\n order"), Answer(404), Answer(200, "x" * 10_000_000)]

    with pytest.raises(NotDelivered) as first:
        post(hooks.url)
    with pytest.raises(NotDelivered) as second:
        post(hooks.url)

    assert str(first.value) == "127.0.0.1 answered 500: out of order"
    assert str(second.value) == "127.0.0.1 answered 404"
    assert post(hooks.url) == {"status": 200}


def test_only_the_start_of_a_long_response_is_kept(hooks: Receiver) -> None:
    hooks.answers = [Answer(500, "x" * 1_000_000)]

    with pytest.raises(NotDelivered) as failed:
        post(hooks.url)

    assert str(failed.value) == "127.0.0.1 answered 500: " + 200 * "x"


def test_our_secrets_in_a_response_are_redacted(hooks: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.SECRET_VARIABLE, "wh-s3cret")
    said = "no Bearer abcdef, no abcdef, no wh-s3cret, no path /hook?key=k-123 with k-123, of ada:passw"
    hooks.answers = [Answer(401, said)]

    with pytest.raises(NotDelivered) as failed:
        post(hooks.url.replace("//", "//ada:passw@") + "?key=k-123", Authorization="Bearer abcdef")

    hidden = "no <redacted>, no <redacted>, no <redacted>, no path <redacted> with <redacted>, of <redacted>"
    assert str(failed.value) == f"127.0.0.1 answered 401: {hidden}"


def test_a_redirect_is_not_followed(hooks: Receiver) -> None:
    with receiver() as elsewhere:
        hooks.answers = [Answer(307, headers={"Location": elsewhere.url})]

        with pytest.raises(NotDelivered, match=r"127\.0\.0\.1 answered 307"):
            post(hooks.url)

    assert (len(hooks.posts), elsewhere.posts) == (1, [])


def test_a_receiver_that_does_not_answer_is_a_failure(
    hooks: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    hooks.hold()

    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1 did not answer within 0\.05 s"):
        post(hooks.url)


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\n", b""])
def test_a_receiver_that_sends_byte_after_byte_gets_no_more_time(
    monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    """No single byte is slow; all of them together are, and they never end."""
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    allow(monkeypatch, "127.0.0.1")

    with dripping(start) as port, pytest.raises(NotDelivered) as failed:
        post(f"http://127.0.0.1:{port}/")

    assert str(failed.value) == "127.0.0.1 did not answer within 0.3 s"


def test_a_receiver_that_takes_the_body_slowly_gets_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    allow(monkeypatch, "127.0.0.1")

    with dripping(None) as port, pytest.raises(NotDelivered, match=r"did not answer within 0\.3 s"):
        post(f"http://127.0.0.1:{port}/", "x" * 30_000_000)


def test_a_slow_lookup_of_the_name_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def slow(*args: Any, **keys: Any) -> Any:
        is_over.wait(180)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    allow(monkeypatch, "*")

    with pytest.raises(NotDelivered, match=r"hooks\.example\.org did not answer within 0\.3 s"):
        post("https://hooks.example.org/")
    is_over.set()


def test_the_status_counts_although_its_text_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXCERPT_TIMEOUT_S", 0.2)
    allow(monkeypatch, "127.0.0.1")

    start = b"HTTP/1.1 500 Oh\r\nContent-Length: 50\r\n\r\n"
    with dripping(start, drip=b"") as port, pytest.raises(NotDelivered) as failed:
        post(f"http://127.0.0.1:{port}/")

    assert str(failed.value) == "127.0.0.1 answered 500"


@contextmanager
def dripping(start: bytes | None, drip: bytes = b"x") -> Iterator[int]:
    """A server that answers with a start, and then with a byte now and then, without an end. Without a start
    it reads a byte now and then instead. Yields its port."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line, suppress(OSError):
                if start is not None:
                    line.recv(10_000)
                    line.sendall(start)
                while not is_over.wait(0.02):
                    line.sendall(drip) if start is not None else line.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            is_over.set()
            thread.join()


def test_an_unreachable_receiver_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, "127.0.0.1")
    with receiver() as gone:
        url = gone.url

    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1 cannot be reached: ConnectError"):
        post(url)


def test_a_truncated_response_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.recv(10_000)
                line.sendall(b"HTTP/1.1 500 Oh\r\nContent-Length: 50\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NotDelivered, match=r"^127\.0\.0\.1 answered 500$"):
            post(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()


def test_one_reachable_address_of_several_is_enough(hooks: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, shop=["127.0.0.2", "127.0.0.3", "127.0.0.1"])
    allow(monkeypatch, "shop.example.org")

    assert post(f"http://shop.example.org:{hooks.port}/") == {"status": 204}

    assert hooks.posts[0].headers["host"] == f"shop.example.org:{hooks.port}"


def test_a_name_that_cannot_be_resolved_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*args: Any, **keys: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    allow(monkeypatch, "*")

    with pytest.raises(NotDelivered, match=r"hooks\.example\.org cannot be resolved: .*not known"):
        post("https://hooks.example.org/")


def test_the_error_without_httpx_names_the_package_to_install(
    hooks: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)

    with pytest.raises(NotDelivered, match=r"pip install 'rq-orchestrator\[http\]'"):
        post(hooks.url)


# ---- the allowlist


@pytest.mark.parametrize("hosts", [None, "", " , "])
def test_a_worker_without_an_allowlist_posts_to_no_host(
    hooks: Receiver, monkeypatch: pytest.MonkeyPatch, hosts: str | None
) -> None:
    monkeypatch.delenv(module.HOSTS_VARIABLE)
    if hosts is not None:
        allow(monkeypatch, hosts)

    with pytest.raises(Refused, match=r"ORCHESTRATOR_WEBHOOK_HOSTS is not set.* such as 127\.0\.0\.1"):
        post(hooks.url)

    assert hooks.posts == []


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ("other.org", "may not post to shop.example.org"),
        ("*", "shop.example.org is 10.1.2.3, which is not a public address"),
    ],
)
def test_a_host_or_an_address_that_is_not_allowed_gets_no_post(
    monkeypatch: pytest.MonkeyPatch, hosts: str, why: str
) -> None:
    resolve(monkeypatch, shop="10.1.2.3")
    allow(monkeypatch, hosts)

    with pytest.raises(Refused) as refusal:
        post("https://shop.example.org/hook")

    assert why in str(refusal.value)
    assert module.HOSTS_VARIABLE in str(refusal.value)


def test_a_name_is_resolved_once_so_that_it_cannot_change_after_the_check(
    hooks: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolve(monkeypatch, shop="127.0.0.1")
    allow(monkeypatch, "shop.example.org")

    post(f"http://shop.example.org:{hooks.port}/")

    assert [name for name in asked if name == "shop.example.org"] == ["shop.example.org"]


def test_a_proxy_of_the_environment_is_not_used(hooks: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")

        post(hooks.url)

    assert (len(hooks.posts), proxy.posts) == (1, [])


@pytest.mark.parametrize("url", ["http://[::1", "http://a:b:c/", None, 17, "https://\x00/"])
def test_a_bad_url_is_rejected(monkeypatch: pytest.MonkeyPatch, url: Any) -> None:
    allow(monkeypatch, "*")

    with pytest.raises(Refused, match="the URL cannot be used"):
        send({"url": url})


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "file:///etc/passwd", "http:///x", "127.0.0.1"])
def test_a_url_without_http_or_a_host_is_rejected(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    allow(monkeypatch, "127.0.0.1")

    with pytest.raises(Refused, match="the URL cannot be used"):
        send({"url": url})
