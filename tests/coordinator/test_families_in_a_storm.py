"""Children, compensations, places, shared values, controls and roots together, in bad weather.

Every event may come twice, late, out of order and to several coordinators at once; steps fail; operators say
whatever comes to their minds. In the end all is as the histories say, and nothing is left.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from effort import count
from worlds.documents import Json, document, step
from worlds.families import N, control, executions, exists, left, members, serving, storm
from worlds.redis_world import RedisWorld
from worlds.spec_executions import signal

SCOPES = {"scopes": ["flow", "global", "flow_group"]}
UNDO = {"fn": "undo", "retry": 2}
GRANDCHILD = document(
    step("deep", concurrency={"key": "k", "limit": 2}, compensate=UNDO, kv_add={"flow_group:total": 1}),
    kv=SCOPES,
)
CHILD = document(
    step("work", concurrency={"key": "k", "limit": 2}, compensate=UNDO, kv_add={"flow_group:total": 1}),
    {"id": "kid", "workflow": GRANDCHILD, "input": N, "depends_on": ["work"], "max_attempts": 2},
    kv=SCOPES,
    outputs={"ok": True},
)
PARENT = document(
    step("first", compensate=UNDO, kv_add={"flow_group:total": 1}, max_attempts=3),
    {"id": "a", "workflow": CHILD, "input": N, "max_attempts": 3, "depends_on": ["first"]},
    {"id": "b", "workflow": CHILD, "input": N, "on_error": "continue", "compensate": UNDO},
    {"id": "w", "wait": {"signal": "go"}},
    step("last", "a b w", kv_add={"flow_group:total": 1}),
    kv=SCOPES,
    concurrency={"key": "j", "limit": 2},
)
ADDING = ("first", "work", "deep", "last")
FAMILIES = ("p0", "p1", "p2")


def set_free(world: RedisWorld, name: str, stream: str) -> None:
    """What is paused or held goes on."""
    record = world.record(name)
    if record.status == "paused":
        control(world, name, "unpause", stream=stream)
    for step_id, one in record.steps.items():
        if one.status == "on_hold":
            control(world, name, "release", step_id, stream)


@pytest.mark.parametrize("seed", range(count(3, 8)))
def test_in_the_end_all_is_as_the_histories_say_and_nothing_is_left(world: RedisWorld, seed: int) -> None:
    chance = random.Random(seed)
    coordinators = serving(world, "one", "two", "three")
    for n, name in enumerate(FAMILIES * 2):
        world.start(PARENT, {"n": n}, name, group="g", idempotency_root=name)
    rounds = 0

    def unlucky(inputs: Json) -> Json:
        if chance.random() < 0.12:
            raise ValueError("bad luck")
        return {}

    def weather() -> bool:
        nonlocal rounds
        rounds += 1
        for key in ("k", "j"):
            assert len(members(world, "held").get(key, [])) <= 2
        unended = [name for name in executions(world) if not world.record(name).is_final]
        for name in unended:
            stream = world.keys.events(chance.randrange(world.keys.partitions))
            signal(world, name, "go", stream=stream)
            if rounds > 30:
                set_free(world, name, stream)
            elif chance.random() < 0.3:
                action = chance.choice(["pause", "unpause", "hold", "release"])
                control(world, name, action, chance.choice([*world.record(name).steps, "nobody"]), stream)
            elif chance.random() < 0.02:
                control(world, name, "cancel", stream=stream)
        world.age_timers(5_000)
        return all(exists(world, name) for name in FAMILIES) and not unended

    executors = dict.fromkeys((*ADDING, "undo"), unlucky)
    storm(world, coordinators, chance, weather, executors)

    added = 0
    for name in executions(world):
        record = world.record(name)
        ended = Counter(world.moves(name, "complete") + world.moves(name, "failed"))
        assert record.is_final
        assert set(ended.values()) <= {1}, (name, ended)
        added += sum(1 for step_id in world.moves(name, "complete") if step_id in ADDING)
        if ":" in name:
            parent, step_id, run_id = name.rsplit(":", 2)
            assert int(run_id) <= world.record(parent).steps[step_id].run_id
    found = world.client.hget("orchestrator:kv:group:g", "total")
    assert int(str(found or 0)) == added
    assert all(world.client.ttl(key) > 0 for key in world.client.scan_iter("orchestrator:kv:*"))
    reasons = [letter["reason"] for letter in world.dead()]
    assert all("cannot be" in reason or "has no step" in reason for reason in reasons), reasons
    assert left(world).keys() <= {"dead"}
