"""RunChecks: notes long runs in their records, and gives up those that hang or are no longer needed.

Every method is called under the lock of the run loop.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from orchestrator.application.engine.transitions import on_step_result
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Moment, StepEvent, TimerEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.backend import Backend
from orchestrator.local.driver import ExecutionDriver, due_timer_events
from orchestrator.local.job_pool import JobPool
from orchestrator.local.job_run import JobRun
from orchestrator.local.run_progress import RunProgress

logger = logging.getLogger(__name__)

DEADLINES = ("deadline", "timeout")
"""The timers after which a run is given up."""


class RunChecks:
    def __init__(
        self,
        backend: Backend,
        weid: str,
        driver: ExecutionDriver,
        progress: RunProgress,
        pool: JobPool,
        worker: str,
    ) -> None:
        self._backend, self._weid, self._driver = backend, weid, driver
        self._progress, self._pool, self._worker = progress, pool, worker

    def check_runs(self, now: float) -> None:
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

    def _note_start(self, run: JobRun) -> None:
        """Write the start and the deadline of a run to its record."""
        event = run.started_event(self._worker)
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
            self._progress.advance(lambda _: [event])
        elif self._driver.drives(weid):
            self._driver.decide(weid, lambda _: [event])
        else:
            moment = self._backend.moment("run")
            self._driver.commit(weid, lambda record: on_step_result(record, event, moment))

    def apply_deadlines(self) -> None:
        """With one thread, while a step runs: apply deadlines, and keep everything else for later."""
        for weid in (self._weid, *self._driver.children):
            record = self._driver.records.get(weid)
            if record is None or not self._due_deadlines(record):
                continue
            if weid == self._weid:
                self._progress.advance(self._due_deadlines)
            else:
                self._driver.decide(weid, self._due_deadlines)

    def _due_deadlines(self, record: WorkflowRecord) -> list[StepEvent]:
        due = due_timer_events(record, self._backend.clock)
        return [one for one in due if isinstance(one, TimerEvent) and one.kind in DEADLINES]

    def stop_unwanted(self) -> None:
        for run in list(self._pool.runs):
            if not self.is_wanted(run.job):
                self._pool.stop(run)

    def is_wanted(self, job: DispatchJob) -> bool:
        """Whether the record of a driven execution still waits for this dispatch. A record may be stale:
        another process may have dispatched the step again."""
        record = self._driver.records.get(job.workflow_execution_id)
        if record is None or _waits_for(record, job):
            return True
        try:
            return _waits_for(self._backend.load(job.workflow_execution_id), job)
        except KeyError:
            return False


def _waits_for(record: WorkflowRecord, job: DispatchJob) -> bool:
    unit = record.steps.get(job.step_id) or record.items.get(job.step_id)
    return unit is not None and unit.token == job.token
