"""Executions of StepSpecs in a RedisWorld; coordinators know each of them under the name `it`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from orchestrator.application.spec.model import StepSpec
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.store import RedisStore
from worlds.redis_world import RedisWorld
from worlds.specs import loaded_of
from worlds.waiting import PATIENCE_S

IT = "it"


def coordinators(
    world: RedisWorld,
    *steps: StepSpec,
    names: Sequence[str] = ("one",),
    pace: Mapping[str, Any] | None = None,
    **keys: Any,
) -> list[Coordinator]:
    """One coordinator for each name; all of them know the spec of these steps. None of them trims: whatever
    was raised can still be seen."""
    loaded = loaded_of(*steps, **keys)
    made = [
        world.coordinator(name, world.connect(), **{"trim_every_s": 1e9, **(pace or {})}) for name in names
    ]
    for store in (world.store, *(cast("RedisStore", one._starts._definitions) for one in made)):
        store.cache_spec(loaded)
    world.store.register(IT, loaded)
    for one in made:
        one.run_once()  # the only one in which it trims
    return made


def begun(world: RedisWorld, *steps: StepSpec, inputs: Any = None, **keys: Any) -> tuple[Coordinator, str]:
    """One coordinator, and an execution that it has accepted."""
    [one] = coordinators(world, *steps, **keys)
    return one, world.begin(one, IT, inputs=inputs)


def signal(
    world: RedisWorld, execution: str, name: str, payload: Any = None, stream: str | None = None
) -> str:
    """XADD a signal, as redis-cli would."""
    fields = {"type": "signal", "execution": execution, "name": name, "payload": json.dumps(payload)}
    return world.send(stream or world.keys.events_of(execution), fields)


def serve(
    world: RedisWorld,
    *serving: Coordinator,
    until: Callable[[], Any],
    executors: Mapping[str, Any] | None = None,
    works: bool = True,
) -> Any:
    """Turns and work, while the time goes by, until something is so."""
    patience = time.monotonic() + PATIENCE_S
    while not (found := until()):
        assert time.monotonic() < patience, "it never came to be"
        events = sum(one.run_once() for one in serving)
        if not events + (world.work(executors) if works else 0):
            time.sleep(0.002)
    return found


def raised(world: RedisWorld, *kinds: str) -> list[tuple[str, str]]:
    """Kind and step of every event of these kinds that was ever raised."""
    return [(one["type"], one["step"]) for _, one in world.events() if one["type"] in kinds]


def ends(world: RedisWorld, execution: str, status: str) -> Callable[[], bool]:
    return lambda: world.status(execution) == status
