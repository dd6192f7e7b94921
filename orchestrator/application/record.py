"""What we know: the record of one execution, and the states its steps may be in.

A record is changed in one way only: transitions decide `Changes`, a store commits them, and then
`WorkflowRecord.apply` writes them down. Whoever decides never writes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from orchestrator.application.decisions import DispatchJob
from orchestrator.application.errors import IllegalTransition
from orchestrator.application.graph import Graph
from orchestrator.application.spec import WorkflowSpec
from orchestrator.application.validation import LoadedSpec

SCHEMA = 1


class StepStatus(StrEnum):
    READY = "ready"
    DEFERRED = "deferred"
    WAITING = "waiting"
    IN_PROGRESS = "in_progress"
    RETRY = "retry"
    ON_HOLD = "on_hold"
    COMPLETE = "complete"
    FAILED = "failed"
    SKIPPED = "skipped"
    FILTERED = "filtered"
    CANCELLED = "cancelled"
    HALTED = "halted"


class WorkflowStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    PAUSED = "paused"
    COMPENSATING = "compensating"
    COMPLETE = "complete"
    HALTED = "halted"
    FAILED = "failed"
    CANCELLED = "cancelled"


S, W = StepStatus, WorkflowStatus

FINAL_STEPS = frozenset({S.COMPLETE, S.FAILED, S.SKIPPED, S.FILTERED, S.CANCELLED, S.HALTED})
FINAL_WORKFLOWS = frozenset({W.COMPLETE, W.HALTED, W.FAILED, W.CANCELLED})
ACTIVE_STEPS = frozenset({S.IN_PROGRESS, S.WAITING, S.DEFERRED, S.RETRY, S.ON_HOLD})

_ENDS = {S.CANCELLED, S.READY}
STEP_MOVES: Mapping[StepStatus, frozenset[StepStatus]] = {
    S.READY: frozenset(S) - {S.RETRY, S.CANCELLED},
    S.DEFERRED: frozenset(
        {S.IN_PROGRESS, S.COMPLETE, S.WAITING, S.FAILED, S.SKIPPED, S.HALTED, S.ON_HOLD} | _ENDS
    ),
    S.WAITING: frozenset({S.COMPLETE, S.FAILED, S.SKIPPED, S.HALTED, S.RETRY, S.ON_HOLD} | _ENDS),
    S.IN_PROGRESS: frozenset({S.COMPLETE, S.HALTED, S.RETRY, S.FAILED, S.SKIPPED, S.IN_PROGRESS} | _ENDS),
    S.RETRY: frozenset({S.IN_PROGRESS, S.FAILED, S.SKIPPED, S.HALTED, S.RETRY, S.ON_HOLD} | _ENDS),
    S.ON_HOLD: frozenset({S.RETRY, S.DEFERRED, S.WAITING} | _ENDS),
    S.COMPLETE: frozenset({S.READY}),
    S.FAILED: frozenset({S.READY}),
    S.SKIPPED: frozenset({S.READY}),
    S.FILTERED: frozenset({S.READY}),
    S.CANCELLED: frozenset({S.READY}),
    S.HALTED: frozenset(),
}
"""From each state of a step, where it may go. Everything else raises IllegalTransition."""

WORKFLOW_MOVES: Mapping[WorkflowStatus, frozenset[WorkflowStatus]] = {
    W.PENDING: frozenset(W) - {W.PENDING, W.COMPENSATING},
    W.IN_PROGRESS: frozenset(W) - {W.PENDING, W.IN_PROGRESS},
    W.PAUSED: frozenset(W) - {W.PENDING, W.PAUSED, W.COMPENSATING},
    W.COMPENSATING: frozenset({W.FAILED, W.CANCELLED}),
    W.COMPLETE: frozenset(),
    W.HALTED: frozenset(),
    W.FAILED: frozenset({W.IN_PROGRESS}),
    W.CANCELLED: frozenset({W.IN_PROGRESS}),
}


def check_step_move(step_id: str, before: StepStatus, after: StepStatus) -> None:
    if after not in STEP_MOVES[before]:
        raise IllegalTransition(f"step {step_id!r}", before, after)


def check_workflow_move(before: WorkflowStatus, after: WorkflowStatus) -> None:
    if after not in WORKFLOW_MOVES[before]:
        raise IllegalTransition("the workflow", before, after)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one execution, or one item of a map.

    `run_id` counts every reset and re-dispatch from 0, `attempt` the executions since the last reset from
    1, `round` the resets by `set` or rerun, `lost` the workers that died with this attempt, `iteration` how
    often a loop said again. `value` is an item of a map, or the case a switch took. Times are ISO 8601 in
    UTC; what a timer compares is in milliseconds.
    """

    status: StepStatus = S.READY
    run_id: int = 0
    attempt: int = 1
    round: int = 0
    dispatches: int = 0
    lost: int = 0
    token: str | None = None
    output: Any = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    worker: str | None = None
    dispatched_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    deadline_ms: int | None = None
    not_before_ms: int | None = None
    wake_at_ms: int | None = None
    iteration: int = 0
    value: Any = None
    loop_value: Any = None
    items: ItemCounts | None = None

    @property
    def start_time(self) -> str | None:
        return self.started_at or self.dispatched_at

    @property
    def end_time(self) -> str | None:
        return self.ended_at

    @property
    def host(self) -> str | None:
        return self.worker

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_STEPS

    @property
    def awaits_dispatch(self) -> bool:
        """Whether advance() may dispatch it. In progress without a token: its worker was lost, or it is a map
        with items left."""
        if self.status is S.IN_PROGRESS:
            return self.token is None and (self.items is None or self.items.has_more)
        if self.status is S.RETRY:
            return self.not_before_ms is None
        if self.status is S.DEFERRED:
            return self.wake_at_ms is None
        return self.status is S.READY

    @property
    def has_timer(self) -> bool:
        return not (self.deadline_ms is None and self.not_before_ms is None and self.wake_at_ms is None)

    def as_dict(self) -> dict[str, Any]:
        """What is stored: the status and the counters, and whatever differs from a step that never ran."""
        stored: dict[str, Any] = {"status": self.status.value, "run_id": self.run_id, "attempt": self.attempt}
        for name, default in _STEP_DEFAULTS:
            value = getattr(self, name)
            if value != default or type(value) is not type(default):
                stored[name] = value
        if self.items is not None:
            stored["items"] = asdict(self.items)
        return stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StepRecord:
        known = {name: stored[name] for name, _ in _STEP_DEFAULTS if name in stored}
        if "items" in known:
            known["items"] = ItemCounts(**{**known["items"], "due": tuple(known["items"]["due"])})
        return cls(status=StepStatus(stored["status"]), **known)


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """How far a map is: `next` is the first item never dispatched, `due` are items to dispatch again, `out`
    those in progress, `settled` those that ended. After a fatal item none is dispatched any more."""

    count: int
    next: int = 0
    due: tuple[int, ...] = ()
    out: int = 0
    settled: int = 0
    errors: int = 0
    fatal: bool = False
    most: int | None = None

    @property
    def has_more(self) -> bool:
        """Whether an item can be dispatched now."""
        waits = bool(self.due) or self.next < self.count
        return waits and not self.fatal and (self.most is None or self.out < self.most)

    @property
    def is_over(self) -> bool:
        return self.settled == self.count or (self.fatal and not self.out)


