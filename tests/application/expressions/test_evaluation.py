"""Expressions: the library's results, the corrections, the limits, and what an expression must not reach."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from time import process_time
from typing import Any

import json_logic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import count
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import (
    MAX_DEPTH,
    MAX_NODES,
    OPERATORS,
    Reference,
    check,
    check_condition,
    evaluate,
    find_references,
    is_expression,
    resolve,
)
from orchestrator.application.expressions.json_logic import _load_private_copy
from orchestrator.application.expressions.jsonpath import SupportsDescend

ACCUMULATOR = {"var": "accumulator"}
HERE = {"var": ""}


def value_of(rule: Any, data: Any = None) -> str:
    """As JSON, so that true is not 1."""
    return json.dumps(evaluate(rule, data))


# The same results as the published library


@pytest.mark.parametrize(
    ("rule", "data", "expected"),
    [
        ({"==": [1, "1"]}, None, True),
        ({"===": [1, 1.0]}, None, True),
        ({"===": [1, "1"]}, None, False),
        ({"!=": [1, 2]}, None, True),
        ({"!==": [1, "1"]}, None, True),
        ({"<": [1, 2, 3]}, None, True),
        ({"<": [1, 4, 3]}, None, False),
        ({"<=": ["1", 1]}, None, True),
        ({">": [2, 1]}, None, True),
        ({">=": [1, 1]}, None, True),
        ({"!": [[]]}, None, True),
        ({"!!": "0"}, None, True),
        ({"in": ["a", "cat"]}, None, True),
        ({"in": [1, [1, 2]]}, None, True),
        ({"cat": ["a", 1, True]}, None, "a1True"),
        ({"substr": ["jsonlogic", -5, -2]}, None, "log"),
        ({"+": ["1", 2.5, 0.5]}, None, 4),
        ({"-": [3]}, None, -3),
        ({"*": [2, 1.5, 2]}, None, 6),
        ({"/": [4, 2]}, None, 2),
        ({"%": [7, 4]}, None, 3),
        ({"min": [3, 1, 2]}, None, 1),
        ({"max": []}, None, None),
        ({"merge": [1, [2, [3]]]}, None, [1, 2, [3]]),
        ({"count": [1, 0, "a"]}, None, 2),
        ({"if": [False, 1, True, 2, 3]}, None, 2),
        ({"?:": [False, 1, 2]}, None, 2),
        ({"and": [1, "", {"/": [1, 0]}]}, None, ""),
        ({"or": [0, "a", {"/": [1, 0]}]}, None, "a"),
        ({"var": "a.b.1"}, {"a": {"b": [5, 6]}}, 6),
        ({"var": ["a.c", 9]}, {"a": {"b": 1}}, 9),
        ({"var": ["a", 9]}, {"a": None}, None),
        ({"var": 1}, ["x", "y"], "y"),
        ({"var": {"cat": ["a", ".", "b"]}}, {"a": {"b": 1}}, 1),
        ({"missing": ["a", "b", "c", "d"]}, {"a": None, "b": "", "c": 0}, ["a", "b", "d"]),
        ({"missing": {"merge": ["a", {"if": [True, ["b"], []]}]}}, {"a": 1}, ["b"]),
        ({"missing_some": [1, ["a", "b"]]}, {"a": 1}, []),
        ({"missing_some": [2, ["a", "b"]]}, {"a": 1}, ["b"]),
        ({"map": [{"var": "n"}, {"*": [{"var": ""}, 2]}]}, {"n": [1, 2]}, [2, 4]),
        ({"filter": [{"var": "n"}, {"%": [{"var": ""}, 2]}]}, {"n": [1, 2, 3]}, [1, 3]),
        ({"reduce": [[1, 2, 3], {"+": [ACCUMULATOR, {"var": "current"}]}, 0]}, None, 6),
        ({"reduce": [{"var": "nowhere"}, 1, 7]}, {}, 7),
        ({"all": [[1, 2], {">": [{"var": ""}, 0]}]}, None, True),
        ({"all": [[], True]}, None, False),
        ({"some": [[1, 2], {">": [{"var": ""}, 1]}]}, None, True),
        ({"none": [[], True]}, None, True),
        ({"map": [{"var": "nowhere"}, 1]}, {}, []),
        ([1, {"var": "x"}, [{"var": "x"}]], {"x": 2}, [1, 2, [2]]),
    ],
)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # the library deprecates `count`
def test_an_operator_gives_what_the_library_gives(rule: Any, data: Any, expected: Any) -> None:
    assert value_of(rule, data) == json.dumps(expected)
    assert json.dumps(json_logic.jsonLogic(rule, data)) == json.dumps(expected)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-9, 9)
    | st.sampled_from(["", "a", "1", "1.5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(
    operator=st.sampled_from(sorted(json_logic.operations.keys() - {"method", "count", "log"})),
    args=st.lists(JSON),
)
def test_wherever_the_library_has_a_result_ours_is_the_same(operator: str, args: list[Any]) -> None:
    rule = {operator: args}
    data = {"a": [3, 0.5], "b": {"c": "1"}, "1": 2}
    try:
        theirs = json_logic.jsonLogic(rule, data)
    except Exception:
        return  # a defect of the library, or an error here too: the corrections have their own tests

    assert value_of(rule, data) == json.dumps(theirs)


# The corrections


@pytest.mark.parametrize(
    ("rule", "data", "expected"),
    [
        ({"var": ["a.5", "default"]}, {"a": [1]}, "default"),
        ({"var": ["a.-1", "default"]}, {"a": [1]}, "default"),
        ({"var": ["a.0", "default"]}, {"a": "text"}, "default"),
        ({"var": ["a.x", "default"]}, {"a": [1]}, "default"),
        ({"var": ["a.²", "default"]}, {"a": [1, 2, 3]}, "default"),
        ({"var": [["a"], "default"]}, {"a": 1}, "default"),
        ({"var": "a.5"}, {"a": [1]}, None),
        ({"var": ""}, 0, 0),
        ({"<": ["abc", 5]}, None, False),
        ({"<=": ["abc", 5]}, None, False),
        ({">": ["abc", 5]}, None, False),
        ({">=": [5, "abc"]}, None, False),
        ({"<": [1, "abc", 5]}, None, False),
        ({"<": [{"var": "a"}, 5]}, {"a": {"b": 1}}, False),
        ({"<": ["a", [1]]}, None, False),
        ({"<": ["abc", "abd"]}, None, True),
        ({"reduce": [[1], {"+": [ACCUMULATOR, {"var": "current"}]}, {"var": "start"}]}, {"start": 9}, 10),
        ({"reduce": [{"var": "no"}, 1, {"var": "start"}]}, {"start": 9}, 9),
        ({"count": [[1, 0, None]]}, None, 3),
        ({"count": {"var": "a"}}, {"a": []}, 0),
        ({"count": [[], [1]]}, None, 1),
        ({"log": {"var": "a"}}, {"a": 5}, 5),
        ({"vars": "a[*].b"}, {"a": [{"b": 1}, {}, {"b": 2}]}, [1, 2]),
        ({"vars": "nowhere[*]"}, {"a": 1}, []),
        ({"vars": {"cat": ["a", "[*]"]}}, {"a": [1]}, [1]),
        ({"map": [[0, "", [], None, False, {}], {"var": ""}]}, None, [0, "", [], None, False, {}]),
        ({"map": [[0, 1], {"+": [{"var": ""}, 1]}]}, None, [1, 2]),
        ({"filter": [[0, 1, ""], {"!": [{"var": ""}]}]}, None, [0, ""]),
        ({"all": [[0, 0], {"===": [{"var": ""}, 0]}]}, None, True),
        ({"some": [[0], {"===": [{"var": ""}, 0]}]}, None, True),
        ({"none": [[0], {"===": [{"var": ""}, 0]}]}, None, False),
        ({"reduce": [[0, None], {"merge": [ACCUMULATOR, [{"var": "current"}]]}, []]}, None, [0, None]),
    ],
)
def test_a_correction_holds(rule: Any, data: Any, expected: Any) -> None:
    assert value_of(rule, data) == json.dumps(expected)


def test_other_users_of_the_library_are_not_affected() -> None:
    assert "vars" not in json_logic.operations
    with pytest.raises(IndexError):
        json_logic.jsonLogic({"var": "1"}, [0])
    with pytest.raises(ValueError, match="invalid literal"):
        json_logic.jsonLogic({"<": ["abc", 5]})


# Which objects are expressions


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{{x}}", "{{x}}"),
        (None, None),
        ({"timeout": 5}, {"timeout": 5}),
        ({"method": "GET"}, {"method": "GET"}),
        ({"a": {"var": "x"}, "b": [{"var": "x"}, {"c": {"var": "x"}}]}, {"a": 7, "b": [7, {"c": 7}]}),
        ({"var": "x", "other": {"var": "x"}}, {"var": "x", "other": 7}),
        ({"$literal": {"var": "x"}}, {"var": "x"}),
        ({"a": {"$literal": [{"var": "x"}]}}, {"a": [{"var": "x"}]}),
        ({"if": [True, {"$literal": {"var": "x"}}]}, {"var": "x"}),
        ({"if": [True, {"a": {"var": "x"}, "b": [{"var": "x"}, 1]}]}, {"a": 7, "b": [7, 1]}),
        ({"merge": [[{"$literal": {"+": 1}}, [2]]]}, [{"+": 1}, [2]]),
        ({}, {}),
    ],
)
def test_only_a_known_operator_makes_an_expression(value: Any, expected: Any) -> None:
    assert resolve(value, {"x": 7}) == expected


def test_is_expression_is_true_for_operators_only() -> None:
    assert is_expression({"var": "x"})
    assert is_expression({"str.upper": "x"})
    assert not is_expression({"$literal": 1})
    assert not is_expression({"method": [1]})
    assert not is_expression({"var": "x", "y": 1})
    assert not is_expression(["var"])
    assert not is_expression({})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"/": [1, 0]}, "/: division by zero"),
        ({"%": [1, 0]}, "%: "),
        ({"+": [None]}, r"\+: int\(\) argument"),
        ({"+": ["abc"]}, r"\+: invalid literal"),
        ({"in": [1, "text"]}, "in: "),
        ({"==": [1]}, "== takes 2 arguments, got 1"),
        ({"<": [1, 2, 3, 4]}, "< takes 2 to 3 arguments, got 4"),
        ({"?:": [1, 2]}, r"\?: takes 3 arguments"),
        ({"map": [[1]]}, "map takes 2 arguments"),
        ({"any.default": []}, None),
        ({"vars": "a["}, "vars: expected an index"),
        ({"vars": 5}, "vars: expected a string, got a number"),
        ({"if": [{"map": [[1], {"/": [1, 0]}]}, 1]}, "/: division by zero"),
        ({"+": ["1.0e999"]}, r"\+: the result is not a finite number"),
        ({"merge": [float("nan")]}, "nan is not a JSON number"),
        ({"merge": [[float("inf")]]}, "inf is not a JSON number"),
    ],
)
def test_a_failure_names_its_operator(rule: Any, message: str | None) -> None:
    if message is None:
        assert evaluate(rule) is None
        return
    with pytest.raises(ExpressionError, match=f"^{message}"):
        evaluate(rule)


# Limits


def nested(levels: int, wrap: Any) -> Any:
    rule: Any = 1
    for _ in range(levels):
        rule = wrap(rule)
    return rule


BLOW_UPS = {
    "a text that doubles": {"reduce": [{"var": "n"}, {"cat": [ACCUMULATOR, ACCUMULATOR]}, "ab"]},
    "a text repeated many times": {"cat": [{"var": "text"}] * 1_500},
    "a list that doubles": {"reduce": [{"var": "n"}, {"merge": [ACCUMULATOR, ACCUMULATOR]}, [1]]},
    "a list told many times": {"merge": [{"var": "n"}] * 1_500},
    "a list that grows one by one": {"reduce": [{"var": "n"}, {"merge": [ACCUMULATOR, 1]}, []]},
    "a tree that doubles": {"reduce": [{"var": "n"}, [ACCUMULATOR, ACCUMULATOR], 1]},
    "an object that doubles": {"reduce": [{"var": "n"}, {"a": ACCUMULATOR, "b": ACCUMULATOR}, 1]},
    "a tree of nested maps": nested(40, lambda rule: {"map": [[rule], [{"var": ""}, {"var": ""}]]}),
    "a list that gets deeper": {"reduce": [{"var": "n"}, [ACCUMULATOR], 1]},
    "a number that squares": {"reduce": [{"var": "n"}, {"*": [ACCUMULATOR, ACCUMULATOR]}, 3]},
    "a number that doubles": {"reduce": [{"var": "n"}, {"+": [ACCUMULATOR, ACCUMULATOR]}, 3]},
    "a large product": {"*": [10**300, 10**300]},
    "maps in maps": {"map": [{"var": "n"}, {"map": [{"$literal": [0] * 1_000}, {"+": [1, 1]}]}]},
    "many arguments": {"map": [{"var": "n"}, {"max": [1] * 1_900}]},
    "a search in a long text": {"map": [{"var": "n"}, {"str.split": ["a," * 50_000, ","]}]},
    "a comparison of trees": {
        "reduce": [{"var": "n"}, {"if": [{"==": [HERE, HERE]}, ACCUMULATOR]}, {"var": "n"}]
    },
    "many missing names": {
        "reduce": [{"var": "n"}, {"if": [{"missing": [ACCUMULATOR]}, ACCUMULATOR]}, {"var": "n"}]
    },
    "many patterns": {"map": [{"var": "n"}, {"str.matches": ["x", {"cat": [".{0,99}.{0,99}z", HERE]}]}]},
    "many walks of a path": {
        "reduce": [{"var": "n"}, {"if": [{"vars": "..x"}, 1, ACCUMULATOR]}, {"var": "n"}]
    },
}


@pytest.mark.untraced
@pytest.mark.parametrize("rule", BLOW_UPS.values(), ids=BLOW_UPS.keys())
def test_a_blow_up_ends_as_an_error_in_bounded_time(rule: Any) -> None:
    started = process_time()

    with pytest.raises(ExpressionError, match=r"the result is|units of work"):
        evaluate(rule, {"n": list(range(50_000)), "text": "x" * 10_000})

    assert process_time() - started < 5, "seconds; most take a tenth of one"


def test_a_number_of_very_many_digits_is_not_a_result() -> None:
    with pytest.raises(ExpressionError, match="the result is too large a number"):
        evaluate({"*": [10**300] * 20}, {})


def test_an_honest_rule_over_many_items_is_within_the_limits() -> None:
    data = {"n": list(range(15_000))}

    assert (
        evaluate({"reduce": [{"var": "n"}, {"+": [ACCUMULATOR, {"var": "current"}]}, 0]}, data) == 112_492_500
    )
    assert evaluate({"list.length": {"str.split": [{"str.join": [{"var": "n"}, ","]}, ","]}}, data) == 15_000


@pytest.mark.parametrize(
    "rule",
    [
        nested(5_000, lambda rule: {"!": [rule]}),
        nested(5_000, lambda rule: [rule]),
        {"cat": nested(5_000, lambda rule: [rule])},
    ],
)
def test_a_rule_that_contains_itself_is_an_error(rule: Any) -> None:
    with pytest.raises(ExpressionError, match="recursion"):
        evaluate(rule)


# What an expression must not reach


@pytest.mark.parametrize(
    "rule",
    [
        {"method": ["", "__class__"]},
        {"str.__class__": []},
        {"datetime.now": []},
        {"str.upper.__globals__": []},
        {"operators.json": []},
    ],
)
def test_a_name_that_is_not_in_the_table_is_data(rule: Any) -> None:
    assert evaluate(rule, {}) == rule
    assert evaluate({"if": [True, rule]}, {}) == rule
    assert [problem.code for problem in check({"if": [True, rule]}, "input")] == ["unknown_operator"]


@pytest.mark.parametrize(
    "path", ["__class__", "a.__class__", "a.__class__.__mro__", "a.b.upper", "keys", "l.append"]
)
def test_a_path_reaches_no_attribute(path: str) -> None:
    data = {"a": {"b": "text"}, "l": [1]}

    assert evaluate({"var": [path, "absent"]}, data) == "absent"
    assert evaluate({"vars": path}, data) == []
    assert evaluate({"var": [path, "absent"]}, {"steps": Lazy(data)}) == "absent"


def test_the_operators_are_those_of_the_language_and_no_more() -> None:
    core = """== === != !== > >= < <= ! !! % and or ?: if log in cat substr + * - / min max merge count
        map filter reduce all some none var vars missing missing_some"""
    dotted = """str.upper str.lower str.trim str.replace str.split str.join str.contains str.starts_with
        str.ends_with str.matches list.length list.first list.last list.sort list.unique obj.keys obj.values
        obj.get json.dumps json.parse num.round num.abs time.now time.hour time.weekday time.iso time.add
        kv.get any.default"""

    assert {*core.split(), *dotted.split()} == OPERATORS


# Lazy data


class Lazy(Mapping[str, Any]):
    """Records the keys that were read."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.inner, self.asked = values, list[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked.append(key)
        return self.inner[key]

    def __iter__(self) -> Iterator[str]:
        self.asked.append("*")
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


