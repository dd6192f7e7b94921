"""Building expressions of our language, as a person would write them."""

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

_TEXTS = frozenset({"cat", "substr", "str.upper", "str.lower", "str.trim", "str.replace", "str.join"})
_TEXTS |= {"json.dumps", "time.now", "time.iso", "time.add"}
_NUMBERS = frozenset({"+", "-", "*", "/", "%", "min", "max", "count", "list.length", "num.round", "num.abs"})
_NUMBERS |= {"time.hour", "time.weekday"}
_LISTS = frozenset({"vars", "map", "filter", "merge", "list.sort", "list.unique", "obj.keys", "obj.values"})
_ONLY_A_TEXT = re.compile(r"(?!(?:True|False|None)$)[A-Za-z]")


def operation(operator: str, *args: Rule) -> Rule:
    """An operator with its arguments; a single one needs no brackets, unless it is a list itself."""
    if len(args) == 1 and not isinstance(args[0], list):
        return {operator: args[0]}
    return {operator: list(args)}


def kind_of(rule: Rule) -> str | None:
    """text, number or list, if that can be seen."""
    if isinstance(rule, str):
        return "text"
    if isinstance(rule, int | float) and not isinstance(rule, bool):
        return "number"
    if isinstance(rule, list):
        return "list"
    if isinstance(rule, dict) and len(rule) == 1:
        [(operator, given)] = rule.items()
        if operator in ("if", "any.default") and isinstance(given, list):
            ways = given[1::2] + given[-1:] if operator == "if" else given
            kinds = {kind_of(way) for way in ways}
            return kinds.pop() if len(kinds) == 1 else None
        kinds_of_operators = {"text": _TEXTS, "number": _NUMBERS, "list": _LISTS}
        return next((kind for kind, names in kinds_of_operators.items() if operator in names), None)
    return None


def concatenate(*parts: Rule) -> Rule:
    """The texts of all parts as one; a single part stays what it is."""
    written = [part for part in parts if part != ""]
    if len(written) == 1:
        return written[0]
    flat: list[Rule] = []
    for part in written:
        inner = part["cat"] if isinstance(part, dict) and list(part) == ["cat"] else part
        flat += inner if isinstance(inner, list) else [inner]
    merged: list[Rule] = []
    for is_text, run in groupby(flat, lambda item: isinstance(item, str)):
        items = list(run)
        merged += ["".join(items)] if is_text else items
    return {"cat": merged} if len(merged) > 1 else "".join(merged)


def flatten_operation(operator: str, left: Rule, right: Rule) -> Rule:
    """`a and b and c` as one operation of three: the deeper form says nothing more."""
    inner = left[operator] if isinstance(left, dict) and list(left) == [operator] else [left]
    return {operator: [*inner, right]} if isinstance(inner, list) else {operator: [inner, right]}


def equal(left: Rule, right: Rule) -> Rule:
    """Equal in value and kind; `==` suffices beside a text that no other kind of value looks like."""
    is_plain = any(isinstance(side, str) and _ONLY_A_TEXT.match(side) for side in (left, right))
    return operation("==" if is_plain else "===", left, right)


def unequal(left: Rule, right: Rule) -> Rule:
    [(operator, sides)] = equal(left, right).items()
    return {"!=" if operator == "==" else "!==": sides}


def access_key(rule: Rule, key: Rule) -> Rule:
    """The part of a value under one key or index."""
    path = rule.get("var") if isinstance(rule, dict) and len(rule) == 1 else None
    is_index = isinstance(key, int) and not isinstance(key, bool)
    if not is_index and not isinstance(key, str):
        raise CannotConvert("only a text or a number in brackets is supported")
    if kind_of(rule) in ("text", "number"):
        raise CannotConvert(f"a {kind_of(rule)} has no {key!r}")
    if isinstance(path, str) and ((is_index and key >= 0) or (isinstance(key, str) and is_segment(key))):
        return {"var": f"{path}.{key}" if path else str(key)}
    if isinstance(key, str):
        return operation("obj.get", rule, key)
    if key in (0, -1):
        return operation("list.first" if key == 0 else "list.last", rule)
    raise CannotConvert(f"[{key}] of something computed is not supported")


def is_segment(key: str) -> bool:
    """Whether a key can stand in a dotted path."""
    return bool(key) and "." not in key


def convert_data(
    value: Any, path: Path, notes: Notes, convert_text: Callable[[str, Path, Notes], Rule]
) -> Rule:
    """Data with its texts converted; what would be taken for an expression is quoted."""
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
            message = f"a mapping with the only key {key!r} is an expression here, and cannot hold templates"
            notes.add_lost(path, message, AS_TEXT)
        return {LITERAL: value}
    return {key: convert_data(item, (*path, key), notes, convert_text) for key, item in value.items()}


def require_valid(rule: Rule) -> Rule:
    """The same, unless our language would refuse it."""
    problems = check(rule, "")
    if problems:
        raise CannotConvert(f"what it comes to is not accepted here: {problems[0].message}")
    return rule
