"""What the paths of expressions read is checked, wherever an expression can stand."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.misspelling import MisspeltOperators, is_one_edit_away
from orchestrator.application.spec.references import ROOTS
from orchestrator.application.spec.validation import check_spec, load_spec, load_stored_spec

EXAMPLES = File(__file__).parents[3] / "docs" / "examples"

# In each text a ^ stands where the problem must be found.
DOCUMENT = """
inputs: {{a: {{type: string}}, list: {{type: array}}}}
steps:
  - {{id: first, fn: f}}
  - {{id: shaped, fn: f, output: {{total: {{var: result.n}}}}}}
  - {{id: s, {step}}}
{more}
"""


def found_in(text: str) -> list[Problem]:
    """The problems of a text, or its warnings if it has none."""
    try:
        return list(load_spec(text).warnings)
    except InvalidSpec as invalid:
        return list(invalid.problems)


def check_found(text: str, code: str, message: str, hint: str | None) -> None:
    before, mark, after = text.partition("^")
    assert mark, "a ^ marks where it must be found"

    [problem] = found_in(before + after)

    assert (problem.code, problem.message, problem.hint) == (code, message, hint)
    assert (problem.line, problem.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


NOT_A_ROOT = "a path begins with input, state, steps, flows, kv or ctx"

REFERENCES = [
    ("^inputs.a", "unknown_root", "'inputs' is not a root of expressions here", "did you mean 'input.a'?"),
    (
        "^step.first.output.x",
        "unknown_root",
        "'step' is not a root of expressions here",
        "did you mean 'steps.first.output.x'?",
    ),
    (
        "^first.output",
        "unknown_root",
        "'first' is not a root of expressions here",
        "did you mean 'steps.first.output'?",
    ),
    ("^a", "unknown_root", "'a' is not a root of expressions here", "did you mean 'input.a'?"),
    ("^qwertz.x", "unknown_root", "'qwertz' is not a root of expressions here", NOT_A_ROOT),
    ("^7", "unknown_root", "'7' is not a root of expressions here", NOT_A_ROOT),
    (
        "^item",
        "unknown_root",
        "'item' can only be read in the input and the output of a step with map",
        None,
    ),
    ("^result.x", "unknown_root", "'result' can only be read in the output of a step", None),
    (
        "^output.x",
        "unknown_root",
        "'output' can only be read in the condition and the result_expr of a branch, kv_add and compensate",
        None,
    ),
    ("^sources.e.X", "unknown_root", "'sources' can only be read in the configuration of a source", None),
    (
        "^steps.frist.output.x",
        "unknown_dependency",
        "there is no step 'frist'",
        "did you mean 'steps.first.output.x'?",
    ),
    ("^flows.qwertz.x", "unknown_dependency", "there is no step 'qwertz'", None),
    (
        "^ctx.status.frist",
        "unknown_dependency",
        "there is no step 'frist'",
        "did you mean 'ctx.status.first'?",
    ),
    (
        "^steps.first.outputs.x",
        "unknown_field",
        "a step has the field 'output' here, and no 'outputs'",
        "did you mean 'steps.first.output.x'?",
    ),
    (
        "^steps.first.outptu.foo",
        "unknown_field",
        "a step has the field 'output' here, and no 'outptu'",
        "did you mean 'steps.first.output.foo'?",
    ),
    (
        "^steps.first.x",
        "unknown_field",
        "a step has the field 'output' here, and no 'x'",
        "did you mean 'steps.first.output.x'?",
    ),
    (
        "^steps.first.status",
        "unknown_field",
        "a step has the field 'output' here, and no 'status'",
        "did you mean 'ctx.status.first'?",
    ),
    ("^ctx.statsu.first", "unknown_field", "ctx has no field 'statsu'", "did you mean 'ctx.status.first'?"),
    (
        "^ctx.qwertz",
        "unknown_field",
        "ctx has no field 'qwertz'",
        "it has workflow, step, loop, status, error, now",
    ),
    (
        "^ctx.workflow.nmae",
        "unknown_field",
        "ctx.workflow has no field 'nmae'",
        "did you mean 'ctx.workflow.name'?",
    ),
    ("^ctx.step.qwertz", "unknown_field", "ctx.step has no field 'qwertz'", None),
    (
        "^input.nope",
        "undeclared_input",
        "the document declares its inputs, and 'nope' is not one of them",
        "add it to inputs",
    ),
    (
        "^steps.shaped.output.totl",
        "unknown_output",
        "the output of step 'shaped' has total, and not 'totl'",
        "did you mean 'steps.shaped.output.total'?",
    ),
    (
        "^flows.shaped.totl",
        "unknown_output",
        "the output of step 'shaped' has total, and not 'totl'",
        "did you mean 'flows.shaped.total'?",
    ),
]


@pytest.mark.parametrize(("path", "code", "message", "hint"), REFERENCES)
def test_a_path_that_leads_nowhere_is_found(path: str, code: str, message: str, hint: str | None) -> None:
    text = DOCUMENT.format(step=f"fn: f, input: {{x: {{var: {path}}}}}", more="")

    check_found(text, code, message, hint)


@pytest.mark.parametrize(
    "path",
    [
        "input.a",
        "input.a.b.c",
        "input",
        "state.anything",
        "steps.first.output.anything",
        "steps.first",
        "steps.shaped.output.total.below",
        "steps.shaped.output.ok",
        "flows.first.anything",
        "kv.anything",
        "kv.global.x",
        "ctx.workflow.execution_id",
        "ctx.step.attempt",
        "ctx.loop.value.x",
        "ctx.status.first",
        "ctx.error.first.kind",
        "ctx.error",
        "ctx.now",
        '""',
    ],
)
def test_a_path_that_may_lead_somewhere_passes(path: str) -> None:
    assert found_in(DOCUMENT.format(step=f"fn: f, input: {{x: {{var: {path}}}}}", more="")) == []


# Places ----------------------------------------------------------------------------------------------------

PLACES = [
    "fn: f, input: {x: {deep: [{var: ^inputs.a}]}}",
    "fn: f, input: {x: {var: [^inputs.a, 5]}}",
    "fn: f, input: {x: {cat: [a, {var: ^inputs.a}]}}",
    "fn: f, input: {x: {vars: ^'inputs.list[*].x'}}",
    "fn: f, input: {x: {vars: [^\"$.inputs['a']\"]}}",
    "fn: f, input: {x: {map: [{var: ^inputs.list}, {var: x}]}}",
    "fn: f, input: {x: {reduce: [[1], {var: current}, {var: ^inputs.a}]}}",
    "fn: f, input: {x: {missing: [^inputs.a]}}",
    "fn: f, input: {x: {missing: ^inputs.a}}",
    "fn: f, input: {x: {missing_some: [1, [input.a, ^inputs.a]]}}",
    "fn: f, when: {var: ^inputs.a}",
    "fn: f, filters: {filters: [{filters: [{expression: {var: ^inputs.a}}]}]}",
    "fn: f, filters: {filters: [{expression: 1, value: {var: ^inputs.a}}]}",
    "fn: f, required: [input.a, ^inputs.a]",
    "fn: f, map: {over: {var: ^inputs.list}}",
    "fn: f, map: {over: [{var: ^inputs.a}]}",
    "fn: f, join: {var: ^inputs.a}, depends_on: [first]",
    "fn: f, concurrency: {key: {var: ^inputs.a}, limit: 1}",
    "fn: f, output: {x: {var: ^inputs.a}}",
    "fn: f, compensate: {fn: f, input: {x: {var: ^inputs.a}}}",
    "fn: f, branch: [{condition: true, action: {set: {var: ^inputs.a}}}, {condition: true, action: halt}]",
    "switch: {on: {var: ^inputs.a}, cases: {}, default: []}",
    "workflow: {steps: []}, input: {x: {var: ^inputs.a}}",
    "workflow: {inputs: {a: {}}, steps: [{op: g, input: {x: {var: ^inputs.a}}}]}",
]


@pytest.mark.parametrize("step", PLACES)
def test_every_place_of_a_step_that_takes_an_expression_is_checked(step: str) -> None:
    text = DOCUMENT.format(step=step, more="outputs: {done: {var: steps.s.output}}")

    check_found(text, "unknown_root", "'inputs' is not a root of expressions here", found_in_hint(text))


def found_in_hint(text: str) -> str | None:
    return found_in(text.replace("^", ""))[0].hint


@pytest.mark.parametrize(
    ("more", "code", "message", "hint"),
    [
        (
            "outputs: {x: {var: ^steps.frist.output.x}}",
            "unknown_dependency",
            "there is no step 'frist'",
            "did you mean 'steps.first.output.x'?",
        ),
        (
            "outputs: {x: {var: ^ctx.step.attempt}}",
            "unknown_field",
            "ctx.step can only be read in a step",
            None,
        ),
        (
            "concurrency: {key: {var: ^input.aa}, limit: 1}",
            "undeclared_input",
            "the document declares its inputs, and 'aa' is not one of them",
            "did you mean 'input.a'?",
        ),
    ],
)
def test_the_places_of_the_document_are_checked(more: str, code: str, message: str, hint: str | None) -> None:
    check_found(DOCUMENT.format(step="fn: f", more=more), code, message, hint)


@pytest.mark.parametrize(
    "step",
    [
        "fn: f, map: {over: [1]}, input: {x: {var: item.a}, n: {var: index}}, output: {y: {var: item}}",
        "fn: f, map: {over: [1], as: line}, input: {x: {var: line.a}}, output: {y: {var: result.x}}",
        "fn: f, output: {x: {var: result.y}}",
        "fn: f, compensate: {fn: g, input: {x: {var: output.y}}}",
        "fn: f, kv_add: {x: {var: anything}, y: {var: output.n}}",
        "fn: f, branch: [{condition: {var: anything.x}, action: halt, result_expr: {x: {var: output.y}}}]",
        "fn: f, branch: [{condition: {var: stats.x}, action: halt}]",
        "fn: f, output: {size: 1}, branch: [{condition: {var: size}, action: halt}]",
        "fn: f, branch: [{condition: {var: inputs}, action: halt}]",
        "fn: f, input: {x: {$literal: {var: inputs.a}}}",
        "fn: f, input: {x: {var: {cat: [inputs, .a]}}, y: {var: true}, z: {var: []}}",
        "fn: f, input: {x: {vars: {var: input.a}}}",
        "fn: f, input: {x: {filter: [{var: input.list}, {var: inputs.a}]}}",
        "fn: f, input: {x: {map: [{var: input.list}, {cat: [{var: ''}, {var: state.x}, {var: steps.x}]}]}}",
        "fn: f, input: {x: {reduce: [[1], {'+': [{var: accumulator.n}, {var: current}, {var: ''}]}, 0]}}",
        "fn: f, input: {x: {missing: [[input.a, 5]]}, y: {missing: {var: input.list}}}",
    ],
)
def test_a_place_has_roots_of_its_own(step: str) -> None:
    text = DOCUMENT.format(step=step, more="outputs: {done: {var: steps.s.output}}")

    assert found_in(text) == []


def test_a_path_that_cannot_be_parsed_is_reported_once() -> None:
    problems = found_in("steps: [{op: a, input: {x: {vars: 'inputs[['}}}]")

    assert [problem.code for problem in problems] == ["bad_path"]


# Warnings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "code", "message", "hint"),
    [
        (
            "fn: f, output: {size: 1}, branch: [{condition: {var: ^siez}, action: halt}]",
            "unknown_output",
            "the output of step 's' has size, and not 'siez'",
            "did you mean 'size'?",
        ),
        (
            "fn: f, output: {size: 1}, compensate: {fn: g, input: {x: {var: ^output.siez}}}",
            "unknown_output",
            "the output of step 's' has size, and not 'siez'",
            "did you mean 'output.size'?",
        ),
        (
            "fn: f, branch: [{condition: {var: ^inputs.a}, action: halt}]",
            "doubtful_path",
            "'inputs' is no root, so it is read from the output of the step",
            "did you mean 'input.a'?",
        ),
        (
            "fn: f, kv_add: {n: {var: ^step.first.output.n}}",
            "doubtful_path",
            "'step' is no root, so it is read from the output of the step",
            "did you mean 'steps.first.output.n'?",
        ),
        (
            "fn: f, branch: [{condition: {var: ^flow.first.n}, action: halt}]",
            "doubtful_path",
            "'flow' is no root, so it is read from the output of the step",
            "did you mean 'flows.first.n'?",
        ),
        (
            "fn: f, input: {x: {filter: [{var: input.list}, {'>': [{var: ''}, {var: ^input.a}]}]}}",
            "doubtful_path",
            "inside 'filter' a path begins at the item, so this is read from the item",
            "compute it outside of 'filter'",
        ),
        (
            "fn: f, input: {x: {map: [{var: input.list}, {cat: [{var: ^steps.first.output.x}]}]}}",
            "doubtful_path",
            "inside 'map' a path begins at the item, so this is read from the item",
            "compute it outside of 'map'",
        ),
        (
            "fn: f, input: {x: {reduce: [{var: input.list}, {var: ^acumulator}, 0]}}",
            "unknown_root",
            "inside 'reduce' a path begins with accumulator or current",
            "did you mean 'accumulator'?",
        ),
        (
            "fn: f, input: {x: ^{vra: input.a}}",
            "doubtful_operator",
            "'vra' is not an operator, so this mapping is data",
            "did you mean 'var'? Write data as {$literal: ...}",
        ),
        (
            "fn: f, input: {x: [^{'**': [{var: input.a}, 2]}]}",
            "doubtful_operator",
            "'**' is not an operator, so this mapping is data",
            "write data as {$literal: ...}",
        ),
    ],
)
def test_what_may_be_meant_is_a_warning(step: str, code: str, message: str, hint: str | None) -> None:
    text = DOCUMENT.format(step=step, more="outputs: {done: {var: steps.s.output}}")

    check_found(text, code, message, hint)


@pytest.mark.parametrize(
    ("step", "keys"),
    [
        ("fn: f, map: {over: [1]}", ["items", "count", "errors"]),
        ("delay: 5s", ["ok", "error"]),
        ("switch: {on: {var: input.x}, cases: {}, default: []}", ["branch"]),
        ("workflow: {steps: [], outputs: {n: 1}}", ["n", "halted", "result"]),
        ("fn: f, map: {over: [1]}, output: {n: 1}", ["items"]),
        ("wait: {signal: go, timeout: 1h}, output: {n: 1}", ["n"]),
    ],
)
def test_the_keys_of_some_outputs_are_known(step: str, keys: list[str]) -> None:
    paths = "".join(f", {key}: {{var: steps.s.output.{key}}}" for key in [*keys, "qwertz"])
    text = f"steps: [{{id: s, {step}}}]\noutputs: {{x: 1{paths}}}"

    assert [(one.path, one.code) for one in found_in(text)] == [("outputs.qwertz.var", "unknown_output")]


def test_the_keys_of_an_output_that_a_branch_replaces_are_not_known() -> None:
    branch = "{condition: true, action: complete, result_expr: {var: result}}"
    text = f"steps: [{{id: s, fn: f, output: {{n: 1}}, branch: [{branch}]}}]"

    assert found_in(f"{text}\noutputs: {{m: {{var: steps.s.output.m}}}}") == []


def test_only_the_first_of_many_keys_are_named() -> None:
    output = ", ".join(f"k{n}: {n}" for n in range(13))

    [warning] = found_in(f"steps: [{{op: s, output: {{{output}}}}}]\noutputs: {{x: {{var: flows.s.qwertz}}}}")

    assert "has k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, ..., and not 'qwertz'" in warning.message


@pytest.mark.parametrize(
    "step", ["wait: {signal: go, timeout: 1h}", "workflow: other", "fn: f", "fn: f, loop: {}"]
)
def test_the_keys_of_other_outputs_are_not_known(step: str) -> None:
    assert found_in(f"steps: [{{id: s, {step}}}]\noutputs: {{x: {{var: steps.s.output.any}}}}") == []


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [
        ("{var: [input.other, 1]}", False),
        ("{any.default: [{var: input.other}, 1]}", False),
        ("{if: [{var: input.other}, 1, 2]}", False),
        ("{'!': {var: input.other}}", False),
        ("{missing: [input.other]}", False),
        ("{var: [input.custmer, 1]}", True),
        ("{any.default: [{var: input.custmer}, 1]}", True),
        ("{any.default: [{cat: [{var: input.other}]}, 1]}", True),
        ("{'==': [{var: input.other}, 1]}", True),
    ],
)
def test_an_undeclared_input_that_may_be_absent_is_not_reported_unless_it_is_like_a_declared_one(
    rule: str, is_found: bool
) -> None:
    text = f"inputs: {{customer: {{}}}}\nsteps: []\noutputs: {{x: {rule}}}"

    assert [one.code for one in found_in(text)] == ["undeclared_input"] * is_found


def test_inputs_are_only_known_where_they_are_declared() -> None:
    assert found_in("steps: []\noutputs: {x: {var: input.anything}}") == []
    assert [one.code for one in found_in("inputs: {}\nsteps: []\noutputs: {x: {var: input.any}}")] == [
        "undeclared_input"
    ]


def test_a_step_whose_id_has_dots_is_found_by_its_longest_id() -> None:
    text = """
