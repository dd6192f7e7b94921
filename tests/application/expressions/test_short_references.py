"""Short references: what a text with double braces stands for, and what is wrong with other braces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.expressions import short_references
from orchestrator.application.expressions.evaluation import check, evaluate
from orchestrator.application.expressions.reference_hints import MAX_SHOWN
from orchestrator.application.expressions.short_references import (
    MAX_PARTS,
    WHOLE_REFERENCE_PATTERN,
    BadReference,
    ShortReference,
    expand_text,
    holds_reference,
    is_whole_reference,
    parse_text,
)

LITERAL_HINT = "; {$literal: ...} keeps braces as text"

REFERENCES: list[tuple[str, Any]] = [
    ("{{ input.name }}", {"var": "input.name"}),
    ("{{input.lines.0.price}}", {"var": "input.lines.0.price"}),
    ("{{\n  steps.my-step.output.x\t}}", {"var": "steps.my-step.output.x"}),
    ("{{ item }}", {"var": "item"}),
    ("{{ __class__ }}", {"var": "__class__"}),
    ("{{ input.straße }}", {"var": "input.straße"}),
    ("{{ input.or or 'or' }}", {"var": ["input.or", "or"]}),
    ("{{ input.x or 'you' }}", {"var": ["input.x", "you"]}),
    ('{{ input.x or "it\'s }} \\"here\\"" }}', {"var": ["input.x", 'it\'s }} "here"']}),
    (r"{{ input.x or 'a\\b\n\'\t\r' }}", {"var": ["input.x", "a\\b\n'\t\r"]}),
    ("{{ input.x or '' }}", {"var": ["input.x", ""]}),
    ("{{ input.x or '{{ y }}' }}", {"var": ["input.x", "{{ y }}"]}),
    ("{{ input.x or 0 }}", {"var": ["input.x", 0]}),
    ("{{input.x or -12.5e-1}}", {"var": ["input.x", -1.25]}),
    ("{{ input.x or true }}", {"var": ["input.x", True]}),
    ("{{ input.x or false }}", {"var": ["input.x", False]}),
    ("{{ input.x or null }}", {"var": ["input.x", None]}),
    ("Hi {{ input.x }}!", {"cat": ["Hi ", {"var": "input.x"}, "!"]}),
    ("{{ input.x }}\n", {"cat": [{"var": "input.x"}, "\n"]}),
    (
        "{{ input.x }}{{ input.y or 1 }}}}",
        {"cat": [{"var": "input.x"}, {"var": ["input.y", 1]}, "}}"]},
    ),
]


@pytest.mark.parametrize(("text", "rule"), REFERENCES)
def test_a_text_with_references_is_an_expression(text: str, rule: Any) -> None:
    assert expand_text(text) == rule
    assert holds_reference(text)
    assert is_whole_reference(text) == ("var" in rule)
    assert ("var" in rule) <= (re.search(WHOLE_REFERENCE_PATTERN, text) is not None)


@pytest.mark.parametrize("text", ["", "plain", "}} {x} }}", '{"a": {"b": 1}}', "{ {x} }", "100 {%", "%} {%"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert expand_text(text) == text
    assert not holds_reference(text)
    assert not is_whole_reference(text)


def test_a_whole_reference_keeps_the_type_of_its_value() -> None:
    data = {"input": {"n": 5, "list": [1], "nothing": None}}

    assert evaluate(expand_text("{{ input.n }}"), data) == 5
    assert evaluate(expand_text("{{ input.list }}"), data) == [1]
    assert evaluate(expand_text("{{ input.other or 'x' }}"), data) == "x"
    assert evaluate(expand_text("n={{ input.n }}, {{ input.other or 2.5 }}"), data) == "n=5, 2.5"


BAD: list[tuple[str, str, str]] = [
    ("{{}}", "there is no path in it", "write a path, such as {{ steps.a.output.x }}"),
    ("{{ . }}", "is not a reference", "write a path"),
    ("{{ input.x. }}", "is not a reference", "write a path"),
    ("{{ input x }}", "is not a reference", "write a path"),
    ("{{ input.x or 1e999 }}", "is not a reference", "write a path"),
    (f"{{{{ input.x or {'9' * 5_000} }}}}", "is not a reference", "write a path"),
    ("{{ input.x \x00 }}", "is not a reference", "write a path"),
    ("{{ 5 }}", "a literal needs no braces", "write the literal alone"),
    ("{{ 'a' }}", "a literal needs no braces", "write the literal alone"),
    ("{{ {{ input.x }} }}", "there are braces in it", "one pair of braces holds one path"),
    ("{{{ input.x }}}", "there are braces in it", "one pair of braces holds one path"),
    ("a {{ input.x", "'{{ input.x' is never closed", "close it with }}"),
    ("{{ input.x | upper }}", "a filter is an operator here", "such as {str.upper: {var: input.x}}"),
    ("{{ input.x|length|abs }}", "a filter is an operator here", "such as {list.length: {var: input.x}}"),
    ("{{ input.x | unknown }}", "a filter is an operator here", "write an operator, such as {str.upper:"),
    ("{{ input.x | default('a') }}", "a filter is an operator here", "write {{ input.x or 'text' }}"),
    ("{{ input.x | join(', ') }}", "a filter", 'write {str.join: [{var: input.x}, ", "]}'),
    ("{{ input.x | replace('a', 'b') }}", "a filter", 'write {str.replace: [{var: input.x}, "old", "new"]}'),
    ("{{ len(input.x) }}", "a call is an operator here", "such as {list.length: {var: input.x}}"),
    (
        "{{ input.x + 1 }}",
        "arithmetic is an operator here",
        'write {"+": [{var: input.x}, 1]}, or {cat: [...]}',
    ),
    ("{{ -input.x }}", "arithmetic is an operator here", 'write {"+": [{var: input.x}, 1]}'),
    ("{{ input.x == 1 }}", "a comparison is an operator here", 'write {"==": [{var: input.x}, 1]}'),
    (
        "{{ not input.x }}",
        "a comparison is an operator here",
        'write {"==": [{var: input.x}, 1]}, with the operator that you',
    ),
    ("{{ 'a' ~ 'b' }}", "arithmetic is an operator here", 'write {"+": [{var: input.x}, 1]}'),
    (
        "{{ 'a' if input.x else 'b' }}",
        "a choice is an operator here",
        "write {if: [condition, {var: input.x}, else]}",
    ),
    ("{{ input.x or input.y }}", "a default is a literal", "{any.default: [{var: input.x}, {var: input.y}]}"),
    ("{{ input.x[0]['a-b'] }}", "brackets are not part of a path", "after dots: {{ input.x.0.a-b }}"),
    ("{{ input.x[-1] }}", "brackets are not part of a path", "after dots: {{ input.x.-1 }}"),
    ("{{ input.x[input.y] }}", "brackets are not part of a path", "write a path"),
    ("{{ input.x[*].y }}", "brackets are not part of a path", 'write {vars: "steps.a.output.items[*].x"}'),
    ("{% if input.x %}a{% endif %}", "a block is not evaluated here: '{% if input.x %}'", "write {if: "),
    ("{{ input.x }} {% x" + "x" * 500 + "%}", "a block is not evaluated here: '{% xx", "write {if: "),
]


@pytest.mark.parametrize(("text", "reason", "hint"), BAD)
def test_other_braces_are_an_error_that_says_what_to_write(text: str, reason: str, hint: str) -> None:
    with pytest.raises(BadReference) as refused:
        expand_text(text)

    assert reason in str(refused.value)
    assert hint in refused.value.hint
    assert refused.value.hint.endswith(LITERAL_HINT)
    assert len(str(refused.value)) < MAX_SHOWN * 4
    assert holds_reference(text)
    assert not is_whole_reference(text)


def test_a_long_text_between_braces_is_shortened() -> None:
    with pytest.raises(BadReference, match=r"'\{\{ x{57}\.\.\.' is not a reference"):
        expand_text("{{ " + "x" * 1_000 + " y }}")


def test_a_lenient_reader_leaves_other_braces_as_text() -> None:
    text = "{% a %} {{ b | c }} {{ input.x }} {{{ d }}} {{"

    assert parse_text(text, is_lenient=True) == [
        "{% a %} {{ b | c }} ",
        ShortReference("input.x"),
        " {{{ d }}} {{",
    ]


def test_with_a_root_other_paths_are_text() -> None:
    text = "{{ sources.a.B }}-{{ input.x }}-{{ sourcesx.a }}"

    assert expand_text(text, root="sources") == {
        "cat": [{"var": "sources.a.B"}, "-{{ input.x }}-{{ sourcesx.a }}"]
    }


# ---- hostile texts

HOSTILE = [
    "{" * 1_000_000,
    "}" * 1_000_000,
    "{{ " * 300_000,
    "{{ a or '" * 100_000,
    '{{ a or "\\' * 100_000,
    "{{ a" + " " * 1_000_000,
    "{{ " + "a." * 500_000,
    "{{ " + "a" * 1_000_000 + " !}}",
    "{%" * 500_000,
    "{{a}}" * 200_000 + "{{",
    "{{ a or " + "1" * 1_000_000 + " }}",
]


class CountingPattern:
    """Counts how often a pattern is tried, and how many characters it matches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern, self.tries, self.matched = pattern, 0, 0

    def match(self, text: str, start: int) -> re.Match[str] | None:
        self.tries += 1
        found = self._pattern.match(text, start)
        self.matched += len(found[0]) if found else 0
        return found


