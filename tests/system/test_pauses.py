"""A pause under load: nothing new begins, what runs is finished and counts, and then everything goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete
from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, stack, wait_until

KEYS, EXECUTIONS, WIDTH = Keys(), 50, 4


def slow(step_id: str, *after: str) -> dict[str, Any]:
    numbers = {"a": 1, "b": 1, "seconds": 0.01}
    return {"id": step_id, "fn": "slow_add", "input": numbers, "depends_on": list(after)}


FAN = {
    "name": "fan",
    "steps": [
        *(slow(f"s{n}") for n in range(WIDTH)),
        *(slow(f"t{n}", f"s{n}") for n in range(WIDTH)),
        slow("join", *(f"t{n}" for n in range(WIDTH))),
    ],
}
NAMES = [f"x{n}" for n in range(EXECUTIONS)]


def moves(client: Client, to: str) -> dict[str, Counter[str]]:
    """How often each step of each execution has moved to a status."""
    return {
        name: Counter(one["step"] for one in client.history(name) if one.get("to") == to and "step" in one)
        for name in NAMES
    }


@pytest.mark.slow
def test_fifty_fans_are_paused_and_go_on(redis_url: str, tmp_path: Path) -> None:
    redis: Any = connect(redis_url)
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        world.coordinator()
        world.rq_worker()
        world.worker()
        sent = client.start_many([FAN] * EXECUTIONS, [{}] * EXECUTIONS, NAMES)
        assert client.wait_for_reply(sent[-1])["ok"]
        wait_until(lambda: sum(moves(client, "complete")["x0"].values()) >= 1, what=world.log())

        assert {client.pause(name).status for name in NAMES} == {"paused"}
        begun = moves(client, "in_progress")
        assert redis.zcard(KEYS.leases) > 0, "some were under way"
        wait_until(lambda: not redis.zcard(KEYS.leases), what="what was under way to be finished")

        assert moves(client, "in_progress") == begun
        assert moves(client, "complete") == begun, "every result counts"
        assert {client.status(name) for name in NAMES} == {"paused"}
        assert 0 < sum(map(len, begun.values())) < EXECUTIONS * len(FAN["steps"])

        assert {client.unpause(name).status for name in NAMES} == {"in_progress"}
        assert all(isinstance(client.wait(name, 180), Complete) for name in NAMES)

    once = Counter(step["id"] for step in FAN["steps"])  # type: ignore[index]
    assert moves(client, "complete") == moves(client, "in_progress") == dict.fromkeys(NAMES, once)
    assert redis.hget(KEYS.counters, "lost") is None
