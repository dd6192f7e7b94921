"""Maps and waits in a SpecWorld, and specs of StepSpecs for worlds that have a store.

world = ItemWorld(map_step("m", {"var": "input.xs"}, max_parallel=2), inputs={"xs": [1, 2, 3]})
world.advance()                      # claims m#0 and m#1
world.finish("m#0", {"n": 1})        # its result, and the advance that follows: claims m#2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import coreworld
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import Complete, Decision, Dispatch, DispatchJob, Failed, Halt
from orchestrator.application.records.events import ResultEvent, SignalEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import ItemCounts, StepRecord
from orchestrator.application.spec.model import (
    BranchSpec,
    LoadedSpec,
    MapSpec,
    StepSpec,
    WaitSpec,
    workflow_id,
)
from specworld import SpecWorld, branch, check, record_of, task

Json = dict[str, Any]

_names = count(1)


def loaded_of(*steps: StepSpec, **keys: Any) -> LoadedSpec:
    """A spec that has passed the door: its document says nothing, but is its own."""
    document: Json = {"name": f"made-{next(_names)}", "steps": []}
    loaded = record_of(*steps, **keys).loaded
    return replace(loaded, document=document, workflow_id=workflow_id(document))


def map_step(
    step_id: str,
    over: Any,
    after: str = "",
    *,
    as_: str = "item",
    max_parallel: int | None = None,
    **keys: Any,
) -> StepSpec:
    """A map whose items are given to their executors as {"v": item}, unless `input` says otherwise."""
    keys.setdefault("input", {"v": {"var": as_}})
    return task(step_id, after, map=MapSpec(over, as_, max_parallel), **keys)


def wait_step(step_id: str, *signals: str, after: str = "", **keys: Any) -> StepSpec:
    of_wait = {name: keys.pop(name) for name in ("timeout_ms", "on_timeout", "is_any") if name in keys}
    return task(step_id, after, fn="", kind="wait", wait=WaitSpec(signals, **of_wait), timeout_s=None, **keys)


def resets(condition: Any, *targets: str) -> BranchSpec:
    return branch(condition, {"set": list(targets)})


class ItemWorld(SpecWorld):
    """`checked` False: for worlds so large that looking at all of it after every commit takes too long."""

    def __init__(
        self, *steps: StepSpec, inputs: Mapping[str, Any] | None = None, checked: bool = True, **keys: Any
    ) -> None:
        super().__init__(record_of(*steps, inputs=dict(inputs or {}), **keys), watched=checked)

    def signal(self, name: str, payload: Any = None) -> Decision:
        return self.decide(self.said(name, payload))

    def said(self, name: str, payload: Any = None) -> SignalEvent:
        return SignalEvent(self.record.workflow_execution_id, name, payload)

    def result_of(self, job: DispatchJob, output: Any = None) -> ResultEvent:
        return self.result(job.step_id, output, job)

    def item(self, unit: str) -> StepRecord:
        return self.record.items[unit]

    def counts(self, step_id: str) -> ItemCounts:
        counts = self.record.steps[step_id].items
        assert counts is not None
        return counts

    def inputs_of(self, unit: str) -> Json:
        return self.out[unit].inputs

    def check(self) -> None:
        check(self)
        for step_id, step in self.record.steps.items():
            if step.items is not None and step.status is StepStatus.IN_PROGRESS:
                check_counts(self.record, step_id, step.items)

    def _commit(self, changes: Changes) -> None:
        if self._watched:
            super()._commit(changes)
            self.check()
        else:
            coreworld.World._commit(self, changes)
            self.armed = (self.armed | set(changes.timers_to_arm)) - set(changes.timers_to_disarm)


def check_counts(record: WorkflowRecord, step_id: str, counts: ItemCounts) -> None:
    """The counts of a map that is under way say what its items say."""
    items = [record.items[f"{step_id}#{n}"] for n in range(counts.count)]
    assert counts.out == sum(1 for item in items if item.token is not None)
    assert counts.settled == sum(1 for item in items if item.is_final)
    assert counts.errors == sum(1 for item in items if item.is_final and item.error is not None)
    assert counts.most is None or counts.out <= counts.most
    ready = [n for n, item in enumerate(items) if item.status is StepStatus.READY]
    assert counts.next == min(ready, default=counts.count)
    assert counts.due == sum(1 for item in items if item.is_due)


def most_in_flight(history: Iterable[Mapping[str, Any]], step_id: str) -> int:
    """How many items of a map were in progress at once, as its history tells."""
    out: set[str] = set()
    most = 0
    for entry in history:
        unit = str(entry.get("step", ""))
        if unit.startswith(f"{step_id}#") and "to" in entry:
            (out.add if entry["to"] == "in_progress" else out.discard)(unit)
            most = max(most, len(out))
    assert not out, "every item has ended"
    return most


def drain(world: ItemWorld, execute: Callable[[DispatchJob], Any], most: int = 10_000) -> Decision:
    """Run jobs one by one, the oldest first, until none is out; what is raised is a failure."""
    decision = world.advance()
    for _ in range(most):
        if isinstance(decision, Complete | Halt | Failed) or not world.out:
            return decision
        decision = run_one(world, next(iter(world.out.values())), execute)
    raise AssertionError(f"no end after {most} results")


def run_one(world: ItemWorld, job: DispatchJob, execute: Callable[[DispatchJob], Any]) -> Decision:
    try:
        return world.decide(world.result_of(job, execute(job)))
    except ValueError as error:
        return world.decide(world.error(job.step_id, str(error), job=job))


def units(decision: Decision) -> list[str]:
    assert isinstance(decision, Dispatch), decision
    return [job.step_id for job in decision.jobs]
