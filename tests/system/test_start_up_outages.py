"""Redis goes away while a process begins: it waits and goes on, as it does at any other time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import Stack, stack, wait_until
from servers.redis_server import RedisServer
from torture.proxy import Proxy

KEYS = Keys()
MESSAGES = 6
"""What each of them sends before it serves, and a little of what comes then."""
START: dict[str, Callable[[Stack], Any]] = {
    "coordinator": lambda world: world.coordinator(),
    "orchestrator worker": lambda world: world.worker(),
    "crew": lambda world: world.worker("default", "--concurrency", "4"),
}


@pytest.mark.slow
@pytest.mark.parametrize("role", START)
def test_whichever_of_its_first_replies_is_lost_a_process_begins_to_serve(
    role: str, redis_server: RedisServer, redis_url: str, tmp_path: Path
) -> None:
    with ExitStack() as contexts:
        proxy = contexts.enter_context(Proxy(redis_server.socket))
        redis = contexts.enter_context(connect(redis_url))
        stacks, processes = [], []
        for n in range(MESSAGES):
            line = proxy.line(f"{n}")
            line.drop_reply_of("", spared=n)
            world = contexts.enter_context(stack(line.url, "step_functions", tmp_path / f"{n}"))
            stacks.append(world)
            processes.append(START[role](world))

        def serving() -> bool:
            gone = [n for n, process in enumerate(processes) if process.poll() is not None]
            assert not gone, [stacks[n].log() for n in gone]
            served = redis.zcard(KEYS.coordinators) if role == "coordinator" else redis.scard("rq:workers")
            return int(served) >= MESSAGES

        wait_until(serving, what="all of them to serve")
        assert proxy.faults["reply dropped"] >= MESSAGES - 2
