"""The ports of the orchestration: Store, Runner, EventLog, and the smaller ones beside them.

Each port has implementations that share its word (InMemoryStore, SqliteStore, RedisStore), and one contract
test suite runs on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.engine.schedules import Schedule
from orchestrator.application.errors import InvalidEvent, RecordConflict
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.delta import Delta
from orchestrator.application.records.events import Event, ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_log import LogLine
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.values.rejection_kinds import RejectionKind


@dataclass(frozen=True, slots=True)
class EventRef:
    """The stream and entry id of an event, with which it is acknowledged."""

    stream: str
    entry_id: str


@dataclass(slots=True)
class Commit:
    """One atomic write: the changes of a record, the events it acknowledges, and the replies to producers.

    `events` are acknowledged; `replies` holds the reply to each of them, by entry id.
    `creates` requires that no execution has this id yet. A new execution may replace one that has ended:
    `replaces` is that record, at the version it must still have in the store.
    `idempotency_root` is a name and a window in seconds.
    `failure` is set by the store when it could not write this commit.
    `written_bytes` may be set by the store: the size of the fields of the record that it writes.
    `has_delta` is set by the backend: the history gets a delta too. `delta` is set by the store then.

    The store rejects the whole commit when
    - the record is no longer at the version that was decided upon;
    - one of the `pending_refs` is no longer pending;
    - a new child has a parent that does not wait for it;
    - an execution was already started under the same idempotency root within its window.
    """

    record: WorkflowRecord
    changes: Changes
    events: Sequence[EventRef] = ()
    pending_refs: Sequence[EventRef] = ()
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)
    creates: bool = False
    idempotency_root: tuple[str, int] | None = None
    replaces: WorkflowRecord | None = None
    failure: str = ""
    written_bytes: int = 0
    has_delta: bool = False
    delta: Delta | None = None


class Committed(Enum):
    """The result of a commit."""

    YES = "written"
    CONFLICT = "the record is at another version"
    EXISTS = "an execution with this id already exists"
    GONE = "another coordinator has already handled one of the events"
    SPEC_COLLISION = "another document has the same workflow_id"
    EARLY_SIGNAL = "a signal arrived before the execution was created"
    ORPHAN = "the parent step no longer waits for this child"
    REPEATED = "an execution was already started under this idempotency root"
    FAILED = "the store could not write it; `failure` of the commit has the reason"


def check_version(record: WorkflowRecord, stored: str | None) -> None:
    """Raise RecordConflict if a record was loaded and is stored at another version now. A writer may have
    counted the version up itself."""
    if not record.version or stored is None or stored == record.version:
        return
    own, other = (int(version.partition("-")[0] or 0) for version in (record.version, stored))
    if own <= other:
        raise RecordConflict(record.workflow_execution_id, record.version)


class Store(Protocol):
    """Keeps records. `load` returns and `write` takes isolated copies; `load` raises RecordNotFound."""

    def load(self, workflow_execution_id: str) -> WorkflowRecord: ...

    def write(self, record: WorkflowRecord) -> None:
        """Write a whole record over what is stored, and set its new `version`. A record that was loaded must
        still be stored at that version, or RecordConflict is raised; a new one replaces any other."""
        ...

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Write each commit as a whole or not at all, and set the new `record.version` of those written.

        The changes are applied to the stored record, not to `commit.record`: the caller applies them there.
        """
        ...


