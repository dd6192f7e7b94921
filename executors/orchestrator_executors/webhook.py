"""The executor `webhook`: posts the outcome of an execution as JSON. Every worker has it.

    ORCHESTRATOR_WEBHOOK_HOSTS    the hosts to which this worker may post: hooks.example.org, *.example.org,
                                  or * for any public host, separated by commas; if unset, none
    ORCHESTRATOR_WEBHOOK_SECRET   the key for signatures; if unset, posts are not signed

Both belong to the worker and are never stored in Redis. `network.py` describes how hosts are checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import time
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .http_connections import Connections, Endpoint, prepare_connections
from .network import (
    HostAllowlist,
    HostNotFound,
    describe_failure,
    describe_unreachable,
    host_of,
    port_of,
    resolve_in_thread,
)
from .settings import Refused

if TYPE_CHECKING:
    import httpx

__all__ = ["webhook"]

REQUIRES = {"httpx": "pip install 'rq-orchestrator[http]'"}
"""The libraries that a post needs, and how each is installed."""
HOSTS_VARIABLE = "ORCHESTRATOR_WEBHOOK_HOSTS"
SECRET_VARIABLE = "ORCHESTRATOR_WEBHOOK_SECRET"
ALLOWLIST = HostAllowlist(HOSTS_VARIABLE, "post to")

TIMEOUT_S = 15.0
"""The time for a whole post: looking up the name, connecting, sending, and waiting for the response."""
CONNECT_TIMEOUT_S = 5.0
"""The time for one address of a host, so that the next one is tried in time."""
EXCERPT_TIMEOUT_S = 2.0
"""The time for the text of an error response. The status is known by then, and counts without it."""


class NotDelivered(Exception):
    """The post was not accepted; another attempt may succeed."""


def prepare() -> None:
    """Load httpx and the certificates before the worker forks, since that is slow; not if this worker may
    not post."""
    if os.environ.get(HOSTS_VARIABLE):
        prepare_connections()


async def webhook(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Post `body` as JSON to `url` with `headers`; any response but 2xx is a failure, a redirect too."""
    try:
        import httpx
    except ImportError:
        raise NotDelivered(f"a webhook needs httpx: {REQUIRES['httpx']}") from None
    try:
        url = httpx.URL(inputs["url"])
    except (httpx.InvalidURL, KeyError, TypeError) as error:
        raise Refused(f"the URL cannot be used: {type(error).__name__}") from None
    host = host_of(url)
    if url.scheme not in ("http", "https") or not host:
        raise Refused("the URL cannot be used: it must begin with http:// or https:// and have a host")
    body = json.dumps(inputs.get("body"), ensure_ascii=False, separators=(",", ":")).encode()
    own_headers = inputs.get("headers") or {}
    headers = httpx.Headers({"User-Agent": "rq-orchestrator", **own_headers}, encoding="utf-8")
    if "traceparent" in context:
        headers.setdefault("traceparent", str(context["traceparent"]))
    for name in ("Content-Length", "Transfer-Encoding", "Orchestrator-Signature"):
        headers.pop(name, None)
    headers.update(_fixed_headers(url, body, str(context["idempotency_key"])))
    secrets = [os.environ.get(SECRET_VARIABLE, ""), url.userinfo.decode(), url.raw_path.decode()]
    secrets += [*own_headers.values(), *url.params.values()]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return {"status": await _post(url, headers, body, secrets)}
    except TimeoutError:
        raise NotDelivered(f"{host} did not answer within {TIMEOUT_S:g} s") from None
    except httpx.ConnectTimeout:
        raise NotDelivered(f"{host} cannot be reached within {CONNECT_TIMEOUT_S:g} s") from None
    except httpx.HTTPError as error:
        raise NotDelivered(describe_unreachable(host, error, secrets)) from None


def _fixed_headers(url: httpx.URL, body: bytes, delivery: str) -> dict[str, str]:
    """The headers that a document cannot set: the host, the id of the delivery, and the signature."""
    headers = {
        "Host": url.netloc.decode(),
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "Orchestrator-Delivery": delivery,
    }
    if url.userinfo:
        credentials = b64encode(f"{url.username}:{url.password}".encode()).decode()
        headers["Authorization"] = f"Basic {credentials}"
    secret = os.environ.get(SECRET_VARIABLE)
    if secret:
        at = int(time.time())
        signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        headers["Orchestrator-Signature"] = f"t={at},v1={signed}"
    return headers


async def _post(url: httpx.URL, headers: httpx.Headers, body: bytes, secrets: Iterable[str]) -> int:
    """Post to the first address that can be reached, and to no other. Returns the status of a success."""
    import httpx

    host, port = host_of(url), port_of(url)
    addresses = await _find_addresses(host, port)
    connections = await Connections.for_running_loop()
    while True:
        async with connections.transport_to(Endpoint(url.scheme, host, port, addresses[0])) as transport:
            try:
                response = await transport.handle_async_request(_request(url, addresses[0], headers, body))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if len(addresses) == 1:
                    raise
                addresses = addresses[1:]
                continue
            try:
                if response.is_success:
                    return response.status_code
                text = await _read_excerpt(response)
            finally:
                await response.aclose()
            raise NotDelivered(describe_failure(host, response.status_code, text, secrets))


def _request(url: httpx.URL, address: str, headers: httpx.Headers, body: bytes) -> httpx.Request:
    """The request to a checked address. The host name is in the Host header, and TLS verifies it."""
    import httpx

    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)  # TIMEOUT_S limits everything
    return httpx.Request(
        "POST",
        url.copy_with(host=address),
        headers=headers,
        content=body,
        extensions={"sni_hostname": host_of(url), "timeout": timeout.as_dict()},
    )


async def _read_excerpt(response: httpx.Response) -> str:
    """The first part of an error response, as far as it arrives soon."""
    import httpx

    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(EXCERPT_TIMEOUT_S):
            return (await anext(response.aiter_raw(), b"")).decode(errors="replace")
    return ""


async def _find_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host to which this worker may post; Refused when there is none."""
    is_named = ALLOWLIST.check_host(host, port)
    try:
        return ALLOWLIST.allowed_addresses(host, await resolve_in_thread(host, port), is_named)
    except HostNotFound as error:
        raise NotDelivered(str(error)) from None
