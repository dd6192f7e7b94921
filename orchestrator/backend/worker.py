"""The worker harness for one process: between a runner and plain functions.

    take_pending_jobs -> execute(fn, inputs) -> submit

What an executor is given and what it returns share nothing with any record: inputs are the job's own copy,
and an output goes through JSON. Whatever an executor raises is the result of its attempt. A step's timeout
is not enforced here: nobody can stop a function of one's own process. For the same reason a heartbeat only
notes the time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.application.errors import (
    BadConfiguration,
    ConfigurationMissing,
    ExecutorNotFound,
    HeartbeatMissing,
    RejectedByWorker,
    StoreError,
)
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, failure, iso
from orchestrator.application.records.step_log import LogLine, StepLogLimiter
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.application.values.secret_refs import ReadSecret
from orchestrator.backend.copies import NotJson, dumps
from orchestrator.backend.ids import now_ms
from orchestrator.backend.payloads import (
    BadInputs,
    MemoryPayloads,
    find_payloads,
    load_job_inputs,
    store_large_output,
)
from orchestrator.backend.ports import Runner, StepLogStore, Store
from orchestrator.backend.results import as_result_runner
from orchestrator.invocation.arguments import CallArguments, resolve_arguments
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.exceptions import describe_exception
from orchestrator.invocation.parameters import (
    Heartbeat,
    build_context,
    check_requested_parameters,
    evaluate,
    find_requested_parameters,
)
from orchestrator.invocation.secret_store import read_secret

logger = logging.getLogger(__name__)

ExecutorFunctions = Callable[..., Any] | Mapping[str, Callable[..., Any]]
"""One function for all names, `(fn, inputs) -> dict`, or one for each: `{fn: (inputs) -> dict}`; each may
name more parameters: `invocation/parameters.py`."""


class InProcessWorker:
    def __init__(
        self,
        runner: Runner,
        execute: ExecutorFunctions,
        *,
        clock: Callable[[], int] = now_ms,
        name: str | None = None,
        store: Store | None = None,
        payloads: PayloadStore | None = None,
        environment: Mapping[str, str] = os.environ,
        secrets: ReadSecret = read_secret,
    ) -> None:
        """`store` keeps what executors say, if it keeps lines; without one it is only logged. `payloads` keep
        large values, instead of the runner's."""
        self._runner, self._clock = as_result_runner(runner), clock
        self._execute, self._lines = execute, store if isinstance(store, StepLogStore) else None
        self._payloads, self._own = payloads, MemoryPayloads()
        self._environment, self._secrets = environment, secrets
        self._name = name or os.uname().nodename

    def run(self, workflow_execution_id: str | None = None) -> None:
        """Run every job that is pending now, of whichever execution, in the order of dispatch."""
        jobs = self._runner.take_pending_jobs()
        for position, job in enumerate(jobs):
            try:
                self._runner.submit(self._attempt(job))
            except BaseException:  # we are asked to stop, and nobody else knows what was taken
                self._runner.return_jobs(jobs[position:])
                raise

    def _attempt(self, job: DispatchJob) -> ResultEvent:
        started_ms = self._clock()
        output, error = self._call(job, started_ms)
        return ResultEvent(
            workflow_execution_id=job.workflow_execution_id,
            step_id=job.step_id,
            output=output,
            error=error,
            run_id=job.run_id,
            attempt=job.attempt,
            token=job.token,
            worker=self._name,
            started_at=iso(started_ms),
        )

    def _call(self, job: DispatchJob, started_ms: int) -> tuple[Any, dict[str, Any] | None]:
        """The output, or the failure."""
        hide: Callable[[str], str] = str
        try:
            job = load_job_inputs(job, self._large)
            executor, before = self._find(job)
            named = find_requested_parameters(executor, len(before) + 1)
            check_requested_parameters(named, job.step_id, job.fn, job.heartbeat_s, job.source)
            given = self._given(job)
            hide = lambda text: given.text_redactor.text(text)  # noqa: E731
            offered = self._offered(job, given, hide, started_ms) if named else {}
            output = await_result(executor(*before, given.inputs, **{name: offered[name] for name in named}))
            return self._checked(output, job, given.outputs), None
        except NotJson as fault:
            return None, failure("bad_output", hide(str(fault)))
        except BadInputs as fault:
            return None, fault.failure
        except BadConfiguration as fault:
            return None, failure("expression", str(fault))
        except (ExecutorNotFound, HeartbeatMissing, ConfigurationMissing) as fault:
            return None, failure("exception", str(fault), type(fault).__name__)
        except RejectedByWorker as fault:
            return None, failure("refused", str(fault), type(fault).__name__)
        except (Exception, SystemExit) as fault:
            return None, describe_exception(fault, hide)

    def _offered(
        self, job: DispatchJob, given: CallArguments, hide: Callable[[str], str], started_ms: int
    ) -> dict[str, Any]:
        """What an executor may name."""
        say = self._say(job)
        return {
            "heartbeat": Heartbeat(
                self._clock,
                lambda said: logger.debug("heartbeat: %s", hide(said)),
                lambda said: say(hide(said)),
            ),
            "configuration": given.configuration,
            "context": _context_of(job, started_ms),
            "log": lambda text: _log(hide(str(text)), say),
            "cancelled": lambda: False,
            "evaluate": evaluate,
        }

    def _say(self, job: DispatchJob) -> Callable[[str], None]:
        """Keeps what the run of a job says; that it cannot be kept is no failure of the step."""
        store, allowance = self._lines, StepLogLimiter()
        if store is None:
            return lambda text: None

        def say(text: str) -> None:
            at = iso(self._clock())
            lines = [LogLine(job.step_id, job.run_id, job.attempt, at, one) for one in allowance.lines(text)]
            try:
                store.add_log_lines(job.workflow_execution_id, lines)
            except StoreError as error:
                logger.warning("cannot keep what step %s says: %s", job.step_id, error)

        return say

    def _checked(self, output: Any, job: DispatchJob, secrets: ValueRedactor) -> Any:
        """The output as JSON brings it back, without secrets; the executor may keep what it returned."""
        if output is None:
            return None
        try:
            text = dumps(output)
            if secrets and secrets.text(text) != text:
                text = dumps(secrets.value(json.loads(text)))
        except NotJson as fault:
            raise NotJson(f"the output is not JSON: {fault}") from fault
        return json.loads(store_large_output(text, job, self._large))

    def _large(self) -> PayloadStore:
        return self._payloads or find_payloads(self._runner) or self._own

    def _find(self, job: DispatchJob) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The executor of a job, and what it is given before its inputs."""
        if callable(self._execute):
            return self._execute, (job.fn,)
        if job.fn not in self._execute:
            raise ExecutorNotFound(job.fn, self._execute)
        return self._execute[job.fn], ()

    def _given(self, job: DispatchJob) -> CallArguments:
        return resolve_arguments(
            job.inputs, job.source, self._environment, self._secrets, secrets=job.secrets, redact=job.redact
        )


def _log(text: str, say: Callable[[str], None]) -> None:
    logger.info("%s", text)
    say(text)


def _context_of(job: DispatchJob, started_ms: int) -> dict[str, Any]:
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
    )
