"""Jinja's templates as expressions: each pair is evaluated, and gives what Jinja gives."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.convert.jinja import JinjaTranslator, convert_template
from orchestrator.convert.notes import CannotConvert

A: dict[str, Any] = {
    "name": "Ada",
    "last": "Lovelace",
    "padded": "  x ",
    "n": 5,
    "half": 2.5,
    "zero": 0,
    "yes": True,
    "nothing": None,
    "empty": [],
    "words": ["b", "a", "c"],
    "numbers": [3, 1, 2],
    "users": [{"name": "Ada", "id": 1}, {"name": "Bob", "id": 2}],
    "deep": {"key with space": "v", "dotted.key": {"x": 7}, "list": [[1, 2], [3]]},
    "status": "running",
}
DATA = {"steps": {"a": {"output": A}, "my-step": {"output": {"x": "dash"}}}, "flows": {"a": A}}


def root(name: str, keys: list[Any]) -> tuple[Any, list[Any]]:
    """As in the inputs of steps."""
    if name != "flows":
        raise CannotConvert(f"the variable {name} does not exist here")
    return ({"var": f"steps.{keys[0]}.output"}, keys[1:]) if keys else ({"var": "flows"}, [])


def var(path: str) -> dict[str, str]:
    return {"var": f"steps.a.output.{path}"}


NAME, LAST, N = var("name"), var("last"), var("n")

PAIRS: list[tuple[str, Any, Any]] = [
    # references
    ("{{ flows.a.name }}", NAME, "Ada"),
    ("{{flows.a.name}}", NAME, "Ada"),
    ("{{ flows['a']['name'] }}", NAME, "Ada"),
    ("{{ flows['my-step'].x }}", {"var": "steps.my-step.output.x"}, "dash"),
    ("{{ flows.a.users[0].name }}", var("users.0.name"), "Ada"),
    ("{{ flows.a.users.1.id }}", var("users.1.id"), 2),
    ("{{ flows.a.deep.list[0][1] }}", var("deep.list.0.1"), 2),
    ("{{ flows.a.deep['key with space'] }}", var("deep.key with space"), "v"),
    (
        "{{ flows.a.deep['dotted.key'].x }}",
        {"obj.get": [{"obj.get": [var("deep"), "dotted.key"]}, "x"]},
        7,
    ),
    ("{{ flows.a.words[-1] }}", {"list.last": var("words")}, "c"),
    ("{{ (flows.a.words | sort)[0] }}", {"list.first": {"list.sort": var("words")}}, "a"),
    ("{{ flows | length }}", {"list.length": {"var": "flows"}}, 1),
    # literals
    ("{{ 'text' }}", "text", "text"),
    ('{{ "it\'s" }}', "it's", "it's"),
    (r"{{ 'tab\tquote\'' }}", "tab\tquote'", "tab\tquote'"),
    (r"{{ '\u00e9\x41\q' }}", "éA\\q", "éA\\q"),
    ("{{ 'one' 'two' }}", "onetwo", "onetwo"),
    ("{{ 'braces }} inside' }}", "braces }} inside", "braces }} inside"),
    ("{{ 12 }}", 12, 12),
    ("{{ 1.5 }}", 1.5, 1.5),
    ("{{ 1e3 }}", 1000.0, 1000.0),
    ("{{ -3 }}", -3, -3),
    ("{{ +3 }}", 3, 3),
    ("{{ true }}{{ False }}", {"cat": [True, False]}, "TrueFalse"),
    ("{{ none }}", None, None),
    ("{{ [1, flows.a.n] }}", [1, N], [1, 5]),
    ("{{ (1, 2) }}", [1, 2], [1, 2]),
    ("{{ (1,) }}", [1], [1]),
    ("{{ [] }}", [], []),
    ("{{ {} }}", {}, {}),
    ("{{ {'x': flows.a.n, 'y': 2} }}", {"x": N, "y": 2}, {"x": 5, "y": 2}),
    ("{{ {'x': flows.a.n} }}", {"x": N}, {"x": 5}),
    # mixed text
    ("plain", "plain", "plain"),
    ("", "", ""),
    ("Hi {{ flows.a.name }}!", {"cat": ["Hi ", NAME, "!"]}, "Hi Ada!"),
    ("{{ flows.a.name }}{{ flows.a.last }}", {"cat": [NAME, LAST]}, "AdaLovelace"),
    ("n={{ flows.a.n }} y={{ flows.a.yes }}", {"cat": ["n=", N, " y=", var("yes")]}, "n=5 y=True"),
    ("x={{ flows.a.nothing }}", {"cat": ["x=", var("nothing")]}, "x=None"),
    ("l={{ flows.a.numbers }}", {"cat": ["l=", var("numbers")]}, "l=[3, 1, 2]"),
    ("one\n{{ flows.a.n }}\n", {"cat": ["one\n", N]}, "one\n5"),
    ("a\r\nb\n\n", "a\nb\n", "a\nb\n"),
    ("{# a comment #}text", "text", "text"),
    ("a {#- trimmed -#} b", "ab", "ab"),
    ("a {{- flows.a.n -}} b", {"cat": ["a", N, "b"]}, "a5b"),
    ("a {{+ flows.a.n }} b", {"cat": ["a ", N, " b"]}, "a 5 b"),
    ("{% raw %}{{ as it is }}{% endraw %}", "{{ as it is }}", "{{ as it is }}"),
    ("{'not': 'a template'}", "{'not': 'a template'}", "{'not': 'a template'}"),
    # filters
    ("{{ flows.a.name | upper }}", {"str.upper": NAME}, "ADA"),
    ("{{ flows.a.name|lower }}", {"str.lower": NAME}, "ada"),
    ("{{ flows.a.padded | trim }}", {"str.trim": var("padded")}, "x"),
    ("{{ flows.a.name | replace('A', 'E') }}", {"str.replace": [NAME, "A", "E"]}, "Eda"),
    ("{{ flows.a.words | join(', ') }}", {"str.join": [var("words"), ", "]}, "b, a, c"),
    ("{{ flows.a.numbers | join }}", {"str.join": var("numbers")}, "312"),
    ("{{ flows.a.users | length }}", {"list.length": var("users")}, 2),
    ("{{ flows.a.name | count }}", {"list.length": NAME}, 3),
    ("{{ flows.a.users[0] | tojson }}", {"json.dumps": var("users.0")}, '{"name": "Ada", "id": 1}'),
    ("{{ [flows.a.n] | tojson }}", {"json.dumps": [[N]]}, "[5]"),
    ("{{ flows.a.name | default('x') }}", {"any.default": [NAME, "x"]}, "Ada"),
    ("{{ flows.a.missing | default('x') }}", {"any.default": [var("missing"), "x"]}, "x"),
    ("{{ flows.a.missing | d(0) }}", {"any.default": [var("missing"), 0]}, 0),
    ("{{ flows.a.missing | default }}", {"any.default": [var("missing"), ""]}, ""),
    ("{{ flows.a.zero | default(9, true) }}", {"or": [var("zero"), 9]}, 9),
    ("{{ flows.a.zero | default(9, false) }}", {"any.default": [var("zero"), 9]}, 0),
    ("{{ flows.a.n | string }}", {"cat": N}, "5"),
    ("{{ 'x' | string }}", "x", "x"),
    ("{{ flows.a.words | first }}", {"list.first": var("words")}, "b"),
    ("{{ flows.a.words | last }}", {"list.last": var("words")}, "c"),
    ("{{ flows.a.numbers | sort }}", {"list.sort": var("numbers")}, [1, 2, 3]),
    ("{{ [1, 1, 2] | unique | join }}", {"str.join": {"list.unique": [[1, 1, 2]]}}, "12"),
    ("{{ -flows.a.n | abs }}", {"num.abs": {"-": N}}, 5),
    ("{{ 2.345 | round(1) }}", {"num.round": [2.345, 1]}, 2.3),
    (
        "{{ flows.a.users | map(attribute='name') | join('; ') }}",
        {"str.join": [{"map": [var("users"), {"var": "name"}]}, "; "]},
        "Ada; Bob",
    ),
    (
        "{{ flows.a.padded | trim | upper | replace('X', '_') }}",
        {"str.replace": [{"str.upper": {"str.trim": var("padded")}}, "X", "_"]},
        "_",
    ),
    # comparison and logic
    ("{{ flows.a.status == 'running' }}", {"==": [var("status"), "running"]}, True),
    ("{{ flows.a.status != 'running' }}", {"!=": [var("status"), "running"]}, False),
    ("{{ flows.a.n == 5 }}", {"===": [N, 5]}, True),
    ("{{ flows.a.n == '5' }}", {"===": [N, "5"]}, False),
    ("{{ flows.a.nothing == 'None' }}", {"===": [var("nothing"), "None"]}, False),
    ("{{ flows.a.n != none }}", {"!==": [N, None]}, True),
    ("{{ flows.a.n < 6 }}", {"<": [N, 6]}, True),
    ("{{ flows.a.n >= 6 }}", {">=": [N, 6]}, False),
    ("{{ 'a' in flows.a.words }}", {"in": ["a", var("words")]}, True),
    ("{{ 'z' not in flows.a.words }}", {"!": {"in": ["z", var("words")]}}, True),
    ("{{ 'd' in flows.a.name }}", {"in": ["d", NAME]}, True),
    ("{{ flows.a.n in [1, 5] }}", {"in": [N, [1, 5]]}, True),
    ("{{ flows.a.zero or flows.a.name }}", {"or": [var("zero"), NAME]}, "Ada"),
    ("{{ flows.a.n and flows.a.name and 1 }}", {"and": [N, NAME, 1]}, 1),
    ("{{ not flows.a.empty }}", {"!": var("empty")}, True),
    ("{{ not flows.a.n == 5 }}", {"!": {"===": [N, 5]}}, False),
    ("{{ flows.a.n is none }}", {"===": [N, None]}, False),
    ("{{ flows.a.n is not none }}", {"!==": [N, None]}, True),
    ("{{ flows.a.missing is defined }}", {"!==": [var("missing"), None]}, False),
    ("{{ flows.a.missing is undefined }}", {"===": [var("missing"), None]}, True),
    ("{{ flows.a.n is not undefined }}", {"!==": [N, None]}, True),
    ("{{ flows.a.n > 1 and flows.a.n < 9 }}", {"and": [{">": [N, 1]}, {"<": [N, 9]}]}, True),
    (
        "{{ 1 if flows.a.zero or flows.a.n == 5 and flows.a.yes else 2 }}",
        {"if": [{"or": [var("zero"), {"and": [{"===": [N, 5]}, var("yes")]}]}, 1, 2]},
        1,
    ),
    # choices
    ("{{ 'x' if flows.a.yes else 'y' }}", {"if": [var("yes"), "x", "y"]}, "x"),
    ("{{ flows.a.zero if flows.a.zero else 'none' }}", {"if": [var("zero"), var("zero"), "none"]}, "none"),
    ("{{ 'x' if flows.a.zero }}", {"if": [var("zero"), "x", ""]}, ""),
    (
        "{{ 1 if flows.a.zero else 2 if flows.a.empty else 3 }}",
        {"if": [var("zero"), 1, {"if": [var("empty"), 2, 3]}]},
        3,
    ),
    ("{% if flows.a.yes %}on{% endif %}", {"if": [var("yes"), "on", ""]}, "on"),
    ("{% if flows.a.zero %}on{% else %}off{% endif %}", {"if": [var("zero"), "on", "off"]}, "off"),
    (
        "{% if flows.a.n > 9 %}big{% elif flows.a.n > 3 %}mid {{ flows.a.n }}{% else %}small{% endif %}.",
        {"cat": [{"if": [{">": [N, 9]}, "big", {">": [N, 3]}, {"cat": ["mid ", N]}, "small"]}, "."]},
        "mid 5.",
    ),
    (
        "{%- if flows.a.yes -%}\n  a\n{%- else %}b{% endif %}",
        {"if": [var("yes"), "a", "b"]},
        "a",
    ),
    (
        "{% if flows.a.yes %}{% if flows.a.zero %}1{% else %}2{% endif %}{% endif %}",
        {"if": [var("yes"), {"if": [var("zero"), "1", "2"]}, ""]},
        "2",
    ),
    # arithmetic and concatenation
    ("{{ flows.a.n + 1 }}", {"+": [N, 1]}, 6),
    ("{{ true + 1 }}", {"+": [True, 1]}, 2),
    ("{{ 1 + flows.a.n + 2 }}", {"+": [1, N, 2]}, 8),
    ("{{ flows.a.n - 1 - 2 }}", {"-": [{"-": [N, 1]}, 2]}, 2),
    ("{{ flows.a.n * 2 + 1 }}", {"+": [{"*": [N, 2]}, 1]}, 11),
    ("{{ (flows.a.n + 1) * 2 }}", {"*": [{"+": [N, 1]}, 2]}, 12),
    ("{{ flows.a.n / 2 }}", {"/": [N, 2]}, 2.5),
    ("{{ flows.a.n % 3 }}", {"%": [N, 3]}, 2),
    ("{{ flows.a.name + ' ' + flows.a.last }}", {"cat": [NAME, " ", LAST]}, "Ada Lovelace"),
    ("{{ flows.a.name ~ flows.a.n ~ '!' }}", {"cat": [NAME, N, "!"]}, "Ada5!"),
    ("{{ flows.a.n ~ '' }}", {"cat": N}, "5"),
    ("{{ 'a' ~ (1 + flows.a.n) }}", {"cat": ["a", {"+": [1, N]}]}, "a6"),
    ("{{ 1 ~ 2 * 3 }}", {"cat": [1, {"*": [2, 3]}]}, "16"),
    ("{{ flows.a.words + [1] }}", {"merge": [var("words"), [1]]}, ["b", "a", "c", 1]),
    ("{{ flows.a.name | upper + '!' }}", {"cat": [{"str.upper": NAME}, "!"]}, "ADA!"),
    (
        "{{ ('x' if flows.a.yes else 'y') + flows.a.name }}",
        {"cat": [{"if": [var("yes"), "x", "y"]}, NAME]},
        "xAda",
    ),
]


@pytest.mark.parametrize(("template", "expected", "value"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_template_becomes_an_expression_of_the_same_value(template: str, expected: Any, value: Any) -> None:
    rule = convert_template(template, JinjaTranslator(root))

    assert rule == expected
    found = evaluate(rule, DATA)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "{% for k, v in flows.a.pairs %}{{ k }}{% endfor %}",
            "a loop with several variables has no equivalent",
        ),
        ("{% for x in flows.a.l recursive %}{{ x }}{% endfor %}", "a recursive loop has no equivalent"),
        ("{% for x in flows.a.words %}{{ loop.index }}{% endfor %}", "loop has no equivalent: to put text"),
        (
            "{% for x in flows.a.words %}{{ flows.a.n }}{% endfor %}",
            "cannot be read inside of a loop here, only x",
        ),
        ("{% for x in 'text' %}{{ x }}{% endfor %}", "a loop over a string has no equivalent"),
        ("{% for x in flows.a.words %}{% set y = x %}{% endfor %}", "{% set %} has no equivalent"),
        ("{% for x in flows.a.words %}", "not valid Jinja"),
        ("{% set x = 1 %}", "{% set %} has no equivalent"),
        ("{% macro m() %}{% endmacro %}", "{% macro %} has no equivalent"),
        ("{% %}", "not valid Jinja: tag name expected"),
        ("{{ flows.a.name | capitalize }}", "the filter capitalize has no equivalent"),
        ("{{ flows.a.name | replace('a') }}", "the filter replace with these arguments"),
        ("{{ flows.a.words | join(', ', attribute='x') }}", "the filter join with these arguments"),
        ("{{ flows.a.words | join(*flows.a.words) }}", "the filter join with these arguments"),
        ("{{ flows.a.words | map('upper') }}", "the filter map has no equivalent"),
        ("{{ flows.a.words | map(attribute=1) }}", "the filter map has no equivalent"),
        ("{{ flows.a.items() }}", "a function or method call"),
        ("{{ range(3) }}", "a function or method call"),
        ("{{ flows.a.n is even }}", "the test `is even` has no equivalent"),
        ("{{ other.x }}", "the variable other does not exist here"),
        ("{{ flows.a[flows.a.n] }}", "a computed index"),
        ("{{ flows.a[1.5] }}", "a computed index"),
        ("{{ flows.a.words[1:] }}", "a slice is not supported"),
        ("{{ flows.a.words[true] }}", "only a string or a number is supported in brackets"),
        ("{{ (flows.a.words | sort)[2] }}", "[2] of a computed value"),
        ("{{ 'text'[0] }}", "a string has no 0"),
        ("{{ flows.a.words[-2] }}", "[-2] of a computed value"),
        ("{{ 1 < flows.a.n < 9 }}", "chained comparisons"),
        ("{{ flows.a.n // 2 }}", "the operator // has no equivalent"),
        ("{{ 'x' * 3 }}", "* of a string has no equivalent"),
        ("{{ '%s' % flows.a.n }}", "% of a string has no equivalent"),
        ("{{ {1: 2} }}", "the keys of a mapping must be strings"),
        ("{{ {'max': flows.a.n} }}", "would be read as an expression"),
        ("{{ {'x': 1} | tojson }}", "is not valid: 'x' is not an operator"),
        ("{{ }}", "not valid Jinja: expected an expression"),
        ("{{ flows.a.n", "unexpected end of template, expected 'end of print statement'"),
        ("{{ flows.a.n }", "not valid Jinja: unexpected '}'"),
        ("{{ flows.a.n ) }}", "not valid Jinja: unexpected ')'"),
        ("{{ (flows.a.n }}", "unexpected '}', expected ')'"),
        ("{{ flows.a. }}", "expected name or number"),
        ("{{ 1 'a' }}", "expected token 'end of print statement', got 'string'"),
        ("{{ * }}", "unexpected '*'"),
        ("{{ flows.a ; }}", "got ';'"),
        ("text\n{{ flows.a & 1 }}", "not valid Jinja in line 2: unexpected char '&' at 16"),
        ("{{ 'open }}", 'unexpected char "\'" at 3'),
        ("{{ '\\ud800' }}", "is not JSON"),
        ("{{ 1e999 }}", "inf is not JSON"),
        ("{{ " + "9" * 400 + " }}", "more than 300 digits"),
        ("{# open", "missing end of comment tag"),
        ("{% raw %}", "{% raw %} is not closed"),
        ("{% raw %}x", "missing end of raw directive"),
        ("{% if flows.a.n %}", "The innermost block that needs to be closed is 'if'"),
        ("{% if flows.a.n %}{% else %}{% elif 1 %}{% endif %}", "encountered unknown tag 'elif'"),
        ("{% endif %}", "encountered unknown tag 'endif'"),
        ("{% if %}x{% endif %}", "expected an expression"),
        ("{{ " + "(" * 50 + "1" + ")" * 50 + " }}", "nested more than"),
        ("{{ " + "- " * 50 + "1 }}", "nested more than"),
        ("{{ " + " - ".join(["1"] * 100) + " }}", "nested more than 50 levels"),
        ("{{ " + " + ".join(["1"] * 200) + " }}", "too long"),
        ("{% if 1 %}" * 30 + "{% endif %}" * 30, "blocks are nested"),
    ],
)
def test_what_has_no_equivalent_is_rejected_with_its_reason(template: str, reason: str) -> None:
    with pytest.raises(CannotConvert) as error:
        convert_template(template, JinjaTranslator(root))

    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("template", "change"),
    [
        ("{{ flows.a.name + flows.a.last }}", "+ adds numbers here"),
        ("{{ 2.5 | round }}", "halves away from zero"),
        ("{{ flows.a.words | sort }}", "is case-sensitive here"),
        ("{{ flows.a.words | unique }}", "is case-sensitive here"),
    ],
)
def test_what_means_something_else_gets_a_note(template: str, change: str) -> None:
    translator = JinjaTranslator(root)

    convert_template(template, translator)

    [message] = translator.changes
    assert change in message


def test_a_long_concatenation_stays_flat() -> None:
    template = "".join(f"{n}={{{{ flows.a.n }}}}, " for n in range(200))

    rule = convert_template(template, JinjaTranslator(root))

    assert list(rule) == ["cat"]
    assert evaluate(rule, DATA) == "".join(f"{n}=5, " for n in range(200))
