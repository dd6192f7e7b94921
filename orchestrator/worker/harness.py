"""The harness turns a job into a result event, whatever the executor does.

    renew the lease -> find the executor -> call it -> publish the result -> return to RQ

A worker that does not have the executor declines the step: it publishes a `declined` event instead of a
result, and the step is dispatched again, for another worker. An executor that is there and cannot be loaded
fails the step.

It publishes before it returns, and retries with back-off while Redis is unavailable. RQ's own bookkeeping can
therefore fail in any way without losing a result. The harness never raises: a failed job in RQ means that the
work-horse died.

    crashed while         left behind                             repaired by
    renewing the lease    a lease that expires                    the sweep, when the lease has expired
    calling the executor  the same, and a failed job in RQ        the sweep, within a second
    publishing            the same, or a published result         the sweep; the token rejects a second result
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from redis.exceptions import RedisError
from rq import get_current_job

from orchestrator.application.errors import ExecutorNotFound, Unavailable
from orchestrator.application.records.events import DeclinedEvent, LostEvent, StartedEvent, iso
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.executors import Executor, Executors
from orchestrator.invocation.invoke import invoke
from orchestrator.logs import failure_logger, run_context
from orchestrator.redis_rq.connection import Client, connect_like, retry_until_available, translate_errors
from orchestrator.redis_rq.declined import DeclinedStep, note_declined
from orchestrator.redis_rq.event_codec import MAX_NAME_LENGTH, event_fields
from orchestrator.redis_rq.job_codec import build_payload, lease_of_payload
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import LEASE_S, Settings
from orchestrator.worker.lease import Lease, LeaseRenewer, RedisClock
from orchestrator.worker.leaving import RunTracker, leave_with_parent
from orchestrator.worker.memory_limit import limit_memory
from orchestrator.worker.payloads import JobPayloads
from orchestrator.worker.step_call import ExecutorLookup, StepCall, log_fields, trace_fields
from orchestrator.worker.step_log import StepLogWriter

logger = logging.getLogger(__name__)

GIVE_UP_AFTER_S = 3_600.0
COMPLETE, DECLINED, SUPERSEDED = "complete", "declined", "superseded"
DEADLINE_GRACE_S = 1.0
"""How long a step may run past its deadline. By then the record has a timeout for this attempt."""


def run_step(*args: Any, **kwargs: Any) -> None:
    """Run one step: the function of every RQ job. ORCHESTRATOR_EXECUTORS names the executor modules."""
    job = get_current_job()
    assert job is not None, "run_step must be called by an RQ worker"
    job.result_ttl = 0  # RQ keeps no result
    payload = build_payload(args, kwargs, job.description or "", job.id)
    client = connect_like(job.connection)
    # A work-horse runs only this job, so killing it stops the job. A worker that does not fork must live on.
    is_horse = os.environ.get("RQ_JOB_ID") == job.id
    stop = _kill_this_process if is_horse else None
    settings = Settings.from_environment(on_bad=lambda error: logger.warning("%s; using the default", error))
    tracker = RunTracker()
    if is_horse:
        limit_memory(settings.max_memory)
        tracker.begin(payload)
        leave_with_parent(tracker, settings.stop_grace_s)
    try:
        harness = Harness(
            client,
            LazyExecutors(settings.executors),
            lease_s=settings.lease_s,
            stop=stop,
            on_executor=tracker.on_executor,
            settings=settings,
        )
        harness.run(payload)
    finally:
        client.close()


def _kill_this_process(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class LazyExecutors:
    """The executors of these modules, imported by the first find().

    A module that cannot be imported then fails the step, with a reason, and does not kill the work-horse.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules

    def find(self, fn: str) -> Executor:
        return load_executors(self._modules).find(fn)


@lru_cache(maxsize=8)
def load_executors(modules: tuple[str, ...]) -> Executors:
    return Executors(modules=modules)


