"""Related executions in a RedisWorld: parents and children, concurrency slots, shared values.

one, two = serving(world, "one", "two")
weid = world.begin(one, parent_of(CHILD), inputs={"n": 1}, execution_id="p")
world.settle(one, two)
assert left(world) == {}                 # no slot, lease, timer, job or event is left
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.ports import Delivery
from orchestrator.coordinator.loop import Coordinator
from orchestrator.invocation.executors import Executor
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

N = {"n": {"var": "input.n"}}
CHILD = document(step("work", input=N), outputs={"n": {"var": "steps.work.output.n"}})


def parent_of(child: Json | str, **keys: Any) -> Json:
    """A workflow of one step, `kid`, that starts a child and passes its own `n` on."""
    kid = {"id": "kid", "workflow": child, "input": N, **keys}
    return document(kid, outputs={"kid": {"var": "steps.kid.output"}})


def serving(world: RedisWorld, *names: str, **pace: Any) -> list[Coordinator]:
    """Coordinators on connections of their own. They never trim: whatever was sent can still be seen."""
    made = [world.coordinator(name, world.connect(), trim_every_s=1e9, **pace) for name in names or ("one",)]
    for one in made:
        one.run_once()  # the only one in which it trims
    return made


# ---- saying


def control(
    world: RedisWorld,
    execution: str,
    action: str,
    step_id: str = "",
    stream: str | None = None,
    **others: str,
) -> str:
    """XADD a control, as redis-cli would."""
    fields = {"type": "control", "action": action, "execution": execution, **others}
    if step_id:
        fields["step"] = step_id
    return world.send(stream or world.keys.events_of(execution), fields)


def taken(world: RedisWorld, reader: str = "reader") -> list[Delivery]:
    """All unread events, read by `reader`; any coordinator may handle them."""
    log, found = world.log(reader), list[Delivery]()
    while more := log.read(1_000, 0):
        found += more
    return found


def decide_all(world: RedisWorld, one: Coordinator) -> None:
    """All events and what follows from them; no work is done."""
    while deliveries := taken(world):
        one.handle(deliveries)


def of_type(deliveries: Sequence[Delivery], *kinds: str) -> list[Delivery]:
    return [one for one in deliveries if one.fields.get("type", "start") in kinds]


# ---- looking


def child_of(weid: str, step_id: str = "kid", run_id: int = 0) -> str:
    """The execution id of a child."""
    return f"{weid.partition('#')[2]}:{step_id}:{run_id}"


def exists(world: RedisWorld, execution_id: str) -> bool:
    return bool(world.client.exists(world.keys.execution(execution_id)))


def executions(world: RedisWorld) -> list[str]:
    """The execution ids that Redis knows."""
    prefix = world.keys.execution("")
    return sorted(str(key).removeprefix(prefix) for key in world.client.scan_iter(f"{prefix}*"))


def records(world: RedisWorld) -> list[WorkflowRecord]:
    return [world.record(one) for one in executions(world)]


def members(world: RedisWorld, kind: str) -> dict[str, list[str]]:
    """The slot holders (`held`) or waiters (`line`), by concurrency key."""
    prefix = f"{world.keys.prefix}:concurrency:{kind}:"
    return {
        str(key).removeprefix(prefix): world.client.zrange(key, 0, -1)  # type: ignore[misc]
        for key in world.client.scan_iter(f"{prefix}*")
    }


def left(world: RedisWorld) -> dict[str, Any]:
    """What is still there of executions that have all ended, and should not be."""
    unread = [one for stream in world.streams() for one in _unread(world, stream)]
    found = {
        "held": members(world, "held"),
        "line": members(world, "line"),
        "groups": world.client.hgetall(world.keys.groups),
        "leases": world.leases(),
        "timers": world.timers(),
        "jobs": world.payloads(),  # RQ skips a token without a job
        "pending": world.pending(),
        "unread": unread,
        "dead": [letter["reason"] for letter in world.dead()],
    }
    return {name: value for name, value in found.items() if value}


def _unread(world: RedisWorld, stream: str) -> list[str]:
    groups: Any = world.client.xinfo_groups(stream)
    entries: Any = world.client.xrange(stream, f"({groups[0]['last-delivered-id']}")
    return [entry_id for entry_id, _ in entries]


# ---- weather


def storm(
    world: RedisWorld,
    coordinators: Sequence[Coordinator],
    chance: random.Random,
    until: Callable[[], bool],
    executors: Mapping[str, Executor] | None = None,
) -> None:
    """Every event goes to some coordinator, perhaps to several, perhaps again and late, in any order; caches
    are lost; work is done now and then. Ends when `until` says so, and what is held then is handled too."""
    bag: list[Delivery] = []
    for _ in range(3_000):
        for one in coordinators:
            one._log.sweep()
        bag += taken(world)
        chance.shuffle(bag)
        again: list[Delivery] = []
        while bag:
            batch = [bag.pop() for _ in range(min(len(bag), chance.randint(1, 6)))]
            if chance.random() < 0.15:
                again += batch  # read by a coordinator that pauses for a while
                continue
            chance.choice(coordinators).handle(batch)
            again += [one for one in batch if chance.random() < 0.25]
        bag = again
        if chance.random() < 0.1:
            chance.choice(coordinators)._backend.drop_cached_records()
        world.work(executors, most=chance.randint(0, 4))
        if until():
            break
    else:
        raise AssertionError("it never came to be")
    for one in coordinators:
        one.handle(bag)
    world.settle(*coordinators, executors=executors)


def turns_with_a_lost_reply(
    proxy: Proxy, coordinator: Coordinator, nth: int, work: Callable[[], object]
) -> int:
    """Turns and work, in which the reply to the commit of the nth turn is lost; returns how often the
    coordinator had to begin anew because of that."""
    dropped = 0
    for turn in range(1, 40):
        if turn == nth:
            proxy.drop_reply_of("EVALSHA")
        try:
            coordinator.handle(coordinator._log.read(100, 0))
        except Unavailable:
            dropped += 1
            coordinator.resume_unfinished()
        work()
    return dropped
