"""The status of an execution for programs: states, times, totals, errors, and only the names of outputs."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from orchestrator.application.explain.run_status import RunStatus, make_run_status
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import find_last_outputs
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW, NOW_MS
from worlds.specs import task, wait_step

REFERENCE = {"$payload": "0" * 64, "bytes": 5}


def status_of(world: EngineWorld, *queued: str, after_ms: int = 0) -> RunStatus:
    return make_run_status(StatusView(world.record, set(queued)), world.now_ms + after_ms)


def started(*steps: Any, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def test_an_execution_that_has_not_begun_has_no_start() -> None:
    status = status_of(world_of(task("a")), after_ms=500)

    assert (status.status, status.created_at, status.started_at, status.elapsed_s) == (
        "pending",
        NOW,
        None,
        0.0,
    )
    assert (status.total_steps, status.completed_steps, status.running_steps) == (1, 0, ())


def test_a_status_has_the_ids_of_the_record() -> None:
    world = world_of(task("a"))

    status = status_of(world)

    assert status.workflow_execution_id == world.record.workflow_execution_id
    assert status.workflow_execution_id == f"{status.workflow_id}#{status.execution_id}"
    assert status.name == world.record.spec.name


def test_the_totals_count_the_steps_by_their_state() -> None:
    world = started(task("a"), task("b"), task("c", on_error="continue"), task("d", after="a"))
    world.finish("a", {"n": 1})
    world.fail("c")

    status = status_of(world, "b", after_ms=1_500)

    assert status.counts == {"complete": 1, "queued": 1, "failed": 1, "in_progress": 1}
    assert (status.total_steps, status.completed_steps, status.failed_steps) == (4, 2, ("c",))
    assert (status.running_steps, status.running_count) == (("d",), 1)
    assert status.elapsed_s == 1.5


def test_a_step_has_its_state_its_attempt_its_times_its_worker_and_the_names_of_its_output() -> None:
    world = started(task("a", max_attempts=2))
    world.fail("a")
    world.decide(world.started("a"))
    world.finish("a", {"total": 3, "password": "hunter2"})

    step = status_of(world).steps["a"]

    assert (step.step_id, step.state, step.attempt, step.run_id) == ("a", "complete", 2, 1)
    assert step.outputs == ("total", "password")
    assert (step.dispatched_at, step.started_at) == (NOW, "2026-01-01T00:00:09Z")
    assert step.ended_at is not None
    assert step.worker == "host-1"
    assert "hunter2" not in str(status_of(world).as_dict())


@pytest.mark.parametrize("output", [None, REFERENCE])
def test_an_output_without_names_has_none(output: Any) -> None:
    world = started(task("a"))
    world.finish("a", {})
    world.record.steps["a"] = world.record.steps["a"].with_changes(output=output)

    assert status_of(world).steps["a"].outputs == ()


def test_errors_and_reasons_are_redacted() -> None:
    world = started(task("a"), task("b", after="a"), inputs={"api_key": "hunter2-secret"})
    world.fail("a", "the key hunter2-secret is wrong")
    world.record.steps["b"] = world.record.steps["b"].with_changes(reason="hunter2-secret")

    status = status_of(world)

    assert status.status == "failed"
    assert status.error is not None
    assert status.steps["a"].error is not None
    assert status.steps["a"].error["message"] == status.error["message"] != ""
    assert status.steps["b"].reason is not None
    assert "hunter2" not in json.dumps(status.as_dict())


def test_the_elapsed_time_ends_with_the_execution_and_does_not_count_when_statuses_are_compared() -> None:
    world = started(task("a"))
    running = status_of(world), status_of(world, after_ms=7_000)
    world.finish("a", {})

    ended = status_of(world, after_ms=60_000)

    assert running[0] == running[1]
    assert running[1].elapsed_s == 7.0
    assert ended.elapsed_s == 0.0
    assert ended != running[0]


def test_an_execution_that_began_without_a_dispatch_began_when_it_was_created() -> None:
    status = status_of(started(wait_step("a", "go")), after_ms=2_000)

    assert (status.started_at, status.elapsed_s, status.counts) == (NOW, 2.0, {"waiting": 1})


def test_a_pause_and_a_cancellation_are_shown_with_their_reason() -> None:
    world = started(task("a"))
    world.pause("a strike", "ada")
    paused = status_of(world)
    world.cancel("too late")

    cancelled = status_of(world)

    assert paused.paused == {"at": world.moment().iso, "reason": "a strike", "by": "ada"}
    assert cancelled.paused is None
    assert cancelled.cancelled == {"at": world.moment().iso, "reason": "too late"}


def test_a_status_as_a_dictionary_is_plain_json_with_every_field() -> None:
    world = started(task("a"), task("b", after="a"))
    world.finish("a", {"n": 1})

    plain = status_of(world).as_dict()

    assert json.loads(json.dumps(plain)) == plain
    assert plain["steps"]["a"]["outputs"] == ["n"]
    assert (plain["total_steps"], plain["completed_steps"], plain["running_steps"]) == (2, 1, ["b"])
    assert plain["counts"] == {"complete": 1, "in_progress": 1}
    assert plain["status"] == "in_progress"


def test_a_status_cannot_be_changed() -> None:
    status = make_run_status(StatusView(world_of(task("a")).record), NOW_MS)

    with pytest.raises(FrozenInstanceError):
        status.status = "complete"  # type: ignore[misc]


def test_the_last_outputs_are_those_of_completed_steps_on_which_no_other_depends() -> None:
    world = started(task("a"), task("b", after="a"), task("c", after="a"), task("d", on_error="continue"))
    world.finish("a", {"n": 1})
    world.finish("b", {"n": 2})
    world.fail("d")
    early = find_last_outputs(world.record)
    world.finish("c", {"n": 3})

    assert early == {"b": {"n": 2}}
    assert find_last_outputs(world.record) == {"b": {"n": 2}, "c": {"n": 3}}
