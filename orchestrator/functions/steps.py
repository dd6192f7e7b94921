"""The decorator `step`: a typed function as a step.

    @step(retry=3, timeout="30s")
    def charge(order_id: str, amount: float) -> Charge: ...

In a function with @workflow a call adds a step to the workflow. Elsewhere it calls the function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, update_wrapper
from inspect import signature
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from orchestrator.builder.branches import Branch
from orchestrator.builder.errors import check_arguments
from orchestrator.builder.keyword_arguments import (
    Compensate,
    ExecutorKeys,
    PlacementKeys,
    PlainStepKeys,
    SourceDefinition,
    Values,
)
from orchestrator.functions.arguments import Parameters
from orchestrator.functions.errors import OutsideWorkflow
from orchestrator.functions.executor import StepExecutor
from orchestrator.functions.tracing import current_trace, reject_references
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.parameters import evaluate

P = ParamSpec("P")
R = TypeVar("R")

_STAND_INS: Mapping[str, Any] = {
    "log": lambda text: None,
    "heartbeat": lambda progress=None, note=None: None,
    "cancelled": lambda: False,
    "evaluate": evaluate,
}
"""What a plain call passes for parameters of the worker that have no default."""


class CommonKeys(PlainStepKeys, total=False):
    """Keys of every kind of step. `after` takes results of steps, steps, or names of steps."""

    after: object
    kv_add: Values


class TaskKeys(CommonKeys, PlacementKeys, ExecutorKeys, total=False):
    """Keys of steps with an executor."""

    output: Values


class StepFunction(Generic[P, R]):
    """A function with @step, or a copy of it with other options."""

    __name__: str

    def __init__(
        self,
        function: Callable[..., Any],
        fn: str | None = None,
        keys: Mapping[str, Any] | None = None,
        source: SourceDefinition | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.function, self.fn = function, fn or function.__name__
        self.id: str | None = None
        self.keys: Mapping[str, Any] = keys or {}
        self.token: Mapping[str, Any] = {"fn": self.fn} if source is None else {"source": source}
        self.parameters = Parameters(function)
        self.executor: Callable[..., Any] = StepExecutor(function, self.parameters)
        """The function as workers call it: with a mapping of inputs, and a result as JSON."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = current_trace()
        if trace is not None:
            added: R = trace.call(self, args, kwargs)
            return added
        reject_references([args, kwargs], f"{self.fn}()")
        result: R = await_result(self.function(*args, **{**self._stand_ins, **kwargs}))
        return result

    def options(
        self,
        *,
        id: str | None = None,
        branch: Callable[[R], Branch | Sequence[Branch]] | Sequence[Branch] | None = None,
        compensate: Callable[[R], object] | Compensate | None = None,
        **keys: Unpack[TaskKeys],
    ) -> StepFunction[P, R]:
        """The same step with other options for one call."""
        check_arguments("options", keys, TaskKeys)
        given = {"branch": branch, "compensate": compensate}
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.id = self.id if id is None else id
        copy.keys = {**self.keys, **keys, **{name: one for name, one in given.items() if one is not None}}
        return copy

    @property
    def executors(self) -> Mapping[str, Callable[..., Any]]:
        return {self.fn: self.executor}

    __executors__ = executors

    @property
    def modules(self) -> frozenset[str]:
        return frozenset({self.function.__module__})

    @cached_property
    def _stand_ins(self) -> dict[str, Any]:
        parameters = signature(self.function).parameters
        return {
            name: _STAND_INS[name]
            for name in self.parameters.offered
            if name in _STAND_INS and parameters[name].default is parameters[name].empty
        }

    def __repr__(self) -> str:
        return f"<step {self.fn!r}>"


class ExternalStep(StepFunction[..., R]):
    """A step whose executor is not a function of this program."""

    @property
    def executors(self) -> Mapping[str, Callable[..., Any]]:
        return {}

    __executors__ = executors

    @property
    def modules(self) -> frozenset[str]:
        return frozenset()


@overload
def step(function: Callable[P, Awaitable[R]], /) -> StepFunction[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    *,
    fn: str | None = None,
    branch: Callable[[Any], Branch | Sequence[Branch]] | Sequence[Branch] | None = None,
    compensate: Callable[[Any], object] | Compensate | None = None,
    **keys: Unpack[TaskKeys],
) -> StepDecorator: ...
def step(function: Any = None, /, *, fn: str | None = None, **keys: Any) -> Any:
    """Make a function a step. `fn` is the name of its executor, by default that of the function."""
    if function is not None:
        return StepFunction(function)
    check_arguments("step", {name: one for name, one in keys.items() if name not in _FUNCTIONS}, TaskKeys)
    return StepDecorator(fn, keys)


_FUNCTIONS = ("branch", "compensate")


class StepDecorator:
    """`step` with options."""

    def __init__(self, fn: str | None, keys: Mapping[str, Any]) -> None:
        self._fn, self._keys = fn, keys

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> StepFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return StepFunction(function, self._fn, self._keys)


def executor(fn: str | SourceDefinition, result: type[R], **keys: Unpack[TaskKeys]) -> StepFunction[..., R]:
    """A step that runs an executor by its name, such as the built-in "http", or a source."""
    check_arguments("executor", keys, TaskKeys)
    name = fn if isinstance(fn, str) else str(fn["type"])

    def call(**inputs: Any) -> Any:
        raise OutsideWorkflow(f"the executor {name!r} runs only in a workflow: call order.run(), or a worker")

    call.__name__ = call.__qualname__ = name
    call.__annotations__ = {"inputs": Any, "return": result}
    return ExternalStep(call, name, keys, None if isinstance(fn, str) else fn)
