"""Short references in documents: where they are read, what they become, and where problems are found."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from orchestrator.application.errors import DocumentTooBig, InvalidSpec, Problem
from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.spec.json_schema import build_schema
from orchestrator.application.spec.model import LoadedSpec, workflow_id
from orchestrator.application.spec.validation import check_spec, load_spec, load_stored_spec
from orchestrator.application.values.document_limits import DEFAULT_LIMITS, DocumentLimits

# A document that has a reference at every place that takes an expression. PLACE(x) is {{ x }} in one copy and
# {var: x} in the other.

X, RESULT, OUTPUT, NAME = "steps.a.output.x", "result.x", "output.x", "input.name"


def everywhere(place: Any) -> dict[str, Any]:
    mixed = place(NAME, "Hi ", "!")
    nested = {"deep": [place(X), {"list": [mixed]}], "rule": {"==": [place(X), {"cat": [mixed, "?"]}]}}
    return {
        "sources": {
            "keys": {"type": "env", "configuration": {"vars": ["KEY"]}},
            "api": {
                "type": "http",
                "configuration": {"headers": {"key": place("sources.keys.KEY", "Bearer ")}},
            },
        },
        "concurrency": {"key": place(NAME, "of "), "limit": 1},
        "steps": [
            {"id": "a", "fn": "f", "input": {"name": place(NAME), "text": mixed, **nested}},
            {
                "id": "b",
                "fn": "f",
                "when": place(X),
                "join": place("ctx.status.a"),
                "filters": {
                    "filters": [
                        {"expression": place(X)},
                        {"operator": "OR", "filters": [{"expression": place(X), "value": mixed}]},
                    ]
                },
                "input": {"item": place("item"), "default": place(NAME, default="you")},
                "map": {"over": place(X)},
                "output": {"x": place(RESULT), "y": place(RESULT, "<", ">")},
                "kv_add": {"flow:n": place(OUTPUT)},
                "compensate": {"fn": "g", "input": {"x": place(OUTPUT), **nested}},
                "concurrency": {"key": place(X), "limit": 2},
                "branch": [
                    {"condition": place(OUTPUT), "action": "halt", "result_expr": place(OUTPUT, "because ")},
                    {"condition": True, "action": {"set": ["b", place("state.next")], "value": "ready"}},
                ],
            },
            {"id": "c", "fn": "f", "map": {"over": [1, place(X), mixed]}},
            {"id": "d", "switch": {"on": place(X, "case "), "cases": {"case 1": []}, "default": []}},
            {"id": "e", "switch": {"on": place(X), "cases": {}, "default": []}},
            {
                "id": "f",
                "source": {"base": "api", "override": {"url": place("sources.keys.KEY", "https://")}},
            },
            {
                "id": "g",
                "source": {
                    "base": "api",
                    "override": {"type": "http", "configuration": {"url": place("sources.keys.KEY")}},
                },
            },
            {"id": "h", "source": {"type": "http", "configuration": {"url": [place("sources.keys.KEY")]}}},
        ],
        "outputs": {"x": place(X), "text": mixed, **nested},
    }


def in_short(path: str, before: str = "", after: str = "", default: str | None = None) -> str:
    return f"{before}{{{{ {path}{'' if default is None else f' or {default!r}'} }}}}{after}"


def in_long(path: str, before: str = "", after: str = "", default: str | None = None) -> Any:
    rule = {"var": path if default is None else [path, default]}
    parts = [part for part in (before, rule, after) if part]
    return rule if parts == [rule] else {"cat": parts}


def test_a_reference_means_the_same_as_its_long_form_at_every_place() -> None:
    written = everywhere(in_short)
    before = deepcopy(written)

    short, long = check_spec(written), check_spec(everywhere(in_long))

    assert short.spec == long.spec
    assert short.graph == long.graph
    assert (short.has_short_references, long.has_short_references) == (True, False)
    assert written == before


def test_the_schema_accepts_a_reference_at_every_place() -> None:
    schema = jsonschema.Draft202012Validator(build_schema())
    longer = {"id": "s", "fn": "f", "when": "{{ input.x }} > 1"}

    assert list(schema.iter_errors(everywhere(in_short))) == []
    assert [error.json_path for error in schema.iter_errors({"steps": [longer]})] == ["$.steps[0].when"]


def test_the_document_stays_as_it_is_written() -> None:
    written = everywhere(in_short)

    loaded = check_spec(written)

    assert loaded.document is written
    assert loaded.workflow_id == workflow_id(written) != check_spec(everywhere(in_long)).workflow_id


def step(**keys: Any) -> dict[str, Any]:
    return {"id": "s", "fn": "f", **keys}


def load_step(**keys: Any) -> LoadedSpec:
    return check_spec({"steps": [{"id": "a", "fn": "f"}, step(**keys)]})


@pytest.mark.parametrize(
    "value",
    [
        {LITERAL: "{{ input.x }}"},
        {LITERAL: {"a": ["{{ not | a path }}"]}},
        {"cat": ["a", {LITERAL: "{{"}]},
        {"password": {"secret": "name"}},
        "no braces",
    ],
)
def test_what_is_quoted_stays_as_it_is(value: Any) -> None:
    loaded = load_step(input={"x": value})

    assert loaded.spec.steps[1].input == {"x": value}
    assert not loaded.has_short_references


def test_keys_are_never_references() -> None:
    loaded = load_step(input={"{{ input.x }}": 1}, output={"{{ input.y }}": 2})

    assert (loaded.spec.steps[1].input, loaded.spec.steps[1].output) == (
        {"{{ input.x }}": 1},
        {"{{ input.y }}": 2},
    )


# ---- problems


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(text)
    return refused.value.problems


def check_problem(text: str, code: str, path: str, message: str) -> None:
    before, mark, after = text.partition("^")
    assert mark, "a ^ marks where it must be found"

    [problem] = problems_of(before + after)

    assert (problem.code, problem.path) == (code, path)
    assert message in str(problem)
    assert (problem.line, problem.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


@pytest.mark.parametrize(
    ("text", "code", "path", "message"),
    [
        (
            "steps:\n  - {id: s, fn: f, input: {x: ^'{{ inputs.x }}'}}",
            "unknown_root",
            "steps[0].input.x",
            "did you mean 'input.x'?",
        ),
        (
            "steps:\n  - id: s\n    fn: f\n    input:\n      x: ^>-\n        a\n        {{ steps.t.output }}",
            "unknown_dependency",
            "steps[0].input.x",
            "there is no step 't'",
        ),
        (
            "steps:\n  - {id: s, fn: f}\n  - {id: t, fn: f, input: {x: [1, ^'a {{ steps.s.outptu.x }}']}}",
            "unknown_field",
            "steps[1].input.x[1]",
            "did you mean 'steps.s.output.x'?",
        ),
        (
            "steps: []\noutputs: {x: ^'{{ ctx.step.id }}'}",
            "unknown_field",
            "outputs.x",
            "only be read in a step",
        ),
        (
            "steps:\n  - {id: s, fn: f, input: {x: ^'{{ input.x | upper }}'}}",
            "bad_reference",
            "steps[0].input.x",
            "write an operator, such as {str.upper: {var: input.x}}",
        ),
        (
            "steps:\n  - {id: s, fn: f, input: {x: {cat: [a, ^'{{ 1 + 1 }}']}}}",
            "bad_reference",
            "steps[0].input.x.cat[1]",
            "arithmetic",
        ),
        (
            "steps:\n  - {id: s, fn: f, when: ^'{{ input.n > 3 }}'}",
            "bad_reference",
            "steps[0].when",
            "a comparison",
        ),
        (
            "steps:\n  - {id: s, fn: f, when: ^'{{ input.n }} > 3'}",
            "bad_type",
            "steps[0].when",
            "a condition cannot be a string: it would never change",
        ),
        (
            "steps:\n  - {id: s, fn: f, join: ^'{{ input.n | int }}'}",
            "bad_reference",
            "steps[0].join",
            "a filter",
        ),
        (
            "steps:\n  - {id: s, fn: f, join: ^'n {{ input.n }}'}",
            "bad_policy",
            "steps[0].join",
            "must be all, any",
        ),
        (
            "steps:\n  - {id: s, fn: f, map: {over: ^'{{ input.a }}, {{ input.b }}'}}",
            "bad_type",
            "steps[0].map.over",
            "must be a list, or an expression that gives one",
        ),
        (
            "steps:\n  - {id: s, fn: f, filters: {expression: ^'len({{ input.x }}) > 0'}}",
            "bad_type",
            "steps[0].filters.expression",
            "a condition cannot be a string",
        ),
        (
            "steps:\n  - {id: s, fn: f, branch: [{condition: ^'{% if x %}', action: halt}]}",
            "bad_type",
            "steps[0].branch[0].condition",
            "a condition cannot be a string",
        ),
        (
            "sources: {k: {type: env}, a: {type: b, configuration: {url: ^'{{ sources.k.KEY }}'}}}\n"
            "steps: [{id: s, source: a}]",
            "bad_path",
            "sources.a.configuration.url",
            "the source 'k' has no variable 'KEY'",
        ),
        (
            "steps:\n  - {id: s, fn: f, input: {x: ^'{{ steps.t.output.x }}'}}\n"
            "  - {id: t, fn: f, input: {x: '{{ steps.s.output.x }}'}}",
            "cycle",
            "steps[0].input.x",
            "s -> t -> s",
        ),
        (
            "steps:\n  - id: s\n    workflow:\n      steps: [{id: t, fn: f, input: {x: ^'{{ a b }}'}}]",
            "bad_reference",
            "steps[0].workflow.steps[0].input.x",
            "is not a reference",
        ),
        (
            '{"steps": [{"id": "s", "fn": "f", "input": {"x": ^"{{ a b }}"}}]}',
            "bad_reference",
            "steps[0].input.x",
            "is not a reference",
        ),
        (
            "steps:\n  - {id: s, fn: f, input: {key: {secret: ^'{{ input.x }}'}}}",
            "bad_id",
            "steps[0].input.key.secret",
            "must be the name of a secret",
        ),
    ],
)
def test_a_problem_is_found_at_the_text(text: str, code: str, path: str, message: str) -> None:
    check_problem(text, code, path, message)


def test_a_warning_is_found_at_the_text() -> None:
    text = (
        "inputs: {customer: {}}\nsteps:\n  - {id: s, fn: f, output: {total: '{{ result.n }}'}}\n"
        "  - {id: t, fn: f, input: {x: 'for {{ input.customr }}', y: '{{ state.total }}'}}"
    )

    warnings = [(warning.code, warning.path, warning.line) for warning in load_spec(text).warnings]

    assert warnings == [
        ("undeclared_input", "steps[1].input.x", 4),
        ("state_read_race", "steps[1].input.y", 4),
    ]


def test_braces_without_quotes_get_a_hint_from_the_reader() -> None:
    check_problem(
        "steps:\n  - id: s\n    fn: f\n    input:\n      x: {^{ input.x }}",
        "not_json",
        "steps[0].input.x",
        'write a text that begins with braces in quotes: "{{ input.name }}"',
    )
    [problem] = problems_of("steps: [{id: s, input: {[a]: 1}}]")
    assert (problem.code, problem.hint) == ("not_json", None)


# ---- large texts


def test_the_limit_of_nodes_holds_for_the_expanded_form() -> None:
    check_problem(
        f"steps:\n  - {{id: s, fn: f, input: {{x: ^'{'{{ input.x }} ' * 100_000}'}}}}",
        "too_big",
        "steps[0].input.x",
        "the expression has more than 2,000 nodes",
    )


def test_aliases_cannot_make_a_document_too_large() -> None:
    repeated = ", ".join(["*text"] * (DEFAULT_LIMITS.max_nodes // 2_000))
    text = f"x-text: &text '{'{{ input.x }} ' * 600}'\nsteps: [{{id: s, fn: f, input: {{x: [{repeated}]}}}}]"

    [problem] = problems_of(text)

    assert (problem.code, problem.path) == ("too_big", "")
    assert "more than 500,000 nodes, short references expanded" in problem.message


def test_the_children_of_a_document_share_its_limit() -> None:
    """A coordinator checks small documents in its loop: one that becomes large is checked elsewhere."""
    child = "{id: s%d, workflow: {steps: [{id: s, fn: f, input: {x: [*text, *text]}}]}}"
    steps = ", ".join(child % n for n in range(20))
    text = f"x-text: &text '{'{{ input.x }} ' * 50}'\nsteps: [{steps}]"

    with pytest.raises(DocumentTooBig, match="more than 3,000 nodes, short references expanded"):
        load_spec(text, limits=DocumentLimits(max_nodes=3_000))
    assert load_spec(text, limits=DocumentLimits(max_nodes=9_000)).spec.steps


# ---- stored documents


OLD = ["{{ input.x | upper }}", "{{", "{% if x %}", "{{ 1 }} and more", "{{ a b }}", "{{ x or 1e999 }}"]


@pytest.mark.parametrize("text", OLD)
def test_a_stored_document_has_no_new_problems(text: str) -> None:
    document = {"steps": [step(input={"x": text, "y": ["{{ input.y }}"]})]}

    loaded = load_stored_spec(document)

    assert loaded.spec.steps[0].input == {"x": text, "y": [{"var": "input.y"}]}


def test_a_stored_text_with_too_many_references_stays_text() -> None:
    text = "{{ input.x }}" * 3_000

    assert load_stored_spec({"steps": [step(input={"x": text})]}).spec.steps[0].input == {"x": text}


def test_a_document_from_before_short_references_keeps_its_braces() -> None:
    child = {"steps": [step(input={"y": "{{ input.y }}"})]}
    document = {"steps": [step(input={"x": "{{ input.x }}"}), {"id": "c", "workflow": child}]}

    loaded = load_stored_spec(document, with_short_references=False)

    own, called = loaded.spec.steps
    assert own.input == {"x": "{{ input.x }}"}
    assert called.child is not None
    assert called.child.loaded is not None
    assert called.child.loaded.spec.steps[0].input == {"y": "{{ input.y }}"}
    assert (loaded.keeps_braces, loaded.has_short_references) == (True, False)


# ---- children, sources and flows


def test_an_inline_child_keeps_its_document() -> None:
    child = {"steps": [step(input={"y": "{{ input.y }}"})]}

    loaded = check_spec({"steps": [{"id": "c", "workflow": child, "input": {"y": "{{ input.z }}"}}]})

    [called] = loaded.spec.steps
    assert called.input == {"y": {"var": "input.z"}}
    assert called.child is not None
    assert called.child.loaded is not None
    assert called.child.document is child
    assert called.child.loaded.spec.steps[0].input == {"y": {"var": "input.y"}}


def test_the_templates_of_an_executor_stay_text_in_its_configuration() -> None:
    configuration = {"command": ["echo", "{{ input.name }}", "{{ raw }}{{ json.a }}"], "pass_to": "template"}

    loaded = check_spec(
        {"steps": [{"id": "s", "source": {"type": "process", "configuration": configuration}}]}
    )

    assert loaded.spec.steps[0].source == {"type": "process", "configuration": configuration}
    assert loaded.warnings == ()


FLOW = """
flow:
  - {{name: a, fn: f}}
  - {{name: b, fn: f, input: {{x: {text}}}}}