@pytest.fixture
def pattern(monkeypatch: pytest.MonkeyPatch) -> CountingPattern:
    counting = CountingPattern(short_references._REFERENCE)
    monkeypatch.setattr(short_references, "_REFERENCE", counting)
    return counting


@pytest.mark.untraced
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:12]!r} of {len(text)}")
def test_a_hostile_text_is_read_once(text: str, pattern: CountingPattern) -> None:
    parts = parse_text(text, is_lenient=True)

    assert pattern.tries <= text.count("{{") + 1
    assert pattern.matched <= len(text)
    assert len(parts) <= MAX_PARTS + 3
    if len(parts) <= MAX_PARTS:
        assert sum(len(part) for part in parts if isinstance(part, str)) == len(text)


def test_the_pattern_cannot_backtrack() -> None:
    """Every part that may repeat is possessive, so that no character of a match is tried again."""
    limits = list(find_limits_of_greedy_repeats(_parser.parse(short_references._REFERENCE.pattern)))

    assert limits
    assert set(limits) == {1}


def find_limits_of_greedy_repeats(pattern: Any) -> Iterator[int]:
    for operation, argument in pattern:
        inner = argument[-1] if isinstance(argument, tuple) else None
        if str(operation) in ("MAX_REPEAT", "MIN_REPEAT"):
            yield int(argument[1])
        for part in argument[1] if str(operation) == "BRANCH" else [inner]:
            if isinstance(part, _parser.SubPattern):
                yield from find_limits_of_greedy_repeats(part)


def test_a_text_with_very_many_references_is_too_big(pattern: CountingPattern) -> None:
    rule = expand_text("{{ input.x }}, " * 100_000)

    assert [problem.code for problem in check(rule, "steps[0].input.x")] == ["too_big"]
    assert pattern.tries <= MAX_PARTS


# ---- any text

TEXTS = st.text(st.sampled_from("{}% abor|.'\"\\10-é\n"), max_size=40)


@given(TEXTS)
def test_every_character_is_in_one_part(text: str) -> None:
    try:
        parts = parse_text(text)
    except BadReference:
        parts = parse_text(text, is_lenient=True)

    rest = text
    for part in parts:
        found = part if isinstance(part, str) else short_references._REFERENCE.match(rest)[0]  # type: ignore[index]
        assert rest.startswith(found)
        rest = rest[len(found) :]
    assert rest == ""


DEFAULTS = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
NAMES = st.from_regex(r"[^\W\d][\w-]{0,8}", fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=4), DEFAULTS)
def test_a_default_that_is_json_is_read_as_json(names: list[str], default: Any) -> None:
    text = f"{{{{ {'.'.join(names)} or {json.dumps(default)} }}}}"

    assert expand_text(text) == {"var": [".".join(names), default]}
