"""The subset of JSONPath that `vars` supports; any other path is rejected as BadPath when a spec is checked.

    $                     the root, optional                .name ['name'] ."name"   one key
    .* [*]                elements, or values of an object  [n] [-n] [a:b]           of a list
    ..name                that key at any depth             [?(@.f == 'x' & @.g)]    a filter; also [?f='x']

Matches are in document order. The search never backtracks, and a Meter limits how many values it visits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.meter import Meter
from orchestrator.application.values.payload_refs import is_payload_reference, opaque_reference_error
from orchestrator.application.values.short_key_cache import ShortKeyCache

MAX_SEGMENTS = 50
MAX_CACHED_PATH_CHARS = 128
"""A longer path is split or parsed each time."""
MAX_DATA_DEPTH = 200

_ABSENT = object()
_ENDS_A_NAME = frozenset(" \t\n.[]()'\"*?@&=!<>,:|\\")
_COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "=")  # the longer ones first
_CONSTANTS = {"true": True, "false": False, "null": None}


class BadPath(ValueError):
    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position} of the path {path!r}")
        self.path, self.position, self.reason = path, position, reason


@runtime_checkable
class SupportsDescend(Protocol):
    """A lazy mapping that consumes as many segments of a path as it needs, because ids may contain dots."""

    def descend(self, parts: Sequence[str], /) -> tuple[Any, Sequence[str]] | None: ...


def _supports_descend(cls: type) -> bool:
    return issubclass(cls, SupportsDescend)


# issubclass() with a Protocol is slow, and there are few types.
supports_descend: Callable[[type], bool] = lru_cache(_supports_descend)


@dataclass(frozen=True, slots=True)
class NameSegment:
    name: str

    def select(self, value: Any, meter: Meter) -> Iterable[Any]:
        found = value.get(self.name, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        return () if found is _ABSENT else (found,)


@dataclass(frozen=True, slots=True)
class WildcardSegment:
    def select(self, value: Any, meter: Meter) -> Iterable[Any]:
        return _children(value)


@dataclass(frozen=True, slots=True)
class SliceSegment:
    start: int | None
    stop: int | None

    def select(self, value: Any, meter: Meter) -> Iterable[Any]:
        return value[self.start : self.stop] if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class RecursiveSegment:
    name: str

    def select(self, value: Any, meter: Meter) -> Iterable[Any]:
        return self._descendants(value, meter, 0)

    def _descendants(self, value: Any, meter: Meter, depth: int) -> Iterator[Any]:
        if depth > MAX_DATA_DEPTH:
            raise ExpressionError(f"..{self.name}: the data is more than {MAX_DATA_DEPTH} levels deep")
        pairs = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
        for key, child in pairs:
            meter.spend(1)
            if key == self.name:
                meter.spend(depth // 16)  # the child is passed on from level to level
                yield child
            if isinstance(child, Mapping | list):
                _reject_reference(child)
                yield from self._descendants(child, meter, depth + 1)


@dataclass(frozen=True, slots=True)
class FilterTerm:
    names: tuple[str, ...]
    comparison: str | None
    literal: Any

    def matches(self, item: Any) -> bool:
        for name in self.names:
            _reject_reference(item)
            item = item.get(name, _ABSENT) if isinstance(item, Mapping) else _ABSENT
        if item is _ABSENT or self.comparison is None:
            return item is not _ABSENT
        return _compare(item, self.comparison, self.literal)


@dataclass(frozen=True, slots=True)
class FilterSegment:
    terms: tuple[FilterTerm, ...]

    def select(self, value: Any, meter: Meter) -> Iterable[Any]:
        work = 1 + sum(1 + len(term.names) // 2 for term in self.terms)
        for item in _children(value):
            meter.spend(work)
            if all(term.matches(item) for term in self.terms):
                yield item


Segment = NameSegment | WildcardSegment | SliceSegment | RecursiveSegment | FilterSegment


@dataclass(frozen=True, slots=True)
class Path:
    segments: tuple[Segment, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names at the start of the path, up to the first other segment."""
        return tuple(_leading_names(self.segments))

    def find(self, data: Any, meter: Meter | None = None) -> list[Any]:
        found: list[Any] = []
        self._collect(data, 0, meter or Meter(), found)
        return found

    def _collect(self, value: Any, at: int, meter: Meter, found: list[Any]) -> None:
        meter.spend(1)
        if at == len(self.segments):
            found.append(value)
            return
        _reject_reference(value)
        segment = self.segments[at]
        if isinstance(segment, NameSegment) and supports_descend(type(value)):
            names = _leading_names(self.segments[at:])
            descended = value.descend(names)
            if descended is not None:
                inner, rest = descended
                self._collect(inner, at + len(names) - len(rest), meter, found)
        elif isinstance(value, Mapping | list):
            for child in segment.select(value, meter):
                self._collect(child, at + 1, meter, found)


def _parse(path: str) -> Path:
    reader = _Reader(path)
    segments: list[Segment] = []
    if reader.take("$"):
        if reader.next not in ("", ".", "["):
            raise reader.bad("expected '.' or '['")
    elif reader.next not in (".", "["):
        segments.append(reader.dotted())
    while reader.next:
        if reader.take(".."):
            segments.append(RecursiveSegment(reader.name()))
        elif reader.take("."):
            segments.append(reader.dotted())
        elif reader.take("["):
            segments.append(reader.bracketed())
        else:
            raise reader.bad("expected '.' or '['")
        if len(segments) > MAX_SEGMENTS:
            raise reader.bad(f"more than {MAX_SEGMENTS} segments")
    return Path(tuple(segments))


