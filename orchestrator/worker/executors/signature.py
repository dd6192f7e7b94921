"""The signature and the docstring of an executor, for the CLI and for checks before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from inspect import Parameter, getdoc, iscoroutinefunction, signature

from orchestrator.invocation.executors import Executor
from orchestrator.invocation.parameters import find_requested_parameters
from orchestrator.worker.executors.input_types import InputKey, read_input_keys

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Signature:
    """The signature of an executor. `positional_count` is the number of positional arguments in a call: one
    for the inputs, two for an `execute`, which also gets the name."""

    executor: Executor
    positional_count: int = 1

    @cached_property
    def requested_parameters(self) -> frozenset[str]:
        """The names of `OFFERED_PARAMETERS` that it takes."""
        return find_requested_parameters(self.executor, self.positional_count)

    @property
    def is_async(self) -> bool:
        return iscoroutinefunction(self._function) or iscoroutinefunction(type(self._function).__call__)

    @cached_property
    def keys(self) -> tuple[InputKey, ...] | None:
        """The keys of its inputs, if that parameter is annotated with a TypedDict."""
        try:
            parameters = signature(self.executor, eval_str=True).parameters.values()
        except Exception:  # it has no signature, or its annotations exist only for type checkers
            return None
        by_position = [one for one in parameters if one.kind in _BY_POSITION]
        return (
            read_input_keys(by_position[self.positional_count - 1].annotation)
            if len(by_position) >= self.positional_count
            else None
        )

    @property
    def call_problem(self) -> str | None:
        """Why the harness cannot call it, with Python's own message; None if it can."""
        try:
            found = signature(self.executor)
        except (TypeError, ValueError):
            return None  # it has no signature
        try:
            found.bind(*range(self.positional_count), **dict.fromkeys(self.requested_parameters))
        except TypeError as error:
            return f"it cannot be called with its inputs alone: {error}"
        return None

    @property
    def doc(self) -> str:
        return (getdoc(self._function) or "").strip()

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return self.doc.partition("\n")[0]

    @property
    def _function(self) -> Executor:
        function = self.executor
        while isinstance(function, partial):
            function = function.func
        return function
