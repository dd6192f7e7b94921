"""How an executor is called: with its inputs, and with what else it names.

    def fetch(inputs, configuration, context, heartbeat, log, cancelled): ...

It imports nothing for that: what it is given follows from the names of its parameters.

    configuration              what its source is set up with
    context                    which call this is: ids, attempt, idempotency key, deadline
    heartbeat(progress, note)  says that it is at work
    log(text)                  keeps a line with the run of its step
    cancelled()                whether nobody waits for it any more
    evaluate(expression, data) an expression of the language, evaluated

The work-horse of every step imports this: nothing heavy may be needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from inspect import Parameter, Signature, signature
from typing import Any

from orchestrator.application.errors import ConfigurationMissing, HeartbeatMissing

OFFERED_PARAMETERS = frozenset({"heartbeat", "configuration", "context", "log", "cancelled", "evaluate"})

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def find_requested_parameters(executor: Callable[..., Any], given: int) -> frozenset[str]:
    """Which of NAMES an executor takes, besides the arguments that it is given by their position.

    Whatever those are called: the inputs may well be called `context`. A bare `**kwargs` names nothing.
    """
    try:
        return _remembered(executor, given)
    except TypeError:  # it cannot be hashed, and so not be remembered
        return _named_by(executor, given)


def _named_by(executor: Callable[..., Any], given: int) -> frozenset[str]:
    try:
        meant, taken = signature(executor), signature(executor, follow_wrapped=False)
    except (TypeError, ValueError):
        return frozenset()  # it tells nothing of itself
    names = _free(meant, given)
    if not any(one.kind is Parameter.VAR_KEYWORD for one in taken.parameters.values()):
        names &= _free(taken, given)  # a decorator need not pass on what the function below it names
    return names - executor.keywords.keys() if isinstance(executor, partial) else names


_remembered = lru_cache(maxsize=512)(_named_by)


def _free(found: Signature, given: int) -> frozenset[str]:
    parameters = list(found.parameters.values())
    by_position = [one.name for one in parameters if one.kind in _BY_POSITION]
    by_name = {one.name for one in parameters if one.kind in _BY_NAME}
    return OFFERED_PARAMETERS & by_name - set(by_position[:given])


def check_requested_parameters(
    named: frozenset[str], step: str, fn: str, heartbeat_s: float | None, source: Mapping[str, Any] | None
) -> None:
    """A step that wants to hear of its executor, or to set it up, must have one that takes part in it."""
    if heartbeat_s is not None and "heartbeat" not in named:
        raise HeartbeatMissing(step, fn, heartbeat_s)
    if source is not None and source["configuration"] and "configuration" not in named:
        raise ConfigurationMissing(step, fn)


class Heartbeat:
    """What an executor calls to say that it is at work; `at` is when it last did, or was called."""

    def __init__(
        self,
        clock: Callable[[], float],
        tell: Callable[[str], None] = lambda said: None,
        keep: Callable[[str], None] = lambda said: None,
    ) -> None:
        """`tell` is given all that is said, `keep` what has a note."""
        self._clock, self._tell, self._keep = clock, tell, keep
        self.at = clock()

    def __call__(self, progress: float | None = None, note: str | None = None) -> None:
        self.at = self._clock()
        said = [str(one) for one in (progress, note) if one is not None]
        if said:
            self._tell(": ".join(said))
        if note is not None:
            self._keep(": ".join(said))


def evaluate(expression: Any, data: Any) -> Any:
    """For an executor that is given expressions: what one means where `data` is all there is to read."""
    from orchestrator.application.expressions.evaluation import resolve

    return resolve(expression, data)


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
) -> dict[str, Any]:
    """Which call this is, as plain data. `deadline`: when the attempt will have exceeded its timeout."""
    step, _, item = unit.partition("#")
    return {
        "execution_id": workflow_execution_id.partition("#")[2],
        "workflow_execution_id": workflow_execution_id,
        "step": step,
        "item": int(item) if item.isdigit() else None,  # the compensation of a step is none
        "attempt": attempt,
        "run_id": run_id,
        "round": round,
        "iteration": iteration,
        "idempotency_key": idempotency_key,
        "deadline": deadline,
    }
