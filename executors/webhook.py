"""Posts what became of an execution as JSON: the executor `webhook`, which every worker knows by itself.

    ORCHESTRATOR_WEBHOOK_HOSTS    whom this worker may post to: hooks.example.org, *.example.org, or * for any
                                  public host, separated by commas; unset, it posts to nobody
    ORCHESTRATOR_WEBHOOK_SECRET   what it signs with; unset, nothing is signed

Both belong to the worker and never enter Redis. A name is looked up once, its addresses are judged, and one
that has passed is called: whoever answers for the name cannot point it at something else in between.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import socket
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

__all__ = ["webhook"]

HOSTS_VARIABLE = "ORCHESTRATOR_WEBHOOK_HOSTS"
SECRET_VARIABLE = "ORCHESTRATOR_WEBHOOK_SECRET"

CONNECT_WITHIN_S = 5.0
ANSWER_WITHIN_S = 10.0
MOST_ADDRESSES = 3
SHOWN_OF_AN_ANSWER = 200
SHORTEST_SECRET = 4
HIDDEN = "<redacted>"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotDelivered(Exception):
    """Nobody has taken it; another attempt may do better."""


class Refused(Exception):
    """This worker does not post it, however often it is asked."""


def webhook(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Post `body` to `url` with these `headers`; any answer but a success is a failure, a redirect too."""
    try:
        import httpx
    except ImportError:
        raise NotDelivered("a webhook needs httpx: pip install 'rq-orchestrator[http]'") from None
    try:
        url = httpx.URL(inputs["url"])
    except (httpx.InvalidURL, KeyError, TypeError) as error:
        raise Refused(f"the URL cannot be used: {type(error).__name__}") from None
    host = _host_of(url)
    if url.scheme not in ("http", "https") or not host:
        raise Refused("the URL cannot be used: it must begin with http:// or https://, and name a host")
    addresses = _addresses(host, url.port or (443 if url.scheme == "https" else 80))
    body = json.dumps(inputs.get("body"), ensure_ascii=False, separators=(",", ":")).encode()
    given = inputs.get("headers") or {}
    headers = httpx.Headers({"User-Agent": "rq-orchestrator", **given}, encoding="utf-8")
    for name in ("Content-Length", "Transfer-Encoding", "Orchestrator-Signature"):
        headers.pop(name, None)
    headers.update(_our_headers(url, body, str(context["idempotency_key"])))
    secrets = [os.environ.get(SECRET_VARIABLE, ""), url.userinfo.decode(), url.raw_path.decode()]
    secrets += [*given.values(), *url.params.values()]
    try:
        return {"status": _post(url, addresses, headers, body, secrets)}
    except httpx.TimeoutException:
        raise NotDelivered(f"{host} did not answer within {ANSWER_WITHIN_S:g} s") from None
    except httpx.HTTPError as error:
        said = _without(f"{type(error).__name__}: {error}", secrets)
        raise NotDelivered(f"{host} cannot be reached: {said}") from None


def _our_headers(url: httpx.URL, body: bytes, delivery: str) -> dict[str, str]:
    """What nobody else sets: whom it is for, which word this is, and that it is ours."""
    headers = {
        "Host": url.netloc.decode(),
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "Orchestrator-Delivery": delivery,
    }
    secret = os.environ.get(SECRET_VARIABLE)
    if secret:
        at = int(time.time())
        signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        headers["Orchestrator-Signature"] = f"t={at},v1={signed}"
    return headers


def _post(
    url: httpx.URL, addresses: list[str], headers: httpx.Headers, body: bytes, secrets: Iterable[str]
) -> int:
    """The status of a success. Of several addresses the first that can be reached is asked, and no other."""
    import httpx

    timeout = httpx.Timeout(ANSWER_WITHIN_S, connect=CONNECT_WITHIN_S)
    # Neither a proxy nor a .netrc of the environment: what was judged is what is called.
    trusted = httpx.create_ssl_context()
    with httpx.Client(timeout=timeout, trust_env=False, follow_redirects=False, verify=trusted) as client:
        while True:
            request = client.build_request(
                "POST",
                url.copy_with(host=addresses[0]),
                headers=headers,
                content=body,
                extensions={"sni_hostname": _host_of(url)},
            )
            try:
                response = client.send(request, stream=True)
                break
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if len(addresses) == 1:
                    raise
                addresses = addresses[1:]
        with closing(response):
            if response.is_success:
                return response.status_code
            said = ""
            with suppress(httpx.HTTPError):
                said = next(response.iter_raw(), b"").decode(errors="replace")
    shown = _without(" ".join(said.split()), secrets)[:SHOWN_OF_AN_ANSWER]
    answer = f"{_host_of(url)} answered {response.status_code}"
    raise NotDelivered(f"{answer}: {shown}" if shown else answer)


def _without(text: str, secrets: Iterable[str]) -> str:
    """What somebody else says, without what we have told them: they may well repeat it."""
    words = {word for secret in secrets for word in (secret, *secret.split())}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= SHORTEST_SECRET:
            text = text.replace(word, HIDDEN)
    return text


# ---- whom we may post to


def _host_of(url: httpx.URL) -> str:
    return url.raw_host.decode().lower().rstrip(".")


def _addresses(host: str, port: int) -> list[str]:
    """The addresses behind a host that this worker may post to; Refused when there is none."""
    is_public = _must_be_public(host)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(f"{host} cannot be found: {error}") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    allowed = [one for one in addresses if _is_allowed(host, one, is_public)]
    if not allowed:
        which = "is not a public address: name the host itself" if is_public else "is never called by a name"
        raise Refused(f"{host} is {addresses[0]}, which {which} in {HOSTS_VARIABLE} if that is meant")
    return allowed[:MOST_ADDRESSES]


def _must_be_public(host: str) -> bool:
    """Whether a host is allowed as one of many; False if it is named itself, and so may be a private one."""
    listed = os.environ.get(HOSTS_VARIABLE, "").split(",")
    hosts = {one.strip().lower().rstrip(".").strip("[]") for one in listed if one.strip()}
    if not hosts:
        message = f"this worker posts to nobody: {HOSTS_VARIABLE} is not set"
        raise Refused(f"{message}; name the hosts that it may post to, such as {host}")
    if host in hosts:
        return False
    if any(one == "*" or (one.startswith("*.") and host.endswith(one[1:])) for one in hosts):
        return True
    raise Refused(f"this worker may not post to {host}: name it in {HOSTS_VARIABLE} if that is meant")


def _is_allowed(host: str, text: str, is_public: bool) -> bool:
    """A name may lead to a private address if it is listed itself; to one of the link, such as where clouds
    keep the credentials of a machine, leads only the address itself."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if is_public:
        return address.is_global and not address.is_multicast
    if host == text:
        return True
    return not (address.is_link_local or address.is_multicast or address.is_unspecified)
