"""The statuses of units as they are shown: what no worker has taken is queued."""

from __future__ import annotations

from typing import Any

from orchestrator.application.explain.status_view import StatusView, may_be_queued
from orchestrator.application.records.events import StartedEvent, iso
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW_MS
from worlds.specs import child, map_step, task

XS = {"var": "input.xs"}


def started(*steps: Any, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def shown(world: EngineWorld, *queued: str) -> dict[str, str]:
    """The statuses of all units, if these are queued."""
    view = StatusView(world.record, set(queued))
    return {unit: view.status_of(unit, step) for unit, step in world.record.units()}


def began(world: EngineWorld, unit: str) -> str | None:
    return StatusView(world.record).started_at(unit, dict(world.record.units())[unit])


def unreported(world: EngineWorld) -> list[str]:
    return [unit for unit, step in world.record.units() if may_be_queued(step)]


def report_start(world: EngineWorld, unit: str, at_ms: int = NOW_MS) -> None:
    job = world.out[unit]
    dispatch = (job.workflow_execution_id, unit, job.run_id, job.attempt, job.token)
    world.decide(StartedEvent(*dispatch, "w1", iso(at_ms)))


def test_a_dispatched_step_is_queued_until_a_worker_has_taken_it() -> None:
    world = started(task("a"), task("b", after="a"))

    before, taken = shown(world, "a"), shown(world)
    report_start(world, "a", NOW_MS + 5)
    reported = shown(world, "a")

    assert before == {"a": "queued", "b": "ready"}
    assert taken == reported == {"a": "in_progress", "b": "ready"}
    assert began(world, "a") == iso(NOW_MS + 5)


def test_only_leases_of_jobs_that_no_worker_has_reported_are_of_interest() -> None:
    world = started(task("a"), task("b", after="a"), child("c"), task("d"))

    before = unreported(world)
    report_start(world, "a")
    report_start(world, "d")

    assert (before, unreported(world)) == (["a", "d"], [])


def test_a_step_that_has_lost_its_worker_waits_for_another() -> None:
    world = started(task("a"))
    report_start(world, "a")
    world.decide(world.control("pause"))
    world.lose("a")

    assert shown(world) == {"a": "queued"}
    assert began(world, "a") is None


def test_a_step_with_a_child_is_in_progress_from_its_request_on() -> None:
    world = started(child("c"))

    assert shown(world) == {"c": "in_progress"}
    assert began(world, "c") == iso(NOW_MS)


def test_a_map_is_queued_until_a_worker_takes_the_first_of_its_items() -> None:
    world = started(map_step("m", XS, max_parallel=2), inputs={"xs": [1, 2, 3]})

    untaken, taken = shown(world, "m#0", "m#1"), shown(world, "m#1")
    nothing_began = began(world, "m")
    report_start(world, "m#1", NOW_MS + 7)
    report_start(world, "m#0", NOW_MS + 9)
    first = began(world, "m")
    world.finish("m#0")

    assert untaken == {"m": "queued", "m#0": "queued", "m#1": "queued", "m#2": "ready"}
    assert taken == {"m": "in_progress", "m#0": "in_progress", "m#1": "queued", "m#2": "ready"}
    assert (nothing_began, first) == (None, iso(NOW_MS + 7))
    assert shown(world, "m#2")["m"] == "in_progress", "an item has ended"


def test_a_map_of_which_no_item_is_dispatched_is_not_queued() -> None:
    world = started(task("a"), map_step("m", XS), max_workers=1, inputs={"xs": [1]})

    assert shown(world, "a")["m"] != "queued"
