"""RunLoop: runs an execution and its children to their end, with executors in threads of this process.

    calling thread   waits for the end, a timer or a result of another process; applies what is due
    pool threads     run an executor, apply its result, and run the next job, without going through the
                     calling thread: a hand-over between threads would cost more than a short step

Every thread drives under one lock, so that results are applied one at a time. With one thread the order is
that of an InProcessWorker: all jobs that are pending, then all their results.

A deadline is kept in the record. When it has passed, the record has a failure `timeout`, and the run is given
up: a coroutine is cancelled, a process is killed, and a function is left behind in its thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context

from orchestrator.application.records.decisions import Decision
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.records.record import find_due_timers
from orchestrator.backend.backend import Backend
from orchestrator.invocation.invoke import Result, invoke
from orchestrator.local.driver import DecideFunction, EventsOfRecord, ExecutionDriver, has_timers
from orchestrator.local.job_call import CallEnvironment
from orchestrator.local.job_pool import JobPool
from orchestrator.local.job_run import JobRun, PoolCall, ProcessDied
from orchestrator.local.lease_renewal import LeaseRenewal
from orchestrator.local.run_checks import DEADLINES, RunChecks
from orchestrator.local.run_progress import RunProgress
from orchestrator.local.threads import run_in_thread

FIRST_PAUSE_S = 0.001
MIN_PAUSE_S = 0.001

BATCH_S = 0.005
"""For how long results are kept to be applied together, while there are jobs to run."""

_NEVER = float("inf")
_ALL_TIMES = 1 << 62


class RunLoop:
    def __init__(
        self,
        backend: Backend,
        weid: str,
        environment: CallEnvironment,
        driver: ExecutionDriver,
        decider: Callable[[EventsOfRecord], DecideFunction[Decision]],
    ) -> None:
        """`decider` makes the function that applies events to the record of the execution and advances it."""
        self._backend, self._weid, self._environment = backend, weid, environment
        self._driver = driver
        self._progress = RunProgress(backend, weid, driver, decider)
        self._leased = backend.leased_runner
        self._pool = JobPool(environment, self._leased, backend.threads)
        self._checks = RunChecks(backend, weid, driver, self._progress, self._pool, environment.worker)
        self._is_serial = backend.threads == 1
        self._context = copy_context()
        self._lock, self._wake = threading.Lock(), threading.Lock()
        self._wake.acquire()
        self._is_woken = False
        self._renewal = None if self._leased is None else LeaseRenewal(self._pool, self._leased, self._lock)
        self._error: BaseException | None = None
        self._is_closed = False
        self._pass_at = self._lost_at = _NEVER
        self._pause_s = FIRST_PAUSE_S

    def run(self) -> Decision:
        """Run the execution and its children to their end, and attempt their webhooks once."""
        try:
            with self._lock:
                self._driver.take_over()
                self._progress.advance(self._driver.find_lost_and_due)
                if self._leased is not None:
                    self._lost_at = self._next_lost_check()
                if not self._is_serial:
                    self._progress.deliver_events()
                runs: list[JobRun] | None = None
                if not self._progress.has_ended:
                    runs = self._take() or None
                    self._plan()
                self._progress.poll_at = 0.0 if runs is None else self._progress.poll_at
            while runs is not None or (runs := self._pass()) is not None:
                self._start_and_wait(runs)
                runs = None
            with self._lock:
                self._driver.deliver_events()  # to the parent, or to the next waiter for a slot
            self._attempt_webhooks()
        except BaseException:
            self._close(returns_jobs=True)
            raise
        self._close()
        return self._progress.decision

    def _start_and_wait(self, runs: Iterable[JobRun]) -> None:
        """Start threads, and wait until something is due. Nothing comes between, because a new thread needs
        the lock of the interpreter."""
        pause_s, is_running = max(self._pass_at - time.monotonic(), 0.0), bool(self._pool.runs)
        for run in runs:
            self._start(run)
        if self._wake.acquire(timeout=pause_s) if is_running else self._wake.acquire(blocking=False):
            self._is_woken = False  # what was reported until now is applied in the next pass
        elif not is_running and pause_s:
            time.sleep(pause_s)  # nothing runs here that could end
            self._progress.poll_at = 0.0

    def _wake_up(self) -> None:
        """Wake the calling thread. Under the lock, so that only one thread does it."""
        if not self._is_woken:
            self._is_woken = True
            self._wake.release()

    def _wake_up_later(self, run: JobRun) -> None:
        """Have the thread of a run that has ended wake the calling thread, when it has nothing else to do."""
        if not self._is_woken:
            self._is_woken = run.wakes_caller = True

    # ---- in the calling thread

    def _pass(self) -> list[JobRun] | None:
        """Apply what is due; returns what can run now, or None if everything has ended."""
        with self._lock:
            if self._error is not None:
                raise self._error
            runs: list[JobRun] = []
            if not self._progress.has_ended:
                now = time.monotonic()
                self._checks.check_runs(now)
                if now >= self._lost_at:
                    self._look_for_lost()
                if self._is_serial and self._pool.runs:
                    self._checks.apply_deadlines()
                elif now >= min(self._progress.poll_at, self._next_timer_at(self._open_executions())):
                    runs = self._apply_until_runnable()
                self._checks.stop_unwanted()
            if self._progress.has_ended:
                return None
            runs += self._take()
            self._plan()
            return runs

    def _plan(self) -> None:
        """Set when something is due, or when another process may have written something."""
        now = time.monotonic()
        if not self._pool.runs:
            self._progress.poll_at = min(self._progress.poll_at, now + self._pause_s)
            self._pause_s = min(2 * self._pause_s, self._backend.poll_interval)
        poll_at = self._progress.poll_at
        if self._is_serial and self._pool.runs:  # nothing is polled, but the run may be no longer wanted
            poll_at = max(poll_at, now + self._backend.poll_interval)
        due_at = min(poll_at, self._lost_at, self._next_timer_at(self._open_executions()))
        for run in self._pool.runs:
            due_at = min(due_at, run.check_at)
        self._pass_at = max(due_at, now + MIN_PAUSE_S)

    def _open_executions(self) -> Iterable[str]:
        return (self._weid, *self._driver.children, *self._driver.pending_webhooks)

    def _next_timer_at(self, weids: Iterable[str]) -> float:
        """When the next timer of a record is due. With one thread, while a step runs: its next deadline."""
        timer_at = _NEVER
        for weid in weids:
            record = self._driver.records.get(weid)
            if record is None or not has_timers(record):
                continue
            only = DEADLINES if self._is_serial and self._pool.runs else None
            timers = find_due_timers(record, _ALL_TIMES)
            times = [one.due_ms for one in timers if only is None or one.kind in only]
            if times:
                due_in_s = (min(times) - self._backend.clock()) / 1000
                timer_at = min(timer_at, time.monotonic() + due_in_s)
        return timer_at

    def _look_for_lost(self) -> None:
        """Find lost dispatches, and children that another process has started."""
        self._lost_at = self._next_lost_check()
        self._driver.take_over()
        self._progress.advance(self._driver.find_lost_and_due)

    def _next_lost_check(self) -> float:
        interval_s = self._driver.sweep_interval_s
        return _NEVER if interval_s is None else time.monotonic() + interval_s

    def _attempt_webhooks(self) -> None:
        """Attempt the due webhooks once. The next run() makes the next attempt."""
        pending = self._driver.pending_webhooks
        if not pending:
            return
        with self._lock:
            self._driver.run_once()
        while True:
            with self._lock:
                if self._error is not None:
                    raise self._error
                self._checks.check_runs(time.monotonic())
                runs = self._take()
                if not any(run.job.workflow_execution_id in pending for run in self._pool.runs):
                    break
                self._plan()
            self._start_and_wait(runs)
        with self._lock:
            self._driver.run_once()

    def _close(self, returns_jobs: bool = False) -> None:
        """Stop the runs of the driven executions, or make their jobs pending again. Others go on."""
        if self._pool.is_empty:
            return
        with self._lock:
            self._is_closed = True
            for run in list(self._pool.runs):
                if returns_jobs:
                    self._pool.return_run(run)
                elif self._driver.drives(run.job.workflow_execution_id):
                    self._pool.stop(run)
            self._pool.return_queue()

    # ---- runs

    def _apply_until_runnable(self) -> list[JobRun]:
        """Apply everything, until a job can run or nothing more happens; returns what can run."""
        while True:
            is_handled = self._progress.apply_all()
            if self._progress.has_ended:
                return []
            runs = self._take()
            if runs or not is_handled:
                return runs
            self._pause_s = FIRST_PAUSE_S

    def _take(self) -> list[JobRun]:
        """Take every job that can run now. The caller starts them."""
        runs = self._pool.take(self._checks.is_wanted)
        if runs and self._renewal is not None:
            self._renewal.start()
        return runs

    def _start(self, run: JobRun) -> None:
        context = self._context.copy()
        run_in_thread(lambda: context.run(self._work, run))

    def _work(self, run: JobRun) -> threading.Lock | None:
        """In a pool thread: run a job and apply its result, then run the next one. Returns the lock for which
        the calling thread waits, if it must be woken."""
        thread = threading.current_thread().name
        while True:
            run.thread = thread
            try:
                call = PoolCall(self._environment, run, self._on_coroutine)
                call_executor = invoke if run.job.isolation == "thread" else _invoke_isolated
                outcome = self._context.copy().run(call_executor, call)
                result = self._environment.make_result(run.job, run.started_ms, outcome)
            except ProcessDied as error:
                self._on_death(run, f"the process of its executor ended ({error})")
                return None
            except BaseException as error:  # not a result: it ends run()
                self._fail(run, error)
                return None
            following = self._finish(run, result)
            if following is None:
                return self._wake if run.wakes_caller else None
            run = following

    def _finish(self, run: JobRun, result: ResultEvent) -> JobRun | None:
        """Submit a result and apply it; returns the next run for this thread."""
        with self._lock:
            if run.is_over:
                return None  # its slot was given to another thread
            try:
                self._pool.finish(run, result)
                if self._is_closed or self._error is not None:
                    return None
                return self._go_on(run)
            except BaseException as error:
                self._error = error
                self._wake_up()
                return None

    def _go_on(self, run: JobRun) -> JobRun | None:
        """Apply a result and start what can run; returns a run for this thread. Jobs that are pending come
        first, for a short time: results that are applied together cost one commit."""
        weid = run.job.workflow_execution_id
        self._progress.finished[weid] = None
        runs: list[JobRun] = []
        if self._pool.may_have_jobs and (
            self._is_serial or time.monotonic() < self._progress.applied_at + BATCH_S
        ):
            runs = self._take()
        if not runs and self._is_serial:
            runs = self._apply_until_runnable()
        elif not runs:
            self._progress.apply_finished()
            runs = [] if self._progress.has_ended else self._take()
        if not runs:
            # The calling thread must act if nothing runs, or before it would wake up by itself.
            if (
                self._progress.has_ended
                or not self._pool.runs
                or self._next_timer_at({self._weid, weid}) < self._pass_at
            ):
                self._wake_up_later(run)
            return None
        own = runs[0]
        for one in runs[1:]:
            self._start(one)
        if own.noted_at < self._pass_at or self._next_timer_at({self._weid, weid}) < self._pass_at:
            self._wake_up()
        return own

    def _fail(self, run: JobRun, error: BaseException) -> None:
        """An executor raised what is not a result, such as KeyboardInterrupt: run() raises it."""
        with self._lock:
            if run.is_over:
                return
            self._pool.return_run(run)
            self._error = self._error or error
            self._wake_up()

    def _on_death(self, run: JobRun, reason: str) -> None:
        """A child process has ended without a result: its job is lost, and dispatched again."""
        with self._lock:
            if not run.is_over and not self._is_closed:
                run.lost_reason, run.thread = reason, ""  # the thread is free again
                self._wake_up()

    def _on_coroutine(self, run: JobRun) -> None:
        """An executor is `async def`: let another job run meanwhile, unless there is one thread."""
        if self._is_serial:
            return
        with self._lock:
            if self._is_closed or run.is_over:
                return
            self._pool.release_slot(run)
            for one in self._take():
                self._start(one)


def _invoke_isolated(call: PoolCall) -> Result:
    from orchestrator.local.isolated_process import call_isolated  # few programs need it

    return call_isolated(call)
