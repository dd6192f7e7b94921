"""Starts by a webhook: what becomes its inputs, who may send it, and deliveries that come twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api_client import ApiClient
from orchestrator.client import Client
from orchestrator.web.api.hooks import make_root
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

PLAIN = document(step("a"), name="plain")
EVENT = document(step("a"), name="push", inputs={"event": {"required": True}, "headers": {}})
SHOP, OPERATOR, READER = (name * 24 for name in "sor")


@pytest.fixture
def hooks(live: RedisWorld, serve_page: Callable[..., Any], tmp_path: Path) -> ApiClient:
    """The API with tokens; its workflows are registered, and the token of the shop is for `plain`."""
    client = Client(live.client)
    for spec in (PLAIN, EVENT):
        client.register(spec["name"], spec)
    file = tmp_path / "tokens"
    file.write_text(f"shop start:plain {SHOP}\nada operate {OPERATOR}\nwall read {READER}\n")
    return ApiClient(serve_page(tokens=str(file)), bearer(OPERATOR))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_the_keys_of_the_body_become_the_inputs(hooks: ApiClient, live: RedisWorld) -> None:
    found = hooks.post(f"/hooks/plain?token={SHOP}", {"n": 1}, 202, headers={"Authorization": ""})

    assert live.record(found["workflow_execution_id"]).inputs == {"n": 1}


def test_an_input_takes_the_whole_body_and_another_the_headers(hooks: ApiClient, live: RedisWorld) -> None:
    headers = {
        "X-GitHub-Event": "push",
        "X-Hub-Signature-256": "sha256=1",
        "X-Gitlab-Token": "t",
        "X-Api-Key": "k",
    }

    found = hooks.post("/hooks/push", [1, {"ref": "main"}], 202, headers=headers)

    inputs = live.record(found["workflow_execution_id"]).inputs
    assert inputs["event"] == [1, {"ref": "main"}]
    assert inputs["headers"]["x-github-event"] == "push"
    assert not {"authorization", "x-hub-signature-256", "x-gitlab-token", "x-api-key", "cookie"} & set(
        inputs["headers"]
    )


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"X-GitHub-Delivery": "72d3162e-cc78"}, {"n": 1}),
        ({"Idempotency-Key": "any thing / ä".encode().decode("latin-1")}, {"n": 1}),
        ({"Webhook-Id": "msg_1"}, {"n": 1}),
        ({"Stripe-Signature": "t=1,v1=2"}, {"id": "evt_1"}),
    ],
)
def test_a_delivery_that_comes_twice_starts_once(headers: Any, body: Any, hooks: ApiClient) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}

    first = hooks.post("/hooks/plain", body, 202, headers=raw)
    second = hooks.post("/hooks/plain", body, 202, headers=raw)

    assert (first["existing"], second["existing"]) == (False, True)
    assert second["execution_id"] == first["execution_id"]


def test_deliveries_without_a_name_and_those_of_other_workflows_each_start_one(hooks: ApiClient) -> None:
    named = {"X-GitHub-Delivery": "1"}
    found = [
        hooks.post("/hooks/plain", {}, 202),
        hooks.post("/hooks/plain", {}, 202),
        hooks.post("/hooks/plain", {}, 202, headers=named),
        hooks.post("/hooks/push", {}, 202, headers=named),
    ]

    assert len({one["workflow_execution_id"] for one in found}) == 4
    assert make_root("a", "b:c") != make_root("a:b", "c")


def test_a_token_starts_only_its_workflow_and_nothing_else(hooks: ApiClient) -> None:
    shop = ApiClient(hooks.site, bearer(SHOP))
    shop.__dict__["document"] = hooks.document
    reader = ApiClient(hooks.site, bearer(READER))

    assert shop.post("/hooks/push", {}, 403)["code"] == "forbidden"
    assert shop.get("/executions", 403)["code"] == "forbidden"
    assert shop.post("/executions", {"workflow": "plain"}, 403)["code"] == "forbidden"
    assert reader.post("/hooks/plain", {}, 403)["code"] == "forbidden"
    assert hooks.site.post("/api/v1/hooks/plain", json={}).status_code == 401
    assert hooks.site.get(f"/api/v1/executions?token={OPERATOR}").status_code == 401


def test_a_body_that_cannot_become_inputs_is_rejected(hooks: ApiClient) -> None:
    assert "declare an input `event`" in hooks.post("/hooks/plain", [1], 422)["detail"]
    assert hooks.post("/hooks/nobody", {}, 404)["code"] == "unknown_workflow"
    form = hooks.request("POST", "/hooks/plain", 415, data={"payload": "{}"})
    assert "Content-Type: application/json" in form["detail"]


def test_a_hook_continues_the_trace_of_its_sender(hooks: ApiClient, live: RedisWorld) -> None:
    caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    found = hooks.post("/hooks/plain", {}, 202, headers={"traceparent": caller})

    assert live.record(found["workflow_execution_id"]).traceparent == caller
