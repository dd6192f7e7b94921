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
data (time.now, kv.get) or choose what to evaluate (any.default) live in expressions.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

MAX_RESULT_BYTES = 1 << 20
MAX_PATTERN = 200
MAX_SUBJECT = 10_000
_MAX_PARTS = 400  # of a pattern with its repetitions written out

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


def want(value: Any, *kinds: str) -> Any:
    if kind(value) not in kinds:
        raise TypeError(f"wants {' or '.join(kinds)}, got {kind(value)}")
    return value


def text(value: Any) -> str:
    return str(want(value, "a text"))


def _items(value: Any) -> list[Any]:
    items: list[Any] = want(value, "a list")
    return items


def bounded(size: int) -> None:
    """Called before something of this size is built."""
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"the result is over {MAX_RESULT_BYTES:,} bytes")


def _replace(subject: Any, old: Any, new: Any) -> str:
    subject, old, new = text(subject), text(old), text(new)
    bounded(len(subject) + subject.count(old) * (len(new) - len(old)))
    return str(subject.replace(old, new))


def _split(subject: Any, separator: Any = None) -> list[str]:
    return text(subject).split(None if separator is None else text(separator))


def _join(items: Any, separator: Any = "") -> str:
    parts = [
        item if isinstance(item, str) else json.dumps(want(item, "a text", "a number"))
        for item in _items(items)
    ]
    bounded(sum(map(len, parts)) + len(parts) * len(text(separator)))
    return text(separator).join(parts)


def _matches(subject: Any, pattern: Any) -> bool:
    if len(text(subject)) > MAX_SUBJECT:
        raise ValueError(f"the text is longer than {MAX_SUBJECT:,} characters")
    return compile_pattern(text(pattern)).found_in(subject)


def _length(value: Any) -> int:
    return len(want(value, "a list", "a text", "an object"))


def _first(items: Any) -> Any:
    return next(iter(_items(items)), None)


def _last(items: Any) -> Any:
    return next(reversed(_items(items)), None)


def _sort(items: Any, descending: Any = False) -> list[Any]:
    kinds = {kind(item) for item in _items(items)}
    if len(kinds) > 1 or not kinds <= {"a number", "a text"}:
        raise TypeError(f"wants all numbers or all texts, got {' and '.join(sorted(kinds))}")
    return sorted(items, reverse=want(descending, "a boolean"))


def _unique(items: Any) -> list[Any]:
    seen: dict[Any, Any] = {}
    for item in _items(items):
        is_scalar = kind(item) not in ("a list", "an object")
        seen.setdefault((kind(item), item if is_scalar else json.dumps(item, sort_keys=True)), item)
    return list(seen.values())


def _keys(value: Any) -> list[str]:
    return list(want(value, "an object"))


def _values(value: Any) -> list[Any]:
    return list(want(value, "an object").values())


def _get(value: Any, key: Any, default: Any = None) -> Any:
    return want(value, "an object").get(text(key), default)


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
    value: float = want(number, "a number")
    if not isinstance(digits, int) or abs(digits) > 15:
        raise ValueError("wants at most 15 digits")
    if abs(value) >= 2**53:
        return value  # whole already, and beyond the precision of what could be rounded
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return int(rounded) if rounded == rounded.to_integral_value() else float(rounded)


def _abs(number: Any) -> float:
    return abs(float(number) if isinstance(want(number, "a number"), float) else int(number))


def moment(value: Any) -> datetime:
    if isinstance(want(value, "a text", "a number"), str):
        parsed = datetime.fromisoformat(value)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    return _EPOCH + timedelta(seconds=value)


