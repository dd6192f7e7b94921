"""The dotted operators, one by one, called as a rule calls them."""

from __future__ import annotations

import re
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions import functions as operators
from orchestrator.application.expressions.evaluation import OPERATORS, evaluate
from orchestrator.application.expressions.functions import MAX_RESULT_BYTES, MAX_SUBJECT_LENGTH
from orchestrator.application.expressions.meter import Meter
from orchestrator.application.expressions.safe_regex import BadPattern, compile_pattern
from orchestrator.application.values.json_types import describe_type

NOW = "2026-11-16T04:42:00.123Z"  # a Monday
CONTEXT = {
    "ctx": {"now": NOW},
    "kv": {
        "local": {"a": "local"},
        "flow": {"a": "flow", "b": "flow", "none": None},
        "global": {"a": "global", "b": "global", "c": "global", "none": 1, "x.y": "dotted"},
        "flow_group": {"a": "group"},
    },
}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"str.upper": "abc"}, "ABC"),
        ({"str.lower": ["ABC"]}, "abc"),
        ({"str.trim": " a b\n"}, "a b"),
        ({"str.replace": ["a-b-c", "-", "+"]}, "a+b+c"),
        ({"str.split": ["a,b,,c", ","]}, ["a", "b", "", "c"]),
        ({"str.split": [" a  b "]}, ["a", "b"]),
        ({"str.join": [["a", "b", 1, 2.5], "-"]}, "a-b-1-2.5"),
        ({"str.join": [["a", "b"]]}, "ab"),
        ({"str.contains": ["haystack", "st"]}, True),
        ({"str.contains": ["haystack", "x"]}, False),
        ({"str.starts_with": ["haystack", "hay"]}, True),
        ({"str.starts_with": ["haystack", "stack"]}, False),
        ({"str.ends_with": ["haystack", "stack"]}, True),
        ({"str.ends_with": ["haystack", "hay"]}, False),
        ({"str.matches": ["order-17", r"^order-\d+$"]}, True),
        ({"str.matches": ["order-x", r"^order-\d+$"]}, False),
        ({"list.length": [[1, 2, 3]]}, 3),
        ({"list.length": "four"}, 4),
        ({"list.length": {"$literal": {"a": 1}}}, 1),
        ({"list.first": [[7, 8]]}, 7),
        ({"list.last": [[7, 8]]}, 8),
        ({"list.first": [[]]}, None),
        ({"list.last": [[]]}, None),
        ({"list.sort": [[3, 1.5, 2]]}, [1.5, 2, 3]),
        ({"list.sort": [["b", "a"]]}, ["a", "b"]),
        ({"list.sort": [[1, 3, 2], True]}, [3, 2, 1]),
        ({"list.sort": [[]]}, []),
        ({"list.unique": [[2, 1, 2, "2", 2.0, {"a": 1}, {"a": 1}, None, None]]}, [2, 1, "2", {"a": 1}, None]),
        ({"obj.keys": {"$literal": {"b": 1, "a": 2}}}, ["b", "a"]),
        ({"obj.values": {"$literal": {"b": 1, "a": 2}}}, [1, 2]),
        ({"obj.get": [{"$literal": {"a.b": 5}}, "a.b"]}, 5),
        ({"obj.get": [{"$literal": {"a": 5}}, "b"]}, None),
        ({"obj.get": [{"$literal": {"a": 5}}, "b", "default"]}, "default"),
        ({"json.dumps": {"$literal": {"a": [1, "é", None]}}}, '{"a": [1, "é", null]}'),
        ({"json.parse": '{"a": [1, 2.5, null]}'}, {"a": [1, 2.5, None]}),
        ({"num.round": 2.5}, 3),
        ({"num.round": -2.5}, -3),
        ({"num.round": [2.345, 2]}, 2.35),
        ({"num.round": [1250, -2]}, 1300),
        ({"num.round": 1e300}, 1e300),
        ({"num.abs": -3}, 3),
        ({"num.abs": -3.5}, 3.5),
        ({"time.now": []}, NOW),
        ({"time.now": None}, NOW),
        ({"time.hour": []}, 4),
        ({"time.hour": "2026-11-16T01:30:00+03:00"}, 22),
        ({"time.hour": 3600}, 1),
        ({"time.weekday": []}, 1),
        ({"time.weekday": "2026-11-22"}, 7),
        ({"time.iso": 0}, "1970-01-01T00:00:00.000Z"),
        ({"time.iso": "2026-11-16T01:30:00+03:00"}, "2026-11-15T22:30:00.000Z"),
        ({"time.add": [{"time.now": []}, 90]}, "2026-11-16T04:43:30.123Z"),
        ({"time.add": ["2026-01-01", -0.5]}, "2025-12-31T23:59:59.500Z"),
        ({"kv.get": "a"}, "local"),
        ({"kv.get": "b"}, "flow"),
        ({"kv.get": "c"}, "global"),
        ({"kv.get": "x.y"}, "dotted"),
        ({"kv.get": "none"}, None),
        ({"kv.get": "global:a"}, "global"),
        ({"kv.get": "flow_group:a"}, "group"),
        ({"kv.get": "flow_group:b"}, None),
        ({"kv.get": ["zzz", 5]}, 5),
        ({"any.default": [None, {"var": "nowhere"}, 0, 5]}, 0),
        ({"any.default": [1, {"/": [1, 0]}]}, 1),
        ({"any.default": [None]}, None),
    ],
)
def test_an_operator_gives_its_value(rule: Any, expected: Any) -> None:
    value = evaluate(rule, CONTEXT)

    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"str.upper": None}, "str.upper: expected a string, got null"),
        ({"str.upper": []}, "str.upper takes 1 arguments, got 0"),
        ({"str.replace": ["a", "b"]}, "str.replace takes 3 arguments, got 2"),
        ({"str.split": ["a", ""]}, "str.split: empty separator"),
        ({"str.join": "abc"}, "str.join: expected a list, got a string"),
        ({"str.join": [[None]]}, "str.join: expected a string or a number, got null"),
        ({"str.contains": [["a"], "a"]}, "str.contains: expected a string, got a list"),
        ({"str.matches": ["a", 1]}, "str.matches: expected a string, got a number"),
        ({"str.matches": ["a", "("]}, r"str.matches: expected \)"),
        ({"str.matches": ["a" * (MAX_SUBJECT_LENGTH + 1), "a"]}, "str.matches: the text is longer"),
        ({"list.length": None}, "list.length: expected a list or a string or an object, got null"),
        ({"list.length": [1, 2, 3]}, "list.length takes 1 arguments, got 3"),
        ({"list.sort": [[1, "a"]]}, "list.sort: expected all numbers or all strings"),
        ({"list.sort": [[True, False]]}, "list.sort: expected all numbers or all strings"),
        ({"list.first": "abc"}, "list.first: expected a list, got a string"),
        ({"obj.keys": [[1]]}, "obj.keys: expected an object, got a list"),
        ({"obj.get": ["a", "b"]}, "obj.get: expected an object, got a string"),
        ({"json.parse": "{"}, "json.parse: "),
        ({"json.parse": "NaN"}, "json.parse: NaN is not a JSON number"),
        ({"json.parse": "1e999"}, "json.parse: 1e999 is not a JSON number"),
        ({"json.parse": '"\\ud800"'}, "json.parse: "),
        ({"json.parse": "[" * 50_000}, "json.parse: "),
        ({"num.round": "2.5"}, "num.round: expected a number, got a string"),
        ({"num.round": [2.5, 99]}, "num.round: expected at most 15 digits"),
        ({"num.abs": True}, "num.abs: expected a number, got a boolean"),
        ({"time.hour": None}, "time.hour: expected a string or a number, got null"),
        ({"time.hour": "yesterday"}, "time.hour: Invalid isoformat string"),
        ({"time.add": ["2026-01-01", 1e20]}, "time.add: "),
        ({"time.add": ["2026-01-01", "1"]}, "time.add: expected a number, got a string"),
        ({"time.iso": 1e300}, "time.iso: "),
        ({"kv.get": 5}, "kv.get: expected a string, got a number"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_the_operator(rule: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=f"^{message}"):
        evaluate(rule, CONTEXT)


def test_every_dotted_operator_is_explained() -> None:
    for operator in OPERATORS:
        family, _, name = operator.partition(".")
        if name:
            assert re.search(
                rf"^    {family}\.[^\[]*\b{name}\b.*\[", operators.__doc__ or "", re.MULTILINE
            ), operator


def test_without_a_context_there_is_no_time_and_no_key() -> None:
    assert evaluate({"time.now": []}, {}) is None
    assert evaluate({"kv.get": "a"}, {}) is None
    assert evaluate({"kv.get": "a"}, None) is None


def test_time_and_keys_come_from_the_context_inside_a_scope_too() -> None:
    rule = {
        "map": [
            [0, {"$literal": {"ctx": {"now": "1999-01-01"}}}],
            {"cat": [{"time.hour": []}, {"kv.get": "b"}]},
        ]
    }

    assert evaluate(rule, CONTEXT) == ["4flow", "4flow"]


@pytest.mark.parametrize(
    "rule",
    [
        {"str.replace": ["a" * 2_000, "a", "b" * 2_000]},
        {"str.join": [["a" * 1_000] * 1_100]},
        {"str.join": [["a"] * 1_100, "-" * 1_000]},
        {"str.upper": "ß" * (MAX_RESULT_BYTES // 2 + 1)},
        {"json.dumps": [["a" * 1_000] * 1_100]},
    ],
)
def test_no_text_grows_over_the_limit(rule: Any) -> None:
    with pytest.raises(ExpressionError, match=f"over {MAX_RESULT_BYTES:,} bytes"):
        evaluate(rule)


PATTERNS = [
    "abc",
    "a.c",
    "^a",
    "c$",
    "^abc$",
    "^$",
    "",
    "a|b",
    "^(a|bc)$",
    "(ab)+",
    "^(?:ab)*$",
    "a?b",
    "a{2}",
    "(a|)b",
    "^a{2,3}$",
    "^a{2,}$",
    "^a{0}b$",
    "[ab]c",
    "[^ab]",
    "[]a]",
    r"[\]a-b]",
    r"\d+",
    r"\.",
    r"\w\s\w",
    "a*?b",
    "é",
    "^(a*)*$",
    "^(a|b|ab)*c",
    "^(a?){3}$",
    r"a\\b",
    r"^[^@ ]+@[^@ ]+\.[a-z]{2,}$",
    "^(a{1,2}b?){2}$",
    r"\$\^",
    "(a+)+b",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(subject=st.text(alphabet="abc .@é\\]1$^", max_size=12))
def test_a_pattern_finds_what_the_standard_library_finds(pattern: str, subject: str) -> None:
    expected = re.search(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, subject)

    assert compile_pattern(pattern).is_found_in(subject, Meter()) is (expected is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        r"(?=a)",
        r"(?i)a",
        r"\bword",
        r"\Aa",
        "a**",
        "*a",
        "a{",
        "a{2",
        "a{,2}",
        "a{3,2}",
        "(a",
        "a)",
        "[a",
        "a$b",
        "a^b",
        "^a|b",
        "a|b$",
        "[[a]",
        "[a--b]",
        "[b-a]",
        "\\",
        "a" * 201,
        "(a{100}){100}",
        "((){99}){99}",
    ],
)
def test_an_unsafe_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "a*a*a*a*a*a*b", "(a?){50}a{50}b"])
def test_a_pattern_that_would_backtrack_forever_returns_at_once(pattern: str) -> None:
    started = process_time()

    assert not compile_pattern(pattern).is_found_in("a" * (MAX_SUBJECT_LENGTH - 1) + "!", Meter())
    assert process_time() - started < 2


def test_a_value_that_is_not_json_is_described_by_its_class() -> None:
    assert describe_type({1, 2}) == "a set"
