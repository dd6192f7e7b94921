"""The conversion of an untrusted document ends soon, with a result or an error.

The time limit of every test stops a conversion that does not end.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.expressions.evaluation import check
from orchestrator.application.spec.document import scan_document
from orchestrator.application.spec.validation import load_spec
from orchestrator.convert import DIALECTS, UnknownDialect, convert
from orchestrator.convert.jinja import JinjaTranslator, convert_template
from orchestrator.convert.jmespath import convert_path
from orchestrator.convert.notes import CannotConvert

LONG = 200_000


def flow(template: str) -> str:
    return json.dumps({"flow": [{"name": "a", "source": {"type": "x"}, "input": {"text": template}}]})


@pytest.mark.parametrize(
    "template",
    [
        "{{ " * (LONG // 3),
        "}} " * (LONG // 3),
        "{{ flows.a.x }}" * (LONG // 15),
        "x{# #}" * (LONG // 6),
        "{% if 1 %}" * (LONG // 10),
        "{% if 1 %}{% endif %}" * (LONG // 21),
        "{% raw %}" * (LONG // 9),
        "{% for x in flows.a.l %}" * (LONG // 24),
        "{% for x in flows.a.l %}" * 20 + "{{ x }}" + "{% endfor %}" * 20,
        "{% for x in flows.a.l %}{{ x }}{% else %}" * 20 + "y" + "{% endfor %}" * 20,
        "{{ '" + "a" * LONG,
        "{{ '" + "\\a" * (LONG // 2) + "' }}",
        "{{ " + "(" * LONG + " }}",
        "{{ " + "not " * (LONG // 4) + "1 }}",
        "{{ " + "[" * (LONG // 2) + "]" * (LONG // 2) + " }}",
        "{{ " + "1 + " * (LONG // 4) + "1 }}",
        "{{ flows" + ".a" * (LONG // 2) + " }}",
        "{{ flows.a" + "|upper" * (LONG // 6) + " }}",
        "{{ 1 if " * (LONG // 8),
        "{{ " + " " * LONG + "}}",
        "{{ " + "9" * LONG + " }}",
        "{%" + " " * LONG + "endraw",
        "{{ {" + "'a': 1, " * (LONG // 8) + "} }}",
        "\n" * LONG + "{{ flows.a.x }}",
        "{{{{{{{{ }}}}}}}}",
        "{{ flows.a.x }} {% endif %} {{",
    ],
    ids=lambda template: template[:24],
)
def test_a_template_of_any_kind_is_read_in_time(template: str) -> None:
    made = convert(flow(template), "flowtoy")

    [step] = made.document["steps"]
    assert "text" in step["input"]


@pytest.mark.parametrize(
    "path",
    [
        "a" * LONG,
        "a." * (LONG // 2),
        "a[*]" * (LONG // 4),
        "(" * LONG,
        "!" * LONG + "a",
        "{a: " * (LONG // 4),
        "[?a" * (LONG // 3),
        "`" + "[" * LONG + "`",
        "'" + "a" * LONG,
        "a || " * (LONG // 5) + "a",
        "max_by(a, &" * 19 + "b" + ")" * 19,
        "max_by(" * 19 + "a" + ", &b)" * 19,
        "sort_by(" * 19 + "a" + ", &b)[0]" * 19,
    ],
    ids=lambda path: path[:12],
)
def test_a_path_of_any_kind_is_read_in_time(path: str) -> None:
    outputs = [{"name": "x", "type": "jmespath", "value": path}]

    made = convert(json.dumps({"flow": [{"name": "a", "source": {"type": "x"}, "output": outputs}]}))

    assert "x" in made.document["steps"][0]["branch"][-1]["result_expr"]


@pytest.mark.parametrize(
    "expression",
    [
        "input." * (LONG // 6),
        "kv[" * (LONG // 3),
        "!" * LONG + "input.x",
        "input.x && " * (LONG // 11),
        "input" + " " * LONG + "[",
        "int(" * 25 + "input.x" + ")" * 25,
        "string(" * 25 + "input.x" + ")" * 25,
        "input.x" + ".all(y, y)" * 60,
        "input.x.all(y, " * 25 + "y" + ")" * 25,
    ],
    ids=lambda expression: expression[:12],
)
def test_an_expression_of_any_kind_is_read_in_time(expression: str) -> None:
    flowlet = {"Name": "a", "ModuleRef": "m", "InputMapping": {"x": expression}, "Filters": [expression]}

    made = convert(json.dumps({"Flowlets": [flowlet]}))

    assert made.document["steps"][0]["filters"]["filters"][0]["expression"] is False


BOMB = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), "flow: []"]
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "flow: " + "[" * LONG,
        "flow: " + "{a: " * 100,
        json.dumps({"flow": []})[:-1],
        "flow: &a [*a]",
        "flow: []\nflow: [}",
        "\x00",
        "- a list",
        "just a text",
        "",
        "5",
        "flow: []\n---\nflow: []",
    ],
    ids=lambda text: text[:16],
)
def test_what_cannot_be_read_is_rejected(text: str) -> None:
    for dialect in (None, *DIALECTS):
        with pytest.raises(InvalidSpec):
            convert(text, dialect)


@pytest.mark.parametrize("text", ["{}", "a: 1", "steps: []", "steps: [{id: a}]", "flow: 5", "steps: 5"])
def test_what_shows_no_dialect_is_rejected(text: str) -> None:
    with pytest.raises(UnknownDialect, match="choose flowtoy, flow8 or runfox"):
        convert(text)


def test_an_unknown_dialect_is_rejected() -> None:
    with pytest.raises(UnknownDialect, match="unknown dialect 'airflow'"):
        convert("flow: []", "airflow")


def test_thousands_of_steps_of_one_name_get_different_ids_in_time() -> None:
    made = convert(json.dumps({"Flowlets": [{"Name": "same name", "ModuleRef": "m"} for _ in range(5_000)]}))

    assert len({step["id"] for step in made.document["steps"]}) == 5_000


def test_a_key_as_long_as_you_like_is_read_back() -> None:
    text = json.dumps({"flow": [{"name": "a", "source": {"type": "x"}, "input": {"k" * 5_000: "v"}}]})

    made = convert(text)

    assert scan_document(made.text)[0].data == made.document


def test_problems_of_the_text_that_leave_it_readable_get_notes() -> None:
    made = convert("flow: [{name: a, source: {type: x}, input: {day: 2026-01-01}}]\nname: a\nname: b")

    assert [(note.path, note.kind) for note in made.notes[:2]] == [
        ("flow[0].input.day", "lost"),
        ("name", "lost"),
    ]
    assert made.document["steps"][0]["input"] == {"day": None}


# ---- anything at all

# fmt: off
_KEYS = st.sampled_from([
    "flow", "steps", "sources", "runner", "name", "source", "input", "output", "type", "value", "template",
    "base", "override", "configuration", "depends_on", "on_error", "op", "branch", "max_attempts", "var",
    "in", "x-y", "Flowlets", "Name", "ModuleRef", "Filters", "Expression", "InputMapping", "Retry", "Timeout",
    "DependsOn", "Order",
])
_SCRAPS = st.sampled_from([
    "{{ flows.a.x }}", "{% if a %}", "{{", "kv['a']", "input.x > 1", "a[*].b", "rest", "jmespath", "fail",
    "5m0s", "a",
])
_OF_TEMPLATES = st.sampled_from([
    "{{", "}}", "{%", "%}", "{#", "#}", "if", "else", "endif", "(", ")", "[", "]", "{", "}", "|", ".", ",",
    "'a'", "1", "a", "+", "-", "~", "==", "in", "is", "not", "upper", "none",
])
_OF_PATHS = st.sampled_from([
    "a", "b", ".", "[", "]", "*", "[*]", "[?", "[]", "{", "}", "(", ")", ",", ":", "|", "||", "&&", "!", "==",
    "<", "`1`", "'x'", "@", "0", "-1", "length(",
])
# fmt: on
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _SCRAPS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_KEYS, _ANYTHING, max_size=5), st.sampled_from(DIALECTS))
def test_a_document_of_any_shape_is_converted_and_what_is_complete_loads(
    data: dict[str, Any], dialect: str
) -> None:
    made = convert(json.dumps(data), dialect)

    assert scan_document(made.text)[0].data == made.document
    if made.is_complete:
        assert load_spec(made.text).document == made.document


@settings(max_examples=500, deadline=None)
@given(st.lists(_OF_TEMPLATES))
def test_scraps_of_templates_are_rejected_or_give_what_is_valid(words: list[str]) -> None:
    def root(name: str, keys: list[Any]) -> tuple[Any, list[Any]]:
        return {"var": name}, keys

    with suppress(CannotConvert):
        rule = convert_template(" ".join(words), JinjaTranslator(root))
        assert check(rule, "") == []


@settings(max_examples=500, deadline=None)
@given(st.lists(_OF_PATHS))
def test_scraps_of_paths_are_rejected_or_give_what_is_valid(words: list[str]) -> None:
    with suppress(CannotConvert):
        rule, _ = convert_path("".join(words))
        assert check(rule, "") == []


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e999", '"\\ud800"'])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_not_json_is_read_as_null(value: str, dialect: str) -> None:
    converted = convert(f'{{"flow": [], "steps": [{{"op": "a", "input": {{"x": {value}}}}}]}}', dialect)

    json.dumps(converted.document, ensure_ascii=False, allow_nan=False).encode()
    assert any("read as null" in str(note) for note in converted.notes)
