"""Controls, signals and bulk actions by the API."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from api_client import ApiClient
from worlds.documents import document, step
from worlds.page_executions import ORDER, raise_error, run_execution
from worlds.redis_world import RedisWorld, running

WAITS = document(step("a"), {"id": "approve", "wait": {"signal": "approved"}, "depends_on": ["a"]})


@pytest.fixture
def order(world: RedisWorld) -> str:
    """An execution whose steps wait in their queue."""
    return world.begin(world.coordinator("one"), ORDER, execution_id="order-1")


@pytest.fixture
def failed(world: RedisWorld) -> str:
    return run_execution(world, ORDER, {"charge": raise_error}, execution_id="bad-1")


def test_an_execution_is_paused_resumed_and_cancelled(order: str, live: RedisWorld, api: ApiClient) -> None:
    paused = api.post("/executions/order-1/pause", {"reason": "a storm"})
    again = api.post("/executions/order-1/pause")
    shown = api.get("/executions/order-1")
    resumed = api.post("/executions/order-1/unpause")
    cancelled = api.post("/executions/order-1/cancel", {"reason": "no stock"})

    assert paused.body == {"execution_id": "order-1", "status": "paused", "changed": True}
    assert again.body == {"execution_id": "order-1", "status": "paused", "changed": False}
    assert (shown["paused"]["reason"], shown["paused"]["by"]) == ("a storm", "local")
    assert (resumed["status"], cancelled["status"]) == ("in_progress", "cancelled")
    assert api.get("/executions/order-1")["cancelled"]["reason"] == "no stock"


def test_a_failed_execution_is_retried_with_other_inputs(
    failed: str, live: RedisWorld, api: ApiClient
) -> None:
    retried = api.post("/executions/bad-1/retry", {"inputs": {"card": "new"}, "reason": "new card"})

    assert (retried["status"], retried["changed"]) == ("in_progress", True)
    assert live.record(failed).inputs == {"card": "new"}


def test_a_step_of_an_ended_execution_runs_again(world: RedisWorld, api: ApiClient) -> None:
    full_id = run_execution(world, ORDER, execution_id="order-1")

    with running(world.coordinator("live")):
        rerun = api.post("/executions/order-1/rerun", {"step": "charge"})
        unknown = api.post("/executions/order-1/rerun", {"step": "chrage"}, 409)

    assert (rerun["status"], unknown["code"]) == ("in_progress", "rejected")
    assert world.record(full_id).steps["charge"].run_id == 1


def test_a_step_is_held_and_released(world: RedisWorld, live: RedisWorld, api: ApiClient) -> None:
    spec = document({"id": "a", "wait": {"signal": "go"}})
    api.post("/executions", {"document": spec, "execution_id": "held-1"})

    held = api.post("/executions/held-1/hold", {"step": "a"})
    shown = api.get("/executions/held-1/steps", step="a")
    released = api.post("/executions/held-1/release", {"step": "a"})

    assert (held["changed"], released["changed"]) == (True, True)
    assert shown["steps"]["a"]["status"] == "on_hold"


def test_an_ended_execution_is_deleted_and_an_open_one_is_not(
    failed: str, order: str, live: RedisWorld, api: ApiClient
) -> None:
    api.delete("/executions/bad-1")

    assert api.get("/executions/bad-1", 404)["code"] == "not_found"
    assert api.delete("/executions/order-1", 409)["code"] == "rejected"


def test_a_signal_is_delivered_or_kept(world: RedisWorld, api: ApiClient) -> None:
    coordinator = world.coordinator("one")
    full_id = world.begin(coordinator, WAITS, execution_id="wait-1")
    world.settle(coordinator)

    with running(world.coordinator("live")):
        delivered = api.post("/executions/wait-1/signals", {"name": "approved", "payload": {"by": "ada"}})
        early = api.post("/executions/later-1/signals", {"name": "approved"})

    assert delivered.body == {"execution_id": "wait-1", "signal": "approved", "kept": False}
    assert early["kept"] is True
    assert world.record(full_id).steps["approve"].output == {"by": "ada"}


@pytest.mark.parametrize("action", ["cancel", "pause", "unpause", "retry"])
@pytest.mark.usefixtures("live")
def test_an_execution_that_does_not_exist_is_not_found(action: str, api: ApiClient) -> None:
    assert api.post(f"/executions/nobody/{action}", expect=404)["code"] == "not_found"
    assert api.post(f"/executions/w%23nobody/{action}", expect=404)["code"] == "not_found"


def test_an_action_that_the_status_forbids_is_rejected_with_the_reason(
    failed: str, live: RedisWorld, api: ApiClient
) -> None:
    found = api.post("/executions/bad-1/pause", expect=409)

    assert (found["code"], "failed" in found["detail"]) == ("rejected", True)


def test_every_action_is_logged_with_its_user(
    order: str, live: RedisWorld, api: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orchestrator.web.actions")

    api.get("/executions/order-1")
    api.post("/executions/order-1/cancel", {"reason": "x"})
    api.post("/executions/order-1/cancel")
    api.post("/executions/order-1/retry", {"inptus": {}}, 422)
    api.post("/executions", {"workflow": "w\n2026 INFO forged"}, 404)

    assert [one.getMessage() for one in caplog.records if one.name == "orchestrator.web.actions"] == [
        "cancel of order-1 by local: ok",
        "cancel of order-1 by local: unchanged",
        "retry of order-1 by local: invalid_request",
        "start of w\\n2026 INFO forged by local: unknown_workflow",
    ]


# ---- bulk


def test_executions_are_counted_and_then_cancelled_by_a_filter(live: RedisWorld, api: ApiClient) -> None:
    for number in range(5):
        api.post("/executions", {"document": WAITS, "execution_id": f"w-{number}", "group": "g"})

    count = api.get("/bulk/cancel", group="g")["count"]
    first = api.post("/bulk/cancel", {"filter": {"group": "g"}, "limit": 3, "reason": "all of them"})
    second = api.post("/bulk/cancel", {"filter": {"group": "g"}, "after": first["cursor"]})

    assert count == 5
    assert (len(first["done"]), len(second["done"]), second["cursor"]) == (3, 2, None)
    assert {live.status(one) for one in (*first["done"], *second["done"])} == {"cancelled"}


def test_the_executions_of_a_failure_are_retried_in_two_requests(world: RedisWorld, api: ApiClient) -> None:
    for number in range(3):
        run_execution(world, ORDER, {"charge": raise_error}, execution_id=f"bad-{number}")
    run_execution(world, document(step("x", retry=0)), {"x": raise_error}, execution_id="other")
    failure = next(one["failure"] for one in api.get("/failures")["failures"] if one["step"] == "charge")

    with running(world.coordinator("live")):
        count = api.get("/bulk/retry", failure=failure)["count"]
        first = api.post("/bulk/retry", {"filter": {"failure": failure}, "limit": 2})
        second = api.post("/bulk/retry", {"filter": {"failure": failure}, "after": first["cursor"]})

    assert count == 3
    assert sorted(one.partition("#")[2] for one in (*first["done"], *second["done"])) == [
        "bad-0",
        "bad-1",
        "bad-2",
    ]
    assert second["cursor"] is None
    assert api.get("/executions/other")["status"] == "failed"


def test_named_executions_are_deleted_and_the_others_are_listed_with_their_reasons(
    failed: str, order: str, live: RedisWorld, api: ApiClient
) -> None:
    found = api.post("/bulk/delete", {"ids": ["bad-1", "order-1", "nobody", "bad-1"]})

    assert found["done"] == [failed]
    assert set(found["rejected"]) == {order, "nobody"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "give `ids` or a `filter`"),
        ({"ids": ["a"], "filter": {"group": "g"}}, "one of the two"),
        ({"filter": {}}, "at least one filter"),
        ({"filter": {"status": []}}, "at least one filter"),
        ({"filter": {"statuses": ["failed"]}}, "did you mean 'status'?"),
        ({"ids": ["a"] * 1_001}, "at most 1000"),
    ],
)
def test_a_bulk_action_needs_to_know_its_executions(body: Any, expected: str, api: ApiClient) -> None:
    found = api.post("/bulk/delete", body, 422)

    assert (found["code"], expected in found["detail"]) == ("invalid_request", True), found["detail"]


def test_only_some_actions_are_for_many(api: ApiClient) -> None:
    assert api.site.post("/api/v1/bulk/pause", json={"ids": ["a"]}).status_code == 404
    assert api.get("/bulk/cancel", 422)["code"] == "invalid_request"
