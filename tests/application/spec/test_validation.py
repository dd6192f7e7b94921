"""Validation: every problem of a document at once, each with its code, message and position."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.model import ID_RULE, LoadedSpec
from orchestrator.application.spec.part_models import BranchModel, DefaultsModel, InputModel, SpecModel
from orchestrator.application.spec.report import Report, parse
from orchestrator.application.spec.step_models import StepModel, WorkflowModel
from orchestrator.application.spec.validation import CODES, WARNINGS, check_inputs, check_spec, load_spec


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(text, "flow.yaml")
    return refused.value.problems


def problems_of_data(data: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSpec) as refused:
        check_spec(data)
    return [(problem.path, problem.code) for problem in refused.value.problems]


LOOP = """
steps:
  - op: a
    branch:
      - {condition: true, action: %s}
      - {condition: true, action: complete}
"""

NO_DURATION = 'must be whole seconds, or a string such as "500ms", "30s", "5m", "24h", "7d"; or none'

# A ^ stands where the problem must be found; if the message is None, another module words it.
CASES = [
    ("bad_duration", "steps:\n  - op: a\n    timeout: ^5x", "steps[0].timeout", NO_DURATION, None),
    (
        "bad_duration",
        "steps:\n  - {op: a, timeout: ^0}",
        "steps[0].timeout",
        "must be longer than 0; write none for no timeout",
        None,
    ),
    ("bad_duration", "defaults: {timeout: ^1.5}\nsteps: []", "defaults.timeout", NO_DURATION, None),
    ("bad_id", "steps:\n  - id: ^a b\n    op: a", "steps[0].id", ID_RULE, None),
    (
        "bad_id",
        "steps:\n  - name: ^a b\n    fn: a",
        "steps[0].name",
        ID_RULE,
        "the name is the id of the step: add the key id",
    ),
    ("bad_id", "steps:\n  - {op: a, queue: ^'a b'}", "steps[0].queue", ID_RULE, None),
    (
        "bad_path",
        "steps:\n  - op: a\n    input: {x: {vars: ^'steps[['}}",
        "steps[0].input.x.vars",
        None,
        None,
    ),
    (
        "bad_policy",
        "steps:\n  - {op: a, on_error: ^skipp}",
        "steps[0].on_error",
        "must be fail, skip or continue",
        "did you mean 'skip'?",
    ),
    (
        "bad_policy",
        "steps:\n  - {op: a, attempts_on: ^all}",
        "steps[0].attempts_on",
        "must be error or any",
        None,
    ),
    ("bad_type", "^- op: a", "", "a workflow must be a mapping with steps, not a list", None),
    ("bad_type", "", "", "a workflow must be a mapping with steps, not nothing", None),
    ("bad_type", "^name: a", "steps", "a workflow needs a list of steps; it may be empty", None),
    ("bad_type", "steps: ^{op: a}", "steps", "must be a list, not a mapping", None),
    ("bad_type", "steps:\n  - ^a", "steps[0]", "a step must be a mapping, not a string", None),
    (
        "bad_type",
        "steps:\n  - {op: ^1}",
        "steps[0].op",
        "must be a string, not the number 1",
        "write it in quotes",
    ),
    ("bad_type", "steps:\n  - {op: ^''}", "steps[0].op", "must not be empty", None),
    (
        "bad_type",
        "steps:\n  - {op: a, depends_on: ^b}\n  - op: b",
        "steps[0].depends_on",
        "must be a list, not a string",
        "write [b]",
    ),
    (
        "bad_type",
        "steps:\n  - {op: a, depends_on: [^true]}",
        "steps[0].depends_on[0]",
        "must be a string, not true",
        "write it in quotes",
    ),
    ("bad_type", "steps:\n  - {op: a, input: ^[1]}", "steps[0].input", "must be a mapping, not a list", None),
    (
        "bad_type",
        "steps:\n  - {op: a, max_attempts: ^0}",
        "steps[0].max_attempts",
        "must be at least 1",
        None,
    ),
    (
        "bad_type",
        "steps:\n  - {op: a, max_attempts: ^1.5}",
        "steps[0].max_attempts",
        "must be a whole number, not the number 1.5",
        None,
    ),
    (
        "bad_type",
        "steps:\n  - {op: a, branch: [^halt]}",
        "steps[0].branch[0]",
        "must be a mapping, not a string",
        None,
    ),
    (
        "bad_type",
        "steps:\n  - {op: a, branch: [^{action: halt}]}",
        "steps[0].branch[0].condition",
        "a branch entry needs a condition",
        None,
    ),
    (
        "bad_type",
        "steps:\n  - op: a\n    branch: [^{condition: true, action: halt, result: 1, result_expr: 2}]",
        "steps[0].branch[0]",
        "has both result and result_expr; keep one",
        None,
    ),
    (
        "bad_type",
        LOOP % "^{set: a, value: done}",
        "steps[0].branch[0].action",
        "value must be ready: a step can be set to nothing else",
        None,
    ),
    (
        "bad_type",
        LOOP % "{set: [^3]}",
        "steps[0].branch[0].action.set[0]",
        "must be a step, a list of steps or an expression, not the number 3",
        None,
    ),
    (
        "bad_type",
        "limits: {max_lost: ^4}\nsteps: []",
        "limits.max_lost",
        "may only lower the limit of the server, which is 3",
        None,
    ),
    (
        "bad_type",
        "inputs: {a: {type: ^strnig}}\nsteps: []",
        "inputs.a.type",
        "must be string, number, integer, boolean, object or array",
        "did you mean 'string'?",
    ),
    (
        "bad_type",
        "inputs: {a: {type: integer, default: ^x}}\nsteps: []",
        "inputs.a.default",
        "must be of type integer, not a string",
        None,
    ),
    (
        "bad_type",
        "inputs: {a: {required: ^1}}\nsteps: []",
        "inputs.a.required",
        "must be true or false, not the number 1",
        None,
    ),
    (
        "bad_yaml",
        "steps: [\n^",
        "steps[0]",
        "while parsing a flow node: did not find expected node content",
        None,
    ),
    (
        "cycle",
        "steps:\n  - {op: a, depends_on: [^b]}\n  - {op: b, depends_on: [a]}",
        "steps[0].depends_on[0]",
        "these steps wait for each other: a -> b -> a",
        None,
    ),
    (
        "duplicate_id",
        "steps:\n  - op: a\n  - {id: ^a, op: b}",
        "steps[1].id",
        "the id 'a' is already taken by steps[0]",
        None,
    ),
    (
        "duplicate_id",
        "steps:\n  - op: a\n  - op: ^a",
        "steps[1].op",
        "the id 'a' is already taken by steps[0]",
        "give one of them the key id",
    ),
    ("duplicate_key", "steps:\n  - op: a\n    ^op: b", "steps[0].op", "the key 'op' is written twice", None),
    (
        "loop_without_exit",
        "steps:\n  - op: a\n    branch: ^[{condition: true, action: {set: a}}]",
        "steps[0].branch",
        "a step with a set branch needs a complete or halt branch too",
        None,
    ),
    (
        "missing_id",
        "steps:\n  - ^fn: f",
        "steps[0]",
        "a step needs an id (or an op, which is then its id)",
        None,
    ),
    (
        "no_token",
        "steps:\n  - ^id: a",
        "steps[0]",
        "a step needs an op or fn: the name of its executor",
        None,
    ),
    (
        "not_json",
        "steps:\n  - op: a\n    input: {day: ^2024-01-01}",
        "steps[0].input.day",
        'a date is not JSON; write it in quotes: "2024-01-01"',
        None,
    ),
    (
        "too_big",
        "limits: {max_steps: 1}\nsteps: ^[{op: a}, {op: b}]",
        "steps",
        "has 2 steps; the limit is 1",
        None,
    ),
    (
        "too_deep",
        "steps: " + "[" * 49 + "^[",
        "steps" + "[0]" * 49,
        "the document is nested deeper than 50 levels",
        None,
    ),
    (
        "unknown_action",
        LOOP % "^hlat",
        "steps[0].branch[0].action",
        "must be halt, complete, retry, fail, skip or {set: <step>, value: ready}",
        "did you mean 'halt'?",
    ),
    (
        "unknown_action",
        "steps:\n  - {op: a, branch: [^{condition: true}]}",
        "steps[0].branch[0].action",
        "a branch entry needs an action",
        None,
    ),
    (
        "unknown_dependency",
        "steps:\n  - op: fetch\n  - {op: load, depends_on: [^fetsh]}",
        "steps[1].depends_on[0]",
        "step 'load' depends on unknown step 'fetsh'",
        "did you mean 'fetch'?",
    ),
    (
        "unknown_dependency",
        "steps:\n  - op: fetch\n  - op: load\n    input: {x: {var: ^steps.fetsh.output}}",
        "steps[1].input.x.var",
        "there is no step 'fetsh'",
        "did you mean 'steps.fetch.output'?",
    ),
    (
        "unknown_key",
        "steps:\n  - op: a\n    ^depend_on: []",
        "steps[0].depend_on",
        "'depend_on' is not a key of a step",
        "did you mean 'depends_on'?",
    ),
    (
        "unknown_key",
        "^step: []\nsteps: []",
        "step",
        "'step' is not a key of a workflow",
        "did you mean 'steps'?",
    ),
    (
        "unknown_key",
        "limits: {^max_run: 3}\nsteps: []",
        "limits.max_run",
        "'max_run' is not a key of limits",
        "did you mean 'max_runs'?",
    ),
    (
        "unknown_key",
        "steps:\n  - {op: a, branch: [{condition: 1, ^acton: halt, action: halt}]}",
        "steps[0].branch[0].acton",
        "'acton' is not a key of a branch entry",
        "did you mean 'action'?",
    ),
    (
        "unknown_key",
        LOOP.replace("action: %s", "^action: %s", 1) % "{set: a, valeu: ready}",
        "steps[0].branch[0].action",
        "set has no key 'valeu'",
        None,
    ),
    (
        "unknown_operator",
        "steps:\n  - op: a\n    input: {x: {if: [^{grater: [1, 2]}, 1, 2]}}",
        "steps[0].input.x.if[0]",
        None,
        None,
    ),
    (
        "unknown_target",
        LOOP % "{set: ^steps.aa.status, value: ready}",
        "steps[0].branch[0].action.set",
        "there is no step 'aa'",
        "did you mean 'a'?",
    ),
    (
        "unknown_target",
        LOOP % "{set: [a, ^b]}",
        "steps[0].branch[0].action.set[1]",
        "there is no step 'b'",
        None,
    ),
]


@pytest.mark.parametrize(("code", "text", "path", "message", "hint"), CASES)
def test_a_problem_has_a_code_a_position_and_a_message_with_advice(
    code: str, text: str, path: str, message: str | None, hint: str | None
) -> None:
    before, mark, _ = text.partition("^")
    [problem] = problems_of(text.replace("^", ""))

    assert (problem.code, problem.path) == (code, path)
    if mark:
        assert problem.line == before.count("\n") + 1
        assert problem.column == len(before) - before.rfind("\n")
    if message is not None:
        assert (problem.message, problem.hint) == (message, hint)


def test_every_code_has_a_case() -> None:
    of_other_keys = {"bad_schedule", "many_kinds", "missing_input", "unknown_source"}  # test_language_keys.py
    of_other_keys |= {"bad_secret"}  # test_secrets.py has it
    of_other_keys |= {"unknown_field", "unknown_root"}  # test_references.py has them
    of_other_keys |= {"bad_reference"}  # test_expansion.py has it

    assert {code for code, *_ in CASES} == CODES - of_other_keys


def test_all_problems_are_reported_at_once_in_the_order_of_the_document() -> None:
    problems = problems_of("""
