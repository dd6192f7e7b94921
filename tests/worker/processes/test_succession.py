"""A work-horse that is recycled may still exit while its successor runs a step."""

from __future__ import annotations

from pathlib import Path

from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, stack


def test_the_step_of_the_successor_is_not_reported_as_lost(redis_url: str, tmp_path: Path) -> None:
    spec = {
        "steps": [
            {"id": "a", "fn": "leaves_slowly"},
            {"id": "b", "fn": "slow_add", "depends_on": ["a"], "input": {"a": 1, "b": 2, "seconds": 2}},
        ]
    }
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as world, connect(redis_url) as redis:
        world.coordinator()
        world.worker("default", "--recycle-after", "1")
        execution = client.start(spec).execution_id
        client.wait(execution, 180)

        assert client.record(execution).steps["b"].lost == 0
        assert redis.hget(Keys().counters, "lost") is None
