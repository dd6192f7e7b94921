"""Maps: one job for each item of a list, and one result for all of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.decisions import Complete, Dispatch, DispatchJob, Failed, Halt, Pending
from orchestrator.application.records.events import StepEvent, make_failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import Limits, RetrySpec
from worlds.documents import Json
from worlds.engine_checks import check
from worlds.engine_world import EngineWorld, drain, max_in_flight, run_one, units, world_of
from worlds.specs import BROKEN, branch, map_step, resets, task, wait_step

XS = {"var": "input.xs"}
EMPTY = {"items": [], "count": 0, "errors": 0}


def mapping(n: int, *others: Any, keys: Json | None = None, **of_map: Any) -> EngineWorld:
    """A world with a map `m` over n numbers."""
    return world_of(map_step("m", XS, **of_map), *others, inputs={"xs": list(range(n))}, **(keys or {}))


def out_of(items: list[Any], errors: int = 0) -> Json:
    return {"items": items, "count": len(items), "errors": errors}


# ---- items


def test_every_item_is_a_job_with_its_own_inputs_in_order() -> None:
    world = world_of(
        map_step("m", XS, input={"v": {"var": "item.n"}, "at": {"var": "index"}, "k": 1}, fn="price"),
        inputs={"xs": [{"n": "a"}, {"n": "b"}, {"n": "c"}]},
    )

    decision = world.advance()

    assert units(decision) == ["m#0", "m#1", "m#2"]
    assert [job.inputs for job in world.jobs] == [{"v": v, "at": at, "k": 1} for at, v in enumerate("abc")]
    assert {job.fn for job in world.jobs} == {"price"}
    assert len({job.token for job in world.jobs}) == 3
    assert world.statuses == {"m": "in_progress"}
    assert world.record.status is WorkflowStatus.IN_PROGRESS


def test_an_item_may_have_another_name() -> None:
    world = world_of(
        map_step("m", XS, as_="line", input={"v": {"var": "line"}, "other": {"var": ["item", "none"]}}),
        inputs={"xs": [7]},
    )

    world.advance()

    assert world.inputs_of("m#0") == {"v": 7, "other": "none"}


@pytest.mark.parametrize("order", ["012", "210", "120"])
def test_the_results_stand_in_the_order_of_the_items(order: str) -> None:
    world = mapping(3)
    world.advance()

    for n in order:
        decision = world.finish(f"m#{n}", {"r": int(n)})

    assert decision == Complete({})
    assert world["m"].output == out_of([{"r": 0}, {"r": 1}, {"r": 2}])
    assert world.statuses == {"m": "complete"}


def test_an_item_without_an_output_is_null() -> None:
    world = mapping(2)
    world.advance()
    world.finish("m#0")

    world.finish("m#1", {})

    assert world["m"].output == out_of([None, {}])


@pytest.mark.parametrize("over", [[], None])
def test_nothing_to_map_is_a_result_at_once(over: Any) -> None:
    world = world_of(map_step("m", XS), task("n", "m"), inputs={"xs": over})

    decision = world.advance()

    assert units(decision) == ["n"]
    assert world["m"].output == EMPTY
    assert world.record.items == {}


def test_the_branches_see_that_a_map_was_empty() -> None:
    empty = branch({"==": [{"var": "count"}, 0]}, "halt", result={"why": "nothing"})
    world = world_of(map_step("m", XS, branch=(empty,)), inputs={"xs": []})

    assert world.advance() == Halt({"why": "nothing"})


@pytest.mark.parametrize(("action", "left"), [("halt", "ready"), ("fail", "skipped")])
def test_an_empty_map_that_ends_the_workflow_lets_nothing_begin_beside_it(action: str, left: str) -> None:
    world = world_of(map_step("m", XS, branch=(branch(True, action),)), task("beside"), inputs={"xs": []})

    decision = world.advance()

    assert isinstance(decision, Halt | Failed)
    assert (world.statuses["beside"], world.out, world.jobs) == (left, {}, [])


def test_a_map_whose_items_cannot_begin_lets_nothing_begin_beside_it() -> None:
    world = world_of(map_step("m", XS, input={"v": {"+": ["x", 1]}}), task("beside"), inputs={"xs": [1, 2]})

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert (world.statuses["beside"], world.jobs) == ("skipped", [])


def test_an_empty_map_that_takes_back_what_could_begin_beside_it_begins_it_once_and_in_its_turn() -> None:
    again = resets({"<": [{"var": "ctx.step.run_id"}, 1]}, "top")
    world = world_of(
        task("top"),
        map_step("m", XS, "top", branch=(again, branch(True, "complete"))),
        task("beside", "top", input={"run": {"var": "ctx.step.run_id"}}),
        inputs={"xs": []},
    )
    world.advance()

    world.finish("top")

    assert world.statuses == {"top": "in_progress", "m": "ready", "beside": "ready"}
    assert units(world.finish("top")) == ["beside"]
    assert world.out["beside"].inputs == {"run": 1}


@pytest.mark.parametrize(
    ("over", "said"),
    [("abc", "a string"), ({"a": 1}, "an object"), (3, "a number"), (False, "a boolean"), (0, "a number")],
)
def test_what_is_no_list_fails_the_step(over: Any, said: str) -> None:
    world = world_of(map_step("m", XS, max_attempts=3), inputs={"xs": over})

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert f"must give a list, not {said}" in decision.error["message"]


def test_a_list_that_is_kept_by_reference_fails_the_step() -> None:
    world = world_of(map_step("m", XS), inputs={"xs": {"$payload": "a1" * 32, "bytes": 5_000_000}})

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"
    assert "the list of map.over is kept by reference (5,000,000 bytes)" in decision.error["message"]


def test_a_list_may_be_written_in_the_spec_or_come_from_a_step() -> None:
    world = world_of(
        task("a"),
        map_step("m", [1, {"var": "steps.a.output.n"}], "a"),
        map_step("n", {"var": "steps.a.output.list"}, "a"),
    )
    world.advance()

    assert units(world.finish("a", {"n": 2, "list": ["x"]})) == ["m#0", "m#1", "n#0"]
    assert [job.inputs["v"] for job in world.jobs[1:]] == [1, 2, "x"]


def test_what_depends_on_a_map_waits_for_its_last_item_and_reads_the_whole() -> None:
    world = mapping(2, task("n", "m", input={"all": {"var": "steps.m.output.items"}}))
    world.advance()

    assert world.finish("m#1", {"r": 1}) == Pending()
    assert units(world.finish("m#0", {"r": 0})) == ["n"]
    assert world.inputs_of("n") == {"all": [{"r": 0}, {"r": 1}]}


# ---- capacity


def test_no_more_items_are_out_than_max_parallel_allows() -> None:
    world = mapping(5, max_parallel=2)

    assert units(world.advance()) == ["m#0", "m#1"]
    assert world.advance() == Pending()
    assert units(world.finish("m#1", {})) == ["m#2"]
    assert units(world.decide(world.result("m#0", {}), world.result("m#2", {}))) == ["m#3", "m#4"]


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(40))
def test_in_any_order_of_results_failures_and_losses_the_limits_hold(seed: int) -> None:
    """The world checks after every commit that no map has more items out than it may."""
    chance = random.Random(seed)
    most, workers, n = chance.choice([1, 2, 3, None]), chance.choice([1, 2, 4, None]), chance.randint(1, 12)
    world = mapping(
        n,
        map_step("k", XS, max_parallel=2, on_error="skip"),
        keys={"max_workers": workers},
        max_parallel=most,
        on_error="continue",
        retry=RetrySpec(max_retries=2, initial_delay_ms=chance.choice([0, 10])),
    )
    world.advance(chance.choice([1, 3, None]))

    for _ in range(2_000):
        if world.record.is_final:
            break
        assert workers is None or len(world.out) <= workers
        job = chance.choice(list(world.out.values())) if world.out else None
        what = chance.choice(["finish", "finish", "fail", "lose", "tick", "reload", "twice"])
        if job is None or what == "tick":
            world.pass_time(chance.randint(1, 15))
        elif what == "finish":
            world.finish(job.step_id, {"v": job.inputs["v"]})
        elif what == "twice":
            world.decide(*[world.result_of(job, {"v": job.inputs["v"]})] * 2)
        elif what == "fail":
            world.fail(job.step_id)
        elif what == "lose":
            world.lose(job.step_id)
        else:
            world.reload()
            world.advance(chance.choice([1, None]))

    assert world.statuses == {"m": "complete", "k": "complete"}
    bad = {"ok": False, "error": "boom"}
    lost = {"ok": False, "error": "worker died (4 workers lost with this attempt)"}
    for at, one in enumerate(world["m"].output["items"]):
        assert one in ({"v": at}, bad, lost)
    for at, one in enumerate(world["k"].output["items"]):
        assert one in ({"v": at}, None)
    assert world["m"].output["errors"] == sum(1 for one in world["m"].output["items"] if "ok" in one)


def test_a_thousand_items_with_fifty_at_a_time() -> None:
    world = world_of(
        map_step("m", XS, max_parallel=50), inputs={"xs": list(range(1_000))}, checked=False, outputs={}
    )
    most = 0

    def execute(job: DispatchJob) -> Json:
        nonlocal most
        most = max(most, len(world.out))
        return {"r": job.inputs["v"] * 2}

    assert drain(world, execute) == Complete({})
    assert most == 50
    assert [one["r"] for one in world["m"].output["items"]] == list(range(0, 2_000, 2))
    assert [job.step_id for job in world.jobs] == [f"m#{n}" for n in range(1_000)]
    assert max_in_flight(world.history, "m") == 50
    check(world)


def test_items_count_one_by_one_as_workers_of_the_workflow() -> None:
    world = mapping(3, task("a"), task("b"), keys={"max_workers": 2})

    assert units(world.advance()) == ["m#0", "m#1"]
    assert units(world.finish("m#0", {})) == ["m#2"]
    assert units(world.finish("m#1", {})) == ["a"]
    assert units(world.finish("a", {})) == ["b"]


def test_a_map_shares_the_workers_with_what_runs_already() -> None:
    world = world_of(task("a"), task("z"), map_step("m", XS, "a"), inputs={"xs": [1, 2, 3]}, max_workers=2)
    world.advance()

    assert units(world.finish("a", {})) == ["m#0"]
    assert units(world.finish("z", {})) == ["m#1"]


def test_a_commit_takes_a_part_of_a_large_map_and_says_that_there_is_more() -> None:
    world = mapping(7)

    sizes: list[int] = []
    while not sizes or world.last.has_more_ready:
        sizes.append(len(units(world.advance(3))))

    assert sizes == [3, 3, 1]


def test_a_map_that_is_full_leaves_nothing_for_a_further_commit() -> None:
    world = mapping(7, max_parallel=3)

    world.advance(3)

    assert not world.last.has_more_ready


def test_a_workflow_that_is_full_leaves_nothing_for_a_further_commit() -> None:
    world = mapping(7, keys={"max_workers": 3})

    world.advance(3)

    assert not world.last.has_more_ready


# ---- attempts


def test_an_item_is_tried_again_on_its_own_after_its_delay() -> None:
    world = mapping(2, retry=RetrySpec(max_retries=2, initial_delay_ms=1_000))
    world.advance()

    assert world.fail("m#0") == Pending()
    item = world.item("m#0")
    assert (item.status, item.attempt, item.run_id) == (StepStatus.RETRY, 2, 1)
    assert world.pass_time(999) == Pending()
    assert units(world.pass_time(1)) == ["m#0"]
    assert (world.out["m#0"].attempt, world.out["m#0"].run_id) == (2, 1)
    assert world.item("m#1").attempt == 1

    world.fail("m#0")
    assert world.pass_time(1_999) == Pending()
    assert units(world.pass_time(1)) == ["m#0"]
    world.finish("m#1", {"r": 1})
    assert world.finish("m#0", {"r": 0}) == Complete({})
    assert world["m"].output == out_of([{"r": 0}, {"r": 1}])
    assert world["m"].attempt == 1


def test_an_attempt_without_a_delay_follows_at_once() -> None:
    world = mapping(2, max_attempts=2, on_error="skip")
    world.advance()

    assert units(world.fail("m#1")) == ["m#1"]
    world.fail("m#1", "again")
    world.finish("m#0", {"r": 0})

    assert world["m"].output == out_of([{"r": 0}, None], errors=1)
    assert world.executed == {"m": 0}
    assert Counter(job.step_id for job in world.jobs) == {"m#0": 1, "m#1": 2}


def test_an_item_that_waits_for_its_next_attempt_gives_its_place_to_another() -> None:
    world = mapping(3, max_parallel=1, retry=RetrySpec(max_retries=1, initial_delay_ms=100))
    world.advance()

    assert units(world.fail("m#0")) == ["m#1"]
    assert world.pass_time(100) == Pending()
    assert world.counts("m").due == 1
    assert units(world.finish("m#1", {})) == ["m#0"], "what is due comes before what is new"


def test_several_items_that_are_due_go_in_order() -> None:
    world = mapping(3, max_parallel=3, retry=RetrySpec(max_retries=1, initial_delay_ms=100))
    world.advance()
    for unit in ("m#2", "m#0", "m#1"):
        world.fail(unit)

    assert units(world.pass_time(100)) == ["m#0", "m#1", "m#2"]


def test_a_lost_item_is_dispatched_again_as_the_same_attempt() -> None:
    world = mapping(2)
    world.advance()
    old = world.out["m#1"]

    assert units(world.lose("m#1")) == ["m#1"]

    item = world.item("m#1")
    assert (item.run_id, item.attempt, item.dispatches, item.lost) == (1, 1, 2, 1)
    assert world.last.revoked[0][0] == "m#1"
    world.decide(world.result_of(old, {"r": "old"}))
    assert world.counters["stale"] == 1
    assert world.counters["lost"] == 1


def test_an_item_that_is_lost_too_often_has_failed() -> None:
    world = mapping(1, keys={"limits": Limits(max_lost=1)}, on_error="continue")
    world.advance()
    world.lose("m#0")

    assert world.lose("m#0") == Complete({})
    [shown] = world["m"].output["items"]
    assert shown["ok"] is False
    assert "2 workers lost" in shown["error"]
    assert world.item("m#0").dispatches == 2


def test_an_attempt_of_an_item_has_a_deadline_of_its_own() -> None:
    world = mapping(2, timeout_s=5.0, on_error="skip", max_attempts=2)
    world.advance()
    world.decide(world.started("m#0"))

    assert world.pass_time(4_999) == Pending()
    assert units(world.pass_time(1)) == ["m#0"]
    assert world.item("m#0").attempt == 2
    world.decide(world.started("m#0"))
    assert world.pass_time(5_000) == Pending()
    error = world.item("m#0").error
    assert error is not None
    assert (error["kind"], error["message"]) == ("timeout", "execution timeout exceeded (5 s)")


def test_a_start_and_an_end_are_written_down_with_the_item() -> None:
    world = mapping(1)
    world.advance()
    world.decide(world.started("m#0"))
    world.finish("m#0", {})

    item = world.item("m#0")
    assert (item.worker, item.started_at, item.deadline_ms) == ("host-1", "2026-01-01T00:00:09Z", None)
    assert item.ended_at is not None


# ---- items that fail


def test_a_map_fails_when_the_last_item_in_flight_has_ended_and_not_before() -> None:
    world = mapping(5, max_parallel=3)
    world.advance()

    assert world.fail("m#1", "bad") == Pending(), "no new items after a fatal one"
    assert world.statuses == {"m": "in_progress"}
    assert world.finish("m#0", {}) == Pending()
    decision = world.finish("m#2", {})

    assert decision == Failed({"kind": "exception", "message": "item 1: bad", "step": "m"})
    assert len(world.jobs) == 3
    assert world.statuses == {"m": "failed"}


def test_the_first_item_in_order_that_failed_is_the_error() -> None:
    world = mapping(3)
    world.advance()
    world.fail("m#2", "late in the list")
    world.fail("m#1", "earlier in the list")

    decision = world.finish("m#0", {})

    assert isinstance(decision, Failed)
    assert decision.error["message"] == "item 1: earlier in the list"


def test_with_skip_there_is_null_where_an_item_failed() -> None:
    world = mapping(3, task("n", "m"), on_error="skip")
    world.advance()
    world.finish("m#0", {"r": 0})
    world.fail("m#1")

    assert units(world.finish("m#2", {"r": 2})) == ["n"]
    assert world["m"].output == out_of([{"r": 0}, None, {"r": 2}], errors=1)
    assert world["m"].status is StepStatus.COMPLETE
    assert world["m"].error is None


def test_with_continue_there_is_an_error_object_where_an_item_failed() -> None:
    world = mapping(2, on_error="continue")
    world.advance()
    world.fail("m#0", "bad line")

    assert world.finish("m#1", {"r": 1}) == Complete({})
    assert world["m"].output == out_of([{"ok": False, "error": "bad line"}, {"r": 1}], errors=1)


@pytest.mark.parametrize("policy", ["skip", "continue"])
def test_a_map_in_which_every_item_failed_is_complete_under_a_lenient_policy(policy: Any) -> None:
    world = mapping(2, on_error=policy)
    world.advance()
    world.fail("m#0")

    assert world.fail("m#1") == Complete({})
    assert world["m"].output["errors"] == 2


def test_an_item_whose_output_is_no_object_has_failed() -> None:
    world = mapping(1, on_error="continue", max_attempts=3)
    world.advance()

    assert world.finish("m#0", "text") == Complete({})
    error = world.item("m#0").error
    assert error is not None
    assert error["kind"] == "bad_output"


def test_an_item_whose_inputs_cannot_be_resolved_has_failed_and_the_others_run() -> None:
    world = world_of(
        map_step("m", XS, input={"v": {"/": [1, {"var": "item"}]}}, on_error="skip", max_attempts=3),
        inputs={"xs": [1, 0, 2]},
    )

    assert units(world.advance()) == ["m#0", "m#2"]
    error = world.item("m#1").error
    assert error is not None
    assert error["kind"] == "expression"
    world.finish("m#0", {})
    assert world.finish("m#2", {}) == Complete({})
    assert world["m"].output == out_of([{}, None, {}], errors=1)


def test_an_item_whose_inputs_cannot_be_resolved_stops_those_behind_it() -> None:
    world = world_of(map_step("m", XS, input={"v": {"/": [1, {"var": "item"}]}}), inputs={"xs": [1, 0, 2]})

    assert units(world.advance()) == ["m#0"]
    decision = world.finish("m#0", {})

    assert isinstance(decision, Failed)
    assert decision.error["message"].startswith("item 1: input cannot be resolved")


def test_a_map_of_which_no_item_can_be_resolved_is_over_without_a_job() -> None:
    world = world_of(
        map_step("m", XS, input={"v": {"/": [1, 0]}}, on_error="skip"), task("n", "m"), inputs={"xs": [1, 2]}
    )

    assert units(world.advance()) == ["n"]
    assert world["m"].output == out_of([None, None], errors=2)


def test_a_map_that_dies_of_its_first_item_takes_back_what_was_claimed_with_it() -> None:
    world = world_of(
        map_step("k", XS),
        map_step("m", XS, input={"v": {"/": [1, 0]}}),
        inputs={"xs": [1, 2]},
    )

    decision = world.advance()

    assert isinstance(decision, Failed)
    assert world.last.jobs == []
    assert world.statuses == {"k": "cancelled", "m": "failed"}
    assert {world.item(unit).status for unit in ("k#0", "k#1")} == {StepStatus.CANCELLED}
    assert world.record.readiness.in_flight == 0


def test_dependents_that_continue_run_although_the_map_failed() -> None:
    world = mapping(2, task("n", "m", on_error="continue", has_own_on_error=True))
    world.advance()
    world.fail("m#0")

    assert units(world.finish("m#1", {})) == ["n"]
    assert world["m"].output == {"ok": False, "error": "item 0: boom"}
    assert isinstance(world.finish("n", {}), Failed)


@pytest.mark.parametrize(
    "more", [{"max_attempts": 2}, {"retry": RetrySpec(1, 0)}, {"retry": RetrySpec(1, 50)}]
)
def test_a_map_fails_for_good_when_an_item_has_used_up_its_attempts(more: Json) -> None:
    world = mapping(1, **more)
    world.advance()
    world.fail("m#0")
    world.pass_time(50)

    decision = world.fail("m#0", "for good")
    world.pass_time(1_000)

    assert isinstance(decision, Failed)
    assert decision.error["message"] == "item 0: for good"


def test_a_rejected_aggregate_does_not_hang() -> None:
    world = mapping(2, max_attempts=2, branch=(branch({"==": [{"var": "ctx.step.attempt"}, 1]}, "retry"),))
    world.advance()
    world.finish("m#0", {})

    assert world.finish("m#1", {}) != Pending()


def test_attempts_on_any_success_do_not_hang() -> None:
    world = mapping(1, max_attempts=2, attempts_on="any")
    world.advance()

    assert world.finish("m#0", {}) != Pending()


def test_an_empty_map_that_is_rejected_until_its_attempts_are_used_up_has_failed() -> None:
    rejects = branch({"==": [{"var": "count"}, 0]}, "retry")
    world = world_of(map_step("m", XS, max_attempts=2, branch=(rejects,)), inputs={"xs": []})

    assert isinstance(world.advance(), Failed)


def test_the_last_item_in_flight_may_be_lost_after_a_fatal_one() -> None:
    world = mapping(2)
    world.advance()
    world.fail("m#0", "bad")

    decision = world.lose("m#1")

    assert isinstance(decision, Failed)
    assert decision.error["message"] == "item 0: bad"


def test_the_last_item_in_flight_may_fail_with_attempts_left_after_a_fatal_one() -> None:
    world = mapping(2, max_attempts=2)
    world.advance()
    world.fail("m#0", "bad", "bad_output")

    decision = world.fail("m#1")

    assert isinstance(decision, Failed)
    assert decision.error == {"kind": "bad_output", "message": "item 0: bad", "step": "m"}


def test_items_that_waited_for_their_next_attempt_end_with_the_map() -> None:
    world = world_of(map_step("m", XS, retry=RetrySpec(max_retries=1)), inputs={"xs": [1, 2]})
    world.advance()
    world.fail("m#0", "for good", "bad_output")

    world.fail("m#1")

    assert world.statuses == {"m": "failed"}
    assert world.armed == set()
    assert world.item("m#1").is_final


# ---- branches, output and state


def test_the_branches_see_the_aggregate_and_only_once() -> None:
    seen = branch({">": [{"var": "errors"}, 0]}, "halt", result_expr={"var": "items"})
    world = mapping(2, branch=(seen,), on_error="skip")
    world.advance()

    assert world.fail("m#0") == Pending()
    assert world.finish("m#1", {"r": 1}) == Halt([None, {"r": 1}])


def test_a_branch_may_complete_a_map_that_failed() -> None:
    world = mapping(1, branch=(branch({"==": [{"var": "ok"}, False]}, "complete"),))
    world.advance()

    assert world.fail("m#0") == Complete({})


def test_output_reshapes_every_item_and_sees_the_item() -> None:
    output = {"r": {"var": "result.raw"}, "of": {"var": "item"}, "at": {"var": "index"}}
    world = mapping(2, output=output)
    world.advance()
    world.finish("m#0", {"raw": "a"})

    world.finish("m#1", {"raw": "b"})

    assert world["m"].output["items"] == [{"r": "a", "of": 0, "at": 0}, {"r": "b", "of": 1, "at": 1}]


def test_an_output_that_cannot_be_resolved_fails_its_item() -> None:
    world = mapping(2, output={"r": {"/": [1, {"var": "result.n"}]}}, on_error="skip")
    world.advance()
    world.finish("m#0", {"n": 0})
    world.finish("m#1", {"n": 1})

    assert world["m"].output == out_of([None, {"r": 1}], errors=1)


def test_a_map_leaves_the_state_alone() -> None:
    world = mapping(1)
    world.advance()
    world.finish("m#0", {"r": 1})

    assert world.record.state == {}


def test_a_map_whose_output_names_keys_is_merged_into_the_state_as_a_whole() -> None:
    world = mapping(1, output={"r": {"var": "result.r"}})
    world.advance()
    world.finish("m#0", {"r": 1})

    assert world.record.state == out_of([{"r": 1}])


def test_a_map_whose_output_is_not_to_be_merged_is_not() -> None:
    world = mapping(1, output={"r": 1}, skip_output_mapping=True)
    world.advance()
    world.finish("m#0", {"r": 1})

    assert world.record.state == {}


# ---- set


def test_a_set_drops_all_items_and_their_jobs_and_begins_a_new_round() -> None:
    world = mapping(3, task("s", branch=(resets(True, "m"),)), max_parallel=2, retry=RetrySpec(1))
    world.advance()
    world.fail("m#0")
    before = dict(world.out)

    decision = world.finish("s", {})

    assert units(decision) == ["m#0", "m#1", "s"]
    assert [unit for unit, _ in world.last.revoked] == ["m#1", "m#2"]
    assert world.armed == set()
    assert (world["m"].round, world["m"].run_id) == (1, 2)  # above every run that an item has had
    assert (world.item("m#0").attempt, world.item("m#0").run_id) == (1, 2)
    assert {job.round for job in world.out.values() if job.step_id.startswith("m")} == {1}
    assert before["m#1"].token != world.out["m#1"].token


def test_a_set_on_a_map_that_was_complete_drops_its_items() -> None:
    world = mapping(2, task("s", "m", branch=(resets({"!": {"var": "state.again"}}, "m"),)))
    world.advance()
    world.finish("m#0", {"r": 0})
    world.finish("m#1", {"r": 1})

    world.record.inputs["xs"] = ["only"]
    decision = world.finish("s", {"again": True})

    assert units(decision) == ["m#0"]
    assert world.last.items["m#1"] is None
    assert list(world.record.items) == ["m#0"]
    assert world.inputs_of("m#0") == {"v": "only"}


def test_a_set_of_what_a_map_depends_on_drops_its_items_too() -> None:
    world = world_of(
        task("a"),
        map_step("m", {"var": "steps.a.output.xs"}, "a"),
        task("s", branch=(resets(True, "a"),)),
    )
    world.advance()
    world.finish("a", {"xs": [1, 2]})

    assert units(world.finish("s", {})) == ["a", "s"]
    assert world.record.items == {}
    assert world["m"].items is None
    assert world.statuses["m"] == "ready"


def test_the_results_of_an_older_round_are_dropped() -> None:
    world = mapping(2, task("s", branch=(resets(True, "m"),)))
    world.advance()
    old = dict(world.out)
    world.finish("s", {})

    world.decide(world.result_of(old["m#0"], {"r": "old"}))
    world.decide(world.error("m#1", job=old["m#1"]))
    world.decide(world.loss("m#1", job=old["m#1"]))

    assert world.counters["stale"] == 3
    assert {world.item(f"m#{n}").status for n in (0, 1)} == {StepStatus.IN_PROGRESS}


def test_the_result_of_an_item_that_is_no_more_is_dropped() -> None:
    world = mapping(2, task("s", branch=(resets(True, "m"),)))
    world.advance()
    old = dict(world.out)
    world.record.inputs["xs"] = [1]
    world.finish("s", {})

    assert world.decide(world.result_of(old["m#1"], {"r": "old"})) == Pending()
    assert (
        world.decide(world.result_of(old["m#0"].__class__(**_fields(old["m#0"], step_id="m#77")), {}))
        == Pending()
    )
    assert world.counters["stale"] == 2


def _fields(job: DispatchJob, **changes: Any) -> Json:
    return {**{name: getattr(job, name) for name in job.__slots__}, **changes}


def test_a_map_that_resets_itself_goes_round_until_it_is_content() -> None:
    again = resets({">": [{"var": "errors"}, 0]}, "m")
    world = mapping(2, branch=(again,), on_error="skip")
    world.advance()
    world.fail("m#0")

    assert units(world.finish("m#1", {})) == ["m#0", "m#1"]
    world.finish("m#0", {})
    assert world.finish("m#1", {}) == Complete({})
    assert world["m"].run_id == world["m"].round == 1


def test_a_duplicate_of_a_result_counts_once() -> None:
    world = mapping(2)
    world.advance()
    result = world.result("m#0", {"r": 0})

    world.decide(result, result)
    world.decide(result)

    assert world.counters["stale"] == 2
    assert world.counts("m").settled == 1


def test_a_timer_of_an_older_attempt_is_stale() -> None:
    world = mapping(1, retry=RetrySpec(max_retries=1, initial_delay_ms=100))
    world.advance()
    world.fail("m#0")
    [timer] = world.armed
    world.pass_time(100)

    world.decide(world.timer_event(timer))

    assert world.counters["stale"] == 1


# ---- the end of the workflow


def test_a_halt_cancels_the_items_that_are_out() -> None:
    stop = task("s", branch=(branch(True, "halt", result={"why": "enough"}),))
    world = mapping(4, stop, max_parallel=3, retry=RetrySpec(1))
    world.advance()
    world.finish("m#0", {})
    world.fail("m#1")
    tokens = {unit: world.out[unit].token for unit in ("m#2", "m#3")}

    decision = world.finish("s", {})

    assert decision == Halt({"why": "enough"})
    assert {unit: step.token for unit, step in world.last.revoked} == tokens
    assert world.statuses == {"m": "cancelled", "s": "halted"}
    assert [str(world.item(f"m#{n}").status) for n in range(4)] == ["complete", *["cancelled"] * 3]
    assert world.armed == set()


def test_a_failure_cancels_the_items_and_drops_what_was_claimed_in_the_same_decision() -> None:
    world = mapping(3, task("s"), max_parallel=1)
    world.advance()

    decision = world.decide(world.result("m#0", {}), world.error("s"))

    assert isinstance(decision, Failed)
    assert world.last.jobs == []
    assert world.statuses == {"m": "cancelled", "s": "failed"}
    assert world.out == {}


def test_a_result_after_the_end_is_late() -> None:
    world = mapping(2, task("s"))
    world.advance()
    late = world.result("m#0", {})
    world.fail("s")

    assert isinstance(world.decide(late), Failed)
    assert world.counters["late"] == 1
    assert world.item("m#0").output is None


# ---- what it costs


@pytest.mark.parametrize("failing", [False, True])
def test_an_item_costs_the_same_in_a_short_and_in_a_long_list(
    monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    assert _calls_per_item(monkeypatch, 100, failing) == _calls_per_item(monkeypatch, 1_000, failing)


def _calls_per_item(monkeypatch: pytest.MonkeyPatch, n: int, failing: bool) -> int:
    """How often a record of a unit is read to decide upon one item, in the middle of the list."""
    world = world_of(
        map_step("m", XS, max_parallel=10, max_attempts=2),
        wait_step("w", "never"),
        inputs={"xs": list(range(n))},
        checked=False,
    )
    world.advance()
    for at in range(n // 2):
        world.finish(f"m#{at}", {"r": at})
    calls: Counter[str] = Counter()
    for name in ("unit", "step", "spec", "_put"):
        _count_calls(monkeypatch, name, calls)
    if failing:
        world.fail(f"m#{n // 2}")
    else:
        world.finish(f"m#{n // 2}", {"r": 1})
    monkeypatch.undo()
    assert len(world.last.items) <= 2
    return calls.total()


@pytest.mark.untraced
def test_an_item_costs_the_same_however_many_others_are_due() -> None:
    """All of them have failed once, and wait for room in the middle of a long list."""
    assert _written_per_item(100) == pytest.approx(_written_per_item(1_000), rel=0.02)


def _written_per_item(n: int) -> float:
    """How many characters of records are written for an item that completes while most others are due."""
    later = RetrySpec(max_retries=1, initial_delay_ms=60_000)
    world = world_of(
        map_step("m", XS, max_parallel=10, retry=later), inputs={"xs": [7] * n}, checked=False, outputs={}
    )
    world.advance()
    while world.out:
        world.fail(next(iter(world.out)))
    world.pass_time(60_000)
    assert world.counts("m").due == n - 10
    written = 0
    for unit in list(world.out):
        world.finish(unit, {})
        changed = [*world.last.steps.values(), *world.last.items.values()]
        written += sum(len(json.dumps(one.as_dict())) for one in changed if one is not None)
    check(world)
    return written / 10


def _count_calls(monkeypatch: pytest.MonkeyPatch, name: str, calls: Counter[str]) -> None:
    method: Callable[..., Any] = getattr(Draft, name)

    def counting(self: Draft, *args: Any, **keys: Any) -> Any:
        calls[name] += 1
        return method(self, *args, **keys)

    monkeypatch.setattr(Draft, name, counting)


# ---- after a reload


def test_a_map_goes_on_in_another_process_as_it_would_have_in_this_one() -> None:
    world = mapping(6, task("n", "m"), max_parallel=2, max_attempts=2, on_error="continue")
    world.advance()
    script = ["finish", "fail", "lose", "finish", "fail", "fail"]

    for what in [*script, *["finish"] * 8]:
        if not world.out:
            break
        job = next(iter(world.out.values()))
        event: StepEvent = world.result_of(job, {})
        if what != "finish":
            event = world.error(job.step_id) if what == "fail" else world.loss(job.step_id)
        kept = world.record
        world.reload()
        there = decide(world.record, [event], world.moment())
        world.record, world._moments = kept, world._moments - 1
        here = world.decide(event)
        assert (there.decision, there.changes.steps) == (here, world.last.steps)
        assert there.changes.items == world.last.items

    assert world.statuses == {"m": "complete", "n": "complete"}


def test_the_idempotency_key_of_an_item_survives_attempts_and_losses_but_not_a_set() -> None:
    world = mapping(2, task("s", branch=(resets(True, "m"),)), max_attempts=2)
    world.advance()
    world.fail("m#1")
    world.lose("m#1")
    world.finish("s", {})

    keys = [job.idempotency_key for job in world.jobs if job.step_id == "m#1"]

    assert keys == ["x1#m#0#1"] * 3 + ["x1#m#1#1"]


def test_the_history_tells_of_every_item() -> None:
    world = mapping(1, max_attempts=2, on_error="skip")
    world.advance()
    world.fail("m#0")
    world.fail("m#0")

    moves = [(one["from"], one["to"]) for one in world.history if one.get("step") == "m#0"]

    assert moves == [
        ("ready", "in_progress"),
        ("in_progress", "retry"),
        ("retry", "in_progress"),
        ("in_progress", "failed"),
    ]


def test_an_error_of_an_item_keeps_its_details() -> None:
    world = mapping(1)
    world.advance()
    job = world.out["m#0"]

    decision = run_one(world, job, lambda _: _raise(ValueError("deep")))

    assert isinstance(decision, Failed)
    assert decision.error == {**make_failure("exception", "item 0: deep"), "step": "m"}


def _raise(error: Exception) -> Any:
    raise error


# ---- a map that has its result while others are dispatched beside it


def test_an_empty_map_that_halts_keeps_those_after_it_from_running() -> None:
    world = world_of(map_step("m", [], branch=(branch(True, "halt", result="nothing to do"),)), task("b"))

    assert world.advance() == Halt("nothing to do")

    assert world.statuses == {"m": "halted", "b": "ready"}


def test_a_map_whose_items_cannot_be_given_inputs_fails_before_those_after_it_run() -> None:
    world = world_of(map_step("m", [1], input={"x": BROKEN}), task("b"))

    assert isinstance(world.advance(), Failed)

    assert world.statuses == {"m": "failed", "b": "skipped"}


def test_an_empty_map_may_reset_those_after_it() -> None:
    first_time = {"<": [{"var": "ctx.step.run_id"}, 1]}
    world = world_of(task("p"), map_step("m", [], "p", branch=(resets(first_time, "p"),)), task("d", "p"))
    world.advance()

    assert units(world.finish("p", {})) == ["p"], "d waits for the second round of p"

    assert units(world.finish("p", {})) == ["d"]
    assert world.finish("d", {}) == Complete({})


def test_an_empty_map_may_reset_what_was_dispatched_a_moment_before() -> None:
    first_time = {"<": [{"var": "ctx.step.run_id"}, 1]}
    world = world_of(
        task("a"), map_step("m1", []), map_step("m2", [], "m1", branch=(resets(first_time, "a"),))
    )

    decision = world.advance()

    assert isinstance(decision, Dispatch)
    assert [(job.step_id, job.run_id) for job in decision.jobs] == [("a", 1)], "its first job is not sent"


def test_room_that_a_map_does_not_use_is_given_to_the_next() -> None:
    world = world_of(
        map_step("m", [1], input={"x": BROKEN}, on_error="continue"),
        map_step("n", [1], input={"x": BROKEN}, on_error="continue"),
        task("b"),
        max_workers=1,
    )

    assert units(world.advance()) == ["b"]

    assert world.statuses == {"m": "complete", "n": "complete", "b": "in_progress"}


def test_room_that_a_map_under_way_does_not_use_is_given_to_the_next() -> None:
    breaks = {"x": {"if": [{"==": [{"var": "index"}, 1]}, BROKEN, 1]}}
    world = world_of(
        map_step("m", [1, 2], input=breaks), task("b"), task("d", "m b", on_error="continue"), max_workers=1
    )
    world.advance()

    assert units(world.finish("m#0", {})) == ["b"]

    assert world.statuses == {"m": "failed", "b": "in_progress", "d": "ready"}
