"""Operators give the same value in a workflow and outside of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import op, workflow
from orchestrator.builder import op as builder_op

LINES = [{"name": "pen", "price": 2}, {"name": "desk", "price": 90}]


def compute(n: Any, text: Any, lines: Any, nothing: Any) -> dict[str, Any]:
    return {
        "identical": [op.identical(n, 3), op.not_identical(n, "3")],
        "logic": [op.not_(n), op.truthy(text), op.if_(n > 2, "a", "b"), op.between(1, n, 5)],
        "default": [op.default(nothing, "x"), op.default(text, "x")],
        "numbers": [op.number("4"), op.min(n, 2), op.max(n, 2), op.abs(0 - n), op.round(n / 2, 1)],
        "text": [op.cat(text, "-", n), op.substr(text, 1), op.upper(text), op.lower(text), op.trim(" a ")],
        "parts": [op.replace(text, "A", "z"), op.split(text, "b"), op.join(["a", text], ",")],
        "tests": [op.contains(text, "b"), op.starts_with(text, "A"), op.ends_with(text, "x")],
        "matches": op.matches(text, "^A.c$"),
        "json": [op.dumps(lines), op.parse('{"a": 1}')],
        "lists": [op.in_(n, [1, 3]), op.length(lines), op.merge([1], [n]), op.sort([3, 1], descending=True)],
        "ends": [op.first(lines), op.last(lines), op.unique([1, n, 1]), op.vars(lines, "[*].price")],
        "objects": [op.keys(lines[0]), op.values(lines[0]), op.get(lines[0], "name")],
        "map": [op.map(lines, lambda line: line["price"]), op.filter(lines, lambda line: line["price"] > 5)],
        "tests of items": [
            op.all(lines, lambda line: line["price"] > 5),
            op.all([], lambda line: line),
            op.some(lines, lambda line: line["price"] > 5),
            op.none(lines, lambda line: line["price"] > 99),
        ],
        "reduce": op.reduce(lines, lambda total, line: total + line["price"], 0),
        "time": [op.hour(0), op.weekday(0), op.iso(0), op.later(0, 5)],
        "kv": op.kv_get("none", 5),
    }


def test_each_operator_computes_the_same_inside_and_outside() -> None:
    flow: Any = workflow(name="flow", kv={"scopes": ["flow"]})(compute)
    values: Any = (3, "Abc", LINES, None)

    assert flow.run(*values).outcome == flow(*values)
    assert flow(*values)["parts"] == ["zbc", ["A", "c"], "a,Abc"]


def test_now_is_a_time_outside_too() -> None:
    assert str(op.now()) > "2026"
    assert op.hour() == op.hour(op.now())


@pytest.mark.parametrize("name", op.__all__)
def test_each_operator_is_one_of_the_builder(name: str) -> None:
    found: Callable[..., Any] = getattr(op, name)

    assert callable(found)
    assert hasattr(builder_op, name)
