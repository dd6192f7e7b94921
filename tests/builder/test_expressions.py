"""Expressions written in Python: their JSON Logic, its value, and unsupported operations."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.expressions.evaluation import OPERATORS, check, evaluate, is_expression
from orchestrator.builder import (
    Expr,
    Reference,
    Value,
    WorkflowBuilder,
    ctx,
    index,
    input_,
    item,
    kv,
    literal,
    op,
    output,
    raw,
    ref,
    render,
    result,
    sources,
    state,
)

LINES = [{"name": "pen", "price": 2}, {"name": "desk", "price": 90, "unit price": 45}]
DATA = {
    "input": {
        "n": 4,
        "text": " Pen ",
        "lines": LINES,
        "empty": [],
        "json": '{"a": [1]}',
        "when": 0,
        "a.b": 7,
    },
    "state": {"x": None, "flags": [True, False, 1]},
    "ctx": {"now": "2026-11-16T04:42:00.123Z"},
    "kv": {"global": {"k": 5}, "flow": {"f": 6}},
}
lines, n, text = input_.lines, input_.n, input_.text

# An expression, the JSON Logic it stands for, and its value.
EXAMPLES: list[tuple[Expr, Any, Any]] = [
    # comparison
    (n == 4, {"==": [{"var": "input.n"}, 4]}, True),
    (n != 4, {"!=": [{"var": "input.n"}, 4]}, False),
    (n < 5, {"<": [{"var": "input.n"}, 5]}, True),
    (n <= 4, {"<=": [{"var": "input.n"}, 4]}, True),
    (n > 4, {">": [{"var": "input.n"}, 4]}, False),
    (n >= n, {">=": [{"var": "input.n"}, {"var": "input.n"}]}, True),
    (text > "A", {">": [{"var": "input.text"}, "A"]}, False),
    (lines == [], {"==": [{"var": "input.lines"}, []]}, False),
    (op.identical(n, "4"), {"===": [{"var": "input.n"}, "4"]}, False),
    (op.not_identical(n, "4"), {"!==": [{"var": "input.n"}, "4"]}, True),
    (op.between(1, n, 4), {"<=": [1, {"var": "input.n"}, 4]}, True),
    (op.between(1, n, 4, exclusive=True), {"<": [1, {"var": "input.n"}, 4]}, False),
    # logic
    ((n > 1) & (n > 2) & (n > 9), {"and": [{">": [{"var": "input.n"}, x]} for x in (1, 2, 9)]}, False),
    ((n > 9) | (n > 1) | False, {"or": [*({">": [{"var": "input.n"}, x]} for x in (9, 1)), False]}, True),
    (True & (n > 1), {"and": [True, {">": [{"var": "input.n"}, 1]}]}, True),
    (False | (n > 1), {"or": [False, {">": [{"var": "input.n"}, 1]}]}, True),
    (~n, {"!": {"var": "input.n"}}, False),
    (op.and_(n, True, n > 1), {"and": [{"var": "input.n"}, True, {">": [{"var": "input.n"}, 1]}]}, True),
    (op.or_(state.x, False), {"or": [{"var": "state.x"}, False]}, False),
    (op.truthy(n), {"!!": {"var": "input.n"}}, True),
    (
        op.if_(n > 5, "a", n > 3, "b", "c"),
        {"if": [{">": [{"var": "input.n"}, 5]}, "a", render(n > 3), "b", "c"]},
        "b",
    ),
    (op.choose(n > 5, "a", "b"), {"?:": [{">": [{"var": "input.n"}, 5]}, "a", "b"]}, "b"),
    (op.default(state.x, state.y, 3), {"any.default": [{"var": "state.x"}, {"var": "state.y"}, 3]}, 3),
    # numbers
    (n + 1 + 2, {"+": [{"var": "input.n"}, 1, 2]}, 7),
    (1 + n, {"+": [1, {"var": "input.n"}]}, 5),
    (n - 1 - 2, {"-": [{"-": [{"var": "input.n"}, 1]}, 2]}, 1),
    (1 - n, {"-": [1, {"var": "input.n"}]}, -3),
    (n * 2 * 3, {"*": [{"var": "input.n"}, 2, 3]}, 24),
    (2 * n, {"*": [2, {"var": "input.n"}]}, 8),
    (n / 8, {"/": [{"var": "input.n"}, 8]}, 0.5),
    (8 / n, {"/": [8, {"var": "input.n"}]}, 2),
    (n % 3, {"%": [{"var": "input.n"}, 3]}, 1),
    (9 % n, {"%": [9, {"var": "input.n"}]}, 1),
    (-n, {"-": {"var": "input.n"}}, -4),
    (n * (n + 1), {"*": [{"var": "input.n"}, {"+": [{"var": "input.n"}, 1]}]}, 20),
    (op.number("2.5"), {"+": "2.5"}, 2.5),
    (op.min(n, 9), {"min": [{"var": "input.n"}, 9]}, 4),
    (op.max(n, 9), {"max": [{"var": "input.n"}, 9]}, 9),
    (op.round(2.5), {"num.round": 2.5}, 3),
    (op.round(2.25, 1), {"num.round": [2.25, 1]}, 2.3),
    (op.abs(-n), {"num.abs": {"-": {"var": "input.n"}}}, 4),
    # texts
    (op.cat("n is ", n), {"cat": ["n is ", {"var": "input.n"}]}, "n is 4"),
    (op.substr("abcdef", 2), {"substr": ["abcdef", 2]}, "cdef"),
    (op.substr("abcdef", 2, 3), {"substr": ["abcdef", 2, 3]}, "cde"),
    (op.upper(text), {"str.upper": {"var": "input.text"}}, " PEN "),
    (op.lower(text), {"str.lower": {"var": "input.text"}}, " pen "),
    (op.trim(text), {"str.trim": {"var": "input.text"}}, "Pen"),
    (op.replace("a-b", "-", "+"), {"str.replace": ["a-b", "-", "+"]}, "a+b"),
    (op.split(" a b "), {"str.split": " a b "}, ["a", "b"]),
    (op.split("a,b", ","), {"str.split": ["a,b", ","]}, ["a", "b"]),
    (op.join(["a", "b"]), {"str.join": [["a", "b"]]}, "ab"),
    (op.join(["a", n], ", "), {"str.join": [["a", {"var": "input.n"}], ", "]}, "a, 4"),
    (op.contains(text, "en"), {"str.contains": [{"var": "input.text"}, "en"]}, True),
    (op.starts_with(text, "P"), {"str.starts_with": [{"var": "input.text"}, "P"]}, False),
    (op.ends_with(text, " "), {"str.ends_with": [{"var": "input.text"}, " "]}, True),
    (op.matches(text, "P.n"), {"str.matches": [{"var": "input.text"}, "P.n"]}, True),
    (op.dumps({"a": n, "b": 1}), {"json.dumps": {"a": {"var": "input.n"}, "b": 1}}, '{"a": 4, "b": 1}'),
    (op.parse(input_.json), {"json.parse": {"var": "input.json"}}, {"a": [1]}),
    # lists and objects
    (op.in_(n, (1, 4)), {"in": [{"var": "input.n"}, [1, 4]]}, True),
    (op.merge([1], 2, input_.empty), {"merge": [[1], 2, {"var": "input.empty"}]}, [1, 2]),
    (op.count(n, 0, True), {"count": [{"var": "input.n"}, 0, True]}, 2),
    (op.length([1, 2]), {"list.length": [[1, 2]]}, 2),
    (op.length(lines), {"list.length": {"var": "input.lines"}}, 2),
    (op.first(lines), {"list.first": {"var": "input.lines"}}, LINES[0]),
    (op.last(input_.empty), {"list.last": {"var": "input.empty"}}, None),
    (op.sort([2, 1]), {"list.sort": [[2, 1]]}, [1, 2]),
    (op.sort([1, 2], descending=True), {"list.sort": [[1, 2], True]}, [2, 1]),
    (op.unique([1, 1]), {"list.unique": [[1, 1]]}, [1]),
    (op.keys(lines[0]), {"obj.keys": {"var": "input.lines.0"}}, ["name", "price"]),
    (op.values(lines[0]), {"obj.values": {"var": "input.lines.0"}}, ["pen", 2]),
    (op.get(input_, "a.b"), {"obj.get": [{"var": "input"}, "a.b"]}, 7),
    (op.get(input_, "b.c", 1), {"obj.get": [{"var": "input"}, "b.c", 1]}, 1),
    (op.vars("input.lines[*].price"), {"vars": "input.lines[*].price"}, [2, 90]),
    (op.vars(lines, "[-1:].price"), {"vars": "input.lines[-1:].price"}, [90]),
    (op.vars(lines[1]["unit price"]), {"vars": "input.lines[1]['unit price']"}, [45]),
    (op.vars(ref("")["it's"]["a-b"], ".c"), {"vars": "['it\\'s'].a-b.c"}, []),
    (
        op.map(lines, lambda line: line.price * 2),
        {"map": [render(lines), {"*": [{"var": "price"}, 2]}]},
        [4, 180],
    ),
    (op.map(lines, ref("price")), {"map": [{"var": "input.lines"}, {"var": "price"}]}, [2, 90]),
    (op.map([1, 2], lambda one: one + 1), {"map": [[1, 2], {"+": [{"var": ""}, 1]}]}, [2, 3]),
    (
        op.map(lines, lambda line: op.vars(line, "..price")),
        {"map": [render(lines), {"vars": "$..price"}]},
        [[2], [90]],
    ),
    (op.map(lines, lambda _: op.weekday()), {"map": [{"var": "input.lines"}, {"time.weekday": []}]}, [1, 1]),
    (
        op.filter(lines, lambda line: (line.price > 10) & (line["unit price"] == 45)),
        {
            "filter": [
                render(lines),
                {"and": [{">": [{"var": "price"}, 10]}, {"==": [{"var": "unit price"}, 45]}]},
            ]
        },
        [LINES[1]],
    ),
    (
        op.all(lines, lambda line: op.some([line.price], lambda price: price > 1)),
        {"all": [render(lines), {"some": [[{"var": "price"}], {">": [{"var": ""}, 1]}]}]},
        True,
    ),
    (
        op.none(lines, lambda line: line.price > 99),
        {"none": [render(lines), {">": [{"var": "price"}, 99]}]},
        True,
    ),
    (
        op.reduce(lines, lambda total, line: total + line.price, 0),
        {"reduce": [render(lines), {"+": [{"var": "accumulator"}, {"var": "current.price"}]}, 0]},
        92,
    ),
    (op.missing("input.n", state.y), {"missing": ["input.n", "state.y"]}, ["state.y"]),
    (op.missing_some(1, [n, "state.y"]), {"missing_some": [1, ["input.n", "state.y"]]}, []),
    # the rest
    (op.now(), {"time.now": []}, "2026-11-16T04:42:00.123Z"),
    (op.hour(), {"time.hour": []}, 4),
    (op.hour(input_.when), {"time.hour": {"var": "input.when"}}, 0),
    (op.weekday(), {"time.weekday": []}, 1),
    (op.weekday(0), {"time.weekday": 0}, 4),
    (op.iso(0), {"time.iso": 0}, "1970-01-01T00:00:00.000Z"),
    (op.later(0, 90), {"time.add": [0, 90]}, "1970-01-01T00:01:30.000Z"),
    (op.later(0, timedelta(minutes=1.5)), {"time.add": [0, 90.0]}, "1970-01-01T00:01:30.000Z"),
    (op.kv_get("global:k"), {"kv.get": "global:k"}, 5),
    (op.kv_get("none", 1), {"kv.get": ["none", 1]}, 1),
    (op.log(n), {"log": {"var": "input.n"}}, 4),
    # paths
    (lines[1].name, {"var": "input.lines.1.name"}, "desk"),
    (state.y.default(n), {"var": ["state.y", {"var": "input.n"}]}, 4),
    (ref("state.flags.2"), {"var": "state.flags.2"}, 1),
    (literal({"var": "input.n"}), {"$literal": {"var": "input.n"}}, {"var": "input.n"}),
    (raw({"*": [{"var": "input.n"}, 2]}), {"*": [{"var": "input.n"}, 2]}, 8),
]


@pytest.mark.parametrize(("expression", "rule", "value"), EXAMPLES, ids=lambda part: repr(part)[:60])
def test_an_expression_renders_to_json_logic_that_evaluates(expression: Expr, rule: Any, value: Any) -> None:
    rendered = render(expression)

    assert rendered == rule
    assert check(rendered, "") == []
    assert evaluate(rendered, DATA) == value


def operators_in(rule: Any) -> Iterator[str]:
    if is_expression(rule):
        yield from rule
    for inner in rule.values() if isinstance(rule, dict) else rule if isinstance(rule, list) else ():
        yield from operators_in(inner)


def test_every_operator_of_the_language_is_available() -> None:
    reached = {operator for _, rule, _ in EXAMPLES for operator in operators_in(rule)}

    assert OPERATORS - reached == set()


# ---- values


def test_a_value_is_rendered_with_the_expressions_in_it() -> None:
    value: Value = MappingProxyType({"a": (n, [1.5, None]), "b": {"c": {"d": n}, "e": "x"}})

    assert render(value) == {
        "a": [{"var": "input.n"}, [1.5, None]],
        "b": {"c": {"d": {"var": "input.n"}}, "e": "x"},
    }


def test_what_is_rendered_belongs_to_the_caller() -> None:
    given: list[Value] = [1]
    expression = op.merge(given, n)

    given.append(2)
    render(expression)["merge"].append(3)

    assert render(expression) == {"merge": [[1], {"var": "input.n"}]}


@pytest.mark.parametrize(
    ("root", "path"),
    [
        (input_.x, "input.x"),
        (state.x, "state.x"),
        (ctx.step.attempt, "ctx.step.attempt"),
        (kv["global"].k, "kv.global.k"),
        (output.code, "output.code"),
        (result.file, "result.file"),
        (item, "item"),
        (index, "index"),
        (sources.env.TOKEN, "sources.env.TOKEN"),
        (ref("code"), "code"),
        (ref("a.b")["default"]["_id"], "a.b.default._id"),
    ],
)
def test_paths_begin_at_a_root(root: Reference, path: str) -> None:
    assert render(root) == {"var": path}


def test_a_step_can_be_read_by_output_status_and_error() -> None:
    step = WorkflowBuilder().step("a.b")

    assert render(step.output.items.count) == {"var": "steps.a.b.output.items.count"}
    assert render(step.status == "failed") == {"==": [{"var": "ctx.status.a.b"}, "failed"]}
    assert render(step.error.kind) == {"var": "ctx.error.a.b.kind"}
    assert render(op.vars(step.output.items, "[*].x")) == {"vars": "steps['a.b'].output.items[*].x"}
    assert repr(step) == "<step 'a.b'>"


@pytest.mark.parametrize(
    "value",
    [{"max": 3}, {"a": {"var": "x"}}, [{"var": "x"}], {"$literal": 1}, {"a": [{"b": {"==": [1, 1]}}]}],
)
def test_data_that_would_be_read_as_an_expression_must_be_quoted(value: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"would be read as an expression; write literal\(\.\.\.\)"):
        render(value)

    assert evaluate(render({"quoted": literal(value), "x": 1}), {}) == {"quoted": value, "x": 1}


def test_among_operands_even_an_unknown_operator_must_be_quoted() -> None:
    assert render({"name": 1}) == {"name": 1}
    with pytest.raises(InvalidSpec, match="would be read as an expression"):
        op.dumps({"name": 1})
    with pytest.raises(InvalidSpec, match="would be read as an expression"):
        n == [{"name": 1}]  # noqa: B015


@pytest.mark.parametrize(
    ("rule", "code"),
    [({"nope": 1}, "unknown_operator"), ({"a": 1, "b": 2}, "bad_type"), ({"vars": "["}, "bad_path")],
)
def test_json_logic_that_is_wrong_is_rejected(rule: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        raw(rule)

    assert refused.value.problems[0].code == code


# ---- what Python must not do, with no type checker to say so

N: Any = n
MANY: Any = lines
A_STEP: Any = WorkflowBuilder().step("a")
AN_HOUR: Any = timedelta(hours=1)


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: bool(N > 1), "write & | ~ for and, or, not"),
        (lambda: N > 1 and N < 5, "write & | ~ for and, or, not"),
        (lambda: 1 < N < 5, r"op\.between\(\)"),
        (lambda: not N, "has no value before the workflow runs"),
        (lambda: N in (1, 2), r"op\.in_\(\)"),
        (lambda: 1 in MANY, r"op\.in_\(\)"),
        (lambda: list(MANY), r"op\.map\(\) or flow\.map\(\)"),
        (lambda: f"{N}", r"op\.cat\(\)"),
        (lambda: len(MANY), r"op\.length\(\)"),
        (lambda: hash(N), r"op\.get\(\)"),
        (lambda: int(N), r"op\.number\(\)"),
        (lambda: float(N), r"op\.number\(\)"),
        (lambda: [1][N], r"op\.number\(\)"),
        (lambda: round(N), r"op\.round\(\)"),
        (lambda: abs(N), r"op\.abs\(\)"),
        (lambda: "n is " + N, r"to join strings, use op\.cat\(\)"),
        (lambda: N + "x", r"to join strings, use op\.cat\(\)"),
        (lambda: N * None, "None is not a number"),
        (lambda: N > 1 & N, r"write parentheses"),
        (lambda: N | "x", r"write parentheses"),
        (lambda: MANY[1:2], r"for slices use op\.vars\(\)"),
        (lambda: MANY[True], "a key or an index, not with True"),
        (lambda: MANY.defualt(1), "not callable"),
        (lambda: literal(N), "an expression is not allowed here"),
        (lambda: render(A_STEP), r"write its \.output"),
        (lambda: op.cat(AN_HOUR), "is not JSON data"),
        (lambda: op.cat(b"a"), "is not JSON data"),
    ],
)
def test_a_wrong_use_says_what_to_write_instead(use: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        use()


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: lines[-1], r"op\.last\(\)"),
        (lambda: input_["a.b"], r"op\.get\(object, 'a\.b'\)"),
        (lambda: input_[""], r"op\.get\("),
    ],
)
def test_a_key_that_no_path_can_name_is_rejected(use: Any, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        use()


def test_an_expression_is_immutable() -> None:
    with pytest.raises(AttributeError, match="is immutable"):
        n.x = 1
    with pytest.raises(AttributeError, match="is immutable"):
        del n.x
    with pytest.raises(AttributeError, match=r"write \['_id'\]"):
        n._id  # noqa: B018

    assert copy.copy(n) is n
    assert copy.deepcopy([n])[0] is n
    assert repr(op.cat("ü", n)) == '<{"cat": ["ü", {"var": "input.n"}]}>'


def test_what_is_too_deep_for_a_document_is_rejected() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    expression = n - 1
    for _ in range(200):
        expression = expression - 1

    for value in (deep, expression, {"a": expression}):
        with pytest.raises(InvalidSpec, match="deeper than 50 levels"):
            render(value)
    with pytest.raises(InvalidSpec, match="deeper than 50 levels"):
        literal(deep)


# ---- where paths begin


def test_the_body_of_a_scoped_operator_reads_only_its_items() -> None:
    with pytest.raises(InvalidSpec, match="the body of map can read only its items, not the path 'input'"):
        op.map(lines, lambda line: line.price * n)
    with pytest.raises(InvalidSpec, match="the body of some can read only its items, not the item of all"):
        op.all(lines, lambda line: op.some([1], lambda one: one > line.price))
    with pytest.raises(InvalidSpec, match=r"not the path 'input\.n'"):
        op.filter(lines, lambda line: op.vars("input.n"))
    with pytest.raises(InvalidSpec, match=r"not the path 'input\.n'"):
        op.filter(lines, lambda line: op.missing("input.n"))


def test_an_item_cannot_leave_its_operator() -> None:
    kept: list[Reference] = []

    def price(line: Reference) -> Reference:
        kept.append(line)
        return line.price

    op.map(lines, price)

    with pytest.raises(InvalidSpec, match="step 'a': the item of map does not belong to this workflow"):
        WorkflowBuilder().step("a", input={"line": kept[0]})


def test_the_items_themselves_may_come_from_anywhere() -> None:
    flow = WorkflowBuilder()
    order = flow.step("order")

    total = op.reduce(order.output.lines, lambda total, line: total + line.price, order.output.base)

    assert flow.step("b", input={"total": total}).id == "b"
    with pytest.raises(InvalidSpec, match="the step 'order' does not belong to this workflow"):
        WorkflowBuilder().step("b", input={"total": total})
