"""What must be true of executions, whatever has happened to them.

`check_going` is asked after every event, `check_ended` at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.application.engine.dependencies import EdgeState, evaluate_edge
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import (
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
)
from orchestrator.application.values.unit_id import COMPENSATION_PART
from worlds.documents import Json
from worlds.engine_checks import all_timers
from worlds.records import ended_legally

S, W = StepStatus, WorkflowStatus


# ---- on the way


def check_going(records: Iterable[WorkflowRecord], is_quiet: bool) -> None:
    """No limit is exceeded, no step waits in vain, and nothing hangs. `records` are all that have not ended;
    `is_quiet`: everything that was said has been heard."""
    records = list(records)
    for record in records:
        _check_limits(record)
        _check_resting(record)
        if is_quiet:
            assert goes_on(record), f"{record.execution_id} hangs: {_shown(record)}"
            assert not left_behind(record), f"{left_behind(record)} could run: {_shown(record)}"
    _check_places(records, is_quiet)
    if is_quiet:
        _check_children(records)


def goes_on(record: WorkflowRecord) -> bool:
    """Something is in progress, due, awaited, in line, paused or on hold."""
    if record.status is W.PAUSED or any(True for _ in all_timers(record)):
        return True
    slots = [step.slot for step in record.steps.values()]
    slots.append(record.slot)
    return any(slot is not None and not slot.is_held for slot in slots) or any(
        unit.token is not None or unit.status in (S.WAITING, S.ON_HOLD) for _, unit in record.units()
    )


def left_behind(record: WorkflowRecord) -> list[str]:
    """Steps and maps that could be dispatched, and are not."""
    most, out = record.spec.max_workers, sum(1 for _, unit in record.units() if unit.token is not None)
    is_full = most is not None and out >= most
    if record.status in (W.PAUSED, W.COMPENSATING) or is_full or not _has_place(record):
        return []
    graph, unmet = record.graph, record.readiness.unmet
    return [
        step_id
        for step_id, step in record.steps.items()
        if step.awaits_dispatch and graph.may_join(step_id, unmet[step_id]) and step_id not in graph.eager
    ]


def _has_place(record: WorkflowRecord) -> bool:
    return record.spec.concurrency is None or (record.slot is not None and record.slot.is_held)


def _shown(record: WorkflowRecord) -> Json:
    units = {unit: one.as_dict() for unit, one in record.units() if not one.is_final}
    return {"status": str(record.status), "slot": record.slot, **units}


def _check_limits(record: WorkflowRecord) -> None:
    out = [unit for unit, one in record.units() if one.token is not None]
    most = record.spec.max_workers
    assert most is None or len(out) <= most or record.status is W.COMPENSATING, f"{out} are out"
    if record.status is W.COMPENSATING:
        assert len(out) <= 1, f"one at a time, not {out}"
    for spec in record.spec.steps:
        counts = record.steps[spec.id].items
        if counts is None:
            own = [unit for unit in record.items if unit.partition("#")[0] == spec.id and not _is_undo(unit)]
            assert not own, f"{own} belong to a round that is over"
        if counts is None or record.steps[spec.id].is_final:
            continue
        assert spec.map is not None
        items = [unit for unit in out if unit.startswith(f"{spec.id}#")]
        known = sum(1 for unit in record.items if unit.startswith(f"{spec.id}#"))
        assert known == counts.count, f"{spec.id} has {counts.count} items, and {known} are kept"
        assert counts.out == len(items), f"{spec.id} counts {counts.out} items out, and there are {items}"
        assert spec.map.max_parallel is None or len(items) <= spec.map.max_parallel, f"{items} are out"


def _is_undo(unit: str) -> bool:
    return unit.endswith(f"#{COMPENSATION_PART}")


def _check_resting(record: WorkflowRecord) -> None:
    """A step that is ready may still run, one that waits has no signal to take, and one that rests has left
    its place to others."""
    kept = {signal["name"] for signal in record.signals}
    for spec in record.spec.steps:
        step = record.steps[spec.id]
        if step.status is S.READY and spec.join == "all":
            for parent in record.graph.parents[spec.id]:
                found = evaluate_edge(
                    record.steps[parent], record.spec.steps[record.graph.index[parent]], spec
                )
                assert found is not EdgeState.SKIP, f"{spec.id} should have been skipped with {parent}"
        if step.status is S.WAITING and spec.wait is not None:
            assert kept.isdisjoint(spec.wait.signals), f"{spec.id} waits for what was said: {kept}"
        is_at_rest = step.is_final or step.status in (S.WAITING, S.ON_HOLD) or step.not_before_ms is not None
        assert not (is_at_rest and step.slot is not None), f"{spec.id} rests in its place"


def _check_children(records: Iterable[WorkflowRecord]) -> None:
    """Every child on its way is one that its parent waits for, or is being undone."""
    known = {record.workflow_execution_id: record for record in records}
    for record in known.values():
        if record.parent is not None and record.status is not W.COMPENSATING:
            parent = known.get(record.parent.execution)
            step = None if parent is None else parent.steps[record.parent.step_id]
            is_awaited = step is not None and step.token == record.parent.token
            assert is_awaited, f"no parent waits for {record.execution_id}"


def _check_places(records: Iterable[WorkflowRecord], is_quiet: bool) -> None:
    """No more are under a key than its limit allows, and no step waits for a slot that is free."""
    slots = [step.slot for record in records for step in record.steps.values() if step.slot is not None]
    slots += [record.slot for record in records if record.slot is not None]
    held = Counter(slot.key for slot in slots if slot.is_held)
    for slot in slots:
        assert held[slot.key] <= slot.limit, f"{held[slot.key]} are under {slot.key}, of {slot.limit}"
        assert slot.is_held or not is_quiet or held[slot.key] == slot.limit, f"{slot.key} has a place free"


# ---- at the end


def check_ended(records: Mapping[str, WorkflowRecord], histories: Mapping[str, list[Json]]) -> None:
    """`records` are all executions there are, by execution id."""
    for execution_id, record in records.items():
        assert ended_legally(record), f"{execution_id}: {_shown(record)}"
        left = [unit for unit, one in record.units() if one.token or one.slot or one.held or one.has_timer]
        assert not left, f"{execution_id} still waits for {left}"
        assert (record.slot, record.ending) == (None, None)
        assert record.error is None or record.error["kind"] not in ("stalled", "internal"), record.error
        if record.parent is not None:
            parent = records[record.parent.execution.partition("#")[2]]
            inherited = (parent.group, parent.priority, parent.root, parent.depth + 1)
            assert (record.group, record.priority, record.root, record.depth) == inherited
        _check_history(record, histories[execution_id])
        _check_compensations(record, histories[execution_id])


def _check_history(record: WorkflowRecord, history: list[Json]) -> None:
    """Every move is a legal one, and begins where the one before ended."""
    status, at, held = W.PENDING, dict[str, StepStatus](), dict[str, StepStatus]()
    for entry in history:
        if "workflow" in entry:
            after = W(entry["workflow"])
            assert after in WORKFLOW_TRANSITIONS[status], f"the workflow went from {status} to {after}"
            status = after
        elif "to" in entry:
            unit, before, now = entry["step"], S(entry["from"]), S(entry["to"])
            known = at.get(unit, S.READY)
            is_new = "#" in unit and before is S.READY  # a map that was reset has items anew
            assert before is known or is_new, f"{unit} was {known}, and went from {before} to {now}"
            is_reset = before is now is S.ON_HOLD  # a hold survives a set
            assert now in STEP_TRANSITIONS[before] or is_reset, f"{unit} went from {before} to {now}"
            if now is S.ON_HOLD:
                held[unit] = S.READY if is_reset else before
            elif before is S.ON_HOLD:
                assert now in (held[unit], S.CANCELLED), f"{unit} was {held[unit]} before it was held"
            at[unit] = now
    assert status is record.status
    for unit, one in record.units():
        assert at.get(unit, S.READY) is one.status, f"{unit} is {one.status}, which the history does not say"


def owner_of(record: WorkflowRecord, scope: str) -> str:
    """Whose the values of a scope are: a child has the global ones of the execution at the top."""
    whole = {"global": record.execution_id.partition(":")[0], "flow_group": str(record.group)}
    return whole.get(scope, record.execution_id)


def check_sums(
    records: Iterable[WorkflowRecord],
    histories: Mapping[str, list[Json]],
    shared: Mapping[tuple[str, str], Json],
) -> None:
    """What `kv_add` added up to is what every completion added, once."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for record in records:
        completed = Counter(e["step"] for e in histories[record.execution_id] if e.get("to") == "complete")
        for spec in record.spec.steps:
            for key, amount in spec.kv_add.items():
                scope, _, name = key.rpartition(":")
                owner = owner_of(record, scope)
                given = amount if isinstance(amount, int) else record.inputs["a"]
                sums[scope, owner, name] += given * completed[spec.id]
    states = {("", record.execution_id): record.state for record in records}
    for (scope, owner, name), total in sums.items():
        found = {**states, **shared}[scope, owner].get(name, 0)
        assert found == total, f"{scope}:{name} of {owner} is {found}, and {total} was added"


