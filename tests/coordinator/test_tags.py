"""Steps with tags go to the queue that the table of the coordinator names, and to no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.client import Client
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import stack, wait_until
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

KEYS = Keys()
SPEC = document(
    step("plain"),
    step("tagged", tags=["gpu"]),
    step("urgent", tags=["gpu", "eu"], priority=1),
    step("named", tags=["tpu"], queue="mine"),
)


def waiting(world: RedisWorld) -> dict[str, str]:
    """The queue of every job that waits, by its step."""
    found: dict[str, str] = {}
    for queue in world.queues():
        ids: Any = world.client.lrange(world.keys.rq_queue(queue), 0, -1)
        leases = [str(world.client.hget(world.keys.rq_job(job_id), "description")) for job_id in ids]
        found |= {lease.split("|")[1]: queue for lease in leases}
    return found


def test_jobs_go_to_the_queues_that_their_tags_lead_to(world: RedisWorld) -> None:
    world.routes = TagRoutes.parse("gpu=gpu-box, eu+gpu=eu-gpu")
    coordinator = world.coordinator()

    weid = world.begin(coordinator, SPEC)

    assert waiting(world) == {
        "plain": "orchestrator.default",
        "tagged": "orchestrator.gpu-box",
        "urgent": "orchestrator.eu-gpu:1",
        "named": "orchestrator.mine",
    }
    world.settle(coordinator)
    assert world.status(weid) == "complete"


def test_a_start_whose_tags_nobody_serves_is_refused_with_what_to_do(world: RedisWorld) -> None:
    world.routes = TagRoutes.parse("gpu=gpu-box")
    coordinator = world.coordinator()
    entry = world.start(SPEC)

    coordinator.run_once()

    answer = world.answer(entry)
    assert answer["ok"] is False
    assert "step 'urgent' needs a worker with the tags eu, gpu" in answer["reason"]
    assert "ORCHESTRATOR_TAGS" in answer["reason"]
    assert [fields["reason"] for fields in world.dead()] == [answer["reason"]]
    assert world.waiting() == []


def test_a_registered_workflow_is_checked_when_it_is_started(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    Client(world.client, world.keys).register("tagged", SPEC)
    entry = world.start("tagged")

    coordinator.run_once()

    assert "step 'tagged'" in world.answer(entry)["reason"]


def test_an_execution_whose_entry_was_taken_away_fails_and_runs_nowhere_else(world: RedisWorld) -> None:
    spec = document(step("first"), step("later", after="first", tags=["eu"]))
    world.routes = TagRoutes.parse("eu=eu-box")
    weid = world.begin(world.coordinator(), spec)
    world.routes = TagRoutes()

    world.settle(world.coordinator())

    record = world.record(weid)
    assert record.status == "failed"
    assert record.error is not None
    assert "step 'later' needs a worker with the tags eu" in record.error["message"]
    assert world.waiting() == []


def test_an_open_table_leaves_tags_that_nobody_knows_where_they_are(world: RedisWorld) -> None:
    world.routes = TagRoutes.parse("gpu=gpu-box, *")

    world.begin(world.coordinator(), SPEC)

    assert waiting(world)["urgent"] == "orchestrator.default:1"
    assert waiting(world)["tagged"] == "orchestrator.gpu-box"


@pytest.mark.slow
def test_a_worker_of_a_queue_runs_what_its_tags_lead_to(redis_url: str, tmp_path: Path) -> None:
    redis: Any = connect(redis_url)
    spec = {
        "steps": [{"id": "a", "fn": "add", "tags": ["gpu"]}, {"id": "b", "fn": "add", "depends_on": ["a"]}]
    }
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_TAGS="gpu=gpu-box") as world:
        world.coordinator()
        usual = world.worker()
        redis.xadd(KEYS.starts, {"spec": json.dumps(spec), "execution_id": "run"})
        wait_until(lambda: redis.llen(KEYS.rq_queue("orchestrator.gpu-box")) == 1, what=world.log())
        assert usual.poll() is None

        world.worker("gpu-box")
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
