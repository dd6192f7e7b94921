"""Operators of the language for workflow functions, with the types of Python: `op.cat("order ", order.id)`.

They have the names and the meaning of those in `orchestrator.builder.op`. In a workflow function they build
an expression. Outside they compute the value, so that a workflow function can be called plainly.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence, Sized
from datetime import timedelta
from time import time_ns
from typing import Any, TypeVar, cast

from pydantic_core import to_jsonable_python

from orchestrator.application.records.events import iso as iso_time
from orchestrator.builder import op as build
from orchestrator.builder.expressions import Expr, literal, render
from orchestrator.functions.tracing import current_trace
from orchestrator.invocation.parameters import evaluate

T = TypeVar("T")
U = TypeVar("U")

# fmt: off
__all__ = [
    "abs", "all", "between", "cat", "contains", "default", "dumps", "ends_with", "filter", "first", "get",
    "hour", "identical", "if_", "in_", "iso", "join", "keys", "kv_get", "last", "later", "length", "lower",
    "map", "matches", "max", "merge", "min", "none", "not_", "not_identical", "now", "number", "parse",
    "reduce", "replace", "round", "some", "sort", "split", "starts_with", "substr", "trim", "truthy",
    "unique", "upper", "values", "vars", "weekday",
]
# fmt: on


def _apply(operator: Callable[..., Expr], *operands: Any, **named: Any) -> Any:
    """Build the expression, or outside of a workflow its value."""
    if current_trace() is not None:
        return operator(*operands, **named)
    plain = [
        one if isinstance(one, str | timedelta) else literal(to_jsonable_python(one)) for one in operands
    ]
    return evaluate(render(operator(*plain, **named)), {"ctx": {"now": iso_time(time_ns() // 1_000_000)}})


def _lift(operator: Callable[..., Expr]) -> Callable[..., Any]:
    """The operator for a workflow function."""

    def lifted(*operands: Any, **named: Any) -> Any:
        return _apply(operator, *operands, **named)

    lifted.__doc__, lifted.__name__ = operator.__doc__, operator.__name__
    return lifted


# ---- comparison and logic

identical: Callable[[object, object], bool] = _lift(build.identical)
not_identical: Callable[[object, object], bool] = _lift(build.not_identical)
between: Callable[[float, float, float], bool] = _lift(build.between)
not_: Callable[[object], bool] = _lift(build.not_)
truthy: Callable[[object], bool] = _lift(build.truthy)


def if_(condition: bool, then: T, otherwise: T) -> T:
    """One of two values. Use switch() to choose between steps."""
    if current_trace() is None:
        return then if condition else otherwise
    return cast(T, build.if_(condition, cast(Any, then), cast(Any, otherwise)))


def default(value: T | None, otherwise: T) -> T:
    """The value, or the other one if it is null."""
    if current_trace() is None:
        return otherwise if value is None else value
    return cast(T, build.default(cast(Any, value), cast(Any, otherwise)))


# ---- numbers

number: Callable[[object], float] = _lift(build.number)
min: Callable[..., float] = _lift(build.min)
max: Callable[..., float] = _lift(build.max)
abs: Callable[[float], float] = _lift(build.abs)
round: Callable[..., float] = _lift(build.round)

# ---- text

cat: Callable[..., str] = _lift(build.cat)
substr: Callable[..., str] = _lift(build.substr)
upper: Callable[[str], str] = _lift(build.upper)
lower: Callable[[str], str] = _lift(build.lower)
trim: Callable[[str], str] = _lift(build.trim)
replace: Callable[[str, str, str], str] = _lift(build.replace)
split: Callable[..., list[str]] = _lift(build.split)
join: Callable[..., str] = _lift(build.join)
contains: Callable[[str, str], bool] = _lift(build.contains)
starts_with: Callable[[str, str], bool] = _lift(build.starts_with)
ends_with: Callable[[str, str], bool] = _lift(build.ends_with)
matches: Callable[[str, str], bool] = _lift(build.matches)
dumps: Callable[[object], str] = _lift(build.dumps)
parse: Callable[[str], Any] = _lift(build.parse)

# ---- lists and mappings

in_: Callable[[object, Iterable[object]], bool] = _lift(build.in_)
length: Callable[[Sized], int] = _lift(build.length)
keys: Callable[[object], list[str]] = _lift(build.keys)
values: Callable[[object], list[Any]] = _lift(build.values)
get: Callable[..., Any] = _lift(build.get)


def vars(value: object, path: str) -> list[Any]:
    """All values at a JSONPath below a value: `op.vars(order.lines, "[*].price")`."""
    if current_trace() is not None:
        return cast(list[Any], build.vars(cast(Any, value), path))
    return cast(list[Any], evaluate(render(build.vars("value", path)), {"value": to_jsonable_python(value)}))


def merge(*lists: Sequence[T]) -> list[T]:
    """All items of several lists in one."""
    if current_trace() is None:
        return [item for one in lists for item in one]
    return cast(list[T], build.merge(*cast(Any, lists)))


def first(items: Sequence[T]) -> T | None:
    """The first item, or null."""
    if current_trace() is None:
        return items[0] if items else None
    return cast(T, build.first(cast(Any, items)))


def last(items: Sequence[T]) -> T | None:
    """The last item, or null."""
    if current_trace() is None:
        return items[-1] if items else None
    return cast(T, build.last(cast(Any, items)))


def sort(items: Iterable[T], *, descending: bool = False) -> list[T]:
    """A list of numbers or of texts in order."""
    if current_trace() is None:
        return sorted(cast(Any, items), reverse=descending)
    return cast(list[T], build.sort(cast(Any, items), descending=descending or None))


def unique(items: Iterable[T]) -> list[T]:
    """The items without repetitions."""
    if current_trace() is None:
        found = list(items)
        return [item for n, item in enumerate(found) if item not in found[:n]]
    return cast(list[T], build.unique(cast(Any, items)))


def map(items: Iterable[T], body: Callable[[T], U]) -> list[U]:
    """A value for each item; the function can read only the item. Use map_each() to call a step."""
    if current_trace() is None:
        return [body(item) for item in items]
    return cast(list[U], build.map(cast(Any, items), cast(Any, body)))


def filter(items: Iterable[T], body: Callable[[T], object]) -> list[T]:
    """The items for which the condition is true."""
    if current_trace() is None:
        return [item for item in items if body(item)]
    return cast(list[T], build.filter(cast(Any, items), cast(Any, body)))


def all(items: Iterable[T], body: Callable[[T], object]) -> bool:
    """Whether the condition is true for all items; false for an empty list."""
    if current_trace() is None:
        return bool(found := list(items)) and builtins.all(body(item) for item in found)
    return cast(bool, build.all(cast(Any, items), cast(Any, body)))


def some(items: Iterable[T], body: Callable[[T], object]) -> bool:
    """Whether the condition is true for an item."""
    if current_trace() is None:
        return any(body(item) for item in items)
    return cast(bool, build.some(cast(Any, items), cast(Any, body)))


def none(items: Iterable[T], body: Callable[[T], object]) -> bool:
    """Whether the condition is true for no item."""
    if current_trace() is None:
        return not any(body(item) for item in items)
    return cast(bool, build.none(cast(Any, items), cast(Any, body)))


def reduce(items: Iterable[T], body: Callable[[U, T], U], initial: U) -> U:
    """One value of all items. The function gets the value so far, and the item."""
    if current_trace() is not None:
        return cast(U, build.reduce(cast(Any, items), cast(Any, body), cast(Any, initial)))
    total = initial
    for item in items:
        total = body(total, item)
    return total


# ---- time and shared values

now: Callable[[], Any] = _lift(build.now)
hour: Callable[..., int] = _lift(build.hour)
weekday: Callable[..., int] = _lift(build.weekday)
iso: Callable[[object], str] = _lift(build.iso)
later: Callable[[object, float | timedelta], Any] = _lift(build.later)


def kv_get(key: str, otherwise: object = None) -> Any:
    """A shared value: `"k"`, `"global:k"` or `"flow_group:k"`. Outside of a workflow, the other value."""
    return otherwise if current_trace() is None else build.kv_get(key, cast(Any, otherwise))
