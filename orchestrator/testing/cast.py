"""The cast: who performs a job, an executor or a mock, and all calls that there were.

A rehearsal posts nothing: a webhook that no mock answers for counts as delivered, and its call is noted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.application.errors import SecretNotFound
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.spec.model import WEBHOOK, StepSpec
from orchestrator.application.values.payload_refs import Payloads
from orchestrator.backend.memory import InProcessRunner
from orchestrator.backend.worker import InProcessWorker
from orchestrator.invocation.secret_store import read_secret
from orchestrator.invocation.source_config import ALLOWED_VARIABLE
from orchestrator.testing.calls import Call, names_of
from orchestrator.testing.documents import Company, Function
from orchestrator.testing.errors import MockMissing, unknown
from orchestrator.testing.mocks import Mock, OfTheTest

WORKER = "rehearsal"
"""The name of the worker, as records have it."""


class Cast:
    def __init__(self, company: Company, steps: Iterable[StepSpec]) -> None:
        self._company, self._mocks = company, dict[str, Mock]()
        self._steps = list(steps)
        self.calls: list[Call] = []

    def add(self, mock: Mock) -> Mock:
        self.check(mock.name)
        self._mocks[mock.name] = mock
        return mock

    def check(self, name: str) -> None:
        """Refuse a name that means no step and no executor of these workflows."""
        executors = [step.fn for step in self._steps if step.fn]
        executors += [step.compensate.fn for step in self._steps if step.compensate is not None]
        self._check("no step and no executor is called", name, executors)

    def check_step(self, name: str) -> None:
        self._check("there is no step", name)

    def _check(self, what: str, name: str, others: Iterable[str] = ()) -> None:
        known = [*(step.id for step in self._steps), *others]
        if name not in known and name.partition("#")[0] not in known:
            raise unknown(what, name, known)

    def perform(
        self, job: DispatchJob, clock: Callable[[], int], payloads: Payloads
    ) -> tuple[int, ResultEvent]:
        """Call who is to be called, as a worker does: how long that takes, and what it brings."""
        call = Call(job, clock())
        mock = next((self._mocks[n] for n in names_of(job.step_id, job.fn) if n in self._mocks), None)
        function = mock or (_post_nothing if job.step_id == WEBHOOK else self._company.find(job.fn))
        if function is None:
            raise MockMissing(job.step_id, job.fn)
        result = _result(job, function, clock, payloads)
        self.calls.append(call)
        if mock is None:
            return 0, result
        mock.calls.append(call)
        return mock.takes_ms, result


def _secret(name: str) -> str:
    """What a worker would find here, or else a text that is made up: nobody rehearses with real secrets."""
    try:
        return read_secret(name)
    except SecretNotFound:
        return f"secret:{name}"


def _post_nothing(inputs: dict[str, Any]) -> None:
    """Delivered."""


def _result(
    job: DispatchJob, function: Function, clock: Callable[[], int], payloads: Payloads
) -> ResultEvent:
    desk = InProcessRunner(payloads)
    desk.dispatch(job.workflow_execution_id, [job])
    try:
        InProcessWorker(
            desk,
            {job.fn: function},
            clock=clock,
            name=WORKER,
            environment={**os.environ, ALLOWED_VARIABLE: "*"},  # a test may read what it likes
            secrets=_secret,
        ).run()
    except OfTheTest as passed:
        raise passed.error from passed.error.__cause__
    [result] = desk.results(job.workflow_execution_id)
    return result
