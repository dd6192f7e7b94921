"""Every move that the state machine allows is made by something that happens: one story for each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from orchestrator.application.records.events import Control, ControlEvent
from orchestrator.application.records.status import (
    STEP_TRANSITIONS,
    WORKFLOW_TRANSITIONS,
    StepStatus,
    WorkflowStatus,
)
from orchestrator.application.spec.model import CompensateSpec, RetrySpec, StepSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, delay, map_step, switch, task, wait_step

HALT = (branch(True, "halt"),)
LATER = RetrySpec(max_retries=3, initial_delay_ms=1_000)
AGAIN = (branch({"var": "again"}, {"set": "first"}), branch(True, "complete"))
Story = Callable[[], EngineWorld]


def told(*steps: StepSpec, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def control(world: EngineWorld, action: Control, step_id: str = "") -> EngineWorld:
    world.decide(ControlEvent(world.record.workflow_execution_id, action, step_id))
    return world


def failing(*steps: StepSpec, **keys: Any) -> EngineWorld:
    """`other` fails beside the steps, and the workflow with it."""
    world = told(*steps, task("other"), **keys)
    world.fail("other")
    return world


def reset(*steps: StepSpec) -> EngineWorld:
    """`first` is above the steps and completes; then `setter`, beside them, sets it back."""
    world = told(task("first"), *steps, task("setter", "first", branch=AGAIN))
    world.finish("first")
    return world


def set_back(world: EngineWorld) -> EngineWorld:
    world.finish("setter", {"again": True})
    return world


def retrying(**keys: Any) -> EngineWorld:
    world = told(task("x", retry=LATER, **keys))
    world.fail("x")
    return world


def broken_when_due(policy: str) -> EngineWorld:
    """Its input can be resolved the first time only: the state changes under it."""
    rule = {"if": [{"var": "state.bad"}, BROKEN, 1]}
    world = told(task("x", retry=LATER, input={"n": rule}, on_error=policy), task("other"))
    world.fail("x")
    world.finish("other", {"bad": True})
    world.pass_time(1_000)
    return world


def released(world: EngineWorld) -> EngineWorld:
    return control(control(world, "hold", "x"), "release", "x")


def finished(world: EngineWorld, output: Any = None) -> EngineWorld:
    world.finish("x", output)
    return world


def failed(world: EngineWorld) -> EngineWorld:
    world.fail("x")
    return world


def passed(world: EngineWorld, ms: int = 1_000) -> EngineWorld:
    world.pass_time(ms)
    return world


def signalled(world: EngineWorld) -> EngineWorld:
    world.signal("go")
    return world


def lost(world: EngineWorld) -> EngineWorld:
    world.lose("x")
    return world


STORIES: dict[str, Story] = {
    "ready ready": lambda: set_back(reset(task("y", "first"), task("x", "y"))),
    "ready deferred": lambda: told(task("x", defer_ms=500)),
    "ready waiting": lambda: told(wait_step("x", "go")),
    "ready in_progress": lambda: told(task("x")),
    "ready on_hold": lambda: control(told(task("y"), task("x", "y")), "hold", "x"),
    "ready complete": lambda: told(switch("x", 1, {"1": ""}), task("y")),
    "ready failed": lambda: told(task("x", input={"n": BROKEN}, on_error="continue"), task("y")),
    "ready skipped": lambda: failing(task("y"), task("x", "y")),
    "ready filtered": lambda: told(task("x", guards=(False,)), task("y")),
    "ready halted": lambda: told(map_step("x", [], branch=HALT)),
    "deferred ready": lambda: set_back(reset(task("x", "first", defer_ms=500))),
    "deferred waiting": lambda: passed(told(wait_step("x", "go", defer_ms=500))),
    "deferred in_progress": lambda: passed(told(task("x", defer_ms=500))),
    "deferred on_hold": lambda: control(told(task("x", defer_ms=500)), "hold", "x"),
    "deferred complete": lambda: passed(told(delay("x", 500))),
    "deferred failed": lambda: passed(told(task("x", defer_ms=9, input={"n": BROKEN}, on_error="continue"))),
    "deferred skipped": lambda: passed(told(task("x", defer_ms=9, input={"n": BROKEN}, on_error="skip"))),
    "deferred cancelled": lambda: failing(task("x", defer_ms=500)),
    "deferred halted": lambda: passed(told(delay("x", 500, branch=HALT))),
    "waiting ready": lambda: set_back(reset(wait_step("x", "go", after="first"))),
    "waiting on_hold": lambda: control(told(wait_step("x", "go")), "hold", "x"),
    "waiting complete": lambda: signalled(told(wait_step("x", "go"))),
    "waiting failed": lambda: passed(told(wait_step("x", "go", timeout_ms=500, on_error="continue"))),
    "waiting skipped": lambda: passed(told(wait_step("x", "go", timeout_ms=500, on_error="skip"))),
    "waiting cancelled": lambda: failing(wait_step("x", "go")),
    "waiting halted": lambda: signalled(told(wait_step("x", "go", branch=HALT))),
    "in_progress ready": lambda: set_back(reset(task("x", "first"))),
    "in_progress in_progress": lambda: lost(told(task("x"))),
    "in_progress retry": lambda: failed(told(task("x", retry=LATER))),
    "in_progress complete": lambda: finished(told(task("x"))),
    "in_progress failed": lambda: failed(told(task("x", on_error="continue"))),
    "in_progress skipped": lambda: failed(told(task("x", on_error="skip"))),
    "in_progress cancelled": lambda: control(told(task("x")), "cancel"),
    "in_progress halted": lambda: finished(told(task("x", branch=HALT))),
    "retry ready": lambda: set_back(failed(reset(task("x", "first", retry=LATER)))),
    "retry in_progress": lambda: passed(retrying()),
    "retry on_hold": lambda: control(retrying(), "hold", "x"),
    "retry failed": lambda: broken_when_due("continue"),
    "retry skipped": lambda: broken_when_due("skip"),
    "retry cancelled": lambda: control(retrying(), "cancel"),
    "on_hold ready": lambda: released(told(task("y"), task("x", "y"))),
    "on_hold deferred": lambda: released(told(task("x", defer_ms=500))),
    "on_hold waiting": lambda: released(told(wait_step("x", "go"))),
    "on_hold retry": lambda: released(retrying()),
    "on_hold cancelled": lambda: control(control(retrying(), "hold", "x"), "cancel"),
    "complete ready": lambda: set_back(finished(reset(task("x", "first")))),
    "failed ready": lambda: set_back(failed(reset(task("x", "first", on_error="continue")))),
    "skipped ready": lambda: set_back(failed(reset(task("x", "first", on_error="skip")))),
    "filtered ready": lambda: set_back(reset(task("x", "first", guards=(False,)))),
    "cancelled ready": lambda: control(failing(task("x")), "retry"),
}

# Allowed, and made by nothing yet: a wait is not tried again, and a step that waits for its next attempt is
# dispatched before anything else can be said of it.
UNTOLD = {"waiting retry", "retry retry", "retry halted"}


UNDO: dict[str, Any] = {"compensate": CompensateSpec("undo")}


def compensated(world: EngineWorld) -> EngineWorld:
    """Whatever is owed is undone."""
    world.finish("x#undo", {})
    return world


def undoable(*steps: StepSpec) -> EngineWorld:
    """`x` has completed, and would be undone; `y` runs."""
    return finished(told(task("x", **UNDO), task("y", "x"), *steps))


def ended(how: Control | None = None) -> EngineWorld:
    """An execution that is over, in the way that is told, and told to go on."""
    return control(failed(told(task("x"))) if how is None else control(told(task("x")), how), "retry")


def broken(world: EngineWorld, step_id: str = "y") -> EngineWorld:
    world.fail(step_id)
    return world


WORKFLOW_STORIES: dict[str, Story] = {
    "pending in_progress": lambda: told(task("x")),
    "pending paused": lambda: control(world_of(task("x")), "pause"),
    "pending compensating": lambda: told(map_step("x", [], **UNDO), task("y", "x", input={"n": BROKEN})),
    "pending complete": lambda: told(),
    "pending halted": lambda: told(map_step("x", [], branch=HALT)),
    "pending failed": lambda: told(task("x", input={"n": BROKEN})),
    "pending cancelled": lambda: control(world_of(task("x")), "cancel"),
    "in_progress paused": lambda: control(told(task("x")), "pause"),
    "in_progress compensating": lambda: broken(undoable()),
    "in_progress complete": lambda: finished(told(task("x"))),
    "in_progress halted": lambda: finished(told(task("x", branch=HALT))),
    "in_progress failed": lambda: failed(told(task("x"))),
    "in_progress cancelled": lambda: control(told(task("x")), "cancel"),
    "paused in_progress": lambda: control(control(told(task("x")), "pause"), "unpause"),
    "paused compensating": lambda: broken(control(undoable(), "pause")),
    "paused halted": lambda: finished(control(told(task("x", branch=HALT)), "pause")),
    "paused failed": lambda: failed(control(told(task("x")), "pause")),
    "paused cancelled": lambda: control(control(told(task("x")), "pause"), "cancel"),
    "compensating failed": lambda: compensated(broken(undoable())),
    "compensating cancelled": lambda: compensated(control(undoable(), "cancel")),
    "complete in_progress": lambda: control(finished(told(task("x"))), "rerun", "x"),
    "failed in_progress": lambda: ended(),
    "cancelled in_progress": lambda: ended("cancel"),
}


def test_every_move_of_a_workflow_has_its_story() -> None:
    allowed = {f"{before} {after}" for before, moves in WORKFLOW_TRANSITIONS.items() for after in moves}

    assert set(WORKFLOW_STORIES) == allowed


@pytest.mark.parametrize("move", WORKFLOW_STORIES)
def test_a_story_makes_its_move_of_the_workflow(move: str) -> None:
    before, after = map(WorkflowStatus, move.split())

    world = WORKFLOW_STORIES[move]()

    states = [WorkflowStatus.PENDING, *(entry["workflow"] for entry in world.history if "workflow" in entry)]
    assert (before, after) in pairwise(states)


def test_a_paused_workflow_completes_when_it_goes_on() -> None:
    world = finished(control(told(task("x")), "pause"))

    assert (world.statuses["x"], world.record.status) == ("complete", "paused")
    assert control(world, "unpause").record.status == "complete"


def test_every_move_has_its_story() -> None:
    allowed = {f"{before} {after}" for before, moves in STEP_TRANSITIONS.items() for after in moves}

    assert set(STORIES) == allowed - UNTOLD
    assert allowed >= UNTOLD


@pytest.mark.parametrize("move", STORIES)
def test_a_story_makes_its_move(move: str) -> None:
    before, after = map(StepStatus, move.split())

    world = STORIES[move]()

    moves = [
        (entry["from"], entry["to"]) for entry in world.history if entry.get("step") == "x" and "to" in entry
    ]
    assert (before, after) in moves
