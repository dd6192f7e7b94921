"""JobRun: one job that runs in this process, and PoolCall: its call, which can be given up from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import LostEvent, StartedEvent, iso
from orchestrator.invocation.parameters import Heartbeat
from orchestrator.local.event_loop import await_in_loop
from orchestrator.local.job_call import CallEnvironment, JobCall

STARTED_AFTER_S = 0.1
"""A run that lasts this long is noted in the record, with its deadline. Shorter ones cost no commit."""
DEADLINE_GRACE_S = 1.0
"""How long a run may go on past its deadline. By then its record has a timeout, if it is driven at all."""

_NEVER = float("inf")


class ProcessDied(Exception):
    """The child process of a run ended before it had a result."""


class JobRun:
    """One job that runs in this process. Times are those of the monotonic clock.

    `is_over`: its result is no longer needed. `wakes_caller`: its thread wakes the calling thread at the end.
    `holds_slot`: it counts as one of the threads; a coroutine does not. `noted_at`: when its start is noted
    in its record. `heartbeat` is set while an executor runs that must send heartbeats, and `stop` while
    something runs that can be stopped. `lost_reason` is set when its process has died.
    """

    holds_slot = True
    is_noted = False
    is_over = False
    wakes_caller = False
    heartbeat: Heartbeat | None = None
    thread = ""
    lost_reason: str | None = None
    stop: Callable[[], object] | None = None

    def __init__(self, job: DispatchJob, started_ms: int) -> None:
        self.job, self.started_ms, self.began_at = job, started_ms, time.monotonic()
        after_s = STARTED_AFTER_S if job.timeout_s is None else min(STARTED_AFTER_S, job.timeout_s)
        self.noted_at = self.began_at + after_s

    def __str__(self) -> str:
        job = self.job
        return f"{job.workflow_execution_id} {job.step_id} run {job.run_id} attempt {job.attempt}"

    @property
    def log_fields(self) -> dict[str, str]:
        """The structured log fields of a run."""
        return {"execution": self.job.workflow_execution_id, "step": self.job.step_id}

    # ---- times

    @property
    def silent_at(self) -> float:
        """When it counts as hanging, unless it sends a heartbeat before."""
        heartbeat, within_s = self.heartbeat, self.job.heartbeat_s
        return _NEVER if heartbeat is None or within_s is None else heartbeat.at + within_s

    @property
    def overdue_at(self) -> float:
        """When it is given up, whatever its record says."""
        timeout_s = self.job.timeout_s
        return _NEVER if timeout_s is None else self.began_at + timeout_s + DEADLINE_GRACE_S

    @property
    def check_at(self) -> float:
        """When it must be checked again."""
        return min(self.silent_at, self.overdue_at, _NEVER if self.is_noted else self.noted_at)

    # ---- events

    def started_event(self, worker: str) -> StartedEvent:
        return StartedEvent(*self._dispatch_fields(), worker, iso(self.started_ms))

    def lost_event(self, reason: str) -> LostEvent:
        return LostEvent(*self._dispatch_fields(), reason)

    def _dispatch_fields(self) -> tuple[str, str, int, int, str]:
        job = self.job
        return job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token

    # ---- stopping

    @property
    def can_stop(self) -> bool:
        return self.stop is not None

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Set how to stop it: by cancelling a coroutine, or by killing a process. A function cannot be
        stopped."""
        self.stop = stop
        if self.is_over:
            stop()

    def give_up(self) -> bool:
        """Stop it if that is possible, and drop its result; False if its function goes on."""
        self.is_over = True
        stop = self.stop
        if stop is not None:
            stop()
        return stop is not None


class PoolCall(JobCall):
    """The call of a run. `on_coroutine` is called when its executor turns out to be `async def`."""

    def __init__(
        self, environment: CallEnvironment, run: JobRun, on_coroutine: Callable[[JobRun], object]
    ) -> None:
        super().__init__(environment, run.job, run.started_ms)
        self.run, self._on_coroutine = run, on_coroutine

    def clock(self) -> float:
        return time.monotonic()

    def is_cancelled(self) -> bool:
        return self.run.is_over

    def watch(self, heartbeat: Heartbeat | None) -> None:
        if self.heartbeat_s is not None:
            self.run.heartbeat = heartbeat

    def await_result(self, returned: Any) -> Any:
        if not isinstance(returned, CoroutineType):
            return returned
        self._on_coroutine(self.run)
        return await_in_loop(returned, self.run.on_stop)

    def after_call(self) -> None:
        """There is nothing to stop or to watch any more."""
        self.run.heartbeat = self.run.stop = None
