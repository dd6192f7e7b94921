"""Calls somebody by HTTP: the executor `http`, which every worker knows by itself.

    ORCHESTRATOR_HTTP_HOSTS       whom this worker may call: api.example.org, *.example.org, 127.0.0.1:8080,
                                  or * for any public host, separated by commas; unset, it calls nobody
    ORCHESTRATOR_HTTP_MAX_BYTES   how large an answer may be, whatever a call says; 10 MiB unless given

Both belong to the worker. `network.py` tells how hosts are judged, `http_settings.py` what a call may say.

    lookup, judge -> send -> success? -> read, within its limit -> output
                      ^          |
                      '- redirect, judged anew

Who fails here says whether it may help to ask again: `non_retryable`.
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
from .network import HostAllowlist, HostNotFound, Refused, host_of, port_of, redact, resolve_in_thread

if TYPE_CHECKING:
    import httpx

__all__ = ["http"]

HOSTS_VARIABLE = "ORCHESTRATOR_HTTP_HOSTS"
ALLOWLIST = HostAllowlist(HOSTS_VARIABLE, "call")

MAX_RESPONSE_EXCERPT = 200
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
REDIRECTED_METHODS = frozenset({"GET", "HEAD"})
TRANSIENT_STATUSES = frozenset({408, 425, 429})
"""Refusals of a client that are about now, and not about what it asked."""
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
    """Nobody is there, or takes too long, or breaks off; another attempt may do better."""


class Unavailable(Exception):
    """An answer that is no success, but may be one later: 5xx, 408, 425 and 429."""


class Rejected(Exception):
    """An answer that will be the same however often it is asked for: 4xx, or a redirect."""

    non_retryable = True


def prepare() -> None:
    """What takes its time, done before a worker forks; where nobody may be called, there is nothing to do."""
    if os.environ.get(HOSTS_VARIABLE):
        prepare_connections()


async def http(
    inputs: HttpInputs, configuration: HttpConfiguration, context: dict[str, Any]
) -> dict[str, Any]:
    """Send one request; the output is `{status, headers, json | text | base64, url}` of its answer."""
    try:
        import httpx
    except ImportError:
        raise NotAnswered("a call needs httpx: pip install 'rq-orchestrator[http]'") from None
    call = read_call(inputs, configuration, str(context["idempotency_key"]))
    try:
        async with asyncio.timeout(call.timeout_s):
            return await _followed(call)
    except (TimeoutError, httpx.TimeoutException):
        raise NotAnswered(f"{host_of(call.url)} did not answer within {call.timeout_s:g} s") from None


async def _followed(call: HttpCall) -> dict[str, Any]:
    """The output of a call, or of the one that its answer leads to."""
    for left in range(call.max_redirects, -1, -1):
        answer = await _asked(call)
        if isinstance(answer, dict):
            return answer
        if left:
            call = _redirected(call, answer)
    raise Refused(f"{host_of(call.url)} leads on, and max_redirects allows {call.max_redirects}")


async def _asked(call: HttpCall) -> dict[str, Any] | str:
    """The output of a call, or where its answer leads to."""
    import httpx

    host = host_of(call.url)
    try:
        async with _sent(call) as response:
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
        said = redact(f"{type(error).__name__}: {error}", call.secrets)
        raise NotAnswered(f"{host} cannot be reached: {said}") from None
    except (HostNotFound, MalformedResponse) as error:
        raise NotAnswered(str(error)) from None


def _redirected(call: HttpCall, target: str) -> HttpCall:
    """The call that a redirect asks for. What is not for everybody stays with the origin it was meant for."""
    import httpx

    try:
        url = read_url(str(call.url.join(target)))
    except (httpx.InvalidURL, Refused, ValueError):
        raise Refused(f"{host_of(call.url)} leads to a URL that cannot be used") from None
    if call.url.scheme == "https" and url.scheme == "http":
        raise Refused(f"{host_of(call.url)} leads from https to http, at {host_of(url)}")
    if _origin(url) == _origin(call.url):
        return replace(call, url=url)
    kept = tuple(one for one in call.headers if one[0].lower() in NON_SECRET_HEADERS - {"content-type"})
    return replace(call, url=url, headers=kept, body=b"")


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, host_of(url), port_of(url)


@asynccontextmanager
async def _sent(call: HttpCall) -> AsyncIterator[httpx.Response]:
    """The answer to a call, not yet read. Of several addresses the first that can be reached is asked, and no
    other."""
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
    """To the address that was judged; who is there is told, and must prove, the name."""
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


# ---- what came back


async def _failure(call: HttpCall, response: httpx.Response) -> Exception:
    said = (await read_body_start(response)).decode(errors="replace")
    shown = redact(" ".join(said.split()), call.secrets)[:MAX_RESPONSE_EXCERPT]
    answer = f"{host_of(call.url)} answered {response.status_code}"
    kind = (
        Rejected
        if 300 <= response.status_code < 500 and response.status_code not in TRANSIENT_STATUSES
        else Unavailable
    )
    return kind(f"{answer}: {shown}" if shown else answer)


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
