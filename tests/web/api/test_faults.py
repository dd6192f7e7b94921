"""The API when something is wrong: no Redis, a user of Redis that only reads, and bodies that attack."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from api_client import ROOT, ApiClient
from orchestrator.settings import Settings
from orchestrator.web.access.bodies import MAX_BODY_BYTES
from servers.guarded_redis import guarded_redis
from servers.proxy import Proxy
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running

FREE = document(step("a"), name="free")
READS = (
    "/executions",
    "/executions/x",
    "/executions/x/status",
    "/failures",
    "/queues",
    "/workers",
    "/schedules",
    "/workflows",
    "/dead-letters",
    "/coordinators",
)


def test_without_redis_every_route_is_unavailable_for_now(serve_page: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    api = ApiClient(serve_page(settings=Settings(redis_url=f"redis://127.0.0.1:{port}/0")))

    for path in READS:
        found = api.get(path, 503)
        assert (found["code"], found.headers["retry-after"]) == ("unavailable", "1")
    assert api.post("/executions", {"document": FREE}, 503)["code"] == "unavailable"
    assert api.post("/executions/x/cancel", expect=503)["code"] == "unavailable"
    assert api.get("/health", 503)["is_healthy"] is False
    assert api.get("/doctor")["ok"] is False
    assert api.site.get(f"{ROOT}/openapi.json").status_code == 200


def test_a_start_whose_reply_was_lost_is_sent_again_with_its_key(
    world: RedisWorld, proxy: Proxy, serve_page: Callable[..., Any]
) -> None:
    api = ApiClient(serve_page(settings=Settings(redis_url=f"unix://{proxy.path}")))
    key = {"Idempotency-Key": "k-1"}
    proxy.drop_reply_of("XADD")

    lost = api.post("/executions", {"document": FREE}, 503, headers=key)
    with running(world.coordinator("live")):
        again = api.post("/executions", {"document": FREE}, 200, headers=key)

    assert (lost["code"], again["existing"]) == ("unavailable", True)


def test_a_user_of_redis_that_only_reads_can_read_and_not_act(
    tmp_path: Path, serve_page: Callable[..., Any]
) -> None:
    with guarded_redis(tmp_path) as guarded:
        world = RedisWorld(lambda: guarded.client("operator"))
        api = ApiClient(serve_page(settings=Settings(redis_url=guarded.url("reader"))))

        for path in READS:
            api.get(path, 404 if "/x" in path else 200)
        assert api.post("/executions", {"document": FREE}, 403)["code"] == "forbidden_by_redis"
        assert api.post("/executions/w%23x/cancel", expect=403)["code"] == "forbidden_by_redis"
        world.close()


@pytest.mark.parametrize(
    ("content", "status", "expected"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "UTF-8"),
        (b'{"workflow": NaN}', 400, "not JSON"),
        (b'{"workflow": "a", "inputs": {"n": 1e999}}', 400, "too large a number"),
        (b'{"workflow": "a", "inputs": {"n": ' + b"9" * 400 + b"}}", 422, "a number this long"),
        (b'{"workflow": "a", "inputs": {"n": ' + b"9" * 5_000 + b"}}", 400, "not JSON"),
        (b'{"workflow": "a", "inputs": {"x": "\\ud800"}}', 400, "not JSON"),
        (b'{"workflow": "a", "inputs": {"x": ' + b"[" * 60 + b"]" * 60 + b"}}", 422, "deeper than 50"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"workflow": "a", "inputs": [' + b"0," * 1_000_000 + b"0]}", 422, "1,000,000 nodes"),
    ],
)
def test_a_body_that_is_no_plain_json_is_rejected(
    content: bytes, status: int, expected: str, api: ApiClient
) -> None:
    found = api.request(
        "POST", "/executions", status, content=content, headers={"Content-Type": "application/json"}
    )

    assert expected in found["detail"]


def test_a_body_of_another_type_or_of_too_many_bytes_is_rejected(api: ApiClient) -> None:
    form = api.request("POST", "/executions", 415, data={"workflow": "a"})
    content, headers = b"x" * (MAX_BODY_BYTES + 1), {"Content-Type": "application/json"}
    large = api.request("POST", "/executions", 413, content=content, headers=headers)

    assert (form["code"], large["code"]) == ("unsupported_media_type", "too_large")


def test_a_path_and_a_method_that_do_not_exist_are_problems_too(api: ApiClient) -> None:
    nothing = api.site.get(f"{ROOT}/nothing")
    wrong = api.site.request("PUT", f"{ROOT}/executions")

    assert (nothing.status_code, nothing.json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"]
    assert {one.headers["content-type"] for one in (nothing, wrong)} == {"application/problem+json"}


def test_a_defect_is_logged_and_its_text_is_not_shown(
    world: RedisWorld, api: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    world.client.set(world.keys.dead_letters, "not a stream")

    with caplog.at_level(logging.ERROR):
        found = api.site.get(f"{ROOT}/dead-letters")

    assert (found.status_code, found.json()["code"]) == (500, "internal")
    assert "WRONGTYPE" not in found.text
    assert "WRONGTYPE" in caplog.text
    assert found.headers["x-content-type-options"] == "nosniff"


def test_requests_that_wait_for_a_coordinator_leave_the_others_alone(api: ApiClient) -> None:
    with ThreadPoolExecutor(50) as threads:
        waiting = [
            threads.submit(api.site.post, f"{ROOT}/executions?timeout_s=3", json={"document": FREE})
            for _ in range(50)
        ]
        read = api.get("/queues")
        were_waiting = not all(one.done() for one in waiting)
        statuses = {one.result().status_code for one in waiting}

    assert (read.status, were_waiting, statuses) == (200, True, {504})
