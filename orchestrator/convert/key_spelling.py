"""Keys in any spelling: FlowletID, flowletId and flowlet_id are one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.application.values.paths import Path


def to_snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


class Fields:
    """A mapping by the snake_case of its keys; it knows where each stands, and which nobody has asked for."""

    def __init__(self, mapping: Any, path: Path = ()) -> None:
        self._path = path
        self._written: dict[str, tuple[str, Any]] = {}
        for key, value in mapping.items() if isinstance(mapping, dict) else ():
            self._written.setdefault(to_snake_case(key), (key, value))

    def take(self, *names: str) -> tuple[Any, Path]:
        """The value of the first of these keys that has one, and where it stands."""
        for name in names:
            key, value = self._written.pop(name, (name, None))
            if value is not None:
                return value, (*self._path, key)
        return None, self._path

    def has(self, *names: str) -> bool:
        return not self._written.keys().isdisjoint(names)

    def rest(self) -> Iterator[tuple[str, Any, Path]]:
        """What was not taken: its name, its value, and where it stands."""
        for name, (key, value) in self._written.items():
            yield name, value, (*self._path, key)
