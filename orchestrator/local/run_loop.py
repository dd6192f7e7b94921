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

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from orchestrator.application.engine.transitions import on_step_result
from orchestrator.application.records.decisions import (
    Cancelled,
    Complete,
    Decision,
    Dispatch,
    DispatchJob,
    Failed,
    Halt,
    Pending,
)
from orchestrator.application.records.events import Moment, ResultEvent, StepEvent, TimerEvent
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.backend.backend import Backend
from orchestrator.backend.results import as_results
from orchestrator.invocation.invoke import Result, invoke
from orchestrator.local.driver import (
    DecideFunction,
    EventsOfRecord,
    ExecutionDriver,
    due_timer_events,
    has_timers,
)
from orchestrator.local.job_call import CallEnvironment
from orchestrator.local.job_pool import JobPool
from orchestrator.local.job_run import JobRun, PoolCall, ProcessDied
from orchestrator.local.threads import run_in_thread

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.001
MIN_PAUSE_S = 0.001

FINAL = (Complete, Halt, Failed, Cancelled)
BATCH_S = 0.005
"""For how long results are kept to be applied together, while there are jobs to run."""

_NEVER = float("inf")
_ALL_TIMES = 1 << 62
_DEADLINES = ("deadline", "timeout")


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
        self._driver, self._decider = driver, decider
        self._leased = backend.leased_runner
        self._pool = JobPool(environment, self._leased, backend.threads)
        self._is_serial = backend.threads == 1
        self._context = copy_context()
        self._lock, self._wake = threading.Lock(), threading.Lock()
        self._wake.acquire()
        self._decision: Decision = Pending()
        self._is_final = False
        self._error: BaseException | None = None
        self._is_closed = False
        self._pass_at = self._poll_at = self._lost_at = _NEVER
        self._pause_s = FIRST_PAUSE_S
        self._finished: dict[str, None] = {}
        self._applied_at = 0.0
        self._is_renewing = False

    def run(self) -> Decision:
        """Run the execution and its children to their end, and attempt their webhooks once."""
        try:
            with self._lock:
                self._driver.take_over()
                self._advance(self._driver.find_lost_and_due)
                self._lost_at = self._next_lost_check()
                if not self._is_serial:
                    self._deliver_events()
                runs: list[JobRun] | None = None
                if not self._has_ended:
                    runs = self._take() or None
                    self._plan()
                self._poll_at = 0.0 if runs is None else self._poll_at
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
        return self._decision

    def _start_and_wait(self, runs: Iterable[JobRun]) -> None:
        """Start threads, and wait until something is due. Nothing comes between, because a new thread needs
        the lock of the interpreter."""
        for run in runs:
            self._start(run)
        pause_s = self._pass_at - time.monotonic()
        if self._pool.runs:
            self._wake.acquire(timeout=max(pause_s, 0.0))
        elif not self._wake.acquire(blocking=False) and pause_s > 0:
            time.sleep(pause_s)  # nothing runs here that could end
            self._poll_at = 0.0

    def _wake_up(self) -> None:
        """Wake the calling thread. Under the lock, so that only one thread does it."""
        if self._wake.locked():
            self._wake.release()

    @property
    def _has_ended(self) -> bool:
        return self._is_final and not self._driver.children

    # ---- in the calling thread

    def _pass(self) -> list[JobRun] | None:
        """Apply what is due; returns what can run now, or None if everything has ended."""
        with self._lock:
            if self._error is not None:
                raise self._error
            runs: list[JobRun] = []
            if not self._has_ended:
                now = time.monotonic()
                self._check_runs(now)
                if now >= self._lost_at:
                    self._look_for_lost()
                if self._is_serial and self._pool.runs:
                    self._apply_deadlines()
                elif now >= min(self._poll_at, self._next_timer_at(now, self._open_executions())):
                    runs = self._apply_until_runnable()
                self._stop_unwanted()
            if self._has_ended:
                return None
            runs += self._take()
            self._plan()
            return runs

    def _plan(self) -> None:
        """Set when something is due, or when another process may have written something."""
        now = time.monotonic()
        if not self._pool.runs:
            self._poll_at = min(self._poll_at, now + self._pause_s)
            self._pause_s = min(2 * self._pause_s, self._backend.poll_interval)
        due_at = min(self._poll_at, self._lost_at, self._next_timer_at(now, self._open_executions()))
        for run in self._pool.runs:
            due_at = min(due_at, run.check_at)
        self._pass_at = max(due_at, now + MIN_PAUSE_S)

    def _open_executions(self) -> Iterable[str]:
        return (self._weid, *self._driver.children, *self._driver.pending_webhooks)

    def _next_timer_at(self, now: float, weids: Iterable[str]) -> float:
        """When the next timer of a record is due. With one thread, while a step runs: its next deadline."""
        timer_at = _NEVER
        for weid in weids:
            record = self._driver.records.get(weid)
            if record is None or not has_timers(record):
                continue
            only = _DEADLINES if self._is_serial and self._pool.runs else None
            timers = find_due_timers(record, _ALL_TIMES)
            times = [one.due_ms for one in timers if only is None or one.kind in only]
            if times:
                timer_at = min(timer_at, now + (min(times) - self._backend.clock()) / 1000)
        return timer_at

    def _check_runs(self, now: float) -> None:
        """Note long runs in their records, and give up those that hang."""
        for run in list(self._pool.runs):
            if run.lost_reason is not None:
                self._report_lost(run, run.lost_reason)
            elif now >= run.silent_at:
                self._report_lost(run, f"its executor sent no heartbeat for {run.job.heartbeat_s:g} s")
            elif now >= run.overdue_at:
                self._pool.stop(run)
            elif not run.is_noted and now >= run.noted_at:
                self._note_start(run)

    def _look_for_lost(self) -> None:
        """Find lost dispatches, and children that another process has started."""
        self._lost_at = self._next_lost_check()
        self._driver.take_over()
        self._advance(self._driver.find_lost_and_due)

    def _next_lost_check(self) -> float:
        return _NEVER if self._leased is None else time.monotonic() + self._leased.lease_s / 4

    def _note_start(self, run: JobRun) -> None:
        """Write the start and the deadline of a run to its record."""
        event = run.started_event(self._environment.worker)
        moment = Moment(run.started_ms, self._backend.nonce(), "run")
        run.is_noted = True
        weid = run.job.workflow_execution_id
        with suppress(KeyError):  # its execution was deleted
            self._driver.commit(weid, lambda record: on_step_result(record, event, moment))

    def _report_lost(self, run: JobRun, reason: str) -> None:
        """Dispatch the job of a run again, as after the death of a worker, and give the run up."""
        event, weid = run.lost_event(reason), run.job.workflow_execution_id
        logger.warning("%s: %s", run, reason, extra=run.log_fields)
        self._pool.stop(run)
        if weid == self._weid:
            self._advance(lambda _: [event])
        elif self._driver.drives(weid):
            self._driver.decide(weid, lambda _: [event])
        else:
            moment = self._backend.moment("run")
            self._driver.commit(weid, lambda record: on_step_result(record, event, moment))

    def _apply_deadlines(self) -> None:
        """With one thread, while a step runs: apply deadlines, and keep everything else for later."""
        for weid in (self._weid, *self._driver.children):
            record = self._driver.records.get(weid)
            if record is None or not self._due_deadlines(record):
                continue
            if weid == self._weid:
                self._advance(self._due_deadlines)
            else:
                self._driver.decide(weid, self._due_deadlines)

    def _due_deadlines(self, record: WorkflowRecord) -> list[StepEvent]:
        due = due_timer_events(record, self._backend.clock())
        return [one for one in due if isinstance(one, TimerEvent) and one.kind in _DEADLINES]

    def _stop_unwanted(self) -> None:
        for run in list(self._pool.runs):
            if not self._is_wanted(run.job):
                self._pool.stop(run)

    def _is_wanted(self, job: DispatchJob) -> bool:
        """Whether the record of a driven execution still waits for this dispatch. A record may be stale:
        another process may have dispatched the step again."""
        record = self._driver.records.get(job.workflow_execution_id)
        if record is None or _waits_for(record, job):
            return True
        try:
            return _waits_for(self._backend.load(job.workflow_execution_id), job)
        except KeyError:
            return False

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
                self._check_runs(time.monotonic())
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

    # ---- decisions, under the lock

    def _apply_until_runnable(self) -> list[JobRun]:
        """Apply everything, until a job can run or nothing more happens; returns what can run."""
        while True:
            is_handled = self._apply_all()
            if self._has_ended:
                return []
            runs = self._take()
            if runs or not is_handled:
                return runs
            self._pause_s = FIRST_PAUSE_S

    def _apply_all(self) -> bool:
        """Apply the results, timers and events of all driven executions; False if there were none."""
        self._note_applied()
        results = self._backend.results(self._weid)
        handled = self._driver.run_once()
        self._apply_results(results)
        return bool(handled or results)

    def _apply_finished(self) -> None:
        """Apply the results that came in here, and what follows from them for other executions."""
        finished = list(self._finished)
        self._note_applied()
        for weid in finished:
            if weid == self._weid:
                self._apply_results(self._backend.results(weid))
            elif self._driver.drives(weid):
                self._driver.advance(weid)
        self._deliver_events()

    def _note_applied(self) -> None:
        self._finished.clear()
        self._applied_at = time.monotonic()
        self._poll_at = self._applied_at + self._backend.poll_interval

    def _deliver_events(self) -> None:
        while self._driver.deliver_events():
            self._apply_results([])

    def _apply_results(self, results: Sequence[ResultEvent]) -> None:
        self._advance(partial(self._with_due, results))
        self._backend.acknowledge(results)

    def _with_due(self, results: Sequence[StepEvent], record: WorkflowRecord) -> list[StepEvent]:
        return [*results, *due_timer_events(record, self._backend.clock())]

    def _advance(self, events_for: EventsOfRecord) -> None:
        """Decide upon the execution, and dispatch its jobs."""
        while True:
            decision = self._driver.commit(self._weid, self._decider(events_for))
            if not isinstance(decision, Dispatch):
                break
            pairs = self._backend.dispatch(self._weid, decision.jobs)
            if not pairs:
                break
            events_for = partial(self._with_due, as_results(self._weid, pairs))
        assert decision is not None, "without an event to acknowledge, a commit is not obsolete"
        self._decision, self._is_final = decision, isinstance(decision, FINAL)

    # ---- runs

    def _take(self) -> list[JobRun]:
        """Take every job that can run now. The caller starts them."""
        runs = self._pool.take(self._is_wanted)
        if runs and self._leased is not None:
            self._renew_leases()
        return runs

    def _start(self, run: JobRun) -> None:
        context = self._context.copy()
        run.thread = run_in_thread(lambda: context.run(self._work, run))

    def _work(self, run: JobRun | None) -> None:
        """In a pool thread: run a job and apply its result, then run the next one."""
        thread = threading.current_thread().name
        while run is not None:
            run.thread = thread
            try:
                call = PoolCall(self._environment, run, self._on_coroutine)
                call_executor = invoke if run.job.isolation == "thread" else _invoke_isolated
                outcome = self._context.copy().run(call_executor, call)
                result = self._environment.make_result(run.job, run.started_ms, outcome)
            except ProcessDied as error:
                self._on_death(run, f"the process of its executor ended ({error})")
                return
            except BaseException as error:  # not a result: it ends run()
                self._fail(run, error)
                return
            run = self._finish(run, result)

    def _finish(self, run: JobRun, result: ResultEvent) -> JobRun | None:
        """Submit a result and apply it; returns the next run for this thread."""
        with self._lock:
            if run.is_over:
                return None  # its slot was given to another thread
            try:
                self._pool.finish(run, result)
                if self._is_closed or self._error is not None:
                    return None
                return self._go_on(run.job.workflow_execution_id)
            except BaseException as error:
                self._error = error
                self._wake_up()
                return None

    def _go_on(self, weid: str) -> JobRun | None:
        """Apply a result and start what can run; returns a run for this thread. Jobs that are pending come
        first, for a short time: results that are applied together cost one commit."""
        self._finished[weid] = None
        runs: list[JobRun] = []
        if self._pool.may_have_jobs and (self._is_serial or time.monotonic() < self._applied_at + BATCH_S):
            runs = self._take()
        if not runs and self._is_serial:
            runs = self._apply_until_runnable()
        elif not runs:
            self._apply_finished()
            runs = [] if self._has_ended else self._take()
        if not runs:
            if self._has_ended or self._needs_calling_thread(weid):
                self._wake_up()
            return None
        own = runs[0]
        for one in runs[1:]:
            self._start(one)
        if own.noted_at < self._pass_at or self._needs_calling_thread(weid):
            self._wake_up()
        return own

    def _needs_calling_thread(self, weid: str) -> bool:
        """Whether the calling thread has something to do before it would wake up by itself."""
        if not self._pool.runs:
            return True
        weids = (weid,) if weid == self._weid else (self._weid, weid)
        return self._next_timer_at(time.monotonic(), weids) < self._pass_at

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

    # ---- leases

    def _renew_leases(self) -> None:
        """Renew the leases of the runs, in a thread, until there are none."""
        if self._leased is not None and not self._is_renewing:
            self._is_renewing = True
            run_in_thread(partial(self._renew_until_done, self._leased.lease_s / 4))

    def _renew_until_done(self, interval_s: float) -> None:
        while True:
            time.sleep(interval_s)
            with self._lock:
                runs = list(self._pool.runs)
                if not runs:
                    self._is_renewing = False
                    return
            try:
                self._pool.renew_leases(runs)
            except Exception as error:  # the next renewal may succeed
                logger.warning("cannot renew the leases of %d steps: %s", len(runs), error)


def _invoke_isolated(call: PoolCall) -> Result:
    from orchestrator.local.isolated_process import call_isolated  # few programs need it

    return call_isolated(call)


def _waits_for(record: WorkflowRecord, job: DispatchJob) -> bool:
    unit = record.steps.get(job.step_id) or record.items.get(job.step_id)
    return unit is not None and unit.token == job.token