"""


def test_a_flow_with_paths_only_is_a_document_of_ours() -> None:
    loaded = load_spec(FLOW.format(text="'Hi {{ flows.a.name }}'"))

    assert loaded.spec.steps[1].input == {"x": {"cat": ["Hi ", {"var": "flows.a.name"}]}}
    assert loaded.graph.parents["b"] == ("a",)


def test_a_flow_may_quote_braces_and_have_a_child_with_references() -> None:
    text = FLOW.format(text="{$literal: '{{ a | b }}'}")
    text += "  - {name: c, workflow: {steps: [{id: d, fn: f, input: {x: '{{ input.x }}'}}]}}"

    assert load_spec(text).spec.steps[1].input == {"x": {LITERAL: "{{ a | b }}"}}


@pytest.mark.parametrize("text", ["{{ flows.a.name | upper }}", "{{ flows['a'] }}", "{% if x %}{% endif %}"])
def test_a_flow_with_other_templates_gets_the_hint_to_convert_it(text: str) -> None:
    [problem] = problems_of(FLOW.format(text=f'"{text}"'))

    assert (problem.code, problem.path) == ("bad_type", "flow[1].input.x")
    assert problem.hint == "use orchestrator convert, or write an expression"


# ---- texts that stay texts


@pytest.mark.parametrize(
    ("keys", "path", "hint"),
    [
        ({"webhook": {"url": "https://a/{{input.x}}"}}, "webhook.url", None),
        (
            {"webhook": {"url": "https://a", "headers": {"x": "{{ input.x }}"}}},
            "webhook.headers.x",
            None,
        ),
        ({"inputs": {"x": {"default": ["{{ input.y }}"]}}}, "inputs.x.default[0]", None),
        ({"steps": [{"id": "s", "fn": "{{ input.fn }}"}]}, "steps[0].fn", None),
        ({"steps": [{"id": "s", "workflow": "{{ input.child }}"}]}, "steps[0].workflow", None),
        (
            {
                "steps": [
                    step(branch=[{"condition": True, "action": "halt", "result": {"why": "{{ input.x }}"}}])
                ]
            },
            "steps[0].branch[0].result.why",
            "write result_expr instead of result",
        ),
        (
            {
                "steps": [
                    {"id": "s", "source": {"type": "http", "configuration": {"url": "{{ source.a.B }}"}}}
                ]
            },
            "steps[0].source.configuration.url",
            "it can read sources.<name>.<VARIABLE> only: pass other values as inputs",
        ),
        (
            {"steps": [{"id": "s", "source": {"type": "http", "configuration": {"url": ["{{ a | b }}"]}}}]},
            "steps[0].source.configuration.url[0]",
            "it can read sources.<name>.<VARIABLE> only: pass other values as inputs",
        ),
    ],
)
def test_a_template_at_another_place_is_a_warning(keys: dict[str, Any], path: str, hint: str | None) -> None:
    [warning] = check_spec({"steps": [], **keys}).warnings

    assert (warning.code, warning.path, warning.hint) == ("doubtful_template", path, hint)


@pytest.mark.parametrize(
    "document",
    [
        {"steps": [step(input={"x": "{{ input.x }}"}), "{{ x }}"], "inputs": [], "webhook": "{{ x }}"},
        {"steps": "{{ x }}", "outputs": "{{ y }}", "sources": ["{{ z }}"], "concurrency": "{{ z }}"},
        {"steps": [step(input="{{ x }}", branch=["{{ x }}"], filters="{{ x }}", map="{{ x }}")]},
        {"steps": [step(branch="{{ x }}", source={"base": "{{ a }}", "override": "{{ x }}"})]},
    ],
)
def test_a_document_of_the_wrong_shape_is_rejected_with_its_own_problems(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_spec(document)

    assert "bad_type" in {problem.code for problem in refused.value.problems}
    assert "bad_reference" not in {problem.code for problem in refused.value.problems}
