"""The rulings on hard cases of the language; the number of a ruling is in the names of its tests."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from coreworld import Json, document, essence, step
from language.stage import RedisStage, Stage
from language.written import NO, branches, halts, jobless, resets, skips
from orchestrator.application.errors import StartRefused
from orchestrator.application.events import Moment, iso
from orchestrator.application.transitions import on_step_result

# ---- 1: join n and join expr


def joined(join: Any, *parents: Json, **keys: Any) -> Json:
    """A step `j` below these parents."""
    names = " ".join(parent["op"] for parent in parents)
    return document(*parents, step("j", names, join=join, **keys))


def test_ruling_01_a_join_of_n_runs_as_soon_as_n_parents_are_ok(stage: Stage) -> None:
    stage.start(joined(2, step("a"), step("b", on_error="continue"), step("c")))
    stage.finish("c", {})
    assert stage.statuses["j"] == "ready"

    stage.fail("b")  # ok by the edge rule: it says continue

    assert stage.statuses == {"a": "in_progress", "b": "failed", "c": "complete", "j": "in_progress"}
    stage.finish("a", {})
    assert stage.executions_of("j") == 1


def test_ruling_01_a_join_of_n_that_cannot_be_reached_is_skipped_at_once(stage: Stage) -> None:
    stage.start(joined(2, step("a", **skips()), step("b", when=NO), step("c")))
    assert stage.statuses["j"] == "ready"

    stage.finish("a", {"skip": True})

    assert stage.statuses == {"a": "skipped", "b": "filtered", "c": "in_progress", "j": "skipped"}


def test_ruling_01_a_join_of_n_that_cannot_be_reached_is_filtered_if_the_rest_are_soft(stage: Stage) -> None:
    stage.start(joined(2, step("a"), step("b", when=NO), step("c", when=NO)))

    assert stage.statuses == {"a": "in_progress", "b": "filtered", "c": "filtered", "j": "filtered"}
    assert stage["j"].reason == "its join can no longer be met"


def is_complete(*names: str) -> Any:
    return {"or": [{"==": [{"var": f"ctx.status.{name}"}, "complete"]} for name in names]}


def test_ruling_01_a_join_expression_is_evaluated_whenever_a_parent_settles(stage: Stage) -> None:
    stage.start(joined(is_complete("b", "c"), step("a"), step("b"), step("c")))
    stage.finish("a", {})
    assert stage.statuses["j"] == "ready"

    stage.finish("c", {})

    assert (stage.statuses["b"], stage.statuses["j"]) == ("in_progress", "in_progress")


def test_ruling_01_a_join_expression_that_is_false_when_all_parents_are_final_skips(stage: Stage) -> None:
    stage.start(joined(is_complete("b"), step("a"), step("b", when=NO)))
    assert stage.statuses["j"] == "ready"

    stage.finish("a", {})

    assert (stage.statuses["j"], stage.status) == ("skipped", "complete")


@pytest.mark.parametrize(("join", "waits"), [("any", True), (1, False)])
def test_ruling_01_any_waits_until_all_parents_are_final_and_1_does_not(
    stage: Stage, join: Any, waits: bool
) -> None:
    stage.start(joined(join, step("a"), step("b")))

    stage.finish("a", {})
    assert stage.statuses["j"] == ("ready" if waits else "in_progress")

    stage.finish("b", {})
    assert (stage.statuses["j"], stage.executions_of("j")) == ("in_progress", 1)


@pytest.mark.parametrize("join", ["any", "done", 1, is_complete("b")])
def test_ruling_01_join_never_prevents_a_stop(stage: Stage, join: Any) -> None:
    stage.start(joined(join, step("a"), step("b")))

    stage.fail("a")

    assert (stage.status, stage.error["step"]) == ("failed", "a")
    assert stage.statuses == {"a": "failed", "b": "cancelled", "j": "skipped"}


def test_ruling_01_a_finally_step_needs_continue_on_what_it_guards(stage: Stage) -> None:
    stage.start(joined("done", step("a", on_error="continue"), step("b", **skips()), step("c", when=NO)))

    stage.fail("a")
    assert stage.statuses["j"] == "ready"
    stage.finish("b", {"skip": True})

    assert stage.statuses == {"a": "failed", "b": "skipped", "c": "filtered", "j": "in_progress"}
    stage.finish("j", {})
    assert stage.status == "complete"


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


# ---- 6: wait any


ANY: Json = {"any": [{"signal": "approve"}, {"signal": "reject"}, {"timeout": "24h"}]}


def test_ruling_06_the_earliest_buffered_signal_wins_and_the_others_stay(stage: Stage) -> None:
    stage.start(
        document(step("a"), jobless("w", "a", wait=ANY), jobless("v", "w", wait={"signal": "approve"}))
    )
    stage.signal("other", {"n": 0})
    stage.signal("reject", {"n": 1})
    stage.signal("approve", {"n": 2})

    stage.finish("a", {})

    assert stage["w"].output == {"event": "reject", "n": 1}
    assert stage["v"].output == {"n": 2}
    assert [signal["name"] for signal in stage.record.signals] == ["other"]


def test_ruling_06_the_event_beats_a_key_of_that_name(stage: Stage) -> None:
    stage.start(document(jobless("w", wait=ANY)))

    stage.signal("approve", {"event": "forged", "n": 1})

    assert stage["w"].output == {"event": "approve", "n": 1}


def test_ruling_06_a_timeout_is_an_event_and_no_failure(stage: Stage) -> None:
    hours = {"any": [{"signal": "approve"}, {"timeout": "12h"}]}
    stage.start(document(jobless("w", wait=hours)))
    stage.pass_time("11h")
    assert stage["w"].status == "waiting"

    stage.pass_time("1h")

    assert (stage["w"].output, stage["w"].error) == ({"event": "timeout"}, None)
    assert stage.status == "complete"


def test_ruling_06_two_waits_on_one_name_have_it_in_spec_order(stage: Stage) -> None:
    stage.start(document(step("a"), jobless("x", "a", wait=ANY), jobless("y", wait={"signal": "approve"})))
    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "x": "waiting", "y": "waiting"}

    stage.signal("approve", {"n": 1})
    assert stage.statuses == {"a": "complete", "x": "complete", "y": "waiting"}
    stage.signal("approve", {"n": 2})

    assert (stage["x"].output, stage["y"].output) == ({"event": "approve", "n": 1}, {"n": 2})


def test_ruling_06_signals_to_an_execution_that_is_not_there_yet_move_into_its_record(
    redis_stage: RedisStage,
) -> None:
    for n in range(3):
        redis_stage.signal("approve", {"n": n}, execution="order-42")

    redis_stage.start(document(jobless("w", wait=ANY), step("a")), execution_id="order-42")

    assert redis_stage["w"].output == {"event": "approve", "n": 0}
    assert [signal["payload"] for signal in redis_stage.record.signals] == [{"n": 1}, {"n": 2}]
    redis_stage.start(document(jobless("w", wait=ANY)), execution_id="order-43")
    assert redis_stage["w"].status == "waiting"


# ---- 7: capacity


def test_ruling_07_a_due_deferred_step_without_capacity_stays_deferred_in_spec_order(stage: Stage) -> None:
    stage.start(
        document(
            step("first", defer_ms=1000),
            step("busy"),
            step("second"),
            runner={"max_workers": 1},
        )
    )
    assert stage.statuses == {"first": "deferred", "busy": "in_progress", "second": "ready"}

    stage.pass_time("1s")
    assert (stage.statuses["first"], stage["first"].wake_at_ms) == ("deferred", None)

    stage.finish("busy", {})
    assert stage.statuses == {"first": "in_progress", "busy": "complete", "second": "ready"}


def test_ruling_07_waiting_and_deferred_steps_take_no_capacity(stage: Stage) -> None:
    stage.start(
        document(
            jobless("waiting", wait={"signal": "go"}),
            jobless("delayed", delay="60s"),
            step("deferred", defer_ms=60_000),
            step("runs"),
            runner={"max_workers": 1},
        )
    )

    assert stage.statuses == {
        "waiting": "waiting",
        "delayed": "deferred",
        "deferred": "deferred",
        "runs": "in_progress",
    }


def test_ruling_07_retry_back_off_gives_back_its_place(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("a", retry=retry), step("b"), step("c"), runner={"max_workers": 1}))

    stage.fail("a")
    assert stage.statuses == {"a": "retry", "b": "in_progress", "c": "ready"}

    stage.pass_time("1s")
    assert stage.statuses == {"a": "retry", "b": "in_progress", "c": "ready"}

    stage.finish("b", {})
    assert stage.statuses == {"a": "in_progress", "b": "complete", "c": "ready"}


# ---- 10: loss and time


def test_ruling_10_lease_and_deadline_both_past_is_a_timeout_and_then_a_retry(stage: Stage) -> None:
    retry = {"max_retries": 1, "initial_delay_ms": 1000}
    stage.start(document(step("a", timeout="60s", retry=retry)))
    stage.report_started("a")

    stage.lose("a", after="61s")

    assert (stage["a"].status, stage["a"].attempt, stage.error_kind("a")) == ("retry", 2, "timeout")
    assert stage["a"].lost == 0
    stage.pass_time("1s")
    stage.report_started("a")
    stage.lose("a", after="61s")
    assert (stage.status, stage.error["kind"], stage.executions_of("a")) == ("failed", "timeout", 2)


def test_ruling_10_a_lease_that_is_past_before_the_deadline_is_a_loss(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s")))
    stage.report_started("a")

    stage.lose("a", after="30s")

    assert (stage["a"].status, stage["a"].run_id, stage["a"].attempt) == ("in_progress", 1, 1)
    assert (stage["a"].lost, stage.deadline_in("a"), stage["a"].error) == (1, None, None)


def test_ruling_10_max_lost_counts_per_attempt(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=2), limits={"max_lost": 2}))

    for attempt in (1, 2):
        for _ in range(2):
            stage.lose("a")
            assert (stage["a"].status, stage["a"].attempt) == ("in_progress", attempt)
        stage.lose("a")

    assert (stage.status, stage.error["kind"]) == ("failed", "lost")
    assert (stage.executions_of("a"), stage.counter("lost")) == (6, 6)


def test_ruling_10_now_is_the_time_of_the_stream_entry(stage: Stage) -> None:
    times = {"ctx": {"var": "ctx.now"}, "now": {"time.now": []}, "began": {"var": "ctx.workflow.started_at"}}
    stage.start(document(step("a", input=times), step("b", "a", input=times), outputs=times))
    began = stage.now
    assert stage.out["a"].inputs == {"ctx": began, "now": began, "began": began}

    stage.pass_time("90m")
    stage.finish("a", {})
    assert stage.out["b"].inputs == {"ctx": stage.now, "now": stage.now, "began": began}
    assert stage["a"].ended_at == stage.now

    stage.pass_time("1s")
    stage.finish("b", {})
    assert stage.outcome == {"ctx": stage.now, "now": stage.now, "began": began}
    assert stage.now == iso(stage.now_ms) != began


# ---- 11: on_error that is written


@pytest.mark.parametrize("where", ["defaults", "runner"])
@pytest.mark.parametrize(
    ("policy", "parent", "child"), [("continue", "failed", "in_progress"), ("skip", "skipped", "skipped")]
)
def test_ruling_11_defaults_and_runner_feed_the_last_rule(
    stage: Stage, where: str, policy: str, parent: str, child: str
) -> None:
    keys: Json = {where: {"on_error": policy}}
    stage.start(document(step("p"), step("d", "p"), step("other"), **keys))

    stage.fail("p")

    assert stage.statuses == {"p": parent, "d": child, "other": "in_progress"}


def test_ruling_11_a_default_of_fail_is_not_written_and_does_not_veto(stage: Stage) -> None:
    stage.start(document(step("p"), step("d", "p", on_error="continue"), defaults={"on_error": "fail"}))

    stage.fail("p")

    assert (stage.status, stage.statuses) == ("in_progress", {"p": "failed", "d": "in_progress"})
    stage.finish("d", {})
    assert (stage.status, stage.error["step"]) == ("failed", "p")


def test_ruling_11_a_default_of_continue_is_not_written_by_the_dependent(stage: Stage) -> None:
    """The failing step wrote skip; the dependent wrote nothing, so it does not speak for itself."""
    stage.start(document(step("p", on_error="skip"), step("d", "p"), defaults={"on_error": "continue"}))

    stage.fail("p")

    assert stage.statuses == {"p": "skipped", "d": "skipped"}


def with_dead_child(*others: Json, **policy: Any) -> Json:
    """`dead` depends on p, and is skipped before p has ended; alone it would leave the say to p."""
    return document(step("p", **policy), step("s", **skips()), step("dead", "p s"), *others)


def test_ruling_11_only_dependents_that_are_not_final_are_asked(stage: Stage) -> None:
    stage.start(with_dead_child(step("d", "p", on_error="continue")))
    stage.finish("s", {"skip": True})
    assert stage.statuses["dead"] == "skipped"

    stage.fail("p")

    assert (stage.status, stage.statuses["p"], stage.statuses["d"]) == (
        "in_progress",
        "failed",
        "in_progress",
    )


@pytest.mark.parametrize(("policy", "end"), [(None, "failed"), ("continue", "complete")])
def test_ruling_11_if_no_dependent_is_left_the_failing_step_decides(
    stage: Stage, policy: str | None, end: str
) -> None:
    stage.start(with_dead_child(**({} if policy is None else {"on_error": policy})))
    stage.finish("s", {"skip": True})

    stage.fail("p")

    assert (stage.status, stage.statuses["p"], stage.statuses["dead"]) == (end, "failed", "skipped")


# ---- 12: implicit dependencies


READERS: dict[str, Json] = {
    "required": step("r", required=["steps.a.output.n"]),
    "switch": jobless("r", switch={"on": {"var": "steps.a.output.n"}, "cases": {"1": []}, "default": []}),
    "join": step("r", join={"==": [{"var": "steps.a.output.n"}, 1]}),
    "flows": step("r", input={"x": {"var": "flows.a.n"}}),
    "nested": step("r", input={"x": {"y": [{"+": [{"var": "steps.a.output.n"}, 1]}]}}),
    "when": step("r", when={"==": [{"var": "steps.a.output.n"}, 1]}),
    "map": step("r", map={"over": {"vars": "steps.a.output.n"}}),
}


@pytest.mark.parametrize("where", READERS)
def test_ruling_12_what_a_step_reads_it_waits_for(stage: Stage, where: str) -> None:
    stage.start(document(READERS[where], step("a")))
    assert stage.statuses == {"r": "ready", "a": "in_progress"}

    stage.finish("a", {"n": 1})

    assert stage.statuses["r"] == ("complete" if where == "switch" else "in_progress")


def test_ruling_12_a_top_level_reference_is_the_whole_value_of_an_input_key(stage: Stage) -> None:
    reference = {"var": "steps.b.output.n"}
    for value in ({"n": reference}, [reference], {"!": reference}, {"var": ["steps.b.output.n", 0]}):
        stage.start(document(step("a", input={"x": value}), step("b", "a")))
        assert stage.statuses == {"a": "in_progress", "b": "ready"}

    with pytest.raises(StartRefused) as refused:
        stage.start(document(step("a", input={"x": reference}), step("b", "a")))
    assert [problem["code"] for problem in refused.value.problems] == ["cycle"]


def test_ruling_12_a_descendant_is_one_by_declared_edges(stage: Stage) -> None:
    """c reads b, which makes it wait for b; but only depends_on makes it a descendant: a waits for c."""
    nested = [{"var": "steps.c.output.n"}]
    stage.start(
        document(step("a", input={"x": nested}), step("b"), step("c", input={"y": {"var": "steps.b.output"}}))
    )
    assert stage.statuses == {"a": "ready", "b": "in_progress", "c": "ready"}

    stage.finish("b", {})
    stage.finish("c", {"n": 3})

    assert stage.out["a"].inputs == {"x": [3]}


def test_ruling_12_a_cycle_of_implicit_edges_only_is_an_error(stage: Stage) -> None:
    with pytest.raises(StartRefused) as refused:
        stage.start(
            document(
                step("a", input={"x": [{"var": "steps.b.output.n"}]}),
                step("b", input={"x": [{"var": "steps.a.output.n"}]}),
            )
        )

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("cycle", "steps[0].input.x")
    assert "a -> b -> a" in problem["message"]


# ---- 13: state


def test_ruling_13_outputs_of_switch_delay_and_map_stay_out_of_the_state(stage: Stage) -> None:
    stage.start(
        document(
            jobless("s", switch={"on": {"var": "input.k"}, "cases": {"x": []}}),
            jobless("d", delay="1s"),
            step("m", map={"over": [1]}),
            step("e", map={"over": []}),
        ),
        {"k": "x"},
    )
    stage.finish("m#0", {"n": 1})
    stage.pass_time("1s")

    assert (stage.status, stage["s"].output) == ("complete", {"branch": "x"})
    assert stage.state == {}


def test_ruling_13_outputs_of_switch_delay_and_map_are_merged_if_output_names_keys(stage: Stage) -> None:
    switch = {"on": {"var": "input.k"}, "cases": {"x": []}}
    stage.start(
        document(
            jobless("s", switch=switch, output={"took": {"var": "result.branch"}}),
            jobless("d", delay="1s", output={"rested": True}),
            step("m", map={"over": [1]}, output={"n": {"var": "result.n"}}),
        ),
        {"k": "x"},
    )
    stage.finish("m#0", {"n": 7, "more": 8})
    stage.pass_time("1s")

    aggregate = {"items": [{"n": 7}], "count": 1, "errors": 0}
    assert (stage.status, stage.state) == ("complete", {"took": "x", "rested": True, **aggregate})


# ---- 14: batches


def test_ruling_14_the_results_of_a_batch_are_applied_in_order(stage: Stage) -> None:
    stage.start(document(step("a"), step("b"), step("c", "a b", input={"k": {"var": "state.k"}})))

    stage.deliver(stage.result("b", {"k": "b"}), stage.result("a", {"k": "a"}))

    assert (stage.state, stage.out["c"].inputs) == ({"k": "a"}, {"k": "a"})
    assert [entry["step"] for entry in stage.history if entry.get("to") == "complete"] == ["b", "a"]


def test_ruling_14_a_batch_advances_once(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", **halts({})), step("c", "a")))

    stage.deliver(stage.result("a", {}), stage.result("b", {}))

    assert stage.statuses == {"a": "complete", "b": "halted", "c": "ready"}
    assert stage.executions_of("c") == 0


# ---- 15: the idempotency key


def test_ruling_15_the_idempotency_key_survives_retries_and_losses_and_changes_with_a_set(
    stage: Stage,
) -> None:
    doc = document(step("a", max_attempts=3), step("judge", **resets("a")))
    stage.start(doc, execution_id="x1")
    keys = [stage.key_of(stage.out["a"])]
    stage.fail("a")
    keys.append(stage.key_of(stage.out["a"]))
    stage.lose("a")
    keys.append(stage.key_of(stage.out["a"]))
    assert (keys, stage.run_ids["a"]) == (["x1#a#0"] * 3, 2)

    stage.finish("judge", {"again": True})

    assert (stage.key_of(stage.out["a"]), stage.run_ids["a"], stage["a"].round) == ("x1#a#1", 3, 1)


def test_ruling_15_the_idempotency_key_names_item_and_iteration(stage: Stage) -> None:
    loop = {"max_iterations": 5}
    stage.start(
        document(
            step("m", map={"over": ["x", "y"]}, loop=loop), step("l", loop=loop), step("n", map={"over": [1]})
        ),
        execution_id="x1",
    )
    found = {unit: stage.key_of(job) for unit, job in stage.out.items()}
    assert found == {"m#0": "x1#m#0#0#0", "m#1": "x1#m#0#1#0", "l": "x1#l#0#0", "n#0": "x1#n#0#0"}

    stage.finish("m#1", {"_loop": "again", "value": {}})
    stage.finish("l", {"_loop": "again", "value": {}})

    assert stage.key_of(stage.out["m#1"]) == "x1#m#0#1#1"
    assert stage.key_of(stage.out["l"]) == "x1#l#0#1"


# ---- 16: jitter


RETRY_WITH_JITTER = {"max_retries": 3, "initial_delay_ms": 10_000, "jitter_fraction": 0.5}


def test_ruling_16_jitter_follows_from_the_dispatch_and_not_from_chance(stage: Stage) -> None:
    stage.start(document(*(step(f"s{n}", retry=RETRY_WITH_JITTER) for n in range(4))))
    expected = []
    for n in range(4):
        told = [
            on_step_result(stage.record, stage.error_of(f"s{n}"), Moment(stage.now_ms, nonce))[0]
            for nonce in ("one process", "another")
        ]
        [delay_ms] = {changes.steps[f"s{n}"].not_before_ms for changes in told}
        expected.append(delay_ms)

    for n in range(4):
        stage.fail(f"s{n}")

    delays = [stage[f"s{n}"].not_before_ms for n in range(4)]
    assert delays == expected
    assert all(10_000 <= (delay or 0) - stage.now_ms <= 15_000 for delay in delays)
    assert len(set(delays)) == 4, "they are spread"


# ---- 17: strings are no conditions


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"when": "len(x) > 0"}, "steps[0].when"),
        (
            {"filters": {"operator": "AND", "filters": [{"expression": "len(x) > 0"}]}},
            "steps[0].filters.filters[0].expression",
        ),
        (branches("len(x) > 0", "complete"), "steps[0].branch[0].condition"),
    ],
)
def test_ruling_17_strings_are_no_conditions(stage: Stage, keys: Json, path: str) -> None:
    with pytest.raises(StartRefused) as refused:
        stage.start(document(step("a", **keys)))

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("bad_type", path)


# ---- 19: order independence


WITHOUT_RACES = document(
    step("a", on_error="skip", max_attempts=2),
    step("b", **skips()),
    step("m", map={"over": [1, 2]}, on_error="continue"),
    step("ab", "a b", join="any", input={"a": {"var": "steps.a.output.a"}}),
    step("bm", "b m", join="done", input={"m": {"var": "steps.m.output"}}),
    step("never", "b"),
    outputs={"all": {"vars": "steps[*].output"}},
)
ENDS: dict[str, Any] = {
    "a": {"a": 1},
    "b": {"skip": True},
    "m#0": {"m": 0},
    "m#1": None,
    "ab": {"ab": 1},
    "bm": {"bm": 1},
}


def test_ruling_19_without_races_the_order_of_results_does_not_matter(stage: Stage) -> None:
    ends: list[Json] = []
    for order in permutations(["a", "b", "m#0", "m#1"]):
        stage.start(WITHOUT_RACES)
        stage.fail("a", "the first attempt")
        for unit in order:
            stage.finish(unit, ENDS[unit]) if unit != "m#1" else stage.fail(unit, "a bad item")
        for unit in [unit for unit in ("bm", "ab") if unit in stage.out]:
            stage.finish(unit, ENDS[unit])
        assert stage.status == "complete"
        ends.append(essence(stage.record))

    assert all(end == ends[0] for end in ends)
