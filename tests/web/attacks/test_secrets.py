"""Secrets are in no answer, and a Redis user that only reads lets no action through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator import web
from orchestrator.client import Client
from orchestrator.web.application import all_routes
from servers.asgi_sender import FORM, JSON, AsgiSender, Ask
from servers.guarded_redis import guarded_redis
from servers.page_server import PAGE
from servers.redis_contents import snapshot
from worlds.documents import document, step
from worlds.page_executions import run_execution
from worlds.redis_world import RedisWorld

SECRET = "correct-horse-battery"


def test_a_secret_is_in_no_answer_about_its_execution(world: RedisWorld, redis_url: str) -> None:
    def fail(inputs: Any) -> Any:
        raise ValueError(f"cannot use {inputs['password']}")

    spec = document(
        step("a", fn="keep", input={"api_key": {"var": "input.password"}}),
        step("b", fn="fail", after="a", input={"password": {"var": "input.password"}}, retry=0),
        name="keeps",
    )
    run_execution(
        world,
        spec,
        {"keep": lambda inputs: {"token": SECRET, "note": f"it is {SECRET}"}, "fail": fail},
        execution_id="x",
        inputs={"password": SECRET},
    )
    Client(world.client).register("keeps", spec)
    paths = {
        re.sub(r"\{execution\}", "x", route.path) for route in all_routes() if "GET" in (route.methods or ())
    }
    queries = (
        "",
        "?step=b",
        *(f"?view={view}&step=b" for view in ("graph", "timeline", "steps", "events", "why", "record")),
        "?from=x",
        "?workflow=keeps",
        "?payloads=true",
    )
    endless = ("/live", "/events")

    local = AsgiSender(web.app(redis_url))
    asks = [
        Ask("GET", path + query, accept)
        for path in sorted(paths)
        for query in queries
        for accept in (PAGE, {})
        if "{" not in path and not path.endswith(endless)
    ]
    answers = local.send_all(asks)

    assert sum(one.status == 200 for one in answers) > 100
    leaks = {ask.path for ask, one in zip(asks, answers, strict=True) if SECRET in one.text}
    assert leaks == set()


def test_a_redis_user_that_only_reads_rejects_every_action_of_every_route(tmp_path: Path) -> None:
    """Also if the page lets it pass: nothing in Redis is another afterwards."""
    with guarded_redis(tmp_path) as guarded:
        admin = guarded.client("admin")
        world = RedisWorld(lambda: guarded.client("admin"))
        spec = document(step("a"), name="order")
        full_id = run_execution(world, spec, execution_id="x")
        Client(admin).register("order", {**spec, "schedule": {"cron": "0 0 1 1 *"}})
        letter = str(
            admin.xadd("orchestrator:dead", {"reason": "r", "stream": "s", "entry": "1", "event": "{}"})
        )
        before = snapshot(admin)

        asks = list(make_actions(full_id, letter))
        answers = AsgiSender(web.app(guarded.url("reader"))).send_all(asks)

        assert snapshot(admin) == before
        assert sum(one.code == "forbidden_by_redis" for one in answers) > 20
        defects = [(ask, one.text) for ask, one in zip(asks, answers, strict=True) if one.status >= 500]
        assert defects == []
        world.close()


def make_actions(full_id: str, letter: str) -> Iterator[Ask]:
    """Each action of each route, on what exists."""
    values = {"execution": "x", "workflow": "order", "entry": letter, "action": "delete"}
    id_ = full_id.replace("#", "%23")
    fields = f"id={id_}&ids={id_}&entry={letter}&entries={letter}&name=order&step=a&workflow=order"
    data = [{}, {"name": "order"}, {"step": "a"}, {"workflow": "order"}, {"ids": ["x"]}]
    for route in all_routes():
        path = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "x"), route.path)
        for method in (route.methods or set()) - {"GET", "HEAD"}:
            if path.startswith("/api/"):
                for query in ("", "?workflow=order"):
                    yield from (Ask(method, path + query, JSON, json.dumps(one).encode()) for one in data)
            else:
                for action in ("drop", "resend", "cancel", "delete"):
                    yield Ask(method, path, FORM, f"{fields}&action={action}".encode())
