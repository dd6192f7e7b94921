"""Loops: one step that says itself whether it goes round again."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed, Halt, Pending
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import LoopSpec, RetrySpec
from worlds.engine_world import EngineWorld, units, world_of
from worlds.specs import branch, map_step, resets, task

SEEN = {"n": {"var": "ctx.loop.iteration"}, "last": {"var": "ctx.loop.value"}}


def again(value: Any = None) -> dict[str, Any]:
    return {"_loop": "again", "value": value}


def done(value: Any = None) -> dict[str, Any]:
    return {"_loop": "done", "value": value}


def looping(most: int = 10, *others: Any, on_max: Any = "fail", **keys: Any) -> EngineWorld:
    keys.setdefault("input", SEEN)
    return world_of(task("l", loop=LoopSpec(most, on_max), **keys), *others)


def test_a_loop_goes_round_with_its_iteration_and_the_last_value() -> None:
    world = looping()
    world.advance()
    assert world.inputs_of("l") == {"n": 0, "last": None}

    assert units(world.finish("l", again({"x": 1}))) == ["l"]
    assert world.inputs_of("l") == {"n": 1, "last": {"x": 1}}

    assert units(world.finish("l", again([1, 2]))) == ["l"]
    assert world.inputs_of("l") == {"n": 2, "last": [1, 2]}

    assert world.finish("l", done({"x": 9})) == Complete({})
    assert world["l"].output == {"x": 9}
    assert world.record.state == {"x": 9}
    assert (world["l"].run_id, world["l"].attempt, world["l"].dispatches) == (2, 1, 3)


def test_a_loop_that_is_done_at_once_runs_once() -> None:
    world = looping()
    world.advance()

    assert world.finish("l", done({"x": 1})) == Complete({})
    assert len(world.jobs) == 1


@pytest.mark.parametrize("value", [{}, None])
def test_a_loop_may_end_with_nothing(value: Any) -> None:
    world = looping()
    world.advance()

    assert world.finish("l", done(value)) == Complete({})
    assert world["l"].output == value
    assert world.record.state == {}


def test_what_follows_a_loop_waits_for_its_end() -> None:
    world = looping(10, task("n", "l", input={"x": {"var": "steps.l.output.x"}}))
    world.advance()
    world.finish("l", again({"x": 1}))

    assert world.statuses == {"l": "in_progress", "n": "ready"}
    assert units(world.finish("l", done({"x": 2}))) == ["n"]
    assert world.inputs_of("n") == {"x": 2}


# ---- the limit


def test_a_loop_that_says_again_too_often_has_failed() -> None:
    world = looping(3, max_attempts=5)
    world.advance()
    for n in range(2):
        assert units(world.finish("l", again({"n": n}))) == ["l"]

    decision = world.finish("l", again({"n": 2}))

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "loop_limit"
    assert decision.error["message"] == 'the loop returned "again" 3 times (loop.max_iterations)'
    assert len(world.jobs) == 3


def test_a_loop_may_end_with_its_last_value_instead() -> None:
    world = looping(2, on_max="exit_with_last")
    world.advance()
    world.finish("l", again({"x": 1}))

    assert world.finish("l", again({"x": 2})) == Complete({})
    assert world["l"].output == {"x": 2}
    assert world["l"].error is None


def test_a_loop_of_one_round_may_not_go_round() -> None:
    world = looping(1)
    world.advance()

    assert isinstance(world.finish("l", again()), Failed)


# ---- shapes


@pytest.mark.parametrize(
    "said",
    [None, {}, "again", ["again"], {"_loop": "maybe"}, {"_loop": True, "value": {}}, {"value": {"x": 1}}],
)
def test_a_result_of_another_shape_is_a_bad_output_and_not_tried_again(said: Any) -> None:
    world = looping(max_attempts=3)
    world.advance()

    decision = world.finish("l", said)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "bad_output"
    assert '"_loop": "again" or "done"' in decision.error["message"]


@pytest.mark.parametrize("on_max", ["fail", "exit_with_last"])
def test_the_value_that_a_loop_ends_with_must_be_an_object(on_max: Any) -> None:
    world = looping(1, on_max=on_max)
    world.advance()

    decision = world.finish("l", done("text") if on_max == "fail" else again(["list"]))

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "bad_output"


def test_a_value_may_be_left_out() -> None:
    world = looping()
    world.advance()
    world.finish("l", {"_loop": "again"})

    assert world.inputs_of("l") == {"n": 1, "last": None}
    assert world.finish("l", {"_loop": "done"}) == Complete({})


def test_a_faulty_round_may_be_forgiven() -> None:
    world = looping(3, on_error="continue")
    world.advance()

    assert world.finish("l", {}) == Complete({})
    assert world.statuses == {"l": "failed"}


# ---- attempts


def test_every_iteration_has_all_attempts() -> None:
    world = looping(max_attempts=2)
    world.advance()

    for n in range(3):
        assert units(world.fail("l")) == ["l"]
        assert (world["l"].attempt, world["l"].iteration) == (2, n)
        world.finish("l", again({"n": n}))
        assert (world["l"].attempt, world["l"].iteration) == (1, n + 1)
    world.fail("l")
    assert isinstance(world.fail("l", "for good"), Failed)
    assert world.run_ids == {"l": 7}


def test_a_round_that_failed_is_tried_again_after_its_delay_with_the_same_value() -> None:
    world = looping(retry=RetrySpec(max_retries=1, initial_delay_ms=500))
    world.advance()
    world.finish("l", again({"x": 1}))

    assert world.fail("l") == Pending()
    assert world["l"].status is StepStatus.RETRY
    assert units(world.pass_time(500)) == ["l"]
    assert world.inputs_of("l") == {"n": 1, "last": {"x": 1}}


def test_a_lost_round_is_dispatched_again_with_the_same_value() -> None:
    world = looping()
    world.advance()
    world.finish("l", again({"x": 1}))

    assert units(world.lose("l")) == ["l"]
    assert world.inputs_of("l") == {"n": 1, "last": {"x": 1}}
    assert (world["l"].attempt, world["l"].lost, world["l"].iteration) == (1, 1, 1)


def test_every_iteration_may_lose_its_workers() -> None:
    world = looping()
    world.advance()
    for _ in range(3):
        world.lose("l")
    world.finish("l", again())

    assert world["l"].lost == 0


def test_a_result_of_the_round_before_is_stale() -> None:
    world = looping()
    world.advance()
    first = world.result("l", again({"x": 1}))

    world.decide(first, first)
    world.decide(first)

    assert world.counters["stale"] == 2
    assert world["l"].iteration == 1


def test_every_round_has_a_deadline_of_its_own() -> None:
    world = looping(timeout_s=10.0)
    world.advance()
    world.decide(world.started("l"))
    world.pass_time(9_000)
    world.finish("l", again())
    assert world.armed == set()

    world.decide(world.started("l"))
    assert world.pass_time(9_000) == Pending()
    assert isinstance(world.pass_time(1_000), Failed)


# ---- branches, output, set


def test_the_branches_see_only_the_end_of_a_loop() -> None:
    stop = branch({"var": "x"}, "halt", result_expr={"var": "x"})
    world = looping(branch=(stop,))
    world.advance()

    assert units(world.finish("l", again({"x": 1}))) == ["l"]
    assert world.finish("l", done({"x": 2})) == Halt(2)


def test_output_reshapes_the_value_at_the_end() -> None:
    world = looping(output={"y": {"var": "result.x"}, "rounds": {"var": "ctx.loop.iteration"}})
    world.advance()
    world.finish("l", again({"x": 1}))
    world.finish("l", done({"x": 2}))

    assert world["l"].output == {"y": 2, "rounds": 1}


def test_a_set_begins_a_loop_anew() -> None:
    world = looping(10, task("s", "l", branch=(resets({"!": {"var": "state.enough"}}, "l"),)))
    world.advance()
    world.finish("l", again({"x": 1}))
    world.finish("l", done({"x": 2}))

    assert units(world.finish("s", {"enough": True})) == ["l"]
    assert world.inputs_of("l") == {"n": 0, "last": None}
    assert (world["l"].round, world["l"].iteration) == (1, 0)


def test_the_idempotency_key_names_the_round_and_the_iteration() -> None:
    world = looping(10, task("s", "l", branch=(resets({"!": {"var": "state.enough"}}, "l"),)), max_attempts=2)
    world.advance()
    world.fail("l")
    world.finish("l", again())
    world.lose("l")
    world.finish("l", done({"x": 2}))
    world.finish("s", {"enough": True})

    keys = [job.idempotency_key for job in world.jobs]

    assert keys == ["x1#l#0#0", "x1#l#0#0", "x1#l#0#1", "x1#l#0#1", "x1#s#0", "x1#l#1#0"]


def test_a_loop_has_its_turn_among_those_that_want_a_worker() -> None:
    world = world_of(task("a"), task("l", loop=LoopSpec()), task("z"), max_workers=1)
    world.advance()

    assert units(world.finish("a", {})) == ["l"]
    assert units(world.finish("l", again())) == ["l"]
    assert units(world.finish("l", done())) == ["z"]


# ---- inside a map


def looping_items(n: int, **keys: Any) -> EngineWorld:
    return world_of(
        map_step("m", {"var": "input.xs"}, loop=LoopSpec(3), **keys), inputs={"xs": list("abc"[:n])}
    )


def test_every_item_goes_round_on_its_own() -> None:
    world = looping_items(2, input={"n": {"var": "ctx.loop.iteration"}})
    world.advance()

    assert units(world.finish("m#0", again({"x": 1}))) == ["m#0"]
    assert (world.inputs_of("m#0"), world.inputs_of("m#1")) == ({"n": 1}, {"n": 0})
    world.finish("m#1", done({"x": "b"}))
    assert world.finish("m#0", done({"x": "a"})) == Complete({})
    assert world["m"].output["items"] == [{"x": "a"}, {"x": "b"}]


def test_an_item_that_goes_round_gives_its_place_back_and_comes_before_new_ones() -> None:
    world = looping_items(3, max_parallel=1)
    world.advance()

    assert units(world.finish("m#0", again())) == ["m#0"]
    assert units(world.finish("m#0", done())) == ["m#1"]


def test_an_item_that_goes_round_too_often_has_failed() -> None:
    world = looping_items(1, on_error="continue")
    world.advance()
    world.finish("m#0", again())
    world.finish("m#0", again())

    assert world.finish("m#0", again()) == Complete({})
    assert world["m"].output["items"] == [
        {"ok": False, "error": 'the loop returned "again" 3 times (loop.max_iterations)'}
    ]


def test_the_idempotency_key_names_item_and_iteration() -> None:
    world = looping_items(2)
    world.advance()
    world.finish("m#1", again())

    assert [job.idempotency_key for job in world.jobs] == ["x1#m#0#0#0", "x1#m#0#1#0", "x1#m#0#1#1"]


ONE_FIELD = "an item and what its loop handed on share StepRecord.value: the second overwrites the first"


def test_an_item_stays_what_it_is_when_its_loop_goes_round() -> None:
    world = looping_items(1, input={"item": {"var": "item"}, "last": {"var": "ctx.loop.value"}})
    world.advance()

    world.finish("m#0", again({"x": 1}))

    assert world.inputs_of("m#0") == {"item": "a", "last": {"x": 1}}


def test_the_first_round_of_an_item_has_no_value_from_before() -> None:
    world = looping_items(1, input={"last": {"var": "ctx.loop.value"}})
    world.advance()

    assert world.inputs_of("m#0") == {"last": None}


def test_the_last_item_in_flight_may_want_to_go_round_after_a_fatal_one() -> None:
    world = looping_items(2)
    world.advance()
    world.fail("m#0", "bad")

    assert isinstance(world.finish("m#1", again()), Failed)
