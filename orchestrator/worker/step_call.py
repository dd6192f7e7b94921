"""StepCall: the call of one executor by the harness, with its lease, payloads, step log and watchdog.

The work-horse of every step imports this: it must load nothing heavy.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rq.timeouts import JobTimeoutException

from orchestrator.application.records.events import iso
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.application.values.trace_context import context_of_attempt
from orchestrator.invocation.executors import Executor
from orchestrator.invocation.invoke import Call, Failure, Result
from orchestrator.invocation.parameters import Heartbeat, build_context
from orchestrator.settings import Settings
from orchestrator.worker.fork_guard import exit_if_forked
from orchestrator.worker.heartbeat_watchdog import HeartbeatWatchdog
from orchestrator.worker.lease import Lease
from orchestrator.worker.log_scrubbing import scrub_logs
from orchestrator.worker.memory_limit import describe_memory_limit
from orchestrator.worker.payloads import JobPayloads
from orchestrator.worker.printed_lines import PrintedLines
from orchestrator.worker.step_log import StepLogWriter

logger = logging.getLogger("orchestrator.worker.harness")  # one logger name for all lines of a run


class CallHost(Protocol):
    """The part of a harness that a call uses."""

    @property
    def settings(self) -> Settings: ...

    @property
    def executors(self) -> ExecutorLookup: ...

    @property
    def declines(self) -> bool: ...

    @property
    def await_result(self) -> Callable[[Any], Any]: ...

    @property
    def stop(self) -> Callable[[str], object] | None: ...

    @property
    def has_own_process(self) -> bool: ...

    @property
    def is_stopped(self) -> Callable[[], bool]: ...

    @property
    def on_executor(self) -> Callable[[str, bool], Any]: ...

    def on_silence(self, payload: Mapping[str, Any], lease: Lease) -> None:
        """Called when the executor sends no heartbeat in time."""
        ...


class ExecutorLookup(Protocol):
    """Finds an executor by its name."""

    def find(self, fn: str) -> Executor: ...


class StepCall(Call):
    timeout_errors = (JobTimeoutException,)

    def __init__(
        self,
        host: CallHost,
        payload: Mapping[str, Any],
        payloads: JobPayloads,
        lease: Lease,
        step_log: StepLogWriter,
    ) -> None:
        self.step_id, self.fn = payload["step"], payload["fn"]
        self.source, self.heartbeat_s = payload.get("source"), payload.get("heartbeat_s")
        self.secrets, self.redact = payload.get("secrets", ()), payload.get("redact", ())
        self.max_output_bytes = payload["max_output_bytes"]
        self.settings, self.declines = host.settings, host.declines
        self._host, self._payload, self._payloads = host, payload, payloads
        self._lease, self._step_log = lease, step_log
        self._process = os.getpid()

    def find_executor(self) -> tuple[Executor, tuple[Any, ...]]:
        return self._host.executors.find(self.fn), ()

    def load_inputs(self) -> tuple[dict[str, Any], Failure | None]:
        return self._payloads.load()

    def clock(self) -> float:
        return time.monotonic()

    def build_context(self) -> dict[str, Any]:
        """The `context` parameter for a call that starts now; its deadline counts from now."""
        payload, timeout_s = self._payload, self._payload["timeout_s"]
        now_ms = round(time.time() * 1000)
        return build_context(
            payload["execution"],
            payload["step"],
            run_id=payload["run_id"],
            attempt=payload["attempt"],
            round=payload["round"],
            iteration=payload["iteration"],
            idempotency_key=payload["key"],
            deadline=None if timeout_s is None else iso(now_ms + round(timeout_s * 1000)),
            traceparent=payload.get("traceparent"),
        )

    def log(self, text: str) -> None:
        logger.info("%s", text, extra=log_fields(self._payload))
        self._step_log.append(text)

    def log_heartbeat(self, text: str) -> None:
        logger.debug("heartbeat: %s", text, extra=log_fields(self._payload))

    def keep_note(self, text: str) -> None:
        self._step_log.append(text)

    def is_cancelled(self) -> bool:
        return self._lease.is_superseded or self._host.is_stopped()

    def watch(self, heartbeat: Heartbeat | None) -> AbstractContextManager[Any] | None:
        """The executor begins. Watch its heartbeats, if the step requires them."""
        self._host.on_executor(self._payload["job_id"], True)
        if self.heartbeat_s is None or heartbeat is None:
            return None
        return HeartbeatWatchdog(
            heartbeat, self.heartbeat_s, lambda: self._host.on_silence(self._payload, self._lease)
        )

    def scrub_logs(self, redactor: ValueRedactor) -> AbstractContextManager[Any] | None:
        if self.settings.keep_prints == "on":
            owns_process = self._host.has_own_process and self._host.stop is not None
            return PrintedLines(self._step_log.append, redactor, owns_process=owns_process)
        return scrub_logs(redactor) if redactor else None

    def await_result(self, returned: Any) -> Any:
        return self._host.await_result(returned)

    def is_fatal(self, error: BaseException) -> bool:
        # A process whose runs cannot be stopped may have a terminal, and the user pressed Ctrl-C.
        # By type(error): isinstance would read __class__, and an exception may raise at every access.
        return issubclass(type(error), KeyboardInterrupt) and self._host.stop is None

    def explain_memory_error(self) -> str:
        return describe_memory_limit()

    def after_call(self) -> None:
        exit_if_forked(self._process)
        self._host.on_executor(self._payload["job_id"], False)

    def offload(self, text: str) -> Result:
        return self._payloads.offload(text)


def trace_fields(payload: Mapping[str, Any]) -> dict[str, str]:
    """The trace and the span of a run, as log fields."""
    ids = (payload[name] for name in ("execution", "step", "run_id", "attempt"))
    span = context_of_attempt(*ids, payload.get("traceparent"))
    return {"trace_id": span.trace_id, "span_id": span.span_id}


def log_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The structured log fields of a run."""
    return {
        "execution": payload["execution"],
        "step": payload["step"],
        "run_id": payload["run_id"],
        "attempt": payload["attempt"],
    }
