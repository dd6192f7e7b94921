"""RunCounts: how many steps a worker has run, and for how long. RQ's tools show them for each worker."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

from orchestrator.worker.harness import COMPLETE, DECLINED, SUPERSEDED


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The steps that succeeded and failed, and the seconds that all of them took. A step that was declined
    did not run. One that was superseded has no result, but took its time."""

    succeeded: int = 0
    failed: int = 0
    working_s: float = 0.0

    def __add__(self, other: RunCounts) -> RunCounts:
        return RunCounts(
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.working_s + other.working_s,
        )

    @classmethod
    def of(cls, outcome: str, duration_s: float) -> RunCounts:
        """One run with this outcome; see Harness.on_end."""
        if outcome == DECLINED:
            return cls()
        is_failed = outcome not in (COMPLETE, SUPERSEDED)
        return cls(int(outcome == COMPLETE), int(is_failed), duration_s)

    @classmethod
    def parse(cls, message: Any) -> RunCounts:
        """The counts in a message of a child; none for anything else, since steps can write to its pipe."""
        match message:
            case [int(succeeded), int(failed), int() | float() as working_s] if math.isfinite(working_s):
                return cls(max(succeeded, 0), max(failed, 0), max(working_s, 0.0))
        return cls()

    def as_message(self) -> list[float]:
        return [self.succeeded, self.failed, round(self.working_s, 3)]

    def rq_fields(self) -> dict[str, float]:
        """The fields of RQ's worker key."""
        return {
            "successful_job_count": self.succeeded,
            "failed_job_count": self.failed,
            "total_working_time": round(self.working_s, 3),
        }


class RunCounter:
    """Adds up the runs of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), RunCounts()

    def add(self, outcome: str, duration_s: float) -> None:
        with self._lock:
            self._counts += RunCounts.of(outcome, duration_s)

    def as_message(self) -> list[float]:
        with self._lock:
            return self._counts.as_message()
