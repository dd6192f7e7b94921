"""Worlds of random steps that use all of the language, and random events for them.

world = any_world(Random(7))
event = any_event(Random(8), world, seen=[])     # None: some time passes
"""

from __future__ import annotations

from random import Random
from typing import Any

from orchestrator.application.records.events import Control, ControlEvent, SignalEvent, StepEvent
from orchestrator.application.spec.model import (
    BranchSpec,
    CompensateSpec,
    ConcurrencySpec,
    Limits,
    LoopSpec,
    RetrySpec,
    StepSpec,
)
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, child, delay, map_step, switch, task, wait_step

KINDS = {"task": 4, "map": 2, "child": 2, "loop": 1, "wait": 1, "delay": 1, "switch": 1}
WITH_JOBS = ("task", "map", "loop", "child")
CONTROLS: dict[Control, int] = {
    "hold": 20,
    "release": 30,
    "pause": 10,
    "unpause": 20,
    "cancel": 1,
    "retry": 5,
    "rerun": 5,
}
CLOSED = {"!": [{"var": "state.closed"}]}
SECOND_ITEM_BREAKS = {"if": [{"==": [{"var": "index"}, 1]}, BROKEN, 1]}


def one_of(draw: Random, *weighted: tuple[Any, int]) -> Any:
    values, weights = zip(*weighted, strict=True)
    return draw.choices(values, weights)[0]


def any_world(draw: Random) -> EngineWorld:
    keys: dict[str, Any] = {
        "limits": Limits(max_runs=12, max_lost=1, max_depth=one_of(draw, (0, 1), (16, 15)))
    }
    if draw.random() < 0.3:
        keys["max_workers"] = draw.randint(1, 2)
    if draw.random() < 0.2:
        keys["timeout_s"] = 20.0
    if draw.random() < 0.25:
        keys["concurrency"] = ConcurrencySpec(
            one_of(draw, ("all", 8), ({"var": "input.k"}, 8), (BROKEN, 1)), 1
        )
    if draw.random() < 0.3:
        keys["kv_scopes"] = ("flow", "global")
    if draw.random() < 0.2:
        keys["outputs"] = {"n": one_of(draw, ({"var": "state.n"}, 6), (BROKEN, 1))}
    names = [f"s{n}" for n in range(draw.randint(1, 7))]
    steps = [any_step(draw, names, n) for n in range(len(names))]
    return world_of(*steps, inputs={"k": "mine"}, **keys)


def any_step(draw: Random, names: list[str], n: int) -> StepSpec:
    name, parents = names[n], draw.sample(names[:n], draw.randint(0, min(n, 2)))
    kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
    keys = _any_keys(draw, kind, names)
    if parents and draw.random() < 0.3:
        keys["join"] = draw.choice(["any", "done", 1])
    match kind:
        case "map":
            over = one_of(draw, ([1, 2, 3], 8), ([], 3), (None, 1), ({"var": "state.xs"}, 1), ("no list", 1))
            given = {"v": one_of(draw, ({"var": "item"}, 6), (SECOND_ITEM_BREAKS, 1))}
            most = draw.choice([None, 1])
            return map_step(name, over, " ".join(parents), max_parallel=most, input=given, **keys)
        case "wait":
            signal, timeout_ms = draw.choice(["go", "stop"]), draw.choice([None, 1000])
            keys |= {"timeout_ms": timeout_ms, "on_timeout": draw.choice(["fail", "continue"])}
            return wait_step(name, signal, after=" ".join(parents), **keys)
        case "delay":
            return delay(name, draw.choice([0, 500]), parents, **keys)
        case "switch":
            on = one_of(draw, ("x", 5), ({"var": "state.n"}, 1), (7, 1))
            listed = names[n + 1] if n + 1 < len(names) else ""
            return switch(name, on, {"x": listed}, one_of(draw, (None, 1), ("", 3)), parents, **keys)
        case "child":
            return child(name, parents, input=one_of(draw, ({}, 15), ({"x": BROKEN}, 1)), **keys)
        case "loop":
            loop = LoopSpec(3, draw.choice(["fail", "exit_with_last"]))
            return task(name, parents, loop=loop, **keys)
    return task(name, parents, **keys)


