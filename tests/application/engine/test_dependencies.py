"""What parents that ended in different ways mean for the step below them: on_error, filters and joins."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed, Pending
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.spec.model import StepSpec
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import BROKEN, branch, task

NO: Any = {"==": [1, 2]}
SKIPS = (branch({"var": "skip"}, "skip"),)


def is_complete(step_id: str) -> Any:
    return {"==": [{"var": f"ctx.status.{step_id}"}, "complete"]}


# ---- all joins over all ends of a parent

# How a parent ends: complete, filtered, skipped by a branch, failed under continue, failed under skip, or
# it is still running.
COMPLETE, FILTERED, SKIPPED, TOLERATED, SWALLOWED, RUNNING = "CFSTWR"


def parent(name: str, end: str) -> StepSpec:
    if end == FILTERED:
        return task(name, guards=(NO,))
    if end in (TOLERATED, SWALLOWED):
        return task(name, on_error="continue" if end == TOLERATED else "skip")
    return task(name, branch=SKIPS)


def below(ends: str, join: Any, order: tuple[int, ...] | None = None, **keys: Any) -> EngineWorld:
    """A step `j` below parents p0, p1, ... that have ended so, one after the other."""
    names = [f"p{n}" for n in range(len(ends))]
    world = world_of(
        *(parent(name, end) for name, end in zip(names, ends, strict=True)),
        task("j", after=names, join=join, **keys),
    )
    world.advance()
    for n in order or range(len(ends)):
        match ends[n]:
            case "C":
                world.finish(names[n], {"n": n})
            case "S":
                world.finish(names[n], {"skip": True})
            case "T" | "W":
                world.fail(names[n])
    return world


RUNS, SKIP, SOFT, WAITS = "in_progress", "skipped", "filtered", "ready"
JOINS = ("all", "any", "done", 1, 2, 3)
TABLE = [
    # ends   all    any    done   1      2      3
    ("C", (RUNS, RUNS, RUNS, RUNS)),
    ("F", (SOFT, SOFT, RUNS, SOFT)),
    ("S", (SKIP, SKIP, RUNS, SKIP)),
    ("T", (RUNS, RUNS, RUNS, RUNS)),
    ("W", (SKIP, SKIP, RUNS, SKIP)),
    ("R", (WAITS, WAITS, WAITS, WAITS)),
    ("CC", (RUNS, RUNS, RUNS, RUNS, RUNS)),
    ("CF", (RUNS, RUNS, RUNS, RUNS, SOFT)),
    ("CS", (SKIP, RUNS, RUNS, RUNS, SKIP)),
    ("CT", (RUNS, RUNS, RUNS, RUNS, RUNS)),
    ("CW", (SKIP, RUNS, RUNS, RUNS, SKIP)),
    ("CR", (WAITS, WAITS, WAITS, RUNS, WAITS)),
    ("FF", (SOFT, SOFT, RUNS, SOFT, SOFT)),
    ("FS", (SKIP, SKIP, RUNS, SKIP, SOFT)),
    ("FT", (RUNS, RUNS, RUNS, RUNS, SOFT)),
    ("FW", (SKIP, SKIP, RUNS, SKIP, SOFT)),
    ("FR", (WAITS, WAITS, WAITS, WAITS, SOFT)),
    ("SS", (SKIP, SKIP, RUNS, SKIP, SKIP)),
    ("SR", (SKIP, WAITS, WAITS, WAITS, SKIP)),
    ("WR", (SKIP, WAITS, WAITS, WAITS, SKIP)),
    ("TT", (RUNS, RUNS, RUNS, RUNS, RUNS)),
    ("RR", (WAITS, WAITS, WAITS, WAITS, WAITS)),
    ("CCR", (WAITS, WAITS, WAITS, RUNS, RUNS, WAITS)),
    ("CFR", (WAITS, WAITS, WAITS, RUNS, WAITS, SOFT)),
    ("CSR", (SKIP, WAITS, WAITS, RUNS, WAITS, SKIP)),
    ("CFS", (SKIP, RUNS, RUNS, RUNS, SKIP, SOFT)),
    ("CCF", (RUNS, RUNS, RUNS, RUNS, RUNS, SOFT)),
    ("CCC", (RUNS, RUNS, RUNS, RUNS, RUNS, RUNS)),
    ("TCW", (SKIP, RUNS, RUNS, RUNS, RUNS, SKIP)),
]


@pytest.mark.parametrize(
    ("ends", "join", "expected"),
    [
        pytest.param(ends, join, status, id=f"{ends}-{join}")
        for ends, row in TABLE
        for join, status in zip(JOINS, row, strict=False)
    ],
)
def test_a_join_does_what_the_table_says(ends: str, join: Any, expected: str) -> None:
    # A filtered parent is so from the start: a number that its absence makes unreachable is filtered then,
    # even if another parent is skipped later.
    world = below(ends, join)

    assert world.statuses["j"] == expected


@pytest.mark.parametrize("join", ["all", "any", "done", 1, is_complete("p0")])
@pytest.mark.parametrize("ends", ["CFS", "CTW", "FSW", "FFC", "TTF"])
def test_the_order_in_which_parents_end_does_not_matter(ends: str, join: Any) -> None:
    fates = {below(ends, join, order).statuses["j"] for order in permutations(range(len(ends)))}

    assert len(fates) == 1


# ---- filtered is soft


def test_join_of_filtered_and_complete_runs_and_the_filtered_parents_output_reads_null() -> None:
    world = world_of(
        task("a", guards=(NO,)),
        task("b"),
        task(
            "j",
            after="a b",
            input={"a": {"var": "steps.a.output"}, "b": {"var": "steps.b.output.n"}},
        ),
    )

    world.play(b={"n": 2})

    assert world.out["j"].inputs == {"a": None, "b": 2}


def test_join_of_filtered_and_skipped_is_skipped() -> None:
    world = below("FS", "all")

    assert (world.statuses["j"], world.reason("j")) == ("skipped", "parent p1 skipped")


def test_all_parents_filtered_filters_and_says_so() -> None:
    world = below("FF", "all")

    assert (world.statuses["j"], world.reason("j")) == ("filtered", "every parent was filtered")
    assert world.record.status is WorkflowStatus.COMPLETE


def test_join_of_filtered_and_failed_under_continue_runs() -> None:
    assert below("FT", "all").statuses["j"] == "in_progress"


def test_join_of_one_skipped_and_one_complete_parent_is_skipped_at_once_before_other_parents_finish() -> None:
    world = below("CSR", "all")

    assert (world.statuses["j"], world.reason("j")) == ("skipped", "parent p1 skipped")
    assert world["j"].ended_at is not None
    assert world.statuses["p2"] == "in_progress"


def test_with_join_any_one_skipped_and_one_complete_parent_wait_and_run() -> None:
    world = below("CSR", "any")

    assert world.statuses["j"] == "ready"
    assert world.dispatched(world.finish("p2", {})) == ["j"]


# ---- ruling 1: join n, any, done and an expression


def test_an_early_join_goes_on_while_parents_still_run() -> None:
    world = world_of(task("a"), task("b"), task("j", after="a b", join=1), task("k", after="j"))
    world.play(a={})

    assert world.dispatched(world.finish("j", {})) == ["k"]
    assert world.finish("k", {}) == Pending()
    assert world.statuses["b"] == "in_progress"

    assert world.finish("b", {}) == Complete({})
    assert world.executed == {"a": 1, "b": 1, "j": 1, "k": 1}


def test_the_parents_that_an_early_join_left_behind_still_stop_the_workflow() -> None:
    world = world_of(task("a"), task("b"), task("j", after="a b", join=1))
    world.play(a={})

    assert isinstance(world.fail("b"), Failed)
    assert world.statuses == {"a": "complete", "b": "failed", "j": "cancelled"}
    assert world.out == {}


def test_a_parent_that_is_lost_or_retried_after_an_early_join_does_not_start_it_again() -> None:
    world = world_of(task("a"), task("b", max_attempts=2), task("j", after="a b", join=1))
    world.play(a={})
    world.lose("b")
    world.fail("b")
    world.finish("b", {})

    assert world.executed["j"] == 1
    assert world.finish("j", {}) == Complete({})


def test_an_early_join_can_itself_be_lost_retried_and_reset() -> None:
    world = world_of(
        task("a"),
        task("b"),
        task(
            "j",
            after="a b",
            join=1,
            max_attempts=2,
            branch=(branch({"var": "again"}, {"set": "j"}),),
        ),
    )
    world.play(a={})

    assert world.dispatched(world.lose("j")) == ["j"]
    assert world.dispatched(world.fail("j")) == ["j"]
    assert world.dispatched(world.finish("j", {"again": True})) == ["j"]
    assert (world["j"].round, world["j"].attempt) == (1, 1)
    assert world.statuses["b"] == "in_progress"


def test_a_reset_of_its_parents_makes_a_numbered_join_count_anew() -> None:
    world = world_of(
        task("a"),
        task("b"),
        task("j", after="a b", join=2, branch=(branch({"var": "again"}, {"set": ["a", "b"]}),)),
    )
    world.play(a={}, b={})

    assert world.dispatched(world.finish("j", {"again": True})) == ["a", "b"]
    world.finish("b", {})
    assert world.statuses["j"] == "ready"
    assert world.dispatched(world.finish("a", {})) == ["j"]


def test_a_number_that_can_no_longer_be_reached_skips_at_once() -> None:
    world = below("SRR", 3)

    assert (world.statuses["j"], world.reason("j")) == ("skipped", "parent p0 skipped")
    assert world.statuses["p1"] == "in_progress"


def test_a_number_that_can_no_longer_be_reached_for_filtered_parents_says_so() -> None:
    world = below("CF", 2)

    assert (world.statuses["j"], world.reason("j")) == ("filtered", "its join can no longer be met")


@pytest.mark.parametrize("join", ["all", "any", "done", 1, 2, is_complete("b")])
def test_join_never_prevents_a_stop(join: Any) -> None:
    world = world_of(task("a"), task("b"), task("j", after="a b", join=join))
    world.advance()

    decision = world.fail("a")

    assert isinstance(decision, Failed)
    assert world.statuses == {"a": "failed", "b": "cancelled", "j": "skipped"}


@pytest.mark.parametrize("policy", ["continue", "skip"])
def test_a_finally_step_runs_if_what_it_guards_does_not_stop_the_workflow(policy: str) -> None:
    world = world_of(task("a", on_error=policy), task("b", after="a"), task("j", after="a b", join="done"))
    world.advance()
    decision = world.fail("a")
    if policy == "continue":
        assert world.dispatched(decision) == ["b"]
        decision = world.finish("b", {})

    assert world.dispatched(decision) == ["j"]
    assert world.finish("j", {}) == Complete({})


def test_join_done_runs_below_parents_that_never_ran() -> None:
    world = world_of(
        task("a", guards=(NO,)),
        task("b", on_error="skip"),
        task("c", after="b"),
        task("j", after="a c", join="done"),
        task("k", after="j"),
    )
    world.advance()

    assert world.dispatched(world.fail("b")) == ["j"]
    assert world.dispatched(world.finish("j", {})) == ["k"]


def test_a_join_without_parents_runs() -> None:
    world = world_of(task("a", join="any"), task("b", join="done"), task("c", join="all"))

    assert world.dispatched(world.advance()) == ["a", "b", "c"]


def test_a_join_expression_is_evaluated_each_time_a_parent_settles() -> None:
    either = {"or": [{"and": [is_complete("a"), is_complete("b")]}, is_complete("c")]}
    world = world_of(task("a"), task("b"), task("c"), task("j", after="a b c", join=either))
    world.advance()

    assert world.finish("a", {}) == Pending()
    assert world.statuses["j"] == "ready"
    assert world.dispatched(world.finish("b", {})) == ["j"]
    assert world.statuses["c"] == "in_progress"


def test_a_join_expression_that_is_false_when_all_parents_are_final_skips() -> None:
    world = world_of(
        task("a"),
        task("b"),
        task("j", after="a b", join={"==": [{"var": "state.n"}, 9]}),
        task("k", after="j"),
    )

    assert world.play(a={"n": 1}, b={"n": 2}) == Complete({})
    assert (world.statuses["j"], world.reason("j")) == ("skipped", "its join can no longer be met")
    assert (world.statuses["k"], world.reason("k")) == ("skipped", "parent j skipped")


def test_a_join_expression_that_is_false_names_the_parent_that_kept_the_step_from_running() -> None:
    world = below("FS", is_complete("p0"))

    assert (world.statuses["j"], world.reason("j")) == ("skipped", "parent p1 skipped")


def test_a_join_expression_overrides_a_skip_and_a_filter() -> None:
    join = {"==": [{"var": "ctx.status.p1"}, "skipped"]}

    assert below("FS", join).statuses["j"] == "in_progress"


def test_a_join_expression_that_cannot_be_evaluated_fails_the_step() -> None:
    join = {"if": [is_complete("a"), BROKEN, False]}
    world = world_of(task("a"), task("b"), task("j", after="a b", join=join, on_error="continue"))

    assert world.play(a={}) == Pending()
    assert (world.statuses["j"], world.error_kind("j")) == ("failed", "expression")


def test_a_join_expression_is_not_evaluated_before_a_parent_has_settled() -> None:
    nothing_failed = {"!=": [{"var": "ctx.status.a"}, "failed"]}
    world = world_of(task("a"), task("j", after="a", join=nothing_failed))

    assert world.dispatched(world.advance()) == ["a"]
    assert world.dispatched(world.finish("a", {})) == ["j"]


def test_a_join_reads_the_policies_of_the_step_itself() -> None:
    # Both parents failed under skip; the step wrote continue, so their failures allow it to run.
    for join in ("all", "any", 2):
        assert below("WW", join, on_error="continue").statuses["j"] == "in_progress"
    # They failed under continue; the step wrote skip.
    for join in ("all", "any", 2):
        assert below("TT", join, on_error="skip").statuses["j"] == "skipped"


# ---- on_error over whole graphs

POLICIES = [
    # p! fails; :policy is written; <a,b are its parents; ~join. Expected states in the same order.
    ("p!", "failed", "failed"),
    ("p!:fail", "failed", "failed"),
    ("p!:skip", "skipped", "complete"),
    ("p!:continue", "failed", "complete"),
    ("p! d<p", "failed skipped", "failed"),
    ("p!:continue d<p", "failed complete", "complete"),
    ("p!:skip d<p", "skipped skipped", "complete"),
    # P default, dependents all `continue`: they run, and the workflow ends failed
    ("p! d:continue<p", "failed complete", "failed"),
    ("p! d:continue<p e:continue<p", "failed complete complete", "failed"),
    # P default, dependents `continue` and default: one rule says fail
    ("p! d:continue<p e<p", "failed skipped skipped", "failed"),
    # P says `fail`, dependent says `continue`: veto
    ("p!:fail d:continue<p", "failed skipped", "failed"),
    ("p!:fail d:skip<p", "failed skipped", "failed"),
    # P says `continue`, dependent says `fail`: its fail is about itself
    ("p!:continue d:fail<p", "failed complete", "complete"),
    ("p!:continue d!:fail<p", "failed failed", "failed"),
    # P says `skip`, dependent says `continue`: P skipped, dependent runs
    ("p!:skip d:continue<p", "skipped complete", "complete"),
    ("p!:skip d:continue<p e<p", "skipped complete skipped", "complete"),
    # skip reaches a `continue` below
    ("p!:skip d<p e:continue<d", "skipped skipped skipped", "complete"),
    # P default, dependents have skip: no step stops the workflow, and none tolerates the failure
    ("p! d:skip<p", "failed skipped", "failed"),
    ("p! d:skip<p e:continue<p f<d f2<e", "failed skipped complete skipped complete", "failed"),
    ("p!:continue d:skip<p", "failed skipped", "complete"),
    ("p!:continue d!:continue<p e<d", "failed failed complete", "complete"),
    ("p!:continue d!<p e<d", "failed failed skipped", "failed"),
    ("a! b x<a,b", "failed cancelled skipped", "failed"),
    ("b a!:skip x<a,b", "complete skipped skipped", "complete"),
    ("b a!:skip x:continue<a,b", "complete skipped complete", "complete"),
    ("b a!:skip x<a,b~any", "complete skipped complete", "complete"),
    ("b a! x<a,b~any", "complete failed skipped", "failed"),
    ("a!:skip b<a x<b~done", "skipped skipped complete", "complete"),
    ("a!:continue b!:skip x<a,b", "failed skipped skipped", "complete"),
    ("a!:continue b!:skip x:continue<a,b", "failed skipped complete", "complete"),
    ("p! d:continue<p e<d f<e", "failed complete complete complete", "failed"),
    ("a b! c:skip<b d<a,c", "complete failed skipped skipped", "failed"),
    ("p! d<p~done", "failed skipped", "failed"),
    # x went on with a alone and is final: b's own policy decides
    ("a x<a,b~1 b!", "complete cancelled failed", "failed"),
]


def graph_of(text: str) -> tuple[EngineWorld, set[str]]:
    steps, failing = [], set()
    for word in text.split():
        word, _, join = word.partition("~")
        word, _, parents = word.partition("<")
        word, _, policy = word.partition(":")
        name = word.rstrip("!")
        if word.endswith("!"):
            failing.add(name)
        keys: dict[str, Any] = {"on_error": policy} if policy else {}
        if join:
            keys["join"] = int(join) if join.isdecimal() else join
        steps.append(task(name, parents.replace(",", " "), **keys))
    return world_of(*steps), failing


@pytest.mark.parametrize(("text", "states", "ends"), POLICIES, ids=[row[0] for row in POLICIES])
def test_failures_and_their_policies_do_what_the_table_says(text: str, states: str, ends: str) -> None:
    world, failing = graph_of(text)
    world.advance()
    while not world.record.is_final:
        name = min(world.out, key=lambda one: world.out[one].token)
        world.fail(name) if name in failing else world.finish(name, {})

    assert " ".join(world.statuses.values()) == states
    assert str(world.record.status) == ends
