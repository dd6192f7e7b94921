"""Finds data that was probably meant as an expression: one key, which is almost an operator.

Data may have any keys, and many words are one letter away from an operator: {id: ...}, {filters: [...]}. So
the argument must look like one too: a path for `var` and `vars`, a list with expressions for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from orchestrator.application.expressions.evaluation import OPERATORS, is_expression

_READERS = ("var", "vars")
_DOTTED = sorted(name for name in OPERATORS if "." in name)
_WORDS = sorted(name for name in OPERATORS if name.isidentifier())
_SYMBOLS = {"=": "==", "=>": ">=", "=<": "<=", "<>": "!=", "&&": "and", "||": "or"}
_MAX_LENGTH = 24
_MAX_KEYS = 1_000
_MIN_LONG_WORD = 5  # a word of this length without one of its letters is hardly another word


class MisspeltOperators:
    """Looks for misspelt operators in one document; further keys than _MAX_KEYS different ones pass."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._prefixes = tuple(f"{root}." for root in roots)
        self._found: dict[tuple[Callable[[str], str | None], str], str | None] = {}

    def find(self, key: str, argument: Any) -> str | None:
        """Return the operator that the only key of a mapping was meant to be; "" if the key looks like an
        operator, and it is not clear like which; None if the mapping is data."""
        if self._is_path(argument):
            return self._look_up(_find_reader, key)
        if isinstance(argument, list) and argument:
            if self._is_path(argument[0]) and (reader := self._look_up(_find_reader, key)):
                return reader
            if any(is_expression(item) or self._is_path(item) for item in argument):
                return self._look_up(_find_any, key)
        return self._look_up(_find_dotted, key) if is_expression(argument) else None

    def _is_path(self, value: Any) -> bool:
        return isinstance(value, str) and value.startswith(self._prefixes)

    def _look_up(self, search: Callable[[str], str | None], key: str) -> str | None:
        if (search, key) not in self._found:
            if len(key) > _MAX_LENGTH or len(self._found) == _MAX_KEYS:
                return None
            self._found[search, key] = search(key)
        return self._found[search, key]


def _find_reader(key: str) -> str | None:
    return next((name for name in _READERS if is_one_edit_away(key.lower(), name)), None)


def _find_any(key: str) -> str | None:
    if not any(map(str.isalnum, key)):
        return _SYMBOLS.get(key, "")
    for name in _WORDS:
        is_long = len(name) >= _MIN_LONG_WORD and len(key) == len(name) - 1
        if key.lower() == name or _is_swap(key, name) or (is_long and is_one_edit_away(key, name)):
            return name
    return _find_dotted(key)


def _find_dotted(key: str) -> str | None:
    return next(iter(get_close_matches(key, _DOTTED, n=1, cutoff=0.8)), None) if "." in key else None


def is_one_edit_away(word: str, other: str) -> bool:
    """Whether one letter was added, left out or replaced, or two neighbours were swapped, or nothing."""
    if len(word) > len(other):
        word, other = other, word
    start = next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(word))
    if len(word) == len(other):
        return word[start + 1 :] == other[start + 1 :] or _is_swap(word, other)
    return len(other) - len(word) == 1 and word[start:] == other[start + 1 :]


def _is_swap(word: str, other: str) -> bool:
    """Whether two neighbouring letters of a word were swapped."""
    differing = [n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b]
    if len(word) != len(other) or len(differing) != 2:
        return False
    first, second = differing
    return second == first + 1 and word[first] == other[second] and word[second] == other[first]
