"""Sweeps: when a coordinator publishes due timers, and how long it may wait for events meanwhile.

A sweep comes at regular intervals, and also when a timer is due that the coordinator knows of: from the last
sweep, or because it has armed the timer itself. A timer of another coordinator may fire one interval late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from orchestrator.backend.ports import Delivery, EventLog
from orchestrator.coordinator.periodic import PeriodicTask

MIN_GAP_S = 0.02
"""The shortest time between two sweeps."""
LATE_MS = 100
"""How late Redis may end a blocking read: it checks such reads ten times per second."""
POLL_S = 0.005


class Sweeps:
    def __init__(self, log: EventLog, every_s: float) -> None:
        self._log = log
        self._task = PeriodicTask(every_s, self.run)
        self._ran_at = 0.0
        self._timer_at: float | None = None

    def run(self) -> None:
        self._ran_at = time.monotonic()
        self._log.sweep()
        self._timer_at = None
        if self._log.next_timer_s is not None:
            self.expect_timer(self._log.next_timer_s)

    def run_if_due(self) -> None:
        if self._timer_at is not None and time.monotonic() >= self._timer_at:
            self.run()
        else:
            self._task.run_if_due()

    def expect_timer(self, in_s: float) -> None:
        """Sweep when this time has passed, if no sweep is planned before."""
        at = max(time.monotonic() + in_s, self._ran_at + MIN_GAP_S)
        self._timer_at = at if self._timer_at is None else min(self._timer_at, at)

    def read(self, count: int, block_ms: int) -> Sequence[Delivery]:
        """New events; waits up to `block_ms` for the first of them, and not beyond the next timer."""
        until_timer_ms = self._until_timer_ms()
        if not block_ms or until_timer_ms >= block_ms + LATE_MS:
            return self._log.read(count, block_ms)
        if until_timer_ms > LATE_MS:
            return self._log.read(count, round(until_timer_ms - LATE_MS))
        found = self._log.read(count, 0)
        while not found and (rest_ms := self._until_timer_ms()) > 0:
            time.sleep(min(rest_ms / 1000, POLL_S))
            found = self._log.read(count, 0)
        return found

    def _until_timer_ms(self) -> float:
        return float("inf") if self._timer_at is None else 1000 * (self._timer_at - time.monotonic())
