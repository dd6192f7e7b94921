"""How a converted document is written: readable, and read back as the same data."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.application.document import scan_document
from orchestrator.convert.style import WIDTH, dump

DOCUMENT: dict[str, Any] = {
    "name": "order",
    "runner": {"max_workers": 2},
    "sources": {"api": {"type": "http", "configuration": {"url": "https://example.org"}}},
    "steps": [
        {
            "id": "fetch",
            "source": "api",
            "timeout": "5m",
            "input": {"text": {"cat": ["Dear ", {"var": "steps.a.output.name"}, "!"]}},
            "branch": [
                {"condition": {"<": [{"var": "n"}, 3]}, "action": "complete"},
                {"condition": True, "action": {"set": "fetch", "value": "ready"}},
            ],
        },
        {"id": "note", "fn": "slack", "input": {"text": {"$literal": "first {{ line }}\nsecond\n"}}},
    ],
    "outputs": {"n": {"var": "steps.fetch.output.n"}},
}
WRITTEN = """\
name: order
runner: {max_workers: 2}
sources:
  api: {type: http, configuration: {url: "https://example.org"}}
steps:
  - id: fetch
    source: api
    timeout: 5m
    input: {text: {cat: ["Dear ", {var: steps.a.output.name}, "!"]}}
    branch:
      - {condition: {"<": [{var: n}, 3]}, action: complete}
      - {condition: true, action: {set: fetch, value: ready}}
  - id: note
    fn: slack
    input:
      text:
        $literal: |
          first {{ line }}
          second
outputs:
  n: {var: steps.fetch.output.n}
"""


def read(text: str) -> Any:
    document, problems = scan_document(text)
    assert problems == []
    return document.data


def test_a_document_is_written_as_people_write_it() -> None:
    assert dump(DOCUMENT) == WRITTEN


def test_what_does_not_fit_a_line_goes_below() -> None:
    document = {
        "steps": [{"id": "a", "fn": "b", "input": {"x": {"cat": ["word " * 8] * 6}, "y": [["z" * 60] * 3]}}]
    }

    text = dump(document)

    assert max(map(len, text.splitlines())) <= WIDTH
    assert read(text) == document


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain words", "plain words"),
        ("steps.a.output.x", "steps.a.output.x"),
        ("true", '"true"'),
        ("null", '"null"'),
        ("yes", '"yes"'),
        ("12", '"12"'),
        ("1e5", '"1e5"'),
        ("2026-01-01", '"2026-01-01"'),
        ("90s", "90s"),
        ("", '""'),
        ("a: b", '"a: b"'),
        ("trailing ", '"trailing "'),
        ("#", '"#"'),
        ("<", '"<"'),
        ("é", '"é"'),
        ("a\tb", '"a\\tb"'),
        ("\x85\ufeff\x7f", '"\\u0085\\ufeff\\u007f"'),
        (True, "true"),
        (None, "null"),
        (1e16, "1.0e+16"),
        (1.5e-07, "1.5e-07"),
        (1e-07, "1.0e-07"),
        (0.5, "0.5"),
        (-3, "-3"),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_a_value_is_quoted_only_where_it_must_be(value: Any, written: str) -> None:
    text = dump({"x": value})

    assert text == f"x: {written}\n"
    assert read(text) == {"x": value}
    assert yaml.safe_load(text) == {"x": value}


@pytest.mark.parametrize(
    "text",
    ["a\nb", "a\nb\n", "a\n\nb", " a\nb", "a\nb\n\n", "a \nb", "\na", "a\n", "a\r\nb", "a\n\tb", "#\n- x: y"],
)
def test_a_text_of_several_lines_is_a_block_where_that_is_exact(text: str) -> None:
    for document in ({"x": text}, {"steps": [{"id": text, "list": [text, "b"]}]}):
        assert read(dump(document)) == document
        assert yaml.safe_load(dump(document)) == document


def test_an_empty_document_is_one() -> None:
    assert dump({}) == "{}\n"


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "steps.a",
        "on",
        "~",
        "=",
        "<<",
        "a\nb\n",
        "- a",
        "? b",
        "{x",
        "0x1F",
        "1_000",
        "1:30",
        ".inf",
        "!t",
        "&a",
        "*a",
    ]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_TEXTS | st.just("steps"), _VALUES, max_size=4))
def test_whatever_is_written_is_read_back(document: dict[str, Any]) -> None:
    text = dump(document)

    assert json.dumps(read(text)) == json.dumps(document)
