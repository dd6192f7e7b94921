"""The ruling on values that are kept by reference; its number is in the names of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from language.stage import Stage
from language.written import branches, jobless
from worlds.documents import Json, document, step

LARGE: Json = {"$payload": "a1" * 32, "bytes": 5_000_000}
WHOLE: Any = {"var": "steps.a.output.rows"}
INSIDE: Any = {"var": "steps.a.output.rows.0"}

# ---- 18: references to large payloads are opaque to expressions


def test_ruling_18_a_reference_is_passed_on_whole(stage: Stage) -> None:
    reads = {
        "rows": WHOLE,
        "deep": [{"rows": WHOLE}],
        "is_there": {"!!": WHOLE},
        "state": {"var": "state.rows"},
    }
    stage.start(document(step("a"), step("b", "a", input=reads), outputs={"rows": WHOLE}))

    stage.finish("a", {"rows": LARGE, "count": 3})

    passed = {"rows": LARGE, "deep": [{"rows": LARGE}], "is_there": True, "state": LARGE}
    assert stage.out["b"].inputs == passed
    stage.finish("b", {})
    assert (stage.status, stage.outcome) == ("complete", {"rows": LARGE})


DATA_OPERATORS: dict[str, Json] = {
    "input": step("b", input={"first": INSIDE}),
    "input with a default": step("b", "a", input={"first": {"var": ["steps.a.output.rows.0", "none"]}}),
    "input with vars": step("b", input={"ids": {"vars": "steps.a.output.rows[*].id"}}),
    "an operator": step("b", input={"count": {"list.length": [WHOLE]}}),
    "when": step("b", when={">": [INSIDE, 1]}),
    "filters": step("b", filters={"operator": "OR", "filters": [{"expression": INSIDE}]}),
    "required": step("b", required=["steps.a.output.rows.0"]),
    "join": step("b", "a", join={"==": [INSIDE, 1]}),
    "map.over": step("b", map={"over": WHOLE}),
    "concurrency.key": step("b", concurrency={"key": INSIDE, "limit": 1}),
    "switch.on": jobless("b", switch={"on": INSIDE, "cases": {}, "default": []}),
}


@pytest.mark.parametrize("where", DATA_OPERATORS)
def test_ruling_18_reaching_inside_of_one_is_a_failure_that_is_not_tried_again(
    stage: Stage, where: str
) -> None:
    tries = {} if "switch" in DATA_OPERATORS[where] else {"retry": 3}
    stage.start(
        document(step("a"), {**DATA_OPERATORS[where], "on_error": "continue", **tries}, step("below", "b"))
    )

    stage.finish("a", {"rows": LARGE})

    assert stage.statuses == {"a": "complete", "b": "failed", "below": "in_progress"}
    assert stage.error_kind("b") == "expression"
    assert "by reference (5,000,000 bytes)" in str(stage["b"].error)
    assert stage.executions_of("b") == 0


def test_ruling_18_reaching_inside_of_a_fresh_one_is_a_failure_of_its_own_step(stage: Stage) -> None:
    looks = branches({"==": [{"var": "rows.0"}, 1]}, "complete")
    stage.start(document(step("a", retry=3, **looks)))

    stage.finish("a", {"rows": LARGE})

    assert (stage.status, stage.error["kind"], stage.executions_of("a")) == ("failed", "expression", 1)


def test_ruling_18_outputs_that_reach_inside_of_one_fail_the_workflow(stage: Stage) -> None:
    stage.start(document(step("a"), outputs={"first": INSIDE}))

    stage.finish("a", {"rows": LARGE})

    assert stage.statuses == {"a": "complete"}
    assert (stage.status, stage.error["kind"]) == ("failed", "expression")
