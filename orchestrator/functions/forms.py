"""What a workflow function calls besides steps: map_each, switch, loop, wait_for, wait_for_any, sleep, child.

Outside of a workflow, map_each(), switch() and loop() work on plain values. The others only exist in a
workflow that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar, Unpack, overload

from orchestrator.application.spec.model import OnMax, OnTimeout
from orchestrator.builder.errors import check_arguments
from orchestrator.builder.expressions import Expr, Step, spec_error
from orchestrator.builder.keyword_arguments import Duration, PlacementKeys, Values
from orchestrator.functions.again import Again
from orchestrator.functions.annotations import UNKNOWN, describe, is_unknown, item_of, json_types
from orchestrator.functions.errors import OutsideWorkflow
from orchestrator.functions.results import Choice, Result, Typed, find_steps, make_items, make_result
from orchestrator.functions.steps import CommonKeys
from orchestrator.functions.tracing import Trace, current_trace, reject_references, require_trace

T = TypeVar("T")
R = TypeVar("R")

MAX_ITERATIONS = 10
_SIGNALS = "call order.run() or order.start(), or test it with orchestrator.testing, which sends signals"
_TIME = "call order.run() or order.start(), or test it with orchestrator.testing, which needs not wait"


class ChildKeys(CommonKeys, PlacementKeys, total=False):
    """Keys of steps that run another workflow."""


# ---- maps, switches and loops


@overload
def map_each(
    items: Iterable[T], call: Callable[[T], R], *, id: str | None = None, max_parallel: int | None = None
) -> list[R]: ...
@overload
def map_each(
    items: Iterable[T], call: Callable[[T, int], R], *, id: str | None = None, max_parallel: int | None = None
) -> list[R]: ...
def map_each(
    items: Any, call: Callable[..., Any], *, id: str | None = None, max_parallel: int | None = None
) -> Any:
    """Run a step for each item of a list: `map_each(order.lines, lambda line: price(line=line))`.

    The function calls one step and returns its result. It can take the index as a second argument. The result
    is the list of all results. The options of the step are those of each item.
    """
    trace, has_index = current_trace(), len(signature(call).parameters) > 1
    if trace is None:
        reject_references([items], "map_each()")
        return [call(item, n) if has_index else call(item) for n, item in enumerate(items)]
    annotation = _check_list(items)
    trace.check_values([items])
    with trace.scope("the item of map_each()") as inside:
        values = [Result(("item",), inside, item_of(annotation)), Result(("index",), inside, int)]
        captured = trace.capture("map_each()", call, *values[: 2 if has_index else 1])
    step = captured.step
    step_id, result = trace.choose_id(id or step.id, step.fn), step.parameters.result
    keys = trace.write_keys(step.keys, lambda: make_items(("output",), frozenset(), result))
    own = {"max_parallel": max_parallel} if max_parallel is not None else {}
    given: Any = {**trace.token_of(step, step_id), **own, "input": captured.inputs, **keys}
    trace.add(step_id, "map_each()", lambda: trace.builder.map(step_id, over=items, **given))
    item = UNKNOWN if "output" in keys else result
    return make_items(("steps", step_id, "output"), trace.origin(step_id), item)


def switch(
    on: object,
    cases: Mapping[str, Callable[[], R]],
    *,
    default: Callable[[], R] | None = None,
    id: str | None = None,
    **keys: Unpack[CommonKeys],
) -> R:
    """Run one of several branches: `switch(order.kind, {"parcel": lambda: ..., "letter": lambda: ...})`.

    Each branch is a function that calls steps, and returns the result of one or nothing. The result is that
    of the branch that runs.
    """
    trace = current_trace()
    if trace is None:
        reject_references([on], "switch()")
        chosen = cases.get(_case_key(on), default)
        if chosen is None:
            raise OutsideWorkflow(f"switch() has no case for {on!r}, and no default")
        return chosen()
    check_arguments("switch", keys, CommonKeys)
    step_id = trace.choose_id(id, "switch")
    value: R = _add_switch(trace, step_id, on, cases, default, keys)
    return value


def _add_switch(
    trace: Trace,
    step_id: str,
    on: Any,
    branches: Mapping[str, Callable[[], Any]],
    default: Callable[[], Any] | None,
    keys: Mapping[str, Any],
) -> Any:
    """Read the branches, and add the switch before their steps."""
    trace.check_values([on])
    written: Any = trace.write_keys(keys, lambda: UNKNOWN)
    position, values = len(trace.ids), list[Any]()
    cases: dict[str, list[str]] = {}
    for key, body in branches.items():
        cases[key] = _read_branch(trace, f"the branch {key!r}", body, values)
    if default is not None:
        written["default"] = _read_branch(trace, "the default branch", default, values)
    trace.add(
        step_id,
        "switch()",
        lambda: trace.builder.switch(step_id, on=on, cases=cases, **written),
        position,
    )
    steps = trace.ids[position:]
    return Choice(values, frozenset(origin for one in steps for origin in trace.origin(one)))


def _read_branch(trace: Trace, name: str, body: Callable[[], Any], values: list[Any]) -> list[str]:
    """The steps of a branch; its result is added to the values.

    The value of the switch is the first result that is not null. A result of a step outside of the branch
    would be there whichever branch runs.
    """
    first = len(trace.ids)
    value = body()
    own = list(trace.ids[first:])
    if isinstance(value, Typed) and isinstance(value, Expr) and set() < find_steps(value) <= set(own):
        values.append(value)
    elif value is not None and not isinstance(value, Step):
        message = f"{name} of switch() must return the result of a step that it calls, or None, not {value!r}"
        raise spec_error("bad_type", message, "use op.if_() to choose between values")
    return own


def loop(
    call: Callable[[T | None], T | Again[T]],
    *,
    max_iterations: int | None = None,
    on_max: OnMax | None = None,
    id: str | None = None,
) -> T:
    """Call a step until it returns something else than Again: `loop(lambda last: improve(draft=last))`.

    `last` is the value of the Again before, at first None.
    """
    trace = current_trace()
    if trace is None:
        value: T = _loop_plainly(call, max_iterations or MAX_ITERATIONS, on_max)
        return value
    with trace.scope("the last value of loop()") as inside:
        last = _LastValue(inside)
        captured = trace.capture("loop()", call, last.get(UNKNOWN))
        step = captured.step
        if not step.parameters.returns_again:
            message = f"{step.fn}() never returns Again, so loop() would call it once"
            raise spec_error("bad_type", message, "annotate its result: T | Again[T]")
    inputs = {name: last.retype(value, step.parameters.result) for name, value in captured.inputs.items()}
    step_id = trace.choose_id(id or step.id, step.fn)
    result = step.parameters.result
    keys = trace.write_keys(step.keys, lambda: make_result(("output",), frozenset(), result))
    rounds: Any = {"max_iterations": max_iterations, "on_max": on_max}
    given: Any = {**trace.token_of(step, step_id), "input": inputs, **keys}
    trace.add(step_id, "loop()", lambda: trace.builder.loop(step_id, **rounds, **given))
    ended: T = trace.result_of(step_id, result, keys)
    return ended


class _LastValue:
    """The value of the iteration before. Its path is known when the step is: a wrapped value is unwrapped."""

    _PATH = ("ctx", "loop", "value")

    def __init__(self, origins: frozenset[Any]) -> None:
        self._origins = origins

    def get(self, annotation: Any) -> Result:
        return Result(self._PATH, self._origins, annotation)

    def retype(self, value: Any, annotation: Any) -> Any:
        is_last = isinstance(value, Result) and value._keys == self._PATH
        return make_result(self._PATH, self._origins, annotation) if is_last else value


def _loop_plainly(call: Callable[[Any], Any], max_iterations: int, on_max: OnMax | None) -> Any:
    last = None
    for _ in range(max_iterations):
        returned = call(last)
        if not isinstance(returned, Again):
            return returned
        last = returned.value
    if on_max == "exit_with_last":
        return last
    raise OutsideWorkflow(f"loop() called the step {max_iterations} times, and it always returned Again")


# ---- waits and delays


def wait_for(
    signal: str,
    payload: type[T],
    *,
    id: str | None = None,
    timeout: Duration | None = None,
    on_timeout: OnTimeout | None = None,
    **keys: Unpack[CommonKeys],
) -> T:
    """Wait for a signal; the result is its payload. The step has the name of the signal."""
    trace = require_trace("wait_for()", _SIGNALS)
    check_arguments("wait_for", keys, CommonKeys)
    step_id = trace.choose_id(id, signal)
    given: Any = trace.write_keys(keys, lambda: Result(("output",), frozenset(), payload))
    trace.add(
        step_id,
        "wait_for()",
        lambda: trace.builder.wait(step_id, signal=signal, timeout=timeout, on_timeout=on_timeout, **given),
    )
    value: T = _payload_of(trace, step_id, payload)
    return value


def wait_for_any(
    signals: Sequence[str],
    payload: type[T],
    *,
    id: str | None = None,
    timeout: Duration | None = None,
    **keys: Unpack[CommonKeys],
) -> T:
    """Wait for the first of several signals. The result has its payload; `event` is its name or "timeout"."""
    trace = require_trace("wait_for_any()", _SIGNALS)
    check_arguments("wait_for_any", keys, CommonKeys)
    step_id = trace.choose_id(id, "wait")
    given: Any = trace.write_keys(keys, lambda: Result(("output",), frozenset(), payload))
    trace.add(
        step_id,
        "wait_for_any()",
        lambda: trace.builder.wait_any(step_id, signals=signals, timeout=timeout, **given),
    )
    value: T = _payload_of(trace, step_id, payload)
    return value


def sleep(duration: Duration, *, id: str | None = None, **keys: Unpack[CommonKeys]) -> Step:
    """Wait for some time. Pass the result as `after=` to the steps that come later."""
    trace = require_trace("sleep()", _TIME)
    check_arguments("sleep", keys, CommonKeys)
    step_id = trace.choose_id(id, "sleep")
    given: Any = trace.write_keys(keys, lambda: UNKNOWN)
    return trace.add(step_id, "sleep()", lambda: trace.builder.delay(step_id, duration, **given))


# ---- other workflows and steps


def child(
    workflow: str,
    /,
    result: type[R],
    *,
    input: Values | None = None,
    id: str | None = None,
    **keys: Unpack[ChildKeys],
) -> R:
    """Run a workflow that is registered under this name. The result is its outcome."""
    trace = require_trace("child()", "call the other workflow itself in a test")
    check_arguments("child", keys, ChildKeys)
    trace.check_values([input])
    step_id = trace.choose_id(id, workflow)
    given: Any = trace.write_keys(keys, lambda: Result(("output",), frozenset(), result))
    inputs: Any = {} if input is None else {"input": input}
    trace.add(step_id, "child()", lambda: trace.builder.child(step_id, workflow, **inputs, **given))
    value: R = _payload_of(trace, step_id, result)
    return value


def step_of(result: object) -> Step:
    """The step that returns this result: its `id`, `status` and `error`, and a target of reset()."""
    trace = require_trace("step_of()", "outside, there are only the results")
    if isinstance(result, Step):
        return result
    steps = sorted(find_steps(result)) if isinstance(result, Expr) else []
    if len(steps) != 1:
        message = f"step_of() needs the result of one step; this one is of {', '.join(steps) or 'none'}"
        raise spec_error("bad_type", message)
    return trace.builder[steps[0]]


def _payload_of(trace: Trace, step_id: str, annotation: Any) -> Any:
    """The output of a step that is never wrapped: its executor is not a function."""
    return Result(("steps", step_id, "output"), trace.origin(step_id), annotation)


def _check_list(items: Any) -> Any:
    """The type of a list of values; InvalidSpec if it is something else."""
    annotation = items._annotation if isinstance(items, Typed) else UNKNOWN
    if annotation is not None and not is_unknown(annotation):
        types = json_types(annotation)
        if types and "array" not in types:
            raise spec_error("bad_type", f"map_each() needs a list, not {describe(annotation)}")
    if not isinstance(items, Expr | Sequence) or isinstance(items, str):
        raise spec_error("bad_type", f"map_each() needs a list, not {items!r}")
    return annotation


def _case_key(value: object) -> str:
    """The key of a case, as the engine writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
