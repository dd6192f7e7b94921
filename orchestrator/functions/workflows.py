"""The decorator `workflow`: a function that calls steps, as a workflow.

    @workflow(timeout="2d")
    def order(sku: str, quantity: int = 1) -> dict[str, Any]: ...

The function is called once with references, when its document is needed. A call in another workflow function
adds it as a child. A call elsewhere runs the function with its steps as plain functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import update_wrapper
from inspect import getdoc, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.builder.errors import check_arguments, suggest
from orchestrator.builder.expressions import Reference, spec_error
from orchestrator.builder.keyword_arguments import WorkflowKeys
from orchestrator.builder.workflow import WorkflowBuilder
from orchestrator.functions.annotations import (
    UNKNOWN,
    describe,
    fields_of,
    is_mapping,
    is_none,
    json_types,
)
from orchestrator.functions.arguments import Input, Parameters, convert_value
from orchestrator.functions.errors import (
    Location,
    at_location,
    find_step_location,
    locate_error,
    locate_problems,
    shorten_path,
)
from orchestrator.functions.forms import ChildKeys
from orchestrator.functions.results import WRAPPED, Result, Typed, make_result
from orchestrator.functions.tracing import Trace, current_trace, reject_references, tracing

if TYPE_CHECKING:
    from orchestrator.application.records.decisions import FinalDecision

P = ParamSpec("P")
R = TypeVar("R")
S_co = TypeVar("S_co", covariant=True)

START_OPTIONS = frozenset(
    {
        "conflict_policy",
        "execution_id",
        "group",
        "idempotency_root",
        "idempotency_window_s",
        "labels",
        "priority",
        "reply_timeout_s",
        "traceparent",
        "webhook",
    }
)


class Starter(Protocol[S_co]):
    """A Client, or an AsyncClient."""

    def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> S_co: ...


class Registrar(Protocol[S_co]):
    """A Client, or an AsyncClient."""

    def register(self, name: str, spec: Any) -> S_co: ...


class WorkflowFunction(Generic[P, R]):
    """A function with @workflow."""

    __name__: str
    __executors__: Mapping[str, Callable[..., Any]] = {}
    """A worker must not take it for an executor."""

    def __init__(self, function: Callable[P, R], name: str | None, keys: Mapping[str, Any]) -> None:
        if iscoroutinefunction(function):
            raise TypeError(f"{function.__name__}() must not be async: a workflow only calls steps")
        update_wrapper(self, function)
        self.function, self.name = function, name or function.__name__
        self.parameters = Parameters(function)
        self._keys, self._options = keys, dict[str, Any]()
        self._id: str | None = None
        self._reader = _Reader()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = current_trace()
        if trace is not None:
            added: R = self._add_to(trace, args, kwargs)
            return added
        reject_references([args, kwargs], f"{self.name}()")
        return self.function(*args, **kwargs)

    def options(self, *, id: str | None = None, **keys: Unpack[ChildKeys]) -> WorkflowFunction[P, R]:
        """The same workflow with options for its step in another workflow."""
        check_arguments("options", keys, ChildKeys)
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._id, copy._options = id or self._id, {**self._options, **keys}
        return copy

    # ---- the document

    def load(self) -> LoadedSpec:
        """The checked spec. InvalidSpec has the problems, with their file and line."""
        return self._read_once().loaded

    def to_dict(self) -> dict[str, Any]:
        return self._read_once().builder.to_dict()

    def to_yaml(self) -> str:
        return self._read_once().builder.to_yaml()

    @property
    def executors(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of its steps by the names of their executors, as workers call them."""
        return dict(self._read_once().executors)

    @property
    def modules(self) -> list[str]:
        """The modules that define its steps: the --executors of a worker."""
        return sorted(self._read_once().modules)

    # ---- running

    def run(self, *args: P.args, **kwargs: P.kwargs) -> FinalDecision:
        """Run it in this process, without Redis, and return how it ended: `.outcome` has its outputs."""
        from orchestrator.backend.backend import Backend
        from orchestrator.local.workflow import Workflow

        inputs = self._to_json(args, kwargs)
        return Workflow.from_dict(self.to_dict(), Backend(self.executors), inputs).run()

    def start(self, client: Starter[S_co], /, *args: Any, **kwargs: Any) -> S_co:
        """Start it by a client. Arguments are inputs, or options of Client.start() such as `execution_id`."""
        names = START_OPTIONS - self.parameters.inputs.keys()
        options = {name: value for name, value in kwargs.items() if name in names}
        inputs = {name: value for name, value in kwargs.items() if name not in names}
        return client.start(self.load(), self._to_json(args, inputs), **options)

    def register(self, client: Registrar[S_co]) -> S_co:
        """Register it under its name."""
        return client.register(self.name, self.to_dict())

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"

    # ---- internals

    def _to_json(self, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return self.parameters.to_json(self.parameters.bind(args, kwargs))

    def _add_to(self, trace: Trace, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Add it as a child to the workflow that is being read."""
        step_id = trace.choose_id(self._id, self.name)
        inputs = trace.bind(self.parameters, args, kwargs, step_id)
        read = self._read_once()
        trace.add_executors(read.executors, frozenset(read.modules))
        result = self.parameters.result
        keys = trace.write_keys(self._options, lambda: make_result(("output",), frozenset(), result))
        given: Any = {**({"input": inputs} if inputs else {}), **keys}
        trace.add(step_id, f"{self.name}()", lambda: trace.builder.child(step_id, read.builder, **given))
        return trace.result_of(step_id, result, keys)

    def _read_once(self) -> _ReadWorkflow:
        with _reading:
            if self._reader.found is None:
                self._reader.found = _read(self.name, self.function, self.parameters, self._keys)
            return self._reader.found


_reading = threading.RLock()
"""One workflow is read at a time: those that call each other must not wait for each other."""


@dataclass
class _Reader:
    """The workflow after it was read. Copies with other options share it."""

    found: _ReadWorkflow | None = None


class _ReadWorkflow:
    """The document of a workflow function, and the functions of its steps."""

    def __init__(self, trace: Trace, loaded: LoadedSpec) -> None:
        self.builder, self.loaded = trace.builder, loaded
        self.executors, self.modules = trace.executors, trace.modules


@overload
def workflow(function: Callable[P, R], /) -> WorkflowFunction[P, R]: ...
@overload
def workflow(
    *, name: str | None = None, **keys: Unpack[WorkflowKeys]
) -> Callable[[Callable[P, R]], WorkflowFunction[P, R]]: ...
def workflow(function: Any = None, /, *, name: str | None = None, **keys: Any) -> Any:
    """Make a function a workflow. Its parameters are the inputs, and its result the outputs."""
    check_arguments("workflow", keys, WorkflowKeys)
    if function is not None:
        return WorkflowFunction(function, name, keys)
    return lambda decorated: WorkflowFunction(decorated, name, keys)


def _read(
    name: str, function: Callable[..., Any], parameters: Parameters, keys: Mapping[str, Any]
) -> _ReadWorkflow:
    """Call the function with references to its inputs, and check the document that its steps make."""
    text = getdoc(function)
    described: Any = {"description": text} if text and "description" not in keys else {}
    _check_is_not_inside(function, name)
    try:
        builder = WorkflowBuilder(name, **described, **keys)
        trace = Trace(name, builder, function, current_trace())
        inputs = {one.name: _declare(trace.builder, one) for one in parameters.inputs.values()}
        with tracing(trace):
            returned = _call(function, parameters, inputs)
            trace.check_values([returned])
            trace.builder.outputs(_to_outputs(returned, parameters.result))
    except Exception as error:
        located = locate_error(error, name, _location_of(function))
        if located is None:
            raise
        raise located from None
    return _ReadWorkflow(trace, _load(trace, _location_of(function)))


def _call(function: Callable[..., Any], parameters: Parameters, inputs: Mapping[str, Any]) -> Any:
    args = [inputs[one.name] for one in parameters.inputs.values() if one.is_positional_only]
    named = {one.name: inputs[one.name] for one in parameters.inputs.values() if not one.is_positional_only}
    return function(*args, **named)


def _check_is_not_inside(function: Callable[..., Any], name: str) -> None:
    """Reject a workflow that calls itself."""
    outer = current_trace()
    while outer is not None:
        if outer.function is function:
            hint = f"register it, and write child({name!r}, ...)"
            raise spec_error("cycle", f"the workflow {name!r} calls itself", hint)
        outer = outer.parent


def _declare(builder: WorkflowBuilder, one: Input) -> Reference:
    """Declare a parameter as an input, and return a reference to it."""
    types = json_types(one.annotation)
    declared: Any = {"type": next(iter(types))} if len(types) == 1 and "null" not in types else {}
    if one.is_required:
        declared["required"] = True
    else:
        declared["default"] = convert_value(one.default, one.annotation, f"the default of {one.name!r}")
    reference = builder.input(one.name, **declared)
    return Result(reference._keys, reference._origins, one.annotation)


def _to_outputs(returned: Any, annotation: Any) -> dict[str, Any]:
    """The result of a workflow function as the outputs of the document."""
    if returned is None:
        return {}
    if not is_mapping(annotation):
        return {WRAPPED: convert_value(returned, annotation, "the result")}
    if is_dataclass(returned) and not isinstance(returned, type):
        returned = {field.name: getattr(returned, field.name) for field in fields(returned)}
    if isinstance(returned, Typed):
        returned = _split_fields(returned)
    if not isinstance(returned, Mapping):
        message = f"a workflow returns a dict of names and values, not {returned!r}"
        raise spec_error("bad_type", message, 'return {"name": value}')
    return {
        name: convert_value(value, _output_type(annotation, name, returned), f"the output {name!r}")
        for name, value in returned.items()
    }


def _split_fields(returned: Any) -> Any:
    """The fields of a result with a known type."""
    known = fields_of(returned._annotation) if returned._annotation is not None else None
    return returned if known is None else {field.key: returned[name] for name, field in known.items()}


def _output_type(annotation: Any, name: str, returned: Mapping[str, Any]) -> Any:
    known = None if is_none(annotation) else fields_of(annotation)
    if known is None:
        return UNKNOWN
    missing = [field for field, one in known.items() if one.is_required and field not in returned]
    if name not in known:
        message = f"the result {describe(annotation)} has no field {name!r}"
        raise spec_error("unknown_field", message, suggest(name, known))
    if missing:
        raise spec_error("missing_input", f"the result {describe(annotation)} needs the field {missing[0]!r}")
    return known[name].annotation


def _load(trace: Trace, own: Location) -> LoadedSpec:
    """Check the whole document. Problems and warnings get the place where their step was called."""
    builder, steps = trace.builder, dict(enumerate(trace.locations))
    document = builder.to_dict()
    try:
        loaded = builder.load()
    except InvalidSpec as invalid:
        raise locate_problems(invalid, trace.name, own, steps, document) from None
    warnings = tuple(
        at_location(one, find_step_location(one, own, steps, document)) for one in loaded.warnings
    )
    return replace(loaded, warnings=warnings)


def _location_of(function: Callable[..., Any]) -> Location:
    code = function.__code__
    return Location(shorten_path(code.co_filename), code.co_firstlineno, 1)
