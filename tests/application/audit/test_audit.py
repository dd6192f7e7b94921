"""An audit reports every illegal transition, and every record that contradicts itself or its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise, product
from typing import Any, TypeVar

import pytest

from orchestrator.application.audit.history import audit
from orchestrator.application.audit.invariants import can_still_progress
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import (
    FINAL_WORKFLOW_STATUSES,
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
)
from orchestrator.application.records.step_record import ItemCounts, Slot, StepRecord
from worlds.documents import Json, document, step, when
from worlds.engine_world import EngineWorld, world_of
from worlds.records import new_record, record_of
from worlds.specs import child, key, task, undo

S, W = StepStatus, WorkflowStatus
T = TypeVar("T", bound=StrEnum)


def codes(record: WorkflowRecord, history: list[Any]) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in audit(record, history)]


def move(unit: str, before: StepStatus, after: StepStatus, run_id: int = 0, cause: str = "e1") -> Json:
    return {
        "cause": cause,
        "step": unit,
        "from": str(before),
        "to": str(after),
        "run_id": run_id,
        "attempt": 1,
    }


def path(moves: Mapping[T, frozenset[T]], start: T, goal: T) -> list[T]:
    """The shortest legal path from the initial status to another."""
    ways: dict[T, list[T]] = {start: [start]}
    while goal not in ways:
        for status in list(ways):
            for after in sorted(moves[status]):
                ways.setdefault(after, [*ways[status], after])
    return ways[goal]


def illegal(moves: Mapping[T, frozenset[T]]) -> list[tuple[T, T]]:
    return [(before, after) for before, after in product(moves, moves) if after not in moves[before]]


# ---- moves


@pytest.mark.parametrize(("before", "after"), illegal(STEP_TRANSITIONS))
def test_every_illegal_move_of_a_step_is_noticed(before: StepStatus, after: StepStatus) -> None:
    way = [*path(STEP_TRANSITIONS, S.READY, before), after]
    history = [move("a", *pair) for pair in pairwise(way)]
    record = new_record(document(step("a")))

    found = audit(record, history)

    assert [(one.code, one.where) for one in found if one.code == "illegal_move"] == [("illegal_move", "a")]
    assert f"history entry {len(history)}: illegal transition from {before} to {after}" in [
        one.words for one in found
    ]


@pytest.mark.parametrize(("before", "after"), illegal(WORKFLOW_TRANSITIONS))
def test_every_illegal_move_of_a_workflow_is_noticed(before: WorkflowStatus, after: WorkflowStatus) -> None:
    way = [*path(WORKFLOW_TRANSITIONS, W.PENDING, before), after]
    history = [{"cause": "e1", "workflow": str(status)} for status in way[1:]]
    record = new_record(document(step("a")))

    found = [one for one in audit(record, history) if one.code == "illegal_move"]

    assert [(one.where, one.words) for one in found] == [
        ("", f"history entry {len(history)}: illegal transition from {before} to {after}")
    ]


def legal_steps() -> list[tuple[StepStatus, StepStatus]]:
    return [(before, after) for before in S for after in sorted(STEP_TRANSITIONS[before])]


@pytest.mark.parametrize(("before", "after"), legal_steps())
def test_a_legal_move_of_a_step_is_no_finding(before: StepStatus, after: StepStatus) -> None:
    way = [*path(STEP_TRANSITIONS, S.READY, before), after]
    if before is S.ON_HOLD and after is not S.CANCELLED:  # it goes back to where it was held
        way = [*path(STEP_TRANSITIONS, S.READY, after), S.ON_HOLD, after]
    history = [move("a", *pair) for pair in pairwise(way)]
    record = new_record(document(step("a")))

    assert {code for code, _ in codes(record, history)} <= {"status"}


def test_a_new_execution_has_no_findings() -> None:
    assert audit(new_record(document(step("a"))), []) == []


def test_a_complete_run_has_no_findings() -> None:
    again = [when({"==": [{"var": "n"}, 0]}, {"set": "a"}), when(True, "complete")]
    world = world_of(document(step("a", branch=again), step("b", "a")))
    world.play(a={"n": 0})
    world.finish("a", {"n": 1})
    world.finish("b", {"done": True})

    assert world.record.status is W.COMPLETE
    assert audit(world.record, world.history) == []


def test_a_move_begins_where_the_one_before_ended() -> None:
    history = [move("a", S.READY, S.IN_PROGRESS), move("a", S.RETRY, S.IN_PROGRESS)]

    assert ("broken_chain", "a") in codes(new_record(document(step("a"))), history)


def test_a_step_begins_ready() -> None:
    assert ("broken_chain", "a") in codes(
        new_record(document(step("a"))), [move("a", S.IN_PROGRESS, S.COMPLETE)]
    )


def test_a_run_never_goes_down() -> None:
    history = [move("a", S.READY, S.IN_PROGRESS, 2), move("a", S.IN_PROGRESS, S.COMPLETE, 1)]

    assert ("run_id", "a") in codes(new_record(document(step("a"))), history)


def test_a_hold_survives_a_reset_and_then_releases_to_ready() -> None:
    first = [
        move("a", S.READY, S.DEFERRED),
        move("a", S.DEFERRED, S.ON_HOLD),
        move("a", S.ON_HOLD, S.ON_HOLD, 1),
    ]
    record = new_record(document(step("a")))

    wrong = codes(record, [*first, move("a", S.ON_HOLD, S.DEFERRED, 1)])
    right = codes(record, [*first, move("a", S.ON_HOLD, S.READY, 1)])

    assert ("illegal_move", "a") in wrong
    assert right == [("run_id", "a")], "only the record is not reset"


def test_nothing_moves_after_the_end() -> None:
    world = world_of(document(step("a")))
    world.play(a={})
    late = move("a", S.COMPLETE, S.READY, 1, "other")

    assert ("moved_after_end", "a") not in codes(world.record, [*world.history, late])
    assert ("moved_after_end", "a") in codes(
        world.record, [*world.history, late, move("a", S.READY, S.IN_PROGRESS, 1, "other")]
    )


def test_a_webhook_moves_after_the_end() -> None:
    world = world_of(document(step("a")))
    world.play(a={})
    unit = "#webhook"
    world.record.items[unit] = StepRecord(S.IN_PROGRESS, token="t")
    world.record.readiness.in_flight += 1

    assert codes(world.record, [*world.history, move(unit, S.READY, S.IN_PROGRESS, 0, "later")]) == []


def test_a_webhook_starts_again_only_in_a_later_run() -> None:
    world = world_of(document(step("a")))
    world.play(a={})
    unit = "#webhook"
    delivered = [move(unit, S.READY, S.IN_PROGRESS), move(unit, S.IN_PROGRESS, S.CANCELLED)]
    world.record.items[unit] = StepRecord(S.COMPLETE, run_id=1)
    again = [move(unit, S.READY, S.IN_PROGRESS, 1), move(unit, S.IN_PROGRESS, S.COMPLETE, 1)]

    assert codes(world.record, [*world.history, *delivered, *again]) == []
    world.record.items[unit] = StepRecord(S.COMPLETE)
    again = [move(unit, S.READY, S.IN_PROGRESS), move(unit, S.IN_PROGRESS, S.COMPLETE)]
    assert codes(world.record, [*world.history, *delivered, *again]) == [("broken_chain", unit)]


def test_items_that_a_reset_dropped_start_again_in_the_history() -> None:
    over = {"over": {"var": "input.list"}}
    again = [when({"==": [{"var": "count"}, 2]}, {"set": "m"}), when(True, "complete")]
    world = world_of(document(step("m", map=over, branch=again), step("b", "m")), inputs={"list": [1, 2]})
    world.play(**{"m#0": {}, "m#1": {}})

    assert world["m"].round == 1
    assert audit(world.record, world.history) == []


def test_an_item_of_an_earlier_round_that_is_still_ready_is_no_finding() -> None:
    over = {"over": {"var": "input.list"}, "max_parallel": 1}
    again = [when({"==": [{"var": "count"}, 2]}, {"set": "m"}), when(True, "complete")]
    world = world_of(document(step("m", map=over, branch=again)), inputs={"list": [1, 2]})
    world.play(**{"m#0": {}, "m#1": {}})

    assert world.record.items["m#1"].status is S.READY
    assert audit(world.record, world.history) == []


@pytest.mark.parametrize(
    "entry",
    [
        "no object",
        {"workflow": "asleep"},
        {"step": "a", "from": "nowhere", "to": "ready", "run_id": 0},
        {"step": "a", "from": "ready", "to": "nowhere", "run_id": 0},
        {"step": "a", "from": "ready", "to": "complete"},
        {"step": None, "from": "ready", "to": "complete", "run_id": 0},
    ],
)
def test_an_unreadable_entry_is_noticed(entry: Any) -> None:
    found = codes(new_record(document(step("a"))), [entry])

    assert [code for code, _ in found] == ["unreadable_entry"]


@pytest.mark.parametrize("unit", ["b", "a#0", "a#undo"])
def test_a_unit_that_the_workflow_cannot_have_is_noticed(unit: str) -> None:
    record = new_record(document(step("a")))
    record.items["a#undo"] = record.items["a#0"] = StepRecord()

    found = codes(record, [move(unit, S.READY, S.COMPLETE)])

    assert ("unknown_unit", unit) in found
    assert ("unknown_unit", "a#undo") in found, "of the record too"


def test_a_state_key_that_is_gone_is_noticed() -> None:
    world = world_of(document(step("a")))
    world.play(a={"n": 1})
    assert audit(world.record, world.history) == []

    del world.record.state["n"]

    assert codes(world.record, world.history) == [("state", "a")]


def test_a_state_key_that_was_removed_may_be_gone_and_must_not_be_back() -> None:
    world = world_of(task("a", max_attempts=2))
    world.advance()
    world.fail("a")
    world.finish("a", {"n": 1})
    assert not audit(world.record, world.history)

    world.record.state["ok"] = False

    assert codes(world.record, world.history) == [("state", "a")]


def test_a_state_key_that_was_removed_and_written_again_must_be_there() -> None:
    world = world_of(task("a", max_attempts=2), task("b", "a"))
    world.advance()
    world.fail("a")
    world.finish("a", {"n": 1})
    world.finish("b", {"ok": True})
    assert not audit(world.record, world.history)

    del world.record.state["ok"]

    assert codes(world.record, world.history) == [("state", "b")]


def test_other_entries_are_ignored() -> None:
    assert audit(new_record(document(step("a"))), [{"signal": "go"}, {"log": "hello"}]) == []


# ---- where the history leads


def test_a_record_without_its_history_is_noticed() -> None:
    world = world_of(document(step("a")))
    world.play(a={})

    assert codes(world.record, []) == [("history_missing", "")]


def test_a_record_that_differs_from_its_history_is_noticed() -> None:
    world = world_of(document(step("a"), step("b", "a")))
    world.play(a={})

    assert codes(world.record, world.history[:-1]) == [("status", "b")]
    assert ("status", "") in codes(world.record, [one for one in world.history if "workflow" not in one])
    assert ("run_id", "a") in codes(world.record, [*world.history, move("a", S.COMPLETE, S.COMPLETE, 7)])


def test_an_item_that_the_record_has_lost_is_noticed() -> None:
    world = world_of(document(step("m", map={"over": [1, 2]})))
    world.advance()
    del world.record.items["m#1"]

    assert ("unit_missing", "m#1") in codes(world.record, world.history)


# ---- the record by itself


def changed(record: WorkflowRecord, unit: str = "a", **changes: Any) -> WorkflowRecord:
    """A record with one unit changed and its readiness computed again."""
    where = record.items if "#" in unit else record.steps
    where[unit] = replace(where.get(unit, StepRecord()), **changes)
    record.__post_init__()
    return record


def test_a_readiness_that_differs_from_the_record_is_noticed() -> None:
    record = new_record(document(step("a")))
    record.readiness.open = 7

    assert codes(record, []) == [("readiness", "")]


SLOT = Slot("k", 1, "t0", True)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "t"}, "token"),
        ({"status": S.IN_PROGRESS}, "token"),
        ({"status": S.IN_PROGRESS, "token": "t", "child": "c"}, "child"),
        ({"status": S.ON_HOLD}, "hold"),
        ({"held": "ready"}, "hold"),
        ({"status": S.WAITING}, "kind"),
        ({"status": S.COMPLETE, "slot": SLOT}, "place"),
        ({"status": S.RETRY, "not_before_ms": 1, "slot": SLOT}, "place"),
        ({"deadline_ms": 1}, "timer"),
        ({"completion": 1}, "completion"),
    ],
)
def test_a_step_that_contradicts_itself_is_noticed(changes: Json, code: str) -> None:
    record = changed(new_record(document(step("a"))), **changes)

    assert code in {found for found, where in codes(record, []) if where == "a"}


@pytest.mark.parametrize(
    "changes",
    [
        {"status": S.IN_PROGRESS, "token": "t", "deadline_ms": 1, "slot": SLOT},
        {"status": S.IN_PROGRESS, "lost": 1},
        {"status": S.IN_PROGRESS, "declined": 1, "not_before_ms": 1},
        {"status": S.ON_HOLD, "held": "retry", "not_before_ms": 1},
        {"slot": replace(SLOT, is_held=False)},
    ],
)
def test_a_consistent_step_is_no_finding(changes: Json) -> None:
    record = changed(record_of(task("a", **key("k"))), **changes)

    assert codes(record, []) == []


def test_a_child_belongs_to_a_step_that_has_one() -> None:
    record = changed(record_of(child("a")), status=S.IN_PROGRESS, token="t")

    assert codes(record, []) == [("child", "a")]
    assert codes(changed(record, child="x1:a:0"), []) == []


@pytest.mark.parametrize("status", sorted(FINAL_WORKFLOW_STATUSES))
def test_a_workflow_that_ended_has_left_nothing_behind(status: WorkflowStatus) -> None:
    record = changed(new_record(document(step("a"))), status=S.WAITING)
    record.status, record.slot = status, Slot("k", 1, "t", is_held=True)

    found = codes(record, [])

    assert {("left_over", ""), ("left_over", "a"), ("ended_at", "")} <= set(found)


def test_only_after_a_halt_a_step_may_be_ready() -> None:
    record = new_record(document(step("a")))
    record.ended_at = "2026-01-01T00:00:00.000Z"

    record.status = W.HALTED
    halted = codes(record, [])
    record.status = W.COMPLETE
    complete = codes(record, [])

    assert ("left_over", "a") not in halted
    assert ("left_over", "a") in complete


def test_a_workflow_that_compensates_knows_what_it_will_end_with() -> None:
    record = changed(new_record(document(step("a"))), status=S.COMPLETE)
    record.status = W.COMPENSATING

    assert ("ending", "") in codes(record, [])


def test_more_dispatches_than_max_workers_are_noticed() -> None:
    record = new_record(document(step("a"), step("b"), runner={"max_workers": 1}))
    for name in ("a", "b"):
        changed(record, name, status=S.IN_PROGRESS, token=name)

    assert codes(record, []) == [("capacity", "")]


def test_more_than_one_compensation_at_a_time_is_noticed() -> None:
    world = world_of(task("a", **undo()), task("b", **undo()))
    for name in ("a", "b"):
        changed(world.record, f"{name}#undo", status=S.IN_PROGRESS, token=name)
    world.record.status, world.record.ending = W.COMPENSATING, {}

    assert ("capacity", "") in codes(world.record, [])


# ---- maps


def mapped() -> EngineWorld:
    world = world_of(document(step("m", map={"over": [1, 2, 3, 4], "max_parallel": 2}, on_error="continue")))
    world.advance()
    world.fail("m#0")
    assert audit(world.record, world.history) == []
    return world


@pytest.mark.parametrize(
    "counts",
    [{"count": 2}, {"settled": 2}, {"errors": 0}, {"out": 0}, {"next": 2}, {"due": 1}],
)
def test_a_map_that_miscounts_is_noticed(counts: Json) -> None:
    world = mapped()
    items = world["m"].items
    assert items is not None
    changed(world.record, "m", items=replace(items, **counts))

    assert {("items", "m")} == set(codes(world.record, world.history))


def test_an_item_that_would_never_be_dispatched_is_noticed() -> None:
    """It is ready again, but its map does not count it as due."""
    world = mapped()
    changed(world.record, "m#1", token=None)
    items = world["m"].items
    assert items is not None
    changed(world.record, "m", items=replace(items, out=1))

    assert "due is 0, but its items give 1" in str(audit(world.record, world.history))


def test_items_of_a_map_without_counters_are_noticed() -> None:
    world = mapped()
    changed(world.record, "m", items=None, lost=1)

    assert codes(world.record, world.history) == [("items", "m")]


def test_a_map_that_ended_need_not_count_items_in_flight() -> None:
    world = world_of(document(step("m", map={"over": [1, 2]}), step("a")))
    world.play(a=ValueError("no"))

    assert world["m"].items == ItemCounts(2, next=2, out=2)
    assert audit(world.record, world.history) == []


# ---- what an execution waits for


@pytest.mark.parametrize(
    "changes",
    [
        {"status": S.IN_PROGRESS, "token": "t"},
        {"status": S.WAITING},
        {"status": S.ON_HOLD, "held": "ready"},
        {"status": S.RETRY, "not_before_ms": 1},
        {"slot": replace(SLOT, is_held=False)},
    ],
)
def test_a_step_may_be_what_an_execution_waits_for(changes: Json) -> None:
    record = new_record(document(step("a")))
    assert not can_still_progress(record)

    assert can_still_progress(changed(record, **changes))


@pytest.mark.parametrize(
    "fields",
    [
        {"status": W.PAUSED},
        {"deadline_ms": 1},
        {"slot": Slot("k", 1, "t")},
    ],
)
def test_a_workflow_may_wait_by_itself(fields: Json) -> None:
    record = new_record(document(step("a")))
    record.slot = Slot("k", 1, "t", is_held=True)
    assert not can_still_progress(record)
    for name, value in fields.items():
        setattr(record, name, value)

    assert can_still_progress(record)
