"""SizedCache: values whose size is known when they are put, bounded by the sum of their sizes.

A functools.lru_cache bounds the number of its entries only. It is used where keys and values are small by
construction; tests/architecture/test_caches.py lists them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SizedCache(Generic[Key, Value]):
    """Holds at most `max_entries` values with at most `max_bytes` together, and drops the least recently used
    one. The newest value is always kept, also if it is larger. Threads may share it."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries, self._max_bytes, self._bytes = max_entries, max_bytes, 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        with self._lock:
            _, replaced = self._values.pop(key, (None, 0))
            self._values[key] = (value, size)
            self._bytes += size - replaced
            while len(self._values) > 1 and (
                self._bytes > self._max_bytes or len(self._values) > self._max_entries
            ):
                _, (_, dropped) = self._values.popitem(last=False)
                self._bytes -= dropped
