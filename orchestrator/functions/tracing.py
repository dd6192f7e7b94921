"""Reads a workflow function: calls it once, and builds the document from the steps that it calls.

A step that is called meanwhile runs nothing. It adds itself to the document, and returns a reference to its
result. The functions that are passed to map_each(), loop() and compensate= call one step each, which is not
added as a step of its own: it is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from orchestrator.application.errors import InvalidSpec
from orchestrator.builder.branches import Branch
from orchestrator.builder.errors import locate_problems
from orchestrator.builder.expressions import Expr, Origin, Step, spec_error
from orchestrator.builder.keyword_arguments import Compensate
from orchestrator.builder.workflow import WorkflowBuilder
from orchestrator.functions.arguments import Parameters, find_expressions
from orchestrator.functions.errors import Location, OutsideWorkflow, find_caller
from orchestrator.functions.results import StepOrigin, find_steps, make_result

_current: ContextVar[Trace | None] = ContextVar("orchestrator_trace", default=None)


class CallableStep(Protocol):
    """A decorated function, as far as it is added to a document. `token` is the key of its executor."""

    fn: str
    id: str | None
    keys: Mapping[str, Any]
    parameters: Parameters
    token: Mapping[str, Any]

    @property
    def executors(self) -> Mapping[str, Callable[..., Any]]: ...

    @property
    def modules(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """The call of a step that becomes a part of another one."""

    step: CallableStep
    inputs: Mapping[str, Any]


class CapturedResult:
    """What such a call returns: it must be returned as it is."""

    def __init__(self, form: str) -> None:
        self._form = form

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        message = f"the function of {self._form} must return the result of its step, not a part of it"
        raise spec_error("bad_call", message, f"read {name!r} in a step that comes later")


@dataclass(slots=True)
class Capture:
    """Collects the calls of the function that is passed to `form`."""

    form: str
    calls: list[tuple[object, CapturedCall]] = field(default_factory=list)


class Trace:
    """The workflow function that is being read, and its document so far."""

    def __init__(
        self, name: str, builder: WorkflowBuilder, function: Callable[..., Any], parent: Trace | None
    ) -> None:
        """`parent` is the workflow function that calls this one, if there is one."""
        self.name, self.builder = name, builder
        self.function, self.parent = function, parent
        self.locations: list[Location] = []
        self.executors: dict[str, Callable[..., Any]] = {}
        self.modules: set[str] = set()
        self._ids: list[str] = []
        self._taken: set[str] = set()
        self._capture: Capture | None = None
        self._closed: set[Origin] = set()

    # ---- steps

    @property
    def ids(self) -> Sequence[str]:
        """The steps so far, in the order of the document."""
        return self._ids

    def choose_id(self, given: str | None, proposed: str) -> str:
        """The id that was given, or the proposed one with a number if it is taken."""
        chosen, number = given or proposed, 2
        while given is None and chosen in self._taken:
            chosen, number = f"{proposed}-{number}", number + 1
        self._taken.add(chosen)
        return chosen

    def add(self, step_id: str, form: str, add_step: Callable[[], Step], position: int | None = None) -> Step:
        """Add a step by a method of the builder: at this position, or at the end."""
        self.check_can_add(form)
        step = add_step()
        at = len(self._ids) if position is None else position
        if at < len(self._ids):
            self.builder.move(step, before=self._ids[at])
        self._ids.insert(at, step_id)
        self.locations.insert(at, find_caller())
        return step

    def check_can_add(self, form: str) -> None:
        if self._capture is not None:
            message = f"the function of {self._capture.form} must call one step, and cannot call {form}"
            raise spec_error("bad_call", message, "call it before, and pass its result")

    def origin(self, step_id: str) -> frozenset[Origin]:
        return frozenset({StepOrigin(step_id, self.builder)})

    def call(self, step: CallableStep, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Add a call of a step to the document, or capture it."""
        inputs = self.bind(step.parameters, args, kwargs, step.id or step.fn)
        self.add_executors(step.executors, step.modules)
        if "heartbeat" in step.keys and step.executors and "heartbeat" not in step.parameters.offered:
            message = f"step {step.id or step.fn!r}: {step.fn}() has no parameter heartbeat, and must call it"
            raise spec_error("bad_call", message, "add the parameter heartbeat to the function")
        if self._capture is None:
            return self._add_call(step, inputs)
        returned = CapturedResult(self._capture.form)
        self._capture.calls.append((returned, CapturedCall(step, inputs)))
        return returned

    def bind(
        self, parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any], step: str
    ) -> dict[str, Any]:
        """The arguments of a call as the input of a step."""
        try:
            parameters.check_types()
            bound = parameters.bind(args, kwargs)
            self.check_values(bound)
            return parameters.to_inputs(bound)
        except InvalidSpec as invalid:
            raise locate_problems(invalid, (), step) from None

    def _add_call(self, step: CallableStep, inputs: Mapping[str, Any]) -> Any:
        if step.parameters.returns_again:
            message = f"{step.fn}() returns Again, so it must be called in loop()"
            raise spec_error("bad_call", message, "loop(lambda last: ...)")
        step_id = self.choose_id(step.id, step.fn)
        result = step.parameters.result
        keys = self.write_keys(step.keys, lambda: make_result(("output",), frozenset(), result))
        given = {"input": inputs, **keys} if inputs else keys
        token = self.token_of(step, step_id)
        self.add(step_id, f"{step.fn}()", lambda: self.builder.step(step_id, **token, **given))
        return self.result_of(step_id, result, keys)

    @staticmethod
    def token_of(step: CallableStep, step_id: str) -> Mapping[str, Any]:
        """The argument of the builder that names the executor; none if the step has its name."""
        return {} if step.token == {"fn": step_id} else step.token

    def result_of(self, step_id: str, annotation: Any, keys: Mapping[str, Any]) -> Any:
        """A reference to the result of a step. One with `output=` has the shape that this gives it."""
        path = ("steps", step_id, "output")
        if "output" in keys:
            return make_result(path, self.origin(step_id), Any)
        return make_result(path, self.origin(step_id), annotation)

    def add_executors(self, executors: Mapping[str, Callable[..., Any]], modules: frozenset[str]) -> None:
        for fn, executor in executors.items():
            if self.executors.setdefault(fn, executor) is not executor:
                other = getattr(self.executors[fn], "__module__", "?")
                message = f"two functions have the name {fn!r}: one of {other}, one of {executor.__module__}"
                raise spec_error("duplicate_id", message, f"rename one with @step(fn=...), as in {fn}_2")
        self.modules |= modules

    # ---- parts of steps

    def write_keys(self, keys: Mapping[str, Any], output: Callable[[], Any]) -> dict[str, Any]:
        """The keys of a step as the builder takes them. `output` is what `branch` and `compensate` read."""
        self.check_values(keys)
        written = dict(keys)
        if "after" in keys:
            written["after"] = self._find_after(keys["after"])
        if callable(keys.get("branch")):
            written["branch"] = self._write_branches(keys["branch"](output()))
        if callable(keys.get("compensate")):
            written["compensate"] = self._write_compensation(keys["compensate"], output())
        return written

    def _find_after(self, after: Any) -> list[Step | str]:
        """The steps that `after` names: results, steps, names of steps, or a list of these."""
        found: list[Step | str] = []
        for one in after if isinstance(after, list | tuple) else [after]:
            if isinstance(one, Expr):
                steps = find_steps(one)
                if not steps:
                    raise spec_error("unknown_dependency", "after= names a value that no step returns")
                found += [one for one in self._ids if one in steps]
            elif isinstance(one, Step | str):
                found.append(one)
            else:
                message = f"after= takes the results of steps, or their names, not {one!r}"
                raise spec_error("unknown_dependency", message)
        return list(dict.fromkeys(found))

    @staticmethod
    def _write_branches(branches: Any) -> Sequence[Branch]:
        return [branches] if isinstance(branches, Branch) else branches

    def _write_compensation(self, body: Callable[[Any], Any], output: Any) -> Compensate:
        call = self.capture("compensate", body, output)
        keys = call.step.keys
        written: Any = {"fn": call.step.fn, **({"input": call.inputs} if call.inputs else {})}
        compensation: Compensate = written | {
            name: keys[name] for name in ("timeout", "retry", "queue") if name in keys
        }
        return compensation

    def capture(self, form: str, body: Callable[..., Any], *values: Any) -> CapturedCall:
        """Call a function that calls one step, and return that call instead of adding it."""
        self.check_can_add(form)
        self._capture = capture = Capture(form)
        try:
            returned = body(*values)
        finally:
            self._capture = None
        if len(capture.calls) != 1 or capture.calls[0][0] is not returned:
            message = f"the function of {form} must call one step and return its result"
            raise spec_error("bad_call", message, f"it calls {len(capture.calls)}")
        return capture.calls[0][1]

    @contextmanager
    def scope(self, description: str) -> Iterator[frozenset[Origin]]:
        """The origin of values that can be read only inside the block."""
        origin = Origin(description, self.builder)
        yield frozenset({origin})
        self._closed.add(origin)

    def check_values(self, values: Any) -> None:
        """Reject values of other workflows, and those that can be read only elsewhere."""
        for expression in find_expressions(values):
            for origin in expression._origins:
                if origin.owner is not None and origin.owner is not self.builder:
                    message = f"{origin.description} does not belong to this workflow"
                    raise spec_error("unknown_dependency", message)
                if origin in self._closed:
                    raise spec_error("bad_path", f"{origin.description} can be read only in its function")


def current_trace() -> Trace | None:
    """The workflow function that is being read, if there is one."""
    return _current.get()


def require_trace(form: str, advice: str) -> Trace:
    """The workflow function that is being read; OutsideWorkflow if there is none."""
    trace = _current.get()
    if trace is None:
        raise OutsideWorkflow(f"{form} works only in a workflow that runs: {advice}")
    return trace


def reject_references(values: Any, form: str) -> None:
    """Reject references in the arguments of a plain call."""
    found = next(find_expressions(values), None)
    if found is not None:
        source = next((one.description for one in found._origins), "an expression")
        message = f"{form} is called outside of a workflow with a value that only a workflow has: {source}"
        raise spec_error("unknown_dependency", message, "call it inside of the function with @workflow")


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)
