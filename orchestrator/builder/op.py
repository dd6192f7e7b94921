"""The operators of the language that Python has no sign for, to be read as `op.cat(...)`.

A dotted operator has the last part of its name here: `str.upper` is `op.upper`. Called differently are

    identical  ===      truthy  !!      number   + with one operand      later    time.add
    not_identical  !==  choose  ?:      between  <= or < with three      default  any.default

`kv_get`, which is `kv.get`, and what would be a keyword of Python, which ends in an underscore.

The body of map, filter, all, some, none and reduce is a function of the item, and sees the item alone:

    op.filter(order.output.lines, lambda line: line.price > 10)
    op.reduce(order.output.lines, lambda total, line: total + line.price, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from orchestrator.builder.expressions import (
    Condition,
    Expr,
    Number,
    Origin,
    Reference,
    Value,
    operation,
    scoped_operation,
)

Body = Callable[[Reference], Value] | Value

# Comparison and logic ---------------------------------------------------------------------------------------


def identical(left: Value, right: Value) -> Expr:
    """Equal without conversion: `==` takes 1 and "1" for the same."""
    return operation("===", left, right)


def not_identical(left: Value, right: Value) -> Expr:
    return operation("!==", left, right)


def between(low: Number, value: Number, high: Number, *, exclusive: bool = False) -> Expr:
    return operation("<" if exclusive else "<=", low, value, high)


def and_(*conditions: Condition) -> Expr:
    return operation("and", *conditions)


def or_(*conditions: Condition) -> Expr:
    return operation("or", *conditions)


def truthy(value: Value) -> Expr:
    """Whether a value counts as true."""
    return operation("!!", value)


def if_(condition: Condition, then: Value, *otherwise: Value) -> Expr:
    """`otherwise` is the value if the condition is false, or more pairs of condition and value before it."""
    return operation("if", condition, then, *otherwise)


def choose(condition: Condition, then: Value, otherwise: Value) -> Expr:
    return operation("?:", condition, then, otherwise)


def default(*values: Value) -> Expr:
    """The first value that is not null."""
    return operation("any.default", *values)


# Numbers ----------------------------------------------------------------------------------------------------


def number(value: Value) -> Expr:
    """A text as the number it shows."""
    return operation("+", value)


def min(*values: Number) -> Expr:
    return operation("min", *values)


def max(*values: Number) -> Expr:
    return operation("max", *values)


def round(value: Number, digits: Number | None = None) -> Expr:
    """Half away from zero; to a whole number, unless digits are given."""
    return operation("num.round", value, *_given(digits))


def abs(value: Number) -> Expr:
    return operation("num.abs", value)


# Texts ------------------------------------------------------------------------------------------------------


def cat(*parts: Value) -> Expr:
    """All parts as one text."""
    return operation("cat", *parts)


def substr(text: Expr | str, start: Number, length: Number | None = None) -> Expr:
    return operation("substr", text, start, *_given(length))


def upper(text: Expr | str) -> Expr:
    return operation("str.upper", text)


def lower(text: Expr | str) -> Expr:
    return operation("str.lower", text)


def trim(text: Expr | str) -> Expr:
    return operation("str.trim", text)


def replace(text: Expr | str, old: Expr | str, new: Expr | str) -> Expr:
    return operation("str.replace", text, old, new)


def split(text: Expr | str, separator: Expr | str | None = None) -> Expr:
    """At white space, unless there is a separator."""
    return operation("str.split", text, *_given(separator))


def join(items: Expr | Sequence[Value], separator: Expr | str | None = None) -> Expr:
    return operation("str.join", items, *_given(separator))


def contains(text: Expr | str, part: Expr | str) -> Expr:
    return operation("str.contains", text, part)


def starts_with(text: Expr | str, part: Expr | str) -> Expr:
    return operation("str.starts_with", text, part)


def ends_with(text: Expr | str, part: Expr | str) -> Expr:
    return operation("str.ends_with", text, part)


def matches(text: Expr | str, pattern: str) -> Expr:
    """Whether the pattern is found anywhere in the text, unless it begins with ^ or ends with $."""
    return operation("str.matches", text, pattern)


def dumps(value: Value) -> Expr:
    """The JSON of a value."""
    return operation("json.dumps", value)


def parse(text: Expr | str) -> Expr:
    """The value that a JSON text says."""
    return operation("json.parse", text)


# Lists and objects ------------------------------------------------------------------------------------------


def in_(part: Value, whole: Expr | Sequence[Value]) -> Expr:
    """Whether a list has this item, or a text this part."""
    return operation("in", part, whole)


def merge(*lists: Value) -> Expr:
    """One list of all items; what is no list counts as an item."""
    return operation("merge", *lists)


def count(*values: Value) -> Expr:
    """How many values count as true; of one list, its length."""
    return operation("count", *values)


def length(value: Value) -> Expr:
    """Of a list, a text or an object."""
    return operation("list.length", value)


def first(items: Expr | Sequence[Value]) -> Expr:
    """Null if the list is empty."""
    return operation("list.first", items)


def last(items: Expr | Sequence[Value]) -> Expr:
    return operation("list.last", items)


def sort(items: Expr | Sequence[Value], *, descending: Condition | None = None) -> Expr:
    """All numbers or all texts."""
    return operation("list.sort", items, *_given(descending))


def unique(items: Expr | Sequence[Value]) -> Expr:
    return operation("list.unique", items)


def keys(value: Value) -> Expr:
    return operation("obj.keys", value)


def values(value: Value) -> Expr:
    return operation("obj.values", value)


def get(value: Value, key: Expr | str, default: Value = None) -> Expr:
    """One key, dots and all."""
    return operation("obj.get", value, key, *_given(default))


def vars(path: str | Reference, rest: str = "") -> Expr:
    """Every match of a path, as a list: `op.vars(prices.output.items, "[*].price")`."""
    if isinstance(path, Reference):
        return Expr({"vars": _query(path._keys) + rest}, path._origins)
    return Expr({"vars": path + rest}, frozenset({Origin(f"the path {path!r}")}))


def map(items: Expr | Sequence[Value], body: Body) -> Expr:
    return scoped_operation("map", items, body)


def filter(items: Expr | Sequence[Value], body: Body) -> Expr:
    return scoped_operation("filter", items, body)


def all(items: Expr | Sequence[Value], body: Body) -> Expr:
    """False for an empty list."""
    return scoped_operation("all", items, body)


def some(items: Expr | Sequence[Value], body: Body) -> Expr:
    return scoped_operation("some", items, body)


def none(items: Expr | Sequence[Value], body: Body) -> Expr:
    return scoped_operation("none", items, body)


def reduce(
    items: Expr | Sequence[Value],
    body: Callable[[Reference, Reference], Value] | Value,
    initial: Value = None,
) -> Expr:
    """The body takes what came of the items before, and the item."""
    return scoped_operation("reduce", items, body, *_given(initial))


def missing(*paths: str | Reference) -> Expr:
    """Those of the paths where there is nothing."""
    origins = frozenset[Origin]().union(*(_origins(path) for path in paths))
    return Expr({"missing": [_path(path) for path in paths]}, origins)


def missing_some(least: int, paths: Sequence[str | Reference]) -> Expr:
    """Like missing(), and empty if at least so many are there."""
    origins = frozenset[Origin]().union(*(_origins(path) for path in paths))
    return Expr({"missing_some": [least, [_path(path) for path in paths]]}, origins)


# The rest ---------------------------------------------------------------------------------------------------


def now() -> Expr:
    """The time of the event that causes the evaluation."""
    return operation("time.now")


def hour(time: Expr | str | float | None = None) -> Expr:
    """Of now, unless a time is given; in UTC."""
    return operation("time.hour", *_given(time))


def weekday(time: Expr | str | float | None = None) -> Expr:
    """Monday is 1, Sunday 7."""
    return operation("time.weekday", *_given(time))


def iso(time: Expr | str | float) -> Expr:
    return operation("time.iso", time)


def later(time: Expr | str | float, by: Number | timedelta) -> Expr:
    """A time and so many seconds."""
    return operation("time.add", time, by.total_seconds() if isinstance(by, timedelta) else by)


def kv_get(key: Expr | str, default: Value = None) -> Expr:
    """A shared value: `"k"`, `"global:k"` or `"flow_group:k"`."""
    return operation("kv.get", key, *_given(default))


def log(value: Value) -> Expr:
    return operation("log", value)


def _given(value: Value) -> list[Value]:
    return [] if value is None else [value]


def _path(path: str | Reference) -> str:
    return path._path if isinstance(path, Reference) else path


def _origins(path: str | Reference) -> frozenset[Origin]:
    return path._origins if isinstance(path, Reference) else frozenset({Origin(f"the path {path!r}")})


def _query(keys: tuple[str | int, ...]) -> str:
    """A path of `var` as one of `vars`: an index has brackets, and so has a key with signs in it."""
    return "".join(_segment(key) for key in keys).removeprefix(".") if keys else "$"


def _segment(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if key.replace("-", "_").isidentifier():
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
