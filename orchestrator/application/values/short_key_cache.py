"""ShortKeyCache: results of a function of a text, bounded by bytes: entries times the length of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


class ShortKeyCache(dict[str, Value]):
    """Computes a value for a text and keeps it, if the text is short; for a longer one it is computed each
    time. A full cache is emptied. A hit costs less than one of functools.lru_cache. Threads may share it; two
    of them may compute the same value.

        parse = ShortKeyCache(_parse, max_entries=1024, max_key_chars=128).__getitem__
    """

    def __init__(self, compute: Callable[[str], Value], max_entries: int, max_key_chars: int) -> None:
        super().__init__()
        self._compute, self._max_entries, self._max_key_chars = compute, max_entries, max_key_chars

    def __missing__(self, key: str) -> Value:
        value = self._compute(key)
        if len(key) <= self._max_key_chars:
            if len(self) >= self._max_entries:
                self.clear()
            self[key] = value
        return value
