"""A work-horse that stays: one step after the other, in one process, until it is worn.

    hand in what the last step brought, and take the next one -> run it here, in the main thread -> and again

It is the child of a supervisor (supervisor.py). A step is killed with this process and all of its group: by
its deadline, by who supersedes or cancels it, or by what it does itself. The supervisor reports what was
taken and not handed in, which RQ's key of the worker says, and begins another one.

    died while            what is left                         who repairs it
    waiting               a job that has left its queue        the sweep, which finds it missing
    taking                a job that is leased to us           the supervisor; if it is gone too, the lease
    running               the same                             the same
    handing in            the same, or a result already out    the token refuses a second result

While Redis is away, what was brought is kept, and handed in when it is back. Signals are left alone, since
what a step starts would inherit how we handle them: whoever wants this process to leave closes its pipe.
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
from orchestrator.redis_rq.connection import backoff_delays, connect
from orchestrator.redis_rq.job_taker import FinishedJob, Job, JobTaker, WorkerQueues
from orchestrator.redis_rq.pinned_connection import PinnedConnection
from orchestrator.worker.harness import (
    Harness,
    executors_from_environment,
    lease_from_environment,
    log_fields,
)
from orchestrator.worker.lease import LeaseRenewer, RedisClock
from orchestrator.worker.memory_limit import limit_memory
from orchestrator.worker.processes.pipes import Pipes, exit_immediately
from orchestrator.worker.processes.recycling import RecyclingLimits, RecyclingMonitor
from orchestrator.worker.processes.rq_commands import start_command_listener

logger = logging.getLogger(__name__)

WAIT_S = 1.0


class WorkHorse:
    """Runs steps until it is to leave, or worn."""

    def __init__(
        self, taker: JobTaker, harness: Harness, monitor: RecyclingMonitor, leave: threading.Event
    ) -> None:
        self._taker, self._monitor, self._leave = taker, monitor, leave
        self._harness = replace(harness, hand_in=self._keep, stop=self.stop)
        self._lock = threading.Lock()
        self._token: str | None = None
        self._done: FinishedJob | None = None
        self._pauses, self._away_since = backoff_delays(), 0.0

    def serve(self, burst: bool = False) -> None:
        while self._done is not None or not self._leave.is_set():
            jobs = self._exchange(wait_s=0.0 if burst else WAIT_S)
            if jobs == [] and burst:
                return
            for token, payload in jobs or ():
                self._run(token, payload)
                worn = self._monitor.check_after_step()
                if worn is not None:
                    logger.debug("this process is replaced: %s", worn)
                    self._leave.set()

    @property
    def is_busy(self) -> bool:
        return self._token is not None

    def stop(self, token: str) -> None:
        """End this process and all of its group, if this is what it runs: the next step is another's."""
        with self._lock:
            if token == self._token:
                os.killpg(os.getpid(), signal.SIGKILL)

    def _exchange(self, wait_s: float) -> list[Job] | None:
        """Hand in what the last step brought, and take the next one; None when Redis could not be asked."""
        most = 0 if self._leave.is_set() else 1
        try:
            jobs = self._taker.take(most, wait_s, [self._done] if self._done else [])
        except Unavailable as error:
            self._wait(error)
            return None
        self._done, self._pauses, self._away_since = None, backoff_delays(), 0.0
        return jobs

    def _wait(self, error: Unavailable) -> None:
        now = time.monotonic()
        if not self._away_since:
            self._away_since = now
            if self._done is not None:
                logger.warning("cannot publish what the last step brought yet: %s", error)
        elif now - self._away_since > self._harness.give_up_after_s:
            self._done = None  # its lease has ended long ago, and it runs elsewhere
        time.sleep(next(self._pauses))

    def _run(self, token: str, payload: dict[str, Any] | None) -> None:
        self._done = FinishedJob(token)
        if payload is None:
            logger.warning("job %s is no step of ours: it is dropped", token)
            return
        with self._lock:
            self._token = token
        try:
            self._harness.run(payload, is_leased=True)
        except BaseException:  # which no executor can cause, unless it has broken something of ours
            try:
                logger.exception("this run was given up", extra=log_fields(payload))
            finally:
                exit_immediately()
        with self._lock:
            self._token = None

    def _keep(self, payload: Mapping[str, Any], event: Mapping[str, str]) -> None:
        self._done = FinishedJob(payload["token"], payload["events"], event)


def run_work_horse(
    url: str, station: WorkerQueues, burst: bool, recycling: RecyclingLimits, pipes: Pipes
) -> None:
    """All that the child of a supervisor does."""
    limit_memory()
    client, bare = connect(url), connect(url, decodes=False)
    clock, lease_s, leave = RedisClock(client), lease_from_environment(), threading.Event()
    pipes.on_leave(leave.set)
    taker = JobTaker(PinnedConnection(bare), station, lambda: clock.now_ms() + round(lease_s * 1000))
    renewer = LeaseRenewer(on_tick=lambda: pipes.send({"type": "pulse", "is_busy": horse.is_busy}))
    executors = executors_from_environment()  # now, and not when a step may have changed it
    harness = Harness(client, executors, clock, station.worker, lease_s, renewer=renewer)
    horse = WorkHorse(taker, harness, RecyclingMonitor(recycling), leave)
    start_command_listener(bare, station.worker, horse.stop)
    horse.serve(burst)
    if leave.is_set():  # and not because there was nothing left
        pipes.send({"type": "leaving"})
