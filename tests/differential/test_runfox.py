"""The published runfox 0.0.7 is the oracle: what it decides, this project decides too.

Random workflows (specs.py names what is left out, and why) and the examples of the seed are run on both, with
results applied in the order of dispatch. Compared are the type of the result, the outcome, the state, the
statuses and run_ids of all steps, and every job with its inputs, in order.

ORCHESTRATOR_DIFFERENTIAL_SPECS sets how many random workflows (500), ORCHESTRATOR_DIFFERENTIAL_SEED the first.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import runfox
from coreworld import Execute, Json, World, run, same_numbers
from differential.specs import FEATURES, Case, random_case

SPECS = int(os.environ.get("ORCHESTRATOR_DIFFERENTIAL_SPECS", "500"))
FIRST_SEED = int(os.environ.get("ORCHESTRATOR_DIFFERENTIAL_SEED", "0"))
CHUNKS = 10
MOST_ROUNDS = 5_000


@dataclass
class Told:
    """How one execution went, in the words both have."""

    result: str = ""
    outcome: Any = None
    state: Json = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    run_ids: dict[str, int] = field(default_factory=dict)
    waves: list[list[tuple[str, int, Any]]] = field(default_factory=list)

    @property
    def executions(self) -> Counter[str]:
        return Counter(step_id for wave in self.waves for step_id, _, _ in wave)


def told_by_runfox(document: Json, inputs: Json, execute: Execute) -> Told:
    """runfox's own run(), spelled out, because D2 must be stopped: after a halt it goes on applying results."""
    backend = runfox.Backend()
    workflow = runfox.Workflow.from_dict(deepcopy(document), backend, deepcopy(inputs))
    told, calls = Told(), Counter[str]()
    for _ in range(MOST_ROUNDS):
        decision = workflow.advance()
        if not isinstance(decision, runfox.Dispatch):
            break
        results = []
        told.waves.append([(job.op, job.run_id, same_numbers(job.inputs)) for job in decision.jobs])
        for job in decision.jobs:
            try:
                output = execute(job.op, deepcopy(job.inputs), calls[job.op])
            except Exception as error:  # as runfox's InProcessWorker does
                output = {"error": str(error), "ok": False}
            calls[job.op] += 1
            results.append((job.op, output))
        for op, output in results:
            if isinstance(workflow.on_step_result(op, output), runfox.Halt):
                break  # D2: final is final
    record = backend.load(workflow.id)
    told.result, told.outcome = type(decision).__name__, same_numbers(record.outcome)
    told.state = same_numbers(record.state)
    for op, step in record.steps.items():
        # D2, U12: what is active when a branch halts is cancelled here, and left as it was by runfox.
        active = record.status == runfox.WorkflowStatus.HALTED and step.status in ("in_progress", "retry")
        told.statuses[op] = "cancelled" if active else str(step.status)
        told.run_ids[op] = step.run_id
    return told


def told_by_us(document: Json, inputs: Json, execute: Execute) -> Told:
    world = World(deepcopy(document), deepcopy(inputs))
    decision = run(world, execute)
    return Told(
        result=type(decision).__name__,
        outcome=same_numbers(decision.outcome),
        state=same_numbers(world.record.state),
        statuses=world.statuses,
        run_ids=world.run_ids,
        waves=[[(job.step_id, job.run_id, same_numbers(job.inputs)) for job in wave] for wave in world.waves],
    )


# ---- random workflows


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """json-logic-path logs what it cannot find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def compare(case: Case) -> Told:
    theirs = told_by_runfox(case.document, case.inputs, case.execute)
    ours = told_by_us(case.document, case.inputs, case.execute)
    assert ours == theirs, f"\n{case}\nORCHESTRATOR_DIFFERENTIAL_SEED={case.seed} runs it again, as the first"
    return theirs


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_workflows_run_as_runfox_runs_them(chunk: int) -> None:
    happened: Counter[str] = Counter()
    seeds = range(FIRST_SEED + chunk, FIRST_SEED + SPECS, CHUNKS)
    for seed in seeds:
        case = random_case(seed)
        happened.update(what_happened(case, compare(case)))

    # In this chunk already, so that no run of this test can be an empty one.
    assert all(happened[one] for one in HAPPENINGS), happened


HAPPENINGS = ("complete", "halt", "looped", "retried", "cancelled", "left ready", "ran in parallel")


def what_happened(case: Case, told: Told) -> set[str]:
    retrying = {step["op"] for step in case.document["steps"] if step.get("max_attempts", 1) > 1}
    happened = {told.result.lower()}
    happened |= {"looped"} if any(n for op, n in told.run_ids.items() if op not in retrying) else set()
    happened |= {"retried"} if any(told.executions[op] > 1 for op in retrying) else set()
    happened |= {"cancelled"} if "cancelled" in told.statuses.values() else set()
    happened |= {"left ready"} if "ready" in told.statuses.values() else set()
    happened |= {"ran in parallel"} if any(len(wave) > 1 for wave in told.waves) else set()
    return happened


def test_the_random_workflows_use_every_feature_often_enough(record_property: Callable[[str, object], None]) -> None:
    used = Counter(one for seed in range(FIRST_SEED, FIRST_SEED + SPECS) for one in random_case(seed).features)
    for feature in FEATURES:
        record_property(feature, used[feature])

    rare = {feature: used[feature] for feature in FEATURES if used[feature] < 0.05 * SPECS}

    assert not rare, f"of {SPECS} workflows only {rare}"


def test_a_case_is_a_pure_function_of_its_seed() -> None:
    first, again = random_case(7), random_case(7)

    assert first == again
    assert random_case(8) != first
