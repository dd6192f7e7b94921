"""A running system has no findings at any moment, whichever process is killed meanwhile."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.verify.verifier import Verifier
from processes import PatientClient, stack, wait_until

KEYS = Keys()
ADD = {"fn": "slow_add", "input": {"a": 1, "b": 1, "seconds": 0.02}}
CHILD = {
    "name": "child",
    "steps": [
        {"id": "work", **ADD, "concurrency": {"key": "desk", "limit": 2}, "compensate": ADD},
        {
            "id": "doom",
            "fn": "fail",
            "when": {"==": [{"%": [{"var": "input.n"}, 3]}, 0]},
            "depends_on": ["work"],
        },
    ],
}
PARENT = {
    "name": "parent",
    "timeout": "10m",
    "steps": [
        {"id": "before", **ADD, "compensate": ADD},
        {"id": "pause", "delay": "300ms"},
        {"id": "each", **ADD, "map": {"over": [1, 2, 3], "max_parallel": 2}},
        {
            "id": "kid",
            "workflow": CHILD,
            "input": {"n": {"var": "input.n"}},
            "depends_on": ["before", "pause"],
        },
        {
            "id": "flaky",
            "fn": "fail",
            "retry": {"max_retries": 2, "initial_delay_ms": 200},
            "on_error": "continue",
        },
    ],
}
FAMILIES = 24


@pytest.mark.slow
def test_nothing_is_found_in_a_system_at_work(redis_url: str, tmp_path: Path) -> None:
    client, redis = PatientClient(redis_url), connect(redis_url)
    checked: list[int] = []

    def done() -> int:
        return int(sum(redis.zcard(KEYS.index(status)) for status in ("complete", "failed")))

    def verified(most: int) -> bool:
        """Verify while they work, until so many have ended."""
        report = Verifier(redis, KEYS).verify_all()
        assert report.found == []
        checked.append(report.executions)
        return done() >= most

    with stack(
        redis_url, "step_functions", tmp_path, ORCHESTRATOR_LEASE_S="4", ORCHESTRATOR_GRACE_MS="2000"
    ) as world:
        coordinators = [world.coordinator(), world.coordinator()]
        workers: list[Any] = [world.rq_worker(), world.worker()]
        wait_until(lambda: redis.scard("rq:workers") == len(workers), what="all workers")
        for numbers in (range(FAMILIES // 2), range(FAMILIES // 2, FAMILIES)):
            inputs = [{"n": n} for n in numbers]
            client.start_many([PARENT] * len(inputs), inputs, [f"p{n}" for n in numbers])
            wait_until(partial(world.kill_horse, workers[0]), what="a work-horse to kill")
            world.kill(coordinators.pop(0))
            coordinators.append(world.coordinator())
            wait_until(partial(verified, 2 * numbers.stop), what="parents and children to end")
        assert verified(2 * FAMILIES)  # executions may have begun, and ended, after the last one

    assert len(checked) > 10
    assert checked[-1] == 2 * FAMILIES
    redis.close()