_STEP_DEFAULTS = tuple((f.name, f.default) for f in fields(StepRecord) if f.name != "status")


@dataclass(frozen=True, slots=True)
class Timer:
    """Something to be looked at again at a time. It is a hint: the record is asked when it is due."""

    kind: str
    step_id: str
    token: str
    due_ms: int

    @property
    def name(self) -> tuple[str, str, str]:
        """Two timers of one name are one timer, at the later word."""
        return self.kind, self.step_id, self.token


def timers_due(record: WorkflowRecord, at_ms: int) -> list[Timer]:
    """All timers of an execution whose time has come: for those who have no set of timers to ask."""
    found = [timer for unit, step in record.units() for timer in timers_of(unit, step)]
    if record.deadline_ms is not None and not record.is_final:
        found.append(Timer("timeout", "", "", record.deadline_ms))
    return [timer for timer in found if timer.due_ms <= at_ms]


def timers_of(step_id: str, step: StepRecord) -> Iterator[Timer]:
    """What a step waits for by the clock. Without a dispatch its run names the timer: a reset outdates it."""
    if step.deadline_ms is not None:
        yield Timer("deadline", step_id, step.token or str(step.run_id), step.deadline_ms)
    if step.not_before_ms is not None:
        yield Timer("retry", step_id, str(step.run_id), step.not_before_ms)
    if step.wake_at_ms is not None:
        yield Timer("wake", step_id, str(step.run_id), step.wake_at_ms)


@dataclass(slots=True)
class Changes:
    """What a transition decided: the steps, state keys and fields that differ, and the effects.

    `settled` are the dispatches that brought their result, `revoked` those that nobody waits for any
    more, both as the step was while they were out; `timers` are to be armed, `disarmed` are not needed any
    more; `items` are those of maps, None for one that is gone; `counted` belongs into the counters (stale,
    late, lost), and `more` says that ready steps were left for a further advance().
    """

    at_ms: int = 0
    steps: dict[str, StepRecord] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    merged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[DispatchJob] = field(default_factory=list)
    settled: list[tuple[str, StepRecord]] = field(default_factory=list)
    revoked: list[tuple[str, StepRecord]] = field(default_factory=list)
    armings: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    disarmings: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    items: dict[str, StepRecord | None] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    more: bool = False
    readiness: ReadinessChanges | None = None

    @property
    def timers(self) -> list[Timer]:
        return list(self.armings.values())

    @property
    def disarmed(self) -> list[Timer]:
        return list(self.disarmings.values())

    @property
    def is_empty(self) -> bool:
        """Whether the record stays as it is: nothing to write but an acknowledgement."""
        return not (self.steps or self.items or self.state or self.fields or self.more)


