"""StepExecutor: a decorated function as an executor, which workers call with a mapping of inputs.

    inputs ▸ converted to the types of the parameters ▸ function(**inputs) ▸ result as JSON

A result that is not a mapping is wrapped: {"result": value}. One of a loop says whether it is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter, Signature, iscoroutinefunction
from typing import Any, NotRequired, TypedDict

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from orchestrator.application.errors import InvalidSpec
from orchestrator.functions.again import Again
from orchestrator.functions.annotations import adapter_of, describe, is_mapping, is_none
from orchestrator.functions.arguments import Parameters, first_error
from orchestrator.functions.errors import BadStepInput, BadStepResult
from orchestrator.functions.results import WRAPPED


class StepExecutor:
    """Calls a function with the inputs of a step, and returns its result as JSON."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self._function, self._parameters = function, parameters
        self.__doc__ = function.__doc__
        self.__module__, self.__name__ = function.__module__, function.__name__
        # Another process finds it by this name, for `isolation: process`.
        self.__qualname__ = f"{function.__qualname__}.executor"

    @cached_property
    def __signature__(self) -> Signature:
        """The inputs as a mapping, and the parameters that a worker passes by name."""
        inputs = Parameter("inputs", Parameter.POSITIONAL_ONLY, annotation=self._describe_inputs())
        offered = [Parameter(name, Parameter.KEYWORD_ONLY) for name in self._parameters.offered]
        return Signature([inputs, *offered])

    def _describe_inputs(self) -> Any:
        """The inputs as a TypedDict, which `orchestrator executors` shows and `validate` checks."""
        if self._parameters.takes_others:
            return dict[str, Any]
        try:
            fields = {
                one.name: one.annotation if one.is_required else NotRequired[one.annotation]
                for one in self._parameters.inputs.values()
            }
        except InvalidSpec:  # a name that exists only for type checkers
            return dict[str, Any]
        return TypedDict(self.__name__, fields)  # type: ignore[operator]

    def __call__(self, inputs: Mapping[str, Any], /, **offered: Any) -> Any:
        args, kwargs = self._convert(inputs)
        returned = self._function(*args, **kwargs, **offered)
        return self._await(returned) if iscoroutinefunction(self._function) else self._dump(returned)

    async def _await(self, coroutine: Any) -> Any:
        return self._dump(await coroutine)

    def _convert(self, inputs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The inputs as the arguments of the function."""
        try:
            bound = self._parameters.bind((), inputs)
        except InvalidSpec as invalid:
            raise BadStepInput(invalid.problems[0].message) from None
        args, kwargs = [], {}
        for name, value in bound.items():
            known = self._parameters.inputs.get(name)
            converted = value if known is None else self._convert_one(name, value, known.annotation)
            if known is not None and known.is_positional_only:
                args.append(converted)
            else:
                kwargs[name] = converted
        return args, kwargs

    def _convert_one(self, name: str, value: Any, annotation: Any) -> Any:
        try:
            return adapter_of(annotation).validate_python(value)
        except ValidationError as error:
            message = f"{self.__name__}({name}=...) expects {describe(annotation)}: {first_error(error)}"
            raise BadStepInput(message) from None

    def _dump(self, returned: Any) -> Any:
        if not self._parameters.returns_again:
            return self._dump_value(returned)
        value = returned.value if isinstance(returned, Again) else returned
        return {"_loop": "again" if isinstance(returned, Again) else "done", "value": self._dump_value(value)}

    def _dump_value(self, value: Any) -> Any:
        annotation = self._parameters.result
        try:
            adapter = adapter_of(annotation)
            dumped = adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True)
        except ValidationError as error:
            message = f"{self.__name__}() must return {describe(annotation)}: {first_error(error)}"
            raise BadStepResult(message) from None
        except PydanticSerializationError as error:
            raise BadStepResult(f"the result of {self.__name__}() is not JSON: {error}") from None
        if is_none(annotation) or is_mapping(annotation):
            return dumped
        return {WRAPPED: dumped}
