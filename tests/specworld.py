"""A world made of StepSpec objects instead of a document, with a clock that stands still until told.

    world = world_of(task("a", retry=RetrySpec()), task("b", after="a", defer_ms=500))
    world.advance()                      # claims a
    world.fail("a")                      # a waits for its next attempt
    world.pass_time(1000)                # its timer rings: claims a again

After every commit it compares what is kept beside the record with what the record says (`check`): readiness,
the jobs that are out, and the timers that were armed and not disarmed. A decision that leaves an execution
with nothing to wait for fails whichever test happens to make it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from coreworld import START_MS, Json, World, document, photograph, reloaded
from orchestrator.application.changes import Changes
from orchestrator.application.decisions import Decision
from orchestrator.application.events import Moment, StepEvent, TimerEvent
from orchestrator.application.graph import build_graph
from orchestrator.application.readiness import Readiness
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.spec import BranchSpec, StepSpec, SwitchSpec, WorkflowSpec
from orchestrator.application.states import StepStatus, WorkflowStatus
from orchestrator.application.timers import Timer, timers_due, timers_of
from orchestrator.application.units import StepRecord
from orchestrator.application.validation import LoadedSpec

BROKEN: Any = {"+": ["no number", 1]}  # an expression that always fails


def task(name: str, after: str | Sequence[str] = (), **keys: Any) -> StepSpec:
    """A step with an executor; an `on_error` that is given counts as written."""
    return _step(name, after, {"fn": name, **keys})


def switch(
    name: str,
    on: Any,
    cases: Mapping[str, str] | None = None,
    default: str | None = None,
    after: str | Sequence[str] = (),
    **keys: Any,
) -> StepSpec:
    """A switch; steps are listed as "x y". The listed ones must name it as their parent themselves."""
    listed = {key: tuple(ids.split()) for key, ids in (cases or {}).items()}
    spec = SwitchSpec(on, listed, None if default is None else tuple(default.split()))
    return _step(name, after, {"fn": "", "kind": "switch", "switch": spec, "timeout_s": None, **keys})


def delay(name: str, ms: int, after: str | Sequence[str] = (), **keys: Any) -> StepSpec:
    return _step(name, after, {"fn": "", "kind": "delay", "delay_ms": ms, "timeout_s": None, **keys})


def branch(condition: Any, action: Any, **keys: Any) -> BranchSpec:
    """A branch; `{"set": targets}` as in a document."""
    if isinstance(action, dict):
        return BranchSpec(condition, "set", targets=action["set"], **keys)
    return BranchSpec(condition, action, has_result_expr="result_expr" in keys, **keys)


def _step(name: str, after: str | Sequence[str], keys: Json) -> StepSpec:
    parents = tuple(after.split()) if isinstance(after, str) else tuple(after)
    written = {"on_error_written": True} if "on_error" in keys else {}
    return StepSpec(id=name, depends_on=parents, **{**written, **keys})


def record_of(*steps: StepSpec, inputs: Json | None = None, **workflow: Any) -> WorkflowRecord:
    graph, faults = build_graph(steps)
    assert not faults, faults
    loaded = LoadedSpec(WorkflowSpec(steps=steps, **workflow), graph, {"steps": []}, "w1")
    return WorkflowRecord(loaded, "x1", dict(inputs or {}), created_at=Moment(START_MS, "start").iso)


def world_of(*steps: StepSpec, inputs: Json | None = None, **workflow: Any) -> SpecWorld:
    return SpecWorld(record_of(*steps, inputs=inputs, **workflow))


class SpecWorld(World):
    """A world around a ready record. `armed` are the timers that a store would hold."""

    def __init__(self, record: WorkflowRecord, *, watched: bool = True) -> None:
        super().__init__(document(), watched=watched)
        self.record = record
        self.now_ms = START_MS
        self.armed = set(all_timers(record))

    # ---- time

    def moment(self) -> Moment:
        """Now, with a nonce of its own: time passes only in pass_time()."""
        self._moments += 1
        return Moment(self.now_ms, f"n{self._moments}", f"e{self._moments}")

    def pass_time(self, ms: int) -> Decision:
        """Let time pass; then everything that has become due rings, in one batch."""
        self.now_ms += ms
        return self.ring(*timers_due(self.record, self.now_ms))

    def ring(self, *timers: Timer) -> Decision:
        """These timers ring, due or not; a timer that rings is in nobody's set any more."""
        self.armed -= set(timers)
        return self.decide(*(self.timer_event(timer) for timer in timers))

    def timer_event(self, timer: Timer) -> TimerEvent:
        return TimerEvent(timer.kind, self.record.workflow_execution_id, timer.step_id, timer.token)

    @property
    def next_due_ms(self) -> int | None:
        """How long it is until the next timer rings."""
        due = [timer.due_ms for timer in all_timers(self.record)]
        return max(min(due) - self.now_ms, 0) if due else None

    # ---- moving

    def advance(self, limit: int | None = None) -> Decision:
        decision = super().advance(limit)
        self._check_that_it_goes_on()
        return decision

    def decide(self, *events: StepEvent, limit: int | None = None) -> Decision:
        decision = super().decide(*events, limit=limit)
        self._check_that_it_goes_on()
        return decision

    def pause(self) -> None:
        self.record.status = WorkflowStatus.PAUSED

    def unpause(self) -> Decision:
        self.record.status = WorkflowStatus.IN_PROGRESS
        return self.advance()

    def reload(self) -> None:
        """Go on as another process: with what is stored, and readiness made anew."""
        items = {unit: StepRecord.from_dict(item.as_dict()) for unit, item in self.record.items.items()}
        self.record = replace(
            reloaded(self.record), items=deepcopy(items), signals=deepcopy(self.record.signals)
        )

    # ---- looking

    @property
    def state(self) -> Json:
        return self.record.state

    def reason(self, step_id: str) -> str | None:
        return self[step_id].reason

    def error_kind(self, step_id: str) -> str | None:
        error = self[step_id].error
        return None if error is None else str(error["kind"])

    # ---- within

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        before = self._photograph() if self._watched else None
        yield
        if before is not None:
            assert self._photograph() == before, "a transition wrote to the record it was given"

    def _photograph(self) -> str:
        record = self.record
        return photograph(record) + repr((record.items, record.signals, record.deadline_ms))

    def _commit(self, changes: Changes) -> None:
        super()._commit(changes)
        moved = {(timer.kind, timer.step_id, timer.token) for timer in changes.timers}
        self.armed = {one for one in self.armed if (one.kind, one.step_id, one.token) not in moved}
        self.armed = (self.armed | set(changes.timers)) - set(changes.disarmed)
        check(self)

    def _check_that_it_goes_on(self) -> None:
        record = self.record
        assert (
            record.is_final
            or record.status is WorkflowStatus.PAUSED
            or self.out
            or self.armed
            or self.last.more
            or record.readiness.waiting
            or any(step.held for step in record.steps.values())
        ), f"nothing will ever happen again: {self.statuses}"


