"""The dotted operators that the language adds to JSON Logic. A wrong argument type is a TypeError.

    str.upper str.lower str.trim        [text]
    str.replace                         [text, old, new]
    str.split                           [text, separator]       white space without a separator
    str.join                            [list, separator]       "" without a separator
    str.contains starts_with ends_with  [text, part]
    str.matches                         [text, pattern]         anywhere in the text, unless it has ^ or $
    list.length                         [list]                  or of a string or an object
    list.first list.last                [list]                  null if the list is empty
    list.sort                           [list, descending]      all numbers or all strings
    list.unique                         [list]                  keeps the first of equal items
    obj.keys obj.values                 [object]
    obj.get                             [object, key, default]  dots in the key are part of it
    json.dumps json.parse               [value], [text]
    num.round                           [number, digits]        half away from zero
    num.abs                             [number]
    time.now                            []                      the time of the event: `ctx.now`
    time.hour time.weekday              [time]                  now without a time; UTC; Monday is 1, Sunday 7
    time.iso                            [time]                  2026-11-16T04:42:00.123Z
    time.add                            [time, seconds]
    kv.get                              [key, default]          local, flow, global; or "global:k"
    any.default                         [value, ...]            the first that is not null; lazy

A literal list as the only argument needs its own brackets: {"list.length": [[1, 2, 3]]}. A time is an
ISO-8601 string (UTC unless it has an offset) or a number of seconds since 1970. The operators that read the
data (time.now, kv.get), choose what to evaluate (any.default) or spend while they work (str.matches) are in
json_logic.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any

from orchestrator.application.values.json_types import describe_type

MAX_RESULT_BYTES = 1 << 20
MAX_SUBJECT_LENGTH = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def require_type(value: Any, *types: str) -> Any:
    """Return the value; raise TypeError if its type (see `describe_type`) is none of these."""
    if describe_type(value) not in types:
        raise TypeError(f"expected {' or '.join(types)}, got {describe_type(value)}")
    return value


def require_string(value: Any) -> str:
    return str(require_type(value, "a string"))


def _require_list(value: Any) -> list[Any]:
    items: list[Any] = require_type(value, "a list")
    return items


def check_result_size(size: int) -> None:
    """Raise ValueError if a result of this size is too large. Call it before the result is built."""
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"the result is over {MAX_RESULT_BYTES:,} bytes")


def _replace(subject: Any, old: Any, new: Any) -> str:
    subject, old, new = require_string(subject), require_string(old), require_string(new)
    check_result_size(len(subject) + subject.count(old) * (len(new) - len(old)))
    return str(subject.replace(old, new))


def _split(subject: Any, separator: Any = None) -> list[str]:
    return require_string(subject).split(None if separator is None else require_string(separator))


def _join(items: Any, separator: Any = "") -> str:
    parts = [item if type(item) is str else _item_text(item) for item in _require_list(items)]
    check_result_size(sum(map(len, parts)) + len(parts) * len(require_string(separator)))
    return require_string(separator).join(parts)


def _item_text(item: Any) -> str:
    if type(item) in (int, float):
        return repr(item)
    return str(require_type(item, "a string", "a number"))


def check_subject(subject: Any) -> None:
    """Check the text that `str.matches` searches."""
    if len(require_string(subject)) > MAX_SUBJECT_LENGTH:
        raise ValueError(f"the text is longer than {MAX_SUBJECT_LENGTH:,} characters")


def _length(value: Any) -> int:
    return len(require_type(value, "a list", "a string", "an object"))


def _first(items: Any) -> Any:
    return next(iter(_require_list(items)), None)


def _last(items: Any) -> Any:
    return next(reversed(_require_list(items)), None)


def _sort(items: Any, descending: Any = False) -> list[Any]:
    types = {describe_type(item) for item in _require_list(items)}
    if len(types) > 1 or not types <= {"a number", "a string"}:
        raise TypeError(f"expected all numbers or all strings, got {' and '.join(sorted(types))}")
    return sorted(items, reverse=require_type(descending, "a boolean"))


def _unique(items: Any) -> list[Any]:
    seen: dict[Any, Any] = {}
    for item in _require_list(items):
        is_scalar = describe_type(item) not in ("a list", "an object")
        seen.setdefault((describe_type(item), item if is_scalar else json.dumps(item, sort_keys=True)), item)
    return list(seen.values())


def _keys(value: Any) -> list[str]:
    return list(require_type(value, "an object"))


def _values(value: Any) -> list[Any]:
    return list(require_type(value, "an object").values())


def _get(value: Any, key: Any, default: Any = None) -> Any:
    return require_type(value, "an object").get(require_string(key), default)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _parse(source: Any) -> Any:
    value = json.loads(require_string(source), parse_float=_finite, parse_constant=_finite)
    if "\\u" in source:
        _dumps(value).encode()  # half of a surrogate pair is not a valid string
    return value


def _finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):
        raise ValueError(f"{number} is not a JSON number")
    return value


def _round(number: Any, digits: Any = 0) -> float:
    value: float = require_type(number, "a number")
    if not isinstance(digits, int) or abs(digits) > 15:
        raise ValueError("expected at most 15 digits")
    if abs(value) >= 2**53:
        return value  # a whole number, beyond the exact range of a float
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return int(rounded) if rounded == rounded.to_integral_value() else float(rounded)


def _abs(number: Any) -> float:
    return abs(float(number) if isinstance(require_type(number, "a number"), float) else int(number))


def parse_time(value: Any) -> datetime:
    if isinstance(require_type(value, "a string", "a number"), str):
        parsed = datetime.fromisoformat(value)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    return _EPOCH + timedelta(seconds=value)


def _iso(value: Any) -> str:
    return parse_time(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _add(value: Any, seconds: Any) -> str:
    return _iso((parse_time(value) + timedelta(seconds=require_type(seconds, "a number"))).isoformat())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "str.upper": lambda subject: require_string(subject).upper(),
    "str.lower": lambda subject: require_string(subject).lower(),
    "str.trim": lambda subject: require_string(subject).strip(),
    "str.replace": _replace,
    "str.split": _split,
    "str.join": _join,
    "str.contains": lambda subject, part: require_string(part) in require_string(subject),
    "str.starts_with": lambda subject, part: require_string(subject).startswith(require_string(part)),
    "str.ends_with": lambda subject, part: require_string(subject).endswith(require_string(part)),
    "list.length": _length,
    "list.first": _first,
    "list.last": _last,
    "list.sort": _sort,
    "list.unique": _unique,
    "obj.keys": _keys,
    "obj.values": _values,
    "obj.get": _get,
    "json.dumps": _dumps,
    "json.parse": _parse,
    "num.round": _round,
    "num.abs": _abs,
    "time.iso": _iso,
    "time.add": _add,
}
