"""max_workers: at most so many dispatches of one execution are out at a time."""

from __future__ import annotations

from random import Random
from typing import Any

from orchestrator.application.records.decisions import Complete, Dispatch, Failed, Pending
from orchestrator.application.records.events import ContinueEvent, StepEvent
from orchestrator.application.spec.model import RetrySpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import branch, delay, task

NO: Any = {"==": [1, 2]}


def many(count: int, most: int | None, **keys: Any) -> EngineWorld:
    return world_of(*(task(f"s{n}", **keys) for n in range(count)), max_workers=most)


def test_no_more_steps_are_dispatched_than_max_workers_in_the_order_of_the_spec() -> None:
    world = many(5, 2)

    assert world.dispatched(world.advance()) == ["s0", "s1"]
    assert world.statuses["s2"] == "ready"
    assert world.advance() == Pending()
    assert world.dispatched(world.finish("s1", {})) == ["s2"]
    assert world.dispatched(world.finish("s0", {})) == ["s3"]
    assert world.dispatched(world.finish("s2", {})) == ["s4"]
    assert world.finish("s3", {}) == Pending()
    assert world.finish("s4", {}) == Complete({})


def test_without_max_workers_there_is_no_limit() -> None:
    world = many(50, None)

    assert len(world.dispatched(world.advance())) == 50


def test_a_batch_of_results_frees_as_many_places() -> None:
    world = many(6, 3)
    world.advance()

    decision = world.decide(world.result("s0", {}), world.result("s2", {}))

    assert world.dispatched(decision) == ["s3", "s4"]


def test_a_step_that_has_become_ready_takes_its_place_in_the_order_of_the_spec() -> None:
    world = world_of(task("z"), task("b", after="z"), task("c"), task("d"), max_workers=1)
    world.advance()

    assert world.dispatched(world.finish("z", {})) == ["b"]
    assert world.dispatched(world.finish("b", {})) == ["c"]


NOT_STOPPED: Any = {"!": [{"var": "state.stop"}]}


def test_a_step_that_is_skipped_while_it_waits_for_a_place_is_never_dispatched() -> None:
    join = {"and": [NOT_STOPPED, {"==": [{"var": "ctx.status.p"}, "complete"]}]}
    world = world_of(task("p"), task("q"), task("r"), task("x", after="p q", join=join), max_workers=2)
    world.play(p={})
    assert world.statuses == {"p": "complete", "q": "in_progress", "r": "in_progress", "x": "ready"}

    assert world.finish("q", {"stop": True}) == Pending()
    assert world.statuses["x"] == "skipped"
    assert world.finish("r", {}) == Complete({})


def test_a_held_back_step_whose_join_says_wait_when_another_parent_has_settled_waits() -> None:
    join = {"and": [NOT_STOPPED, {"==": [{"var": "ctx.status.p"}, "complete"]}]}
    world = world_of(task("p"), task("q"), task("r"), task("x", after="p q r", join=join), max_workers=2)
    world.play(p={})
    assert world.statuses == {"p": "complete", "q": "in_progress", "r": "in_progress", "x": "ready"}

    assert world.finish("q", {"stop": True}) == Pending()
    assert world.statuses["x"] == "ready"


def test_a_ready_step_held_back_is_not_dispatched_if_it_waits_for_a_parent_again() -> None:
    world = world_of(
        task("p"),
        task("a", after="p", branch=(branch({"var": "again"}, {"set": "p"}),)),
        task("x", after="p"),
        max_workers=1,
    )
    world.play(p={})
    assert world.statuses == {"p": "complete", "a": "in_progress", "x": "ready"}  # x is held back

    assert world.dispatched(world.finish("a", {"again": True})) == ["p"]

    assert world.statuses == {"p": "in_progress", "a": "ready", "x": "ready"}
    assert world.dispatched(world.finish("p", {})) == ["a"]
    assert world.dispatched(world.finish("a", {})) == ["x"]


def test_a_lost_step_gives_back_its_place_and_is_dispatched_again_in_the_order_of_the_spec() -> None:
    world = many(3, 1)
    world.play(s0={})

    assert world.dispatched(world.lose("s1")) == ["s1"]

    world = world_of(task("z"), task("b", after="z"), task("c", after="z"), task("d"), max_workers=2)
    world.advance()
    assert set(world.out) == {"z", "d"}
    assert world.dispatched(world.finish("z", {})) == ["b"]
    assert world.dispatched(world.lose("d")) == ["c"]  # d stands behind c
    assert world.statuses["d"] == "in_progress"
    assert world["d"].token is None
    assert world.dispatched(world.finish("b", {})) == ["d"]


def test_a_retry_gives_back_its_place_during_its_delay() -> None:
    world = many(3, 1, retry=RetrySpec())
    world.advance()

    assert world.dispatched(world.fail("s0")) == ["s1"]
    assert world.pass_time(1000) == Pending()
    assert (world.statuses["s0"], world["s0"].not_before_ms) == ("retry", None)
    assert world.dispatched(world.finish("s1", {})) == ["s0"]  # due, and before s2 in the spec


