"""Where a request comes from: checks that protect the user of a browser from the pages of others.

A browser sends the cookie of this page, or reaches a page without users, also for pages of others. It says so
in Sec-Fetch-Site and Origin, which no script can change. Programs send neither.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from orchestrator.web.problems import Problem

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
READING = frozenset({"GET", "HEAD"})
_OWN_SITES = ("same-origin", "none")  # "none" is a user who typed the address, or opened a bookmark


def check_origin(connection: HTTPConnection) -> None:
    """Raise Problem for a request that a page of another origin sends. Only links to a page are allowed."""
    site = connection.headers.get("sec-fetch-site")
    if connection.scope["method"] in READING:
        if site is not None and site not in _OWN_SITES and not _follows_a_link(connection):
            raise _other_origin()
        return
    origin = connection.headers.get("origin")
    is_own = site is None or site in _OWN_SITES
    if not is_own or (origin is not None and _host_of(origin) != connection.headers.get("host", "").lower()):
        raise _other_origin()


def check_host(connection: HTTPConnection, allowed: Collection[str]) -> None:
    """Raise Problem unless a request names a loopback address, or a host of `allowed`, in its header Host.

    It is for a page without users. Any name can resolve to a loopback address: the page of that name may then
    send requests as if they came from its own origin, but they have its name.
    """
    host = connection.headers.get("host", "").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name not in LOOPBACK_NAMES and name not in allowed:
        raise Problem(
            403,
            "unknown_host",
            "without users this page only serves localhost; give it tokens, or allow the name of this host",
        )


def _follows_a_link(connection: HTTPConnection) -> bool:
    """Whether a page of others leads to this one, in a tab and not in a frame."""
    headers = connection.headers
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _other_origin() -> Problem:
    return Problem(
        403,
        "other_origin",
        "this request comes from a page of another origin; a proxy before this page must pass on its Host",
    )
