"""Chores: what a process does every so often, between other things."""

from __future__ import annotations

import time
from collections.abc import Callable


class PeriodicTask:
    """Something that is done when its time has come again, and somebody asks."""

    def __init__(self, every_s: float, do: Callable[[], object]) -> None:
        self._every_s, self._do = every_s, do
        self._due = 0.0

    def run_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._every_s
            self._do()