def test_a_repetition_at_once_keeps_its_place_in_the_order_of_the_spec() -> None:
    world = many(3, 1, max_attempts=2)
    world.advance()

    assert world.dispatched(world.fail("s0")) == ["s0"]


def test_a_due_deferred_step_without_capacity_stays_deferred_and_is_a_candidate_in_spec_order() -> None:
    world = world_of(task("d", defer_ms=500), task("a"), task("b"), max_workers=1)

    assert world.dispatched(world.advance()) == ["a"]
    assert world.pass_time(500) == Pending()
    assert (world.statuses["d"], world["d"].wake_at_ms) == ("deferred", None)
    assert world.dispatched(world.finish("a", {})) == ["d"]


def test_deferred_steps_and_delays_take_no_capacity() -> None:
    world = world_of(delay("w", 500), task("d", defer_ms=500), task("a"), task("b"), max_workers=2)

    assert world.dispatched(world.advance()) == ["a", "b"]


def test_skips_filters_and_failures_at_a_gate_do_not_wait_for_capacity() -> None:
    world = world_of(
        task("a"),
        task("k", on_error="skip"),
        task("f", guards=(NO,)),
        task("r", required=("input.none",), on_error="continue"),
        task("below", after="k"),
        max_workers=2,
    )
    world.advance()
    assert world.statuses["f"] == "filtered"
    assert world.statuses["r"] == "failed"

    world.fail("k")
    assert world.statuses["below"] == "skipped"


def test_inputs_that_cannot_be_resolved_take_no_place() -> None:
    world = world_of(
        task("a", input={"n": {"+": ["x", 1]}}, on_error="continue"), task("b"), task("c"), max_workers=1
    )

    assert world.dispatched(world.advance()) == ["b"]
    assert world.statuses == {"a": "failed", "b": "in_progress", "c": "ready"}


def test_the_inputs_of_a_step_held_back_are_resolved_when_there_is_room() -> None:
    world = world_of(task("a"), task("b", input={"n": {"var": "state.n"}}), max_workers=1)
    world.play(a={"n": 3})

    assert world.out["b"].inputs == {"n": 3}


def test_steps_held_back_end_with_the_workflow() -> None:
    world = many(3, 1)
    world.advance()

    assert isinstance(world.fail("s0"), Failed)
    assert world.statuses == {"s0": "failed", "s1": "skipped", "s2": "skipped"}


def test_steps_held_back_survive_a_reload() -> None:
    world = many(3, 1)
    world.advance()
    world.reload()

    assert world.dispatched(world.finish("s0", {})) == ["s1"]


# ---- with the limit of one commit


def test_a_commits_limit_and_max_workers_both_hold() -> None:
    world = many(9, 5)

    assert world.dispatched(world.advance(limit=2)) == ["s0", "s1"]
    assert world.last.has_more_ready
    event = ContinueEvent(world.record.workflow_execution_id)
    assert world.dispatched(world.decide(event, limit=2)) == ["s2", "s3"]
    assert world.last.has_more_ready
    assert world.dispatched(world.decide(event, limit=2)) == ["s4"]
    assert not world.last.has_more_ready


def test_a_commit_that_fills_max_workers_does_not_say_that_there_is_more() -> None:
    world = many(5, 2)

    assert world.dispatched(world.advance(limit=2)) == ["s0", "s1"]
    assert not world.last.has_more_ready


def test_a_commit_that_leaves_only_candidates_that_moved_on_does_not_say_that_there_is_more() -> None:
    world = world_of(
        task("p"),
        task("y", after="p", branch=(branch({"var": "again"}, {"set": "p"}),)),
        task("x", after="p"),
        max_workers=1,
    )
    world.play(p={})
    assert world.statuses == {"p": "complete", "y": "in_progress", "x": "ready"}  # x is held back

    assert world.dispatched(world.decide(world.result("y", {"again": True}), limit=1)) == ["p"]
    assert not world.last.has_more_ready


# ---- random


def test_there_are_never_more_in_flight_and_never_fewer_than_there_could_be() -> None:
    for seed in range(60):
        draw = Random(seed)
        most = draw.randint(1, 3)
        names = [f"s{n}" for n in range(draw.randint(3, 10))]
        world = world_of(
            *(
                task(
                    name,
                    draw.sample(names[:n], draw.randint(0, min(n, 2))),
                    max_attempts=2,
                    on_error="continue",
                )
                for n, name in enumerate(names)
            ),
            max_workers=most,
        )
        world.advance()
        while not world.record.is_final:
            name = draw.choice(sorted(world.out))
            events: list[StepEvent] = [
                world.result(name, {}),
                world.result(name, {}),
                world.error(name),
                world.loss(name),
            ]
            decision = world.decide(draw.choice(events))
            assert len(world.out) <= most
            ready = [
                one
                for one, seen in world.record.steps.items()
                if str(seen.status) == "ready" and not world.record.readiness.unmet[one]
            ]
            assert len(world.out) == most or not ready, f"seed {seed}"
            if isinstance(decision, Dispatch):
                assert [job.step_id for job in decision.jobs] == sorted(
                    (job.step_id for job in decision.jobs), key=names.index
                )
