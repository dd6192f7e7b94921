"""The events that change an execution."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from orchestrator.application.values.dispatch_tokens import secret_token

IDEMPOTENCY_WINDOW_S = 86_400

ConflictPolicy = Literal["fail", "use_existing", "terminate_existing"]
"""What a start does when an execution with its id already exists."""


@lru_cache(maxsize=1024)
def iso(at_ms: int) -> str:
    """Format milliseconds since the epoch as ISO 8601 in UTC."""
    return f"{_iso_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _iso_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def parse_iso_ms(at: str) -> int:
    """Parse a time as written by iso() into milliseconds since the epoch."""
    return round(datetime.fromisoformat(at).timestamp() * 1000)


@dataclass(slots=True)
class Moment:
    """The time of a decision, and the nonce from which its tokens are made. It is never modified, like a
    StepRecord.

    The time is that of the event that causes the decision, so a redelivered event leads to the same decision.
    A nonce is never used twice, not even when the store rolled back to an older state. `has_secrets`: whether
    the tokens have a secret part, which is then known to the record and to the job alone.
    """

    at_ms: int
    nonce: str
    cause: str = ""
    has_secrets: bool = False
    iso: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.iso = iso(self.at_ms)

    def token(self, number: int) -> str:
        """The token of a dispatch, by its number in the decision."""
        plain = f"{self.nonce}-{number}"
        return secret_token(plain) if self.has_secrets else plain


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of a child execution: the dispatch that waits for the child's end, the root execution, and
    how many executions are above the child."""

    execution: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    root: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class StartEvent:
    """A request to start an execution of a registered workflow, or of the spec in `spec`. With a `parent` it
    starts the child that the parent's step describes. `schedule` is the name of the schedule whose slot is
    due. `labels` are for searching. `webhook` is a URL or a mapping, not yet validated. `traceparent` is the
    span that caused the start."""

    workflow: str | None = None
    spec: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    execution_id: str | None = None
    conflict_policy: ConflictPolicy = "fail"
    labels: dict[str, str] = field(default_factory=dict)
    group: str | None = None
    priority: int | None = None
    idempotency_root: str | None = None
    idempotency_window_s: int = IDEMPOTENCY_WINDOW_S
    parent: Parent | None = None
    schedule: str | None = None
    webhook: Any = None
    traceparent: str | None = None


@dataclass(slots=True)
class ResultEvent:
    """The result of one attempt: an output, or an error with its kind. It is never modified.

    `run_id`, `attempt` and `token` are None only when the caller has no job (the two-step use of
    `Workflow.on_step_result`); such a result is fenced by the step's status alone.
    """

    workflow_execution_id: str
    step_id: str
    output: Any = None
    error: dict[str, Any] | None = None
    run_id: int | None = None
    attempt: int | None = None
    token: str | None = None
    worker: str | None = None
    started_at: str | None = None


@dataclass(frozen=True, slots=True)
class StartedEvent:
    """A worker started this attempt. It is sent with the first heartbeat, so short steps send none."""

    workflow_execution_id: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    worker: str | None = None
    started_at: str | None = None


@dataclass(frozen=True, slots=True)
class LostEvent:
    """The worker of this attempt died, or its job never reached a worker."""

    workflow_execution_id: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    reason: str = "lost"


@dataclass(frozen=True, slots=True)
class DeclinedEvent:
    """The worker of this attempt does not have its executor. Another worker may have it."""

    workflow_execution_id: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    executor: str
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class AvailableEvent:
    """A worker has started that has an executor for which a step waits. It is a hint: the record decides."""

    workflow_execution_id: str
    step_id: str
    executor: str


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """A timer is due: the `deadline` of an attempt or a wait, a `retry`, the `wake` of a deferred step, or
    the `timeout` of the workflow, which names no step."""

    kind: str
    workflow_execution_id: str
    step_id: str
    token: str


@dataclass(frozen=True, slots=True)
class SignalEvent:
    """A signal from outside to an execution."""

    workflow_execution_id: str
    name: str
    payload: Any = None


Control = Literal["cancel", "pause", "unpause", "hold", "release", "retry", "rerun", "delete"]


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """A command to an execution, or to one of its steps. `retry` and `rerun` may correct `inputs`.

    `parent_token` is set when a parent cancels its child. It names the dispatch that started the child,
    because a later dispatch may have started a child with the same id. The child need not exist."""

    workflow_execution_id: str
    action: Control
    step_id: str = ""
    reason: str | None = None
    by: str | None = None
    parent_token: str | None = None
    inputs: dict[str, Any] | None = None

    @property
    def is_from_parent(self) -> bool:
        return self.parent_token is not None


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """A slot under a concurrency key was granted to a step, or to the execution if `step_id` is empty."""

    workflow_execution_id: str
    step_id: str
    token: str


@dataclass(frozen=True, slots=True)
class ContinueEvent:
    """Goes on where a commit left ready steps behind: a large fan-out, or a decision that took too much work.
    `step_id` is the first step that was not evaluated yet; empty when there is no such step."""

    workflow_execution_id: str
    step_id: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """A schedule needs attention: a slot is due, or one of its executions has ended."""

    name: str


StepEvent = (
    ResultEvent
    | StartedEvent
    | LostEvent
    | DeclinedEvent
    | AvailableEvent
    | TimerEvent
    | SignalEvent
    | ControlEvent
    | SlotEvent
    | ContinueEvent
)
OutgoingEvent = StartEvent | ResultEvent | ControlEvent | SlotEvent
"""Events that one execution may send to another, written by the commit of the decision and delivered like any
other event."""
Event = StartEvent | StepEvent | ScheduleEvent


def make_failure(kind: str, message: str, type_: str | None = None, **details: Any) -> dict[str, Any]:
    """Build an error as it is stored in records, results and dead letters."""
    error: dict[str, Any] = {"kind": kind, "message": message}
    if type_ is not None:
        error["type"] = type_
    error.update(details)
    return error
