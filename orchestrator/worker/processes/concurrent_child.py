"""The concurrent child: runs several steps at once in one process.

    JobTaker -> one thread and one harness per step -> coroutines of all steps run on one shared event loop

It is the child of a supervisor (supervisor.py) and sends it a message when a run begins or ends. If this
process dies, the supervisor therefore knows which runs were in it.

A single step cannot be killed here without the others, so stopping is cooperative: a coroutine is cancelled,
and a function sees it by `cancelled()`. A step that does not react is stuck. The child then takes no new
jobs, waits for the other steps, and exits; the supervisor has started another child by then. If a step breaks
something that all runs need, the process exits immediately.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import backoff_delays, retry_until_available
from orchestrator.redis_rq.job_taker import FinishedJob, JobTaker, WorkerQueues
from orchestrator.settings import Settings
from orchestrator.worker.harness import Harness
from orchestrator.worker.leaving import RunTracker
from orchestrator.worker.processes.child import run_job, set_up_child
from orchestrator.worker.processes.event_loop import SharedEventLoop, Stopper
from orchestrator.worker.processes.pipes import Pipes, exit_immediately
from orchestrator.worker.processes.rq_commands import start_command_listener
from orchestrator.worker.step_call import log_fields

logger = logging.getLogger(__name__)

STUCK_AFTER_S = 5.0
"""A run that has not ended this long after it was stopped is stuck."""
LEAVE_TIMEOUT_S = 30.0
"""How long a child with a stuck run waits for its other runs before it exits."""
WAIT_S = 1.0
DROP_TIMEOUT_S = 10.0
"""How long the deletion of a job without an event is retried."""

SendMessage = Callable[[Mapping[str, Any]], None]


class ActiveRun:
    """One run in this process, and how to stop it."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.payload = payload
        self._lock = threading.Lock()
        self._stopper: Stopper | None = None
        self._stopped_at: float | None = None

    def set_stopper(self, stopper: Stopper) -> None:
        """Set the function that stops the run; call it at once if the run is already stopped."""
        with self._lock:
            self._stopper = stopper
            is_already_stopped = self._stopped_at is not None
        if is_already_stopped:
            stopper()

    def stop(self) -> None:
        """Ask the run to stop, once."""
        with self._lock:
            if self._stopped_at is not None:
                return
            self._stopped_at = time.monotonic()
            stopper = self._stopper
        if stopper is not None:
            stopper()

    @property
    def is_stopped(self) -> bool:
        return self._stopped_at is not None

    @property
    def is_stuck(self) -> bool:
        return self._stopped_at is not None and time.monotonic() - self._stopped_at > STUCK_AFTER_S