def _check_compensations(record: WorkflowRecord, history: list[Json]) -> None:
    """After a failure or a cancel, and only then, what completed is undone: the newest first, one by one."""
    undoable = [spec.id for spec in record.spec.steps if spec.compensate is not None]
    done = [step_id for step_id in undoable if record.steps[step_id].status is S.COMPLETE]
    owed = sorted(done, key=lambda step_id: -(record.steps[step_id].completion or 0))
    expected = (
        [f"{step_id}#{COMPENSATION_PART}" for step_id in owed]
        if record.status in (W.FAILED, W.CANCELLED)
        else []
    )
    undone = {unit: one for unit, one in record.items.items() if unit.endswith(f"#{COMPENSATION_PART}")}
    ends = [e["step"] for e in history if e.get("step") in undone and e.get("to") in ("complete", "failed")]
    assert ends == expected, f"undone were {ends}, and owed was {expected}"
    failed = [unit for unit, one in undone.items() if one.status is S.FAILED]
    assert record.compensated == (not failed if expected else None)
    noted = [one["step"] for one in (record.error or {}).get("compensation_errors", [])]
    assert sorted(noted) == sorted(unit.partition("#")[0] for unit in failed)


# ---- what must not depend on the order of events

HIDDEN = {
    "token",
    "worker",
    "dispatched_at",
    "started_at",
    "ended_at",
    "reason",
    "completion",
    "retried_keys",
}
RACING_KEYS = {"ok", "error"}
"""Failures of parallel steps write the same two keys into the state: a race of no interest."""


def essence(record: WorkflowRecord) -> Json:
    """A record without times, tokens, workers and the words of reasons."""
    units = {
        unit: {key: value for key, value in one.as_dict().items() if key not in HIDDEN}
        for unit, one in record.units()
    }
    parent = {} if record.parent is None else asdict(record.parent)
    parent.pop("token", None)
    return {
        "status": str(record.status),
        "state": {key: value for key, value in record.state.items() if key not in RACING_KEYS},
        "outcome": record.outcome,
        "error": _sorted_error(record.error),
        "units": dict(sorted(units.items())),
        "signals": sorted(record.signals, key=repr),
        "parent": parent,
        "of": [record.inputs, record.group, record.priority, record.workflow_id],
        "undone": [record.compensated, record.completions],
    }


def _sorted_error(error: Json | None) -> Any:
    if error is None or "compensation_errors" not in error:
        return error
    return {**error, "compensation_errors": sorted(error["compensation_errors"], key=repr)}
