"""The executor `webhook`: posts the outcome of an execution as JSON. Every worker has it.

    ORCHESTRATOR_WEBHOOK_HOSTS    the hosts to which this worker may post: hooks.example.org, *.example.org,
                                  or * for any public host, separated by commas; if unset, none
    ORCHESTRATOR_WEBHOOK_SECRET   the key for signatures; if unset, posts are not signed

Both belong to the worker and are never stored in Redis. `network.py` describes how hosts are checked.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from .network import (
    HostAllowlist,
    HostNotFound,
    describe_failure,
    describe_unreachable,
    host_of,
    port_of,
    resolve,
)
from .settings import Refused

if TYPE_CHECKING:
    import httpx

__all__ = ["webhook"]

HOSTS_VARIABLE = "ORCHESTRATOR_WEBHOOK_HOSTS"
SECRET_VARIABLE = "ORCHESTRATOR_WEBHOOK_SECRET"
ALLOWLIST = HostAllowlist(HOSTS_VARIABLE, "post to")

CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 10.0


class NotDelivered(Exception):
    """The post was not accepted; another attempt may succeed."""


def prepare() -> None:
    """Import httpx before the worker forks, since that is slow; not if this worker may not post."""
    if os.environ.get(HOSTS_VARIABLE):
        with suppress(ImportError):
            importlib.import_module("httpx")


def webhook(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Post `body` as JSON to `url` with `headers`; any response but 2xx is a failure, a redirect too."""
    try:
        import httpx
    except ImportError:
        raise NotDelivered("a webhook needs httpx: pip install 'rq-orchestrator[http]'") from None
    try:
        url = httpx.URL(inputs["url"])
    except (httpx.InvalidURL, KeyError, TypeError) as error:
        raise Refused(f"the URL cannot be used: {type(error).__name__}") from None
    host = host_of(url)
    if url.scheme not in ("http", "https") or not host:
        raise Refused("the URL cannot be used: it must begin with http:// or https:// and have a host")
    addresses = _find_addresses(host, port_of(url))
    body = json.dumps(inputs.get("body"), ensure_ascii=False, separators=(",", ":")).encode()
    own_headers = inputs.get("headers") or {}
    headers = httpx.Headers({"User-Agent": "rq-orchestrator", **own_headers}, encoding="utf-8")
    for name in ("Content-Length", "Transfer-Encoding", "Orchestrator-Signature"):
        headers.pop(name, None)
    headers.update(_fixed_headers(url, body, str(context["idempotency_key"])))
    secrets = [os.environ.get(SECRET_VARIABLE, ""), url.userinfo.decode(), url.raw_path.decode()]
    secrets += [*own_headers.values(), *url.params.values()]
    try:
        return {"status": _post(url, addresses, headers, body, secrets)}
    except httpx.TimeoutException:
        raise NotDelivered(f"{host} did not answer within {RESPONSE_TIMEOUT_S:g} s") from None
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
    secret = os.environ.get(SECRET_VARIABLE)
    if secret:
        at = int(time.time())
        signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        headers["Orchestrator-Signature"] = f"t={at},v1={signed}"
    return headers


def _post(
    url: httpx.URL, addresses: list[str], headers: httpx.Headers, body: bytes, secrets: Iterable[str]
) -> int:
    """Post to the first address that can be reached, and to no other. Returns the status of a success."""
    import httpx

    timeout = httpx.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    # trust_env=False: no proxy and no .netrc of the environment, so that the request goes to the checked
    # address.
    trusted = httpx.create_ssl_context()
    with httpx.Client(timeout=timeout, trust_env=False, follow_redirects=False, verify=trusted) as client:
        while True:
            request = client.build_request(
                "POST",
                url.copy_with(host=addresses[0]),
                headers=headers,
                content=body,
                extensions={"sni_hostname": host_of(url)},
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
            text = ""
            with suppress(httpx.HTTPError):
                text = next(response.iter_raw(), b"").decode(errors="replace")
    raise NotDelivered(describe_failure(host_of(url), response.status_code, text, secrets))


def _find_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host to which this worker may post; Refused when there is none."""
    is_named = ALLOWLIST.check_host(host, port)
    try:
        return ALLOWLIST.allowed_addresses(host, resolve(host, port), is_named)
    except HostNotFound as error:
        raise NotDelivered(str(error)) from None
