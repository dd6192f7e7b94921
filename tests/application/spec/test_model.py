"""The spec that a document becomes, with every alias and default applied."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.spec.model import (
    BranchSpec,
    Defaults,
    InputSpec,
    Limits,
    StepSpec,
    is_id,
    workflow_id,
)
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.application.values.durations import parse_duration

QUICKSTART = """
name: example
steps:
  - id: greet
    fn: make_greeting
    input:
      name: {"var": "input.name"}
  - id: shout
    fn: upper
    depends_on: [greet]
    input:
      text: {"var": "steps.greet.output.text"}
outputs:
  message: {"var": "steps.shout.output.text"}
"""


def only_step(defaults: dict[str, Any] | None = None, /, **keys: Any) -> StepSpec:
    document: dict[str, Any] = {"steps": [keys]} | ({"defaults": defaults} if defaults else {})
    return check_spec(document).spec.steps[0]


def test_the_workflow_id_is_the_hash_that_runfox_gives() -> None:
    assert load_spec(QUICKSTART).workflow_id == "ca2c43dd6c84947e7c5b4a81cb708641"


def test_the_workflow_id_is_of_the_document_as_submitted() -> None:
    bare = {"steps": [{"op": "a"}]}

    assert check_spec(bare).workflow_id == workflow_id(bare)
    assert check_spec(bare).document is bare
    assert workflow_id(bare) != workflow_id({"steps": [{"op": "a", "max_attempts": 1}]})
    assert workflow_id({"a": "é", "b": 1}) == workflow_id({"b": 1, "a": "é"})


def test_a_step_with_nothing_but_an_op_has_every_default() -> None:
    assert only_step(op="a") == StepSpec(
        id="a",
        fn="a",
        input={},
        depends_on=(),
        branch=(),
        max_attempts=1,
        attempts_on="error",
        on_error="fail",
        has_own_on_error=False,
        queue="default",
        timeout_s=300.0,
    )


@pytest.mark.parametrize(
    ("keys", "step_id", "fn"),
    [
        ({"op": "o"}, "o", "o"),
        ({"id": "i", "op": "o"}, "i", "o"),
        ({"id": "i", "fn": "f"}, "i", "f"),
        ({"id": "i", "fn": "f", "op": "o", "type": "t", "name": "a name"}, "i", "f"),
        ({"id": "i", "op": "o", "type": "t"}, "i", "o"),
        ({"id": "i", "type": "t"}, "i", "t"),
        ({"op": "o", "name": "a name"}, "o", "o"),
        ({"name": "n", "fn": "f"}, "n", "f"),
        ({"id": None, "op": "o"}, "o", "o"),
    ],
)
def test_identity_and_token_are_found_under_their_aliases(
    keys: dict[str, Any], step_id: str, fn: str
) -> None:
    step = only_step(**keys)

    assert (step.id, step.fn) == (step_id, fn)


def test_a_step_overrides_the_defaults_and_has_its_own_policy_only_then() -> None:
    defaults = {"timeout": "2m", "on_error": "SKIP", "attempts_on": "any", "queue": "slow"}

    plain = only_step(defaults, op="a")
    own = only_step(defaults, op="a", timeout="none", on_error="Fail", attempts_on="error", queue="fast")

    assert (plain.timeout_s, plain.on_error, plain.attempts_on, plain.queue) == (120.0, "skip", "any", "slow")
    assert (own.timeout_s, own.on_error, own.attempts_on, own.queue) == (None, "fail", "error", "fast")
    assert (plain.has_own_on_error, own.has_own_on_error) == (False, True)


def test_null_counts_as_absent() -> None:
    step = only_step(op="a", input=None, depends_on=None, branch=None, label=None)

    assert (step.input, step.depends_on, step.branch, step.label) == ({}, (), (), None)


def test_branches_keep_their_values_unchanged() -> None:
    step = only_step(
        op="a",
        branch=[
            {"condition": True, "action": {"set": "steps.a.status", "value": "ready"}},
            {"condition": False, "action": "complete"},
            {"condition": 1, "action": "halt", "result": None},
            {"condition": {"var": "x"}, "action": "halt", "result_expr": {"var": "y"}},
        ],
    )

    assert step.branch == (
        BranchSpec(True, "set", targets="steps.a.status", result={}),
        BranchSpec(False, "complete", result={}),
        BranchSpec(1, "halt", result=None),
        BranchSpec({"var": "x"}, "halt", result={}, result_expr={"var": "y"}, has_result_expr=True),
    )


def test_a_whole_document_is_compiled_into_the_spec() -> None:
    spec = check_spec(
        {
            "name": "n",
            "description": "d",
            "inputs": {"a": {"type": "integer", "default": 1}, "b": {"required": True}, "c": {}},
            "limits": {"max_runs": 5},
            "steps": [{"op": "s", "x-note": {"free": True}}],
            "outputs": {"o": 1},
            "x-team": ["also free"],
        }
    ).spec

    assert (spec.name, spec.description, spec.outputs) == ("n", "d", {"o": 1})
    assert spec.inputs == {
        "a": InputSpec("integer", False, 1, True),
        "b": InputSpec(required=True),
        "c": InputSpec(),
    }
    assert spec.limits == Limits(max_runs=5)
    assert spec.defaults == Defaults()


def test_a_document_without_steps_in_its_list_is_valid() -> None:
    assert check_spec({"steps": []}).spec.steps == ()


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0.0),
        (90, 90.0),
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("24h", 86_400.0),
        ("7d", 604_800.0),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_a_unit(written: Any, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        -1,
        1.5,
        True,
        None,
        [],
        "",
        "5",
        "5 s",
        "5S",
        "1h30m",
        "-5s",
        "٣s",
        "9999d",
        "9" * 5_000 + "s",
        10**400,
    ],
)
def test_anything_else_is_not_a_duration(written: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_duration(written)


def test_ids_are_short_and_plain() -> None:
    assert all(map(is_id, ["a", "A-b_c.9", "." * 128]))
    assert not any(map(is_id, ["", "a b", "a\n", "é", "a/b", "a#b", "x" * 129]))
