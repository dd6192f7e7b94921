"""A step that exceeds its timeout, or whose workflow is cancelled, is stopped, even in a computation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import Stack, is_running, stack, wait_until

KEYS = Keys()


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["rq worker", "orchestrator worker"])
def test_a_busy_step_is_stopped_after_its_timeout(worker: str, redis_url: str, tmp_path: Path) -> None:
    """It catches whatever RQ raises in it: that is no way to stop it."""
    redis: Any = connect(redis_url)
    pid_file = tmp_path / "pid"
    spec = {"steps": [{"op": "stubborn", "timeout": "2s", "input": {"pid_file": str(pid_file)}}]}
    with stack(redis_url, "step_functions", tmp_path / "logs") as world:
        world.coordinator()
        process = start_worker(world, worker)
        redis.xadd(KEYS.starts, {"spec": json.dumps(spec), "execution_id": "busy"})
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), what=world.log())
        pid = int(pid_file.read_text())
        wait_until(lambda: redis.zcard(KEYS.index("failed")) == 1, what=world.log())

        record = redis.hgetall(KEYS.workflow(redis.get(KEYS.execution("busy"))))
        assert json.loads(record["error"])["kind"] == "timeout"
        wait_until(lambda: not is_running(pid), what="the work-horse to be stopped")
        assert process.poll() is None, "the worker lives on"
        assert redis.hget(KEYS.counters, "lost") is None, (
            "a killed work-horse of a settled step is nobody's loss"
        )


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["rq worker", "orchestrator worker"])
def test_a_busy_step_is_stopped_when_its_workflow_is_cancelled(
    worker: str, redis_url: str, tmp_path: Path
) -> None:
    redis: Any = connect(redis_url)
    pid_file = tmp_path / "pid"
    spec = {"steps": [{"op": "busy", "input": {"pid_file": str(pid_file)}}]}
    with stack(redis_url, "step_functions", tmp_path / "logs") as world:
        world.coordinator()
        process = start_worker(world, worker)
        redis.xadd(KEYS.starts, {"spec": json.dumps(spec), "execution_id": "busy"})
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), what=world.log())
        pid = int(pid_file.read_text())

        redis.xadd(KEYS.events(0), {"type": "control", "action": "cancel", "execution": "busy"})

        wait_until(lambda: redis.zcard(KEYS.index("cancelled")) == 1, what=world.log())
        wait_until(lambda: not is_running(pid), what="the work-horse to be stopped")
        assert process.poll() is None, "the worker lives on"
        assert redis.hget(KEYS.counters, "lost") is None


def start_worker(world: Stack, worker: str) -> Any:
    return world.rq_worker() if worker == "rq worker" else world.worker()
