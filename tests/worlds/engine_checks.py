"""What must be true of an EngineWorld after every commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.application.records.events import Parent, StartEvent
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_parts import visible_fields
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts
from orchestrator.application.records.timers import Timer, timers_for_step
from orchestrator.application.values.unit_id import WEBHOOK_UNIT

if TYPE_CHECKING:
    from worlds.engine_world import EngineWorld


def check(world: EngineWorld) -> None:
    """Everything kept beside the record follows from the record."""
    record = world.record
    check_readiness(record)
    check_jobs(world)
    assert world.armed == set(all_timers(record)), "armed and not disarmed is what the record waits for"
    check_slots(world)
    check_children(world)
    check_ending(world)
    check_deltas(world)
    for step_id, step in record.steps.items():
        if step.items is not None and step.status is StepStatus.IN_PROGRESS:
            check_counts(record, step_id, step.items)


def check_deltas(world: EngineWorld) -> None:
    """The deltas so far, folded, are the record as people may see it."""
    if world.deltas and "omitted" not in world.deltas[-1]:
        shown = visible_fields(world.record, compact_json)
        assert world.folded == {name: json.loads(text) for name, text in shown.items()}


compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def check_progress(world: EngineWorld) -> None:
    """The execution has ended, or something can still happen to it."""
    record = world.record
    waiting_for_a_slot = [slot for _, slot in world.slots.values() if not world.is_held(slot)]
    held = [step for step in record.steps.values() if step.status is StepStatus.ON_HOLD]
    assert (
        record.is_final
        or record.status is WorkflowStatus.PAUSED
        or world.out
        or world.awaited
        or world.armed
        or world.last.has_more_ready
        or record.readiness.waiting
        or waiting_for_a_slot
        or held
    ), f"nothing will ever happen again: {world.statuses}"


def check_jobs(world: EngineWorld) -> None:
    record = world.record
    jobs = {unit for unit, one in record.units() if one.token is not None and one.child is None}
    assert jobs == set(world.out), "the jobs that are out are those whose units have a token"
    for job in world.last.jobs:
        if job.step_id == WEBHOOK_UNIT:
            assert record.is_final, "no webhook before the end"
            continue
        step_id, _, part = job.step_id.partition("#")
        unmet = record.readiness.unmet[step_id]
        assert part == "undo" or record.graph.may_join(step_id, unmet), f"{step_id} waits for its parents"


def check_slots(world: EngineWorld) -> None:
    """Every slot that is wanted or held was requested and not released, and no other was."""
    record = world.record
    kept = {step.slot.token: step_id for step_id, step in record.steps.items() if step.slot is not None}
    if record.slot is not None:
        kept[record.slot.token] = ""
    assert kept == {token: owner for token, (owner, _) in world.slots.items()}
    for step_id, step in record.steps.items():
        # One that was declined is in progress, and has no slot while it waits.
        in_progress = step.status is StepStatus.IN_PROGRESS and not (step.declined and step.token is None)
        if step.slot is not None and not step.slot.is_held:
            assert not in_progress, f"{step_id} is in progress and waits for a slot"
        if world.record.spec.steps[record.graph.index[step_id]].concurrency is not None:
            assert not in_progress or step.slot is not None, f"{step_id} is in progress without a slot"


def check_children(world: EngineWorld) -> None:
    """A child that is out was started, once; one that is not awaited has ended or was cancelled, once."""
    awaited = {step.child: step.token for step in world.record.steps.values() if step.token and step.child}
    assert {one.execution_id: parent_of(one).token for one in world.awaited.values()} == awaited
    assert not set(world.cancels) & set(awaited), "a child that a step waits for was cancelled"
    assert {start.execution_id for start in world.children} == {*awaited, *world.ended, *world.cancels}
    assert max(world.cancels.values(), default=1) == 1, "a child was cancelled twice"


def check_ending(world: EngineWorld) -> None:
    """A workflow that ends leaves only its webhook; one that compensates does one thing at a time."""
    record = world.record
    if record.is_final:
        assert set(world.out) <= {WEBHOOK_UNIT}
        assert not world.awaited
        assert {timer.step_id for timer in world.armed} <= {WEBHOOK_UNIT}
        assert not world.slots
        assert record.ending is None
    if record.status is WorkflowStatus.COMPENSATING:
        assert record.readiness.open == 0
        assert len(world.out) <= 1
        assert record.ending is not None
    assert (record.ended_at is not None) == record.is_final


def check_counts(record: WorkflowRecord, step_id: str, counts: ItemCounts) -> None:
    """The counts of a map in progress agree with its items."""
    items = [record.items[f"{step_id}#{n}"] for n in range(counts.count)]
    assert counts.out == sum(1 for item in items if item.token is not None)
    assert counts.settled == sum(1 for item in items if item.is_final)
    assert counts.errors == sum(1 for item in items if item.is_final and item.error is not None)
    assert counts.most is None or counts.out <= counts.most
    ready = [n for n, item in enumerate(items) if item.status is StepStatus.READY]
    assert counts.next == min(ready, default=counts.count)
    assert counts.due == sum(1 for item in items if item.is_due)


def check_readiness(record: WorkflowRecord) -> None:
    """Readiness kept by increments equals readiness computed from the definition."""
    kept, made = record.readiness, fresh_readiness(record)
    assert kept.unmet == made.unmet
    assert (kept.open, kept.active, kept.in_flight) == (made.open, made.active, made.in_flight)
    assert kept.waiting == made.waiting
    assert kept.timed == made.timed
    assert kept.due == made.due
    assert kept.agenda == sorted(set(kept.agenda))
    assert kept.candidates == sorted(set(kept.candidates))
    if not record.is_final:
        evaluated = {
            position
            for position in made.agenda
            if record.steps[step_id := record.graph.order[position]].status is StepStatus.READY
            and step_id in record.graph.eager
        }
        known = {*kept.agenda, *kept.candidates}
        assert known >= set(made.agenda) - evaluated, "a step that can run is not on the agenda"


def fresh_readiness(record: WorkflowRecord) -> Readiness:
    return Readiness.of(record.graph, record.steps, record.items)


def all_timers(record: WorkflowRecord) -> Iterator[Timer]:
    """Every timer that an execution waits for."""
    for unit, one in record.units():
        yield from timers_for_step(unit, one)
    if record.deadline_ms is not None and not record.is_final:
        yield Timer("timeout", "", "", record.deadline_ms)


def parent_of(start: StartEvent) -> Parent:
    assert start.parent is not None
    return start.parent
