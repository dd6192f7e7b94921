"""The parameters of an executor: its inputs, and others that it requests by name.

    def fetch(inputs, configuration, context, heartbeat, log, cancelled): ...

An executor imports nothing for this: a worker passes what its parameters are named after.

    configuration               the configuration of its source
    context                     ids, attempt, idempotency key, deadline and traceparent of this call
    heartbeat(progress, note)   reports that the executor is still working
    log(text)                   adds a line to the step log
    cancelled()                 whether the result of this call is no longer needed
    evaluate(expression, data)  evaluates an expression of the workflow language

The work-horse of every step imports this: it must load nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from inspect import Parameter, Signature, signature
from typing import Any

from orchestrator.application.errors import ConfigurationMissing, HeartbeatMissing
from orchestrator.application.values.trace_context import context_of_attempt
from orchestrator.application.values.unit_id import split_unit

OFFERED_PARAMETERS = frozenset({"heartbeat", "configuration", "context", "log", "cancelled", "evaluate"})

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def find_requested_parameters(executor: Callable[..., Any], positional: int) -> frozenset[str]:
    """The OFFERED_PARAMETERS that an executor takes, besides its first `positional` arguments.

    The names of those do not matter: the inputs may well be called `context`. A bare `**kwargs` requests
    nothing.
    """
    try:
        return _find_cached(executor, positional)
    except TypeError:  # an unhashable executor cannot be cached
        return _find_requested(executor, positional)


def _find_requested(executor: Callable[..., Any], positional: int) -> frozenset[str]:
    try:
        wrapped, outer = signature(executor), signature(executor, follow_wrapped=False)
    except (TypeError, ValueError):
        return frozenset()  # it has no signature
    names = _offered_names(wrapped, positional)
    if not any(one.kind is Parameter.VAR_KEYWORD for one in outer.parameters.values()):
        names &= _offered_names(outer, positional)  # a decorator need not pass on what its function takes
    return names - executor.keywords.keys() if isinstance(executor, partial) else names


_find_cached = lru_cache(maxsize=512)(_find_requested)


def _offered_names(found: Signature, positional: int) -> frozenset[str]:
    parameters = list(found.parameters.values())
    by_position = [one.name for one in parameters if one.kind in _BY_POSITION]
    by_name = {one.name for one in parameters if one.kind in _BY_NAME}
    return OFFERED_PARAMETERS & by_name - set(by_position[:positional])


def check_requested_parameters(
    requested: frozenset[str],
    step: str,
    fn: str,
    heartbeat_s: float | None,
    source: Mapping[str, Any] | None,
) -> None:
    """Check that the executor takes `heartbeat` or `configuration` if its step needs it."""
    if heartbeat_s is not None and "heartbeat" not in requested:
        raise HeartbeatMissing(step, fn, heartbeat_s)
    if source is not None and source["configuration"] and "configuration" not in requested:
        raise ConfigurationMissing(step, fn)


class Heartbeat:
    """An executor calls this to report that it is still working; `at` is the time of the last call, or of the
    start."""

    def __init__(
        self,
        clock: Callable[[], float],
        report: Callable[[str], None] = lambda text: None,
        keep: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`report` gets every progress and note, `keep` only those with a note."""
        self._clock, self._report, self._keep = clock, report, keep
        self.at = clock()

    def __call__(self, progress: float | None = None, note: str | None = None) -> None:
        self.at = self._clock()
        texts = [str(one) for one in (progress, note) if one is not None]
        if texts:
            self._report(": ".join(texts))
        if note is not None:
            self._keep(": ".join(texts))


def evaluate(expression: Any, data: Any) -> Any:
    """Evaluate an expression for an executor; it can read only `data`."""
    from orchestrator.application.expressions.evaluation import resolve
    from orchestrator.application.expressions.meter import MAX_WORK_ON_WORKER, Meter

    return resolve(expression, data, Meter(MAX_WORK_ON_WORKER))


def build_context(
    workflow_execution_id: str,
    unit: str,
    *,
    run_id: int,
    attempt: int,
    round: int,
    iteration: int | None,
    idempotency_key: str,
    deadline: str | None,
    traceparent: str | None = None,
) -> dict[str, Any]:
    """The context of a call as plain data. `deadline` is when the attempt exceeds its timeout. `traceparent`
    is that of the start of the execution; the context has that of the attempt."""
    step, part = split_unit(unit)
    return {
        "execution_id": workflow_execution_id.partition("#")[2],
        "workflow_execution_id": workflow_execution_id,
        "step": step,
        "item": int(part) if part.isdigit() else None,  # a compensation is not an item
        "attempt": attempt,
        "run_id": run_id,
        "round": round,
        "iteration": iteration,
        "idempotency_key": idempotency_key,
        "deadline": deadline,
        "traceparent": str(context_of_attempt(workflow_execution_id, unit, run_id, attempt, traceparent)),
    }
