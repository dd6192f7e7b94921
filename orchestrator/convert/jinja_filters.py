"""Jinja's filters that have an equal here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.convert.json_logic import Rule, concatenate, operation


@dataclass(frozen=True, slots=True)
class KnownFilter:
    """How a filter is written here; with how many arguments; and what is different, if something is."""

    build: Callable[..., Rule]
    min_args: int = 0
    max_args: int = 0
    change: str = ""


def _as(operator: str, min_args: int = 0, max_args: int = 0, change: str = "") -> KnownFilter:
    return KnownFilter(lambda of, *args: operation(operator, of, *args), min_args, max_args, change)


def _default(of: Rule, default: Rule = "", also_if_false: Rule = False) -> Rule:
    return operation("or" if also_if_false is True else "any.default", of, default)


def _text(of: Rule) -> Rule:
    return concatenate(of) if isinstance(of, str) else operation("cat", of)


_LENGTH = _as("list.length")
_DEFAULT = KnownFilter(_default, 0, 2)

FILTERS: dict[str, KnownFilter] = {
    "upper": _as("str.upper"),
    "lower": _as("str.lower"),
    "trim": _as("str.trim"),
    "replace": _as("str.replace", 2, 2),
    "join": _as("str.join", 0, 1),
    "length": _LENGTH,
    "count": _LENGTH,
    "tojson": _as("json.dumps"),
    "default": _DEFAULT,
    "d": _DEFAULT,
    "string": KnownFilter(_text),
    "first": _as("list.first"),
    "last": _as("list.last"),
    "abs": _as("num.abs"),
    "round": _as("num.round", 0, 1, "round takes halves away from zero here, and gives a whole number"),
    "sort": _as("list.sort", change="sort tells capital letters from small ones here"),
    "unique": _as("list.unique", change="unique tells capital letters from small ones here"),
}
