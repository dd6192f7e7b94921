"""Starts by a webhook: its body becomes the inputs, and its delivery id prevents a second start.

A user with the role START may use it, for the one workflow of its token. The token may be in the URL, because
many senders of webhooks cannot set a header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from orchestrator.application.redaction.by_key import is_secret_key
from orchestrator.application.spec.model import WorkflowSpec
from orchestrator.client import StartOptions, StartRequest
from orchestrator.web.access.users import Role
from orchestrator.web.api.models import Json, JsonObject, Name
from orchestrator.web.api.route import START_PROBLEMS, ApiRoute, Call
from orchestrator.web.api.starts import (
    HEADERS,
    TRACEPARENT,
    Started,
    StartQuery,
    read_traceparent,
    send_start,
)
from orchestrator.web.api.workflows import load_definition
from orchestrator.web.problems import Problem

DELIVERY_HEADERS = ("Idempotency-Key", "Webhook-Id", "X-GitHub-Delivery", "X-Gitlab-Event-UUID")
"""The headers with which senders name a delivery. They send it again with the same name."""
WHOLE_BODY_INPUTS = ("event", "body")
"""An input of this name takes the whole body."""
HEADERS_INPUT = "headers"
"""An input of this name takes the headers, without those with a secret or a signature."""


def start_by_hook(call: Call, workflow: Name, body: Json) -> Started:
    """Start a registered workflow by a webhook, and return at once.

    The keys of a JSON object become the inputs. If the workflow declares an input `event` or `body`, that
    takes the whole body instead, and an input `headers` takes the headers. A second delivery with the same
    Idempotency-Key, Webhook-Id, X-GitHub-Delivery or X-Gitlab-Event-UUID returns the first execution; so
    does an event of Stripe with the same `id`.
    """
    if call.user.role < Role.OPERATE and call.user.workflow != workflow:
        detail = f"{call.user.name} may not start {workflow[:200]!r}: its token is for another workflow"
        raise Problem(403, "forbidden", detail)
    headers = call.request.headers
    inputs = make_inputs(load_definition(call, workflow).spec, body, headers)
    delivery = find_delivery(body, headers)
    root = None if delivery is None else make_root(workflow, delivery)
    options = StartOptions(idempotency_root=root, traceparent=read_traceparent(call))
    started = send_start(call, StartRequest(workflow, inputs, None, options), StartQuery())
    call.status = 202
    return started


def make_inputs(spec: WorkflowSpec, body: Any, headers: Mapping[str, str]) -> JsonObject:
    """The inputs of a start by this body; raises Problem if it cannot be mapped to them."""
    whole = next((name for name in WHOLE_BODY_INPUTS if name in spec.inputs), None)
    if whole is not None:
        inputs: JsonObject = {whole: body}
    elif isinstance(body, dict):
        inputs = dict(body)
    else:
        detail = "the body is no JSON object: declare an input `event`, which takes the whole body"
        raise Problem(422, "invalid_request", detail)
    if HEADERS_INPUT in spec.inputs:
        inputs[HEADERS_INPUT] = {
            name.lower(): value for name, value in headers.items() if not _is_hidden(name.lower())
        }
    return inputs


def find_delivery(body: Any, headers: Mapping[str, str]) -> str | None:
    """The id of a delivery, which is the same when it is sent again; None if its sender gives none."""
    for name in DELIVERY_HEADERS:
        if headers.get(name):
            return headers[name]
    if "stripe-signature" in headers and isinstance(body, dict) and isinstance(body.get("id"), str):
        return str(body["id"])
    return None


def make_root(workflow: str, delivery: str) -> str:
    """The idempotency root of a delivery. Two workflows may take the same delivery: each starts once."""
    text = json.dumps([workflow, delivery]).encode()
    return f"hook:{sha256(text).hexdigest()}"


def _is_hidden(name: str) -> bool:
    return is_secret_key(name) or "signature" in name or "token" in name


ROUTES = [
    ApiRoute(
        "POST",
        "/hooks/{workflow}",
        start_by_hook,
        status=202,
        others={200: "It was delivered before: the first execution."},
        problems={403: "The token is for another workflow.", **START_PROBLEMS},
        waits=True,
        is_hook=True,
        headers={
            **dict.fromkeys(DELIVERY_HEADERS, "The id of the delivery."),
            TRACEPARENT: HEADERS[TRACEPARENT],
        },
    )
]
