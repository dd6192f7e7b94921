"""What each page costs in Redis: the number of commands and round trips, however much data there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis
from redis.client import Pipeline

from orchestrator.client import Client
from servers.page_server import PAGE, PageServer
from worlds.documents import document, step
from worlds.listed_executions import START_MS, Known, seed
from worlds.listed_pages import failing
from worlds.page_executions import raise_error, run_execution
from worlds.redis_world import RedisWorld

MANY = 2_000


def copy_execution(world: RedisWorld, real: str, count: int) -> None:
    """Write copies of an execution that has failed, created later than all others."""
    record: dict[Any, Any] = world.client.hgetall(world.keys.workflow(real))
    with world.client.pipeline(transaction=False) as pipe:
        for n in range(count):
            copy = f"{real}-{n}"
            pipe.hset(world.keys.workflow(copy), mapping=record)
            pipe.zadd(world.keys.index("failed"), {copy: world.now_ms() + n})
        pipe.execute()


@dataclass
class Cost:
    commands: int = 0
    round_trips: int = 0


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Counts the commands and round trips of every client in this process."""
    cost = Cost()
    send: Any = Redis.execute_command
    run: Any = Pipeline.execute

    def count_command(self: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(self, Pipeline):
            cost.commands += 1
            cost.round_trips += 1
        return send(self, *args, **options)

    def count_pipeline(self: Any, *args: Any, **options: Any) -> Any:
        cost.commands += len(self.command_stack)
        cost.round_trips += bool(self.command_stack)
        return run(self, *args, **options)

    monkeypatch.setattr(Redis, "execute_command", count_command)
    monkeypatch.setattr(Pipeline, "execute", count_pipeline)
    return cost


PAGES = {
    "/executions": (180, 12),
    "/executions?status=complete&workflow=order": (90, 10),
    "/executions?text=done-1": (4_200, 25),
    "/executions?failure=0000000000": (4_200, 25),
    "/failures": (4_200, 25),
    "/start": (5, 3),
    "/start?workflow=order": (3, 3),
    "/queues": (60, 20),
    "/schedules": (5, 4),
    "/dead-letters": (5, 5),
    "/doctor": (400, 45),
}
"""The most commands and round trips of each page, with 2,000 executions and as many failures."""


def test_every_page_costs_a_bounded_number_of_commands(
    world: RedisWorld, site: PageServer, cost: Cost
) -> None:
    client = Client(world.client, world.keys)
    real = run_execution(world, failing("x"), {"fail": raise_error}, execution_id="real")
    client.register("order", document(step("a"), name="order", schedule={"cron": "* * * * *"}))
    seed(world.client, world.keys, (Known(f"done-{n}", START_MS + n, name="order") for n in range(MANY)))
    copy_execution(world, real, MANY)
    for n in range(200):
        world.client.xadd(
            "orchestrator:dead", {"reason": f"r{n}", "stream": "s", "entry": "1-1", "event": "{}"}
        )
    found = {}
    for path in PAGES:
        site.get(path, headers=PAGE)  # a client loads scripts and settings once
        cost.commands = cost.round_trips = 0
        assert site.get(path, headers=PAGE).status_code == 200
        found[path] = (cost.commands, cost.round_trips)

    print("\n".join(f"{path:<45} {commands:>6} {trips:>4}" for path, (commands, trips) in found.items()))
    for path, (commands, trips) in found.items():
        assert commands <= PAGES[path][0], (path, commands)
        assert trips <= PAGES[path][1], (path, trips)
        assert commands > 0, path
