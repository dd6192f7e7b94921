"""Whom a worker may call: hosts by name, and what their names lead to.

    hooks.example.org    this host, and a private or loopback address behind it too, since it is named itself
    *.example.org        every host below it, at public addresses
    *                    any host, at public addresses
    127.0.0.1, [::1]     this address
    127.0.0.1:8080       this port of it alone; a name may have a port too

A worker reads such a list, separated by commas, from a variable of its environment; unset, it calls nobody. A
name is looked up once, its addresses are judged, and one that has passed is called: whoever answers for the
name cannot point it at something else in between. Addresses of the link, and those from which clouds hand out
the credentials of a machine, are called only if the address itself is listed.
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

if TYPE_CHECKING:
    import asyncio

    import httpx

MAX_ADDRESSES = 3
MIN_SECRET_LENGTH = 4
REDACTED = "<redacted>"

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
"""Where clouds tell a machine who it is; not all of them are addresses of the link."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CARRIERS = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b:1::/48")))
"""Other networks whose last 32 bits are an IPv4 address: the compatible ones, and NAT64 of one's own."""
_ISATAP = (0x00005EFE, 0x02005EFE)


class Refused(Exception):
    """This worker does not do that, however often it is asked."""

    non_retryable = True


class HostNotFound(Exception):
    """The name leads nowhere now."""


@dataclass(frozen=True, slots=True)
class HostAllowlist:
    """Judges by the list in this variable; `verb` says what it is about: this worker may not post to ..."""

    variable: str
    verb: str

    def check_host(self, host: str, port: int) -> bool:
        """Whether a host is named itself, and so may be a private one; Refused if it is not allowed."""
        listed = list(self._listed())
        if not listed:
            message = f"this worker may {self.verb} nobody: {self.variable} is not set"
            raise Refused(f"{message}; name the hosts that it may {self.verb}, such as {host}")
        names = {name for name, only in listed if only in (None, port)}
        if host in names:
            return True
        if any(one == "*" or (one.startswith("*.") and host.endswith(one[1:])) for one in names):
            return False
        at = f" at port {port}" if any(name == host for name, _ in listed) else ""
        raise Refused(
            f"this worker may not {self.verb} {host}{at}: name it in {self.variable} if that is meant"
        )

    def allowed_addresses(self, host: str, addresses: list[str], is_named: bool) -> list[str]:
        """Of the addresses behind a host those that may be called; Refused when there is none."""
        found = [one for one in addresses if _is_allowed(host, one, is_named)]
        if not found:
            which = (
                "is never called by a name" if is_named else "is not a public address: name the host itself"
            )
            raise Refused(f"{host} is {addresses[0]}, which {which} in {self.variable} if that is meant")
        return found[:MAX_ADDRESSES]

    def _listed(self) -> Iterator[tuple[str, int | None]]:
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
                    f"{self.variable} cannot be read: {written.strip()!r} has no number as its port"
                )
            if name:
                yield normalize_host(name), int(port) if port else None


def host_of(url: httpx.URL) -> str:
    return normalize_host(url.raw_host.decode())


def port_of(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def normalize_host(host: str) -> str:
    """A host in the one spelling that is compared: lower case, no dot behind, an address as it is printed."""
    name = host.lower().rstrip(".")
    address = _address(name)
    return name if address is None else str(address)


def resolve(host: str, port: int) -> list[str]:
    """The addresses that a host leads to now; HostNotFound when there is none."""
    if _address(host) is not None:
        return [host]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostNotFound(f"{host} cannot be found: {error}") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def resolve_in_thread(host: str, port: int) -> list[str]:
    """The same, for those who share an event loop.

    A thread of its own, and none of the loop's: at its end a loop waits for those, however long a server of
    names takes, and whoever asked may have given up by then.
    """
    import asyncio

    if _address(host) is not None:
        return [host]
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[list[str]] = loop.create_future()

    def answer(found: list[str] | BaseException) -> None:
        if asked.done():
            return
        if isinstance(found, BaseException):
            asked.set_exception(found)
        else:
            asked.set_result(found)

    def ask() -> None:
        found: list[str] | BaseException
        try:
            found = resolve(host, port)
        except BaseException as error:
            found = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(answer, found)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    return await asked


def redact(text: str, secrets: Iterable[str]) -> str:
    """What somebody else says, without what we have told them: they may well repeat it."""
    words = {word for secret in secrets for word in (secret, *secret.split())}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= MIN_SECRET_LENGTH:
            text = text.replace(word, REDACTED)
    return text


# ---- addresses


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_allowed(host: str, text: str, is_named: bool) -> bool:
    if is_named and host == text:
        return True
    ends = list(_ends(ipaddress.ip_address(text.partition("%")[0])))
    return not any(_needs_its_own_name(one) for one in ends) if is_named else all(map(_is_public, ends))


def _ends(address: Address) -> Iterator[Address]:
    """All that a packet to an address may reach: an IPv6 address may carry an IPv4 one."""
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


def _needs_its_own_name(address: Address) -> bool:
    is_special = address.is_link_local or address.is_multicast or address.is_unspecified
    return is_special or address in METADATA_ADDRESSES
