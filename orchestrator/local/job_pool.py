"""JobPool: the jobs that one Workflow.run() runs at once, each in a thread.

A job is taken when a slot for it is free. A coroutine gives its slot back, because it runs in the event loop.
A job whose executor was short the last time waits for the thread that takes the jobs before it: to start
another thread would take longer than the step. If one of them turns out to be long, the calling thread takes
the next job when it looks for long runs, after STARTED_AFTER_S.
Every method is called under the lock of the run loop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, make_failure
from orchestrator.backend.memory import InProcessRunner
from orchestrator.backend.ports import LeasedRunner
from orchestrator.local.job_call import CallEnvironment
from orchestrator.local.job_run import JobRun

logger = logging.getLogger(__name__)

MAX_COROUTINES = 100
"""How many `async def` executors run at once. Each also has a thread, which waits for it."""
SHORT_S = 0.0002
"""An executor is short if its call took less than this, with all that belongs to the call."""


class JobPool:
    def __init__(self, environment: CallEnvironment, leased: LeasedRunner | None, threads: int) -> None:
        self.threads = threads
        self.runs: dict[JobRun, None] = {}
        self._environment, self._runner, self._leased = environment, environment.runner, leased
        self._takes_all = isinstance(environment.runner, InProcessRunner)
        self._short_executors = environment.short_executors
        self._queue: deque[DispatchJob] = deque()
        self._busy = 0

    # ---- beginning

    @property
    def is_empty(self) -> bool:
        return not self.runs and not self._queue

    @property
    def may_have_jobs(self) -> bool:
        """Whether there may be jobs that were dispatched before the last results were applied."""
        return bool(self._queue) or self._leased is not None

    def take(self, is_wanted: Callable[[DispatchJob], bool]) -> list[JobRun]:
        """Take as many jobs as there are free slots, without those whose result is no longer needed. The
        caller must run them."""
        runs: list[JobRun] = []
        has_all = False
        while self._busy < self.threads and len(self.runs) < self.threads + MAX_COROUTINES:
            if not self._queue:
                if has_all:
                    break
                has_all = self._takes_all
                self._queue.extend(self._take_jobs(self.threads - self._busy))
                if not self._queue:
                    break
            if runs and self._takes_all and self._queue[0].fn in self._short_executors:
                break
            job = self._queue.popleft()
            if is_wanted(job):
                runs.append(self._begin(job))
            else:
                self._end_dispatch(job)
        return runs

    def _take_jobs(self, limit: int) -> list[DispatchJob]:
        if self._leased is not None:
            return self._leased.take_jobs(limit)
        return self._runner.take_pending_jobs()

    def _begin(self, job: DispatchJob) -> JobRun:
        run = JobRun(job, self._environment.clock())
        self.runs[run] = None
        self._busy += 1
        return run

    def release_slot(self, run: JobRun) -> None:
        """Let another job run beside a coroutine."""
        if run.holds_slot:
            run.holds_slot = False
            self._busy -= 1

    # ---- ending

    def finish(self, run: JobRun, result: ResultEvent) -> None:
        self._runner.submit(result)
        del self.runs[run]
        self._busy -= run.holds_slot
        if run.holds_slot and time.monotonic() < run.began_at + SHORT_S:
            self._short_executors.add(run.job.fn)
        else:
            self._short_executors.discard(run.job.fn)

    def stop(self, run: JobRun) -> None:
        """Give a run up whose result is no longer needed. Its thread is replaced if its function goes on."""
        self._forget(run)
        if not run.give_up() and run.thread:
            logger.warning(
                "%s: its function goes on in thread %s, which is replaced; its result will be dropped",
                run,
                run.thread,
                extra=run.log_fields,
            )
        self._end_dispatch(run.job)

    def return_run(self, run: JobRun) -> None:
        """Make the job of a run pending again. If its function cannot be stopped and ends before the job is
        taken, its result counts."""
        self._forget(run)
        if run.can_stop:
            run.give_up()
        self._runner.return_jobs([run.job])

    def return_queue(self) -> None:
        """Make the jobs pending again that were taken and not begun."""
        if self._queue:
            self._runner.return_jobs(list(self._queue))
            self._queue.clear()

    def _forget(self, run: JobRun) -> None:
        self.runs.pop(run, None)
        self.release_slot(run)

    def _end_dispatch(self, job: DispatchJob) -> None:
        """End a dispatch that is not needed in a runner with leases, which would give its job to another."""
        if self._leased is not None:
            failure = make_failure("lost", "its run was given up")
            self._runner.submit(
                ResultEvent(
                    job.workflow_execution_id, job.step_id, None, failure, job.run_id, job.attempt, job.token
                )
            )

    # ---- leases

    def renew_leases(self, runs: Iterable[JobRun]) -> None:
        if self._leased is not None:
            self._leased.renew_leases([run.job for run in runs])
