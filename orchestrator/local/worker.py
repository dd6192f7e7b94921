"""InProcessWorker: runs the jobs of a runner in this thread, one after another.

    take_pending_jobs -> invoke -> submit

The inputs of an executor and its output share nothing with a record: the inputs are the job's own copy, and
the output goes through JSON. An exception of an executor is the result of its attempt. The timeout of a step
is not enforced, because a function cannot be stopped by its own thread. For the same reason a heartbeat only
notes the time. Workflow.run() without a worker enforces both: see run_loop.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.application.values.secret_refs import ReadSecret
from orchestrator.backend.ids import now_ms
from orchestrator.backend.ports import Runner, StepLogStore, Store
from orchestrator.backend.results import as_result_runner
from orchestrator.invocation.executors import ExecutorSource, resolve_executors
from orchestrator.invocation.invoke import invoke
from orchestrator.local.job_call import CallEnvironment, JobCall
from orchestrator.settings import Settings


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
        self._runner = as_result_runner(runner)
        self._environment = CallEnvironment(
            self._runner,
            resolve_executors(execute),
            clock=clock,
            step_log_store=store if isinstance(store, StepLogStore) else None,
            payloads=payloads,
            settings=settings if settings is not None else Settings.from_environment(),
            read_secret=secrets,
            worker=name or os.uname().nodename,
        )

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
        started_ms = self._environment.clock()
        result = invoke(JobCall(self._environment, job, started_ms))
        return self._environment.make_result(job, started_ms, result)
