"""What an executor says of itself, for people and for checks before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from inspect import Parameter, getdoc, iscoroutinefunction, signature

from orchestrator.invocation.parameters import find_requested_parameters
from orchestrator.worker.executors.input_types import InputKey, read_input_keys
from orchestrator.worker.executors.lookup import Executor

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Signature:
    """`given` is how many arguments it gets by their position: the inputs, and an `execute` the name too."""

    executor: Executor
    positional_count: int = 1

    @cached_property
    def named(self) -> frozenset[str]:
        """What it asks for besides, of `calling.NAMES`."""
        return find_requested_parameters(self.executor, self.positional_count)

    @property
    def is_async(self) -> bool:
        return iscoroutinefunction(self._function) or iscoroutinefunction(type(self._function).__call__)

    @cached_property
    def keys(self) -> tuple[InputKey, ...] | None:
        """Those of its inputs, if it says them: by a TypedDict as the annotation of that parameter."""
        try:
            parameters = signature(self.executor, eval_str=True).parameters.values()
        except Exception:  # it tells nothing of itself, or by names that exist for type checkers alone
            return None
        by_position = [one for one in parameters if one.kind in _BY_POSITION]
        return (
            read_input_keys(by_position[self.positional_count - 1].annotation)
            if len(by_position) >= self.positional_count
            else None
        )

    @property
    def call_problem(self) -> str | None:
        """Why it cannot be called by us, as Python says it."""
        try:
            found = signature(self.executor)
        except (TypeError, ValueError):
            return None  # it tells nothing of itself
        try:
            found.bind(*range(self.positional_count), **dict.fromkeys(self.named))
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
