"""The parameters of a function as inputs: binds the arguments of a call, and checks them against the types.

A literal must have the type of its parameter, as for a type checker. A reference must not have another JSON
type. Parameters that a worker passes by name, such as `log`, are no inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from orchestrator.application.errors import InvalidSpec
from orchestrator.builder.errors import suggest
from orchestrator.builder.expressions import Expr, Step, literal, render, spec_error
from orchestrator.functions.again import split_again
from orchestrator.functions.annotations import (
    UNKNOWN,
    adapter_of,
    describe,
    fields_of,
    find_child,
    is_mapping,
    item_of,
    json_types,
)
from orchestrator.functions.results import Typed
from orchestrator.invocation.parameters import OFFERED_PARAMETERS

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
NO_DEFAULT: Any = Parameter.empty


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """One parameter that is an input."""

    name: str
    annotation: Any
    default: Any
    is_positional_only: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT


class Parameters:
    """The inputs of a function, and the type of its result. Annotations are read on first use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._parameters = list(signature(function).parameters.values())
        if any(one.kind is Parameter.VAR_POSITIONAL for one in self._parameters):
            raise TypeError(f"{function.__name__}() must not take *args: inputs have names")
        self.takes_others = any(one.kind is Parameter.VAR_KEYWORD for one in self._parameters)
        self.offered = [one.name for one in self._parameters if self._is_offered(one)]

    @cached_property
    def hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self._function, include_extras=True)
        except Exception as error:
            name = self._function.__name__
            message = f"the annotations of {name}() cannot be read: {error}"
            hint = "define the types at the top of the module, before the workflow is loaded"
            raise spec_error("bad_type", message, hint) from None

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {
            one.name: Input(
                one.name,
                self.hints.get(one.name, UNKNOWN),
                one.default,
                one.kind is Parameter.POSITIONAL_ONLY,
            )
            for one in self._parameters
            if one.kind not in _VARIADIC and not self._is_offered(one)
        }

    @property
    def result(self) -> Any:
        """The type of the result, without Again."""
        return split_again(self.hints.get("return", UNKNOWN))[0]

    @property
    def returns_again(self) -> bool:
        return split_again(self.hints.get("return", UNKNOWN))[1]

    def check_types(self) -> None:
        """Raise InvalidSpec for a type that cannot be converted."""
        for annotation in [*(one.annotation for one in self.inputs.values()), self.result]:
            adapter_of(annotation)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names. Raises InvalidSpec for a missing or an unknown one."""
        names = list(self.inputs)
        if len(args) > len(names):
            message = f"{self._function.__name__}() takes {len(names)} inputs, not {len(args)}"
            raise spec_error("unknown_key", message)
        bound = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            self._check_name(name, bound)
            bound[name] = value
        missing = [one.name for one in self.inputs.values() if one.is_required and one.name not in bound]
        if missing:
            listed = ", ".join(map(repr, missing))
            raise spec_error("missing_input", f"{self._function.__name__}() needs the argument {listed}")
        return bound

    def to_inputs(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the input of a step: references as they are, and everything else as JSON."""
        return {name: self._to_input(name, value) for name, value in bound.items()}

    def to_json(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON, for a start."""
        return {name: self._dump(name, value) for name, value in bound.items()}

    def _to_input(self, name: str, value: Any) -> Any:
        annotation = self.inputs[name].annotation if name in self.inputs else UNKNOWN
        where = f"{self._function.__name__}({name}=...)"
        return convert_value(value, annotation, where)

    def _dump(self, name: str, value: Any) -> Any:
        annotation = self.inputs[name].annotation if name in self.inputs else UNKNOWN
        return dump_literal(value, annotation, f"{self._function.__name__}({name}=...)")

    def _check_name(self, name: str, bound: Mapping[str, Any]) -> None:
        called = f"{self._function.__name__}()"
        if name in bound:
            raise spec_error("duplicate_key", f"{called} gets the argument {name!r} twice")
        if name in self.offered:
            message = f"the argument {name!r} of {called} is passed by the worker"
            raise spec_error("unknown_key", message, "leave it out")
        if name not in self.inputs and not self.takes_others:
            known = f"it takes: {', '.join(self.inputs) or 'nothing'}"
            hint = suggest(name, self.inputs) or known
            raise spec_error("unknown_key", f"{called} has no argument {name!r}", hint)

    @staticmethod
    def _is_offered(parameter: Parameter) -> bool:
        by_name = parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        return by_name and parameter.name in OFFERED_PARAMETERS


def convert_value(value: Any, annotation: Any, where: str) -> Any:
    """A value for a document: a reference, or data with references, or a literal as JSON."""
    if isinstance(value, Expr):
        _check_reference(value, annotation, where)
        return value
    if next(find_expressions(value), None) is None:
        return _quote(dump_literal(value, annotation, where))
    if isinstance(value, Mapping):
        return {name: _convert_child(item, annotation, name, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [convert_value(item, item_of(annotation), where) for item in value]
    names = [field.name for field in dataclasses.fields(value)]
    return {name: _convert_child(getattr(value, name), annotation, name, where) for name in names}


def dump_literal(value: Any, annotation: Any, where: str) -> Any:
    """A literal as JSON. Raises InvalidSpec if it does not have this type."""
    if isinstance(value, Step):
        raise spec_error("bad_type", f"{where}: the step {value.id!r} has no value", "pass it as after=")
    adapter = adapter_of(annotation)
    try:
        return adapter.dump_python(adapter.validate_python(value, strict=True), mode="json", by_alias=True)
    except ValidationError as error:
        message = f"{where} expects {describe(annotation)}, not {_shorten(value)}: {first_error(error)}"
        raise spec_error("bad_type", message) from None
    except PydanticSerializationError as error:
        raise spec_error("not_json", f"{where} is not JSON: {error}") from None


def first_error(error: ValidationError) -> str:
    """The first problem that pydantic found, with the path of the value."""
    found = error.errors(include_url=False)[0]
    path = ".".join(map(str, found["loc"]))
    return f"{path}: {found['msg']}" if path else found["msg"]


def find_expressions(value: Any) -> Iterator[Expr]:
    """The expressions in a value, in mappings, lists and dataclasses too."""
    parts: Iterable[Any] = ()
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, BaseModel):
        parts = ()  # pydantic has validated its fields, so none is an expression
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name) for field in dataclasses.fields(value))
    for part in parts:
        yield from find_expressions(part)


def _convert_child(value: Any, annotation: Any, name: str, where: str) -> Any:
    fields = fields_of(annotation)
    if fields is not None and name not in fields:
        message = f"{where}: {describe(annotation)} has no field {name!r}"
        raise spec_error("unknown_field", message, suggest(name, fields))
    child = find_child(annotation, name)[1] if is_mapping(annotation) else UNKNOWN
    return convert_value(value, child, where)


def _check_reference(value: Expr, annotation: Any, where: str) -> None:
    """Reject a reference whose JSON type cannot be that of the parameter."""
    if not isinstance(value, Typed) or value._annotation is None:
        return
    given, expected = json_types(value._annotation), json_types(annotation)
    if "number" in expected:
        expected |= {"integer"}
    if given and expected and not given & expected:
        message = f"{where} expects {describe(annotation)}, not {describe(value._annotation)}"
        raise spec_error("bad_type", message)


def _quote(data: Any) -> Any:
    """Data that the document would read as an expression is quoted."""
    try:
        render(data)
    except InvalidSpec:
        return literal(data)
    return data


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
