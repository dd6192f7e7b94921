"""Regular expressions for `str.matches`, in time linear in the length of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from orchestrator.application.expressions.meter import Meter

MAX_PATTERN_LENGTH = 200
_MAX_PARTS = 400  # of a pattern, with its repetitions expanded


class BadPattern(ValueError):
    """The pattern uses something that Pattern does not support."""


class Pattern:
    r"""A regular expression that never backtracks: it follows all alternatives at once.

    Supported: characters, `.`, classes, `\d \w \s` and their opposites, `\n \t \r`, groups, `|`, `* + ?`,
    `{n} {n,} {n,m}`, `^` first and `$` last. Rejected: back-references, look-around, `\b`, flags.

    A pattern becomes numbered positions, one for each character it can match; the bits of an integer are a
    set of positions. Each character replaces the reached positions by those that may follow (Glushkov).
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_PATTERN_LENGTH:
            raise BadPattern(f"the pattern is longer than {MAX_PATTERN_LENGTH} characters")
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
        self._can_be_empty, self._first, self._last = self._add(tree)

    def is_found_in(self, subject: str, meter: Meter) -> bool:
        if self._can_be_empty and not (self._from_start and self._to_end and subject):
            return True
        meter.spend(1 + len(subject) // 6)
        restart = 0 if self._from_start else self._first
        reached, cache = 0, dict[tuple[int, str], int]()
        for index, character in enumerate(subject):
            step = (reached, character) if index else (-1, character)
            if step not in cache:
                candidates = restart if index else self._first
                for position in _bits(reached):
                    candidates |= self._follow[position]
                meter.spend(2 + (reached.bit_count() + candidates.bit_count()) // 2)
                cache[step] = sum(1 << p for p in _bits(candidates) if self._tests[p].match(character))
            reached = cache[step]
            if reached & self._last and not self._to_end:
                return True
            if not reached and self._from_start:
                return False
        return bool(reached & self._last)

    # Parsing. A tree is ("one", test), ("all", [tree]), ("choice", [tree]), ("times", tree, low, high | None)

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
        alternatives = [self._sequence()]
        while self._take("|"):
            alternatives.append(self._sequence())
        return ("choice", alternatives) if len(alternatives) > 1 else alternatives[0]

    def _sequence(self) -> tuple[Any, ...]:
        trees = []
        while self._next and self._next not in "|)$":
            trees.append(self._repeated(self._atom()))
        return ("all", trees)

    def _atom(self) -> tuple[Any, ...]:
        if self._take("("):
            if self._next == "?" and not self._take("?:"):
                raise self._bad("only plain groups are supported, not (?")
            tree = self._choice()
            if not self._take(")"):
                raise self._bad("expected )")
            return tree
        if self._next in "*+?{^":
            raise self._bad(f"{self._next} is not allowed here; write \\{self._next} for the character")
        token = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsSntr\W_]|[^\\\[]", re.DOTALL).match(
            self._source, self._at
        )
        if token is None:
            raise self._bad("a class without ], or an escape that is not supported")
        if re.search(r"\[|--|&&|~~|\|\|", re.sub(r"\\.", "", token[0][1:])):
            raise self._bad("escape [ - & ~ | inside a class")
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
        self._take("?")  # a lazy repetition matches the same texts
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if count[0] in simple:
            return ("times", tree, *simple[count[0]])
        low = int(count[1])
        high = int(count[3]) if count[3] else (None if count[2] else low)
        if high is not None and high < low:
            raise self._bad("the maximum of a repetition is below its minimum")
        return ("times", tree, low, high)

    # Numbering. Each method returns whether a tree can be empty, and its first and its last positions.

    def _add(self, tree: tuple[Any, ...]) -> tuple[bool, int, int]:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise BadPattern(f"the pattern {self._source!r} has more than {_MAX_PARTS} parts")
        match tree:
            case ("one", test):
                self._tests.append(test)
                self._follow.append(0)
                return False, 1 << len(self._tests) - 1, 1 << len(self._tests) - 1
            case ("choice", alternatives):
                parts = [self._add(one) for one in alternatives]
                return any(p[0] for p in parts), _union(p[1] for p in parts), _union(p[2] for p in parts)
            case ("times", inner, low, high):
                return self._chain(self._times(inner, low, high))
        return self._chain(self._add(inner) for inner in tree[1])

    def _times(self, inner: tuple[Any, ...], low: int, high: int | None) -> Iterator[tuple[bool, int, int]]:
        for _ in range(low):
            yield self._add(inner)
        for _ in range(1 if high is None else high - low):
            _, first, last = self._add(inner)
            if high is None:
                self._link(last, first)
            yield True, first, last

    def _chain(self, parts: Iterator[tuple[bool, int, int]]) -> tuple[bool, int, int]:
        can_be_empty, first, last = True, 0, 0
        for is_optional, next_first, next_last in parts:
            self._link(last, next_first)
            first |= next_first if can_be_empty else 0
            last = next_last | (last if is_optional else 0)
            can_be_empty = can_be_empty and is_optional
        return can_be_empty, first, last

    def _link(self, positions: int, following: int) -> None:
        for position in _bits(positions):
            self._follow[position] |= following


@lru_cache(maxsize=256)
def compile_pattern(source: str) -> Pattern:
    return Pattern(source)


def _bits(positions: int) -> Iterator[int]:
    while positions:
        lowest = positions & -positions
        yield lowest.bit_length() - 1
        positions ^= lowest


def _union(sets: Iterator[int]) -> int:
    union = 0
    for positions in sets:
        union |= positions
    return union
