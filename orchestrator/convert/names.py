"""Names that steps can have here, for the names they had."""

from __future__ import annotations

import re

from orchestrator.application.spec import is_id

LONGEST = 128


class Identifiers:
    """Gives each step an id that nobody else has, as near to its name as it may be."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        wanted = (
            name if is_id(name) else re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:LONGEST] or "step"
        )
        found, n = wanted, 2
        while found in self._taken:
            found, n = f"{wanted[: LONGEST - len(str(n)) - 1]}_{n}", n + 1
        self._taken.add(found)
        return found