outputs: {o: {if: [{grater: [1]}, 1]}}
steps:
  - op: a
    timeout: soon
    depends_on: [missing]
    day: 2024-01-01
    branch:
      - {condition: "x > 1", action: jump}
      - {condition: true, action: {set: nowhere}}
    op: a
  - id: a
  - depends_on: [a, a.b]
    op: b
    label: 7
nmae: x
""")

    assert [(problem.line, problem.code) for problem in problems] == [
        (2, "unknown_operator"),
        (5, "bad_duration"),
        (6, "unknown_dependency"),
        (7, "not_json"),
        (9, "loop_without_exit"),
        (9, "bad_type"),
        (9, "unknown_action"),
        (10, "unknown_target"),
        (11, "duplicate_key"),
        (12, "no_token"),
        (12, "duplicate_id"),
        (13, "unknown_dependency"),
        (15, "bad_type"),
        (16, "unknown_key"),
    ]


def test_a_faulty_part_causes_no_further_problems() -> None:
    text = """
inputs: {a: {type: text}, b: {type: string}}
steps:
  - {op: a, queue: [], on_error: 3}
  - {op: b, depends_on: [a], branch: [{condition: true, action: jump}, {condition: true, action: halt}]}
"""

    assert [problem.path for problem in problems_of(text)] == [
        "inputs.a.type",
        "steps[0].queue",
        "steps[0].on_error",
        "steps[1].branch[0].action",
    ]


def test_problems_of_json_have_positions_too() -> None:
    [problem] = problems_of('{"steps": [\n  {"op": "a", "timeout": "x"}]}')

    assert (problem.line, problem.column) == (2, 26)


def test_an_error_without_its_own_message_is_still_a_problem() -> None:
    class Odd(SpecModel):
        noun = "an odd thing"
        moment: datetime | None = None

    report = Report({})

    assert parse(Odd, {"moment": "soon"}, (), report) == Odd()
    with pytest.raises(InvalidSpec, match="moment: is not valid here: a string"):
        report.raise_if_any()


def test_problems_of_plain_data_have_paths_only() -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_spec({"steps": [{"op": "a", "input": {"x.y": {"vars": "a[["}}}]}, source="start event")

    [problem] = refused.value.problems
    assert (problem.path, problem.line) == ('steps[0].input["x.y"].vars', None)
    assert str(refused.value).startswith("start event:")


@pytest.mark.parametrize(
    "data",
    [
        {"steps": [], 1: 2},
        {"steps": ()},
        {"steps": [], "x-a": {1, 2}},
        {"steps": [{"op": "a", "input": {"x": 1e999}}]},
    ],
)
def test_data_that_is_not_json_is_rejected(data: Any) -> None:
    assert {code for _, code in problems_of_data(data)} == {"not_json"}


def test_a_list_that_contains_itself_is_too_deep() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert {code for _, code in problems_of_data({"steps": endless})} == {"too_deep"}


def test_input_and_outputs_are_never_an_expression_themselves() -> None:
    loaded = check_spec({"steps": [{"op": "a", "input": {"max": 3}}], "outputs": {"var": "a text"}})

    assert loaded.spec.steps[0].input == {"max": 3}
    assert loaded.spec.outputs == {"var": "a text"}


@pytest.mark.parametrize(
    "target",
    ["a", "steps.a.status", "a.b", "steps.a.b.status", ["a", "steps.a.b.status"], {"var": "state.next"}, []],
)
def test_a_set_may_name_steps_or_compute_them(target: Any) -> None:
    branch = [{"condition": True, "action": {"set": target}}, {"condition": True, "action": "halt"}]

    [_, step] = check_spec({"steps": [{"op": "a"}, {"op": "a.b", "branch": branch}]}).spec.steps

    assert (step.branch[0].action, step.branch[0].targets) == ("set", target)


def test_a_spec_that_repeats_success_is_accepted_with_a_warning() -> None:
    text = "steps:\n  - op: a\n    attempts_on: any\n    max_attempts: 3\n"

    [warning] = load_spec(text).warnings

    assert warning == Problem(
        "steps[0].max_attempts",
        "repeats_on_success",
        "step 'a' runs 3 times even if it succeeds: no branch ends it",
        None,
        4,
        19,
    )
    assert warning.code in WARNINGS


@pytest.mark.parametrize(
    "more",
    [
        "",
        "max_attempts: 3",
        "attempts_on: any",
        "max_attempts: 1, attempts_on: any",
        "max_attempts: 3, attempts_on: any, branch: [{condition: {var: done}, action: complete}]",
    ],
)
def test_a_spec_that_repeats_success_on_purpose_has_no_warning(more: str) -> None:
    assert load_spec(f"steps: [{{op: a, {more}}}]").warnings == ()


def test_only_the_first_thousand_problems_of_a_document_are_reported() -> None:
    steps = [{"op": f"step_{n}", "depends_on": [f"stap_{n}"]} for n in range(5_000)]

    with pytest.raises(InvalidSpec) as refused:
        check_spec({"steps": steps})

    *problems, last = refused.value.problems
    assert [problem.path for problem in problems] == [f"steps[{n}].depends_on[0]" for n in range(1_000)]
    assert last == Problem("", "too_big", "there are more than 1000 problems; these are the first")
    assert problems[0].hint == "did you mean 'step_0'?"
    assert problems[-1].hint is None  # hints are too expensive here


def test_a_key_of_thousands_of_dots_in_an_expression_is_only_a_bad_name() -> None:
    keys = [".".join("a" * 10_000) + str(n) for n in range(20)]

    with pytest.raises(InvalidSpec) as refused:
        check_spec({"steps": [{"op": "a", "input": {"x": {key: {"vars": "b[["} for key in keys}}}]})

    assert [problem.code for problem in refused.value.problems] == ["bad_path"] * 20


@pytest.mark.untraced
def test_a_large_document_is_loaded() -> None:
    lines = ["steps:", "  - op: s0"]
    for n in range(1, 5_000):
        lines += [f"  - op: s{n}", f"    input: {{x: {{var: steps.s{n - 1}.output.x}}}}", "    timeout: 5m"]

    loaded = load_spec("\n".join(lines))

    assert loaded.graph.parents["s4999"] == ("s4998",)
    assert loaded.spec.steps[4_999].timeout_s == 300.0


# Inputs -----------------------------------------------------------------------------------------------------


def spec_with_inputs(**declared: dict[str, Any]) -> LoadedSpec:
    return check_spec({"inputs": declared, "steps": []})


def test_defaults_are_filled_in_and_undeclared_inputs_pass() -> None:
    spec = spec_with_inputs(
        a={"default": [1]}, b={"default": None}, c={}, d={"required": True, "default": 4}
    ).spec

    assert check_inputs(spec, {"a": 2, "z": 1}) == ({"a": 2, "b": None, "d": 4, "z": 1}, [])
    assert check_inputs(spec, None) == ({"a": [1], "b": None, "d": 4}, [])


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("string", ["", "x"], [1, None, True, []]),
        ("number", [1, 1.5], ["1", None, True]),
        ("integer", [1], [1.5, "1", True, None]),
        ("boolean", [True, False], [0, "true", None]),
        ("object", [{}, {"a": 1}], [[], None]),
        ("array", [[], [1]], [{}, "x", None]),
    ],
)
def test_inputs_must_have_the_declared_type(name: str, right: list[Any], wrong: list[Any]) -> None:
    spec = spec_with_inputs(a={"type": name}).spec

    assert [check_inputs(spec, {"a": value})[1] for value in right] == [[]] * len(right)
    assert [[p.code for p in check_inputs(spec, {"a": value})[1]] for value in wrong] == [["bad_type"]] * len(
        wrong
    )


def test_problems_of_inputs_name_them() -> None:
    spec = spec_with_inputs(url={"type": "string", "required": True}, n={"type": "integer"}).spec

    problems = check_inputs(spec, {"n": "x", "day": {1}})[1]

    assert [str(problem) for problem in problems] == [
        "inputs.day: a value of type set is not JSON [not_json]",
        "inputs.url: the workflow needs the input 'url' [missing_input]",
        "inputs.n: must be of type integer, not a string [bad_type]",
    ]
    assert check_inputs(spec, [1])[1] == [Problem("inputs", "bad_type", "must be a mapping, not a list")]


# Any data ---------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "a",
        "b",
        "a.b",
        "steps",
        "steps.a.status",
        "halt",
        "complete",
        "skip",
        "none",
        "5m",
        "",
        "x y",
        "var",
        "é",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-2, 400) | st.floats() | WORDS | st.text(max_size=4)
MODELS: list[type[SpecModel]] = [WorkflowModel, StepModel, BranchModel, InputModel, DefaultsModel]
KEYS = st.sampled_from(
    [key for model in MODELS for key in model.model_fields]
    + ["set", "value", "max_runs", "x-a", "var", "vars", "if", "==", "when", "$literal"]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=25,
)
REFERENCES = st.sampled_from("abcd").map(lambda name: {"var": f"steps.{name}.output.x"})
BRANCHES = st.fixed_dictionaries(
    {}, optional={"condition": VALUES, "action": WORDS | VALUES, "result": VALUES, "result_expr": VALUES}
)
STEPS = st.fixed_dictionaries(
    {"op": st.sampled_from("abcd")},
    optional={
        "id": WORDS,
        "depends_on": st.lists(st.sampled_from("abcd"), max_size=3),
        "input": st.dictionaries(st.text(max_size=3), REFERENCES | VALUES, max_size=3),
        "branch": st.lists(BRANCHES, max_size=3),
        "timeout": VALUES,
        "on_error": VALUES,
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {"steps": st.lists(STEPS | VALUES, max_size=5)},
    optional={"inputs": VALUES, "defaults": VALUES, "limits": VALUES, "outputs": VALUES, "name": VALUES},
)


@given(DOCUMENTS | VALUES)
@example({"steps": [{"op": "a", "depends_on": [{}], "branch": [[], {"action": {"set": {}}}]}]})
def test_any_data_is_loaded_or_rejected(data: Any) -> None:
    try:
        loaded = check_spec(data)
    except InvalidSpec as refused:
        assert {problem.code for problem in refused.problems} <= CODES  # noqa: PT017
    else:
        assert [step.id for step in loaded.spec.steps] == list(loaded.graph.order)


@given(DOCUMENTS)
def test_data_as_text_is_loaded_or_rejected_with_the_same_codes(data: Any) -> None:
    def outcome(load: Any, given: Any) -> Any:
        try:
            return load(given).spec
        except InvalidSpec as refused:
            return sorted((problem.path, problem.code) for problem in refused.problems)

    text = json.dumps(data)
    if "NaN" not in text and "Infinity" not in text:
        assert outcome(load_spec, text) == outcome(check_spec, json.loads(text))