@dataclass(frozen=True, slots=True)
class Harness:
    """Runs jobs one at a time: holds the lease, calls the executor, publishes the result."""

    client: Client
    executors: ExecutorLookup
    clock: RedisClock | None = None
    worker: str = ""
    lease_s: float = LEASE_S
    give_up_after_s: float = GIVE_UP_AFTER_S
    stop: Callable[[str], object] | None = None
    """Stops the run of this job from another thread; None when the run cannot be stopped."""
    is_stopped: Callable[[], bool] = lambda: False
    on_executor: Callable[[str, bool], Any] = lambda job_id, is_running: None
    """Receives the job id of a run whose executor begins (True) or has ended (False)."""
    on_end: Callable[[str, float], Any] = lambda outcome, duration_s: None
    """Receives the outcome of a run and how long it took: COMPLETE, the kind of its failure, DECLINED or
    SUPERSEDED."""
    await_result: Callable[[Any], Any] = await_result
    declines: bool = True
    """Whether a step without an executor is declined. It fails where no other worker could run it."""
    has_own_process: bool = True
    """Whether a run that can be stopped is the only run in its process."""
    payloads: PayloadStore | None = None
    """The store of large values; by default the one of the settings."""
    settings: Settings = field(default_factory=Settings.from_environment)
    renewer: LeaseRenewer = field(default_factory=LeaseRenewer)
    on_result: Callable[[Mapping[str, Any], Mapping[str, str]], None] | None = None
    """Receives the payload and the result event, and publishes the event. The harness publishes it itself
    without this, and also when the step log has lines that must be written before the event."""

    def run(self, payload: Mapping[str, Any], *, is_leased: bool = False) -> bool:
        """Run one job and publish its result. Returns False, and publishes nothing, if it was superseded.

        `is_leased`: the caller has renewed the lease already.
        """
        run, began_at = log_fields(payload), time.monotonic()
        fields = {**run, "fn": payload["fn"]}

        def log_end(outcome: str) -> None:
            duration_s = round(time.monotonic() - began_at, 3)
            self.on_end(outcome, duration_s)
            logger.info("ended", extra={**fields, "outcome": outcome, "duration_s": duration_s})

        # A work-horse, which can be stopped, runs nothing else: its other threads log about this run too.
        with run_context(
            {**run, **trace_fields(payload)}, owns_process=self.has_own_process and self.stop is not None
        ):
            logger.info("started", extra=fields)
            return self._run(payload, log_end, is_leased)

    def _run(self, payload: Mapping[str, Any], log_end: Callable[[str], None], is_leased: bool) -> bool:
        started_at = iso(_now_ms())
        deadline_timer = DeadlineTimer(payload["timeout_s"], lambda: self._stop(payload))
        clock = self.clock or RedisClock(self.client)
        lease = Lease(
            self.client,
            clock,
            payload["leases"],
            lease_of_payload(payload),
            self.lease_s,
            on_first_renewal=lambda: self._on_first_renewal(payload, started_at, deadline_timer),
            on_superseded=lambda: self._on_superseded(payload),
            renewer=self.renewer,
        )
        if not (is_leased or retry_until_available(lease.renew, self.give_up_after_s)):
            log_end(SUPERSEDED)
            return False
        with lease, deadline_timer, StepLogWriter(self.client, clock, payload) as step_log:
            outcome, event = self._call_or_decline(payload, lease, step_log, started_at)
            lease.finish()
            if lease.is_superseded or self.is_stopped():
                log_end(SUPERSEDED)
                return False
            log_end(outcome)  # before the coordinator can react
            if outcome not in (COMPLETE, DECLINED):
                failure_logger.warning(
                    "attempt failed", extra={**log_fields(payload), "fn": payload["fn"], "kind": outcome}
                )
            if outcome == DECLINED:
                self._note_declined(payload)
            self._publish(payload, event, step_log)
        return True

    def _call_or_decline(
        self, payload: Mapping[str, Any], lease: Lease, step_log: StepLogWriter, started_at: str
    ) -> tuple[str, dict[Any, Any]]:
        """Call the executor. Returns the outcome for the log, and the fields of the event to publish."""
        try:
            output, error = self._call(payload, lease, step_log)
        except ExecutorNotFound as missing:
            logger.info("declined: %s", missing, extra=log_fields(payload))
            executor = payload["fn"][:MAX_NAME_LENGTH]
            event = DeclinedEvent(*dispatch_fields(payload), executor, self._worker_name)
            return DECLINED, event_fields(event)
        fields = {**event_fields(self._started(payload, started_at)), "type": "result"}
        result = {"output": output} if output is not None else {"error": dumps(error)}
        return COMPLETE if error is None else error["kind"], {**fields, **result}

    def _call(
        self, payload: Mapping[str, Any], lease: Lease, step_log: StepLogWriter
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Call the executor. Returns its output as JSON text, or the failure. Raises ExecutorNotFound to
        decline the step."""
        payloads = JobPayloads(self.client, payload, self.payloads, self.give_up_after_s, self.settings)
        return invoke(StepCall(self, payload, payloads, lease, step_log))

    def on_silence(self, payload: Mapping[str, Any], lease: Lease) -> None:
        """The executor hangs: report the dispatch as lost, and stop the run if it can be stopped.

        If the executor returns at this moment, its result may be published too. The token lets only one of
        the two count.
        """
        lease.give_up()
        reason = f"its executor sent no heartbeat for {payload['heartbeat_s']:g} s"
        logger.warning("%s: %s", _describe_run(payload), reason, extra=log_fields(payload))
        self._report(payload, LostEvent(*dispatch_fields(payload), reason))
        self._stop(payload)

    def _on_superseded(self, payload: Mapping[str, Any]) -> None:
        """Stop a run whose result is no longer needed: the step was reset, or its workflow has ended."""
        logger.info("superseded while running; stopping it", extra=log_fields(payload))
        self._stop(payload)

    def _stop(self, payload: Mapping[str, Any]) -> None:
        if self.stop is not None:
            self.stop(payload["job_id"])

    def _note_declined(self, payload: Mapping[str, Any]) -> None:
        """Note the step for a worker that has its executor. Without the note the step only waits longer."""
        keys = Keys.from_leases_key(payload["leases"])
        try:
            with translate_errors():
                queue: Any = self.client.hget(Keys.rq_job(payload["job_id"]), "origin")
                names = (payload["fn"], payload["execution"], payload["step"], payload["events"])
                note_declined(self.client, keys, DeclinedStep(queue or "", *names))
        except (Unavailable, RedisError) as error:
            logger.warning("cannot note that %s was declined: %s", _describe_run(payload), error)

    def _publish(self, payload: Mapping[str, Any], fields: dict[Any, Any], step_log: StepLogWriter) -> None:
        if self.on_result is not None and step_log.close():
            self.on_result(payload, fields)
            return
        retry_until_available(
            lambda: step_log.send(payload["events"], fields),
            self.give_up_after_s,
            on_wait=lambda cause: logger.warning(
                "cannot publish the result of %s yet; retrying: %s",
                _describe_run(payload),
                cause,
                extra=log_fields(payload),
            ),
        )

    def _on_first_renewal(
        self, payload: Mapping[str, Any], started_at: str, deadline_timer: DeadlineTimer
    ) -> None:
        """Report that a longer step has started, and start the timer that stops it after its deadline."""
        self._report(payload, self._started(payload, started_at))
        if self.stop is not None:
            deadline_timer.start()

    def _started(self, payload: Mapping[str, Any], started_at: str) -> StartedEvent:
        """The event that identifies this run; the result event has the same fields and the result."""
        return StartedEvent(*dispatch_fields(payload), self._worker_name, started_at)

    @property
    def _worker_name(self) -> str:
        return self.worker or f"{socket.gethostname()}:{os.getpid()}"

    def _report(self, payload: Mapping[str, Any], event: StartedEvent | LostEvent) -> None:
        """Publish an event once. If that fails, the lease shows the same later, so it is not retried.

        A lost run ends by itself. Removing `worker_name` keeps RQ from sending a stop command for it: RQ
        would look for a work-horse that has just ended, and hit the worker itself.
        """
        fields: dict[Any, Any] = dict(event_fields(event))
        try:
            with translate_errors(), self.client.pipeline(transaction=True) as pipe:
                if isinstance(event, LostEvent):
                    pipe.hdel(Keys.rq_job(payload["job_id"]), "worker_name")
                pipe.xadd(payload["events"], fields)
                pipe.execute()
        except Unavailable as error:
            args = (fields["type"], _describe_run(payload), error)
            logger.warning("cannot report the %s event of %s: %s", *args, extra=log_fields(payload))


class DeadlineTimer:
    """Stops a run that exceeds its timeout; leaving the block cancels the timer."""

    def __init__(self, timeout_s: float | None, stop: Callable[[], None]) -> None:
        self._timeout_s, self._stop = timeout_s, stop
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        if self._timeout_s is not None:
            self._timer = threading.Timer(self._timeout_s + DEADLINE_GRACE_S, self._stop)
            self._timer.name, self._timer.daemon = "deadline", True
            self._timer.start()

    def __enter__(self) -> DeadlineTimer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def dispatch_fields(payload: Mapping[str, Any]) -> tuple[str, str, int, int, str]:
    """The fields that identify a dispatch, in the order of the event classes and lease entries."""
    return payload["execution"], payload["step"], payload["run_id"], payload["attempt"], payload["token"]


def _describe_run(payload: Mapping[str, Any]) -> str:
    """The run as text for a warning: a stock `rq worker` does not show structured fields."""
    return f"{payload['execution']} {payload['step']} run {payload['run_id']} attempt {payload['attempt']}"


def _now_ms() -> int:
    return round(time.time() * 1000)
