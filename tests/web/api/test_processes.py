"""Queues, workers, coordinators, dead letters, failures, health and the doctor by the API."""

from __future__ import annotations

import pytest

from api_client import ApiClient
from worlds.page_executions import ORDER, raise_error, run_execution
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until


def test_a_queue_has_its_depth_and_its_oldest_job(world: RedisWorld, api: ApiClient) -> None:
    world.begin(world.coordinator("one"), ORDER)

    [queue] = api.get("/queues")["queues"]
    found = api.get("/coordinators")

    assert (queue["name"], queue["depth"], queue["waiting"], queue["held"]) == (
        "orchestrator.default",
        1,
        1,
        0,
    )
    assert queue["oldest_at"] is not None
    assert [(one["name"], one["is_alive"]) for one in found["coordinators"]] == [("one", True)]
    assert found["streams"][0]["unread"] == 0


@pytest.mark.usefixtures("processes")
def test_a_real_worker_and_coordinator_are_listed_and_healthy(api: ApiClient) -> None:
    wait_until(lambda: len(api.get("/workers")["workers"]) == 1)
    [worker] = api.get("/workers")["workers"]
    wait_until(lambda: api.get("/coordinators")["coordinators"])
    healthy = api.get("/health", process="worker")
    doctor = api.get("/doctor")

    assert (worker["is_alive"], worker["is_connected"]) == (True, True)
    assert "add" in worker["executors"]
    assert healthy["is_healthy"] is True
    assert api.get("/health")["pulses"][0]["is_healthy"] is True
    assert {one["level"] for one in doctor["checks"]} <= {"ok", "warning", "problem"}
    assert doctor["ok"] == all(one["level"] != "problem" for one in doctor["checks"])


def test_without_a_coordinator_the_health_is_unavailable(api: ApiClient) -> None:
    found = api.get("/health", 503)

    assert (found["is_healthy"], found["words"]) == (False, "no coordinator found on any host")
    assert api.get("/health", process="redis")["is_healthy"] is True
    assert api.get("/health", 400, process="postman")["code"] == "bad_query"


def test_dead_letters_are_paged_sent_again_and_dropped(world: RedisWorld, api: ApiClient) -> None:
    coordinator = world.coordinator("one")
    for number in range(3):
        world.start(f"nobody-{number}", inputs={"password": "s3cret"})
    coordinator.run_once()

    first = api.get("/dead-letters", limit=2, reason="nobody")
    second = api.get("/dead-letters", limit=2, after=first["cursor"])
    newest = first["letters"][0]
    shown = api.get(f"/dead-letters/{newest['entry']}")
    resent = api.post(f"/dead-letters/{newest['entry']}/resend")
    dropped = api.delete(f"/dead-letters/{first['letters'][1]['entry']}")

    assert [one["event"]["workflow"] for one in (*first["letters"], *second["letters"])] == [
        "nobody-2",
        "nobody-1",
        "nobody-0",
    ]
    assert (second["cursor"], shown.body, shown["problem"]) == (None, newest, None)
    assert "s3cret" not in first.text
    assert resent["stream"] == world.keys.starts
    assert dropped["dropped"] is True
    assert len(api.get("/dead-letters")["letters"]) == 1
    for path in (f"/dead-letters/{newest['entry']}", "/dead-letters/1-1", "/dead-letters/x"):
        assert api.get(path, 404)["code"] == "not_found"
    assert api.post(f"/dead-letters/{newest['entry']}/resend", expect=404)["code"] == "not_found"


def test_an_event_that_nobody_reads_cannot_be_sent_again(world: RedisWorld, api: ApiClient) -> None:
    fields = {"reason": "no", "stream": "elsewhere", "entry": "1-1", "event": '{"a": "b"}'}
    entry = world.send(world.keys.dead_letters, fields)

    assert api.post(f"/dead-letters/{entry}/resend", expect=409)["code"] == "rejected"


def test_failures_are_grouped_by_cause(world: RedisWorld, api: ApiClient) -> None:
    for number in range(2):
        run_execution(world, ORDER, {"charge": raise_error}, execution_id=f"bad-{number}")

    found = api.get("/failures")

    [group] = found["failures"]
    assert (group["step"], group["failed"], group["retrying"]) == ("charge", 2, 0)
    assert sorted(group["examples"]) == ["bad-0", "bad-1"]
    assert (found["groups"], found["checked"], found["complete"]) == (1, 2, True)
    assert api.get("/failures", text="bad-1")["failures"][0]["failed"] == 1
