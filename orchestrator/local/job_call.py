"""JobCall: the call of one job in this process, and CallEnvironment: what all such calls share."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import StoreError
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, iso
from orchestrator.application.records.step_log import LogLine, StepLogLimiter
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.application.values.secret_refs import ReadSecret
from orchestrator.backend.ids import now_ms
from orchestrator.backend.payloads import (
    MemoryPayloads,
    find_payloads,
    load_job_inputs,
    store_large_output,
)
from orchestrator.backend.ports import StepLogStore
from orchestrator.backend.results import ResultRunner
from orchestrator.invocation.executors import Executors, find_executor
from orchestrator.invocation.invoke import Call, Failure, Result
from orchestrator.invocation.parameters import build_context
from orchestrator.settings import Settings

logger = logging.getLogger("orchestrator.local.worker")  # one logger name for all lines of a step

_decode = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class CallEnvironment:
    """What all calls of one worker or backend share. `payloads` keeps large values; by default the runner's
    payload store does. `read_secret` reads the environment by default. `short_executors` are the names of the
    executors whose last call in a thread was short."""

    runner: ResultRunner
    executors: Callable[..., Any] | Executors
    clock: Callable[[], int] = now_ms
    step_log_store: StepLogStore | None = None
    payloads: PayloadStore | None = None
    settings: Settings = field(default_factory=Settings.from_environment)
    read_secret: ReadSecret | None = None
    worker: str = field(default_factory=lambda: os.uname().nodename)
    short_executors: set[str] = field(default_factory=set)
    _own_payloads: MemoryPayloads = field(default_factory=MemoryPayloads)

    def payload_store(self) -> PayloadStore:
        return self.payloads or find_payloads(self.runner) or self._own_payloads

    def make_result(self, job: DispatchJob, started_ms: int, result: Result) -> ResultEvent:
        text, error = result
        return ResultEvent(
            workflow_execution_id=job.workflow_execution_id,
            step_id=job.step_id,
            output=None if text is None else _decode(text)[0],
            error=error,
            run_id=job.run_id,
            attempt=job.attempt,
            token=job.token,
            worker=self.worker,
            started_at=iso(started_ms),
        )


class JobCall(Call):
    """The call of one job."""

    def __init__(self, environment: CallEnvironment, job: DispatchJob, started_ms: int) -> None:
        self.step_id, self.fn = job.step_id, job.fn
        self.source, self.heartbeat_s = job.source, job.heartbeat_s
        self.secrets, self.redact, self.max_output_bytes = job.secrets, job.redact, job.max_output_bytes
        self.settings = environment.settings
        self.environment, self.job, self.started_ms = environment, job, started_ms
        self._step_log_limiter: StepLogLimiter | None = None

    def find_executor(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return find_executor(self.environment.executors, self.fn)

    def load_inputs(self) -> tuple[dict[str, Any], Failure | None]:
        return load_job_inputs(self.job, self.environment.payload_store, self.settings.payload_max_bytes)

    def read_secret(self, name: str) -> str:
        if self.environment.read_secret is None:
            return super().read_secret(name)
        return self.environment.read_secret(name)

    def clock(self) -> float:
        return self.environment.clock()

    def build_context(self) -> dict[str, Any]:
        return build_job_context(self.job, self.started_ms)

    def log(self, text: str) -> None:
        logger.info("%s", text)
        self.keep_note(text)

    def log_heartbeat(self, text: str) -> None:
        logger.debug("heartbeat: %s", text)

    def keep_note(self, text: str) -> None:
        """Add a text to the step log. If the store cannot keep it, the step does not fail."""
        store, job = self.environment.step_log_store, self.job
        if store is None:
            return
        limiter = self._step_log_limiter = self._step_log_limiter or StepLogLimiter()
        at = iso(self.environment.clock())
        lines = [LogLine(job.step_id, job.run_id, job.attempt, at, one) for one in limiter.accept(text)]
        try:
            store.add_log_lines(job.workflow_execution_id, lines)
        except StoreError as error:
            logger.warning("cannot store the log lines of step %s: %s", job.step_id, error)

    def is_fatal(self, error: BaseException) -> bool:
        # Not isinstance(): it reads __class__, which an exception may define.
        return not issubclass(type(error), Exception | SystemExit)

    def offload(self, text: str) -> Result:
        max_bytes = self.settings.payload_max_bytes
        return store_large_output(text, self.job, self.environment.payload_store, max_bytes)


def build_job_context(job: DispatchJob, started_ms: int) -> dict[str, Any]:
    """The `context` parameter of a call that started at this time."""
    deadline = None if job.timeout_s is None else iso(started_ms + round(job.timeout_s * 1000))
    return build_context(
        job.workflow_execution_id,
        job.step_id,
        run_id=job.run_id,
        attempt=job.attempt,
        round=job.round,
        iteration=job.iteration,
        idempotency_key=job.idempotency_key,
        deadline=deadline,
        traceparent=job.traceparent,
    )
