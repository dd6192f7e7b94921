"""Executions by the API: the list with its filters and pages, one execution, and its ETag."""

from __future__ import annotations

import json

import pytest

from api_client import ApiClient
from orchestrator.application.redaction.by_key import REDACTED
from worlds.page_executions import ORDER, raise_error, run_execution
from worlds.redis_world import RedisWorld

NAMED = {**ORDER, "name": "order"}


def test_an_execution_has_its_steps_with_their_outputs(world: RedisWorld, api: ApiClient) -> None:
    full_id = run_execution(world, NAMED, execution_id="order-1", inputs={"n": 1, "password": "s3cret"})

    found = api.get("/executions/order-1")

    assert (found["workflow_execution_id"], found["name"], found["status"]) == (full_id, "order", "complete")
    assert list(found["steps"]) == ["reserve", "charge", "ship"]
    assert {one["status"] for one in found["steps"].values()} == {"complete"}
    assert found["inputs"] == {"n": 1, "password": REDACTED}
    assert "s3cret" not in found.text
    assert api.get(f"/executions/{full_id.replace('#', '%23')}").body == found.body


def test_a_failed_execution_has_its_error(world: RedisWorld, api: ApiClient) -> None:
    run_execution(world, ORDER, {"charge": raise_error}, execution_id="order-1")

    found = api.get("/executions/order-1")

    assert found["status"] == "failed"
    assert found["steps"]["charge"]["error"]["message"] == "the card was declined"
    assert found["error"]["step"] == "charge"


def test_an_execution_that_does_not_exist_is_not_found(api: ApiClient) -> None:
    for path in ("", "/status", "/outputs", "/steps", "/history", "/attempts", "/log", "/graph", "/explain"):
        found = api.get(f"/executions/nobody{path}", expect=404)

        assert found["code"] == "not_found"
        assert found.headers["content-type"] == "application/problem+json"
    assert api.get("/executions/w%23nobody", expect=404)["code"] == "not_found"


def test_an_unchanged_execution_is_not_sent_again(world: RedisWorld, api: ApiClient) -> None:
    coordinator = world.coordinator("one")
    world.begin(coordinator, ORDER, execution_id="order-1")
    etag = api.get("/executions/order-1").headers["etag"]

    same = api.request("GET", "/executions/order-1", 304, headers={"If-None-Match": etag})
    world.settle(coordinator)
    changed = api.request("GET", "/executions/order-1", 200, headers={"If-None-Match": f'"x", {etag}'})

    assert (same.text, same.headers["etag"]) == ("", etag)
    assert changed.headers["etag"] != etag
    assert changed["status"] == "complete"


def test_head_has_the_headers_and_no_body(world: RedisWorld, api: ApiClient) -> None:
    run_execution(world, ORDER, execution_id="order-1")

    found = api.request("HEAD", "/executions/order-1")

    assert (found.text, int(found.headers["content-length"]) > 100) == ("", True)
    assert found.headers["etag"] == api.get("/executions/order-1").headers["etag"]


def test_the_list_is_filtered_and_paged(world: RedisWorld, api: ApiClient) -> None:
    for number in range(5):
        labels = json.dumps({"customer": "acme" if number % 2 else "other"})
        run_execution(world, NAMED, execution_id=f"order-{number}", labels=labels, group="g")
    run_execution(world, ORDER, {"charge": raise_error}, execution_id="bad-1")

    first = api.get("/executions", limit=4)
    second = api.get("/executions", limit=4, after=first["cursor"])
    acme = api.get("/executions", label="customer=acme", group="g", status=["complete", "failed"])
    counted = api.get("/executions", text="BAD", counts="true")

    ids = [one["execution_id"] for one in (*first["executions"], *second["executions"])]
    assert ids == ["bad-1", "order-4", "order-3", "order-2", "order-1", "order-0"]
    assert second["cursor"] is None
    assert [one["execution_id"] for one in acme["executions"]] == ["order-3", "order-1"]
    assert acme["executions"][0]["labels"] == {"customer": "acme"}
    assert [one["execution_id"] for one in counted["executions"]] == ["bad-1"]
    assert (counted["counts"]["complete"], counted["counts"]["failed"]) == (5, 1)
    assert first["counts"] is None


def test_the_executions_of_a_failure_are_listed_page_by_page(world: RedisWorld, api: ApiClient) -> None:
    for number in range(3):
        run_execution(world, ORDER, {"charge": raise_error}, execution_id=f"bad-{number}")
    run_execution(world, ORDER, execution_id="good-1")
    [group] = api.get("/failures")["failures"]

    first = api.get("/executions", failure=group["failure"], limit=2)
    second = api.get("/executions", failure=group["failure"], limit=2, after=first["cursor"])

    assert (group["failed"], group["step"], group["message"]) == (3, "charge", "the card was declined")
    assert [one["execution_id"] for one in first["executions"]] == ["bad-2", "bad-1"]
    assert [one["execution_id"] for one in second["executions"]] == ["bad-0"]
    assert second["cursor"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "done"}, "status"),
        ({"limit": "0"}, "limit"),
        ({"limit": "501"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"label": "x"}, "label must be written as KEY=VALUE"),
        ({"since": "yesterday"}, "since must be a time"),
        ({"after": "x"}, "is not a cursor"),
        ({"workflows": "order"}, "did you mean 'workflow'?"),
        ({"limit": ["1", "2"]}, "is given 2 times"),
        ({"counts": "perhaps"}, "counts"),
    ],
)
def test_a_wrong_parameter_is_named(query: dict[str, str], expected: str, api: ApiClient) -> None:
    found = api.get("/executions", 400, **query)

    assert found["code"] == "bad_query"
    assert expected in found["detail"]


def test_a_route_without_parameters_rejects_any(api: ApiClient) -> None:
    found = api.request("GET", "/queues?x=1", 400)

    assert (found["code"], "'x' is not known here" in found["detail"]) == ("bad_query", True)
