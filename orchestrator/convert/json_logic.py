"""Builds expressions in JSON Logic, written as a person would write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, OPERATORS, check
from orchestrator.application.values.paths import Path
from orchestrator.application.values.secret_refs import SECRET
from orchestrator.convert.notes import AS_TEXT, CannotConvert, Notes

Rule = Any

_STRINGS = frozenset({"cat", "substr", "str.upper", "str.lower", "str.trim", "str.replace", "str.join"})
_STRINGS |= {"json.dumps", "time.now", "time.iso", "time.add"}
_NUMBERS = frozenset({"+", "-", "*", "/", "%", "min", "max", "count", "list.length", "num.round", "num.abs"})
_NUMBERS |= {"time.hour", "time.weekday"}
_LISTS = frozenset({"vars", "map", "filter", "merge", "list.sort", "list.unique", "obj.keys", "obj.values"})
_OPERATORS_BY_KIND = {"string": _STRINGS, "number": _NUMBERS, "list": _LISTS}
_CLEARLY_A_STRING = re.compile(r"(?!(?:True|False|None)$)[A-Za-z]")


def operation(operator: str, *args: Rule) -> Rule:
    """Build an operation. A single argument is written without brackets, unless it is a list."""
    if len(args) == 1 and not isinstance(args[0], list):
        return {operator: args[0]}
    return {operator: list(args)}


def kind_of(rule: Rule) -> str | None:
    """Return "string", "number" or "list" if the result of a rule certainly has that type."""
    if isinstance(rule, str):
        return "string"
    if isinstance(rule, int | float) and not isinstance(rule, bool):
        return "number"
    if isinstance(rule, list):
        return "list"
    if isinstance(rule, dict) and len(rule) == 1:
        [(operator, args)] = rule.items()
        if operator in ("if", "any.default") and isinstance(args, list):
            ways = args[1::2] + args[-1:] if operator == "if" else args
            kinds = {kind_of(way) for way in ways}
            return kinds.pop() if len(kinds) == 1 else None
        return next((kind for kind, names in _OPERATORS_BY_KIND.items() if operator in names), None)
    return None


def concatenate(*parts: Rule) -> Rule:
    """Join the parts to one string. A single part keeps its type."""
    filled = [part for part in parts if part != ""]
    if len(filled) == 1:
        return filled[0]
    flat: list[Rule] = []
    for part in filled:
        inner = part["cat"] if isinstance(part, dict) and list(part) == ["cat"] else part
        flat += inner if isinstance(inner, list) else [inner]
    merged: list[Rule] = []
    for is_string, run in groupby(flat, lambda item: isinstance(item, str)):
        items = list(run)
        merged += ["".join(items)] if is_string else items
    return {"cat": merged} if len(merged) > 1 else "".join(merged)


def flatten_operation(operator: str, left: Rule, right: Rule) -> Rule:
    """Write `a and b and c` as one operation with three arguments instead of two nested ones."""
    inner = left[operator] if isinstance(left, dict) and list(left) == [operator] else [left]
    return {operator: [*inner, right]} if isinstance(inner, list) else {operator: [inner, right]}


def equal(left: Rule, right: Rule) -> Rule:
    """Compare value and type. `==` is enough beside a string that no value of another type equals."""
    is_plain = any(isinstance(side, str) and _CLEARLY_A_STRING.match(side) for side in (left, right))
    return operation("==" if is_plain else "===", left, right)


def unequal(left: Rule, right: Rule) -> Rule:
    [(operator, sides)] = equal(left, right).items()
    return {"!=" if operator == "==" else "!==": sides}


def access_key(rule: Rule, key: Rule) -> Rule:
    """Read the value under one key or index."""
    path = rule.get("var") if isinstance(rule, dict) and len(rule) == 1 else None
    is_index = isinstance(key, int) and not isinstance(key, bool)
    if not is_index and not isinstance(key, str):
        raise CannotConvert("only a string or a number is supported in brackets")
    if kind_of(rule) in ("string", "number"):
        raise CannotConvert(f"a {kind_of(rule)} has no {key!r}")
    if isinstance(path, str) and ((is_index and key >= 0) or (isinstance(key, str) and is_segment(key))):
        return {"var": f"{path}.{key}" if path else str(key)}
    if isinstance(key, str):
        return operation("obj.get", rule, key)
    if key in (0, -1):
        return operation("list.first" if key == 0 else "list.last", rule)
    raise CannotConvert(f"[{key}] of a computed value is not supported")


def is_segment(key: str) -> bool:
    """Whether a key can be one segment of a dotted path."""
    return bool(key) and "." not in key


def convert_data(
    value: Any, path: Path, notes: Notes, convert_text: Callable[[str, Path, Notes], Rule]
) -> Rule:
    """Convert every string in a value. Data that would be read as an expression is quoted."""
    if isinstance(value, str):
        return convert_text(value, path, notes)
    if isinstance(value, list):
        return [convert_data(item, (*path, n), notes, convert_text) for n, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)) in (*OPERATORS, LITERAL, SECRET):
        inner = Notes()
        converted = {key: convert_data(item, path, inner, convert_text) for key, item in value.items()}
        if converted != value or inner.as_tuple():
            [key] = value
            message = (
                f"a mapping with the single key {key!r} is an expression here and cannot contain templates"
            )
            notes.add_lost(path, message, AS_TEXT)
        return {LITERAL: value}
    return {key: convert_data(item, (*path, key), notes, convert_text) for key, item in value.items()}


def quote_data(value: Any) -> Rule:
    """Return data as an argument of an operator, where a mapping would be read as an expression."""
    return {LITERAL: value} if isinstance(value, dict | list) and value else value


def require_valid(rule: Rule) -> Rule:
    """Return the rule, or raise CannotConvert if it is not valid in our language."""
    problems = check(rule, "")
    if problems:
        raise CannotConvert(f"the converted expression is not valid: {problems[0].message}")
    return rule