parse: Callable[[str], Path] = ShortKeyCache(_parse, 1024, MAX_CACHED_PATH_CHARS).__getitem__
"""Parse a path; raise BadPath if it is not in the subset."""


class _Reader:
    """Reads a path from left to right."""

    def __init__(self, path: str) -> None:
        self.path, self.at = path, 0

    @property
    def next(self) -> str:
        return self.path[self.at : self.at + 1]

    def bad(self, reason: str) -> BadPath:
        return BadPath(self.path, self.at, reason)

    def take(self, token: str) -> bool:
        if not self.path.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        self.spaces()
        if not self.take(token):
            raise self.bad(f"expected {token!r}")

    def spaces(self) -> None:
        while self.next == " ":
            self.at += 1

    def dotted(self) -> Segment:
        return WildcardSegment() if self.take("*") else NameSegment(self.name())

    def name(self) -> str:
        if self.next in ("'", '"'):
            return self.quoted()
        return self.word("expected a name")

    def word(self, error: str) -> str:
        start = self.at
        while self.next and self.next not in _ENDS_A_NAME:
            self.at += 1
        if start == self.at:
            raise self.bad(error)
        return self.path[start : self.at]

    def quoted(self) -> str:
        quote, text = self.next, ""
        self.at += 1
        while not self.take(quote):
            self.take("\\")
            if not self.next:
                raise self.bad(f"expected {quote}")
            text += self.next
            self.at += 1
        return text

    def bracketed(self) -> Segment:
        self.spaces()
        segment: Segment
        if self.take("*"):
            segment = WildcardSegment()
        elif self.take("?"):
            segment = self.filter()
        elif self.next in ("'", '"'):
            segment = NameSegment(self.quoted())
        else:
            segment = self.slice()
        self.expect("]")
        return segment

    def slice(self) -> SliceSegment:
        start = self.integer()
        self.spaces()
        if self.take(":"):
            return SliceSegment(start, self.integer())
        if start is None:
            raise self.bad("expected an index, a quoted name, '*' or '?'")
        return SliceSegment(start, start + 1 if start != -1 else None)  # one element is a slice of length one

    def integer(self) -> int | None:
        self.spaces()
        sign = -1 if self.take("-") else 1
        start = self.at
        while self.next.isdecimal() and self.next.isascii():
            self.at += 1
        digits = self.path[start : self.at]
        if len(digits) > 15 or (sign < 0 and not digits):
            raise self.bad("expected a number of at most 15 digits")
        return sign * int(digits) if digits else None

    def filter(self) -> FilterSegment:
        self.spaces()
        has_parenthesis = self.take("(")
        terms = [self.term()]
        while self.take("&"):
            terms.append(self.term())
        if has_parenthesis:
            self.expect(")")
        return FilterSegment(tuple(terms))

    def term(self) -> FilterTerm:
        self.spaces()
        names = [] if self.take("@") else [self.name()]
        while self.next in (".", "["):
            if self.take("."):
                names.append(self.name())
                continue
            self.take("[")
            if self.next not in ("'", '"'):
                raise self.bad("expected a quoted name")
            names.append(self.quoted())
            self.expect("]")
        if not names:
            raise self.bad("expected a field, as in @.name")
        self.spaces()
        comparison = next((sign for sign in _COMPARISONS if self.take(sign)), None)
        literal = self.literal() if comparison else None
        self.spaces()
        return FilterTerm(tuple(names), "==" if comparison == "=" else comparison, literal)

    def literal(self) -> Any:
        self.spaces()
        if self.next in ("'", '"'):
            return self.quoted()
        start = self.at
        word = self.word("expected a literal")
        if self.next == "." and word.lstrip("-").isdecimal():
            self.at += 1
            word = f"{word}.{self.word('expected digits')}"
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        try:
            return int(word) if word.lstrip("-").isdecimal() else _parse_finite(word)
        except ValueError:
            self.at = start
            raise self.bad("expected a number, a quoted string, true, false or null") from None


def _parse_finite(word: str) -> float:
    number = float(word)
    if number - number != 0:  # an infinity, or not a number
        raise ValueError(word)
    return number


def _leading_names(segments: Iterable[Segment]) -> list[str]:
    names = takewhile(lambda segment: isinstance(segment, NameSegment), segments)
    return [segment.name for segment in names if isinstance(segment, NameSegment)]


def _reject_reference(value: Any) -> None:
    if is_payload_reference(value):
        raise opaque_reference_error(value, "a value on the path of vars")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value


def _compare(found: Any, comparison: str, literal: Any) -> bool:
    """Order numbers with numbers and strings with strings; other values are only equal or different."""
    are_numbers = _is_number(found) and _is_number(literal)
    have_same_type = are_numbers or type(found) is type(literal)
    if comparison in ("==", "!="):
        return (have_same_type and found == literal) is (comparison == "==")
    if not are_numbers and not (have_same_type and isinstance(found, str)):
        return False
    below, equal = found < literal, found == literal
    return bool({"<": below, "<=": below or equal, ">": not below and not equal, ">=": not below}[comparison])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
