"""How a process that runs steps leaves: it waits for its executors, but not for ever for Redis.

A child leaves when its supervisor asks it to or has died. The work-horse of a stock `rq worker` leaves when
its worker has died. Each finishes its steps first, and an executor gets all the time it needs. When it has
returned, its result may still wait for Redis. The process waits for that for a grace time only, and exits.

    left behind                                     repaired by
    a job with a lease, without a result            the sweep, when the lease has expired: the step runs again
    a result whose reply was lost                   the token rejects a second result
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from orchestrator.processes import flush_output
from orchestrator.worker.step_call import log_fields

logger = logging.getLogger(__name__)

TICK_S = 0.2
PATIENCE_S = 1.0
"""A result that is published within this time needs no log line."""
PARENT_CHECK_S = 1.0


@dataclass(slots=True)
class TrackedRun:
    payload: Mapping[str, Any]
    began_at: float
    is_executing: bool = False


class RunTracker:
    """The runs of this process, and whether their executors are running. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, TrackedRun] = {}
        self._idle_since = clock()

    def begin(self, payload: Mapping[str, Any]) -> None:
        with self._lock:
            self._runs[payload["job_id"]] = TrackedRun(payload, self._clock())

    def on_executor(self, job_id: str, is_running: bool) -> None:
        """The executor of a run begins or has ended."""
        with self._lock:
            if job_id in self._runs:
                self._runs[job_id].is_executing = is_running
            self._idle_since = self._clock()

    def end(self, job_id: str) -> None:
        """The result of a run is published, or no longer needed."""
        with self._lock:
            self._runs.pop(job_id, None)

    def end_all(self) -> None:
        with self._lock:
            self._runs.clear()

    def runs(self) -> list[TrackedRun]:
        with self._lock:
            return list(self._runs.values())

    def idle_s(self, since: float) -> float:
        """For how long, since a time at most, no executor has been running."""
        with self._lock:
            if any(run.is_executing for run in self._runs.values()):
                return 0.0
            return self._clock() - max(since, self._idle_since)


def leave_within(tracker: RunTracker, grace_s: float) -> NoReturn:
    """Exit when no executor has been running for `grace_s`. To be called in a thread: usually the process
    has ended by itself before that."""
    asked_at, is_logged = time.monotonic(), False
    while (idle_s := tracker.idle_s(asked_at)) < grace_s:
        if idle_s > min(PATIENCE_S, grace_s / 2) and not is_logged:
            is_logged = True
            for run in tracker.runs():
                logger.warning(
                    "asked to leave; waiting %g s for Redis to take the result", grace_s, extra=_fields(run)
                )
        time.sleep(min(TICK_S, grace_s))
    for run in tracker.runs():
        logger.warning(
            "leaving after %g s without Redis; its result is not published: its lease expires, and the step"
            " runs again",
            grace_s,
            extra=_fields(run),
        )
    logging.shutdown()
    flush_output()
    os._exit(0)


def leave_with_parent(tracker: RunTracker, grace_s: float) -> None:
    """Watch the parent of this process in a thread; when it has died, leave within `grace_s`."""
    parent = os.getppid()

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_S)
        leave_within(tracker, grace_s)

    threading.Thread(target=watch, name="supervisor", daemon=True).start()


def _fields(run: TrackedRun) -> dict[str, Any]:
    return log_fields(run.payload)