@runtime_checkable
class StepLogStore(Protocol):
    """A store that also keeps the step log: the newest lines of an execution, until it is deleted."""

    def add_log_lines(self, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
        """Append lines to an execution, by its full id. Does nothing when the execution does not exist."""
        ...

    def log_lines(self, workflow_execution_id: str) -> list[LogLine]:
        """The lines in the order in which they were added; RecordNotFound when there is no such execution."""
        ...


class Definitions(Protocol):
    """Keeps registered workflows by name."""

    def register(self, name: str, loaded: LoadedSpec) -> None: ...

    def find_workflow_ids(self, names: Sequence[str]) -> list[str | None]:
        """The workflow_id registered under each name, or None, in one round trip."""
        ...

    def spec(self, workflow_id: str) -> LoadedSpec:
        """A spec that executions are pinned to."""
        ...

    def find_spec(self, workflow_id: str, max_bytes: int) -> LoadedSpec | str:
        """A spec that executions are pinned to; its document, as JSON, if it is not loaded yet and has more
        than `max_bytes`."""
        ...

    def add_loaded(self, workflow_id: str, loaded: LoadedSpec) -> LoadedSpec:
        """Keep a spec that was loaded elsewhere from the document that is stored under this id."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """The schedules of the registered workflows."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule and the text it was read from. A decision about it is written only if the store still has
    the same text. `now_ms` is the store's clock."""

    schedule: Schedule
    text: str
    now_ms: int


class ScheduleStore(Protocol):
    """Keeps schedules by the names of their workflows."""

    def find(self, name: str) -> StoredSchedule | None: ...

    def find_open(self, execution_ids: Sequence[str]) -> set[str]:
        """The executions of a schedule that have not ended, or whose start event is not handled yet."""
        ...

    def commit(
        self,
        before: StoredSchedule,
        after: Schedule,
        starts: Sequence[str],
        wake_ms: int | None,
        event: EventRef,
    ) -> Committed:
        """Write a schedule, its timer and its start events, and acknowledge the event, all or nothing.
        CONFLICT when the schedule was changed, GONE when another coordinator has handled the event."""
        ...


class SharedState(Protocol):
    """Data of more than one execution. The `owner` of a scope is a root execution or a group."""

    def load_values(self, owners: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """All values of each (scope, owner)."""
        ...

    def find_by_root(self, root: str) -> str | None:
        """The workflow_execution_id of the execution that was started under this idempotency root."""
        ...

    def outgoing_events(self) -> list[Delivery]:
        """Events from one execution to another that no commit has acknowledged; empty where streams carry
        them."""
        ...

    def drop_outgoing_event(self, ref: EventRef) -> None: ...

    def register(self, name: str, loaded: LoadedSpec) -> None: ...

    def load_definition(self, name: str) -> LoadedSpec:
        """The spec registered under a name; KeyError for an unknown one."""
        ...


@runtime_checkable
class SharedStateStore(Protocol):
    """A store whose commits also write outgoing events, slots and shared values."""

    @property
    def shared_state(self) -> SharedState: ...


class Worker(Protocol):
    """Runs the jobs of a runner."""

    def run(self, workflow_execution_id: str) -> None: ...


class Runner(Protocol):
    """Carries jobs to workers and results back."""

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> list[tuple[str, Any]]: ...

    def gather(self, workflow_execution_id: str) -> list[tuple[str, Any]]: ...

    def list_pending_jobs(self) -> list[DispatchJob]: ...

    def take_pending_jobs(self) -> list[DispatchJob]: ...

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None: ...


@runtime_checkable
class LeasedRunner(Protocol):
    """A runner that leases the jobs that workers take, so that the death of a worker is noticed."""

    lease_s: float

    def take_jobs(self, limit: int) -> list[DispatchJob]:
        """Take up to `limit` pending jobs, each under a lease."""
        ...

    def renew_leases(self, jobs: Sequence[DispatchJob]) -> None:
        """Renew the leases of jobs that were taken here and still run."""
        ...

    def acknowledge(self, results: Sequence[ResultEvent]) -> None:
        """Delete results whose commit is written. Until then results() returns them again, to any caller."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry of an event stream: the event, or the problem why it cannot be parsed. `source` is the event,
    or parses it: that is done when the event is first asked for, because it may be large."""

    ref: EventRef
    at_ms: int
    source: Event | Callable[[], Event] | None
    fields: dict[str, str] = field(default_factory=dict)
    delivery_count: int = 1
    origin: EventRef | None = None
    """Where the event was sent to, if it was moved since: a start may have been held."""
    _parsed: list[tuple[Event | None, str | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def event(self) -> Event | None:
        return self._parse()[0]

    @property
    def problem(self) -> str | None:
        return self._parse()[1]

    @property
    def size(self) -> int:
        """How many characters the entry has."""
        return sum(map(len, self.fields.values()))

    def _parse(self) -> tuple[Event | None, str | None]:
        if not self._parsed:
            try:
                self._parsed.append((self.source() if callable(self.source) else self.source, None))
            except InvalidEvent as error:
                self._parsed.append((None, str(error)))
        return self._parsed[0]

    @property
    def sent_as(self) -> EventRef:
        """The stream and entry id under which its sender knows the event."""
        return self.origin or self.ref

    @property
    def reply_to(self) -> str | None:
        """The name under which the sender waits for a reply."""
        return self.fields.get("reply")


Queue = tuple[str, int]
"""A queue of jobs: its name and a priority."""


class EventLog(Protocol):
    """Delivers each event to one coordinator, and again until a commit acknowledges it."""

    next_timer_s: float | None
    """In how many seconds the next timer is due, as of the last sweep; None when there is none."""
    has_secrets: bool
    """Whether tokens get a secret: not while a coordinator of an earlier release is alive, as of the last
    sweep."""

    reads_starts: bool
    """Whether new starts are read too; others are read in any case."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self, count: int, block_ms: int) -> list[Delivery]:
        """New events; waits up to `block_ms` for the first of them."""
        ...

    def read_unfinished(self, count: int, held: Container[EventRef] = ()) -> Iterable[list[Delivery]]:
        """Events that this coordinator has read and not acknowledged, in batches like those of `reclaim`;
        `count` are looked up at a time. Those that it still holds are left out: they are not delivered again,
        and so not counted."""
        ...

    def reclaim(
        self, min_idle_ms: int, count: int, held: Container[EventRef] = ()
    ) -> Iterable[list[Delivery]]:
        """Take over events that another coordinator read long ago and never acknowledged, up to `count` at a
        time, each when it is its turn. An event that may have killed a coordinator is delivered alone. Those
        that this coordinator still holds are left out."""
        ...

    def renew(self, deliveries: Sequence[Delivery], min_idle_ms: int) -> None:
        """Mark these events as still being handled, except those that were read or taken over less than
        `min_idle_ms` ago."""
        ...

    def read_again(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Events that this coordinator has read before, with their content, without those that were
        deleted."""
        ...

    def reject(
        self,
        delivery: Delivery,
        reason: str,
        reply: dict[str, Any] | None = None,
        kind: RejectionKind = RejectionKind.OTHER,
    ) -> None:
        """Move an event to the dead letters, with a reason, and acknowledge it: both or neither. A start is
        counted under its kind of rejection."""
        ...

    def reply(self, delivery: Delivery, reply: dict[str, Any]) -> None:
        """Acknowledge an event with a reply, and nothing else."""
        ...

    def drop(self, delivery: Delivery) -> None:
        """Acknowledge an event that has no effect any more."""
        ...

    @property
    def has_full_queues(self) -> bool:
        """Whether starts for some queue are held, as of the last sweep."""
        ...

    def hold(self, starts: Sequence[tuple[Delivery, Sequence[Queue]]]) -> list[bool]:
        """Hold the starts that need a full queue, in order: each is acknowledged, and delivered again when
        the queue has room. Returns for each start whether there is nothing more to do for it."""
        ...

    def load_early_signals(self, execution_id: str) -> list[dict[str, Any]]:
        """The signals that arrived before the execution was created."""
        ...

    def keep_early_signal(self, delivery: Delivery) -> bool:
        """Keep a signal for an execution that does not exist; False when it exists now."""
        ...

    def sweep(self) -> int:
        """Publish due timers as events, and record that this coordinator is alive."""
        ...

    def trim(self) -> int:
        """Delete acknowledged entries, and nothing else."""
        ...