class Steps(Lazy):
    def descend(self, parts: list[str]) -> tuple[Any, list[str]] | None:
        for length in range(len(parts), 0, -1):
            if (step_id := ".".join(parts[:length])) in self.inner:
                return self[step_id], parts[length:]
        return None


def test_a_path_reads_nothing_of_a_lazy_mapping_but_its_keys() -> None:
    root = Lazy({"input": Lazy({"a": [{"b": 1}]}), "other": 2})

    assert evaluate({"var": "input.a.0.b"}, root) == 1
    assert evaluate({"+": [{"var": "input.a.0.b"}, {"var": ["input.z", 1]}]}, root) == 2
    assert root.asked == ["input"] * 3
    assert "*" not in root["input"].asked


def test_the_longest_step_id_that_fits_wins() -> None:
    steps = Steps({"a": {"output": {"b": 0}}, "a.output": {"output": 1}, "a.b.c": {"output": [5]}})

    assert isinstance(steps, SupportsDescend)
    assert evaluate({"var": "steps.a.b.c.output.0"}, {"steps": steps}) == 5
    assert evaluate({"var": "steps.a.output.output"}, {"steps": steps}) == 1
    assert evaluate({"var": ["steps.b.output", "absent"]}, {"steps": steps}) == "absent"
    assert evaluate({"vars": "steps.a.b.c.output[*]"}, {"steps": steps}) == [5]
    assert evaluate({"missing": ["steps.a.b.c.output", "steps.b"]}, {"steps": steps}) == ["steps.b"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"var": ""}, {"ctx": {"status": {"a": "ready"}, "now": "t"}, "input": {"x": 1}}),
        ({"var": []}, {"ctx": {"status": {"a": "ready"}, "now": "t"}, "input": {"x": 1}}),
        ({"var": "ctx"}, {"status": {"a": "ready"}, "now": "t"}),
        ({"var": "ctx.status"}, {"a": "ready"}),
        ({"vars": "ctx"}, [{"status": {"a": "ready"}, "now": "t"}]),
        ({"vars": "$.*.status"}, [{"a": "ready"}]),
        ({"obj.keys": {"var": "ctx.status"}}, ["a"]),
    ],
)
@pytest.mark.parametrize("root", [dict, Lazy])
def test_a_lazy_mapping_is_never_a_result(root: Any, rule: Any, expected: Any) -> None:
    data = root({"ctx": {"status": Lazy({"a": "ready"}), "now": "t"}, "input": {"x": 1}})

    assert json.dumps(evaluate(rule, data)) == json.dumps(expected)


