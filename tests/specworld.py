"""A world made of StepSpec objects instead of a document, with a clock that stands still until told.

    world = world_of(task("a", retry=RetrySpec()), task("b", after="a", defer_ms=500))
    world.advance()                      # claims a
    world.fail("a")                      # a waits for its next attempt
    world.pass_time(1000)                # its timer rings: claims a again

After every commit it compares what is kept beside the record with what the record says (`check`): readiness,
the jobs and children that are out, the timers that were armed and not disarmed, and the places under
concurrency keys that were asked for and not given back. A decision that leaves an execution with nothing to
wait for fails whichever test happens to make it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coreworld import START_MS, Json, World, document, reloaded
from orchestrator.application.engine.finish import child_result
from orchestrator.application.engine.transitions import decide, fail_workflow
from orchestrator.application.records.changes import Changes, SharedChange
from orchestrator.application.records.decisions import Decision
from orchestrator.application.records.events import (
    Control,
    ControlEvent,
    Moment,
    OutgoingEvent,
    Parent,
    ResultEvent,
    SlotEvent,
    StartEvent,
    StepEvent,
    TimerEvent,
    make_failure,
)
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import Slot
from orchestrator.application.records.timers import Timer, timers_for_step
from orchestrator.application.spec.graph_builder import build_graph
from orchestrator.application.spec.model import (
    BranchSpec,
    ChildSpec,
    CompensateSpec,
    ConcurrencySpec,
    LoadedSpec,
    StepSpec,
    SwitchSpec,
    WorkflowSpec,
)
from orchestrator.application.values.unit_id import WEBHOOK_UNIT

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


def child(name: str, after: str | Sequence[str] = (), **keys: Any) -> StepSpec:
    """A step that is a workflow of its own, registered under the name of the step."""
    keys = {"fn": "", "kind": "workflow", "child": ChildSpec(name=name), "timeout_s": None, **keys}
    return _step(name, after, keys)


def key(given: Any, limit: int = 1) -> dict[str, Any]:
    """The concurrency key of a step or a workflow, as keyword arguments."""
    return {"concurrency": ConcurrencySpec(given, limit)}


def undo(fn: str = "undo", input: Json | None = None, **keys: Any) -> dict[str, Any]:
    """The compensation of a step, as keyword arguments."""
    return {"compensate": CompensateSpec(fn, input or {}, **keys)}


def branch(condition: Any, action: Any, **keys: Any) -> BranchSpec:
    """A branch; `{"set": targets}` as in a document."""
    if isinstance(action, dict):
        return BranchSpec(condition, "set", targets=action["set"], **keys)
    return BranchSpec(condition, action, has_result_expr="result_expr" in keys, **keys)


def _step(name: str, after: str | Sequence[str], keys: Json) -> StepSpec:
    parents = tuple(after.split()) if isinstance(after, str) else tuple(after)
    written = {"has_own_on_error": True} if "on_error" in keys else {}
    return StepSpec(id=name, depends_on=parents, **{**written, **keys})


def record_of(*steps: StepSpec, inputs: Json | None = None, **workflow: Any) -> WorkflowRecord:
    graph, faults = build_graph(steps)
    assert not faults, faults
    loaded = LoadedSpec(WorkflowSpec(steps=steps, **workflow), graph, {"steps": []}, "w1")
    return WorkflowRecord(loaded, "x1", dict(inputs or {}), created_at=Moment(START_MS, "start").iso)


def world_of(*steps: StepSpec, inputs: Json | None = None, **workflow: Any) -> SpecWorld:
    return SpecWorld(record_of(*steps, inputs=inputs, **workflow))


class SpecWorld(World):
    """A world around a ready record. `armed` are the timers that a store would hold, `places` the slots under
    concurrency keys by their token; `posts` are all events sent to other executions. `awaited` are the
    children that a step waits for, by step, `ended` those whose result has arrived; `cancels` counts the
    cancels of each child."""

    def __init__(self, record: WorkflowRecord, *, watched: bool = True) -> None:
        super().__init__(document(), watched=watched)
        self.record = record
        self.now_ms = START_MS
        self.armed = set(all_timers(record))
        self.places: dict[str, tuple[str, Slot]] = {}
        self.posts: list[OutgoingEvent] = []
        self.awaited: dict[str, StartEvent] = {}
        self.children: list[StartEvent] = []
        self.ended: set[str] = set()
        self.cancels: Counter[str] = Counter()
        self.shared: list[SharedChange] = []

    # ---- time

    def moment(self) -> Moment:
        """Now, with a nonce of its own: time passes only in pass_time()."""
        self._moments += 1
        return Moment(self.now_ms, f"n{self._moments}", f"e{self._moments}")

    def pass_time(self, ms: int) -> Decision:
        """Let time pass; then everything that has become due rings, in one batch."""
        self.now_ms += ms
        return self.ring(*find_due_timers(self.record, self.now_ms))

    def ring(self, *timers: Timer) -> Decision:
        """These timers ring, due or not; a timer that rings is no longer armed."""
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

    def give_up(self, error: Json) -> None:
        """What a coordinator does with an execution whose decision it cannot make."""
        self._commit(fail_workflow(self.record, error, self.moment()))

    def reload(self) -> None:
        """Go on as another process: with what is stored, and readiness made anew."""
        self.record = reloaded(self.record)

    # ---- what an operator says

    def control(self, action: Control, step_id: str = "", **keys: Any) -> ControlEvent:
        return ControlEvent(self.record.workflow_execution_id, action, step_id, **keys)

    def cancel(self, reason: str | None = None) -> Decision:
        return self.decide(self.control("cancel", reason=reason))

    def pause(self) -> Decision:
        return self.decide(self.control("pause"))

    def unpause(self) -> Decision:
        return self.decide(self.control("unpause"))

    def hold(self, step_id: str) -> Decision:
        return self.decide(self.control("hold", step_id))

    def release(self, step_id: str) -> Decision:
        return self.decide(self.control("release", step_id))

    def retry(self) -> Decision:
        return self.decide(self.control("retry"))

    def rerun(self, step_id: str) -> Decision:
        return self.decide(self.control("rerun", step_id))

    def refusal(self, event: StepEvent) -> str:
        """Why an event is refused; nothing else comes of it."""
        decided = decide(self.record, [event], self.moment())
        [(position, reason)] = decided.rejected
        assert position == 0
        assert not decided.replies
        return reason

    # ---- what other executions say

    def grant(self, step_id: str = "") -> Decision:
        """A place under its concurrency key is given to a step, or to the execution itself."""
        return self.decide(self.slot_event(step_id))

    def slot_event(self, step_id: str = "") -> SlotEvent:
        [token] = [token for token, (owner, _) in self.places.items() if owner == step_id]
        return SlotEvent(self.record.workflow_execution_id, step_id, token)

    def end_child(self, step_id: str, output: Any = None, error: str | None = None) -> Decision:
        return self.decide(self.child_end(self.awaited[step_id], output, error))

    def child_end(self, start: StartEvent, output: Any = None, error: str | None = None) -> ResultEvent:
        """What the parent hears at the end of a child."""
        return child_result(
            parent_of(start), output, None if error is None else make_failure("child_failed", error)
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

    def slot(self, step_id: str) -> Slot:
        slot = self[step_id].slot
        assert slot is not None, f"{step_id} has no place and stands in no line"
        return slot

    # ---- within

    def _commit(self, changes: Changes) -> None:
        super()._commit(changes)
        touched = {timer.name for timer in (*changes.timers_to_arm, *changes.timers_to_disarm)}
        self.armed = {one for one in self.armed if one.name not in touched} | set(changes.timers_to_arm)
        self._take_slots(changes)
        self._take_posts(changes)
        self.shared += changes.shared
        check(self)

    def _take_slots(self, changes: Changes) -> None:
        for change in changes.slots:
            token = change.slot.token
            assert (token in self.places) != change.is_acquire, (
                "a place is asked for once and given back once"
            )
            if change.is_acquire:
                self.places[token] = (change.step_id, change.slot)
            else:
                del self.places[token]

    def _take_posts(self, changes: Changes) -> None:
        self.posts += changes.outgoing_events
        self.ended |= {step.child for _, step in changes.finished_dispatches if step.child is not None}
        for post in changes.outgoing_events:
            if isinstance(post, StartEvent):
                assert post.execution_id not in {start.execution_id for start in self.children}
                self.children.append(post)
                self.awaited[parent_of(post).step_id] = post
            elif isinstance(post, ControlEvent):
                self.cancels[post.workflow_execution_id] += 1
        out = {step.child for step in self.record.steps.values() if step.token is not None}
        self.awaited = {step: start for step, start in self.awaited.items() if start.execution_id in out}

    def _check_that_it_goes_on(self) -> None:
        record = self.record
        in_line = [slot for _, slot in self.places.values() if not self.is_held(slot)]
        held = [step for step in record.steps.values() if step.status is StepStatus.ON_HOLD]
        assert (
            record.is_final
            or record.status is WorkflowStatus.PAUSED
            or self.out
            or self.awaited
            or self.armed
            or self.last.has_more_ready
            or record.readiness.waiting
            or in_line
            or held
        ), f"nothing will ever happen again: {self.statuses}"

    def is_held(self, slot: Slot) -> bool:
        kept = [step.slot for step in self.record.steps.values() if step.slot is not None]
        if self.record.slot is not None:
            kept.append(self.record.slot)
        return any(one.token == slot.token and one.is_held for one in kept)


def parent_of(start: StartEvent) -> Parent:
    assert start.parent is not None
    return start.parent


# ---- what must be true after every commit


def check(world: SpecWorld) -> None:
    record = world.record
    check_readiness(record)
    units = dict(record.units())
    jobs = {unit for unit, one in units.items() if one.token is not None and one.child is None}
    assert jobs == set(world.out), "the jobs that are out are those whose units have a token"
    for job in world.last.jobs:
        if job.step_id == WEBHOOK_UNIT:
            assert record.is_final, "no webhook before the end"
            continue
        step_id, _, part = job.step_id.partition("#")
        unmet = record.readiness.unmet[step_id]
        assert part == "undo" or record.graph.may_join(step_id, unmet), f"{step_id} waits for its parents"
    assert world.armed == set(all_timers(record)), "armed and not disarmed is what the record waits for"
    check_places(world)
    check_children(world)
    check_ending(world)


def check_places(world: SpecWorld) -> None:
    """Every place that is wanted or held was asked for and not given back, and no other was."""
    record = world.record
    kept = {step.slot.token: step_id for step_id, step in record.steps.items() if step.slot is not None}
    if record.slot is not None:
        kept[record.slot.token] = ""
    assert kept == {token: owner for token, (owner, _) in world.places.items()}
    for step_id, step in record.steps.items():
        if step.slot is not None and not step.slot.is_held:
            assert step.status is not StepStatus.IN_PROGRESS, f"{step_id} is in progress and in line"
        if world.record.spec.steps[record.graph.index[step_id]].concurrency is not None:
            in_progress = step.status is StepStatus.IN_PROGRESS
            assert not in_progress or step.slot is not None, f"{step_id} is in progress without a place"


def check_children(world: SpecWorld) -> None:
    """A child that is out was started, once; one that is not awaited has ended or was cancelled, once."""
    awaited = {step.child: step.token for step in world.record.steps.values() if step.token and step.child}
    assert {one.execution_id: parent_of(one).token for one in world.awaited.values()} == awaited
    assert not set(world.cancels) & set(awaited), "a child that a step waits for was cancelled"
    assert {start.execution_id for start in world.children} == {*awaited, *world.ended, *world.cancels}
    assert max(world.cancels.values(), default=1) == 1, "a child was cancelled twice"


def check_ending(world: SpecWorld) -> None:
    """A workflow that ends leaves nothing behind but its webhook, and one that compensates does one thing at
    a time."""
    record = world.record
    if record.is_final:
        assert set(world.out) <= {WEBHOOK_UNIT}
        assert not world.awaited
        assert {timer.step_id for timer in world.armed} <= {WEBHOOK_UNIT}
        assert not world.places
        assert record.ending is None
    if record.status is WorkflowStatus.COMPENSATING:
        assert record.readiness.open == 0
        assert len(world.out) <= 1
        assert record.ending is not None
    assert (record.ended_at is not None) == record.is_final


def check_readiness(record: WorkflowRecord) -> None:
    kept, made = record.readiness, Readiness.of(record.graph, record.steps, record.items)
    assert kept.unmet == made.unmet
    assert (kept.open, kept.active, kept.in_flight) == (made.open, made.active, made.in_flight)
    assert kept.waiting == made.waiting
    assert kept.timed == made.timed
    assert kept.due == made.due
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
        assert known >= set(made.agenda) - judged, "a step that can run is not on the agenda"


def all_timers(record: WorkflowRecord) -> Iterator[Timer]:
    """What an execution waits for by the clock."""
    for unit, one in record.units():
        yield from timers_for_step(unit, one)
    if record.deadline_ms is not None and not record.is_final:
        yield Timer("timeout", "", "", record.deadline_ms)
