"""What the orchestration asks of the outside: a Store, a Runner and an EventLog.

Each has implementations that share its word (InMemoryStore, SqliteStore, RedisStore) and one contract
suite that runs on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.engine.schedules import Schedule
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Event
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_log import LogLine
from orchestrator.application.spec.model import LoadedSpec


@dataclass(frozen=True, slots=True)
class EventRef:
    """Where an event came from, so that it can be acknowledged there."""

    stream: str
    entry_id: str


@dataclass(slots=True)
class Commit:
    """One atomic write: what changes about a record, the events it answers, and what it tells producers.

    `creates` demands that no such execution exists yet. `answers` are the events' replies, by entry id.
    The store refuses the whole when the record is no longer at the version it was decided upon, when one
    of the `once` events is no longer pending, when a new child has a parent that does not wait for it, and
    when somebody was started before under the same idempotency `root` (a name, and for how many seconds).
    A new execution may take the place of one that has ended and `replaces` it, at the version it has there.
    """

    record: WorkflowRecord
    changes: Changes
    events: Sequence[EventRef] = ()
    require_pending: Sequence[EventRef] = ()
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    creates: bool = False
    root: tuple[str, int] | None = None
    replaces: WorkflowRecord | None = None


class Committed(Enum):
    """How a commit ended."""

    YES = "written whole"
    CONFLICT = "the record is at another version"
    EXISTS = "an execution with this id is already there"
    GONE = "an event was answered by somebody else"
    SPEC_COLLISION = "another document has the same workflow_id"
    EARLY_SIGNAL = "a signal came before the execution did"
    ORPHAN = "the step that asked for this child does not wait for it any more"
    REPEATED = "an execution was started under this idempotency root before"


class Store(Protocol):
    """Keeps records. `load` and `write` give and take isolated copies; `load` raises RecordNotFound."""

    def load(self, workflow_execution_id: str) -> WorkflowRecord: ...

    def write(self, record: WorkflowRecord) -> None: ...

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Write each commit whole or not at all, and move `record.version` of those written.

        The changes are applied to what is kept, not to `commit.record`: its owner does that.
        """
        ...


@runtime_checkable
class StepLogStore(Protocol):
    """A store that also keeps what executors say: the newest lines of an execution, as long as it is kept."""

    def add_log_lines(self, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
        """By the full id. Nothing happens when there is no such execution any more."""
        ...

    def lines(self, workflow_execution_id: str) -> list[LogLine]:
        """In the order in which they were added; RecordNotFound when there is no such execution."""
        ...


class Definitions(Protocol):
    """Keeps registered workflows by name."""

    def register(self, name: str, loaded: LoadedSpec) -> None: ...

    def named(self, names: Sequence[str]) -> list[str | None]:
        """The workflow_ids that are registered under names, or None, in one round trip."""
        ...

    def spec(self, workflow_id: str) -> LoadedSpec:
        """A spec that executions are pinned to."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """When they start by themselves."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule, and the text that it was read from, which must still be there when a decision upon it is
    written; `now_ms` is the store's clock."""

    schedule: Schedule
    text: str
    now_ms: int


class ScheduleStore(Protocol):
    """Keeps schedules by the names of their workflows."""

    def find(self, name: str) -> StoredSchedule | None: ...

    def find_open(self, execution_ids: Sequence[str]) -> set[str]:
        """Those of a schedule's executions that have not ended, or whose start nobody has answered yet."""
        ...

    def commit(
        self,
        before: StoredSchedule,
        after: Schedule,
        starts: Sequence[str],
        wake_ms: int | None,
        event: EventRef,
    ) -> Committed:
        """Write a schedule, its timer and its starts, and acknowledge the event: all of it or nothing.
        CONFLICT when somebody has changed it, GONE when the event was answered by somebody else."""
        ...


class SharedState(Protocol):
    """What is kept for more than one execution; `owner` of a scope is a root execution or a group."""

    def shared(self, owners: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """All values of each (scope, owner)."""
        ...

    def find_by_root(self, root: str) -> str | None:
        """The workflow_execution_id of the execution that was started under this idempotency root."""
        ...

    def posts(self) -> list[Delivery]:
        """What executions have said to each other and no commit has acknowledged; nothing where streams
        carry it."""
        ...

    def drop_outgoing_event(self, ref: EventRef) -> None: ...

    def register(self, name: str, loaded: LoadedSpec) -> None: ...

    def definition(self, name: str) -> LoadedSpec:
        """Raises KeyError for an unknown name."""
        ...


@runtime_checkable
class SharedStateStore(Protocol):
    """A store whose commits carry posts, slots and shared values too."""

    @property
    def shared_state(self) -> SharedState: ...


class Runner(Protocol):
    """Carries jobs to workers and results back."""

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> list[tuple[str, Any]]: ...

    def gather(self, workflow_execution_id: str) -> list[tuple[str, Any]]: ...

    def list_pending_jobs(self) -> list[DispatchJob]: ...

    def take_pending_jobs(self) -> list[DispatchJob]: ...

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry of an event stream: the event, or why it cannot be understood."""

    ref: EventRef
    at_ms: int
    event: Event | None
    problem: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    deliveries: int = 1

    @property
    def reply(self) -> str | None:
        """Under which name whoever sent it waits for an answer."""
        return self.fields.get("reply")


class EventLog(Protocol):
    """Brings events to coordinators, each to one of them, again and again until a commit acknowledges it."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self, count: int, block_ms: int) -> list[Delivery]:
        """New events; waits up to `block_ms` for the first of them."""
        ...

    def read_unfinished(self, count: int) -> Iterable[list[Delivery]]:
        """What this coordinator has read and not acknowledged, as `reclaim` brings it; `count` are looked up
        at a time."""
        ...

    def reclaim(self, min_idle_ms: int, count: int) -> Iterable[list[Delivery]]:
        """Take over what another coordinator read long ago and never acknowledged, up to `count` at a time
        and each when its turn has come; what may have killed whoever handled it comes alone."""
        ...

    def renew(self, deliveries: Sequence[Delivery], min_idle_ms: int) -> None:
        """Say that we are still at these events; those that were read or taken over less than `min_idle_ms`
        ago are left as they are."""
        ...

    def reject(self, delivery: Delivery, reason: str, answer: dict[str, Any] | None = None) -> None:
        """Move an event to the dead letters, with a reason, and acknowledge it: both or neither."""
        ...

    def answer(self, delivery: Delivery, answer: dict[str, Any]) -> None:
        """Acknowledge an event with an answer, and nothing else."""
        ...

    def drop(self, delivery: Delivery) -> None:
        """Acknowledge an event that means nothing any more."""
        ...

    def load_early_signals(self, execution_id: str) -> list[dict[str, Any]]:
        """The signals that came for an execution before it did."""
        ...

    def keep_early_signal(self, delivery: Delivery) -> bool:
        """Keep a signal for an execution that does not exist; False when it exists now."""
        ...

    def sweep(self) -> int:
        """Raise what is due as events, and say that this coordinator is alive."""
        ...

    def trim(self) -> int:
        """Drop what is acknowledged, and nothing else."""
        ...
