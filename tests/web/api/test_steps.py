"""Steps, history, attempts, log lines, outputs, graph and explanations by the API."""

from __future__ import annotations

from typing import Any

import pytest

from api_client import ApiClient
from orchestrator.application.redaction.by_key import REDACTED
from worlds.documents import document, document_of, step
from worlds.page_executions import ORDER, raise_error, run_execution
from worlds.redis_world import RedisWorld

FULL = {**ORDER, "history": "full"}
MAPPED = document_of(
    {
        "m": {"map": {"over": {"var": "input.xs"}}, "input": {"x": {"var": "item"}}},
        "end": {"depends_on": ["m"]},
    }
)


def say(inputs: Any, log: Any) -> Any:
    log("one line")
    log("password: s3cret")
    return {"password": "s3cret", "n": 1}


@pytest.fixture
def order(world: RedisWorld) -> str:
    return run_execution(world, FULL, {"charge": say}, execution_id="order-1", inputs={"n": 1})


def test_steps_are_listed_all_or_one_with_its_items(world: RedisWorld, api: ApiClient) -> None:
    run_execution(world, MAPPED, execution_id="map-1", inputs={"xs": [1, 2]})

    every = api.get("/executions/map-1/steps")
    one = api.get("/executions/map-1/steps", step="m")
    item = api.get("/executions/map-1/step", step="m#1")

    assert list(every["steps"]) == ["m", "end", "m#0", "m#1"]
    assert list(one["steps"]) == ["m", "m#0", "m#1"]
    assert (item["step"], item["status"], item["output"]) == ("m#1", "complete", {"x": 2})
    assert item["attempts"] is None
    assert "did you mean 'm#1'" in api.get("/executions/map-1/step", 404, step="m#11")["detail"]


def test_a_step_has_its_attempts_inputs_and_log_lines_without_secrets(order: str, api: ApiClient) -> None:
    found = api.get("/executions/order-1/step", step="charge")

    assert found["output"] == {"password": REDACTED, "n": 1}
    assert next(one["line"] for one in found["lines"]) == "one line"
    assert [(one["run_id"], one["attempt"], one["output"]) for one in found["attempts"]] == [
        (0, 1, {"password": REDACTED, "n": 1})
    ]
    assert "s3cret" not in found.text


def test_the_history_is_read_from_a_position_on_with_whole_commits(order: str, api: ApiClient) -> None:
    whole = api.get("/executions/order-1/history")
    parts: list[Any] = []
    position = 0
    while True:
        page = api.get("/executions/order-1/history", since=position, limit=7)
        parts += page["entries"]
        position = page["next"]
        if not page["more"]:
            break

    assert parts == whole["entries"]
    assert position == whole["next"]
    assert any("inputs" in one for one in parts)
    assert "s3cret" not in whole.text
    assert api.get("/executions/order-1/history", since=whole["next"]).body == {
        "entries": [],
        "next": whole["next"],
        "more": False,
    }


def test_the_history_of_a_step_has_no_other_entries(order: str, api: ApiClient) -> None:
    found = api.get("/executions/order-1/history", step="charge")

    assert found["entries"]
    assert {one["step"] for one in found["entries"]} == {"charge"}


def test_the_fields_after_a_commit_need_a_history_with_values(
    order: str, world: RedisWorld, api: ApiClient
) -> None:
    run_execution(world, ORDER, execution_id="plain-1")

    assert api.get("/executions/order-1/fields", commit=1)["fields"]["status"] in ("pending", "in_progress")
    assert api.get("/executions/order-1/fields", 404, commit=1_000)["code"] == "history_not_kept"
    assert api.get("/executions/plain-1/fields", 404, commit=1)["code"] == "history_not_kept"
    assert api.get("/executions/plain-1/attempts")["attempts"] is None


def test_attempts_are_listed(order: str, api: ApiClient) -> None:
    found = api.get("/executions/order-1/attempts")

    assert [one["step"] for one in found["attempts"]] == ["reserve", "charge", "ship"]
    assert api.get("/executions/order-1/attempts", step="ship")["attempts"] == found["attempts"][2:]


def test_log_lines_are_read_and_then_only_newer_ones(order: str, api: ApiClient) -> None:
    found = api.get("/executions/order-1/log")
    other = api.get("/executions/order-1/log", step="ship")
    newer = api.get("/executions/order-1/log", after=found["next"])

    assert next((one["step"], one["line"]) for one in found["lines"]) == ("charge", "one line")
    assert "s3cret" not in found.text
    assert (other["lines"], other["next"]) == ([], found["next"])
    assert newer.body == {"lines": [], "next": found["next"]}
    assert api.get("/executions/order-1/log", 400, after="x")["code"] == "bad_query"


def test_the_graph_has_the_status_of_each_step(order: str, api: ApiClient) -> None:
    found = api.get("/executions/order-1/graph")

    assert [(one["id"], one["layer"], one["status"]) for one in found["nodes"]] == [
        ("reserve", 0, "complete"),
        ("charge", 1, "complete"),
        ("ship", 2, "complete"),
    ]
    assert [(one["source"], one["target"], one["kind"]) for one in found["edges"]] == [
        ("reserve", "charge", "depends_on"),
        ("charge", "ship", "depends_on"),
    ]


