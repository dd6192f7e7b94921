"""The rulings on maps, and on `set` above what takes long; their numbers are in the names of the tests."""

from __future__ import annotations

from language.stage import Stage
from language.written import jobless, resets
from worlds.documents import document, step

# ---- 2: set above a map, loop or wait


def test_ruling_02_a_set_above_a_map_drops_its_items(stage: Stage) -> None:
    mapped = step("m", "top", map={"over": {"var": "steps.top.output.items"}}, input={"v": {"var": "item"}})
    stage.start(document(step("top"), mapped, step("judge", "top", **resets("top"))))
    stage.finish("top", {"items": [1, 2, 3]})
    old = dict(stage.out)
    stage.finish("m#0", {"n": 1})

    stage.finish("judge", {"again": True})

    assert stage.record.items == {}
    assert (stage["m"].status, stage["m"].items, stage["m"].run_id) == ("ready", None, 1)
    for unit in ("m#1", "m#2"):
        stage.finish(unit, {"n": 0}, job=old[unit])
    assert (stage.counter("stale"), stage.record.items) == (2, {})

    stage.finish("top", {"items": [4]})
    assert list(stage.record.items) == ["m#0"]
    assert (stage.out["m#0"].inputs, stage.out["m#0"].run_id) == ({"v": 4}, 1)

    stage.finish("m#0", {"n": 1}, job=old["m#0"])
    assert (stage.counter("stale"), stage["m#0"].status) == (3, "in_progress")
    stage.finish("m#0", {"n": 4})
    assert stage["m"].output == {"items": [{"n": 4}], "count": 1, "errors": 0}


def test_ruling_02_a_set_above_a_map_withdraws_the_timers_of_its_items(stage: Stage) -> None:
    mapped = step("m", map={"over": [1, 2]}, retry={"max_retries": 1, "initial_delay_ms": 60_000})
    stage.start(document(mapped, step("judge", **resets("m"))))
    stage.fail("m#0")
    stage.report_started("m#1")
    assert (stage["m#0"].status, stage.deadline_in("m#1")) == ("retry", 300)

    stage.finish("judge", {"again": True})

    assert [stage[f"m#{n}"].status for n in range(2)] == ["in_progress", "in_progress"]
    assert {stage[f"m#{n}"].attempt for n in range(2)} == {1}
    assert {stage[f"m#{n}"].run_id for n in range(2)} == {2}, "no item has the run of one before"
    stage.pass_time("10m")
    assert (stage["m#0"].status, stage["m#1"].status, stage.counter("stale")) == (
        "in_progress",
        "in_progress",
        0,
    )


def test_ruling_02_each_map_item_has_its_own_token(stage: Stage) -> None:
    stage.start(document(step("m", map={"over": [1, 2]})))
    zero, one = stage.out["m#0"], stage.out["m#1"]
    assert zero.token != one.token

    stage.finish("m#0", {}, job=one)

    assert (stage.counter("stale"), stage["m#0"].status) == (1, "in_progress")


def test_ruling_02_a_set_above_a_loop_begins_it_anew(stage: Stage) -> None:
    reads = {"i": {"var": "ctx.loop.iteration"}, "v": {"var": "ctx.loop.value"}}
    stage.start(document(step("l", loop={"max_iterations": 3}, input=reads), step("judge", **resets("l"))))
    stage.finish("l", {"_loop": "again", "value": {"n": 1}})
    old = stage.out["l"]
    assert (old.inputs, old.run_id) == ({"i": 1, "v": {"n": 1}}, 1)

    stage.finish("judge", {"again": True})

    assert (stage.out["l"].inputs, stage.out["l"].run_id) == ({"i": 0, "v": None}, 2)
    stage.finish("l", {"_loop": "done", "value": {"n": 9}}, job=old)
    assert (stage.counter("stale"), stage["l"].status) == (1, "in_progress")
    for n in range(2):
        stage.finish("l", {"_loop": "again", "value": {"n": n}})
    stage.finish("l", {"_loop": "done", "value": {"n": 7}})
    assert (stage["l"].status, stage["l"].output) == ("complete", {"n": 7})


