"""A document as YAML: readable, and the same document when it is read again."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.yaml_writer import WIDTH, render_yaml

EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "examples").glob("*.yaml"))

HOUSE = """\
name: order
description: |
  One order, from the shop
  to the shelf.
inputs:
  sku: {type: string, required: true}
defaults: {timeout: 2m, retry: {max_retries: 2, jitter_fraction: 0.1}}
steps:
  - id: check
    fn: check_order
    input: {sku: {var: input.sku}, note: "yes", page: "https://example.org/a"}
    branch:
      - condition: {"!": {var: accepted}}
        action: halt
        result_expr: {reason: {var: problem}}
  - id: ship
    switch: {on: {var: input.sku}, cases: {a: [check], "1": []}}
    when:
      and:
        - {"==": [{var: steps.check.output.the_name_of_the_first_warehouse}, {var: input.warehouse}]}
        - {"==": [{var: steps.check.output.the_name_of_the_other_warehouse}, {var: input.warehouse}]}
  - id: child
    workflow:
      steps:
        - op: pack
outputs: {}
"""


def again(document: dict[str, Any]) -> Any:
    return read_document(render_yaml(document)).data


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, with the same types of numbers and the same order of keys."""
    return json.dumps(left) == json.dumps(right)


# ---- style


def test_a_document_in_this_style_is_rendered_unchanged() -> None:
    assert render_yaml(read_document(HOUSE).data) == HOUSE


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_the_same_when_read_again(path: Path) -> None:
    document = read_document(path.read_text()).data

    text = render_yaml(document)

    assert same(read_document(text).data, document)
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (-3, "-3"),
        (0.1, "0.1"),
        (1e16, "1.0e+16"),
        (-1e-7, "-1.0e-07"),
        (1.5e300, "1.5e+300"),
        ("steps.a.output.x", "steps.a.output.x"),
        ("24h", "24h"),
        ("$literal", "$literal"),
        ("Straße 日本", "Straße 日本"),
        ("one document, with approval (if it's large)", "one document, with approval (if it's large)"),
        ("https://example.org/a#b", "https://example.org/a#b"),
        ("", '""'),
        ("1", '"1"'),
        ("on", '"on"'),
        ("null", '"null"'),
        ("2026-01-01", '"2026-01-01"'),
        ("a: b", '"a: b"'),
        ("a:", '"a:"'),
        ("a #b", '"a #b"'),
        ("a  b", '"a  b"'),
        (" a", '" a"'),
        ("{{ x }}", '"{{ x }}"'),
        ("- a", '"- a"'),
        ('"\\', r'"\"\\"'),
        ("\t\r\n", r'"\t\r\n"'),
        ("\x00\x7f\x85\xa0", r'"\x00\x7f\x85\xa0"'),
        ("\u2028\ufeff", r'"\u2028\ufeff"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("x\x00", r'"x\x00"'),
        ([], "[]"),
        ({}, "{}"),
        (OrderedDict(), "{}"),
        ([[], {}], "[[], {}]"),
        ([1, "a, b", {"c d": None}], '[1, "a, b", {c d: null}]'),
        ({"==": ["a:b", 1]}, '{"==": ["a:b", 1]}'),
        ({"on": 1, "off": 2, "<<": 3, "null": 4, "a.b": 5}, '{on: 1, "off": 2, "<<": 3, "null": 4, a.b: 5}'),
    ],
)
def test_a_short_value_is_on_the_line_of_its_key(value: Any, text: str) -> None:
    assert render_yaml({"key": value}) == f"key: {text}\n"
    assert same(again({"key": value}), {"key": value})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "key: |-\n  a\n  b\n"),
        ("a\n\n  b: #\n", "key: |\n  a\n\n    b: #\n"),
        (["a\nb", {"c": "d\ne\n"}], "key:\n  - |-\n    a\n    b\n  - c: |\n      d\n      e\n"),
        ([["a\nb"]], "key:\n  - - |-\n      a\n      b\n"),
        ([{"a": "b\nc", "d": 1}], "key:\n  - a: |-\n      b\n      c\n    d: 1\n"),
    ],
)
def test_a_string_of_several_lines_is_a_block_scalar(value: Any, text: str) -> None:
    assert render_yaml({"key": value}) == text
    assert same(again({"key": value}), {"key": value})


