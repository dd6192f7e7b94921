"""Workers and the steps that they run, as they are read from what RQ and our workers store."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.rq_workers import CurrentStep, find_current_steps, rq_workers
from servers.redis_contents import calls
from worlds.redis_world import RedisWorld

LEASE = "w1#order-1|ship|0|1|token"


def add_worker(world: RedisWorld, name: str, **fields: str) -> None:
    mapping: dict[Any, Any] = {"queues": "orchestrator.default", "state": "busy", **fields}
    world.client.sadd("rq:workers", f"rq:worker:{name}")
    world.client.hset(f"rq:worker:{name}", mapping=mapping)


def add_job(world: RedisWorld, job_id: str, **fields: str) -> None:
    world.client.hset(f"rq:job:{job_id}", mapping=dict[Any, Any](fields))


def steps(world: RedisWorld) -> dict[str, CurrentStep]:
    inspection = Inspection(world.client, world.keys)
    return find_current_steps(inspection, rq_workers(inspection))


def test_the_step_of_our_workers_and_of_stock_ones_is_found(world: RedisWorld) -> None:
    add_worker(world, "ours", current_step="j1")
    add_worker(world, "stock", current_job="j2")
    add_worker(world, "idle", state="idle")
    add_job(world, "j1", description=LEASE, worker_name="ours", data="[]")
    add_job(world, "j2", description="w2#order-2|a#3|1|2|t")

    found = steps(world)

    assert found == {"ours": CurrentStep("w1#order-1", "ship"), "stock": CurrentStep("w2#order-2", "a#3")}
    assert found["ours"].execution_id == "order-1"


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"description": "jobs.send(1)", "worker_name": "w"},
        {"description": "a|b|c|d|e", "worker_name": "w"},
        {"description": LEASE, "worker_name": "another worker"},
        {"worker_name": "w"},
    ],
    ids=str,
)
def test_a_job_that_is_not_ours_or_runs_elsewhere_is_no_step(world: RedisWorld, job: dict[str, str]) -> None:
    add_worker(world, "w", current_step="j1")
    if job:
        add_job(world, "j1", **job)

    assert steps(world) == {}


def test_a_job_of_another_type_is_no_step(world: RedisWorld) -> None:
    add_worker(world, "w", current_step="j1")
    world.client.set("rq:job:j1", "text")

    assert steps(world) == {}


def test_inputs_of_jobs_are_not_read(world: RedisWorld) -> None:
    for n in range(20):
        add_worker(world, f"w{n}", current_step=f"j{n}")
        add_job(world, f"j{n}", description=LEASE, worker_name=f"w{n}", data="[" + "x" * 10_000)
    world.client.config_resetstat()

    assert len(steps(world)) == 20

    made = calls(world.client)
    assert (made["hmget"], made["hgetall"]) == (20, 20)