def test_a_result_shares_its_structure_with_the_data() -> None:
    data = {"a": {"b": {"c": [1]}}}

    assert evaluate({"var": "a.b"}, data) is data["a"]["b"]
    assert evaluate({"if": [True, {"var": "a"}]}, data) is data["a"]


def test_an_error_of_a_lazy_mapping_is_an_expression_error() -> None:
    class Broken(Lazy):
        def __getitem__(self, key: str) -> Any:
            raise TypeError("not today")

    with pytest.raises(ExpressionError, match="not today"):
        evaluate({"var": "a.b"}, {"a": Broken({})})


# Checking


def problems(value: Any) -> list[tuple[str, str]]:
    return [(problem.path, problem.code) for problem in check(value, "steps[3].input")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"url": {"var": "input.url"}, "options": {"timeout": 5}, "method": "GET", "n": [1, None]}, []),
        ({"request": {"method": "GET"}}, []),
        ({"a": {"$literal": {"if": [{"nonsense": 1}]}}}, []),
        ({"if": [True, {"$literal": {"timeout": 5}}]}, []),
        ({"if": [True, {"a": {"timeout": 5}, "b": 1}]}, []),
        ({"a": {"and": [True, {"iff": [1]}]}}, [("a.and[1]", "unknown_operator")]),
        ({"a": {"!": {"methd": 1}}}, [("a.!", "unknown_operator")]),
        ({"a": {"!": {"method": ["", "upper"]}}}, [("a.!", "unknown_operator")]),
        ({"a": {"merge": [[{"sum": 1}]]}}, [("a.merge[0][0]", "unknown_operator")]),
        ({"if": [True, {"a": {"or": [{"nope": 1}]}, "b": 1}]}, [("if[1].a.or[0]", "unknown_operator")]),
        ({"a": {"vars": "a["}}, [("a.vars", "bad_path")]),
        ({"a": {"vars": ["$..*"]}}, [("a.vars", "bad_path")]),
        ({"a": {"vars": 5}}, [("a.vars", "bad_path")]),
        ({"a": {"vars": {"cat": ["a", "["]}}}, []),
        ({"a": {"str.matches": ["x", "(?=x)"]}}, [("a.str.matches", "bad_type")]),
        ({"a": float("nan")}, [("a", "not_json")]),
        ({"a": [float("inf")]}, [("a[0]", "not_json")]),
        ({"a": b"bytes", "b": date(2026, 1, 1)}, [("a", "not_json"), ("b", "not_json")]),
        ({"a": {1: 2}}, [("a", "not_json")]),
        ({"a": {"$literal": {None: 2}}}, [("a.$literal", "not_json")]),
        ({"a": "\ud800"}, [("a", "not_json")]),
        ({"a": "é", "b": 10**400}, []),
        ({"a": {"merge": [1] * (MAX_NODES - 2)}}, []),
        ({"a": {"merge": [1] * MAX_NODES}}, [("a", "too_big")]),
        ({"a": [1] * MAX_NODES}, []),
        ({"a": nested(MAX_DEPTH - 1, lambda rule: {"!": [rule]})}, []),
    ],
)
def test_a_check_finds_what_is_wrong_and_where(value: Any, expected: list[tuple[str, str]]) -> None:
    assert problems(value) == [
        (f"steps[3].input{'' if path.startswith('[') else '.'}{path}", code) for path, code in expected
    ]


