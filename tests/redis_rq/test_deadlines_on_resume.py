"""Deadlines that passed while no coordinator ran. docs/durability.md has the table.

tests/backend/test_deadlines_on_resume.py has the same cases in memory and on SQLite.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.spec.model import RetrySpec, StepSpec
from worlds.redis_world import RedisWorld
from worlds.spec_executions import begun, ends, serve
from worlds.specs import delay, task, wait_step
from worlds.waiting import wait_until

SOON_S, SOON_MS = 0.05, 50


def leave(world: RedisWorld, *steps: StepSpec, takes: int = 0, fails: bool = False, **keys: Any) -> str:
    """Start an execution whose coordinator and workers die, until its timer is due."""
    one, weid = begun(world, *steps, **keys)
    jobs = [world.pop() for _ in range(takes or int(fails))]
    for job in jobs:
        assert job is not None
        names = ("execution", "step", "run_id", "attempt", "token")
        dispatch = {name: str(job[name]) for name in names}
        error = {"error": '{"kind": "exception", "message": "x"}'} if fails else {}
        world.send(job["events"], {"type": "result" if fails else "started", **dispatch, **error})
        one.run_once()
    world.killed("one")
    [due_ms] = world.timers().values()
    wait_until(lambda: world.now_ms() > due_ms)
    return weid


def resume(world: RedisWorld, weid: str, status: str) -> list[str]:
    """Serve until the execution has ended; returns the steps that ran."""
    calls: list[str] = []

    def run(inputs: Any) -> Any:
        calls.append("a")
        return {}

    two = world.coordinator("two", world.connect())
    loaded = world.record(weid).loaded
    two._backend.store.cache_spec(loaded)  # type: ignore[attr-defined]
    serve(world, two, until=ends(world, weid, status), executors={"a": run})
    return calls


def error_kind(world: RedisWorld, weid: str) -> str:
    error = world.record(weid).error
    assert error is not None
    return str(error["kind"])


def test_on_redis_a_step_past_its_timeout_fails_and_does_not_run_again(world: RedisWorld) -> None:
    weid = leave(world, task("a", timeout_s=SOON_S), takes=1)

    assert resume(world, weid, "failed") == []
    assert error_kind(world, weid) == "timeout"


def test_on_redis_a_workflow_past_its_timeout_fails_and_its_job_is_revoked(world: RedisWorld) -> None:
    weid = leave(world, task("a"), timeout_s=SOON_S)

    two = world.coordinator("two", world.connect())
    two._backend.store.cache_spec(world.record(weid).loaded)  # type: ignore[attr-defined]
    serve(world, two, until=ends(world, weid, "failed"), works=False)

    assert error_kind(world, weid) == "timeout"
    assert world.pop() is None


def test_on_redis_a_wait_past_its_timeout_fails(world: RedisWorld) -> None:
    weid = leave(world, wait_step("w", "go", timeout_ms=SOON_MS), task("a", "w"))

    assert resume(world, weid, "failed") == []
    assert error_kind(world, weid) == "signal_timeout"


@pytest.mark.parametrize(
    ("steps", "fails"),
    [
        ([delay("d", SOON_MS), task("a", "d")], False),
        ([task("a", retry=RetrySpec(1, SOON_MS))], True),
    ],
)
def test_on_redis_a_delay_or_a_pause_that_is_over_goes_on_at_once(
    world: RedisWorld, steps: list[StepSpec], fails: bool
) -> None:
    weid = leave(world, *steps, fails=fails)

    assert resume(world, weid, "complete") == ["a"]