def test_the_graph_is_a_picture_too(order: str, api: ApiClient) -> None:
    found = api.get("/executions/order-1/graph.svg")

    assert found.headers["content-type"] == "image/svg+xml"
    assert found.text.lstrip().startswith(("<svg", "<?xml"))
    assert "reserve" in found.text
    assert api.get("/executions/order-1/graph.svg", 400, max_nodes=0)["code"] == "bad_query"


def test_it_is_explained_why_an_execution_waits_or_failed(world: RedisWorld, api: ApiClient) -> None:
    entry = world.start(ORDER, execution_id="order-1")
    waiting = api.get(f"/executions/{entry}/explain")
    coordinator = world.coordinator("one")
    coordinator.run_once()
    queued = api.get("/executions/order-1/explain")
    step_queued = api.get("/executions/order-1/explain", step="ship")
    world.settle(coordinator, executors={"charge": raise_error})
    failed = api.get("/executions/order-1/explain")

    assert (waiting["status"], queued["status"], failed["status"]) == (None, "in_progress", "failed")
    assert "parents" in [one["code"] for one in step_queued["reasons"]]
    assert any("the card was declined" in one["words"] for one in failed["reasons"])
    assert api.get("/executions/order-1/explain", 404, step="x")["code"] == "not_found"


# ---- the status and the outputs as flowtoy reads them


def test_the_status_has_what_the_web_page_and_the_tui_of_flowtoy_read(
    world: RedisWorld, api: ApiClient
) -> None:
    coordinator = world.coordinator("one")
    world.begin(coordinator, ORDER, execution_id="order-1")
    before = api.get("/executions/order-1/status")
    world.settle(coordinator, executors={"charge": raise_error})
    after = api.get("/executions/order-1/status")

    assert (before["run_id"], before["ended_at"], before["current_step"]) == ("order-1", None, None)
    assert (before["total_steps"], before["completed_steps"], before["running_count"]) == (3, 0, 0)
    assert {one["state"] for one in before["steps"].values()} == {"pending"}
    assert (after["completed_steps"], after["running_steps"]) == (3, [])
    states = {name: one["state"] for name, one in after["steps"].items()}
    assert states == {"reserve": "succeeded", "charge": "failed", "ship": "skipped"}
    assert after["steps"]["charge"]["notes"][0] == "the card was declined"
    times = [after["started_at"], after["steps"]["reserve"]["started_at"], after["ended_at"]]
    assert times == sorted(times)
    assert 1_700_000_000 < times[0] < 4_000_000_000


def test_a_running_step_is_the_current_step(world: RedisWorld, api: ApiClient) -> None:
    world.begin(world.coordinator("one"), ORDER, execution_id="order-1")
    seen: list[Any] = []

    def look(inputs: Any) -> Any:
        seen.append(api.get("/executions/order-1/status"))
        return {"items": 1}

    world.work({"reserve": look}, most=1)
    world.coordinator("one").run_once()

    [status] = seen
    assert (status["current_step"], status["running_steps"], status["running_count"]) == (
        "reserve",
        ["reserve"],
        1,
    )
    assert status["steps"]["reserve"]["state"] == "running"
    assert api.get("/executions/order-1/status")["steps"]["reserve"]["outputs"] == ["items"]


def test_the_outputs_of_complete_steps_have_no_secrets(world: RedisWorld, api: ApiClient) -> None:
    run_execution(
        world,
        ORDER,
        {"reserve": lambda inputs: {"n": 1, "token": "s3cret"}, "charge": raise_error},
        execution_id="order-1",
    )

    assert api.get("/executions/order-1/outputs").body == {"reserve": {"n": 1, "token": REDACTED}}


def test_a_large_value_is_a_reference_that_can_be_loaded(live: RedisWorld, api: ApiClient) -> None:
    value = {"rows": ["x" * 1_100_000], "password": "s3cret"}
    api.post("/executions", {"document": ORDER, "inputs": {"big": value}, "execution_id": "big-1"})
    reference = api.get("/executions/big-1")["inputs"]["big"]

    loaded = api.get(f"/payloads/{reference['$payload']}", execution="big-1")

    assert set(reference) >= {"$payload", "bytes"}
    assert loaded.body == {**value, "password": REDACTED}
    assert api.get(f"/payloads/{'0' * 64}", 404)["code"] == "payload_missing"
    assert api.get("/payloads/x", 404)["code"] == "not_found"


def test_hostile_names_and_values_are_returned_as_json(world: RedisWorld, api: ApiClient) -> None:
    hostile = "</script>\u202e\x00\x1b[31m"
    spec = document(step("a"), name=hostile[:9])
    run_execution(world, spec, {"a": lambda inputs: {"v": hostile}}, execution_id="h-1")

    found = api.get("/executions/h-1/steps")

    assert found["steps"]["a"]["output"] == {"v": hostile}
    assert found.headers["content-type"] == "application/json"
    assert found.headers["x-content-type-options"] == "nosniff"
