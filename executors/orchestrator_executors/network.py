"""Decides which hosts a worker may call, by their names and by the addresses behind the names.

    hooks.example.org    this host; it may have a private or loopback address, since it is listed by name
    *.example.org        every host below it, at public addresses
    *                    any host, at public addresses
    127.0.0.1, [::1]     this address
    127.0.0.1:8080       only this port of it; a name may have a port too

A worker reads such a list, separated by commas, from an environment variable; if it is unset, the worker may
call no host. A name is resolved once, its addresses are checked, and the request goes to an address that has
passed. So a DNS server cannot return another address between the check and the request. Link-local addresses,
and those from which clouds hand out the credentials of a machine, are called only if the address itself is
listed.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .settings import REDACTED, Refused

if TYPE_CHECKING:
    import asyncio

    import httpx

MAX_ADDRESSES = 3
MIN_SECRET_LENGTH = 4
MAX_RESPONSE_EXCERPT = 200
"""How many characters of an error response are kept."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA_ADDRESSES: frozenset[Address] = frozenset(
    map(
        ipaddress.ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
    )
)
"""The metadata services of clouds; not all of them are link-local addresses."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CARRIERS = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b:1::/48")))
"""Other networks whose last 32 bits are an IPv4 address: IPv4-compatible addresses, and local NAT64."""
_ISATAP = (0x00005EFE, 0x02005EFE)


class HostNotFound(Exception):
    """The name of the host cannot be resolved now."""


@dataclass(frozen=True, slots=True)
class HostAllowlist:
    """The hosts in an environment variable. `verb` is used in messages: "this worker may not post to ..."."""

    variable: str
    verb: str

    def check_host(self, host: str, port: int) -> bool:
        """Whether a host is listed by name, and so may have a private address; Refused if it is not
        allowed."""
        listed = list(self._read_entries())
        if not listed:
            message = f"this worker may not {self.verb} any host: {self.variable} is not set"
            raise Refused(f"{message}; set it to the hosts that it may {self.verb}, such as {host}")
        names = {name for name, only in listed if only in (None, port)}
        if host in names:
            return True
        if any(one == "*" or (one.startswith("*.") and host.endswith(one[1:])) for one in names):
            return False
        at = f" at port {port}" if any(name == host for name, _ in listed) else ""
        raise Refused(f"this worker may not {self.verb} {host}{at}: add it to {self.variable} to allow this")

    def allowed_addresses(self, host: str, addresses: list[str], is_named: bool) -> list[str]:
        """The addresses of a host that may be called; Refused when there is none."""
        allowed = [one for one in addresses if _is_allowed(host, one, is_named)]
        if not allowed:
            problem, entry = (
                ("is not called by name", "the address")
                if is_named
                else ("is not a public address", "the host by name")
            )
            raise Refused(
                f"{host} is {addresses[0]}, which {problem}: add {entry} to {self.variable} to allow this"
            )
        return allowed[:MAX_ADDRESSES]

    def _read_entries(self) -> Iterator[tuple[str, int | None]]:
        for written in os.environ.get(self.variable, "").split(","):
            one = written.strip().lower()
            if one.startswith("["):
                name, _, port = one[1:].partition("]")
                port = port.removeprefix(":")
            elif one.count(":") == 1:
                name, _, port = one.partition(":")
            else:
                name, port = one, ""
            if port and not port.isdecimal():
                raise Refused(
                    f"{self.variable} is not valid: the port of {written.strip()!r} is not a number"
                )
            if name:
                yield normalize_host(name), int(port) if port else None


def host_of(url: httpx.URL) -> str:
    return normalize_host(url.raw_host.decode())


def port_of(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def normalize_host(host: str) -> str:
    """The spelling of a host that is compared: lower case, no trailing dot, an address in standard form."""
    name = host.lower().rstrip(".")
    address = _parse_address(name)
    return name if address is None else str(address)


def resolve(host: str, port: int) -> list[str]:
    """The current addresses of a host; HostNotFound when there is none."""
    if _parse_address(host) is not None:
        return [host]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostNotFound(f"{host} cannot be resolved: {error}") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def resolve_in_thread(host: str, port: int) -> list[str]:
    """The same without blocking the event loop.

    It uses its own thread, not the loop's executor: when a loop ends it waits for the threads of its
    executor, however long a DNS server takes, although the call may have timed out long before.
    """
    import asyncio

    if _parse_address(host) is not None:
        return [host]
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[str]] = loop.create_future()

    def set_result(result: list[str] | BaseException) -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    def resolve_here() -> None:
        result: list[str] | BaseException
        try:
            result = resolve(host, port)
        except BaseException as error:
            result = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(set_result, result)

    threading.Thread(target=resolve_here, name="look-up", daemon=True).start()
    return await future


def redact(text: str, secrets: Iterable[str]) -> str:
    """Remove our secrets from a text of the other side, which may repeat what we have sent."""
    words = {word for secret in secrets for word in (secret, *secret.split())}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= MIN_SECRET_LENGTH:
            text = text.replace(word, REDACTED)
    return text


def describe_failure(host: str, status: int, body: str, secrets: Iterable[str]) -> str:
    """An error response as text: the status and the start of the body, without our secrets."""
    excerpt = redact(" ".join(body.split()), secrets)[:MAX_RESPONSE_EXCERPT]
    return f"{host} answered {status}: {excerpt}" if excerpt else f"{host} answered {status}"


def describe_unreachable(host: str, error: Exception, secrets: Iterable[str]) -> str:
    """A failed connection as text, without our secrets."""
    return f"{host} cannot be reached: {redact(f'{type(error).__name__}: {error}', secrets)}"


# ---- addresses


def _parse_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_allowed(host: str, text: str, is_named: bool) -> bool:
    if is_named and host == text:
        return True
    targets = list(_find_targets(ipaddress.ip_address(text.partition("%")[0])))
    return not any(map(_must_be_listed, targets)) if is_named else all(map(_is_public, targets))


def _find_targets(address: Address) -> Iterator[Address]:
    """All addresses that a packet to this one may reach: an IPv6 address may contain an IPv4 address."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        yield last
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    yield from address.teredo or ()
    if any(address in network for network in _CARRIERS) or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        yield last


def _is_public(address: Address) -> bool:
    is_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    is_special = address.is_multicast or address.is_reserved or is_local
    return address.is_global and not is_special and address not in METADATA_ADDRESSES


def _must_be_listed(address: Address) -> bool:
    """Whether an address is called only if the list has the address itself."""
    is_special = address.is_link_local or address.is_multicast or address.is_unspecified
    return is_special or address in METADATA_ADDRESSES
