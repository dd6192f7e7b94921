"""The rulings on joins, and on what is read from other steps; their numbers are in the names of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from language.stage import Stage
from language.written import NO, jobless, skips
from orchestrator.application.errors import StartRejected
from worlds.documents import Json, document, step

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


DATA_OPERATORS: dict[str, Json] = {
    "required": step("r", required=["steps.a.output.n"]),
    "switch": jobless("r", switch={"on": {"var": "steps.a.output.n"}, "cases": {"1": []}, "default": []}),
    "join": step("r", join={"==": [{"var": "steps.a.output.n"}, 1]}),
    "flows": step("r", input={"x": {"var": "flows.a.n"}}),
    "nested": step("r", input={"x": {"y": [{"+": [{"var": "steps.a.output.n"}, 1]}]}}),
    "when": step("r", when={"==": [{"var": "steps.a.output.n"}, 1]}),
    "map": step("r", map={"over": {"vars": "steps.a.output.n"}}),
    "concurrency": step("r", concurrency={"key": {"var": "steps.a.output.n"}, "limit": 1}),
}


@pytest.mark.parametrize("where", DATA_OPERATORS)
def test_ruling_12_what_a_step_reads_it_waits_for(stage: Stage, where: str) -> None:
    stage.start(document(DATA_OPERATORS[where], step("a")))
    assert stage.statuses == {"r": "ready", "a": "in_progress"}

    stage.finish("a", {"n": 1})

    assert stage.statuses["r"] == ("complete" if where == "switch" else "in_progress")


def test_ruling_12_a_top_level_reference_is_the_whole_value_of_an_input_key(stage: Stage) -> None:
    reference = {"var": "steps.b.output.n"}
    for value in ({"n": reference}, [reference], {"!": reference}, {"var": ["steps.b.output.n", 0]}):
        stage.start(document(step("a", input={"x": value}), step("b", "a")))
        assert stage.statuses == {"a": "in_progress", "b": "ready"}

    with pytest.raises(StartRejected) as refused:
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
    with pytest.raises(StartRejected) as refused:
        stage.start(
            document(
                step("a", input={"x": [{"var": "steps.b.output.n"}]}),
                step("b", input={"x": [{"var": "steps.a.output.n"}]}),
            )
        )

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("cycle", "steps[0].input.x")
    assert "a -> b -> a" in problem["message"]
