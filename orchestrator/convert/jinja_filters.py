"""The filters of Jinja that have an equivalent here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.convert.json_logic import Rule, concatenate, operation


@dataclass(frozen=True, slots=True)
class KnownFilter:
    """Builds the equivalent of a filter. `change` describes a difference in meaning, if there is one."""

    build: Callable[..., Rule]
    min_args: int = 0
    max_args: int = 0
    change: str = ""


def _operator(operator: str, min_args: int = 0, max_args: int = 0, change: str = "") -> KnownFilter:
    return KnownFilter(lambda of, *args: operation(operator, of, *args), min_args, max_args, change)


def _build_default(of: Rule, default: Rule = "", also_if_false: Rule = False) -> Rule:
    return operation("or" if also_if_false is True else "any.default", of, default)


def _build_string(of: Rule) -> Rule:
    return concatenate(of) if isinstance(of, str) else operation("cat", of)


_LENGTH = _operator("list.length")
_DEFAULT = KnownFilter(_build_default, 0, 2)

FILTERS: dict[str, KnownFilter] = {
    "upper": _operator("str.upper"),
    "lower": _operator("str.lower"),
    "trim": _operator("str.trim"),
    "replace": _operator("str.replace", 2, 2),
    "join": _operator("str.join", 0, 1),
    "length": _LENGTH,
    "count": _LENGTH,
    "tojson": _operator("json.dumps"),
    "default": _DEFAULT,
    "d": _DEFAULT,
    "string": KnownFilter(_build_string),
    "first": _operator("list.first"),
    "last": _operator("list.last"),
    "abs": _operator("num.abs"),
    "round": _operator(
        "num.round", 0, 1, "round rounds halves away from zero here, and without digits it gives an integer"
    ),
    "sort": _operator("list.sort", change="sort is case-sensitive here"),
    "unique": _operator("list.unique", change="unique is case-sensitive here"),
}