def _iso(value: Any) -> str:
    return moment(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _add(value: Any, seconds: Any) -> str:
    return _iso((moment(value) + timedelta(seconds=want(seconds, "a number"))).isoformat())


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


class BadPattern(ValueError):
    """The pattern is outside of what Pattern understands."""


class Pattern:
    r"""A regular expression that cannot backtrack: it follows all ways at once, one character at a time.

    Understood: characters, `.`, classes, `\d \w \s` and their opposites, `\n \t \r`, groups, `|`, `* + ?`,
    `{n} {n,} {n,m}`, `^` first and `$` last. Refused: back-references, look-around, `\b`, flags.

    A pattern becomes numbered places, one for each character it can read; a set of places is the bits of an
    integer. After each character the places reached so far are replaced by those that may follow (Glushkov).
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_PATTERN:
            raise BadPattern(f"the pattern is longer than {MAX_PATTERN} characters")
        self._source, self._at = source, 0
        self._from_start = self._take("^")
        self._tests: list[re.Pattern[str]] = []
        self._follow: list[int] = []
        self._parts = 0
        tree = self._choice()
        self._to_end = self._take("$")
        if self._next:
            raise self._bad("unexpected " + self._next)
        if tree[0] == "choice" and (self._from_start or self._to_end):
            raise self._bad("^ and $ go around a group of alternatives: ^(a|b)$")
        self._empty, self._first, self._last = self._place(tree)

    def found_in(self, subject: str) -> bool:
        if self._empty and not (self._from_start and self._to_end and subject):
            return True
        again = 0 if self._from_start else self._first
        reached, known = 0, dict[tuple[int, str], int]()
        for index, character in enumerate(subject):
            step = (reached, character) if index else (-1, character)
            if step not in known:
                ahead = again if index else self._first
                for place in _bits(reached):
                    ahead |= self._follow[place]
                known[step] = sum(1 << p for p in _bits(ahead) if self._tests[p].match(character))
            reached = known[step]
            if reached & self._last and not self._to_end:
                return True
            if not reached and self._from_start:
                return False
        return bool(reached & self._last)

    # Reading: ("one", test), ("all", [tree]), ("choice", [tree]), ("times", tree, low, high or None)

    @property
    def _next(self) -> str:
        return self._source[self._at : self._at + 1]

    def _bad(self, reason: str) -> BadPattern:
        return BadPattern(f"{reason} at position {self._at} of the pattern {self._source!r}")

    def _take(self, token: str) -> bool:
        taken = self._source.startswith(token, self._at)
        self._at += len(token) if taken else 0
        return taken

    def _choice(self) -> tuple[Any, ...]:
        ways = [self._sequence()]
        while self._take("|"):
            ways.append(self._sequence())
        return ("choice", ways) if len(ways) > 1 else ways[0]

    def _sequence(self) -> tuple[Any, ...]:
        trees = []
        while self._next and self._next not in "|)$":
            trees.append(self._repeated(self._atom()))
        return ("all", trees)

    def _atom(self) -> tuple[Any, ...]:
        if self._take("("):
            if self._next == "?" and not self._take("?:"):
                raise self._bad("only plain groups are available, not (?")
            tree = self._choice()
            if not self._take(")"):
                raise self._bad("expected )")
            return tree
        if self._next in "*+?{^":
            raise self._bad(f"{self._next} cannot stand here; write \\{self._next} for the character")
        token = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsSntr\W_]|[^\\\[]", re.DOTALL).match(
            self._source, self._at
        )
        if token is None:
            raise self._bad("an open class, or an escape that is not available")
        if re.search(r"\[|--|&&|~~|\|\|", re.sub(r"\\.", "", token[0][1:])):
            raise self._bad("escape [ - & ~ | inside of a class")
        self._at = token.end()
        try:
            return (
                "one",
                re.compile(token[0] if len(token[0]) > 1 or token[0] == "." else re.escape(token[0])),
            )
        except re.error as error:
            raise self._bad(str(error)) from error

    def _repeated(self, tree: tuple[Any, ...]) -> tuple[Any, ...]:
        count = re.compile(r"[*+?]|\{(\d{1,3})(,?)(\d{0,3})\}").match(self._source, self._at)
        if count is None:
            return tree
        self._at = count.end()
        self._take("?")  # a lazy repetition finds the same texts
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if count[0] in simple:
            return ("times", tree, *simple[count[0]])
        low = int(count[1])
        high = int(count[3]) if count[3] else (None if count[2] else low)
        if high is not None and high < low:
            raise self._bad("a repetition that ends before it begins")
        return ("times", tree, low, high)

    # Placing: whether a tree may be empty, the places it can begin with, the places it can end with

    def _place(self, tree: tuple[Any, ...]) -> tuple[bool, int, int]:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise BadPattern(f"the pattern {self._source!r} has more than {_MAX_PARTS} parts")
        match tree:
            case ("one", test):
                self._tests.append(test)
                self._follow.append(0)
                return False, 1 << len(self._tests) - 1, 1 << len(self._tests) - 1
            case ("choice", ways):
                placed = [self._place(way) for way in ways]
                return any(p[0] for p in placed), _union(p[1] for p in placed), _union(p[2] for p in placed)
            case ("times", inner, low, high):
                return self._chain(self._times(inner, low, high))
        return self._chain(self._place(inner) for inner in tree[1])

    def _times(self, inner: tuple[Any, ...], low: int, high: int | None) -> Iterator[tuple[bool, int, int]]:
        for _ in range(low):
            yield self._place(inner)
        for _ in range(1 if high is None else high - low):
            _, first, last = self._place(inner)
            if high is None:
                self._link(last, first)
            yield True, first, last

    def _chain(self, placed: Iterator[tuple[bool, int, int]]) -> tuple[bool, int, int]:
        empty, first, last = True, 0, 0
        for next_empty, next_first, next_last in placed:
            self._link(last, next_first)
            first |= next_first if empty else 0
            last = next_last | (last if next_empty else 0)
            empty = empty and next_empty
        return empty, first, last

    def _link(self, places: int, following: int) -> None:
        for place in _bits(places):
            self._follow[place] |= following


@lru_cache(maxsize=256)
def compile_pattern(source: str) -> Pattern:
    return Pattern(source)


def _bits(places: int) -> Iterator[int]:
    while places:
        lowest = places & -places
        yield lowest.bit_length() - 1
        places ^= lowest


def _union(sets: Iterator[int]) -> int:
    union = 0
    for places in sets:
        union |= places
    return union
