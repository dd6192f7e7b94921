"""What can be decided: the results of advance() and on_step_result()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.application.values.secret_refs import SecretPath


@dataclass(slots=True)
class DispatchJob:
    """One dispatch of one step, with all that a worker needs. Like a StepRecord it is never changed.

    `token` names this dispatch and no other: a result that carries another one is dropped. `secrets` are the
    places in `inputs` where the worker puts secrets, `redact` the keys that name some besides the usual ones.
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

    @property
    def op(self) -> str:
        return self.fn

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step in this round, so that a side effect can be made once."""
        execution_id = self.workflow_execution_id.partition("#")[2]
        step_id, _, item = self.step_id.partition("#")
        parts = [execution_id, step_id or item, str(self.round)]
        if step_id and item:
            parts.append(item)
        if self.iteration is not None:
            parts.append(str(self.iteration))
        return "#".join(parts)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Steps were claimed; their jobs are to be handed to the runner."""

    jobs: list[DispatchJob] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pending:
    """Nothing new is ready; something is in progress, due later or awaited."""


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
    """A step failed for good, or the workflow could not go on; the outcome holds what could be resolved."""

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
    """How a workflow with this final status ended; the reason is that of a cancel."""
    match status:
        case "complete":
            return Complete(outcome)
        case "halted":
            return Halt(outcome)
        case "cancelled":
            return Cancelled(reason, outcome)
    return Failed(error or {}, outcome)


def replace_outcome(end: FinalDecision, change: Callable[[Any], Any]) -> FinalDecision:
    """The same end with another outcome."""
    if isinstance(end, Halt):
        return Halt(change(end.result))
    return replace(end, outcome=change(end.outcome))


@dataclass(frozen=True, slots=True)
class StateChangeEvent:
    """Handed to `on_state_change`: the step whose output was merged into the state."""

    op: str
