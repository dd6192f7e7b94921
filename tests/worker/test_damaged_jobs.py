"""What RQ keeps of a job is damaged while it waits: the step runs all the same, and counts once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys, job_id_of
from processes import Stack, stack, wait_until
from servers.redis_server import own_redis
from system.test_every_hop import WORKERS

pytestmark = pytest.mark.slow

KEYS = Keys()
QUEUE = KEYS.rq_queue(KEYS.queue("default"))
SPEC = json.dumps({"steps": [{"id": "a", "fn": "add", "input": {"n": 1}}]})
MOST_WORKERS = 6
DAMAGES: dict[str, Callable[[Client, str], Any]] = {
    "gone": lambda redis, job_id: redis.delete(KEYS.rq_job(job_id)),
    "unreadable": lambda redis, job_id: redis.hset(KEYS.rq_job(job_id), "created_at", "yesterday"),
    "twice": lambda redis, job_id: redis.rpush(QUEUE, job_id),
}
LOST = {
    "rq worker": {"gone", "unreadable"},
    "orchestrator worker": {"gone"},  # it reads what it needs, no more
}
"""Which of them are dispatched again; on a busy machine others may be, too."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One coordinator for all tests: it judges nobody in its first seconds."""
    folder = tmp_path_factory.mktemp("damaged")
    with (
        own_redis(folder) as server,
        stack(server.url, "step_functions", folder / "logs", ORCHESTRATOR_GRACE_MS="1000") as made,
    ):
        made.coordinator()
        yield made


@pytest.mark.parametrize("worker", WORKERS)
def test_jobs_that_were_damaged_in_their_queue_run_and_count_once(world: Stack, worker: str) -> None:
    """RQ's own worker ends by what it cannot read, with exit code 0: it is to be restarted always, not "on
    failure"."""
    names = {damage: f"{damage}-{worker.split()[0]}" for damage in DAMAGES}
    exits: list[int] = []
    with connect(world.url) as redis:
        for name in names.values():
            redis.xadd(KEYS.starts, {"spec": SPEC, "execution_id": name})
        wait_until(lambda: redis.llen(QUEUE) == len(DAMAGES), what=world.log())
        for damage, name in names.items():
            DAMAGES[damage](redis, job_id_of(KEYS.queue("default"), step_of(redis, name)["token"]))
        process = WORKERS[worker](world)

        def have_ended() -> bool:
            nonlocal process
            if (code := process.poll()) is not None:
                exits.append(code)
                assert len(exits) < MOST_WORKERS, world.log()
                process = WORKERS[worker](world)
            return all(step_of(redis, name)["status"] == "complete" for name in names.values())

        wait_until(have_ended, what=world.log())
        process.terminate()
        process.wait(180)
        steps = {damage: step_of(redis, name) for damage, name in names.items()}
        ends = {damage: completions(redis, name) for damage, name in names.items()}

    assert ends == dict.fromkeys(DAMAGES, 1)
    assert LOST[worker] <= {damage for damage, step in steps.items() if step.get("lost", 0)}
    assert {step["attempt"] for step in steps.values()} == {1}, "a loss is no attempt"
    assert set(exits) == ({0} if worker == "rq worker" else set())


def step_of(redis: Client, name: str) -> dict[str, Any]:
    weid = redis.get(KEYS.execution(name))
    found: dict[str, Any] = json.loads(str(redis.hget(KEYS.workflow(str(weid)), "step:a")))
    return found


def completions(redis: Client, name: str) -> int:
    entries: Any = redis.lrange(KEYS.history(str(redis.get(KEYS.execution(name)))), 0, -1)
    moves = [json.loads(entry) for entry in entries]
    return sum(1 for one in moves if one.get("step") == "a" and one.get("to") == "complete")
