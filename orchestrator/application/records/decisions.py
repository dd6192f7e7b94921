"""The decisions that advance() and on_step_result() return, and the job of a dispatched step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.application.spec.model import Isolation
from orchestrator.application.values.secret_refs import SecretPath
from orchestrator.application.values.unit_id import split_unit


@dataclass(slots=True)
class DispatchJob:
    """One dispatch of one unit, with everything that a worker needs. It is never modified, like a StepRecord.

    `token` identifies this dispatch: a result with another token is dropped. `secrets` are the paths in
    `inputs` where the worker fills in secrets. `redact` are keys that hold secrets, besides the usual ones.
    `traceparent` is that of the start of the execution.
    """

    workflow_execution_id: str
    step_id: str
    fn: str
    inputs: dict[str, Any]
    run_id: int
    attempt: int = 1
    round: int = 0
    token: str = ""
    dispatched_at: str = ""
    queue: str = "default"
    timeout_s: float | None = None
    max_output_bytes: int = 1_048_576
    priority: int = 3
    iteration: int | None = None
    heartbeat_s: float | None = None
    source: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()
    secrets: tuple[SecretPath, ...] = ()
    redact: tuple[str, ...] = ()
    isolation: Isolation = "thread"
    traceparent: str | None = None

    @property
    def op(self) -> str:
        return self.fn

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt in one round, so that an executor can act only once."""
        return build_idempotency_key(self.workflow_execution_id, self.step_id, self.round, self.iteration)


def build_idempotency_key(
    workflow_execution_id: str, unit_id: str, round_number: int, iteration: int | None
) -> str:
    """The idempotency key of a unit in one round and iteration."""
    execution_id = workflow_execution_id.partition("#")[2]
    step_id, part = split_unit(unit_id)
    parts = [execution_id, step_id or part, str(round_number)]
    if step_id and part:
        parts.append(part)
    if iteration is not None:
        parts.append(str(iteration))
    return "#".join(parts)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Steps were claimed; the runner must enqueue their jobs."""

    jobs: list[DispatchJob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pending:
    """Nothing new is ready; something is in progress, due later or waiting."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Every step is final; the outcome holds the resolved outputs."""

    outcome: Any


@dataclass(frozen=True, slots=True)
class Halt:
    """A branch ended the workflow on purpose; the result is its payload."""

    result: Any

    @property
    def outcome(self) -> Any:
        return self.result


@dataclass(frozen=True, slots=True)
class Failed:
    """A step failed permanently, or the workflow could not continue; the outcome holds the outputs that could
    be resolved."""

    error: dict[str, Any]
    outcome: Any = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An operator ended the workflow."""

    reason: str | None = None
    outcome: Any = None


Decision = Dispatch | Pending | Complete | Halt | Failed | Cancelled
FinalDecision = Complete | Halt | Failed | Cancelled


def make_final_decision(
    status: str, outcome: Any, error: dict[str, Any] | None, reason: str | None = None
) -> FinalDecision:
    """The decision that matches a final status. `reason` is that of a cancel."""
    match status:
        case "complete":
            return Complete(outcome)
        case "halted":
            return Halt(outcome)
        case "cancelled":
            return Cancelled(reason, outcome)
    return Failed(error or {}, outcome)


def replace_outcome(end: FinalDecision, change: Callable[[Any], Any]) -> FinalDecision:
    """A final decision with `change` applied to its outcome: a copy, unless that returns the same object."""
    outcome = change(end.outcome)
    if outcome is end.outcome:
        return end
    return Halt(outcome) if isinstance(end, Halt) else replace(end, outcome=outcome)


@dataclass(frozen=True, slots=True)
class StateChangeEvent:
    """Passed to `on_state_change`: the step whose output was merged into the state."""

    op: str
