"""Mocks: what stands in for an executor, and what it was called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator.invocation.coroutines import awaited
from orchestrator.invocation.parameters import named_by
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
                raise RehearsalError(f"the mock of {self.name!r} must take the inputs: def mock(inputs): ...")
            return awaited(answer(inputs, **{name: offered[name] for name in named_by(answer, 1)}))
        except (AssertionError, RehearsalError) as error:
            raise OfTheTest(error) from error

    def _next(self) -> Any:
        for answer in self._answer:
            return answer
        given = len(self.calls)
        message = f"the mock of {self.name!r} has no answer to call {given + 1}: it was given {given}"
        raise OfTheTest(RehearsalError(message))

    def __repr__(self) -> str:
        return f"Mock({self.name!r}, calls={len(self.calls)})"


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except ValueError:  # it tells nothing of itself
        return False


def _is_exception_class(answer: Any) -> bool:
    return isinstance(answer, type) and issubclass(answer, BaseException)
