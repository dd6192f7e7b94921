"""The edge cases of the language that are about documents."""

from __future__ import annotations

import pytest

from language.stage import Stage
from language.written import skips
from orchestrator.application.errors import StartRejected
from worlds.documents import document, step


def test_dependency_cycle_through_implicit_references(stage: Stage) -> None:
    reads_below = step("a", input={"x": {"var": "steps.b.output.n"}})

    with pytest.raises(StartRejected) as refused:
        stage.start(document(reads_below, step("b", "a")))

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("cycle", "steps[0].input.x")


def test_dependency_cycle_through_implicit_references_that_are_nested_is_none(stage: Stage) -> None:
    reads_below = step("a", input={"x": [{"var": "steps.b.output.n"}]})

    stage.start(document(reads_below, step("b", "a")))

    assert stage.statuses == {"a": "in_progress", "b": "ready"}
    assert stage.out["a"].inputs == {"x": [None]}


def test_workflow_with_no_steps(stage: Stage) -> None:
    stage.start(document(outputs={"n": {"var": "input.n"}}), {"n": 7})

    assert (stage.status, stage.outcome, stage.jobs) == ("complete", {"n": 7}, [])


def test_outputs_refers_to_a_step_that_was_skipped(stage: Stage) -> None:
    outputs = {"s": {"var": "steps.below.output.n"}, "d": {"var": ["steps.below.output.n", "default"]}}
    stage.start(document(step("a", **skips()), step("below", "a"), outputs=outputs))

    stage.finish("a", {"skip": True})

    assert (stage.status, stage.statuses["below"]) == ("complete", "skipped")
    assert stage.outcome == {"s": None, "d": "default"}


def test_spec_changed_while_executions_run(stage: Stage) -> None:
    first = document(step("a"), step("b", "a"), outputs={"version": 1})
    second = document(step("a"), step("c", "a"), outputs={"version": 2})
    stage.register("it", first)
    before = stage.start("it")

    stage.register("it", second)
    after = stage.start("it")

    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "c": "in_progress"}
    stage.execution = before
    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "b": "in_progress"}
    stage.finish("b", {})
    assert (stage.status, stage.outcome) == ("complete", {"version": 1})
    assert before.partition("#")[0] != after.partition("#")[0]