@pytest.mark.parametrize("text", ["a\n", "\na", " a\nb", "a \nb", "a\tb\nc", "a\nb\n\n", "\n\n", "a\r\nb"])
def test_lines_that_could_be_misread_are_quoted_and_escaped(text: str) -> None:
    assert "\\n" in render_yaml({"key": text})
    assert again({"key": [text]}) == {"key": [text]}


def test_a_line_is_filled_to_its_width_and_not_beyond() -> None:
    document = {"key": ["x" * (WIDTH - len("key: [, y]")), "y"]}
    fits, too_long = render_yaml(document), render_yaml({"keys": document["key"]})

    assert len(fits) == WIDTH + 1
    assert len(too_long.splitlines()) == 3


@pytest.mark.parametrize("length", [900, 1_001, 5_000])
@pytest.mark.parametrize("value", [1, [], {"a": {"b": 2}}, "c\nd", ["x" * WIDTH]])
def test_a_key_may_be_longer_than_yaml_likes(length: int, value: Any) -> None:
    document = {"a": {"k" * length: value, "b": [{"l" * length: value}]}, "m" * length: value}

    assert same(again(document), document)


def test_a_document_without_keys_is_a_document() -> None:
    assert render_yaml({}) == "{}\n"


def test_members_of_enumerations_are_their_values() -> None:
    class Colour(StrEnum):
        RED = "red"

        def __str__(self) -> str:
            return "a colour"

    class Size(IntEnum):
        LARGE = 3

    assert render_yaml({"a": Colour.RED, "b": Size.LARGE}) == "a: red\nb: 3\n"


@pytest.mark.parametrize(
    ("document", "code"),
    [({"a": float("nan")}, "not_json"), ({1: "a"}, "not_json"), ({"a": {1, 2}}, "not_json")],
)
def test_a_document_that_is_not_json_is_rejected(document: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        render_yaml(document)

    assert [problem.code for problem in refused.value.problems] == [code]


def test_a_document_that_is_too_deep_is_rejected() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"a": deep}

    with pytest.raises(InvalidSpec, match="too_deep"):
        render_yaml(deep)


# ---- any content

# fmt: off
STRANGE = st.sampled_from([
    "on", "null", "~", "1", "0x1F", "1_000", "1e3", "1.e+5", ".5", ".inf", "12:30", "yes", "=", "<<", "{{",
    "a: b", "a:", "a:b", "a #b", "#", "- a", "-", "? a", "?", "%x", "---", "...", "!x", "&a", "*a", "|", ">",
    "[", "@", "`", "'", '"', "\\", "\t", "a\tb", "a\nb\n", "a\n b", "\n a", "a\n\n", "a \nb", "  ", "\u2028",
    "\x85", "\ufeff", "\x7f", "\x00", "é", "😀", "2026-01-01", "steps", "branch",
])
# fmt: on
TEXTS = STRANGE | st.text(max_size=20) | st.lists(STRANGE, max_size=3).map("\n".join)
NUMBERS = (
    st.integers()
    | st.integers(-(2**1024) + 1, 2**1024 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def documents(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        st.none() | st.booleans() | NUMBERS | texts,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
        max_leaves=15,
    )
    return st.dictionaries(texts, values, max_size=4)


@given(documents(TEXTS))
def test_a_rendered_document_is_read_back_unchanged(document: dict[str, Any]) -> None:
    assert same(again(document), document)


@given(documents(TEXTS.filter(lambda text: text != "on")))
def test_other_yaml_readers_read_the_same_except_for_the_key_on(document: dict[str, Any]) -> None:
    assert same(yaml.safe_load(render_yaml(document)), document)
