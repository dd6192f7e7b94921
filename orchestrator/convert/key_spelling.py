"""Reads mappings whose keys have any spelling: FlowletID, flowletId and flowlet_id are the same key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.application.values.paths import Path


def to_snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


class Fields:
    """Reads a mapping by the snake_case of its keys, gives the path of each value, and tracks unread keys."""

    def __init__(self, mapping: Any, path: Path = ()) -> None:
        self._path = path
        self._unread: dict[str, tuple[str, Any]] = {}
        for key, value in mapping.items() if isinstance(mapping, dict) else ():
            self._unread.setdefault(to_snake_case(key), (key, value))

    def take(self, *names: str) -> tuple[Any, Path]:
        """Return the value and the path of the first of these keys that has a value."""
        for name in names:
            key, value = self._unread.pop(name, (name, None))
            if value is not None:
                return value, (*self._path, key)
        return None, self._path

    def has(self, *names: str) -> bool:
        return not self._unread.keys().isdisjoint(names)

    def unread(self) -> Iterator[tuple[str, Any, Path]]:
        """Return the name, value and path of every key that was not taken."""
        for name, (key, value) in self._unread.items():
            yield name, value, (*self._path, key)