def _any_keys(draw: Random, kind: str, names: list[str]) -> dict[str, Any]:
    keys: dict[str, Any] = {"branch": _any_branches(draw, names)}
    if draw.random() < 0.6:
        keys["on_error"] = one_of(draw, ("fail", 1), ("skip", 2), ("continue", 3))
    if draw.random() < 0.25:
        keys["guards"] = (one_of(draw, (True, 5), (False, 2), (CLOSED, 5), (BROKEN, 1)),)
    if draw.random() < 0.2:
        keys["defer_ms"] = draw.choice([10, 1000])
    if draw.random() < 0.4:
        given = one_of(draw, ({}, 3), ({"x": {"var": "output.n"}}, 3), ({"x": BROKEN}, 1))
        retry = one_of(draw, (None, 2), (RetrySpec(1, 500), 1))
        timeout_s = draw.choice([None, 5.0])
        keys["compensate"] = CompensateSpec("undo", given, retry=retry, timeout_s=timeout_s)
    if draw.random() < 0.2:
        keys["kv_add"] = one_of(
            draw, ({"total": 1}, 5), ({"global:total": {"var": "output.n"}}, 2), ({"total": "no"}, 1)
        )
    if kind in WITH_JOBS:
        keys["timeout_s"] = draw.choice([None, 5.0])
        if draw.random() < 0.4:
            key = one_of(draw, ("shared", 8), ({"var": "input.k"}, 8), ({"var": "state.n"}, 2), (BROKEN, 1))
            keys["concurrency"] = ConcurrencySpec(key, draw.randint(1, 2))
        if draw.random() < 0.4:
            keys["retry"] = RetrySpec(draw.randint(1, 2), draw.choice([0, 1000]))
    return keys


def _any_branches(draw: Random, names: list[str]) -> tuple[BranchSpec, ...]:
    found = []
    if draw.random() < 0.3:
        wanted = {"or": [{"var": "again"}, {"==": [{"var": "count"}, 0]}]}  # a map without items, too
        again = {"and": [wanted, {"<": [{"var": "ctx.step.run_id"}, 5]}]}
        found.append(branch(again, {"set": draw.sample(names, draw.randint(1, min(2, len(names))))}))
    if draw.random() < 0.15:
        found.append(branch({"var": "halt"}, "halt", result="halted"))
    if draw.random() < 0.15:
        found.append(branch({"var": "skip"}, "skip"))
    if draw.random() < 0.15:
        found.append(branch({"==": [{"var": "ok"}, False]}, "complete"))
    return tuple(found)


def any_event(draw: Random, world: EngineWorld, seen: list[StepEvent]) -> StepEvent | None:
    """Anything that could arrive now, early, late or once more; None when time is to pass."""
    weid = world.record.workflow_execution_id
    weights = {
        "time": 1,
        "old": 1 if seen else 0,
        "control": 1,
        "signal": 1,
        "job": 4 if world.out else 0,
        "child": 3 if world.awaited else 0,
        "slot": 4 if world.slots else 0,
        "timer": 1 if world.armed else 0,
    }
    match draw.choices(list(weights), list(weights.values()))[0]:
        case "job":
            return _of_a_job(draw, world, draw.choice(sorted(world.out)))
        case "child":
            start = world.awaited[draw.choice(sorted(world.awaited))]
            if draw.random() < 0.3:
                return world.child_end(start, error="child died")
            ends = [{"n": 1}, {"halted": True, "result": 1}, {}, {"again": True}]
            return world.child_end(start, draw.choice(ends))
        case "slot":
            return world.slot_event(draw.choice(sorted(owner for owner, _ in world.slots.values())))
        case "timer":
            return world.timer_event(draw.choice(sorted(world.armed, key=lambda timer: timer.name)))
        case "signal":
            return SignalEvent(weid, draw.choice(["go", "stop", "nobody"]), draw.choice([None, 1, {"n": 5}]))
        case "old":
            return draw.choice(seen)
        case "control":
            action = draw.choices(list(CONTROLS), list(CONTROLS.values()))[0]
            step_id = draw.choice(list(world.record.steps)) if action in ("hold", "release", "rerun") else ""
            return ControlEvent(weid, action, step_id)
    return None


def _of_a_job(draw: Random, world: EngineWorld, unit: str) -> StepEvent:
    kind = draw.random()
    if kind < 0.1:
        return world.loss(unit)
    if kind < 0.2:
        return world.started(unit)
    if kind < 0.35:
        return world.error(unit)
    return world.result(unit, any_output(draw, world, unit))


def any_output(draw: Random, world: EngineWorld, unit: str) -> Any:
    flags = [name for name in ("again", "halt", "skip", "closed") if draw.random() < 0.5]
    output: dict[str, Any] = {name: draw.random() < 0.3 for name in flags}
    output["n"] = one_of(draw, (1, 4), (2, 4), (3.5, 4), ("x", 1))
    if draw.random() < 0.2:
        output["global:seen"] = draw.randint(0, 3)
    if loops(world, unit):
        return {"_loop": draw.choice(["again", "done"]), "value": output}
    return one_of(draw, (output, 20), (None, 3), ("no object", 1))


def loops(world: EngineWorld, unit: str) -> bool:
    position = world.record.graph.index.get(unit)
    return position is not None and world.record.spec.steps[position].loop is not None
