"""The work-horse: runs one step after the other in one process, until the process is recycled.

    publish the last result and take the next job, in one round trip -> run it in the main thread -> repeat

It is the child of a supervisor (supervisor.py). A step is stopped by killing this process with its process
group: after its deadline, or when it is superseded or cancelled. A step may also kill the process itself. The
supervisor then reads from RQ's key of the worker which job was taken and not finished, reports it as lost,
and starts another work-horse.

    crashed while         left behind                          repaired by
    waiting               a job that has left its queue        the sweep, which finds it missing
    taking                a job with a lease                   the supervisor, or its expired lease
    running               the same                             the same
    publishing            the same, or a published result      the token rejects a second result

While Redis is unavailable, the last result is kept and published later; a process that is to leave waits for
a grace time only (worker/leaving.py). This process handles no signals, since the processes that a step starts
would inherit the handlers. To make it leave, the supervisor closes a pipe.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import backoff_delays
from orchestrator.redis_rq.job_taker import FinishedJob, Job, JobTaker, WorkerQueues
from orchestrator.redis_rq.pinned_connection import PinnedConnection
from orchestrator.settings import Settings
from orchestrator.worker.harness import Harness
from orchestrator.worker.lease import LeaseRenewer
from orchestrator.worker.leaving import RunTracker
from orchestrator.worker.processes.child import run_job, set_up_child
from orchestrator.worker.processes.pipes import Pipes
from orchestrator.worker.processes.recycling import RecyclingLimits, RecyclingMonitor
from orchestrator.worker.processes.rq_commands import start_command_listener

logger = logging.getLogger(__name__)

WAIT_S = 1.0


class WorkHorse:
    """Runs steps until `leave` is set or the process must be recycled."""

    def __init__(
        self,
        taker: JobTaker,
        harness: Harness,
        monitor: RecyclingMonitor,
        leave: threading.Event,
        tracker: RunTracker | None = None,
    ) -> None:
        self._taker, self._monitor, self._leave = taker, monitor, leave
        self._tracker = tracker or RunTracker()
        self._harness = replace(harness, on_result=self._keep_result, stop=self.stop)
        self._lock = threading.Lock()
        self._job_id: str | None = None
        self._done: FinishedJob | None = None
        self._delays, self._unavailable_since = backoff_delays(), 0.0

    def serve(self, burst: bool = False) -> None:
        """Run jobs until this process must leave; with `burst`, until the queues are empty."""
        while self._done is not None or not self._leave.is_set():
            jobs = self._exchange(wait_s=0.0 if burst else WAIT_S)
            if jobs == [] and burst:
                return
            for job_id, payload in jobs or ():
                self._run(job_id, payload)
                recycle_reason = self._monitor.check_after_step()
                if recycle_reason is not None:
                    logger.debug("this process is recycled: %s", recycle_reason)
                    self._leave.set()

    def pulse(self) -> dict[str, Any]:
        """The message that shows the supervisor that this process lives, and what it waits for."""
        message: dict[str, Any] = {"type": "pulse", "is_busy": self._job_id is not None}
        for run in self._tracker.runs():
            names = ("execution", "step", "attempt", "job_id")
            for_s = round(time.monotonic() - run.began_at, 1)
            message["run"] = {name: run.payload[name] for name in names} | {"for_s": for_s}
        return message

    def stop(self, job_id: str) -> None:
        """Kill this process and its process group, if it still runs this job and not the next one."""
        with self._lock:
            if job_id == self._job_id:
                os.killpg(os.getpid(), signal.SIGKILL)

    def _exchange(self, wait_s: float) -> list[Job] | None:
        """Publish the last result and take the next job. Returns None when Redis is unavailable."""
        max_jobs = 0 if self._leave.is_set() else 1
        try:
            done = [self._done] if self._done else []
            jobs = self._taker.take(max_jobs, wait_s, done, lambda: not self._leave.is_set())
        except Unavailable as error:
            self._wait(error)
            return None
        self._tracker.end_all()
        self._done, self._delays, self._unavailable_since = None, backoff_delays(), 0.0
        return jobs

    def _wait(self, error: Unavailable) -> None:
        now = time.monotonic()
        if not self._unavailable_since:
            self._unavailable_since = now
            if self._done is not None:
                logger.warning("cannot publish the step's result yet; retrying: %s", error)
        elif now - self._unavailable_since > self._harness.give_up_after_s:
            self._done = None  # its lease expired long ago, so the step was dispatched again
        time.sleep(next(self._delays))

    def _run(self, job_id: str, payload: dict[str, Any] | None) -> None:
        self._done = FinishedJob(job_id)
        if payload is None:
            logger.warning("job %s is not a step; it is dropped", job_id)
            return
        self._tracker.begin(payload)
        with self._lock:
            self._job_id = job_id
        run_job(self._harness, payload)
        with self._lock:
            self._job_id = None

    def _keep_result(self, payload: Mapping[str, Any], event: Mapping[str, str]) -> None:
        self._done = FinishedJob(payload["job_id"], payload["events"], event)


def run_work_horse(
    settings: Settings,
    worker_queues: WorkerQueues,
    burst: bool,
    recycling: RecyclingLimits,
    pipes: Pipes,
    declines: bool = True,
) -> None:
    """The main function of the child process."""
    setup = set_up_child(settings, worker_queues.worker, pipes, declines)
    taker = JobTaker(PinnedConnection(setup.job_client), worker_queues, setup.lease_until_ms)

    def pulse() -> None:
        pipes.send(horse.pulse() | {"counts": setup.counter.as_message()})

    renewer = LeaseRenewer(on_tick=pulse)
    harness = replace(setup.harness, renewer=renewer)
    horse = WorkHorse(taker, harness, RecyclingMonitor(recycling), setup.leave, setup.tracker)
    start_command_listener(setup.job_client, worker_queues.worker, horse.stop)
    horse.serve(burst)
    pulse()
    if setup.leave.is_set():  # otherwise the burst has emptied the queues
        pipes.send({"type": "leaving"})
