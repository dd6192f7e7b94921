"""Starts by the API: one, many, by a name or a document, and with an Idempotency-Key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api_client import ApiClient
from orchestrator.client import Client
from servers.page_server import PageServer
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ORDER = document(step("a"), name="order", inputs={"n": {"type": "integer", "required": True}})
FREE = document(step("a"), name="free")
YAML = "name: order\nsteps:\n  - {id: a, fn: a}\n  - {id: b, fn: b, depends_on: [c]}\n"


@pytest.fixture
def registered(world: RedisWorld) -> None:
    client = Client(world.client)
    client.register("order", ORDER)
    client.register("any / name?", FREE)


@pytest.mark.usefixtures("registered")
def test_a_registered_workflow_is_started(live: RedisWorld, api: ApiClient) -> None:
    found = api.post(
        "/executions",
        {
            "workflow": "order",
            "inputs": {"n": 1},
            "execution_id": "order-1",
            "labels": {"customer": "acme"},
            "group": "g",
            "priority": 2,
        },
        201,
    )

    assert (found["execution_id"], found["existing"]) == ("order-1", False)
    record = live.record(found["workflow_execution_id"])
    assert (record.inputs, record.labels, record.group) == ({"n": 1}, {"customer": "acme"}, "g")
    assert api.get(f"/starts/{found['entry']}")["started"]["execution_id"] == "order-1"


def test_a_document_is_started_as_json_or_as_yaml(live: RedisWorld, api: ApiClient) -> None:
    as_json = api.post("/executions", {"document": FREE}, 201)
    as_yaml = api.post("/executions", {"document": "name: free\nsteps: [{op: a}]"}, 201)

    assert (
        as_json["workflow_execution_id"].partition("#")[0]
        == as_yaml["workflow_execution_id"].partition("#")[0]
    )


def test_the_problems_of_a_document_have_their_lines_and_hints(api: ApiClient) -> None:
    found = api.post("/executions", {"document": YAML}, 422)

    assert found["code"] == "invalid_spec"
    [problem] = found["problems"]
    assert (problem["line"], problem["path"], problem["code"]) == (
        4,
        "steps[1].depends_on[0]",
        "unknown_dependency",
    )


@pytest.mark.usefixtures("live", "registered")
def test_a_wrong_input_is_named(api: ApiClient) -> None:
    found = api.post("/executions", {"workflow": "order", "inputs": {"n": "x"}}, 422)

    assert (found["code"], found["problems"][0]["path"]) == ("start_rejected", "inputs.n")


@pytest.mark.usefixtures("live")
def test_an_unknown_workflow_is_not_found(api: ApiClient) -> None:
    assert api.post("/executions", {"workflow": "nobody"}, 404)["code"] == "unknown_workflow"


@pytest.mark.usefixtures("live", "registered")
def test_a_taken_execution_id_is_a_conflict_unless_the_policy_says_otherwise(api: ApiClient) -> None:
    body = {"workflow": "any / name?", "execution_id": "one"}
    api.post("/executions", body, 201)

    assert api.post("/executions", body, 409)["code"] == "start_rejected"
    assert api.post("/executions", {**body, "conflict_policy": "use_existing"}, 200)["existing"] is True


@pytest.mark.usefixtures("live", "registered")
def test_a_start_with_the_same_key_returns_the_first_execution(live: RedisWorld, api: ApiClient) -> None:
    body = {"workflow": "any / name?"}
    key = {"Idempotency-Key": "k-1"}
    first = api.post("/executions", body, 201, headers=key)
    second = api.post("/executions", body, 200, headers=key)
    by_body = api.post("/executions", {**body, "idempotency_root": "k-1"}, 200)
    differs = api.post("/executions", {**body, "idempotency_root": "k-2"}, 422, headers=key)

    assert (second["existing"], by_body["existing"]) == (True, True)
    assert {one["execution_id"] for one in (first, second, by_body)} == {first["execution_id"]}
    assert "Idempotency-Key" in differs["detail"]


@pytest.mark.usefixtures("live", "registered")
def test_of_concurrent_starts_with_the_same_key_one_makes_an_execution(api: ApiClient) -> None:
    def start(_: int) -> Any:
        return api.site.post(
            "/api/v1/executions", json={"workflow": "any / name?"}, headers={"Idempotency-Key": "k"}
        )

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(start, range(16)))

    assert sorted(one.status_code for one in found) == [200] * 15 + [201]
    assert len({one.json()["execution_id"] for one in found}) == 1


def test_without_a_coordinator_a_start_gets_no_reply_and_is_handled_later(
    world: RedisWorld, api: ApiClient
) -> None:
    found = api.post("/executions?timeout_s=0.05", {"document": FREE, "execution_id": "later"}, 504)
    entry = found["entry"]
    waiting = api.get(f"/starts/{entry}", 202)
    world.coordinator("one").run_once()

    assert (found["code"], waiting["status"]) == ("no_reply", "waiting")
    assert api.get(f"/starts/{entry}", 200)["started"]["execution_id"] == "later"


def test_a_start_need_not_be_waited_for(world: RedisWorld, api: ApiClient) -> None:
    found = api.post("/executions?wait=false", {"workflow": "nobody"}, 202)
    world.coordinator("one").run_once()

    assert found["execution_id"] is None
    assert api.get(f"/starts/{found['entry']}", 409)["code"] == "start_rejected"


def test_an_unknown_start_is_not_found(api: ApiClient) -> None:
    assert api.get("/starts/1-1", 404)["code"] == "not_found"
    assert api.get("/starts/x", 404)["code"] == "not_found"


@pytest.mark.usefixtures("live", "registered")
def test_many_are_started_in_one_request_with_a_reply_for_each(api: ApiClient) -> None:
    starts: list[Any] = [
        {"workflow": "order", "inputs": {"n": 1}, "execution_id": "m-0"},
        {"workflow": "order", "inputs": {}},
        {"workflow": "nobody"},
        {"document": YAML},
        {},
        {"document": FREE, "labels": {"n": "5"}},
    ]

    found = api.post("/starts", {"starts": starts})
    again = api.post("/starts", {"starts": starts[:1]})

    assert found["started"] == 2
    assert [one["ok"] for one in found["replies"]] == [True, False, False, False, False, True]
    assert found["replies"][0]["started"]["execution_id"] == "m-0"
    problems = [one["problem"] and one["problem"]["code"] for one in found["replies"]]
    assert problems[1:5] == ["start_rejected", "unknown_workflow", "invalid_spec", "invalid_request"]
    assert again["replies"][0]["problem"]["code"] == "start_rejected"


@pytest.mark.usefixtures("live")
def test_a_thousand_are_started_in_one_request_and_with_the_same_key_only_once(api: ApiClient) -> None:
    body = {"starts": [{"document": FREE}] * 1_000}
    key = {"Idempotency-Key": "batch-1"}

    first = api.post("/starts?timeout_s=60", body, headers=key)
    second = api.post("/starts?timeout_s=60", body, headers=key)

    assert (first["started"], second["started"]) == (1_000, 1_000)
    assert {one["started"]["existing"] for one in first["replies"]} == {False}
    assert {one["started"]["existing"] for one in second["replies"]} == {True}


def test_many_starts_without_a_coordinator_take_one_timeout(api: ApiClient) -> None:
    found = api.post("/starts?timeout_s=0.05", {"starts": [{"document": FREE}] * 3})

    assert [one["problem"]["code"] for one in found["replies"]] == ["no_reply"] * 3
    assert all(one["problem"]["entry"] for one in found["replies"])


def test_while_too_many_starts_wait_a_start_is_busy(redis_url: str, serve_page: Any) -> None:
    from orchestrator.settings import Settings

    settings = Settings(redis_url=redis_url, max_backlog=2)
    site: PageServer = serve_page(settings=settings)
    api = ApiClient(site)
    api.post("/starts?wait=false", {"starts": [{"document": FREE}] * 2})

    found = api.post("/starts?wait=false", {"starts": [{"document": FREE}] * 2}, 429)

    assert (found["code"], found.headers["retry-after"]) == ("busy", "5")


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        ({"workflow": "a", "document": {}}, "workflow", "one of the two"),
        ({"workflow": ""}, "workflow", "at least 1 character"),
        ({"workflow": "a", "input": {}}, "input", "did you mean 'inputs'?"),
        ({"workflow": "a", "priority": 6}, "priority", "less than or equal to 5"),
        ({"workflow": "a", "priority": "1"}, "priority", "valid integer"),
        ({"workflow": "a", "inputs": []}, "inputs", "a JSON object"),
        ({"workflow": "a", "labels": {"x": 1}}, "labels.x", "valid string"),
        ({"workflow": "a", "conflict_policy": "x"}, "conflict_policy", "'use_existing'"),
        ({"starts": []}, "starts", "at least 1 item"),
        ({"starts": [{"workflow": "a"}] * 1_001}, "starts", "at most 1000"),
        ({"starts": [{"workflow": "a", "prioriti": 1}]}, "starts[0].prioriti", "did you mean 'priority'?"),
        ([], "", "object"),
    ],
)
def test_a_wrong_body_names_the_key(body: Any, path: str, expected: str, api: ApiClient) -> None:
    target = "/starts" if "starts" in body else "/executions"

    found = api.post(target, body, 422)

    assert found["code"] == "invalid_request"
    assert path in [one["path"] for one in found["problems"]]
    assert expected in found["detail"] or any(expected in str(one) for one in found["problems"])


CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("header", "kept"),
    [(CALLER, CALLER), ("nonsense", None), ("00-0-0-01", None)],
    ids=["valid", "text", "short"],
)
def test_the_header_traceparent_is_kept_if_it_is_valid(
    live: RedisWorld, api: ApiClient, header: str, kept: str | None
) -> None:
    found = api.post("/executions", {"document": FREE}, 201, headers={"traceparent": header})

    assert live.record(found["workflow_execution_id"]).traceparent == kept


def test_the_field_traceparent_replaces_the_header_and_must_be_valid(
    live: RedisWorld, api: ApiClient
) -> None:
    own = CALLER.replace("4bf9", "5bf9")
    headers = {"traceparent": CALLER}

    found = api.post("/executions", {"document": FREE, "traceparent": own}, 201, headers=headers)
    wrong = api.post("/executions", {"document": FREE, "traceparent": "x"}, 422)

    assert live.record(found["workflow_execution_id"]).traceparent == own
    assert wrong["problems"][0]["path"] == "traceparent"
