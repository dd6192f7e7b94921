"""A step with `heartbeat`: an executor that sends heartbeats may run long; a silent one is lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.harness import Harness
from processes import Stack, is_running, stack
from processes import wait_until as wait_for
from worker.test_harness import dispatched, harness, published
from worker.test_timeouts import start_worker
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, durable_world
from worlds.waiting import at_some_pace, wait_until

KEYS = Keys()
WORKERS = ["rq worker", "orchestrator worker"]


def watched(heartbeat: str, **keys: Any) -> Json:
    return document(step("a", heartbeat=heartbeat, **keys), limits={"max_lost": 1})


# ---- in one process


def test_an_executor_with_heartbeats_may_run_long(world: RedisWorld) -> None:
    def scene(pace: int) -> None:
        world.client.flushall()
        payload = dispatched(world, watched(f"{pace}s"))

        def executor(inputs: Json, heartbeat: Any) -> Json:
            done = threading.Event()
            for _ in range(15):
                heartbeat()
                done.wait(0.1 * pace)
            return {"n": 1}

        assert harness(world, executor).run(payload) is True

        world.coordinator().run_once()
        assert world.record(payload["execution"]).steps["a"].status == "complete"
        assert world.counter("lost") == 0

    at_some_pace(scene)


def test_an_executor_that_is_silent_is_lost_and_its_late_result_is_dropped(world: RedisWorld) -> None:
    def scene(pace: int) -> None:
        world.client.flushall()
        payload = dispatched(world, watched(f"{50 * pace}ms"))
        coordinator = world.coordinator()

        def executor(inputs: Json, heartbeat: Any) -> Json:
            heartbeat()
            wait_until(lambda: [fields for _, fields in world.events() if fields["type"] == "lost"])
            return {"n": "too late"}

        assert harness(world, executor).run(payload) is False

        assert published(world) == []
        coordinator.run_once()
        found = world.record(payload["execution"]).steps["a"]
        assert (found.status, found.attempt, found.run_id, found.lost) == ("in_progress", 1, 1, 1)
        assert found.reason == f"its executor sent no heartbeat for {0.05 * pace:g} s"
        world.settle(coordinator, executors={"a": lambda inputs, heartbeat: {"n": "in time"}})
        assert world.record(payload["execution"]).steps["a"].output == {"n": "in time"}
        assert world.counter("lost") == 1

    at_some_pace(scene)


def test_the_lease_of_a_silent_executor_is_not_renewed(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.worker.lease.FIRST_RENEWAL_S", 0.01)
    payload = dispatched(world, watched("50ms"))

    def executor(inputs: Json, heartbeat: Any) -> None:
        wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "lease"])

    assert harness(world, executor, lease_s=0.04).run(payload) is False


def test_an_executor_that_is_lost_too_often_has_failed(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    weid = world.begin(coordinator, watched("20ms"))

    def executor(inputs: Json, heartbeat: Any) -> None:
        wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "watchdog"])

    world.settle(coordinator, executors={"a": executor})

    error = world.record(weid).error
    assert error is not None
    assert (error["kind"], error["message"]) == (
        "lost",
        "its executor sent no heartbeat for 0.02 s (2 workers lost with this attempt)",
    )
    assert world.moves(weid, "in_progress") == ["a", "a", "a"], "dispatched, lost, dispatched again"


def test_the_clock_begins_when_the_executor_is_called(world: RedisWorld) -> None:
    """However long it took to find the executor."""

    def scene(pace: int) -> None:
        world.client.flushall()
        payload = dispatched(world, watched(f"{500 * pace}ms"))

        class Slow:
            def find(self, fn: str) -> Any:
                threading.Event().wait(0.7 * pace)
                return lambda inputs, heartbeat: {"n": 1}

        assert Harness(world.client, Slow()).run(payload) is True

    at_some_pace(scene)


def test_an_executor_without_the_heartbeat_parameter_fails_at_once(world: RedisWorld) -> None:
    called: list[Json] = []
    payload = dispatched(world, watched("30s"))

    harness(world, called.append).run(payload)

    error = json.loads(published(world)[0]["error"])
    assert called == []
    assert (error["kind"], error["type"]) == ("exception", "HeartbeatMissing")
    assert error["message"] == (
        "step 'a' has a heartbeat of 30 s, but its executor 'a' takes no parameter called heartbeat:"
        " write def a(inputs, heartbeat), and call heartbeat() at least that often"
    )


def test_a_silent_executor_is_stopped_also_while_redis_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease then expires, and the sweep finds it."""
    with durable_world(tmp_path) as (world, server):
        payload = dispatched(world, watched("50ms"))
        stopped = threading.Event()

        def executor(inputs: Json, heartbeat: Any) -> None:
            server.kill()
            assert stopped.wait(180)

        one = harness(world, executor, world.connect(), stop=lambda _: stopped.set())
        assert one.run(payload) is False

        assert "cannot report the lost event" in caplog.text
        server.start()


