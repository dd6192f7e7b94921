"""Mocks: what stands in for an executor, and what it was called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.application.decisions import DispatchJob
from orchestrator.testing.calls import Call
from orchestrator.testing.errors import RehearsalError


class OfTheTest(BaseException):
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

    def executor_for(self, job: DispatchJob) -> Callable[..., Any]:
        """What a worker calls for this job. It names all that a worker may offer to an executor: a mock fits
        into every step."""

        def mocked(
            inputs: dict[str, Any], heartbeat: Any = None, configuration: Any = None, context: Any = None
        ) -> Any:
            offered = {"heartbeat": heartbeat, "configuration": configuration, "context": _context_of(job)}
            return self._given(inputs, offered)

        return mocked

    def _given(self, inputs: dict[str, Any], offered: Mapping[str, Any]) -> Any:
        answer = self._next() if isinstance(self._answer, Iterator) else self._answer
        if isinstance(answer, BaseException) or _is_exception_class(answer):
            raise answer
        if not callable(answer):
            return answer
        try:
            return answer(inputs, **self._named_by(answer, offered))
        except (AssertionError, RehearsalError) as error:
            raise OfTheTest(error) from error

    def _next(self) -> Any:
        for answer in self._answer:
            return answer
        given = len(self.calls)
        message = f"the mock of {self.name!r} has no answer to call {given + 1}: it was given {given}"
        raise OfTheTest(RehearsalError(message))

    def _named_by(self, function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
        """What of the offered a function takes by name, beside its inputs."""
        try:
            names = list(inspect.signature(function).parameters)
        except ValueError:  # it tells nothing of itself
            return {}
        if not names:
            raise RehearsalError(f"the mock of {self.name!r} must take the inputs: def mock(inputs): ...")
        return {name: offered[name] for name in names[1:] if name in offered}

    def __repr__(self) -> str:
        return f"Mock({self.name!r}, calls={len(self.calls)})"


def _is_exception_class(answer: Any) -> bool:
    return isinstance(answer, type) and issubclass(answer, BaseException)


def _context_of(job: DispatchJob) -> dict[str, Any]:
    step_id, _, item = job.step_id.partition("#")
    return {
        "execution_id": job.workflow_execution_id.partition("#")[2],
        "workflow_execution_id": job.workflow_execution_id,
        "step": step_id,
        "item": int(item) if item.isdigit() else None,
        "attempt": job.attempt,
        "run_id": job.run_id,
        "round": job.round,
        "iteration": job.iteration,
        "idempotency_key": job.idempotency_key,
    }
