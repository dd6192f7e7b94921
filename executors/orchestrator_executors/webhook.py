"""Posts what became of an execution as JSON: the executor `webhook`, which every worker knows by itself.

    ORCHESTRATOR_WEBHOOK_HOSTS    whom this worker may post to: hooks.example.org, *.example.org, or * for any
                                  public host, separated by commas; unset, it posts to nobody
    ORCHESTRATOR_WEBHOOK_SECRET   what it signs with; unset, nothing is signed

Both belong to the worker and never enter Redis. `network.py` tells how hosts are judged.
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

from .network import HostAllowlist, HostNotFound, Refused, host_of, port_of, redact, resolve

if TYPE_CHECKING:
    import httpx

__all__ = ["webhook"]

HOSTS_VARIABLE = "ORCHESTRATOR_WEBHOOK_HOSTS"
SECRET_VARIABLE = "ORCHESTRATOR_WEBHOOK_SECRET"
ALLOWLIST = HostAllowlist(HOSTS_VARIABLE, "post to")

CONNECT_TIMEOUT_S = 5.0
ANSWER_WITHIN_S = 10.0
MAX_RESPONSE_EXCERPT = 200


class NotDelivered(Exception):
    """Nobody has taken it; another attempt may do better."""


def prepare() -> None:
    """What takes its time, done before a worker forks; where nothing may be posted, nothing."""
    if os.environ.get(HOSTS_VARIABLE):
        with suppress(ImportError):
            importlib.import_module("httpx")


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
    host = host_of(url)
    if url.scheme not in ("http", "https") or not host:
        raise Refused("the URL cannot be used: it must begin with http:// or https://, and name a host")
    addresses = _addresses(host, port_of(url))
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
        said = redact(f"{type(error).__name__}: {error}", secrets)
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

    timeout = httpx.Timeout(ANSWER_WITHIN_S, connect=CONNECT_TIMEOUT_S)
    # Neither a proxy nor a .netrc of the environment: what was judged is what is called.
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
            said = ""
            with suppress(httpx.HTTPError):
                said = next(response.iter_raw(), b"").decode(errors="replace")
    shown = redact(" ".join(said.split()), secrets)[:MAX_RESPONSE_EXCERPT]
    answer = f"{host_of(url)} answered {response.status_code}"
    raise NotDelivered(f"{answer}: {shown}" if shown else answer)


def _addresses(host: str, port: int) -> list[str]:
    """The addresses behind a host that this worker may post to; Refused when there is none."""
    is_named = ALLOWLIST.check_host(host, port)
    try:
        return ALLOWLIST.allowed_addresses(host, resolve(host, port), is_named)
    except HostNotFound as error:
        raise NotDelivered(str(error)) from None