def test_ruling_02_a_set_above_a_wait_withdraws_its_timer(stage: Stage) -> None:
    waits = jobless("w", "top", wait={"signal": "go", "timeout": "60s"})
    stage.start(document(step("top"), waits, step("judge", "top", **resets("top"))))
    stage.finish("top", {})
    assert stage.deadline_in("w") == 60

    stage.finish("judge", {"again": True})

    assert (stage.statuses["w"], stage.deadline_in("w")) == ("ready", None)
    stage.pass_time("2m")
    assert (stage.status, stage["w"].status, stage.counter("stale")) == ("in_progress", "ready", 0)
    stage.finish("top", {})
    assert (stage.statuses["w"], stage.deadline_in("w")) == ("waiting", 60)


# ---- 3: map


def out(stage: Stage) -> list[str]:
    return sorted(stage.out)


def test_ruling_03_a_map_in_progress_dispatches_within_max_parallel(stage: Stage) -> None:
    stage.start(document(step("m", map={"over": [1, 2, 3, 4], "max_parallel": 2})))
    assert out(stage) == ["m#0", "m#1"]

    stage.finish("m#1", {})
    assert out(stage) == ["m#0", "m#2"]
    stage.finish("m#0", {})
    assert out(stage) == ["m#2", "m#3"]


def test_ruling_03_a_map_in_progress_dispatches_within_max_workers_in_spec_order(stage: Stage) -> None:
    stage.start(
        document(
            step("a"),
            step("m", map={"over": [1, 2, 3]}),
            step("z"),
            runner={"max_workers": 2},
        )
    )
    assert out(stage) == ["a", "m#0"]

    stage.finish("a", {})
    assert out(stage) == ["m#0", "m#1"]
    stage.finish("m#0", {})
    assert out(stage) == ["m#1", "m#2"]
    stage.finish("m#1", {})
    assert out(stage) == ["m#2", "z"]


def test_ruling_03_a_map_in_progress_dispatches_items_that_are_due_again(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("m", map={"over": [1, 2, 3], "max_parallel": 1}, retry=retry)))
    stage.fail("m#0")
    assert (out(stage), stage["m#0"].status) == (["m#1"], "retry")

    stage.pass_time("1s")
    assert out(stage) == ["m#1"], "it is due, but max_parallel are out"

    stage.finish("m#1", {})
    assert (out(stage), stage.out["m#0"].attempt) == (["m#0"], 2)
    stage.finish("m#0", {})
    assert out(stage) == ["m#2"]


def test_ruling_03_after_a_fatal_item_there_are_no_new_ones(stage: Stage) -> None:
    stage.start(document(step("m", map={"over": [1, 2, 3, 4], "max_parallel": 2})))

    stage.fail("m#0")
    assert out(stage) == ["m#1"]
    stage.finish("m#1", {})

    assert (stage.status, stage["m"].status) == ("failed", "failed")
    assert [stage[f"m#{n}"].status for n in range(4)] == ["failed", "complete", "skipped", "skipped"]
    assert {job.step_id for job in stage.jobs} == {"m#0", "m#1"}


def test_ruling_03_after_a_fatal_item_one_that_was_to_be_tried_again_is_not(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 60_000}
    stage.start(document(step("m", map={"over": [1, 2]}, retry=retry)))
    stage.fail("m#1")
    assert stage["m#1"].status == "retry"

    stage.fail("m#0", kind="bad_output")  # never retried

    assert (stage.status, stage["m"].status, stage["m#1"].status) == ("failed", "failed", "cancelled")


def test_ruling_03_output_applies_per_item(stage: Stage) -> None:
    shape = {"double": {"*": [{"var": "result.n"}, 2]}, "of": {"var": "item"}, "at": {"var": "index"}}
    stage.start(document(step("m", map={"over": ["x", "y"]}, output=shape)))

    stage.finish("m#1", {"n": 5})
    stage.finish("m#0", {"n": 4})

    items = [{"double": 8, "of": "x", "at": 0}, {"double": 10, "of": "y", "at": 1}]
    assert stage["m"].output == {"items": items, "count": 2, "errors": 0}
