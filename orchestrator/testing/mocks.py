"""Mocks of executors, and the calls that executors had."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orchestrator.application.errors import SecretNotFound
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.application.values.unit_id import WEBHOOK_UNIT, UnitId, step_of
from orchestrator.backend.copies import copy_json
from orchestrator.backend.memory import InProcessRunner
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.parameters import find_requested_parameters
from orchestrator.invocation.secret_store import read_secret
from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE
from orchestrator.local.worker import InProcessWorker
from orchestrator.settings import Settings
from orchestrator.testing.clock import to_datetime
from orchestrator.testing.documents import ExecutorSet, Function
from orchestrator.testing.errors import MockMissing, WorkflowTestError, unknown_name_error


class Call(dict[str, Any]):
    """The inputs of one call, equal to any dictionary with the same content. Attributes identify the call:
    `step` as in the history (`lines#1` is an item, `charge#undo` a compensation), `fn`, `execution_id`,
    `attempt`, `run_id`, `idempotency_key`, and `at`."""

    def __init__(self, job: DispatchJob, at_ms: int) -> None:
        super().__init__(copy_json(job.inputs))
        self.step, self.fn = job.step_id, job.fn
        self.execution_id = job.workflow_execution_id.partition("#")[2]
        self.attempt, self.run_id = job.attempt, job.run_id
        self.idempotency_key = job.idempotency_key
        self.at = to_datetime(at_ms)

    def matches(self, name: str) -> bool:
        return name in matching_names(self.step, self.fn)


def matching_names(unit: str, fn: str) -> list[str]:
    """The names by which a test may refer to a dispatch, the most specific first: the unit, its step, its
    executor. The name of a step does not match its compensation."""
    unit_id = UnitId(unit)
    return list(dict.fromkeys([unit, fn] if unit_id.is_compensation else [unit, unit_id.step_id, fn]))


class RaisedToTest(BaseException):
    """Carries an error to the test, past the worker, for which every Exception is a result."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Mock:
    """Replaces an executor. Its answer is an output, an exception, a function of the inputs, or a list or an
    iterator of these, one for each call. `calls` are the calls so far."""

    def __init__(self, name: str, answer: Any = None, takes_ms: int = 0) -> None:
        self.name, self.takes_ms = name, takes_ms
        self.calls: list[Call] = []
        self._answer = iter(answer) if isinstance(answer, list | tuple) else answer

    def __call__(
        self,
        inputs: dict[str, Any],
        heartbeat: Any,
        configuration: Any,
        context: Any,
        log: Any,
        cancelled: Any,
        evaluate: Any,
    ) -> Any:
        """Called by a worker. It requests every parameter that a worker offers, so it fits every step."""
        offered = {
            "heartbeat": heartbeat,
            "configuration": configuration,
            "context": context,
            "log": log,
            "cancelled": cancelled,
            "evaluate": evaluate,
        }
        return self._answer_call(inputs, offered)

    def _answer_call(self, inputs: dict[str, Any], offered: Mapping[str, Any]) -> Any:
        answer = self._next() if isinstance(self._answer, Iterator) else self._answer
        if isinstance(answer, BaseException) or _is_exception_class(answer):
            raise answer
        if not callable(answer):
            return answer
        try:
            if _takes_nothing(answer):
                raise WorkflowTestError(
                    f"the mock of {self.name!r} must take the inputs: def mock(inputs): ..."
                )
            return await_result(
                answer(inputs, **{name: offered[name] for name in find_requested_parameters(answer, 1)})
            )
        except (AssertionError, WorkflowTestError) as error:
            raise RaisedToTest(error) from error

    def _next(self) -> Any:
        for answer in self._answer:
            return answer
        count = len(self.calls)
        message = f"the mock of {self.name!r} has no answer for call {count + 1}: its list has {count}"
        raise RaisedToTest(WorkflowTestError(message))

    def __repr__(self) -> str:
        return f"Mock({self.name!r}, calls={len(self.calls)})"


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except ValueError:  # it has no signature
        return False


def _is_exception_class(answer: Any) -> bool:
    return isinstance(answer, type) and issubclass(answer, BaseException)


WORKER_NAME = "rehearsal"
"""The name of the worker in records."""


class CallRouter:
    """Calls the mock or the executor of a job, and keeps the calls."""

    def __init__(self, executors: ExecutorSet, steps: Iterable[StepSpec]) -> None:
        self._executors, self._mocks = executors, dict[str, Mock]()
        self._steps = list(steps)
        self.calls: list[Call] = []

    def add(self, mock: Mock) -> Mock:
        self.check(mock.name)
        self._mocks[mock.name] = mock
        return mock

    def check(self, name: str) -> None:
        """Reject a name that is neither a step nor an executor of these workflows."""
        executors = [step.fn for step in self._steps if step.fn]
        executors += [step.compensate.fn for step in self._steps if step.compensate is not None]
        self._check("no step and no executor has the name", name, executors)

    def check_step(self, name: str) -> None:
        self._check("there is no step", name)

    def _check(self, what: str, name: str, others: Iterable[str] = ()) -> None:
        known = [*(step.id for step in self._steps), *others]
        if name not in known and step_of(name) not in known:
            raise unknown_name_error(what, name, known)

    def call_executor(
        self, job: DispatchJob, clock: Callable[[], int], payloads: PayloadStore
    ) -> tuple[int, ResultEvent]:
        """Call the mock or the executor of a job, as a worker does. Returns its duration and result."""
        call = Call(job, clock())
        mock = next((self._mocks[n] for n in matching_names(job.step_id, job.fn) if n in self._mocks), None)
        function = mock or (_skip_webhook if job.step_id == WEBHOOK_UNIT else self._executors.find(job.fn))
        if function is None:
            raise MockMissing(job.step_id, job.fn)
        result = _run_job(job, function, clock, payloads)
        self.calls.append(call)
        if mock is None:
            return 0, result
        mock.calls.append(call)
        return mock.takes_ms, result


def _read_secret(name: str) -> str:
    """The secret that a worker would read here, or else a made-up text: tests rarely have real secrets."""
    try:
        return read_secret(name, os.environ)
    except SecretNotFound:
        return f"secret:{name}"


def _skip_webhook(inputs: dict[str, Any]) -> None:
    """The webhook counts as delivered."""


def _run_job(
    job: DispatchJob, function: Function, clock: Callable[[], int], payloads: PayloadStore
) -> ResultEvent:
    runner = InProcessRunner(payloads)
    runner.dispatch(job.workflow_execution_id, [job])
    try:
        InProcessWorker(
            runner,
            {job.fn: function},
            clock=clock,
            name=WORKER_NAME,
            # A test may read every variable.
            settings=Settings.from_environment({**os.environ, ENV_ALLOWLIST_VARIABLE: "*"}),
            secrets=_read_secret,
        ).run()
    except RaisedToTest as raised:
        raise raised.error from raised.error.__cause__
    [result] = runner.results(job.workflow_execution_id)
    return result
