"""Random workflows end on Redis, with real coordinators and workers, as they end in memory.

In memory they are compared with the published runfox (tests/differential), so this closes the circle.
"""

from __future__ import annotations

import os
from collections import Counter
from copy import deepcopy
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

import effort
from differential.specs import Case, random_case
from orchestrator.application.records.record import WorkflowRecord
from processes import PatientClient, stack
from worlds.engine_world import executed_result, run, world_of
from worlds.records import essence, same_numbers

CASES = int(os.environ.get("ORCHESTRATOR_REDIS_CASES", effort.count(30, 60)))

ORDERS = 40
"""How many orders of results must have the same end. Five do not find all races."""


def in_any_order(case: Case, seed: int) -> WorkflowRecord:
    """One result at a time, drawn from all that are out."""
    draw, calls, world = (
        Random(seed),
        Counter[str](),
        world_of(case.document, inputs=case.inputs, checked=False),
    )
    world.advance()
    while not world.record.is_final:
        job = draw.choice(list(world.out.values()))
        calls[job.step_id] += 1
        world.decide(executed_result(world, job, case.execute, calls[job.step_id] - 1))
    return world.record


def comparable(record: WorkflowRecord) -> Any:
    """Without times and tokens, and of an error what every executor tells of it."""
    told = deepcopy(essence(record))
    for part in (told, *told["steps"].values()):
        if part.get("error"):
            part["error"] = {key: part["error"].get(key) for key in ("kind", "message", "step")}
    return same_numbers(told)


def without_races(cases: int) -> list[tuple[Case, Any]]:
    """Cases whose end does not depend on the order of results, with that end: only these can be compared."""
    found: list[tuple[Case, Any]] = []
    for seed in count():
        case = random_case(seed)
        world = world_of(case.document, inputs=case.inputs, checked=False)
        run(world, case.execute)
        expected = comparable(world.record)
        if all(comparable(in_any_order(case, order)) == expected for order in range(ORDERS)):
            found.append((case, expected))
            if len(found) == cases:
                break
    return found


def for_redis(case: Case) -> dict[str, Any]:
    document = deepcopy(case.document)
    for step in document["steps"]:
        step["id"] = step["op"]
        step["fn"] = f"case{case.seed}.{step.pop('op')}"
    return document


@pytest.mark.slow
def test_random_workflows_end_on_redis_as_in_memory(redis_url: str, tmp_path: Path) -> None:
    cases = without_races(CASES)
    features = Counter(feature for case, _ in cases for feature in case.features)
    client = PatientClient(redis_url)
    with stack(redis_url, "scripted", tmp_path) as world:
        world.coordinator()
        world.coordinator()
        world.rq_worker()
        world.worker()
        sent = client.start_many([for_redis(case) for case, _ in cases], [case.inputs for case, _ in cases])

        for (case, expected), entry_id in zip(cases, sent, strict=True):
            execution = client.wait_for_reply(entry_id, 180)["workflow_execution_id"]
            client.wait(execution, 240)
            assert comparable(client.record(execution)) == expected, f"{case}\n{world.log()}"
    assert min(features[one] for one in ("dag", "loop", "halt", "retries", "nested", "vars", "state")) >= 3, (
        features
    )
