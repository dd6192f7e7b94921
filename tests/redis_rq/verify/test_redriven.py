"""Executions that are retried, rerun, cancelled, held and deleted by chance have nothing wrong with them."""

from __future__ import annotations

from random import Random

import pytest

from effort import count
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.events import Control, ControlEvent
from orchestrator.local.what_if import what_if
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

ACTS = 60
EXECUTIONS = ("x0", "x1")
FUNCTIONS = ("a", "m", "b", "c", "inner", "webhook")
CONTROLS: tuple[Control, ...] = ("retry", "retry", "rerun", "cancel", "hold", "release")
OF_STEPS = ("rerun", "hold", "release")


def spec_of(draw: Random) -> Json:
    return document(
        step("a"),
        step(
            "m", "a", map={"over": [1, 2, 3], "max_parallel": 2}, on_error=draw.choice(["fail", "continue"])
        ),
        step(
            "b", "a", retry={"max_retries": 1, "initial_delay_ms": 1000}, concurrency={"key": "k", "limit": 1}
        ),
        step("c", ["m", "b"]),
        {"id": "kid", "workflow": document(step("inner")), "depends_on": ["a"]},
        {"id": "w", "wait": {"signal": "go", "timeout": "1h"}},
        name="order",
        timeout="1h",
        webhook={"url": "https://example.com/done"},
    )


def control(draw: Random, execution: str, number: int) -> ControlEvent:
    last = ("delete", "pause", "unpause") if number > ACTS * 2 // 3 else ()
    action: Control = draw.choice([*CONTROLS, *last])
    return ControlEvent(execution, action, draw.choice("abcm") if action in OF_STEPS else "")


@pytest.mark.parametrize("seed", range(count(3, 25)))
def test_nothing_is_wrong_after_any_act(world: RedisWorld, seed: int) -> None:
    draw = Random(seed)
    one = world.coordinator()
    spec = spec_of(draw)
    ids = [world.begin(one, spec, execution_id=name, group="g") for name in EXECUTIONS]

    def fails_at_times(inputs: Json) -> Json:
        if draw.random() < 0.4:
            raise ValueError("no")
        return {"n": 1}

    for number in range(ACTS):
        execution = draw.choice(ids)
        match draw.choice(["turn", "turn", "work", "work", "control", "signal"]):
            case "turn":
                one.run_once()
            case "work":
                world.work(dict.fromkeys(FUNCTIONS, fails_at_times), most=draw.randint(1, 3))
            case "control":
                event = control(draw, execution, number)
                world.send(world.keys.events_of(execution), event_fields(event))
            case _:
                fields = {"type": "signal", "execution": execution, "name": "go"}
                world.send(world.keys.events_of(execution), fields)

        assert Verifier(world.client, world.keys, world.retention_s).verify_all().found == []

    for execution in ids:
        try:
            record = world.record(execution)
        except RecordNotFound:
            continue  # it was deleted
        assert what_if(record, record.loaded).is_same