steps:
  - {id: a, fn: f}
  - {id: a.b, fn: f}
outputs:
  one: {var: steps.a.output.b}
  two: {var: steps.a.b.output.x}
  three: {var: ctx.status.a.b}
  four: {vars: "steps['a.b'].output[*]"}
  five: {var: steps.a.b.c}
"""
    assert [(one.path, one.code) for one in found_in(text)] == [("outputs.five.var", "unknown_field")]


def test_the_examples_have_no_warnings() -> None:
    found = {path.name: load_spec(path.read_text()).warnings for path in EXAMPLES.glob("*.yaml")}

    assert found == dict.fromkeys(["invoice.yaml", "order.yaml", "process-invoice.yaml"], ())


# Operators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        ({"vra": "input.x"}, "var"),
        ({"Var": "steps.a.output.x"}, "var"),
        ({"va": ["input.x", 1]}, "var"),
        ({"vrs": "input.x[*]"}, "vars"),
        ({"fi": [{"var": "input.x"}, 1, 2]}, "if"),
        ({"AND": [{"var": "input.x"}, 1]}, "and"),
        ({"fliter": ["input.x", {"var": "y"}]}, "filter"),
        ({"filte": [{"var": "input.x"}, 1]}, "filter"),
        ({"=": [{"var": "input.x"}, 1]}, "=="),
        ({"&&": [{"var": "input.x"}, 1]}, "and"),
        ({"**": [{"var": "input.x"}, 2]}, ""),
        ({"str.uper": {"var": "input.x"}}, "str.upper"),
        ({"list.lenght": [{"var": "input.x"}]}, "list.length"),
        ({"id": {"var": "input.x"}}, None),
        ({"car": {"var": "input.x"}}, None),
        ({"car": "red"}, None),
        ({"car": "input"}, None),
        ({"filters": [{"var": "input.x"}]}, None),
        ({"counts": [{"var": "input.x"}, 2]}, None),
        ({"maps": ["input.x"]}, None),
        ({"items": [{"var": "input.x"}]}, None),
        ({"on": [{"var": "input.x"}]}, None),
        ({"vra": []}, None),
        ({"vra": 5}, None),
        ({"time.zone": {"var": "input.x"}}, None),
        ({"&&": [1, 2]}, None),
        ({"v" * 30: "input.x"}, None),
    ],
)
def test_data_that_looks_like_an_expression_is_told_from_other_data(
    data: dict[str, Any], meant: str | None
) -> None:
    [(key, argument)] = data.items()

    assert MisspeltOperators(ROOTS).find(key, argument) == meant


def test_the_search_for_misspelt_operators_is_limited() -> None:
    operators = MisspeltOperators(ROOTS)
    for n in range(1_000):
        assert operators.find(f"k{n}", "input.x") is None

    assert operators.find("vra", "input.x") is None
    assert operators.find("k1", "input.x") is None


@pytest.mark.parametrize("word", ["steps", "step", "stepss", "stesp", "stebs", "xsteps"])
def test_one_edit_is_one_letter_or_one_swap(word: str) -> None:
    assert is_one_edit_away(word, "steps")
    assert is_one_edit_away("steps", word)


@pytest.mark.parametrize("word", ["", "ste", "spets", "stxxs", "stepxs_", "stpse"])
def test_two_edits_are_too_many(word: str) -> None:
    assert not is_one_edit_away(word, "steps")


# All at once, and what was stored before -------------------------------------------------------------------


def test_one_problem_hides_no_other() -> None:
    text = """
