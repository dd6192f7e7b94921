"""Names that steps can have here, for the names they had."""

from __future__ import annotations

import re

from orchestrator.application.spec.model import is_id

MAX_ID_LENGTH = 128


class StepIdAllocator:
    """Gives each step an id that nobody else has, as near to its name as it may be."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str:
        written = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:MAX_ID_LENGTH] or "step"
        wanted = name if is_id(name) else written
        found = wanted
        while found in self._taken:
            n = self._next[wanted] = self._next.get(wanted, 1) + 1
            found = f"{wanted[: MAX_ID_LENGTH - len(str(n)) - 1]}_{n}"
        self._taken.add(found)
        return found
