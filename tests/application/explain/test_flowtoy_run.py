"""An execution in the words of flowtoy's Status API."""

from __future__ import annotations

from orchestrator.application.explain.flowtoy_run import as_flowtoy_run
from orchestrator.application.explain.run_status import make_run_status
from orchestrator.application.explain.status_view import StatusView
from worlds.engine_world import world_of
from worlds.records import NOW_MS
from worlds.specs import task


def test_an_execution_that_has_not_begun_has_pending_steps_and_no_times() -> None:
    run = as_flowtoy_run(make_run_status(StatusView(world_of(task("a")).record), NOW_MS))

    assert run["steps"] == {
        "a": {"state": "pending", "started_at": None, "ended_at": None, "notes": [], "outputs": []}
    }
    assert (run["started_at"], run["ended_at"], run["current_step"]) == (None, None, None)


def test_the_first_running_step_is_the_current_one() -> None:
    world = world_of(task("a"), task("b"), task("c", after="a"))
    world.advance()

    run = as_flowtoy_run(make_run_status(StatusView(world.record, {"a"}), world.now_ms))

    assert {name: one["state"] for name, one in run["steps"].items()} == {
        "a": "pending",
        "b": "running",
        "c": "pending",
    }
    assert (run["current_step"], run["running_steps"], run["running_count"]) == ("b", ["b"], 1)
    assert run["started_at"] == NOW_MS / 1000


def test_an_ended_execution_has_the_states_times_and_notes_of_its_steps() -> None:
    world = world_of(task("a"), task("b", after="a"), task("c", after="b"))
    world.advance()
    world.finish("a", {"n": 1})
    world.fail("b", "boom")

    run = as_flowtoy_run(make_run_status(StatusView(world.record), world.now_ms))

    steps = run["steps"]
    assert [(one["state"], one["outputs"]) for one in steps.values()] == [
        ("succeeded", ["n"]),
        ("failed", []),
        ("skipped", []),
    ]
    assert steps["b"]["notes"][0] == "boom"
    assert steps["a"]["started_at"] is not None
    assert (run["total_steps"], run["completed_steps"], run["ended_at"]) == (3, 3, steps["b"]["ended_at"])