def test_a_rule_that_passes_the_check_at_its_greatest_depth_can_be_evaluated() -> None:
    rule = nested(MAX_DEPTH, lambda rule: {"if": [True, rule]})

    assert check(rule, "x") == []
    assert evaluate(rule) == 1
    assert [problem.code for problem in check({"!": rule}, "x")] == ["too_deep"]


@pytest.mark.parametrize(
    "wrap", [lambda rule: [rule], lambda rule: {"a": rule, "b": 1}, lambda rule: {"!": rule}]
)
def test_a_value_that_contains_itself_is_one_problem(wrap: Any) -> None:
    assert [problem.code for problem in check(nested(1_500, wrap), "x")] in (["too_deep"], ["too_big"])


def test_an_unknown_operator_comes_with_a_suggestion() -> None:
    [misspelt] = check({"if": [{"str.uper": "a"}, 1]}, "steps[0].when")
    [method] = check({"if": [{"method": []}, 1]}, "steps[0].when")
    [other] = check({"if": [{"zzzzzz": []}, 1]}, "steps[0].when")

    assert misspelt.hint == "did you mean 'str.upper'?"
    assert "not available" in method.message
    assert other.hint is not None
    assert "$literal" in other.hint


@pytest.mark.parametrize("value", [{"==": [1, 1]}, True, False, None, 0, {"var": "a"}])
def test_a_condition_may_be_an_expression_or_a_plain_value(value: Any) -> None:
    assert check_condition(value, "when") == []


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ("len(x) > 0", "bad_type", "when"),
        ("", "bad_type", "when"),
        ([{"var": "a"}], "bad_type", "when"),
        ({"==": [1, 1], "and": []}, "bad_type", "when"),
        ({"eq": [1, 1]}, "unknown_operator", "when"),
        ({"and": [{"eq": [1, 1]}]}, "unknown_operator", "when.and[0]"),
        ({"merge": [1] * MAX_NODES}, "too_big", "when"),
    ],
)
def test_a_condition_that_would_never_change_is_rejected(value: Any, code: str, path: str) -> None:
    assert [(problem.path, problem.code) for problem in check_condition(value, "when")] == [(path, code)]