class ConcurrentChild:
    """Runs steps until `leave` is set; `send` sends a message to the supervisor."""

    def __init__(
        self,
        taker: JobTaker,
        harness: Harness,
        slots: int,
        send: SendMessage,
        leave: threading.Event,
        tracker: RunTracker | None = None,
    ) -> None:
        self._taker, self._harness, self._slots, self._send = taker, harness, slots, send
        self._tracker = tracker or RunTracker()
        self._loop = SharedEventLoop(on_broken=exit_immediately)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="step")
        self._runs: dict[str, ActiveRun] = {}
        self._run_ended = threading.Event()
        self._delays = backoff_delays()
        self._leave_requested = leave

    def serve(self, burst: bool = False) -> None:
        """Take and run jobs until this child must leave; with `burst`, until the queues are empty."""
        while not self._leave_requested.is_set():
            self._send({"type": "pulse"})
            if self._has_stuck_run:
                logger.warning("a stopped step does not end; this process exits after its other steps")
                break
            self._run_ended.clear()
            free = self._slots - len(self._runs)
            if free <= 0:
                self._run_ended.wait(WAIT_S)
            elif self._take(free, wait_s=0.0 if burst else WAIT_S) == 0 and burst and not self._runs:
                return
        self._leave()

    def stop(self, job_id: str) -> None:
        """Stop the run of this job, if it is here: the coordinator or an operator sent RQ's stop command."""
        run = self._runs.get(job_id)
        if run is not None:
            logger.info("received a stop command", extra=log_fields(run.payload))
            run.stop()

    @property
    def _has_stuck_run(self) -> bool:
        return any(run.is_stuck for run in self._active_runs())

    def _may_wait_on(self) -> bool:
        self._send({"type": "pulse"})
        return not (self._leave_requested.is_set() or self._has_stuck_run)

    def _take(self, max_jobs: int, wait_s: float) -> int:
        """Take jobs and start them. Returns the number of jobs taken."""
        try:
            jobs = self._taker.take(max_jobs, wait_s, may_wait_on=self._may_wait_on)
        except Unavailable as error:
            logger.debug("cannot take a job: %s", error)
            time.sleep(next(self._delays))
            return 0
        self._delays = backoff_delays()
        for job_id, payload in jobs:
            if payload is None:
                logger.warning("job %s is not a step; it is dropped", job_id)
                self._finish(FinishedJob(job_id))
            else:
                self._start(job_id, payload)
        return len(jobs)

    def _start(self, job_id: str, payload: Mapping[str, Any]) -> None:
        run = self._runs[job_id] = ActiveRun(payload)
        self._tracker.begin(payload)
        names = ("execution", "step", "run_id", "attempt", "token", "job_id", "events")
        self._send({"type": "began"} | {name: payload[name] for name in names})
        self._threads.submit(self._run, job_id, run)

    def _run(self, job_id: str, run: ActiveRun) -> None:
        done = [FinishedJob(job_id)]
        harness = replace(
            self._harness,
            stop=lambda _: run.stop(),
            is_stopped=lambda: run.is_stopped,
            await_result=lambda returned: self._loop.await_result(returned, run.set_stopper),
            on_result=lambda payload, event: done.append(FinishedJob(job_id, payload["events"], event)),
        )
        run_job(harness, run.payload)
        try:
            self._finish(done[-1])
        finally:  # even if its result was not published, the run is over
            self._send({"type": "ended", "job_id": job_id})
            self._tracker.end(job_id)
            del self._runs[job_id]
            self._run_ended.set()

    def _finish(self, done: FinishedJob) -> None:
        """Publish the result of a job and delete the job.

        While Redis is unavailable, a result is retried for an hour. A job without a result is retried only
        briefly: the sweep finds it when its lease expires.
        """

        def on_wait(error: Exception) -> None:
            logger.warning("cannot finish job %s yet; retrying: %s", done.job_id, error)

        give_up_after_s = self._harness.give_up_after_s if done.event else DROP_TIMEOUT_S
        try:
            retry_until_available(lambda: self._taker.finish(done), give_up_after_s, on_wait)
        except (RedisError, Unavailable) as error:  # a step may have written into our connection to Redis
            logger.warning("cannot finish job %s; giving up: %s", done.job_id, error)

    def _leave(self) -> None:
        """Take no new jobs, and wait for the runs that are not stuck."""
        logger.info("taking no more steps; %d still running", len(self._runs))
        self._send({"type": "leaving"})
        began_at = time.monotonic()
        while waited_for := [run for run in self._active_runs() if not run.is_stuck]:
            has_stuck = len(waited_for) < len(self._runs)
            if has_stuck and time.monotonic() - began_at > LEAVE_TIMEOUT_S:
                return
            self._send({"type": "pulse"})
            self._run_ended.clear()
            self._run_ended.wait(0.2)

    def _active_runs(self) -> list[ActiveRun]:
        return list(self._runs.values())


def run_concurrent_child(
    settings: Settings,
    worker_queues: WorkerQueues,
    slots: int,
    burst: bool,
    pipes: Pipes,
    declines: bool = True,
) -> None:
    """The main function of the child process."""
    setup = set_up_child(settings, worker_queues.worker, pipes, declines)
    taker = JobTaker(setup.job_client, worker_queues, setup.lease_until_ms)
    harness = replace(setup.harness, has_own_process=False)

    def send(message: Mapping[str, Any]) -> None:
        has_counts = message["type"] == "pulse"
        pipes.send({**message, "counts": setup.counter.as_message()} if has_counts else message)

    child = ConcurrentChild(taker, harness, slots, send, setup.leave, setup.tracker)
    start_command_listener(setup.job_client, worker_queues.worker, child.stop)
    child.serve(burst)
    send({"type": "pulse"})
