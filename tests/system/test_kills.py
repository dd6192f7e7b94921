"""Everything at once on real processes: workflows end, each step accepted once, whoever is killed."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from effort import count
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import GROUP, Keys
from processes import PatientClient, Stack, stack, wait_until

KEYS = Keys()
DIAMOND = {
    "name": "diamond",
    "steps": [
        {"id": "a", "fn": "slow_add", "input": {"a": {"var": "input.n"}, "b": 1}},
        {"id": "b", "fn": "slow_add", "input": {"a": {"var": "steps.a.output.sum"}, "b": 10}},
        {"id": "c", "fn": "slow_add", "input": {"a": {"var": "steps.a.output.sum"}, "b": 100}},
        {
            "id": "d",
            "fn": "slow_add",
            "input": {"a": {"var": "steps.b.output.sum"}, "b": {"var": "steps.c.output.sum"}},
        },
    ],
    "outputs": {"sum": {"var": "steps.d.output.sum"}},
}
WORKFLOWS = count(60, 200)


def expected(n: int) -> dict[str, int]:
    return {"sum": (n + 1 + 10) + (n + 1 + 100)}


@pytest.fixture
def redis(redis_url: str) -> RedisClient:
    return connect(redis_url)


def accepted(redis: RedisClient, workflow_execution_id: str) -> dict[str, int]:
    """How often each step of an execution moved to complete, by its history."""
    counts: dict[str, int] = {}
    entries: Any = redis.lrange(KEYS.history(workflow_execution_id), 0, -1)
    for entry in map(json.loads, entries):
        if entry.get("to") == "complete":
            counts[entry["step"]] = counts.get(entry["step"], 0) + 1
    return counts


def nothing_is_left(redis: RedisClient) -> bool:
    """No event unacknowledged or unread, no lease, no timer, no job waiting."""
    streams = [KEYS.starts, *(KEYS.events(n) for n in range(KEYS.partitions))]
    for stream in streams:
        groups: Any = redis.xinfo_groups(stream)
        [group] = groups
        if group["pending"] or redis.xrange(stream, f"({group['last-delivered-id']}", "+", 1):
            return False
        pending: Any = redis.xpending(stream, GROUP)
        if pending["pending"]:
            return False
    queue = KEYS.rq_queue(KEYS.queue("default"))
    return not (redis.zcard(KEYS.leases) or redis.zcard(KEYS.timers) or redis.llen(queue))


def wait_for_members(redis: RedisClient, index: str, count: int) -> None:
    wait_until(lambda: redis.zcard(index) >= count, 180, f"{count} executions in {index}")


def kill_some(world: Stack, running: dict[str, list[Any]], rng: random.Random) -> None:
    """One coordinator, one worker and one work-horse die; what a supervisor would do is done."""
    coordinator = running["coordinators"].pop(0)
    world.kill(coordinator)
    running["coordinators"].append(world.coordinator())
    worker = running["rq"].pop(0)
    horse = world.horse_of(worker)
    world.kill(worker)
    if horse is not None and rng.random() < 0.5:
        world.kill_pid(horse)
    running["rq"].append(world.rq_worker())
    busy = [*running["rq"], *running["own"]]
    wait_until(lambda: any(world.kill_horse(one) for one in busy), what="a work-horse to kill")


def lose_a_step(world: Stack, client: PatientClient, name: str) -> None:
    """Kill the process of a step that waits for a file. The file exists when the step runs again."""
    pid_file, go = world.folder / f"{name}.pid", world.folder / f"{name}.go"
    inputs = {"pid_file": str(pid_file), "go": str(go)}
    client.start({"name": "victim", "steps": [{"id": "a", "fn": "waits", "input": inputs}]}, {}, name)
    wait_until(pid_file.exists, what=f"{name} to run")
    assert world.kill_pid(int(pid_file.read_text()))
    go.touch()


@pytest.mark.slow
def test_two_hundred_workflows_end_whoever_is_killed(
    redis: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    rng = random.Random(20261116)
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_LEASE_S="4") as world:
        running = {
            "coordinators": [world.coordinator(), world.coordinator()],
            "rq": [world.rq_worker(), world.rq_worker()],
            "own": [world.worker()],
        }
        sent = client.start_many([DIAMOND] * WORKFLOWS, [{"n": n} for n in range(WORKFLOWS)])
        done = KEYS.index("complete")
        for share in (WORKFLOWS // 5, WORKFLOWS // 2):
            wait_for_members(redis, done, share)
            kill_some(world, running, rng)
            lose_a_step(world, client, f"victim-{share}")
        wait_for_members(redis, done, WORKFLOWS + 2)
        wait_until(lambda: nothing_is_left(redis), what="nothing pending")

        for n, entry_id in enumerate(sent):
            execution = client.wait_for_reply(entry_id)["workflow_execution_id"]
            assert client.record(execution).outcome == expected(n)
            assert accepted(redis, execution) == {"a": 1, "b": 1, "c": 1, "d": 1}
        assert not redis.xlen(KEYS.dead_letters)
        counters: Any = redis.hgetall(KEYS.counters)
        assert int(counters["lost"]) >= 2


# ---- families


UNDO = {"fn": "slow_add", "input": {"a": 1, "b": 1}}
DOOM = {"fn": "fail", "when": {"==": [{"%": [{"var": "input.n"}, 3]}, 0]}}
CHILD = {
    "name": "child",
    "steps": [
        {
            "id": "work",
            "fn": "slow_add",
            "input": {"a": {"var": "input.n"}, "b": 1, "seconds": 0.1},
            "concurrency": {"key": "desk", "limit": 2},
            "compensate": UNDO,
        },
        {"id": "doom", **DOOM, "depends_on": ["work"]},
    ],
    "outputs": {"sum": {"var": "steps.work.output.sum"}},
}
PARENT = {
    "name": "parent",
    "steps": [
        {"id": "before", "fn": "slow_add", "input": {"a": 1, "b": 1}, "compensate": UNDO},
        {"id": "kid", "workflow": CHILD, "input": {"n": {"var": "input.n"}}, "depends_on": ["before"]},
    ],
    "outputs": {"sum": {"var": "steps.kid.output.sum"}},
}
FAMILIES = 16


def history(redis: RedisClient, workflow_execution_id: str) -> list[dict[str, Any]]:
    entries: Any = redis.lrange(KEYS.history(workflow_execution_id), 0, -1)
    return [json.loads(entry) for entry in entries]


def ended(redis: RedisClient, execution_id: str) -> dict[str, list[str]]:
    """How each step of an execution ended, as often as it did."""
    found: dict[str, list[str]] = {}
    for entry in history(redis, str(redis.get(KEYS.execution(execution_id)))):
        if entry.get("to") in ("complete", "failed", "filtered", "skipped", "cancelled"):
            found.setdefault(entry["step"], []).append(entry["to"])
    return found


def most_at_once(redis: RedisClient, executions: list[str], step_id: str) -> int:
    """How many of these were in progress with this step at one time, by their histories."""
    changes: list[tuple[str, int]] = []
    for execution_id in executions:
        is_in = False
        for entry in history(redis, str(redis.get(KEYS.execution(execution_id)))):
            if entry.get("step") == step_id and "to" in entry:
                was_in, is_in = is_in, entry["to"] == "in_progress"
                changes.append((entry["at"], is_in - was_in))
    at_once, most = 0, 0
    for _, change in sorted(changes):  # whoever leaves in a millisecond makes room for whoever comes in it
        at_once += change
        most = max(most, at_once)
    return most


@pytest.mark.slow
def test_families_end_once_and_undo_once_whoever_is_killed(
    redis: RedisClient, redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_LEASE_S="4") as world:
        coordinators = [world.coordinator(), world.coordinator()]
        workers = [world.rq_worker(), world.worker()]
        names = [f"p{n}" for n in range(FAMILIES)]
        client.start_many([PARENT] * FAMILIES, [{"n": n} for n in range(FAMILIES)], names)

        def done() -> int:
            return int(sum(redis.zcard(KEYS.index(status)) for status in ("complete", "failed")))

        def wait_and_kill(share: int) -> None:
            wait_until(lambda: done() >= share, what=f"{share} executions to end")
            world.kill(coordinators.pop(0))
            coordinators.append(world.coordinator())
            for worker in workers:
                # Some have published by then: how many kills are a loss is up to chance.
                wait_until(partial(world.kill_horse, worker), what="a work-horse to kill")

        wait_and_kill(FAMILIES // 2)
        wait_and_kill(FAMILIES)
        wait_until(lambda: done() == 2 * FAMILIES, what="every parent and every child to end")
        wait_until(lambda: nothing_is_left(redis), what="nothing pending")
        wait_until(lambda: not list(redis.scan_iter("rq:job:*")), what="no job of RQ")

    children = [f"{name}:kid:0" for name in names]
    for n, (name, child) in enumerate(zip(names, children, strict=True)):
        if n % 3:
            assert client.record(name).outcome == {"sum": n + 1}
            assert ended(redis, name) == {"before": ["complete"], "kid": ["complete"]}
            assert ended(redis, child) == {"work": ["complete"], "doom": ["filtered"]}
        else:
            assert (client.record(name).compensated, client.record(child).compensated) == (True, True)
            undone = {"before#undo": ["complete"]}
            assert ended(redis, name) == {"before": ["complete"], "kid": ["failed"], **undone}
            undone = {"work#undo": ["complete"]}
            assert ended(redis, child) == {"work": ["complete"], "doom": ["failed"], **undone}
    assert sorted(redis.scan_iter(f"{KEYS.execution('')}*")) == sorted(map(KEYS.execution, names + children))
    assert most_at_once(redis, children, "work") == 2
    assert not list(redis.scan_iter(f"{KEYS.prefix}:concurrency:*"))
    assert not redis.xlen(KEYS.dead_letters), redis.xrange(KEYS.dead_letters)