# ---- under real workers


@pytest.fixture
def redis(redis_url: str) -> Client:
    return connect(redis_url)


def start(redis: Client, spec: Json) -> None:
    redis.xadd(KEYS.starts, {"spec": json.dumps(spec), "execution_id": "run"})


def found(redis: Client, field: str) -> Any:
    weid = str(redis.get(KEYS.execution("run")))
    return json.loads(str(redis.hget(KEYS.workflow(weid), field)))


def reasons(redis: Client) -> set[str]:
    entries: Any = redis.lrange(KEYS.history(str(redis.get(KEYS.execution("run")))), 0, -1)
    return {entry["reason"] for entry in map(json.loads, entries) if "reason" in entry}


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_whose_executor_hangs_is_stopped_and_the_step_goes_elsewhere(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    def scene(pace: int) -> None:
        redis.flushall()
        pid_file = tmp_path / f"pid-{pace}"
        spec = {
            "steps": [
                {"op": "reports_then_hangs", "heartbeat": f"{pace}s", "input": {"pid_file": str(pid_file)}}
            ],
            "outputs": {"done": {"var": "state.done"}},
        }
        with stack(redis_url, "step_functions", tmp_path / f"logs-{pace}") as world:
            world.coordinator()
            process = start_worker(world, worker)
            start(redis, spec)
            wait_for(lambda: pid_file.exists() and pid_file.read_text(), what=world.log())
            pid = int(pid_file.read_text())
            wait_for(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())

            told = found(redis, "step:reports_then_hangs")
            assert (told["attempt"], told["run_id"], told["lost"], told["dispatches"]) == (1, 1, 1, 2)
            assert reasons(redis) == {f"its executor sent no heartbeat for {pace} s"}
            assert found(redis, "outcome") == {"done": True}
            wait_for(lambda: not is_running(pid), what="the work-horse to be stopped")
            assert process.poll() is None, "the worker is still running"
            assert redis.hget(KEYS.counters, "lost") == "1"

    at_some_pace(scene)


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
def test_an_executor_that_reports_may_be_slower_than_the_lease(
    worker: str, redis: Client, redis_url: str, tmp_path: Path
) -> None:
    def scene(pace: int) -> None:
        redis.flushall()
        spec = {"steps": [{"op": "reports", "heartbeat": f"{pace}s", "input": {"seconds": 4 * pace}}]}
        with stack(
            redis_url, "step_functions", tmp_path / f"logs-{pace}", ORCHESTRATOR_LEASE_S=f"{2 * pace}"
        ) as world:
            world.coordinator()
            start_worker(world, worker)
            start(redis, spec)
            wait_for(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())

            assert found(redis, "step:reports")["output"] == {"reports": 20 * pace}
            assert redis.hget(KEYS.counters, "lost") is None

    at_some_pace(scene)


@pytest.mark.slow
def test_a_worker_that_does_not_fork_drops_the_late_result(
    redis: Client, redis_url: str, tmp_path: Path
) -> None:
    """It must not be killed: it keeps running, and takes the step again."""

    def scene(pace: int) -> None:
        redis.flushall()
        marker = tmp_path / f"marker-{pace}"
        given = {"marker": str(marker), "seconds": 1.5 * pace}
        spec = {"steps": [{"op": "silent_once", "heartbeat": f"{500 * pace}ms", "input": given}]}
        with stack(redis_url, "step_functions", tmp_path / f"logs-{pace}") as world:
            world.coordinator()
            process = simple_worker(world)
            start(redis, spec)
            wait_for(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())

            told = found(redis, "step:silent_once")
            assert told["output"] == {"call": 2}
            assert (told["lost"], told["dispatches"]) == (1, 2)
            assert reasons(redis) == {f"its executor sent no heartbeat for {0.5 * pace:g} s"}
            assert process.poll() is None

    at_some_pace(scene)


def simple_worker(world: Stack) -> Any:
    return world.rq_worker(worker_class="rq.worker.SimpleWorker")
