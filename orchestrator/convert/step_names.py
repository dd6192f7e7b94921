"""Chooses valid and unique step ids for the names of a foreign document."""

from __future__ import annotations

import re

from orchestrator.application.spec.model import is_id

MAX_ID_LENGTH = 128


class StepIdAllocator:
    """Gives each step a unique id that is as close to its name as possible."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_number: dict[str, int] = {}

    def allocate(self, name: str) -> str:
        cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:MAX_ID_LENGTH] or "step"
        wanted = name if is_id(name) else cleaned
        step_id = wanted
        while step_id in self._taken:
            n = self._next_number[wanted] = self._next_number.get(wanted, 1) + 1
            step_id = f"{wanted[: MAX_ID_LENGTH - len(str(n)) - 1]}_{n}"
        self._taken.add(step_id)
        return step_id