# ---- what must be true after every commit


def check(world: SpecWorld) -> None:
    record = world.record
    check_readiness(record)
    out = {unit for unit, one in record.units() if one.token is not None}
    assert out == set(world.out), "the jobs that are out are those whose units have a token"
    assert world.armed == set(all_timers(record)), "armed and not disarmed is what the record waits for"


def check_readiness(record: WorkflowRecord) -> None:
    kept, made = record.readiness, Readiness.of(record.graph, record.steps, record.items)
    assert kept.unmet == made.unmet
    assert (kept.open, kept.active, kept.in_flight) == (made.open, made.active, made.in_flight)
    assert kept.waiting == made.waiting
    assert kept.timed == made.timed
    assert kept.agenda == sorted(set(kept.agenda))
    assert kept.candidates == sorted(set(kept.candidates))
    if not record.is_final:
        judged = {
            position
            for position in made.agenda
            if record.steps[step_id := record.graph.order[position]].status is StepStatus.READY
            and step_id in record.graph.eager
        }
        known = {*kept.agenda, *kept.candidates}
        assert known >= set(made.agenda) - judged, "a step that can run is on nobody's agenda"


def all_timers(record: WorkflowRecord) -> Iterator[Timer]:
    """What an execution waits for by the clock."""
    for unit, one in record.units():
        yield from timers_of(unit, one)
    if record.deadline_ms is not None and not record.is_final:
        yield Timer("timeout", "", "", record.deadline_ms)
