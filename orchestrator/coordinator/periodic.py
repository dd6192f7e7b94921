"""PeriodicTask: a task that a loop runs at intervals, between its other work."""

from __future__ import annotations

import time
from collections.abc import Callable


class PeriodicTask:
    """Runs `task` when it is called and at least `every_s` have passed since the last run."""

    def __init__(self, every_s: float, task: Callable[[], object]) -> None:
        self._every_s, self._task = every_s, task
        self._due_at = 0.0

    def run_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + self._every_s
            self._task()
