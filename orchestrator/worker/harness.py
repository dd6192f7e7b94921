"""The harness: a DispatchJob in, a ResultEvent out; no executor can break it.

    take the lease -> find the executor -> call it -> publish what it brought -> return to RQ

It publishes before it returns, and waits with back-off while Redis is away, so RQ's own bookkeeping can
fail in any way without losing a result. It never raises: what RQ calls a failed job is a dead work-horse.

    died while            what is left                            who repairs it
    taking the lease      a lease entry nobody beats              the sweep, after the lease
    calling the executor  the same, and a failed job in RQ        the sweep, within a second
    publishing            the same, or a result already out       the sweep; the token refuses a second result
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from rq import get_current_job
from rq.timeouts import JobTimeoutException

from orchestrator.application.errors import BadConfiguration, OrchestratorError, RejectedByWorker, Unavailable
from orchestrator.application.records.events import LostEvent, StartedEvent, failure, iso
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.invocation.arguments import CallArguments, resolve_arguments
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.exceptions import describe_exception
from orchestrator.invocation.output import encode_output
from orchestrator.invocation.parameters import (
    Heartbeat,
    build_context,
    check_requested_parameters,
    evaluate,
    find_requested_parameters,
)
from orchestrator.invocation.secret_store import read_secret
from orchestrator.logs import run_context
from orchestrator.redis_rq.connection import Client, connect_like, retry_until_available, translate_errors
from orchestrator.redis_rq.event_codec import dumps, event_fields
from orchestrator.redis_rq.job_codec import build_payload, lease_of_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.executors.lookup import Executor, Executors
from orchestrator.worker.fork_guard import exit_if_forked
from orchestrator.worker.heartbeat_watchdog import HeartbeatWatchdog
from orchestrator.worker.lease import LEASE_S, Lease, LeaseRenewer, RedisClock
from orchestrator.worker.log_scrubbing import scrub_logs
from orchestrator.worker.memory_limit import limit_memory
from orchestrator.worker.payloads import JobPayloads
from orchestrator.worker.step_log import StepLogWriter

logger = logging.getLogger(__name__)

GIVE_UP_AFTER_S = 3_600.0
DEADLINE_GRACE_S = 1.0
"""How long after its deadline a step may still run: by then the record has given it up."""
EXECUTORS_VARIABLE = "ORCHESTRATOR_EXECUTORS"
LEASE_VARIABLE = "ORCHESTRATOR_LEASE_S"


def run_step(*given: Any, **options: Any) -> None:
    """What every job of ours calls, under any RQ worker; executors are named by an environment variable."""
    job = get_current_job()
    assert job is not None, "run_step is called by an RQ worker"
    job.result_ttl = 0  # it leaves nothing behind
    payload, client = build_payload(given, options, job.description or ""), connect_like(job.connection)
    # A work-horse runs this one job and may be killed with it; a worker that does not fork may not.
    is_horse = os.environ.get("RQ_JOB_ID") == job.id
    stop = _die if is_horse else None
    if is_horse:
        limit_memory()
    try:
        harness = Harness(client, EnvironmentExecutors(), lease_s=lease_from_environment(), stop=stop)
        harness.run(payload)
    finally:
        client.close()


def _die(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class ExecutorLookup(Protocol):
    """Whatever knows executors by name."""

    def find(self, fn: str) -> Executor: ...


class EnvironmentExecutors:
    """The executors of the named modules, which are imported when the first is asked for: a module that
    cannot be imported is then a failure of the step, with its reason, and not a dead work-horse."""

    def find(self, fn: str) -> Executor:
        return executors_from_environment().find(fn)


def executors_from_environment() -> Executors:
    return _executors(os.environ.get(EXECUTORS_VARIABLE, ""))


@lru_cache(maxsize=8)
def _executors(named: str) -> Executors:
    return Executors(modules=[name.strip() for name in named.split(",") if name.strip()])


def lease_from_environment() -> float:
    try:
        return float(os.environ.get(LEASE_VARIABLE, LEASE_S))
    except ValueError as error:
        logger.warning("%s is not a number, %g s are taken: %s", LEASE_VARIABLE, LEASE_S, error)
        return LEASE_S


@dataclass(frozen=True, slots=True)
class Harness:
    client: Client
    executors: ExecutorLookup
    clock: RedisClock | None = None
    worker: str = ""
    lease_s: float = LEASE_S
    give_up_after_s: float = GIVE_UP_AFTER_S
    stop: Callable[[str], object] | None = None
    """Ends the run of a token from outside, if anything can."""
    is_stopped: Callable[[], bool] = lambda: False
    await_result: Callable[[Any], Any] = await_result
    has_own_process: bool = True
    """Whether a run that can be stopped has its process for itself."""
    payloads: PayloadStore | None = None
    """Where large values are; by default where the environment says."""
    renewer: LeaseRenewer = field(default_factory=LeaseRenewer)
    hand_in: Callable[[Mapping[str, Any], Mapping[str, str]], None] | None = None
    """Takes the event that a run ends with, to publish it. By default it is published here, and so it is when
    there is still something to write before it."""

    def run(self, payload: Mapping[str, Any], *, is_leased: bool = False) -> bool:
        """Run one job, whose lease whoever took it may have taken already; False when it was superseded and
        nothing was published."""
        run, began = log_fields(payload), time.monotonic()
        told = {**run, "fn": payload["fn"]}

        def log_end(outcome: str) -> None:
            duration_s = round(time.monotonic() - began, 3)
            logger.info("ended", extra={**told, "outcome": outcome, "duration_s": duration_s})

        # A work-horse, which can be stopped, runs nothing else: what its threads log is of this run too.
        with run_context(run, alone=self.has_own_process and self.stop is not None):
            logger.info("started", extra=told)
            return self._run(payload, log_end, is_leased)

    def _run(self, payload: Mapping[str, Any], log_end: Callable[[str], None], is_leased: bool) -> bool:
        started_at, deadline_timer = (
            iso(_now_ms()),
            DeadlineTimer(payload["timeout_s"], lambda: self._stop(payload)),
        )
        clock = self.clock or RedisClock(self.client)
        lease = Lease(
            self.client,
            clock,
            payload["leases"],
            lease_of_payload(payload),
            self.lease_s,
            on_first_beat=lambda: self._on_first_beat(payload, started_at, deadline_timer),
            on_superseded=lambda: self._on_superseded(payload),
            renewer=self.renewer,
        )
        if not (is_leased or retry_until_available(lease.begin, self.give_up_after_s)):
            log_end("superseded")
            return False
        with lease, deadline_timer, StepLogWriter(self.client, clock, payload) as step_log:
            output, error = self._call(payload, lease, step_log)
            lease.finish()
            if lease.is_superseded or self.is_stopped():
                log_end("superseded")
                return False
            log_end("complete" if error is None else error["kind"])  # before anybody can answer to it
            self._publish(payload, output, error, started_at, step_log)
        return True

    def _call(
        self, payload: Mapping[str, Any], lease: Lease, step_log: StepLogWriter
    ) -> tuple[str | None, dict[str, Any] | None]:
        """The output as JSON text, or the failure."""
        large = JobPayloads(self.client, payload, self.payloads, self.give_up_after_s)
        try:
            executor = self.executors.find(payload["fn"])
            named = find_requested_parameters(executor, 1)
            source = payload.get("source")
            check_requested_parameters(
                named, payload["step"], payload["fn"], payload.get("heartbeat_s"), source
            )
            inputs, missing = large.load()
            if missing is not None:
                return None, missing
            told = {name: payload[name] for name in ("secrets", "redact") if name in payload}
            given = resolve_arguments(inputs, source, os.environ, read_secret, **told)
        except BadConfiguration as error:
            return None, failure("expression", str(error))
        except RejectedByWorker as error:
            return None, failure("refused", str(error), type(error).__name__)
        except OrchestratorError as error:
            return None, failure("exception", str(error), type(error).__name__)
        except Exception as error:
            return None, describe_exception(error)
        hide = given.text_redactor.text
        offered = self._offered(payload, given, lease, step_log) if named else {}
        process = os.getpid()
        try:
            with self._watch(payload, offered.get("heartbeat"), lease), scrub_logs(given.text_redactor):
                output = self.await_result(executor(given.inputs, **{name: offered[name] for name in named}))
        except JobTimeoutException as error:
            return None, failure("timeout", str(error))
        except KeyboardInterrupt as error:
            if self.stop is None:
                raise  # there may be somebody at the keyboard
            return None, describe_exception(error, hide)
        except BaseException as error:  # sys.exit() and the like end a step, not its worker
            return None, describe_exception(error, hide)
        finally:
            exit_if_forked(process)
        return encode_output(output, payload["max_output_bytes"], hide, given.outputs, large.offload)

    def _offered(
        self, payload: Mapping[str, Any], given: CallArguments, lease: Lease, step_log: StepLogWriter
    ) -> dict[str, Any]:
        """All that an executor may name, for one that is called now."""
        hide, run = given.text_redactor.text, log_fields(payload)

        def log(text: Any) -> None:
            shown = hide(str(text))
            logger.info("%s", shown, extra=run)
            step_log.append(shown)

        return {
            "heartbeat": Heartbeat(
                time.monotonic,
                lambda said: logger.debug("heartbeat: %s", hide(said), extra=run),
                lambda said: step_log.append(hide(said)),
            ),
            "configuration": given.configuration,
            "context": _context_of(payload),
            "log": log,
            "cancelled": lambda: lease.is_superseded or self.is_stopped(),
            "evaluate": evaluate,
        }

    def _watch(
        self, payload: Mapping[str, Any], heartbeat: Heartbeat | None, lease: Lease
    ) -> AbstractContextManager[Any]:
        within_s = payload.get("heartbeat_s")
        if within_s is None or heartbeat is None:
            return nullcontext()
        return HeartbeatWatchdog(heartbeat, within_s, lambda: self._on_silence(payload, lease))

    def _on_silence(self, payload: Mapping[str, Any], lease: Lease) -> None:
        """Its executor hangs: say that the dispatch is lost, and stop it if it can be stopped.

        If it returns in this very moment, its result may be out too: the token lets one of the two count.
        """
        lease.give_up()
        reason = f"its executor did not report for {payload['heartbeat_s']:g} s"
        logger.warning("%s: %s", _name(payload), reason, extra=log_fields(payload))
        self._tell(payload, LostEvent(*dispatch_fields(payload), reason))
        self._stop(payload)

    def _on_superseded(self, payload: Mapping[str, Any]) -> None:
        """Nobody waits for this step any more: it was reset, or its workflow has ended. Stop it."""
        logger.info("superseded while it runs", extra=log_fields(payload))
        self._stop(payload)

    def _stop(self, payload: Mapping[str, Any]) -> None:
        if self.stop is not None:
            self.stop(payload["token"])

    def _publish(
        self,
        payload: Mapping[str, Any],
        output: str | None,
        error: dict[str, Any] | None,
        started_at: str,
        step_log: StepLogWriter,
    ) -> None:
        fields: dict[Any, Any] = event_fields(self._started(payload, started_at))
        brought = {"output": output} if output is not None else {"error": dumps(error)}
        fields |= {"type": "result", **brought}
        if self.hand_in is not None and step_log.close():
            self.hand_in(payload, fields)
            return
        retry_until_available(
            lambda: step_log.send(payload["events"], fields),
            self.give_up_after_s,
            on_wait=lambda cause: logger.warning(
                "cannot publish %s yet: %s", _name(payload), cause, extra=log_fields(payload)
            ),
        )

    def _on_first_beat(
        self, payload: Mapping[str, Any], started_at: str, deadline_timer: DeadlineTimer
    ) -> None:
        """A step that takes its time: its deadline begins, and who is still running after it is stopped."""
        self._tell(payload, self._started(payload, started_at))
        if self.stop is not None:
            deadline_timer.begin()

    def _started(self, payload: Mapping[str, Any], started_at: str) -> StartedEvent:
        """Which run this is; its result says the same, and what it brought."""
        return StartedEvent(*dispatch_fields(payload), self.worker or _worker_name(), started_at)

    def _tell(self, payload: Mapping[str, Any], event: StartedEvent | LostEvent) -> None:
        """Publish what the lease would tell too, only later: it need not be tried again.

        Who is lost ends by itself. Its worker is not to be told to stop it: RQ, which looks for a work-horse
        that has just ended, takes aim at the worker.
        """
        fields: dict[Any, Any] = dict(event_fields(event))
        try:
            with translate_errors(), self.client.pipeline(transaction=True) as pipe:
                if isinstance(event, LostEvent):
                    pipe.hdel(Keys.rq_job(payload["token"]), "worker_name")
                pipe.xadd(payload["events"], fields)
                pipe.execute()
        except Unavailable as error:
            words = (_name(payload), fields["type"], error)
            logger.warning("cannot report %s as %s: %s", *words, extra=log_fields(payload))


class DeadlineTimer:
    """Stops a run that outlives its timeout; only for as long as the block lasts."""

    def __init__(self, timeout_s: float | None, stop: Callable[[], None]) -> None:
        self._timeout_s, self._stop = timeout_s, stop
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        if self._timeout_s is not None:
            self._timer = threading.Timer(self._timeout_s + DEADLINE_GRACE_S, self._stop)
            self._timer.name, self._timer.daemon = "overdue", True
            self._timer.start()

    def __enter__(self) -> DeadlineTimer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def dispatch_fields(payload: Mapping[str, Any]) -> tuple[str, str, int, int, str]:
    """Which dispatch this is, in the order in which events and leases name it."""
    return payload["execution"], payload["step"], payload["run_id"], payload["attempt"], payload["token"]


def log_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What the lines of the log say of a run."""
    return {
        "execution": payload["execution"],
        "step": payload["step"],
        "run_id": payload["run_id"],
        "attempt": payload["attempt"],
    }


def _name(payload: Mapping[str, Any]) -> str:
    """In the words of a warning, since a stock `rq worker` shows no fields."""
    return f"{payload['execution']} {payload['step']} run {payload['run_id']} attempt {payload['attempt']}"


def _context_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """For an executor that is called now."""
    timeout_s = payload["timeout_s"]
    return build_context(
        payload["execution"],
        payload["step"],
        run_id=payload["run_id"],
        attempt=payload["attempt"],
        round=payload["round"],
        iteration=payload["iteration"],
        idempotency_key=payload["key"],
        deadline=None if timeout_s is None else iso(_now_ms() + round(timeout_s * 1000)),
    )


def _now_ms() -> int:
    return round(time.time() * 1000)


def _worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
