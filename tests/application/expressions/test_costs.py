"""Every operator spends in proportion to its work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.costs import search_cost
from orchestrator.application.expressions.evaluation import OPERATORS, evaluate, resolve_all
from orchestrator.application.expressions.limits import measure
from orchestrator.application.expressions.meter import MAX_WORK, Meter

UNLIMITED = 1 << 40
N = {"var": "n"}
T = {"var": "t"}
HERE = {"var": ""}


def spent_on(rule: Any, data: Any) -> int:
    """The units of an evaluation."""
    meter = Meter(UNLIMITED)
    evaluate(rule, data, meter)
    return meter.spent


class Lazy(Mapping[str, Any]):
    """As the roots `steps` and `state`: turned into a dict where a rule reads all of it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, key: str) -> Any:
        return int(key)

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self.count))

    def __len__(self) -> int:
        return self.count


def numbers(n: int) -> Any:
    return {"n": list(range(n)), "t": "x" * 10 * n}


def texts(n: int) -> Any:
    return {"n": ["ab"] * n, "t": "x" * 10 * n}


def objects(n: int) -> Any:
    return {"n": [{"a": [number]} for number in range(n)], "t": "x" * 10 * n}


Case = tuple[Any, Callable[[int], Any]]

OPERATORS_WITH_WORK: dict[str, list[Case]] = {
    "map": [({"map": [N, 0]}, numbers), ({"map": [N, {"+": [HERE, 1]}]}, numbers)],
    "filter": [({"filter": [N, 0]}, numbers)],
    "some": [({"some": [N, 0]}, numbers), ({"some": [{"some": [N, 0]}, 0]}, numbers)],
    "none": [({"none": [N, 0]}, numbers)],
    "all": [({"all": [N, 1]}, numbers)],
    "reduce": [({"reduce": [N, 0, 0]}, numbers)],
    "in": [
        ({"in": [-1, N]}, numbers),
        ({"in": ["x", N]}, texts),
        ({"in": [[0], N]}, objects),
        ({"in": ["y", T]}, numbers),
    ],
    "merge": [({"merge": [N, N]}, numbers)],
    "cat": [({"cat": [T, "a"]}, numbers), ({"cat": [N]}, objects)],
    "==": [({"==": [N, N]}, objects), ({"==": [N, "a"]}, objects), ({"==": [T, T]}, numbers)],
    "===": [({"===": [N, N]}, objects)],
    "!=": [({"!=": [N, N]}, objects)],
    "!==": [({"!==": [N, N]}, objects)],
    "<": [({"<": [N, N]}, numbers), ({"<": [T, T]}, numbers)],
    "<=": [({"<=": [N, N]}, numbers)],
    ">": [({">": [N, N]}, numbers)],
    ">=": [({">=": [N, N]}, numbers)],
    "substr": [({"substr": [T, 1]}, numbers)],
    "missing": [({"missing": N}, texts), ({"missing": [T, "a"]}, numbers)],
    "missing_some": [({"missing_some": [1, N]}, texts)],
    "var": [
        ({"var": "lazy"}, lambda n: {"lazy": Lazy(n)}),
        ({"var": ""}, Lazy),
        ({"if": [{"var": [T]}]}, lambda n: {"t": "a." * n}),
    ],
    "vars": [
        ({"vars": "n[*]"}, numbers),
        ({"vars": "$..a"}, objects),
        ({"vars": "n[?(@.a & @.b)]"}, objects),
        ({"vars": "n[0:1000000]"}, numbers),
        ({"vars": T}, numbers),
    ],
    "kv.get": [({"kv.get": "k"}, lambda n: {"kv": {"flow": {"k": Lazy(n)}}})],
    "log": [({"log": N}, objects)],
    "str.upper": [({"str.upper": T}, numbers)],
    "str.lower": [({"str.lower": T}, numbers)],
    "str.trim": [({"str.trim": T}, numbers)],
    "str.replace": [({"str.replace": [T, "a", "b"]}, numbers), ({"str.replace": [T, "x", "yy"]}, numbers)],
    "str.split": [({"str.split": [T, "xxxx"]}, numbers), ({"str.split": [T]}, numbers)],
    "str.join": [({"str.join": [N, ","]}, numbers), ({"str.join": [N]}, texts)],
    "str.contains": [({"str.contains": [T, "yyy"]}, numbers)],
    "str.starts_with": [({"str.starts_with": [T, T]}, numbers)],
    "str.ends_with": [({"str.ends_with": [T, T]}, numbers)],
    "list.sort": [({"list.sort": N}, numbers), ({"list.sort": N}, texts)],
    "list.unique": [({"list.unique": N}, objects), ({"list.unique": N}, numbers)],
    "obj.keys": [({"obj.keys": N}, lambda n: {"n": dict.fromkeys(map(str, range(n)))})],
    "obj.values": [({"obj.values": N}, lambda n: {"n": dict.fromkeys(map(str, range(n)))})],
    "json.dumps": [({"json.dumps": N}, objects)],
    "json.parse": [({"json.parse": T}, lambda n: {"t": "[" + "1," * n + "1]"})],
}
CONSTANT = {
    *("+", "-", "*", "/", "%", "min", "max", "!", "!!", "and", "or", "if", "?:", "count", "any.default"),
    *("obj.get", "list.length", "list.first", "list.last", "num.round", "num.abs"),
    *("time.now", "time.hour", "time.weekday", "time.iso", "time.add"),
}
"""These take the same time for every value. A rule has at most 2,000 arguments, and a long text is no number
and no time."""


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("operator", "rule", "data"),
    [(operator, *case) for operator, cases in OPERATORS_WITH_WORK.items() for case in cases],
)
def test_an_operator_spends_in_proportion_to_what_it_visits(
    operator: str, rule: Any, data: Callable[[int], Any]
) -> None:
    few, more, many = (spent_on(rule, data(n)) for n in (5_000, 10_000, 20_000))

    assert more > few + 5_000 // 4_096, operator
    assert many - more > 1.5 * (more - few), operator