# References


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"var": "steps.a.output.x"}, [Reference(("a", "output", "x"), False, True)]),
        ({"var": ["steps.a.output", 5]}, [Reference(("a", "output"), True, True)]),
        ({"var": ["steps.a.output"]}, [Reference(("a", "output"), False, True)]),
        ({"vars": "steps.a.output.items[*].price"}, [Reference(("a", "output", "items"), False, True)]),
        ({"vars": "$.steps['a'].output"}, [Reference(("a", "output"), False, True)]),
        ({"var": "flows.a.x"}, [Reference(("a", "x"), False, True)]),
        (
            {"k": {"var": "steps.a"}, "l": [{"var": "steps.b"}]},
            [Reference(("a",), False, False), Reference(("b",), False, False)],
        ),
        ({"if": [{"var": "steps.a.output"}, 1]}, [Reference(("a", "output"), False, False)]),
        ({"var": [{"var": "steps.a.output"}, 1]}, [Reference(("a", "output"), False, False)]),
        ({"var": ["input.x", {"var": "steps.b.output"}]}, [Reference(("b", "output"), False, False)]),
        (
            {"map": [{"var": "steps.a.output.l"}, {"var": "steps.b"}]},
            [Reference(("a", "output", "l"), False, False)],
        ),
        (
            {"reduce": [{"var": "steps.a.output"}, {"var": "steps.b"}, {"var": "steps.c"}]},
            [Reference(("a", "output"), False, False), Reference(("c",), False, False)],
        ),
        ({"var": "steps"}, []),
        ({"var": "stepsa.b"}, []),
        ({"var": "input.steps.a"}, []),
        ({"vars": "steps.*"}, []),
        ({"vars": "steps[*].output"}, []),
        ({"vars": "$..x"}, []),
        ({"vars": "steps["}, []),
        ({"$literal": {"var": "steps.a"}}, []),
        ("steps.a", []),
    ],
)
def test_references_into_steps_are_known_before_anything_runs(value: Any, expected: list[Reference]) -> None:
    assert list(find_references(value)) == expected