@dataclass(slots=True)
class ReadinessChanges:
    unmet: dict[str, int] = field(default_factory=dict)
    open: int = 0
    active: int = 0
    in_flight: int = 0
    agenda: PositionChanges = field(default_factory=lambda: PositionChanges())
    candidates: PositionChanges = field(default_factory=lambda: PositionChanges())
    waiting: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class PositionChanges:
    taken: set[int] = field(default_factory=set)
    added: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Readiness:
    """What can be computed from a record, kept beside it so that an event costs what it touches.

    unmet      for each step, how many of its parents are not final
    open        how many steps are not final
    active      how many of them are under way: in progress, waiting, deferred, in retry or on hold
    in_flight   how many dispatches are out
    agenda      the spec positions of steps that the next advance() must judge, in order
    candidates  those it has judged and not dispatched, for want of capacity
    waiting     the steps that wait for a signal
    """

    unmet: dict[str, int]
    open: int
    active: int
    in_flight: int
    agenda: list[int]
    candidates: list[int] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, graph: Graph, steps: Mapping[str, StepRecord], items: Mapping[str, StepRecord] | None = None
    ) -> Readiness:
        final = {step_id for step_id, step in steps.items() if step.status in FINAL_STEPS}
        unmet = {
            step_id: sum(1 for parent in graph.parents[step_id] if parent not in final)
            for step_id in graph.order
        }
        agenda = [
            position
            for position, step_id in enumerate(graph.order)
            if steps[step_id].awaits_dispatch and graph.may_join(step_id, unmet[step_id])
        ]
        active = sum(1 for step in steps.values() if step.status in ACTIVE_STEPS)
        out = [*steps.values(), *(items or {}).values()]
        in_flight = sum(1 for unit in out if unit.token is not None)
        waiting = {step_id for step_id, step in steps.items() if step.status is S.WAITING}
        return cls(unmet, len(steps) - len(final), active, in_flight, agenda, waiting=waiting)

    def apply(self, changes: ReadinessChanges) -> None:
        self.unmet.update(changes.unmet)
        self.open += changes.open
        self.active += changes.active
        self.in_flight += changes.in_flight
        self.agenda = _edited(self.agenda, changes.agenda)
        self.candidates = _edited(self.candidates, changes.candidates)
        for step_id, waits in changes.waiting.items():
            (self.waiting.add if waits else self.waiting.discard)(step_id)


def _edited(positions: list[int], changes: PositionChanges) -> list[int]:
    """A sorted list without what was taken and with what was added; a short edit costs no new list."""
    if len(changes.taken) > 64:
        positions = [position for position in positions if position not in changes.taken]
    else:
        for position in changes.taken:
            at = bisect_left(positions, position)
            if at < len(positions) and positions[at] == position:
                del positions[at]
    for position in changes.added:
        at = bisect_left(positions, position)
        if at == len(positions) or positions[at] != position:
            insort(positions, position)
    return positions


def put_items(items: dict[str, StepRecord], changes: Changes) -> None:
    """Write the changed items of maps among the others, and take away those that are gone."""
    for unit, item in changes.items.items():
        if item is None:
            items.pop(unit, None)
        else:
            items[unit] = item


@dataclass(slots=True)
class WorkflowRecord:
    """All we know of one execution. `version` is the store's: it changes with every commit.

    `items` are the items of maps, under `<step>#<n>`; `signals` those that nobody has waited for yet.
    """

    loaded: LoadedSpec
    execution_id: str
    inputs: dict[str, Any]
    created_at: str
    status: WorkflowStatus = W.PENDING
    state: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, StepRecord] = field(default_factory=dict)
    items: dict[str, StepRecord] = field(default_factory=dict)
    signals: list[dict[str, Any]] = field(default_factory=list)
    outcome: Any = None
    error: dict[str, Any] | None = None
    ended_at: str | None = None
    deadline_ms: int | None = None
    start_event: str | None = None
    version: str = ""
    readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        for step_id in self.graph.order:
            if step_id not in self.steps:
                self.steps[step_id] = StepRecord()
        self.readiness = Readiness.of(self.graph, self.steps, self.items)

    @property
    def workflow_id(self) -> str:
        return self.loaded.workflow_id

    @property
    def workflow_execution_id(self) -> str:
        return f"{self.loaded.workflow_id}#{self.execution_id}"

    @property
    def spec(self) -> WorkflowSpec:
        return self.loaded.spec

    @property
    def graph(self) -> Graph:
        return self.loaded.graph

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_WORKFLOWS

    def units(self) -> Iterator[tuple[str, StepRecord]]:
        """Every step and every item of a map."""
        yield from self.steps.items()
        yield from self.items.items()

    def apply(self, changes: Changes) -> None:
        """Write down what was decided, after it was committed."""
        self.steps.update(changes.steps)
        put_items(self.items, changes)
        self.state.update(changes.state)
        for name, value in changes.fields.items():
            setattr(self, name, value)
        if changes.readiness is not None:
            self.readiness.apply(changes.readiness)
