"""Expressions as Python objects: comparison, arithmetic, `&`, `|`, `~` and paths build JSON Logic.

    check.output.amount > 500           {">": [{"var": "steps.check.output.amount"}, 500]}
    input_.lines[0]["unit price"]       {"var": "input.lines.0.unit price"}
    ~ctx.loop.value                     {"!": {"var": "ctx.loop.value"}}

An expression is immutable and has no value before the workflow runs. Using it where Python needs a value
(`if`, `and`, `in`, a loop, an f-string) raises a TypeError that names the alternative.

Each expression stores where its paths begin. A path into the steps of one workflow is rejected in another.
The body of a scoped operator can read only its item, and nothing outside can read that item. Such paths would
read null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, Union

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.expressions.evaluation import LITERAL, MAX_DEPTH, check_condition, is_expression
from orchestrator.application.values.secret_refs import (
    SECRET,
    SECRET_NAME_RULE,
    is_secret_name,
    is_secret_reference,
)

Scalar: TypeAlias = bool | int | float | str | None
Json: TypeAlias = Scalar | Sequence["Json"] | Mapping[str, "Json"]
Value: TypeAlias = Union["Expr", Scalar, Sequence["Value"], Mapping[str, "Value"]]
Number: TypeAlias = Union["Expr", int, float]
Condition: TypeAlias = Union["Expr", bool]
Needed: TypeAlias = Literal["truth", "items", "membership", "text", "number", "length", "key"]
"""What Python code needs of a value: for `if`, a loop, `in`, an f-string, `int()`, `len()`, a dict."""


class MissingValue(TypeError):
    """Python code needs the value of an expression, which exists only while the workflow runs."""

    def __init__(self, needed: Needed, message: str) -> None:
        super().__init__(message)
        self.needed = needed


class Origin:
    """Where a path begins: a part of `owner`, or, without an owner, a root that every expression can read."""

    def __init__(self, description: str, owner: object | None = None) -> None:
        self.description, self.owner = description, owner


class Expr:
    """An expression: its JSON Logic, and where its paths begin."""

    __slots__ = ("_origins", "_rule")
    _rule: Any
    _origins: frozenset[Origin]

    def __init__(self, rule: Any, origins: frozenset[Origin] = frozenset()) -> None:
        object.__setattr__(self, "_rule", rule)
        object.__setattr__(self, "_origins", origins)

    # ---- comparison

    def __eq__(self, other: Value) -> Expr:  # type: ignore[override]
        return operation("==", self, other)

    def __ne__(self, other: Value) -> Expr:  # type: ignore[override]
        return operation("!=", self, other)

    def __lt__(self, other: Number | str) -> Expr:
        return operation("<", self, other)

    def __le__(self, other: Number | str) -> Expr:
        return operation("<=", self, other)

    def __gt__(self, other: Number | str) -> Expr:
        return operation(">", self, other)

    def __ge__(self, other: Number | str) -> Expr:
        return operation(">=", self, other)

    # ---- logic

    def __and__(self, other: Condition) -> Expr:
        return _extend_operation("and", self, _require_condition(other))

    def __rand__(self, other: Condition) -> Expr:
        return operation("and", _require_condition(other), self)

    def __or__(self, other: Condition) -> Expr:
        return _extend_operation("or", self, _require_condition(other))

    def __ror__(self, other: Condition) -> Expr:
        return operation("or", _require_condition(other), self)

    def __invert__(self) -> Expr:
        return operation("!", self)

    # ---- arithmetic

    def __add__(self, other: Number) -> Expr:
        return _extend_operation("+", self, _require_number(other))

    def __radd__(self, other: Number) -> Expr:
        return operation("+", _require_number(other), self)

    def __sub__(self, other: Number) -> Expr:
        return operation("-", self, _require_number(other))

    def __rsub__(self, other: Number) -> Expr:
        return operation("-", _require_number(other), self)

    def __mul__(self, other: Number) -> Expr:
        return _extend_operation("*", self, _require_number(other))

    def __rmul__(self, other: Number) -> Expr:
        return operation("*", _require_number(other), self)

    def __truediv__(self, other: Number) -> Expr:
        return operation("/", self, _require_number(other))

    def __rtruediv__(self, other: Number) -> Expr:
        return operation("/", _require_number(other), self)

    def __mod__(self, other: Number) -> Expr:
        return operation("%", self, _require_number(other))

    def __rmod__(self, other: Number) -> Expr:
        return operation("%", _require_number(other), self)

    def __neg__(self) -> Expr:
        return operation("-", self)

    # ---- unsupported operations

    def __bool__(self) -> NoReturn:
        raise MissingValue(
            "truth",
            "an expression has no value before the workflow runs: write & | ~ for and, or, not; "
            "op.if_() for if; op.between() for a < x < b; op.in_() for in",
        )

    def __iter__(self) -> NoReturn:
        message = "an expression has no items before the workflow runs: write op.map() or flow.map()"
        raise MissingValue("items", message)

    def __contains__(self, item: object) -> NoReturn:
        raise MissingValue(
            "membership", "an expression has no items before the workflow runs: write op.in_()"
        )

    def __format__(self, form: str) -> NoReturn:
        raise MissingValue("text", "an expression has no text before the workflow runs: write op.cat()")

    def __len__(self) -> NoReturn:
        raise MissingValue(
            "length", "an expression has no length before the workflow runs: write op.length()"
        )

    def __hash__(self) -> NoReturn:
        message = "an expression has no value before the workflow runs, so it cannot be a key: write op.get()"
        raise MissingValue("key", message)

    def __int__(self) -> NoReturn:
        raise MissingValue("number", "an expression has no value before the workflow runs: write op.number()")

    def __float__(self) -> NoReturn:
        self.__int__()

    def __index__(self) -> NoReturn:
        self.__int__()

    def __round__(self, digits: object = None) -> NoReturn:
        raise MissingValue("number", "an expression has no value before the workflow runs: write op.round()")

    def __abs__(self) -> NoReturn:
        raise MissingValue("number", "an expression has no value before the workflow runs: write op.abs()")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an expression is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an expression is immutable")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __repr__(self) -> str:
        return f"<{json.dumps(self._rule, ensure_ascii=False)}>"


class Reference(Expr):
    """A path to a value. Attributes and [] extend it: `lines[0].price`.

    Use [] for a key that is not a Python name, starts with an underscore, or is called `default`.
    """

    __slots__ = ("_keys", "_path")
    _keys: tuple[str | int, ...]
    _path: str

    def __init__(self, keys: Sequence[str | int], origins: frozenset[Origin]) -> None:
        path = ".".join(map(str, keys))
        super().__init__({"var": path}, origins)
        object.__setattr__(self, "_keys", tuple(keys))
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("_"):
            raise AttributeError(f"write [{name!r}] for a key that starts with an underscore")
        return self[name]

    def __getitem__(self, key: str | int) -> Reference:
        if isinstance(key, int) and not isinstance(key, bool):
            if key < 0:
                raise ValueError("a path cannot have a negative index: write op.last() or op.vars()")
        elif not isinstance(key, str):
            raise TypeError(
                f"a path is extended with a key or an index, not with {key!r}; for slices use op.vars()"
            )
        elif not key or "." in key:
            raise ValueError(f"a path cannot name the key {key!r}: write op.get(object, {key!r})")
        return Reference((*self._keys, key), self._origins)

    def default(self, value: Value) -> Expr:
        """Use this value if the path finds nothing. A path with a default does not make a dependency."""
        rule, origins = _snapshot(value, is_operand=True)
        return Expr({"var": [self._path, rule]}, self._origins | origins)


class Step:
    """A step of a workflow, to pass as `after` and to read in expressions."""

    __slots__ = ("_origins", "id", "owner")

    def __init__(self, step_id: str, owner: object) -> None:
        self.id, self.owner = step_id, owner
        self._origins = frozenset({Origin(f"the step {step_id!r}", owner)})

    @property
    def output(self) -> Reference:
        return Reference(("steps", self.id, "output"), self._origins)

    @property
    def status(self) -> Reference:
        return Reference(("ctx", "status", self.id), self._origins)

    @property
    def error(self) -> Reference:
        """The failure of the step with `kind` and `message`, or null."""
        return Reference(("ctx", "error", self.id), self._origins)

    def __repr__(self) -> str:
        return f"<step {self.id!r}>"


def ref(path: str) -> Reference:
    """Refer to a full path, such as `ref("state.total")`."""
    return Reference(path.split(".") if path else (), frozenset({Origin(f"the path {path!r}")}))


def literal(value: Json) -> Expr:
    """Quote data, so that it is never evaluated: a mapping like {"var": "x"}, or a text with {{ braces }}."""
    return Expr({LITERAL: copy_data(value)})


def secret(name: str) -> Expr:
    """Refer to a secret of the worker: a whole value of an input, or anywhere in a source configuration."""
    if not is_secret_name(name):
        raise spec_error("bad_id", f"{name!r} {SECRET_NAME_RULE}")
    return Expr({SECRET: name})


def raw(rule: Mapping[str, Any]) -> Expr:
    """Use JSON Logic as an expression, such as {"var": "input.x"}."""
    copied = copy_data(rule)
    if problems := check_condition(copied, ""):
        raise InvalidSpec(problems)
    return Expr(copied)


def render(value: Value, owner: object | None = None) -> Any:
    """Return a value as plain data with JSON Logic. The result is a copy.

    Raises InvalidSpec if there is an `owner` and the value reads something of another one.
    """
    rule, origins = _snapshot(value)
    for origin in origins:
        if owner is not None and origin.owner is not None and origin.owner is not owner:
            raise spec_error("unknown_dependency", f"{origin.description} does not belong to this workflow")
    return copy_data(rule)


def copy_data(value: Any, depth: int = 0) -> Any:
    """Copy data without expressions to dicts and lists."""
    if depth > MAX_DEPTH:
        raise spec_error("too_deep", f"a value is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {key: copy_data(item, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [copy_data(item, depth + 1) for item in value]
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Expr):
        raise TypeError(f"an expression is not allowed here: {value!r}")
    raise TypeError(f"{value!r} is not JSON data")


def operation(operator: str, *operands: Value) -> Expr:
    """Build an operation. A single operand is written without a list, unless it is a list."""
    snapshots = [_snapshot(operand, is_operand=True) for operand in operands]
    rules = [rule for rule, _ in snapshots]
    origins = frozenset[Origin]().union(*(found for _, found in snapshots))
    is_short = len(rules) == 1 and not isinstance(rules[0], list)
    return Expr({operator: rules[0] if is_short else rules}, origins)


def scoped_operation(operator: str, items: Value, body: Callable[..., Value] | Value, *more: Value) -> Expr:
    """Build an operation whose body reads only its items. A function receives references to the item."""
    if callable(body):
        item = object()
        inside = frozenset({Origin(f"the item of {operator}", item)})
        paths = (("accumulator",), ("current",)) if operator == "reduce" else ((),)
        body = body(*(Reference(path, inside) for path in paths))
        rule, origins = _snapshot(body, is_operand=True)
        for origin in origins:
            if origin.owner is not item:
                message = f"the body of {operator} can read only its items, not {origin.description}"
                raise spec_error("bad_path", message)
        body = Expr(rule)
    return operation(operator, items, body, *more)


def spec_error(code: str, message: str, hint: str | None = None) -> InvalidSpec:
    return InvalidSpec([Problem("", code, message, hint)])


def _snapshot(value: Value, *, is_operand: bool = False, depth: int = 0) -> tuple[Any, frozenset[Origin]]:
    """Return the rule of a value and where its paths begin. The rule must not be changed."""
    if isinstance(value, Expr):
        return value._rule, value._origins
    if isinstance(value, Step):
        raise TypeError(f"{value!r} is not a value: write its .output")
    if depth > MAX_DEPTH:
        raise spec_error("too_deep", f"a value is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        _check_is_data(value, is_operand)
        inside = {key: _snapshot(item, depth=depth + 1) for key, item in value.items()}
        origins = frozenset[Origin]().union(*(found for _, found in inside.values()))
        return {key: rule for key, (rule, _) in inside.items()}, origins
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        items = [_snapshot(item, is_operand=is_operand, depth=depth + 1) for item in value]
        return [rule for rule, _ in items], frozenset[Origin]().union(*(found for _, found in items))
    return copy_data(value), frozenset()


def _check_is_data(value: Mapping[str, Any], is_operand: bool) -> None:
    """Reject a mapping that is read as a secret or an expression, in operands every one with a single key."""
    if is_secret_reference(dict(value)):
        hint = "write secret(...) for a secret, literal(...) around data"
        raise spec_error("bad_type", f"{dict(value)!r} would be read as a secret", hint)
    if len(value) == 1 and (is_operand or LITERAL in value or is_expression(dict(value))):
        hint = "write literal(...) around data, raw(...) around JSON Logic"
        raise spec_error("bad_type", f"{dict(value)!r} would be read as an expression", hint)


def _extend_operation(operator: str, left: Expr, right: Value) -> Expr:
    """Write `a & b & c` as one operation with three operands."""
    first = left._rule.get(operator)
    if not isinstance(first, list):
        return operation(operator, left, right)
    rule, origins = _snapshot(right, is_operand=True)
    return Expr({operator: [*first, rule]}, left._origins | origins)


def _require_condition(operand: Condition) -> Condition:
    if not isinstance(operand, Expr | bool):
        raise TypeError(f"& and | join conditions, not {operand!r}: write parentheses, (a > 1) & (b > 2)")
    return operand


def _require_number(operand: Number) -> Number:
    if not isinstance(operand, Expr | int | float):
        raise TypeError(f"{operand!r} is not a number; to join strings, use op.cat()")
    return operand