# Any rule


def rules() -> st.SearchStrategy[Any]:
    paths = st.sampled_from(
        ["", "a", "a.0", "b.c", "current", "accumulator", "steps.x.output", "$..a", "a[*]"]
    )
    leaves = JSON | paths | paths.map(lambda path: {"var": path}) | st.integers() | st.text(max_size=5)
    operators = st.sampled_from(sorted(OPERATORS))
    return st.recursive(
        leaves,
        lambda inner: (
            st.dictionaries(operators, st.lists(inner, max_size=4) | inner, min_size=1, max_size=1)
            | st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        ),
        max_leaves=25,
    )


@settings(max_examples=count(60, 400), suppress_health_check=[HealthCheck.too_slow], deadline=5_000)
@given(rule=rules(), data=JSON | st.fixed_dictionaries({"a": JSON, "b": JSON, "ctx": JSON, "kv": JSON}))
def test_any_rule_gives_json_or_an_expression_error(rule: Any, data: Any) -> None:
    before = json.dumps([rule, data])
    try:
        result = evaluate(rule, data)
    except ExpressionError:
        result = None

    json.dumps(result, allow_nan=False)
    assert json.dumps([rule, data]) == before, "neither the rule nor the data is changed"


@given(rule=rules())
def test_any_rule_can_be_checked_and_searched_for_references(rule: Any) -> None:
    known = {"unknown_operator", "bad_path", "bad_type", "too_deep", "too_big", "not_json"}

    assert {problem.code for problem in check(rule, "x")} <= known
    assert all(reference.segments for reference in find_references(rule))


