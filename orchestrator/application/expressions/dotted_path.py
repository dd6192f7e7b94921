"""Dotted paths, as `var` reads them. They follow keys and list indexes only, never attributes.

A caller spends on the length of a path; what a lazy mapping is copied into is spent on here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.application.expressions.jsonpath import MAX_CACHED_PATH_CHARS, supports_descend
from orchestrator.application.expressions.meter import Meter
from orchestrator.application.values.payload_refs import (
    REFERENCE_KEYS,
    is_payload_reference,
    opaque_reference_error,
)
from orchestrator.application.values.short_key_cache import ShortKeyCache

ABSENT = object()


def look_up(data: Any, path: str, default: Any = None, meter: Meter | None = None) -> Any:
    """Return the value at a dotted path, with lazy mappings turned into dicts."""
    parts = split_path(path)
    value = find(data, parts, default)
    if type(value) in _SCALARS or (type(value) is dict and len(parts) >= 2):
        return value
    return to_plain_dicts(value, meter or Meter(), 2 - len(parts))


def find(value: Any, parts: tuple[str, ...], default: Any) -> Any:
    """Return the value at a path. ExpressionError if the path leads into a value stored by reference."""
    position, end = 0, len(parts)
    while position < end:
        part = parts[position]
        if type(value) is dict:
            inner = value.get(part, ABSENT)
            if (inner is ABSENT or part in REFERENCE_KEYS) and is_payload_reference(value):
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


def _split(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


# Every `var` splits a path. The attribute of a dict costs no call in Python.
split_path: Callable[[str], tuple[str, ...]] = ShortKeyCache(_split, 4096, MAX_CACHED_PATH_CHARS).__getitem__


def to_plain_dicts(value: Any, meter: Meter, reach: int = 2) -> Any:
    """Turn lazy mappings into dicts. They occur in one another and in the top `reach` levels of dicts, never
    in lists, so nothing else is searched."""
    if type(value) is dict:
        if reach <= 0:
            return value
        meter.spend(len(value) // 2)
        plain = {key: to_plain_dicts(item, meter, reach - 1) for key, item in value.items()}
        return plain if any(plain[key] is not item for key, item in value.items()) else value
    if isinstance(value, Mapping):
        meter.spend(1 + 3 * len(value))
        return {key: to_plain_dicts(item, meter, reach) for key, item in value.items()}
    return value


_SCALARS = frozenset({str, int, float, bool, type(None), list})
