"""Dotted paths into data, as `var` reads them: through keys and indexes alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from orchestrator.application.expressions.jsonpath import supports_descend
from orchestrator.application.values.payload_refs import REFERENCE_KEYS, is_reference, opaque_reference_error

ABSENT = object()


def look_up(data: Any, path: str, default: Any = None) -> Any:
    parts = split(path)
    value = find(data, parts, default)
    if type(value) in _SCALARS or (type(value) is dict and len(parts) >= 2):
        return value
    return to_plain_dicts(value, 2 - len(parts))


def find(value: Any, parts: tuple[str, ...], default: Any) -> Any:
    """What is at a path. ExpressionError when it leads into a value that is kept by reference."""
    position, end = 0, len(parts)
    while position < end:
        part = parts[position]
        if type(value) is dict:
            inner = value.get(part, ABSENT)
            if (inner is ABSENT or part in REFERENCE_KEYS) and is_reference(value):
                raise opaque_reference_error(value, repr(".".join(parts[:position])))
            value = inner
        elif type(value) is list:
            index = int(part) if part.isdecimal() and len(part) < 10 else len(value)
            value = value[index] if index < len(value) else ABSENT
        elif supports_descend(type(value)):
            descended = value.descend(parts[position:])
            if descended is None:
                return default
            value, rest = descended
            position = end - len(rest)
            continue
        else:
            value = value.get(part, ABSENT) if isinstance(value, Mapping) else ABSENT
        if value is ABSENT:
            return default
        position += 1
    return value


@lru_cache(maxsize=4096)
def split(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def to_plain_dicts(value: Any, reach: int = 2) -> Any:
    """Lazy mappings as dicts. They lie in one another or in the uppermost `reach` dicts, never in lists."""
    if type(value) is dict:
        if reach <= 0:
            return value
        made = {key: to_plain_dicts(item, reach - 1) for key, item in value.items()}
        return made if any(made[key] is not item for key, item in value.items()) else value
    if isinstance(value, Mapping):
        return {key: to_plain_dicts(item, reach) for key, item in value.items()}
    return value


_SCALARS = frozenset({str, int, float, bool, type(None), list})
