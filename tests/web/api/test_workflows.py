"""Registered workflows and schedules by the API."""

from __future__ import annotations

import pytest

from api_client import ApiClient
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ORDER = document(
    step("a"),
    name="order",
    description="Ships things.",
    inputs={"n": {"type": "integer", "required": True}, "note": {"default": "none"}},
)
NIGHTLY = document(step("a"), name="nightly", schedule={"cron": "0 3 * * *"})


def test_a_workflow_is_registered_shown_listed_and_removed(api: ApiClient) -> None:
    name = "orders / ä?"
    made = api.post("/workflows", {"name": name, "document": ORDER})
    as_yaml = api.post("/workflows", {"document": "name: plain\nsteps: [{op: a}]"})
    shown = api.get("/workflow", workflow=name)
    listed = api.get("/workflows")
    removed = api.delete("/workflow", workflow=name)

    assert made["workflow_id"] == shown["workflow_id"]
    assert (as_yaml["name"], shown["description"]) == ("plain", "Ships things.")
    assert shown["inputs"] == {
        "n": {"type": "integer", "required": True, "has_default": False, "default": None},
        "note": {"type": None, "required": False, "has_default": True, "default": "none"},
    }
    assert shown["document"]["steps"][0]["op"] == "a"
    assert [(one["name"], one["is_scheduled"]) for one in listed["workflows"]] == [
        (name, False),
        ("plain", False),
    ]
    assert removed.body == {"name": name, "workflow_id": None}
    assert api.get("/workflow", 404, workflow=name)["code"] == "unknown_workflow"
    assert api.delete("/workflow", 404, workflow=name)["code"] == "unknown_workflow"


def test_an_invalid_document_is_not_registered(api: ApiClient) -> None:
    found = api.post(
        "/workflows", {"document": {"name": "x", "steps": [{"op": "a", "depend_on": ["b"]}]}}, 422
    )

    assert (found["code"], found["problems"][0]["path"]) == ("invalid_spec", "steps[0].depend_on")
    assert api.post("/workflows", {"document": {"steps": [{"op": "a"}]}}, 422)["code"] == "invalid_request"
    assert api.get("/workflows")["workflows"] == []


def test_a_schedule_is_paused_resumed_and_run_now(live: RedisWorld, api: ApiClient) -> None:
    api.post("/workflows", {"document": NIGHTLY})

    paused = api.post("/schedules/pause", {"schedule": "nightly"})
    [shown] = api.get("/schedules")["schedules"]
    resumed = api.post("/schedules/unpause", {"schedule": "nightly"})
    started = api.post("/schedules/run", {"schedule": "nightly"}, 201, headers={"Idempotency-Key": "k"})
    again = api.post("/schedules/run", {"schedule": "nightly"}, 200, headers={"Idempotency-Key": "k"})

    assert (paused["paused"], shown["paused"], resumed["paused"]) == (True, True, False)
    assert (shown["cron"], len(shown["next"]), shown["started"]) == ("0 3 * * *", 3, 0)
    assert live.record(started["workflow_execution_id"]).labels == {"started_by": "run_now"}
    assert again["execution_id"] == started["execution_id"]


@pytest.mark.parametrize("action", ["pause", "unpause", "run"])
def test_a_workflow_without_a_schedule_is_not_found(action: str, api: ApiClient) -> None:
    api.post("/workflows", {"document": ORDER})

    assert api.post(f"/schedules/{action}", {"schedule": "order"}, 404)["code"] == "unknown_schedule"
