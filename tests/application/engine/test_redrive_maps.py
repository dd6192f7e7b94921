"""Retry and rerun of maps and loops: what has come so far is kept, the rest of it runs."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.application.spec.model import LoopSpec, RetrySpec, StepSpec
from worlds.engine_world import EngineWorld, units, world_of
from worlds.specs import branch, key, map_step, resets, task, wait_step

XS = [10, 20, 30]
REFUSED = {"==": [{"var": "items.0.n"}, 0]}


def told(*steps: StepSpec, **keys: Any) -> EngineWorld:
    world = world_of(*steps, **keys)
    world.advance()
    return world


def again(value: Any) -> dict[str, Any]:
    return {"_loop": "again", "value": value}


def done(value: Any) -> dict[str, Any]:
    return {"_loop": "done", "value": value}


def after_a_fatal_item(**keys: Any) -> EngineWorld:
    """Of three items the second failed, and the others have completed."""
    world = told(map_step("m", XS, **keys))
    world.finish("m#0", {"n": 0})
    world.fail("m#1")
    if "m#2" in world.out:
        world.finish("m#2", {"n": 2})
    assert world.record.status == "failed"
    return world


# ---- maps


def test_of_a_map_only_those_items_run_that_have_not_completed() -> None:
    world = after_a_fatal_item()

    assert units(world.retry()) == ["m#1"]

    assert (world.inputs_of("m#1"), world.out["m#1"].run_id, world.out["m#1"].round) == ({"v": 20}, 1, 0)
    assert world.counts("m").settled == 2
    assert isinstance(world.finish("m#1", {"n": 1}), Complete)
    assert world["m"].output == {"items": [{"n": 0}, {"n": 1}, {"n": 2}], "count": 3, "errors": 0}
    assert [job.step_id for job in world.jobs] == ["m#0", "m#1", "m#2", "m#1"]


def test_items_that_never_ran_run_and_no_more_at_once_than_the_map_allows() -> None:
    world = after_a_fatal_item(max_parallel=1)
    assert [str(world.item(f"m#{n}").status) for n in range(3)] == ["complete", "failed", "skipped"]

    assert units(world.retry()) == ["m#1"]
    assert units(world.finish("m#1", {"n": 1})) == ["m#2"]

    assert isinstance(world.finish("m#2", {"n": 2}), Complete)


def test_items_are_bounded_by_the_workers_too_and_a_commit_by_its_limit() -> None:
    world = told(map_step("m", list(range(5))), max_workers=3)
    world.finish("m#0")
    world.cancel()

    decision = world.decide(world.control("retry"), limit=2)

    assert units(decision) == ["m#1", "m#2"]
    assert world.last.has_more_ready
    assert units(world.advance()) == ["m#3"]
    assert units(world.finish("m#1")) == ["m#4"]


def test_an_item_has_all_its_attempts_again() -> None:
    world = told(map_step("m", XS, retry=RetrySpec(1, 60_000)))
    for unit in ("m#0", "m#2"):
        world.finish(unit)
    world.fail("m#1")
    world.pass_time(60_000)
    world.fail("m#1")
    assert world.record.status == "failed"

    world.retry()
    world.fail("m#1")

    assert (world.item("m#1").status, world.item("m#1").attempt) == ("retry", 2)
    world.pass_time(60_000)
    assert isinstance(world.finish("m#1"), Complete)


def test_items_in_back_off_or_in_progress_at_the_end_go_again_at_once() -> None:
    world = told(map_step("m", [*XS, 40], retry=RetrySpec(1, 60_000)), task("z"))
    old = world.out["m#2"]
    world.finish("m#0")
    world.fail("m#1")
    world.fail("z")

    assert units(world.retry()) == ["m#1", "m#2", "m#3", "z"]

    assert world.armed == set()
    world.decide(world.result_of(old, {"late": True}))
    assert (world.counters["stale"], world.item("m#2").status) == (1, "in_progress")


def test_no_run_of_an_item_has_the_number_of_an_earlier_one() -> None:
    world = told(map_step("m", [1, 2], retry=RetrySpec(2, 0)))
    for _ in range(3):
        world.fail("m#0")
    world.finish("m#1")
    assert world.item("m#0").run_id == 2

    world.retry()
    world.fail("m#0")
    world.fail("m#0")
    world.fail("m#0")
    world.retry()

    runs = [job.run_id for job in world.jobs if job.step_id == "m#0"]
    assert runs == [0, 1, 2, 3, 4, 5, 6]


def test_a_map_of_which_nothing_has_completed_reads_its_list_again() -> None:
    over = {"any.default": [{"var": "steps.p.output.xs"}, [1, 2]]}
    world = told(task("p", on_error="continue"), map_step("m", over, "p", max_parallel=1))
    world.fail("p")
    before = world.out["m#0"].run_id
    world.fail("m#0")

    world.retry()
    assert units(world.finish("p", {"xs": [7, 8, 9]})) == ["m#0"]

    assert world.inputs_of("m#0") == {"v": 7}
    assert world.counts("m").count == 3
    assert world.out["m#0"].run_id > before
    assert world.out["m#0"].round == 0


def test_a_map_whose_sum_was_refused_by_a_branch_runs_whole() -> None:
    world = told(map_step("m", XS, branch=(branch(REFUSED, "fail"),)))
    for n in range(3):
        world.finish(f"m#{n}", {"n": 0})
    assert (world.record.status, world.error_kind("m")) == ("failed", "declared")

    assert units(world.retry()) == ["m#0", "m#1", "m#2"]

    assert {job.round for job in world.jobs} == {0}
    for n in range(3):
        world.finish(f"m#{n}", {"n": 1})
    assert world.record.status == "complete"


def test_of_a_refused_sum_with_errors_the_items_that_failed_go_again() -> None:
    failing = branch({">": [{"var": "errors"}, 0]}, "fail")
    world = told(map_step("m", XS, on_error="continue", branch=(failing,)), task("z"))
    world.finish("m#0")
    world.fail("m#1")
    world.finish("m#2")
    world.fail("z")

    assert units(world.retry()) == ["m#1", "z"]
    world.finish("m#1")

    assert world.statuses["m"] == "complete"


def test_a_map_that_completed_with_errors_is_complete() -> None:
    world = told(map_step("m", XS, on_error="skip"), task("z"))
    for n in range(3):
        world.fail(f"m#{n}")
    world.fail("z")

    assert units(world.retry()) == ["z"]


def test_a_map_that_is_kept_from_running_after_a_retry_keeps_its_items_as_they_were() -> None:
    world = told(task("p", on_error="continue"), map_step("m", XS, "p"), task("z", "p"))
    world.fail("p")
    world.finish("m#0", {"n": 0})
    world.fail("z")
    items = dict(world.record.items)
    world.retry()
    assert (world.statuses["m"], world.record.items) == ("ready", items)

    world.cancel()
    assert (world.statuses["m"], world.record.items) == ("skipped", items)
    world.retry()
    world.finish("p")

    assert sorted(unit for unit in world.out if unit.startswith("m")) == ["m#1", "m#2"]


def test_a_condition_that_does_not_hold_any_more_filters_a_map_that_had_begun() -> None:
    world = told(map_step("m", XS, guards=({"!": [{"var": "state.closed"}]},)), task("z"))
    world.finish("m#0")
    world.fail("z")
    world.record.state["closed"] = True

    world.retry()

    assert world.statuses["m"] == "filtered"
    assert all(item.is_final for item in world.record.items.values())


def test_a_map_that_is_held_or_deferred_or_in_line_goes_on_with_its_items_later() -> None:
    world = told(map_step("m", XS, defer_ms=1_000, **key("k")))
    world.pass_time(1_000)
    world.grant("m")
    world.finish("m#0")
    world.fail("m#1")
    world.finish("m#2")

    world.retry()
    world.hold("m")
    world.pass_time(1_000)
    assert world.statuses["m"] == "on_hold"
    world.release("m")
    world.pass_time(0)
    assert (world.statuses["m"], world.out) == ("deferred", {})

    assert units(world.grant("m")) == ["m#1"]


def test_a_rerun_drops_the_items_and_begins_a_new_round() -> None:
    world = after_a_fatal_item()

    assert units(world.rerun("m")) == ["m#0", "m#1", "m#2"]

    assert {job.round for job in world.out.values()} == {1}
    assert {job.run_id for job in world.out.values()} == {1}


def test_a_set_drops_the_items_of_a_map_that_waits_to_go_on() -> None:
    world = told(
        task("p", on_error="continue"),
        map_step("m", XS, "p"),
        wait_step("w", "go", branch=(resets({"var": "reset"}, "m"), branch(True, "complete"))),
    )
    world.fail("p")
    world.finish("m#0")
    world.cancel()
    world.retry()

    world.signal("go", {"reset": True})

    assert (world["m"].items, world.record.items, world["m"].round) == (None, {}, 1)


def test_an_execution_whose_items_a_set_has_just_dropped_is_cancelled_and_deleted_in_one_batch() -> None:
    world = told(map_step("m", XS), task("s", branch=(resets(True, "m"),)))

    decided = decide(
        world.record,
        [world.result("s", {"n": 1}), world.control("cancel"), world.control("delete")],
        world.moment(),
    )

    assert not decided.rejected
    assert decided.changes.deletes_execution


# ---- loops


def test_a_loop_goes_on_with_the_iteration_and_the_value_it_was_at() -> None:
    world = told(task("l", loop=LoopSpec(5, "fail"), input={"v": {"var": "ctx.loop.value.n"}}))
    world.finish("l", again({"n": 1}))
    world.finish("l", again({"n": 2}))
    before = world.out["l"]
    world.fail("l")

    world.retry()

    job = world.out["l"]
    assert (job.round, job.iteration, job.inputs) == (before.round, before.iteration, {"v": 2})
    assert job.iteration == 2
    assert isinstance(world.finish("l", done({"n": 3})), Complete)


def test_a_rerun_begins_a_loop_anew_in_a_new_round() -> None:
    world = told(task("l", loop=LoopSpec(5, "fail"), input={"v": {"var": "ctx.loop.value.n"}}))
    world.finish("l", again({"n": 1}))
    world.fail("l")

    world.rerun("l")

    job = world.out["l"]
    assert (job.round, job.iteration, job.inputs) == (1, 0, {"v": None})


def test_a_loop_that_reached_its_limit_has_only_its_last_iteration_left() -> None:
    world = told(task("l", loop=LoopSpec(2, "fail")))
    world.finish("l", again({"n": 1}))
    world.finish("l", again({"n": 2}))
    assert world.error_kind("l") == "loop_limit"

    world.retry()
    assert world.out["l"].iteration == 1
    assert isinstance(world.finish("l", again({"n": 3})), Failed)

    world.retry()
    assert isinstance(world.finish("l", done({"n": 4})), Complete)


@pytest.mark.parametrize("xs", [[1], [1, 2]])
def test_the_loop_of_an_item_goes_on_too_although_no_item_has_completed(xs: list[int]) -> None:
    world = told(map_step("m", xs, loop=LoopSpec(5, "fail"), input={"v": {"var": "ctx.loop.value.n"}}))
    world.finish("m#0", again({"n": 7}))
    world.fail("m#0")
    if len(xs) > 1:
        world.fail("m#1")

    world.retry()

    job = world.out["m#0"]
    assert (job.iteration, job.round, job.inputs) == (1, 0, {"v": 7})
    for unit in sorted(world.out):
        world.finish(unit, done({"n": 8}))
    assert world.record.status == "complete"
