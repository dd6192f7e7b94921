"""InProcessWorker: runs the jobs of a runner in this process. Its executors are plain functions.

    take_pending_jobs -> invoke -> submit

The inputs of an executor and its output share nothing with a record: the inputs are the job's own copy, and
the output goes through JSON. An exception of an executor is the result of its attempt. The timeout of a step
is not enforced, because a function of this process cannot be stopped. For the same reason a heartbeat only
notes the time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
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
from orchestrator.backend.ports import Runner, StepLogStore, Store
from orchestrator.backend.results import as_result_runner
from orchestrator.invocation.executors import ExecutorSource, find_executor, resolve_executors
from orchestrator.invocation.invoke import Call, Failure, Result, invoke
from orchestrator.invocation.parameters import build_context
from orchestrator.settings import Settings

logger = logging.getLogger(__name__)


class InProcessWorker:
    def __init__(
        self,
        runner: Runner,
        execute: ExecutorSource,
        *,
        clock: Callable[[], int] = now_ms,
        name: str | None = None,
        store: Store | None = None,
        payloads: PayloadStore | None = None,
        settings: Settings | None = None,
        secrets: ReadSecret | None = None,
    ) -> None:
        """`execute` has the executors, as `executor` of Backend. `store` keeps the step log if it can;
        otherwise the lines are only logged. `payloads` keeps large values; by default the runner's payload
        store does. `settings` are read from the environment by default, and so are secrets, unless `secrets`
        reads them."""
        self._runner, self._clock = as_result_runner(runner), clock
        self._execute = resolve_executors(execute)
        self._step_log_store = store if isinstance(store, StepLogStore) else None
        self._payloads, self._own_payloads = payloads, MemoryPayloads()
        self._settings = settings if settings is not None else Settings.from_environment()
        self._read_secret = secrets
        self._name = name or os.uname().nodename

    def run(self, workflow_execution_id: str | None = None) -> None:
        """Run every job that is pending now, of any execution, in the order of dispatch."""
        jobs = self._runner.take_pending_jobs()
        for position, job in enumerate(jobs):
            try:
                self._runner.submit(self._run_job(job))
            except BaseException:  # this worker must stop: the jobs that it has taken become pending again
                self._runner.return_jobs(jobs[position:])
                raise

    def _run_job(self, job: DispatchJob) -> ResultEvent:
        started_ms = self._clock()
        text, error = invoke(_JobCall(self, job, started_ms))
        return ResultEvent(
            workflow_execution_id=job.workflow_execution_id,
            step_id=job.step_id,
            output=None if text is None else json.loads(text),
            error=error,
            run_id=job.run_id,
            attempt=job.attempt,
            token=job.token,
            worker=self._name,
            started_at=iso(started_ms),
        )

    def _payload_store(self) -> PayloadStore:
        return self._payloads or find_payloads(self._runner) or self._own_payloads


class _JobCall(Call):
    """The call of one job by an InProcessWorker."""

    def __init__(self, worker: InProcessWorker, job: DispatchJob, started_ms: int) -> None:
        self.step_id, self.fn = job.step_id, job.fn
        self.source, self.heartbeat_s = job.source, job.heartbeat_s
        self.secrets, self.redact, self.max_output_bytes = job.secrets, job.redact, job.max_output_bytes
        self.settings = worker._settings
        self._worker, self._job, self._started_ms = worker, job, started_ms
        self._step_log_limiter: StepLogLimiter | None = None

    def find_executor(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return find_executor(self._worker._execute, self.fn)

    def load_inputs(self) -> tuple[dict[str, Any], Failure | None]:
        return load_job_inputs(self._job, self._worker._payload_store, self.settings.payload_max_bytes)

    def read_secret(self, name: str) -> str:
        if self._worker._read_secret is None:
            return super().read_secret(name)
        return self._worker._read_secret(name)

    def clock(self) -> float:
        return self._worker._clock()

    def build_context(self) -> dict[str, Any]:
        job = self._job
        deadline = None if job.timeout_s is None else iso(self._started_ms + round(job.timeout_s * 1000))
        return build_context(
            job.workflow_execution_id,
            job.step_id,
            run_id=job.run_id,
            attempt=job.attempt,
            round=job.round,
            iteration=job.iteration,
            idempotency_key=job.idempotency_key,
            deadline=deadline,
        )

    def log(self, text: str) -> None:
        logger.info("%s", text)
        self.keep_note(text)

    def log_heartbeat(self, text: str) -> None:
        logger.debug("heartbeat: %s", text)

    def keep_note(self, text: str) -> None:
        """Add a text to the step log. If the store cannot keep it, the step does not fail."""
        store, job = self._worker._step_log_store, self._job
        if store is None:
            return
        limiter = self._step_log_limiter = self._step_log_limiter or StepLogLimiter()
        at = iso(self._worker._clock())
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
        return store_large_output(text, self._job, self._worker._payload_store, max_bytes)
