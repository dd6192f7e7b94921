"""A crew: several steps at once in one process.

    JobTaker -> one thread per step, each with a harness of its own -> what is async meets on one event loop

It is the child of a supervisor (supervisor.py), which it tells of every run that begins and ends: if this
process dies, whoever was in it is known. One step cannot be killed without the others here. One that is to
be stopped is asked to: a coroutine is cancelled, a function sees it by `cancelled()`. One that goes on all
the same is stuck: the crew then takes nothing new, lets the others finish, and ends; the supervisor has
begun another crew by then. A process in which a step has broken what all of them need ends at once.
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
from orchestrator.redis_rq.connection import backoff_delays, connect, retry_until_available
from orchestrator.redis_rq.job_taker import FinishedJob, JobTaker, WorkerQueues
from orchestrator.worker.harness import (
    Harness,
    executors_from_environment,
    lease_from_environment,
    log_fields,
)
from orchestrator.worker.lease import LeaseRenewer, RedisClock
from orchestrator.worker.memory_limit import limit_memory
from orchestrator.worker.processes.event_loop import SharedEventLoop, Stopper
from orchestrator.worker.processes.pipes import Pipes, exit_immediately
from orchestrator.worker.processes.rq_commands import start_command_listener

logger = logging.getLogger(__name__)

STUCK_AFTER_S = 5.0
"""So long a run may take to end after it was stopped."""
LEAVE_TIMEOUT_S = 30.0
"""So long a crew waits for those that are not stuck, before it leaves without them."""
WAIT_S = 1.0
DROP_TIMEOUT_S = 10.0

SendMessage = Callable[[Mapping[str, Any]], None]


class ActiveRun:
    """One step that runs here, and how it can be stopped."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.payload = payload
        self._lock = threading.Lock()
        self._stopper: Stopper | None = None
        self._stopped_at: float | None = None

    def set_stopper(self, stopper: Stopper) -> None:
        with self._lock:
            self._stopper = stopper
            is_late = self._stopped_at is not None
        if is_late:
            stopper()

    def stop(self) -> None:
        """Nobody waits for it any more."""
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
    """Runs steps until it is to leave; `tell` reaches the supervisor."""

    def __init__(
        self, taker: JobTaker, harness: Harness, slots: int, send: SendMessage, leave: threading.Event
    ) -> None:
        self._taker, self._harness, self._slots, self._tell = taker, harness, slots, send
        self._loop = SharedEventLoop(on_broken=exit_immediately)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="step")
        self._runs: dict[str, ActiveRun] = {}
        self._ended = threading.Event()
        self._pauses = backoff_delays()
        self._asked_to_leave = leave

    def serve(self, burst: bool = False) -> None:
        while not self._asked_to_leave.is_set():
            self._tell({"type": "pulse"})
            if any(run.is_stuck for run in self._now()):
                logger.warning(
                    "a step does not end: this process takes no more, and ends when the others have"
                )
                break
            self._ended.clear()
            free = self._slots - len(self._runs)
            if free <= 0:
                self._ended.wait(WAIT_S)
            elif self._take(free, wait_s=0.0 if burst else WAIT_S) == 0 and burst and not self._runs:
                return
        self._leave()

    def stop(self, token: str) -> None:
        """Somebody wants this run to end."""
        run = self._runs.get(token)
        if run is not None:
            logger.info("stopped from outside", extra=log_fields(run.payload))
            run.stop()

    def _take(self, most: int, wait_s: float) -> int:
        try:
            jobs = self._taker.take(most, wait_s)
        except Unavailable as error:
            logger.debug("cannot take a step: %s", error)
            time.sleep(next(self._pauses))
            return 0
        self._pauses = backoff_delays()
        for token, payload in jobs:
            if payload is None:
                logger.warning("job %s is no step of ours: it is dropped", token)
                self._hand_in(FinishedJob(token))
            else:
                self._begin(token, payload)
        return len(jobs)

    def _begin(self, token: str, payload: Mapping[str, Any]) -> None:
        run = self._runs[token] = ActiveRun(payload)
        names = ("execution", "step", "run_id", "attempt", "token", "events")
        self._tell({"type": "began"} | {name: payload[name] for name in names})
        self._threads.submit(self._run, token, run)

    def _run(self, token: str, run: ActiveRun) -> None:
        done = [FinishedJob(token)]
        harness = replace(
            self._harness,
            stop=lambda _: run.stop(),
            is_stopped=lambda: run.is_stopped,
            await_result=lambda returned: self._loop.await_result(returned, run.set_stopper),
            hand_in=lambda payload, event: done.append(FinishedJob(token, payload["events"], event)),
        )
        try:
            harness.run(run.payload, is_leased=True)
        except BaseException:  # which no executor can cause, unless it has broken something of ours
            try:
                logger.exception("this run was given up", extra=log_fields(run.payload))
            finally:
                exit_immediately()
        try:
            self._hand_in(done[-1])
        finally:  # whatever becomes of it, nobody waits for this run any more
            self._tell({"type": "ended", "token": token})
            del self._runs[token]
            self._ended.set()

    def _hand_in(self, done: FinishedJob) -> None:
        """What a run has brought is kept for an hour while Redis is away; what brought nothing is found when
        its lease ends."""

        def on_wait(error: Exception) -> None:
            logger.warning("cannot hand in job %s yet: %s", done.token, error)

        give_up_after_s = self._harness.give_up_after_s if done.event else DROP_TIMEOUT_S
        try:
            retry_until_available(lambda: self._taker.hand_in(done), give_up_after_s, on_wait)
        except (RedisError, Unavailable) as error:  # a step may have written into our connection to Redis
            logger.warning("job %s is given up: %s", done.token, error)

    def _leave(self) -> None:
        """Take nothing new, and wait for those who will end."""
        logger.info("takes no more steps, %d still run", len(self._runs))
        self._tell({"type": "leaving"})
        began = time.monotonic()
        while waited_for := [run for run in self._now() if not run.is_stuck]:
            any_stuck = len(waited_for) < len(self._runs)
            if any_stuck and time.monotonic() - began > LEAVE_TIMEOUT_S:
                return
            self._tell({"type": "pulse"})
            self._ended.clear()
            self._ended.wait(0.2)

    def _now(self) -> list[ActiveRun]:
        return list(self._runs.values())


def run_concurrent_child(url: str, station: WorkerQueues, slots: int, burst: bool, pipes: Pipes) -> None:
    """All that the child of a supervisor does."""
    limit_memory()
    client, bare = connect(url), connect(url, decodes=False)
    clock, lease_s, leave = RedisClock(client), lease_from_environment(), threading.Event()
    pipes.on_leave(leave.set)
    executors = executors_from_environment()  # now, and not when a step may have changed it
    harness = Harness(
        client, executors, clock, station.worker, lease_s, has_own_process=False, renewer=LeaseRenewer()
    )
    taker = JobTaker(bare, station, lambda: clock.now_ms() + round(lease_s * 1000))
    child = ConcurrentChild(taker, harness, slots, pipes.send, leave)
    start_command_listener(bare, station.worker, child.stop)
    child.serve(burst)
