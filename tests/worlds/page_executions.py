"""Executions for tests of the page: a real coordinator makes them, and a worker runs their steps.

run_execution(world, ORDER, execution_id="order-1")                 # complete
run_execution(world, ORDER, executors={"charge": raise_error})      # failed
with running(world.coordinator("live")): ...                        # replies to the buttons of a page
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.invocation.executors import Executor
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

ORDER = document(step("reserve"), step("charge", after="reserve", retry=0), step("ship", after="charge"))


def run_execution(
    world: RedisWorld,
    spec: Json | str = ORDER,
    executors: Mapping[str, Executor] | None = None,
    **start: Any,
) -> str:
    """Start an execution and run it until nothing is left to do; returns its workflow_execution_id. A step
    without an executor returns its inputs."""
    coordinator = world.coordinator("one")
    found = world.begin(coordinator, spec, **start)
    world.settle(coordinator, executors=executors)
    return found


def raise_error(inputs: Any) -> Any:
    """An executor that fails."""
    raise ValueError("the card was declined")
