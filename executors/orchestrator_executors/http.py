"""The executor `http`: sends one HTTP request. Every worker has it.

    ORCHESTRATOR_HTTP_HOSTS       the hosts that this worker may call: api.example.org, *.example.org,
                                  127.0.0.1:8080, or * for any public host, separated by commas; if unset,
                                  none
    ORCHESTRATOR_HTTP_MAX_BYTES   the maximum size of a response, whatever a step allows; 10 MiB if unset

Both belong to the worker. `network.py` describes how hosts are checked, `http_settings.py` the settings of a
call.

    resolve, check -> send -> success? -> read up to the limit -> output
          ^                      |
          '------ redirect ------'

`non_retryable` of an exception says whether a retry can help.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .http_connections import Connections, Endpoint, prepare_connections
from .http_reading import MalformedResponse, body_value, decode_body, read_body, read_body_start
from .http_settings import NON_SECRET_HEADERS, HttpCall, HttpConfiguration, HttpInputs, read_call, read_url
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

__all__ = ["http"]

REQUIRES = {"httpx": "pip install 'rq-orchestrator[http]'"}
"""The libraries that a call needs, and how each is installed."""
HOSTS_VARIABLE = "ORCHESTRATOR_HTTP_HOSTS"
ALLOWLIST = HostAllowlist(HOSTS_VARIABLE, "call")

REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
REDIRECTED_METHODS = frozenset({"GET", "HEAD"})
TRANSIENT_STATUSES = frozenset({408, 425, 429})
"""The 4xx statuses that are about the current moment, not about the request."""
OUTPUT_HEADERS = (
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-request-id",
)


class NotAnswered(Exception):
    """The host cannot be reached, is too slow, or breaks off its response; another attempt may succeed."""


class Unavailable(Exception):
    """A response that is not a success, but may be one later: 5xx, 408, 425 and 429."""


class Rejected(Exception):
    """A response that would be the same for every attempt: 4xx, or a redirect."""

    non_retryable = True


def prepare() -> None:
    """Load httpx and the certificates before the worker forks, since that is slow; not if no host is
    allowed."""
    if os.environ.get(HOSTS_VARIABLE):
        prepare_connections()


async def http(
    inputs: HttpInputs, configuration: HttpConfiguration, context: dict[str, Any]
) -> dict[str, Any]:
    """Send one HTTP request and return `{status, headers, json | text | base64, url}` of the response."""
    try:
        import httpx
    except ImportError:
        raise NotAnswered(f"a call needs httpx: {REQUIRES['httpx']}") from None
    traceparent = str(context.get("traceparent", ""))
    call = read_call(inputs, configuration, str(context["idempotency_key"]), traceparent)
    try:
        async with asyncio.timeout(call.timeout_s):
            return await _send_and_follow(call)
    except (TimeoutError, httpx.TimeoutException):
        raise NotAnswered(f"{host_of(call.url)} did not answer within {call.timeout_s:g} s") from None


async def _send_and_follow(call: HttpCall) -> dict[str, Any]:
    """Send a request, follow its redirects, and return the output."""
    for redirects_left in range(call.max_redirects, -1, -1):
        result = await _send(call)
        if isinstance(result, dict):
            return result
        if redirects_left:
            call = _redirect(call, result)
    raise Refused(f"{host_of(call.url)} redirects again, but max_redirects is {call.max_redirects}")


async def _send(call: HttpCall) -> dict[str, Any] | str:
    """Send a request. Returns the output, or the location of a redirect."""
    import httpx

    host = host_of(call.url)
    try:
        async with _open_response(call) as response:
            if response.status_code in call.success:
                return await _output(call, response)
            is_followed = call.method in REDIRECTED_METHODS and call.max_redirects > 0
            if is_followed and response.status_code in REDIRECT_STATUSES and "location" in response.headers:
                return str(response.headers["location"])
            raise await _failure(call, response)
    except httpx.ConnectTimeout:
        raise NotAnswered(f"{host} cannot be reached within {call.connect_timeout_s:g} s") from None
    except httpx.TimeoutException:
        raise
    except httpx.HTTPError as error:
        raise NotAnswered(describe_unreachable(host, error, call.secrets)) from None
    except (HostNotFound, MalformedResponse) as error:
        raise NotAnswered(str(error)) from None


def _redirect(call: HttpCall, target: str) -> HttpCall:
    """The request to which a redirect leads. Another origin gets no body and no header that may be secret."""
    import httpx

    try:
        url = read_url(str(call.url.join(target)))
    except (httpx.InvalidURL, Refused, ValueError):
        raise Refused(f"{host_of(call.url)} redirects to a URL that cannot be used") from None
    if call.url.scheme == "https" and url.scheme == "http":
        raise Refused(f"{host_of(call.url)} redirects from https to http, at {host_of(url)}")
    if _origin(url) == _origin(call.url):
        return replace(call, url=url)
    kept = tuple(one for one in call.headers if one[0].lower() in NON_SECRET_HEADERS - {"content-type"})
    return replace(call, url=url, headers=kept, body=b"")


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, host_of(url), port_of(url)


@asynccontextmanager
async def _open_response(call: HttpCall) -> AsyncIterator[httpx.Response]:
    """Send a request to the first address that can be reached, and to no other. The body is not read yet."""
    import httpx

    scheme, host, port = _origin(call.url)
    is_named = ALLOWLIST.check_host(host, port)
    addresses = ALLOWLIST.allowed_addresses(host, await resolve_in_thread(host, port), is_named)
    connections = await Connections.for_running_loop()
    for n, address in enumerate(addresses, 1):
        async with connections.transport_to(Endpoint(scheme, host, port, address)) as transport:
            try:
                response = await transport.handle_async_request(_request(call, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if n == len(addresses):
                    raise
                continue
            try:
                yield response
            finally:
                await response.aclose()
            return


def _request(call: HttpCall, address: str) -> httpx.Request:
    """The request to a checked address. The host name is in the Host header, and TLS verifies it."""
    import httpx

    headers = [("Host", call.url.netloc.decode()), ("Accept-Encoding", "gzip"), *call.headers]
    timeout = httpx.Timeout(call.timeout_s, connect=call.connect_timeout_s)
    return httpx.Request(
        call.method,
        call.url.copy_with(host=address),
        headers=httpx.Headers(headers, encoding="utf-8"),
        content=call.body or None,
        extensions={"sni_hostname": host_of(call.url), "timeout": timeout.as_dict()},
    )


# ---- the response


async def _failure(call: HttpCall, response: httpx.Response) -> Exception:
    text, status = (await read_body_start(response)).decode(errors="replace"), response.status_code
    is_final = 300 <= status < 500 and status not in TRANSIENT_STATUSES
    message = describe_failure(host_of(call.url), status, text, call.secrets)
    return Rejected(message) if is_final else Unavailable(message)


async def _output(call: HttpCall, response: httpx.Response) -> dict[str, Any]:
    host = host_of(call.url)
    content = b"" if call.method == "HEAD" else await read_body(response, call.max_bytes, host)
    body = decode_body(content, response.headers.get("content-type", ""), host)
    if call.returns_body:
        return {"value": body_value(body)}
    return {
        "status": response.status_code,
        "headers": {name: response.headers[name] for name in OUTPUT_HEADERS if name in response.headers},
        **body,
        "url": str(call.url.copy_with(query=None)),
    }