inputs: {a: {type: strin}}
outputs: {x: {var: step.one}}
steps:
  - {id: one, fn: 3, depends_on: [5, tow], switch: {on: 3, cases: {a: x, b: [tow]}, default: [there]}}
  - {id: one, fn: f, depends_on: [nope], input: {x: {var: inputs.a}}, timeout: soon}
  - {fn: f, when: {grater: [1, 2]}, filters: {operator: XOR, filters: [{expression: {var: inputs.a}}]}}
  - {id: m, fn: f, map: {over: 3, as: 5}, input: {x: {var: item}, y: {var: inputs.a}}}
  - {id: w, wait: {signal: 5, timeout: soon}, required: [5, inputs.a]}
  - text
"""
    found = [(problem.line, problem.path, problem.code) for problem in found_in(text)]

    assert found == [
        (2, "inputs.a.type", "bad_type"),
        (3, "outputs.x.var", "unknown_root"),
        (5, "steps[0]", "many_kinds"),
        (5, "steps[0].fn", "bad_type"),
        (5, "steps[0].depends_on[0]", "bad_type"),
        (5, "steps[0].depends_on[1]", "unknown_dependency"),
        (5, "steps[0].switch.on", "bad_type"),
        (5, "steps[0].switch.cases.a", "bad_type"),
        (5, "steps[0].switch.cases.b[0]", "unknown_target"),
        (5, "steps[0].switch.default[0]", "unknown_target"),
        (6, "steps[1].id", "duplicate_id"),
        (6, "steps[1].depends_on[0]", "unknown_dependency"),
        (6, "steps[1].input.x.var", "unknown_root"),
        (6, "steps[1].timeout", "bad_duration"),
        (7, "steps[2]", "missing_id"),
        (7, "steps[2].when", "unknown_operator"),
        (7, "steps[2].filters.operator", "bad_policy"),
        (7, "steps[2].filters.filters[0].expression.var", "unknown_root"),
        (8, "steps[3].map.over", "bad_type"),
        (8, "steps[3].map.as", "bad_type"),
        (8, "steps[3].input.y.var", "unknown_root"),
        (9, "steps[4].wait.signal", "bad_type"),
        (9, "steps[4].wait.timeout", "bad_duration"),
        (9, "steps[4].required[0]", "bad_type"),
        (9, "steps[4].required[1]", "unknown_root"),
        (10, "steps[5]", "bad_type"),
    ]


@pytest.mark.parametrize("step", [*PLACES, "fn: f, input: {x: {var: steps.nope.output}}"])
def test_a_stored_document_is_loaded_without_these_checks(step: str) -> None:
    document = read_document(DOCUMENT.format(step=step.replace("^", ""), more="")).data
    with pytest.raises(InvalidSpec):
        check_spec(document)

    loaded = load_stored_spec(document)

    assert [one.id for one in loaded.spec.steps] == ["first", "shaped", "s"]
    assert loaded.warnings == ()


def test_a_stored_document_equals_a_new_one() -> None:
    document = read_document((EXAMPLES / "invoice.yaml").read_text()).data

    assert load_stored_spec(document) == check_spec(document)


@pytest.mark.parametrize("document", [5, {"steps": [{"id": "a"}]}, {"steps": [{"op": float("nan")}]}])
def test_a_stored_document_that_was_never_valid_is_rejected(document: Any) -> None:
    with pytest.raises(InvalidSpec):
        load_stored_spec(document)


def test_warnings_have_a_limit_too() -> None:
    document = {"inputs": {}, "steps": [], "outputs": {f"k{n}": {"var": "input.x"} for n in range(1_005)}}

    warnings = check_spec(document).warnings

    assert len(warnings) == 1_001
    assert str(warnings[-1]) == "there are more than 1000 warnings; these are some of them [too_big]"


def test_warnings_need_not_be_searched_for() -> None:
    text = "inputs: {}\nsteps: [{id: w, wait: {signal: go}}]\noutputs: {x: {var: input.x}}"

    assert len(load_spec(text).warnings) == 2
    assert load_spec(text, with_warnings=False).warnings == ()
