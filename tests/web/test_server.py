"""The server of a page stops as soon as it is told to, and closes live updates first."""

from __future__ import annotations

import socket
import threading

import httpx

from orchestrator import web
from orchestrator.web.server import PageServer
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import PATIENCE_S


def test_live_updates_are_closed_in_order_when_the_server_stops(world: RedisWorld, redis_url: str) -> None:
    world.begin(world.coordinator(), document(step("a")), execution_id="order-1")
    server = PageServer(web.app(redis_url), grace_s=10_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=[listener], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/executions/order-1/live"

        with httpx.stream("GET", url, timeout=PATIENCE_S, trust_env=False) as live:
            lines = live.iter_lines()
            next(lines)
            server.stop()
            rest = list(lines)  # raises unless the response ends as it should

        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server waits for its streams"
    assert live.headers["Content-Type"].startswith("text/event-stream")
    assert len(rest) < 100


def test_a_server_beside_a_block_serves_until_its_end(redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/healthz"
        with PageServer(web.app(redis_url)).beside(listener):
            assert httpx.get(url, timeout=PATIENCE_S, trust_env=False).text == "ok\n"

        assert not [thread for thread in threading.enumerate() if thread.name == "web"]