def test_a_pattern_that_is_used_again_is_not_compiled_again() -> None:
    many = {"map": [{"var": "texts"}, {"str.matches": [{"var": ""}, "^a+$"]}]}

    assert evaluate(many, {"texts": ["a", "b"] * 200}) == [True, False] * 200


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match="no_such_library is not installed"):
        _load_private_copy("no_such_library")


IMPORT_ORDERS = [
    "from orchestrator.application.expressions import evaluate",
    "import orchestrator.application.expressions.evaluation\n"
    "from orchestrator.application.expressions import evaluate",
    "from orchestrator.application.expressions import evaluate, evaluation",
    "import orchestrator.worker.harness\nassert 'orchestrator.application.expressions.evaluation' not in "
    "sys.modules\nfrom orchestrator.application.expressions import evaluate",
]


@pytest.mark.parametrize("imports", IMPORT_ORDERS)
def test_the_package_gives_the_function_in_every_import_order(imports: str) -> None:
    code = f"import sys\n{imports}\nassert evaluate({{'+': [1, 2]}}) == 3"

    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_package_exports_nothing_else() -> None:
    package = importlib.import_module("orchestrator.application.expressions")

    assert package.evaluate is evaluate
    with pytest.raises(AttributeError, match="has no attribute 'resolve_all'"):
        _ = package.resolve_all


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_not_json_is_rejected_at_any_depth(value: float) -> None:
    for rule in (value, [value], {"+": [1, value]}):
        with pytest.raises(ExpressionError, match="is not a JSON number"):
            evaluate(rule)
