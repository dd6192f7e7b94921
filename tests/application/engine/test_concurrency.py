"""Concurrency keys: a step, or a whole execution, asks for a place, and runs when it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.application.engine.concurrency import MAX_CONCURRENCY_KEY_LENGTH
from orchestrator.application.records.changes import SlotChange
from orchestrator.application.records.decisions import Cancelled, Complete, Dispatch, Failed, Halt, Pending
from orchestrator.application.records.events import SlotEvent
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import Slot
from orchestrator.application.spec.model import Limits, LoopSpec, RetrySpec
from orchestrator.application.values.dispatch_tokens import has_secret
from worlds.engine_world import EngineWorld, units, world_of
from worlds.specs import BROKEN, branch, child, key, map_step, resets, task


def holding(**keys: Any) -> EngineWorld:
    """An execution whose step `a` has a place and is in progress, beside a step `z`."""
    world = world_of(task("a", **key("k"), **keys), task("z"))
    world.advance()
    world.grant("a")
    return world


def given_back(world: EngineWorld) -> bool:
    return world.slots == {} and world["a"].slot is None


# ---- asking


def test_a_step_asks_for_a_place_and_stands_in_line() -> None:
    world = world_of(task("a", **key("k", 3)), task("z"))

    assert world.dispatched(world.advance()) == ["z"]

    slot = Slot("k", 3, "n1-0", is_held=False)
    assert world.slot("a") == slot
    assert world.last.slots == [SlotChange("a", slot, is_acquire=True)]
    assert world.statuses["a"] == "ready"
    assert world.record.readiness.active == 2, "a step that waits for a slot is active"


def test_a_step_that_has_a_place_is_dispatched() -> None:
    world = world_of(task("a", **key("k")))
    world.advance()

    assert world.dispatched(world.grant("a")) == ["a"]

    assert world.slot("a").is_held
    assert world.last.slots == []
    assert world.finish("a", {}) == Complete({})


def test_it_asks_once_however_often_it_is_looked_at() -> None:
    world = world_of(task("a", **key("k")), task("z"))
    world.advance()
    first = world.slot("a")

    world.advance()
    world.finish("z", {})

    assert world.slot("a") == first


def test_no_slot_is_requested_before_a_step_can_be_dispatched() -> None:
    world = world_of(
        task("a", after="p", **key("k")),
        task("b", defer_ms=100, **key("k")),
        task("c", guards=(False,), **key("k")),
        task("p"),
    )
    world.advance()
    assert world.slots == {}

    world.pass_time(100)

    assert [owner for owner, _ in world.slots.values()] == ["b"]
    assert world.dispatched(world.grant("b")) == ["b"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("name", "name"),
        ({"var": "input.customer"}, "c-7"),
        ({"var": "input.n"}, "7"),
        ({"+": [1, 1.5]}, "2.5"),
        ({"*": [2, 1.5]}, "3"),
        ({"var": "ctx.step.id"}, "a"),
        ("x" * MAX_CONCURRENCY_KEY_LENGTH, "x" * MAX_CONCURRENCY_KEY_LENGTH),
    ],
)
def test_a_key_is_a_text_or_a_number(given: Any, text: str) -> None:
    world = world_of(task("a", **key(given)), inputs={"customer": "c-7", "n": 7.0})

    world.advance()

    assert world.slot("a").key == text


WRONG_KEYS = [
    (BROKEN, "+: "),
    ({"var": "input.nothing"}, "it must be a string or a number, not null"),
    ({"==": [1, 1]}, "it must be a string or a number, not a boolean"),
    ({"var": "input"}, "it must be a string or a number, not an object"),
    ("", f"it must have 1 to {MAX_CONCURRENCY_KEY_LENGTH} characters, not 0"),
    (
        "x" * (MAX_CONCURRENCY_KEY_LENGTH + 1),
        f"it must have 1 to {MAX_CONCURRENCY_KEY_LENGTH} characters, not {MAX_CONCURRENCY_KEY_LENGTH + 1}",
    ),
]


@pytest.mark.parametrize(("given", "message"), WRONG_KEYS)
def test_a_key_that_is_none_fails_the_step(given: Any, message: str) -> None:
    world = world_of(task("a", on_error="continue", retry=RetrySpec(), **key(given)), task("b", after="a"))

    assert world.dispatched(world.advance()) == ["b"]

    error = world["a"].error
    assert error is not None
    assert error["kind"] == "expression"
    assert error["message"].startswith(f"concurrency.key cannot be evaluated: {message}")
    assert world.slots == {}


# ---- giving back


def completes(world: EngineWorld) -> Any:
    return world.finish("a", {})


def fails(world: EngineWorld) -> Any:
    return world.fail("a")


def skips(world: EngineWorld) -> Any:
    return world.finish("a", {"skip": True})


def is_reset(world: EngineWorld) -> Any:
    return world.apply(world.result("z", {"again": True}))


def is_cancelled(world: EngineWorld) -> Any:
    return world.cancel()


def is_halted(world: EngineWorld) -> Any:
    return world.finish("z", {"halt": True})


def loses_its_workflow(world: EngineWorld) -> Any:
    return world.fail("z")


ENDS = [completes, fails, skips, is_reset, is_cancelled, is_halted, loses_its_workflow]


def world_with_ends() -> EngineWorld:
    others = (resets({"var": "again"}, "a"), branch({"var": "halt"}, "halt"))
    return world_of(
        task("a", branch=(branch({"var": "skip"}, "skip"),), on_error="continue", **key("k")),
        task("z", branch=others),
        task("y"),
    )


@pytest.mark.parametrize("ends", ENDS)
def test_whatever_ends_a_step_gives_its_place_back(ends: Callable[[EngineWorld], Any]) -> None:
    world = world_with_ends()
    world.advance()
    world.grant("a")
    [token] = world.slots

    ends(world)

    assert given_back(world)
    assert [(change.slot.token, change.is_acquire) for change in world.last.slots] == [(token, False)]


@pytest.mark.parametrize("ends", [is_reset, is_cancelled, is_halted, loses_its_workflow])
def test_whatever_ends_a_step_in_line_takes_it_out_of_the_line(ends: Callable[[EngineWorld], Any]) -> None:
    world = world_with_ends()
    world.advance()

    ends(world)

    assert given_back(world)


def test_back_off_gives_the_place_back_and_the_next_attempt_asks_again() -> None:
    world = holding(retry=RetrySpec(1, 1000))
    first = world.slot("a").token

    world.fail("a")
    assert given_back(world)
    assert world.pass_time(1000) == Pending()

    assert world.slot("a").token != first
    assert world.statuses["a"] == "retry"
    assert world.dispatched(world.grant("a")) == ["a"]
    assert world.out["a"].attempt == 2


def test_a_retry_at_once_asks_again_too() -> None:
    world = holding(max_attempts=2)
    first = world.slot("a").token

    assert world.fail("a") == Pending()

    assert world.slot("a").token != first
    assert world.dispatched(world.grant("a")) == ["a"]


def test_a_round_of_a_loop_asks_again() -> None:
    world = holding(loop=LoopSpec())
    first = world.slot("a").token

    assert world.finish("a", {"_loop": "again", "value": {}}) == Pending()

    assert world.slot("a").token != first


def test_a_lost_worker_keeps_the_place() -> None:
    world = holding()
    first = world.slot("a")

    assert world.dispatched(world.lose("a")) == ["a"]

    assert world.slot("a") == first


def test_too_many_lost_workers_give_it_back() -> None:
    world = world_of(task("a", on_error="continue", **key("k")), task("z"), limits=Limits(max_lost=0))
    world.advance()
    world.grant("a")

    world.lose("a")

    assert given_back(world)


def test_a_condition_that_became_false_in_line_filters_and_gives_back() -> None:
    """It is judged again when it has a place: the world has moved on meanwhile."""
    world = world_of(task("a", guards=({"!": [{"var": "state.closed"}]},), **key("k")), task("z"))
    world.advance()
    world.finish("z", {"closed": True})
    assert world.statuses["a"] == "ready"

    assert world.grant("a") == Complete({})

    assert world.statuses["a"] == "filtered"
    assert given_back(world)


def test_inputs_that_cannot_be_resolved_then_give_back() -> None:
    world = world_of(task("a", input={"n": BROKEN}, on_error="continue", **key("k")))
    world.advance()

    assert world.grant("a") == Complete({})

    assert (world.error_kind("a"), world.slots) == ("expression", {})


# ---- being given


def test_a_place_is_ours_once_however_often_it_is_said() -> None:
    world = world_of(task("a", **key("k")))
    world.advance()
    event = world.slot_event("a")
    world.decide(event)

    assert world.decide(event) == Pending()

    assert len(world.jobs) == 1
    assert world.finish("a", {}) == Complete({})


def test_a_slot_that_is_no_longer_wanted_is_stale() -> None:
    world = world_of(task("a", **key("k")), task("z", branch=(resets({"var": "again"}, "a"),)))
    world.advance()
    old = world.slot_event("a")
    world.finish("z", {"again": True})
    new = world.slot("a")

    world.decide(old)

    assert (world.slot("a"), world.counters["stale"]) == (new, 1)


@pytest.mark.parametrize("step_id", ["z", "nobody", ""])
def test_a_slot_for_a_step_that_requested_none_is_stale(step_id: str) -> None:
    world = world_of(task("a", **key("k")), task("z"))
    world.advance()

    world.decide(SlotEvent("w1#x1", step_id, "n1-0"))

    assert world.counters["stale"] == 1
    assert not world.slot("a").is_held


def test_a_place_that_comes_after_the_end_is_late() -> None:
    world = world_of(task("a", **key("k")), task("z"))
    world.advance()
    event = world.slot_event("a")
    world.cancel()

    assert world.decide(event) == Cancelled()

    assert world.counters["late"] == 1


def test_a_place_that_comes_while_paused_is_used_after_it() -> None:
    world = world_of(task("a", **key("k")))
    world.advance()
    world.pause()

    assert world.grant("a") == Pending()

    assert world.dispatched(world.unpause()) == ["a"]


def test_a_step_that_waits_for_a_slot_takes_no_capacity() -> None:
    world = world_of(task("a", **key("k")), task("b"), task("c"), max_workers=1)

    assert world.dispatched(world.advance()) == ["b"]
    assert world.grant("a") == Pending()
    assert world.dispatched(world.finish("b", {})) == ["a"], "it has its place, and is first in the spec"
    assert world.dispatched(world.finish("a", {})) == ["c"]


def test_a_map_has_one_place_for_all_its_items() -> None:
    world = world_of(map_step("m", [1, 2, 3], max_parallel=1, retry=RetrySpec(1, 100), **key("k")))
    world.advance()
    assert world.record.items == {}

    assert units(world.grant("m")) == ["m#0"]
    token = world.slot("m").token
    world.fail("m#0")
    assert world.slot("m").token == token, "an item in back-off does not give it back"
    world.finish("m#1", {})
    world.lose("m#2")
    world.finish("m#2", {})
    world.pass_time(100)
    decision = world.finish("m#0", {})

    assert decision == Complete({})
    assert world.slots == {}


def test_an_empty_map_needs_a_place_too_and_gives_it_back() -> None:
    world = world_of(map_step("m", [], **key("k")))
    world.advance()

    assert world.grant("m") == Complete({})

    assert world.slots == {}


def test_a_child_keeps_its_place_until_it_ends() -> None:
    world = world_of(child("c", **key("k")))
    world.advance()
    world.grant("c")

    assert world.slot("c").is_held
    assert world.end_child("c", {}) == Complete({})


def test_standing_in_line_survives_another_process() -> None:
    world = world_of(task("a", **key("k")), task("b", **key("k")), task("z"))
    world.advance()
    world.reload()
    world.grant("a")
    world.reload()

    assert world.finish("a", {}) == Pending()
    world.reload()
    assert world.dispatched(world.grant("b")) == ["b"]


# ---- the whole execution


def test_an_execution_asks_before_its_first_step() -> None:
    world = world_of(
        task("a"), task("b", after="a"), timeout_s=60.0, **key({"var": "input.k"}, 2), inputs={"k": 7}
    )

    assert world.advance() == Pending()

    slot = Slot("7", 2, "n1-0")
    assert world.last.slots == [SlotChange("", slot, is_acquire=True)]
    assert (world.record.status, world.armed) == (WorkflowStatus.PENDING, set()), "its clock does not run yet"
    assert world.dispatched(world.grant()) == ["a"]
    assert world.dispatched(world.finish("a", {})) == ["b"]
    assert world.finish("b", {}) == Complete({})
    assert (world.record.slot, world.slots) == (None, {})


def test_an_execution_in_line_asks_once() -> None:
    world = world_of(task("a"), **key("k"))
    world.advance()

    world.advance()

    assert world.last.slots == []


@pytest.mark.parametrize(("given", "message"), WRONG_KEYS)
def test_an_execution_without_a_key_fails(given: Any, message: str) -> None:
    world = world_of(task("a"), **key(given))

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert decision.error["message"].startswith(f"concurrency.key cannot be evaluated: {message}")
    assert world.statuses == {"a": "skipped"}


def halts(world: EngineWorld) -> Any:
    assert world.finish("a", {"halt": True}) == Halt({})


def fails_whole(world: EngineWorld) -> Any:
    assert isinstance(world.fail("a"), Failed)


def is_cancelled_whole(world: EngineWorld) -> Any:
    assert world.cancel() == Cancelled()


@pytest.mark.parametrize("ends", [halts, fails_whole, is_cancelled_whole])
def test_however_an_execution_ends_its_place_is_given_back(ends: Callable[[EngineWorld], Any]) -> None:
    world = world_of(task("a", branch=(branch({"var": "halt"}, "halt"),)), **key("k"))
    world.advance()
    world.grant()

    ends(world)

    assert (world.record.slot, world.slots) == (None, {})


def test_an_execution_that_is_cancelled_in_line_leaves_the_line() -> None:
    world = world_of(task("a"), **key("k"))
    world.advance()

    assert world.cancel() == Cancelled()

    assert (world.record.slot, world.slots) == (None, {})


def test_an_execution_in_line_can_be_paused() -> None:
    world = world_of(task("a"), **key("k"))
    world.advance()
    world.pause()

    assert world.grant() == Pending()

    assert world.dispatched(world.unpause()) == ["a"]


def test_an_execution_in_line_keeps_signals_for_later() -> None:
    world = world_of(task("a"), **key("k"))
    world.advance()

    assert world.signal("go") == Pending()

    assert world.record.signals == [{"name": "go", "payload": None}]


def test_a_stale_place_of_an_execution_changes_nothing() -> None:
    world = world_of(task("a"), **key("k"))
    world.advance()

    assert world.decide(SlotEvent("w1#x1", "", "other")) == Pending()

    assert world.counters["stale"] == 1


def test_an_execution_and_its_step_may_both_need_a_place() -> None:
    world = world_of(task("a", **key("s")), **key("w"))
    world.advance()
    assert world.grant() == Pending()

    decision = world.grant("a")

    assert isinstance(decision, Dispatch)
    assert sorted(slot.key for _, slot in world.slots.values()) == ["s", "w"]
    assert world.finish("a", {}) == Complete({})


def test_the_token_of_a_slot_tells_nothing_about_those_of_dispatches() -> None:
    world = world_with_ends()
    world.has_secrets = True
    world.advance()
    nonces = [f"n{number}" for number in range(10)]

    token = world.slot("a").token

    assert not has_secret(token)
    assert not [nonce for nonce in nonces if token.startswith(f"{nonce}-")]
