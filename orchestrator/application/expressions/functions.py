"""The dotted operators that the language adds to JSON Logic. Plain functions; a wrong type is a TypeError.

    str.upper str.lower str.trim        [text]
    str.replace                         [text, old, new]
    str.split                           [text, separator]       white space without a separator
    str.join                            [list, separator]       "" without a separator
    str.contains starts_with ends_with  [text, part]
    str.matches                         [text, pattern]         anywhere, unless ^ or $ is given
    list.length                         [list]                  of a text or an object too
    list.first list.last                [list]                  null if the list is empty
    list.sort                           [list, descending]      all numbers or all texts
    list.unique                         [list]                  the first of equals stays, in its place
    obj.keys obj.values                 [object]
    obj.get                             [object, key, default]  the key is one key, dots and all
    json.dumps json.parse               [value], [text]
    num.round                           [number, digits]        half away from zero
    num.abs                             [number]
    time.now                            []                      the time of the event: `ctx.now`
    time.hour time.weekday              [time]                  now without a time; UTC; Monday is 1, Sunday 7
    time.iso                            [time]                  2026-11-16T04:42:00.123Z
    time.add                            [time, seconds]
    kv.get                              [key, default]          local, flow, global; or "global:k"
    any.default                         [value, ...]            the first that is not null; lazy

A list written out as the only argument needs its own brackets: {"list.length": [[1, 2, 3]]}. A time is an
ISO-8601 text (UTC unless it says otherwise) or a number of seconds since 1970. The operators that read the
data (time.now, kv.get) or choose what to evaluate (any.default) live in logic.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any

from orchestrator.application.expressions.safe_regex import compile_pattern

MAX_RESULT_BYTES = 1 << 20
MAX_SUBJECT_LENGTH = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind(value: Any) -> str:
    """What JSON calls the type of `value`."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
    return type(value).__name__


def require_kind(value: Any, *kinds: str) -> Any:
    if kind(value) not in kinds:
        raise TypeError(f"wants {' or '.join(kinds)}, got {kind(value)}")
    return value


def text(value: Any) -> str:
    return str(require_kind(value, "a text"))


def _items(value: Any) -> list[Any]:
    items: list[Any] = require_kind(value, "a list")
    return items


def check_result_size(size: int) -> None:
    """Called before something of this size is built."""
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"the result is over {MAX_RESULT_BYTES:,} bytes")


def _replace(subject: Any, old: Any, new: Any) -> str:
    subject, old, new = text(subject), text(old), text(new)
    check_result_size(len(subject) + subject.count(old) * (len(new) - len(old)))
    return str(subject.replace(old, new))


def _split(subject: Any, separator: Any = None) -> list[str]:
    return text(subject).split(None if separator is None else text(separator))


def _join(items: Any, separator: Any = "") -> str:
    parts = [
        item if isinstance(item, str) else json.dumps(require_kind(item, "a text", "a number"))
        for item in _items(items)
    ]
    check_result_size(sum(map(len, parts)) + len(parts) * len(text(separator)))
    return text(separator).join(parts)


def _matches(subject: Any, pattern: Any) -> bool:
    if len(text(subject)) > MAX_SUBJECT_LENGTH:
        raise ValueError(f"the text is longer than {MAX_SUBJECT_LENGTH:,} characters")
    return compile_pattern(text(pattern)).is_found_in(subject)


def _length(value: Any) -> int:
    return len(require_kind(value, "a list", "a text", "an object"))


def _first(items: Any) -> Any:
    return next(iter(_items(items)), None)


def _last(items: Any) -> Any:
    return next(reversed(_items(items)), None)


def _sort(items: Any, descending: Any = False) -> list[Any]:
    kinds = {kind(item) for item in _items(items)}
    if len(kinds) > 1 or not kinds <= {"a number", "a text"}:
        raise TypeError(f"wants all numbers or all texts, got {' and '.join(sorted(kinds))}")
    return sorted(items, reverse=require_kind(descending, "a boolean"))


def _unique(items: Any) -> list[Any]:
    seen: dict[Any, Any] = {}
    for item in _items(items):
        is_scalar = kind(item) not in ("a list", "an object")
        seen.setdefault((kind(item), item if is_scalar else json.dumps(item, sort_keys=True)), item)
    return list(seen.values())


def _keys(value: Any) -> list[str]:
    return list(require_kind(value, "an object"))


def _values(value: Any) -> list[Any]:
    return list(require_kind(value, "an object").values())


def _get(value: Any, key: Any, default: Any = None) -> Any:
    return require_kind(value, "an object").get(text(key), default)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _parse(source: Any) -> Any:
    value = json.loads(text(source), parse_float=_finite, parse_constant=_finite)
    if "\\u" in source:
        _dumps(value).encode()  # half of a surrogate pair is not a text
    return value


def _finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):
        raise ValueError(f"{number} is not a JSON number")
    return value


def _round(number: Any, digits: Any = 0) -> float:
    value: float = require_kind(number, "a number")
    if not isinstance(digits, int) or abs(digits) > 15:
        raise ValueError("wants at most 15 digits")
    if abs(value) >= 2**53:
        return value  # whole already, and beyond the precision of what could be rounded
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return int(rounded) if rounded == rounded.to_integral_value() else float(rounded)


def _abs(number: Any) -> float:
    return abs(float(number) if isinstance(require_kind(number, "a number"), float) else int(number))


def parse_time(value: Any) -> datetime:
    if isinstance(require_kind(value, "a text", "a number"), str):
        parsed = datetime.fromisoformat(value)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    return _EPOCH + timedelta(seconds=value)


def _iso(value: Any) -> str:
    return parse_time(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _add(value: Any, seconds: Any) -> str:
    return _iso((parse_time(value) + timedelta(seconds=require_kind(seconds, "a number"))).isoformat())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "str.upper": lambda subject: text(subject).upper(),
    "str.lower": lambda subject: text(subject).lower(),
    "str.trim": lambda subject: text(subject).strip(),
    "str.replace": _replace,
    "str.split": _split,
    "str.join": _join,
    "str.contains": lambda subject, part: text(part) in text(subject),
    "str.starts_with": lambda subject, part: text(subject).startswith(text(part)),
    "str.ends_with": lambda subject, part: text(subject).endswith(text(part)),
    "str.matches": _matches,
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
