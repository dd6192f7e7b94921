"""What arrives: the facts that move an execution."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

IDEMPOTENCY_WINDOW_S = 86_400

ConflictPolicy = Literal["fail", "use_existing", "terminate_existing"]
"""What a start does when an execution with its id is already there."""


@lru_cache(maxsize=1024)
def iso(at_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC."""
    return f"{_iso_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _iso_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def parse_iso_ms(at: str) -> int:
    """The way back: a time as iso() writes it, in milliseconds since the epoch."""
    return round(datetime.fromisoformat(at).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something is decided, and the nonce from which its tokens are made.

    The time is that of the event which caused the decision, so a redelivered event decides the same.
    The nonce is never used twice, not even when the store rolled back to an older state.
    """

    at_ms: int
    nonce: str
    cause: str = ""
    iso: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "iso", iso(self.at_ms))


@dataclass(frozen=True, slots=True)
class Parent:
    """Whose child an execution is: the dispatch that waits for its end, the execution at the top of them
    all, and how many are above."""

    execution: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    root: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class StartEvent:
    """Somebody asks for an execution: of a registered name, or of the spec sent along. A `parent` asks for
    the child that its step describes; a `schedule` is the name of the one whose slot has come; `labels` are
    for finding the execution again; `webhook` is as somebody wrote it, a URL or a mapping."""

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


@dataclass(slots=True)
class ResultEvent:
    """What one attempt brought back: an output, or an error with its kind. It is never changed.

    `run_id`, `attempt` and `token` are None only for a caller who holds no job (the two-step use of
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
    """A worker began this attempt; sent with the first beat, so short steps send none."""

    workflow_execution_id: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    worker: str | None = None
    started_at: str | None = None


@dataclass(frozen=True, slots=True)
class LostEvent:
    """The worker of this attempt died, or its job never reached one."""

    workflow_execution_id: str
    step_id: str
    run_id: int
    attempt: int
    token: str
    reason: str = "lost"


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """A time has come: the `deadline` of an attempt or a wait, a `retry`, `wake` from a deferral, or the
    `timeout` of the workflow, which names no step."""

    kind: str
    workflow_execution_id: str
    step_id: str
    token: str


@dataclass(frozen=True, slots=True)
class SignalEvent:
    """Somebody outside says something to an execution."""

    workflow_execution_id: str
    name: str
    payload: Any = None


Control = Literal["cancel", "pause", "unpause", "hold", "release", "retry", "rerun", "delete"]


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """Somebody outside tells an execution, or one step of it, what to do. Who lets it run again may correct
    its `inputs`. A parent that cancels its child says of which of its dispatches (`parent_token`): another
    one may have begun a child of the same id since. It does not mind whether there is one."""

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
    """A place under a concurrency key is ours: for a step, or for the whole execution if none is named."""

    workflow_execution_id: str
    step_id: str
    token: str


@dataclass(frozen=True, slots=True)
class ContinueEvent:
    """A large fan-out goes on: the commit before this one left ready steps behind."""

    workflow_execution_id: str


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """There is something to see at a schedule: a slot has come, or one of its executions has ended."""

    name: str


StepEvent = (
    ResultEvent
    | StartedEvent
    | LostEvent
    | TimerEvent
    | SignalEvent
    | ControlEvent
    | SlotEvent
    | ContinueEvent
)
OutgoingEvent = StartEvent | ResultEvent | ControlEvent | SlotEvent
"""What one execution may say to another: written by the commit that decided it, delivered like any event."""
Event = StartEvent | StepEvent | ScheduleEvent


def failure(kind: str, message: str, type_: str | None = None, **details: Any) -> dict[str, Any]:
    """The one shape of an error, in records, results and dead letters."""
    error: dict[str, Any] = {"kind": kind, "message": message}
    if type_ is not None:
        error["type"] = type_
    error.update(details)
    return error
