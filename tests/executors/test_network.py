"""Which hosts a worker may call, by its allowlist: names, addresses, ports, and the addresses of names."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import httpx
import pytest

from orchestrator_executors.network import (
    METADATA_ADDRESSES,
    HostAllowlist,
    HostNotFound,
    host_of,
    redact,
    resolve,
    resolve_in_thread,
)
from orchestrator_executors.settings import Refused

VARIABLE = "ORCHESTRATOR_TEST_HOSTS"
ALLOWLIST = HostAllowlist(VARIABLE, "call")


def check(host: str, port: int, *addresses: str) -> list[str]:
    return ALLOWLIST.allowed_addresses(host, list(addresses), ALLOWLIST.check_host(host, port))


@pytest.mark.parametrize(
    ("listed", "host", "address"),
    [
        ("shop.example.org", "shop.example.org", "93.184.216.34"),
        ("shop.example.org", "SHOP.example.org.", "93.184.216.34"),
        ("other.org, Shop.Example.org", "shop.example.org", "93.184.216.34"),
        ("*.example.org", "shop.example.org", "93.184.216.34"),
        ("*.example.org", "a.b.example.org", "93.184.216.34"),
        ("*", "shop.example.org", "93.184.216.34"),
        ("*", "shop.example.org", "2606:2800:220:1::1"),
        ("shop.example.org", "shop.example.org", "10.0.0.5"),
        ("shop.example.org", "shop.example.org", "127.0.0.1"),
        ("shop.example.org", "shop.example.org", "::1"),
        ("*, localhost", "localhost", "127.0.0.1"),
        ("169.254.169.254", "169.254.169.254", "169.254.169.254"),
        ("[::1]", "[::1]", "::1"),
        ("::1", "[::1]", "::1"),
        ("93.184.216.34", "93.184.216.34", "93.184.216.34"),
        ("*", "93.184.216.34", "93.184.216.34"),
    ],
)
def test_these_hosts_are_allowed(
    monkeypatch: pytest.MonkeyPatch, listed: str, host: str, address: str
) -> None:
    monkeypatch.setenv(VARIABLE, listed)

    assert check(host_of(httpx.URL(f"https://{host}/")), 443, address) == [address]


@pytest.mark.parametrize(
    ("listed", "host", "address", "why"),
    [
        ("other.org", "shop.example.org", "93.184.216.34", "may not call shop.example.org"),
        ("*.example.org", "example.org", "93.184.216.34", "may not call example.org"),
        ("*.example.org", "shopexample.org", "93.184.216.34", "may not call shopexample.org"),
        ("example.org", "shop.example.org", "93.184.216.34", "may not call shop.example.org"),
        ("*", "shop.example.org", "127.0.0.1", "is not a public address"),
        ("*", "shop.example.org", "10.1.2.3", "is not a public address"),
        ("*", "shop.example.org", "192.168.0.7", "is not a public address"),
        ("*", "shop.example.org", "172.16.0.1", "is not a public address"),
        ("*", "shop.example.org", "100.64.0.1", "is not a public address"),
        ("*", "shop.example.org", "169.254.169.254", "is not a public address"),
        ("*", "shop.example.org", "0.0.0.0", "is not a public address"),
        ("*", "shop.example.org", "224.0.0.1", "is not a public address"),
        ("*", "shop.example.org", "::1", "is not a public address"),
        ("*", "shop.example.org", "fe80::1", "is not a public address"),
        ("*", "shop.example.org", "fd00::1", "is not a public address"),
        ("*", "shop.example.org", "::ffff:127.0.0.1", "is not a public address"),
        ("*.example.org", "shop.example.org", "10.1.2.3", "is not a public address"),
        ("*", "127.0.0.1", "127.0.0.1", "is not a public address"),
        ("*", "2130706433", "127.0.0.1", "is not a public address"),
        ("*", "0x7f.1", "127.0.0.1", "is not a public address"),
        ("*", "localhost", "127.0.0.1", "is not a public address"),
        ("127.0.0.1", "localhost", "127.0.0.1", "may not call localhost"),
        ("shop.example.org", "shop.example.org", "169.254.169.254", "is not called by name"),
        ("shop.example.org", "shop.example.org", "::ffff:169.254.169.254", "is not called by name"),
        ("shop.example.org", "shop.example.org", "fe80::1", "is not called by name"),
        ("shop.example.org", "shop.example.org", "0.0.0.0", "is not called by name"),
    ],
)
def test_these_hosts_are_not_allowed(
    monkeypatch: pytest.MonkeyPatch, listed: str, host: str, address: str, why: str
) -> None:
    monkeypatch.setenv(VARIABLE, listed)

    with pytest.raises(Refused) as refusal:
        check(host_of(httpx.URL(f"https://{host}/")), 443, address)

    assert why in str(refusal.value)
    assert VARIABLE in str(refusal.value)


def test_only_the_allowed_addresses_of_a_name_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "shop.example.org")

    assert check("shop.example.org", 80, "169.254.169.254", "127.0.0.1") == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("listed", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("[::1]:8080", "::1", 8080),
        ("[::1]", "::1", 80),
        ("::1", "::1", 80),
        ("[0:0:0:0:0:0:0:1]", "::1", 80),
        ("127.0.0.1:80, 127.0.0.1:8080", "127.0.0.1", 8080),
        ("127.0.0.1:80, 127.0.0.1", "127.0.0.1", 8080),
    ],
)
def test_an_entry_with_a_port_allows_only_that_port(
    monkeypatch: pytest.MonkeyPatch, listed: str, host: str, port: int
) -> None:
    monkeypatch.setenv(VARIABLE, listed)

    assert check(host, port, host) == [host]


@pytest.mark.parametrize(
    ("listed", "host", "port", "why"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 80, "may not call 127.0.0.1 at port 80"),
        ("[::1]:8080", "::1", 80, "may not call ::1 at port 80"),
        ("*.example.org:443", "api.example.org", 80, "may not call api.example.org"),
        ("*:443", "api.example.org", 80, "may not call api.example.org"),
        ("api.example.org:http", "api.example.org", 80, "'api.example.org:http' is not a number"),
        ("", "api.example.org", 80, "may not call any host: ORCHESTRATOR_TEST_HOSTS is not set"),
    ],
)
def test_other_ports_and_bad_entries_are_rejected(
    monkeypatch: pytest.MonkeyPatch, listed: str, host: str, port: int, why: str
) -> None:
    monkeypatch.setenv(VARIABLE, listed)

    with pytest.raises(Refused) as refusal:
        ALLOWLIST.check_host(host, port)

    assert why in str(refusal.value)
    assert VARIABLE in str(refusal.value)
    assert refusal.value.non_retryable


def test_a_pattern_with_a_port_allows_public_addresses_at_that_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "*.example.org:443")

    assert check("api.example.org", 443, "93.184.216.34", "10.0.0.1") == ["93.184.216.34"]


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::5db8:d822",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::1",
        "2606:2800::5efe:127.0.0.1",
        "fc00::1",
        "fe80::1%eth0",
        "fec0::1",
        "fd00:ec2::254",
        "ff02::1",
    ],
)
def test_a_private_address_is_not_public_in_any_ipv6_form(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv(VARIABLE, "*")

    with pytest.raises(Refused, match="is not a public address"):
        check("api.example.org", 443, address)


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34"],
)
def test_a_public_address_is_public_in_any_ipv6_form(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(VARIABLE, "*")

    assert check("api.example.org", 443, address) == [address]


@pytest.mark.parametrize(
    "address",
    [
        *map(str, sorted(METADATA_ADDRESSES, key=str)),
        "169.254.1.1",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fe80::5efe:10.0.0.1",
    ],
)
def test_metadata_addresses_are_called_by_address_but_not_by_name(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv(VARIABLE, f"api.example.org, [{address}]")

    with pytest.raises(Refused, match="is not called by name"):
        check("api.example.org", 443, address)
    host = host_of(httpx.URL(f"http://[{address}]/" if ":" in address else f"http://{address}/"))
    assert check(host, 80, host) == [host]


def test_a_host_has_one_spelling() -> None:
    assert host_of(httpx.URL("http://API.Example.ORG./")) == "api.example.org"
    assert host_of(httpx.URL("http://[0:0:0:0:0:FFFF:127.0.0.1]/")) == host_of(
        httpx.URL("http://[::ffff:7f00:1]/")
    )
    assert host_of(httpx.URL("http://bücher.example/")) == "xn--bcher-kva.example"


def test_an_address_is_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **keys: pytest.fail("it was looked up"))

    assert resolve("127.0.0.1", 80) == ["127.0.0.1"]
    assert asyncio.run(resolve_in_thread("::1", 80)) == ["::1"]


def test_a_slow_name_resolution_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, asked = threading.Event(), threading.Event()

    def slow(*args: Any, **keys: Any) -> Any:
        asked.set()
        go_on.wait(180)
        raise socket.gaierror(-2, "Name or service not known")

    async def scene() -> None:
        looking = asyncio.ensure_future(resolve_in_thread("api.example.org", 443))
        while not asked.is_set():
            await asyncio.sleep(0)  # the loop keeps running during the lookup
        looking.cancel()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.run(scene())  # and it ends, although the DNS server has not replied

    [thread] = [one for one in threading.enumerate() if one.name == "look-up"]
    go_on.set()
    thread.join(180)
    assert not thread.is_alive()


def test_a_failed_resolution_in_a_thread_raises_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*args: Any, **keys: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)

    with pytest.raises(HostNotFound, match=r"api\.example\.org cannot be resolved: .*not known"):
        asyncio.run(resolve_in_thread("api.example.org", 443))


def test_secrets_and_their_words_are_redacted() -> None:
    said = "no token abcdef in Bearer abcdef; it is a abc"

    assert redact(said, ["Bearer abcdef", "it"]) == "no token <redacted> in <redacted>; it is a abc"
