"""Operators of the language that have no Python operator, used as `op.cat(...)`.

A dotted operator is named after its last part: `str.upper` is `op.upper`. These have other names:

    identical  ===      truthy  !!      number   + with one operand      later    time.add
    not_identical  !==  choose  ?:      between  <= or < with three      default  any.default

    kv_get  kv.get

A name that is a Python keyword ends in an underscore: `if_`, `in_`, `not_`.

The body of map, filter, all, some, none and reduce is a function of the item, and can read only the item:

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

# ---- comparison and logic


def identical(left: Value, right: Value) -> Expr:
    """Whether two values are equal without conversion. `==` treats 1 and "1" as equal."""
    return operation("===", left, right)


def not_identical(left: Value, right: Value) -> Expr:
    return operation("!==", left, right)


def between(low: Number, value: Number, high: Number, *, exclusive: bool = False) -> Expr:
    return operation("<" if exclusive else "<=", low, value, high)


def and_(*conditions: Condition) -> Expr:
    return operation("and", *conditions)


def or_(*conditions: Condition) -> Expr:
    return operation("or", *conditions)


def not_(condition: Value) -> Expr:
    """The same as `~`, for conditions that a type checker takes for a bool."""
    return operation("!", condition)


def truthy(value: Value) -> Expr:
    """Whether a value counts as true."""
    return operation("!!", value)


def if_(condition: Condition, then: Value, *otherwise: Value) -> Expr:
    """`otherwise` is the value for a false condition, after any further pairs of condition and value."""
    return operation("if", condition, then, *otherwise)


def choose(condition: Condition, then: Value, otherwise: Value) -> Expr:
    return operation("?:", condition, then, otherwise)


def default(*values: Value) -> Expr:
    """The first value that is not null."""
    return operation("any.default", *values)


# ---- numbers


def number(value: Value) -> Expr:
    """Convert a string to a number."""
    return operation("+", value)


def min(*values: Number) -> Expr:
    return operation("min", *values)


def max(*values: Number) -> Expr:
    return operation("max", *values)


def round(value: Number, digits: Number | None = None) -> Expr:
    """Round halves away from zero. Without digits the result is an integer."""
    return operation("num.round", value, *_optional(digits))


def abs(value: Number) -> Expr:
    return operation("num.abs", value)


# ---- strings


def cat(*parts: Value) -> Expr:
    """Join all parts to one string."""
    return operation("cat", *parts)


def substr(text: Expr | str, start: Number, length: Number | None = None) -> Expr:
    return operation("substr", text, start, *_optional(length))


def upper(text: Expr | str) -> Expr:
    return operation("str.upper", text)


def lower(text: Expr | str) -> Expr:
    return operation("str.lower", text)


def trim(text: Expr | str) -> Expr:
    return operation("str.trim", text)


def replace(text: Expr | str, old: Expr | str, new: Expr | str) -> Expr:
    return operation("str.replace", text, old, new)


def split(text: Expr | str, separator: Expr | str | None = None) -> Expr:
    """Split at the separator, or at whitespace if there is none."""
    return operation("str.split", text, *_optional(separator))


def join(items: Expr | Sequence[Value], separator: Expr | str | None = None) -> Expr:
    return operation("str.join", items, *_optional(separator))


def contains(text: Expr | str, part: Expr | str) -> Expr:
    return operation("str.contains", text, part)


def starts_with(text: Expr | str, part: Expr | str) -> Expr:
    return operation("str.starts_with", text, part)


def ends_with(text: Expr | str, part: Expr | str) -> Expr:
    return operation("str.ends_with", text, part)


def matches(text: Expr | str, pattern: str) -> Expr:
    """Whether the pattern matches anywhere in the text. Use ^ and $ to anchor it."""
    return operation("str.matches", text, pattern)


def dumps(value: Value) -> Expr:
    """Convert a value to a JSON string."""
    return operation("json.dumps", value)


def parse(text: Expr | str) -> Expr:
    """Parse a JSON string."""
    return operation("json.parse", text)


# ---- lists and objects


def in_(part: Value, whole: Expr | Sequence[Value]) -> Expr:
    """Whether a list contains this item, or a string this part."""
    return operation("in", part, whole)


def merge(*lists: Value) -> Expr:
    """Merge lists to one list. A value that is not a list counts as one item."""
    return operation("merge", *lists)


def count(*values: Value) -> Expr:
    """Count the values that are truthy. For a single list, return its length."""
    return operation("count", *values)


def length(value: Value) -> Expr:
    """The length of a list, a string or an object."""
    return operation("list.length", value)


def first(items: Expr | Sequence[Value]) -> Expr:
    """The first item, or null if the list is empty."""
    return operation("list.first", items)


def last(items: Expr | Sequence[Value]) -> Expr:
    return operation("list.last", items)


def sort(items: Expr | Sequence[Value], *, descending: Condition | None = None) -> Expr:
    """Sort a list of numbers or of strings."""
    return operation("list.sort", items, *_optional(descending))


def unique(items: Expr | Sequence[Value]) -> Expr:
    return operation("list.unique", items)


def keys(value: Value) -> Expr:
    return operation("obj.keys", value)


def values(value: Value) -> Expr:
    return operation("obj.values", value)


def get(value: Value, key: Expr | str, default: Value = None) -> Expr:
    """The value of one key, which may contain dots."""
    return operation("obj.get", value, key, *_optional(default))


def vars(path: str | Reference, rest: str = "") -> Expr:
    """A list of all matches of a path: `op.vars(prices.output.items, "[*].price")`."""
    if isinstance(path, Reference):
        return Expr({"vars": _write_query(path._keys) + rest}, path._origins)
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
    """The body receives the result for the previous items, and the item."""
    return scoped_operation("reduce", items, body, *_optional(initial))


def missing(*paths: str | Reference) -> Expr:
    """The list of those paths that have no value."""
    origins = frozenset[Origin]().union(*(_origins(path) for path in paths))
    return Expr({"missing": [_path(path) for path in paths]}, origins)


def missing_some(least: int, paths: Sequence[str | Reference]) -> Expr:
    """Like missing(), but empty if at least `least` of the paths have a value."""
    origins = frozenset[Origin]().union(*(_origins(path) for path in paths))
    return Expr({"missing_some": [least, [_path(path) for path in paths]]}, origins)


# ---- time, shared values and logging


def now() -> Expr:
    """The time of the event that triggers the evaluation."""
    return operation("time.now")


def hour(time: Expr | str | float | None = None) -> Expr:
    """The hour of a time in UTC, by default of the current time."""
    return operation("time.hour", *_optional(time))


def weekday(time: Expr | str | float | None = None) -> Expr:
    """The weekday of a time, by default of the current time. Monday is 1, Sunday is 7."""
    return operation("time.weekday", *_optional(time))


def iso(time: Expr | str | float) -> Expr:
    return operation("time.iso", time)


def later(time: Expr | str | float, by: Number | timedelta) -> Expr:
    """Add seconds to a time."""
    return operation("time.add", time, by.total_seconds() if isinstance(by, timedelta) else by)


def kv_get(key: Expr | str, default: Value = None) -> Expr:
    """A shared value: `"k"`, `"global:k"` or `"flow_group:k"`."""
    return operation("kv.get", key, *_optional(default))


def log(value: Value) -> Expr:
    return operation("log", value)


def _optional(value: Value) -> list[Value]:
    return [] if value is None else [value]


def _path(path: str | Reference) -> str:
    return path._path if isinstance(path, Reference) else path


def _origins(path: str | Reference) -> frozenset[Origin]:
    return path._origins if isinstance(path, Reference) else frozenset({Origin(f"the path {path!r}")})


def _write_query(keys: tuple[str | int, ...]) -> str:
    """Write a path of `var` for `vars`: an index and a key with special characters are in brackets."""
    return "".join(_write_segment(key) for key in keys).removeprefix(".") if keys else "$"


def _write_segment(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if key.replace("-", "_").isidentifier():
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
