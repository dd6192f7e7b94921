"""Mocks: what stands in for an executor, and what it was called with."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orchestrator.application.errors import SecretNotFound
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.spec.model import COMPENSATION_PART, WEBHOOK_UNIT, StepSpec
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.backend.copies import copy_json
from orchestrator.backend.memory import InProcessRunner
from orchestrator.backend.worker import InProcessWorker
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.parameters import find_requested_parameters
from orchestrator.invocation.secret_store import read_secret
from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE
from orchestrator.testing.clock import to_datetime
from orchestrator.testing.documents import ExecutorSet, Function
from orchestrator.testing.errors import MockMissing, WorkflowTestError, unknown_name_error


class Call(dict[str, Any]):
    """The inputs of one call, which equal any dictionary with the same content, and beside them which call
    it was: `step` as the history names it (`lines#1` is an item, `charge#undo` a compensation), `fn`,
    `execution_id`, `attempt`, `run_id`, `idempotency_key`, and `at`."""

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
    """By what a test may mean a dispatch, the nearest first: the unit, its step, its executor. A compensation
    is not its step."""
    step_id, _, part = unit.partition("#")
    return list(dict.fromkeys([unit, fn] if part == COMPENSATION_PART else [unit, step_id, fn]))


class RaisedToTest(BaseException):
    """Carries what the test itself is to see through the worker, for which every Exception is a result."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Mock:
    """Answers for an executor: an output, an exception to be raised, a function of the inputs, or several of
    these in a list or an iterator, one for each call. `calls` are those it has had."""

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
        """What a worker calls. It names all that a worker offers, and so it fits into every step."""
        offered = {
            "heartbeat": heartbeat,
            "configuration": configuration,
            "context": context,
            "log": log,
            "cancelled": cancelled,
            "evaluate": evaluate,
        }
        return self._given(inputs, offered)

    def _given(self, inputs: dict[str, Any], offered: Mapping[str, Any]) -> Any:
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
        given = len(self.calls)
        message = f"the mock of {self.name!r} has no answer to call {given + 1}: it was given {given}"
        raise RaisedToTest(WorkflowTestError(message))

    def __repr__(self) -> str:
        return f"Mock({self.name!r}, calls={len(self.calls)})"


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except ValueError:  # it tells nothing of itself
        return False


def _is_exception_class(answer: Any) -> bool:
    return isinstance(answer, type) and issubclass(answer, BaseException)


WORKER_NAME = "rehearsal"
"""The name of the worker, as records have it."""


class CallRouter:
    def __init__(self, company: ExecutorSet, steps: Iterable[StepSpec]) -> None:
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
            raise unknown_name_error(what, name, known)

    def call_executor(
        self, job: DispatchJob, clock: Callable[[], int], payloads: PayloadStore
    ) -> tuple[int, ResultEvent]:
        """Call who is to be called, as a worker does: how long that takes, and what it brings."""
        call = Call(job, clock())
        mock = next((self._mocks[n] for n in matching_names(job.step_id, job.fn) if n in self._mocks), None)
        function = mock or (_post_nothing if job.step_id == WEBHOOK_UNIT else self._company.find(job.fn))
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
    job: DispatchJob, function: Function, clock: Callable[[], int], payloads: PayloadStore
) -> ResultEvent:
    desk = InProcessRunner(payloads)
    desk.dispatch(job.workflow_execution_id, [job])
    try:
        InProcessWorker(
            desk,
            {job.fn: function},
            clock=clock,
            name=WORKER_NAME,
            environment={**os.environ, ENV_ALLOWLIST_VARIABLE: "*"},  # a test may read what it likes
            secrets=_secret,
        ).run()
    except RaisedToTest as passed:
        raise passed.error from passed.error.__cause__
    [result] = desk.results(job.workflow_execution_id)
    return result