def test_every_operator_spends() -> None:
    assert {*OPERATORS_WITH_WORK, *CONSTANT, "str.matches"} == OPERATORS
    assert spent_on({"!": [0]}, {}) == 1


@pytest.mark.untraced
def test_an_iteration_inside_an_iteration_spends_on_every_visit() -> None:
    inner = {"some": [{"$literal": [1] * 1_500}, 0]}

    with pytest.raises(ExpressionError, match="units of work"):
        evaluate({"some": [N, inner]}, numbers(100_000))
    assert spent_on({"some": [N, inner]}, numbers(100)) > 100 * 1_500 / 2


@pytest.mark.parametrize(
    ("subject", "pattern"),
    [("ab" * 3_000, ".*a.{190}c"), ("aab" * 3_000, "(a|b)*a.{150}c"), ("ab" * 5_000, "[ab]*a[ab]{190}c")],
)
def test_a_pattern_spends_on_every_position_that_it_follows(subject: str, pattern: str) -> None:
    few = spent_on({"str.matches": [T, pattern]}, {"t": subject[:300]})
    many = spent_on({"str.matches": [T, "x*y"]}, {"t": subject})

    assert few > 2_000 + 190 * 90 / 4  # the positions that are reached grow with each character
    assert many < 2_000 + len(subject)  # one position at a time


def test_a_path_and_a_pattern_are_compiled_once_in_an_evaluation_whatever_is_cached() -> None:
    rule = {"map": [N, {"str.matches": ["abc", "b+"]}]}
    first = spent_on(rule, numbers(1))

    assert spent_on(rule, numbers(1)) == first
    assert spent_on(rule, numbers(11)) < first + 1_000
    assert first > 2_000


def test_data_around_expressions_is_copied_and_spent_on() -> None:
    few, many = ({"a": [[1] * n, {"b": [{"c": 1}] * n}]} for n in (10_000, 40_000))

    assert spent_on(many, {}) > 3 * spent_on(few, {}) > 3 * 10_000


@pytest.mark.untraced
def test_all_values_of_a_mapping_share_one_meter() -> None:
    sum_of_all = {"reduce": [N, {"+": [{"var": "accumulator"}, {"var": "current"}]}, 0]}
    values = {f"k{number}": sum_of_all for number in range(10)}

    assert evaluate(sum_of_all, numbers(10_000)) == 49_995_000
    with pytest.raises(ExpressionError, match=rf"more than {MAX_WORK:,} units of work"):
        resolve_all(values, numbers(10_000), Meter())


def test_a_short_text_is_searched_at_every_position() -> None:
    assert search_cost(2_400, 1_200) > 20 * search_cost(2_400, 10)
    assert search_cost(100_000, 50_000) == search_cost(100_000, 100)


@pytest.mark.parametrize("number", [0, 10**300])
def test_the_size_of_a_value_is_estimated_within_a_factor_of_six(number: int) -> None:
    value = {"numbers": [number] * 50, "texts": ["a", "b" * 50], "rest": [None, True, 1.5, {}]}
    actual = len(json.dumps(value, separators=(",", ":")))

    assert actual / 6 < measure(value, Meter()) < 6 * actual


@pytest.mark.parametrize("value", [[["a"] * 100] * 100, [{f"key{n}": n for n in range(100)}] * 100])
def test_a_value_that_is_too_large_is_not_measured_to_its_end(value: Any) -> None:
    assert 500 < measure(value, Meter(), 500) < 2_000


def test_a_text_that_becomes_too_large_is_not_built() -> None:
    part = "x" * 500_000

    with pytest.raises(ExpressionError, match="cat: the result is over"):
        evaluate({"cat": [{"var": "t"}] * 3}, {"t": part}, Meter(UNLIMITED))


def test_the_text_of_an_error_of_python_is_cut() -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate({"+": ["1." + "x" * 100_000]})

    assert str(caught.value).startswith("+: could not convert string to float")
    assert len(str(caught.value)) < 600


def test_a_text_and_a_value_that_are_too_large_are_not_built() -> None:
    with pytest.raises(ExpressionError, match="cat: the result is over"):
        evaluate({"cat": [T, T, T]}, {"t": "x" * 500_000})

    assert measure({"a": [0] * 1_000}, Meter(), 500) > 500
    assert measure([{"a": dict.fromkeys(map(str, range(1_000)))}], Meter(), 500) > 500
