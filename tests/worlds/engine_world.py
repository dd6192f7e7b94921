"""One execution moved by the pure engine alone: no store, no queue, and a clock that the test moves.

    world = world_of(document(step("a"), step("b", after="a")))       # a document, as a user writes it
    world = world_of(task("a", retry=RetrySpec()), task("b", "a"))    # or steps as StepSpec objects
    world.advance()                      # dispatches a
    world.finish("a", {"n": 1})          # its result, and the advance that follows: dispatches b
    world.fail("b")                      # b waits for its next attempt
    world.pass_time(1000)                # its timer fires: dispatches b again

Every call compares the record with what it was before the call: a transition that writes to the record it was
given fails whichever test happens to use it. After every commit the world checks that everything kept beside
the record follows from the record (engine_checks.py), and after every decision that the execution can go on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, replace
from math import inf
from typing import Any, ClassVar

from effort import IS_FULL
from orchestrator.application.engine.finish import child_result
from orchestrator.application.engine.transitions import (
    StepResult,
    advance,
    decide,
    fail_workflow,
    on_step_result,
)
from orchestrator.application.engine.turn import Turn
from orchestrator.application.records.changes import Changes, SharedChange
from orchestrator.application.records.decisions import Complete, Decision, Dispatch, DispatchJob, Failed, Halt
from orchestrator.application.records.delta import build_delta, fold
from orchestrator.application.records.events import (
    AvailableEvent,
    Control,
    ControlEvent,
    DeclinedEvent,
    LostEvent,
    Moment,
    OutgoingEvent,
    ResultEvent,
    SignalEvent,
    SlotEvent,
    StartedEvent,
    StartEvent,
    StepEvent,
    TimerEvent,
    make_failure,
)
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.application.records.step_record import ItemCounts, Slot, StepRecord
from orchestrator.application.records.timers import Timer
from orchestrator.application.records.visible_fields import VisibleFields
from orchestrator.application.spec.model import StepSpec
from worlds.documents import Json
from worlds.engine_checks import all_timers, check, check_progress, compact_json, parent_of
from worlds.records import NOW_MS, new_record, record_of, reloaded

MAX_ROUNDS = 20_000

Execute = Callable[[str, Json, int], Any]
"""Executes a fn with inputs, given how often the step was called before. Raising is failing."""


def world_of(
    *source: Json | StepSpec, inputs: Mapping[str, Any] | None = None, checked: bool = True, **workflow: Any
) -> EngineWorld:
    """A world around a document, or around these steps with these keys of the workflow."""
    if len(source) == 1 and isinstance(source[0], dict):
        assert not workflow, "the keys of the workflow are in the document"
        return EngineWorld(new_record(source[0], dict(inputs or {})), checked=checked)
    steps = [one for one in source if isinstance(one, StepSpec)]
    assert len(steps) == len(source), "either one document or StepSpecs"
    return EngineWorld(record_of(*steps, inputs=dict(inputs or {}), **workflow), checked=checked)


class EngineWorld:
    """A record and what stands beside it in a real system.

    `out` are the jobs that are dispatched and not finished, by unit; `armed` the timers that a store would
    hold; `slots` the slots under concurrency keys by token, with their owner; `sent` all events to other
    executions; `awaited` the children that a step waits for, by step, `ended` those whose result has arrived;
    `cancels` counts the cancels of each child. Without `checked` nothing is compared, for large executions.
    """

    keeps_deltas: ClassVar[bool] = IS_FULL
    """Whether a world keeps the delta of every commit, and checks it. Most tests do so with --full only."""

    def __init__(self, record: WorkflowRecord, *, checked: bool = True) -> None:
        self.record = record
        self.now_ms = NOW_MS
        self.out: dict[str, DispatchJob] = {}
        self.jobs: list[DispatchJob] = []
        self.waves: list[list[DispatchJob]] = []
        self.counters: Counter[str] = Counter()
        self.history: list[Json] = []
        self.last = Changes()
        self.armed = set(all_timers(record))
        self.slots: dict[str, tuple[str, Slot]] = {}
        self.sent: list[OutgoingEvent] = []
        self.awaited: dict[str, StartEvent] = {}
        self.children: list[StartEvent] = []
        self.ended: set[str] = set()
        self.cancels: Counter[str] = Counter()
        self.shared: list[SharedChange] = []
        self._moments, self.has_secrets = 0, False
        self._checked = checked
        self._keeps_deltas = checked and self.keeps_deltas
        self.deltas: list[Json] = []
        self.folded: Json = {}
        self._last_delta: tuple[str, VisibleFields | None, WorkflowRecord] = ("", None, record)
        self._contents_then = ""

    # ---- transitions

    def advance(self, limit: int | None = None) -> Decision:
        with self._unchanged():
            changes, decision = advance(self.record, self.moment(), limit)
        self._commit(changes)
        self._check_progress()
        return decision

    def apply(self, event: StepEvent) -> StepResult:
        """on_step_result alone; what can run now waits for advance()."""
        with self._unchanged():
            changes, result = on_step_result(self.record, event, self.moment())
        self._commit(changes)
        return result

    def decide(self, *events: StepEvent, limit: int | None = None, work: float = inf) -> Decision:
        """Decide on events and commit. Events for which the work of the turn does not suffice follow in
        further turns."""
        with self._unchanged():
            decided = decide(self.record, events, self.moment(), limit, Turn(work))
        assert not decided.rejected, decided.rejected
        self._commit(decided.changes)
        rest = events[decided.applied :]
        if rest:
            return self.decide(*rest, limit=limit, work=work)
        self._check_progress()
        return decided.decision

    def finish(self, step_id: str, output: Any = None) -> Decision:
        return self.decide(self.result(step_id, output))

    def fail(self, step_id: str, message: str = "boom", kind: str = "exception") -> Decision:
        return self.decide(self.error(step_id, message, kind))

    def lose(self, step_id: str) -> Decision:
        return self.decide(self.loss(step_id))

    def decline(self, step_id: str) -> Decision:
        return self.decide(self.declined(step_id))

    def offer(self, step_id: str, executor: str) -> Decision:
        """A worker with this executor has started."""
        return self.decide(AvailableEvent(self.record.workflow_execution_id, step_id, executor))

    def play(self, **outputs: Any) -> Decision:
        """Finish steps one after the other, each with its output; an exception is its failure."""
        decision: Decision = self.advance()
        for step_id, output in outputs.items():
            failed = isinstance(output, Exception)
            decision = self.fail(step_id, str(output)) if failed else self.finish(step_id, output)
        return decision

    def give_up(self, error: Json) -> None:
        """What a coordinator does with an execution that it cannot decide."""
        self._commit(fail_workflow(self.record, error, self.moment()))

    def reload(self) -> None:
        """Go on as another process: with what is stored, and readiness computed again."""
        self.record = reloaded(self.record)

    # ---- time

    def moment(self) -> Moment:
        """Now, with a nonce of its own; the clock moves only in pass_time()."""
        self._moments += 1
        return Moment(self.now_ms, f"n{self._moments}", f"e{self._moments}", self.has_secrets)

    def pass_time(self, ms: int) -> Decision:
        """Move the clock; then every timer that is due fires, in one batch."""
        self.now_ms += ms
        return self.fire(*find_due_timers(self.record, self.now_ms))

    def fire(self, *timers: Timer) -> Decision:
        """These timers fire, due or not; a timer that fires is no longer armed."""
        self.armed -= set(timers)
        return self.decide(*(self.timer_event(timer) for timer in timers))

    @property
    def next_due_ms(self) -> int | None:
        """How long it is until the next timer fires."""
        due = [timer.due_ms for timer in all_timers(self.record)]
        return max(min(due) - self.now_ms, 0) if due else None

    # ---- events

    def result(self, step_id: str, output: Any = None, job: DispatchJob | None = None) -> ResultEvent:
        job = job or self.out[step_id]
        return ResultEvent(
            job.workflow_execution_id,
            step_id,
            output=output,
            run_id=job.run_id,
            attempt=job.attempt,
            token=job.token,
        )

    def result_of(self, job: DispatchJob, output: Any = None) -> ResultEvent:
        return self.result(job.step_id, output, job)

    def error(
        self, step_id: str, message: str = "boom", kind: str = "exception", job: DispatchJob | None = None
    ) -> ResultEvent:
        return replace(self.result(step_id, job=job), error=make_failure(kind, message))

    def loss(self, step_id: str, job: DispatchJob | None = None) -> LostEvent:
        job = job or self.out[step_id]
        return LostEvent(
            job.workflow_execution_id, step_id, job.run_id, job.attempt, job.token, "worker died"
        )

    def declined(self, step_id: str, job: DispatchJob | None = None) -> DeclinedEvent:
        job = job or self.out[step_id]
        return DeclinedEvent(
            job.workflow_execution_id, step_id, job.run_id, job.attempt, job.token, job.fn, "w1"
        )

    def started(self, step_id: str, job: DispatchJob | None = None) -> StartedEvent:
        job = job or self.out[step_id]
        return StartedEvent(
            job.workflow_execution_id,
            step_id,
            job.run_id,
            job.attempt,
            job.token,
            "host-1",
            "2026-01-01T00:00:09Z",
        )

    def timer_event(self, timer: Timer) -> TimerEvent:
        return TimerEvent(timer.kind, self.record.workflow_execution_id, timer.step_id, timer.token)

    def signal_event(self, name: str, payload: Any = None) -> SignalEvent:
        return SignalEvent(self.record.workflow_execution_id, name, payload)

    def slot_event(self, step_id: str = "") -> SlotEvent:
        [token] = [token for token, (owner, _) in self.slots.items() if owner == step_id]
        return SlotEvent(self.record.workflow_execution_id, step_id, token)

    def control(self, action: Control, step_id: str = "", **keys: Any) -> ControlEvent:
        return ControlEvent(self.record.workflow_execution_id, action, step_id, **keys)

    def child_end(self, start: StartEvent, output: Any = None, error: str | None = None) -> ResultEvent:
        """The result that the parent gets at the end of a child."""
        return child_result(
            parent_of(start), output, None if error is None else make_failure("child_failed", error)
        )

    # ---- operators and other executions

    def cancel(self, reason: str | None = None) -> Decision:
        return self.decide(self.control("cancel", reason=reason))

    def pause(self, reason: str | None = None, by: str | None = None) -> Decision:
        return self.decide(self.control("pause", reason=reason, by=by))

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

    def rejection(self, event: StepEvent) -> str:
        """Why an event is rejected; it has no other effect."""
        decided = decide(self.record, [event], self.moment())
        [(position, reason)] = decided.rejected
        assert position == 0
        assert not decided.replies
        return reason

    def signal(self, name: str, payload: Any = None) -> Decision:
        return self.decide(self.signal_event(name, payload))

    def grant(self, step_id: str = "") -> Decision:
        """Grant a slot under its concurrency key to a step, or to the execution itself."""
        return self.decide(self.slot_event(step_id))

    def end_child(self, step_id: str, output: Any = None, error: str | None = None) -> Decision:
        return self.decide(self.child_end(self.awaited[step_id], output, error))

    # ---- queries

    def __getitem__(self, step_id: str) -> StepRecord:
        return self.record.steps[step_id]

    @property
    def statuses(self) -> dict[str, str]:
        return {step_id: str(step.status) for step_id, step in self.record.steps.items()}

    @property
    def run_ids(self) -> dict[str, int]:
        return {step_id: step.run_id for step_id, step in self.record.steps.items()}

    @property
    def executed(self) -> dict[str, int]:
        """How often each step was dispatched."""
        counts = Counter(job.step_id for job in self.jobs)
        return {step_id: counts[step_id] for step_id in self.record.steps}

    @property
    def state(self) -> Json:
        return self.record.state

    def dispatched(self, decision: Decision) -> list[str]:
        return units(decision)

    def reason(self, step_id: str) -> str | None:
        return self[step_id].reason

    def error_kind(self, step_id: str) -> str | None:
        error = self[step_id].error
        return None if error is None else str(error["kind"])

    def slot(self, step_id: str) -> Slot:
        slot = self[step_id].slot
        assert slot is not None, f"{step_id} neither holds a slot nor waits for one"
        return slot

    def is_held(self, slot: Slot) -> bool:
        kept = [step.slot for step in self.record.steps.values() if step.slot is not None]
        if self.record.slot is not None:
            kept.append(self.record.slot)
        return any(one.token == slot.token and one.is_held for one in kept)

    def item(self, unit: str) -> StepRecord:
        return self.record.items[unit]

    def counts(self, step_id: str) -> ItemCounts:
        counts = self.record.steps[step_id].items
        assert counts is not None
        return counts

    def inputs_of(self, unit: str) -> Json:
        return self.out[unit].inputs

    # ---- commits

    def _commit(self, changes: Changes) -> None:
        if self._keeps_deltas:
            self._keep_delta(changes)
        self.record.apply(changes)
        self.last = changes
        self.counters.update(changes.counter_increments)
        self.history.extend(changes.history)
        self._take_jobs(changes)
        self._take_timers(changes)
        self._take_slots(changes)
        self._take_sent(changes)
        self.shared += changes.shared
        if self._checked:
            check(self)
            self._contents_then = _contents(self.record) if self._keeps_deltas else ""

    def _keep_delta(self, changes: Changes) -> None:
        """Keep the delta of a commit, as a store does. The record itself stays without: most tests are about
        something else. After a test has written to the record, the next delta is a snapshot."""
        record, (mark, visible, owner) = self.record, self._last_delta
        record.version, record.delta = mark.partition(" ")[0], mark or None
        record.visible = visible if owner is record else None  # another one was loaded
        delta = build_delta(record, changes, f"{len(self.deltas) + 1}-v", compact_json)
        record.version, record.delta, record.visible = "", None, None
        self._last_delta = delta.mark, delta.visible, record
        for one in [json.loads(delta.text)] if delta.text else []:
            self.deltas.append(one)
            self.folded = fold([{"snapshot": True, "set": self.folded}, one])

    def _take_jobs(self, changes: Changes) -> None:
        for step_id, _ in [*changes.finished_dispatches, *changes.revoked]:
            self.out.pop(step_id, None)
        for job in changes.jobs:
            self.out[job.step_id] = job
        if changes.jobs:
            self.waves.append([replace(job, inputs=deepcopy(job.inputs)) for job in changes.jobs])
            self.jobs += self.waves[-1]

    def _take_timers(self, changes: Changes) -> None:
        if not changes.timers_to_arm and not changes.timers_to_disarm:
            return
        touched = {timer.name for timer in (*changes.timers_to_arm, *changes.timers_to_disarm)}
        self.armed = {one for one in self.armed if one.name not in touched} | set(changes.timers_to_arm)

    def _take_slots(self, changes: Changes) -> None:
        for change in changes.slots:
            token = change.slot.token
            assert (token in self.slots) != change.is_acquire, "a slot is requested once and released once"
            if change.is_acquire:
                self.slots[token] = (change.step_id, change.slot)
            else:
                del self.slots[token]

    def _take_sent(self, changes: Changes) -> None:
        self.sent += changes.outgoing_events
        self.ended |= {step.child for _, step in changes.finished_dispatches if step.child is not None}
        for event in changes.outgoing_events:
            if isinstance(event, StartEvent):
                assert event.execution_id not in {start.execution_id for start in self.children}
                self.children.append(event)
                self.awaited[parent_of(event).step_id] = event
            elif isinstance(event, ControlEvent):
                self.cancels[event.workflow_execution_id] += 1
        if self.awaited:
            out = {step.child for step in self.record.steps.values() if step.token is not None}
            self.awaited = {step: start for step, start in self.awaited.items() if start.execution_id in out}

    def _check_progress(self) -> None:
        if self._checked:
            check_progress(self)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        before = _contents(self.record) if self._checked else None
        if before != self._contents_then:
            self._last_delta = "", None, self.record
        yield
        if before is not None:
            assert _contents(self.record) == before, "a transition wrote to the record it was given"


def _contents(record: WorkflowRecord) -> str:
    """Everything in a record that could change, as text: quicker to make than a deep copy."""
    return repr([getattr(record, field.name) for field in fields(record) if field.name != "loaded"])


# ---- running to the end


def run(world: EngineWorld, execute: Execute) -> Complete | Halt | Failed:
    """runfox's loop: advance, execute all jobs, apply all results in the order of dispatch, repeat."""
    calls: Counter[str] = Counter()
    decision = world.advance()
    for _ in range(MAX_ROUNDS):
        if isinstance(decision, Complete | Halt | Failed):
            return decision
        assert isinstance(decision, Dispatch), f"{decision} although nothing is out: {world.statuses}"
        results = []
        for job in decision.jobs:
            results.append(executed_result(world, job, execute, calls[job.step_id]))
            calls[job.step_id] += 1
        decision = world.decide(*results)
    raise AssertionError(f"no end after {MAX_ROUNDS} rounds")


def executed_result(world: EngineWorld, job: DispatchJob, execute: Execute, calls: int) -> ResultEvent:
    """Execute a job, and return its result."""
    try:
        return world.result(job.step_id, execute(job.fn, deepcopy(job.inputs), calls), job)
    except Exception as error:
        return world.error(job.step_id, str(error), job=job)


def drain(world: EngineWorld, execute: Callable[[DispatchJob], Any], max_results: int = 10_000) -> Decision:
    """Run jobs one by one, the oldest first, until none is out; a ValueError is a failure."""
    decision = world.advance()
    for _ in range(max_results):
        if isinstance(decision, Complete | Halt | Failed) or not world.out:
            return decision
        decision = run_one(world, next(iter(world.out.values())), execute)
    raise AssertionError(f"no end after {max_results} results")


def run_one(world: EngineWorld, job: DispatchJob, execute: Callable[[DispatchJob], Any]) -> Decision:
    try:
        return world.decide(world.result_of(job, execute(job)))
    except ValueError as error:
        return world.decide(world.error(job.step_id, str(error), job=job))


def units(decision: Decision) -> list[str]:
    """The units that a decision dispatches."""
    assert isinstance(decision, Dispatch), decision
    return [job.step_id for job in decision.jobs]


def max_in_flight(history: Iterable[Mapping[str, Any]], step_id: str) -> int:
    """How many items of a map were in progress at once, according to its history."""
    out: set[str] = set()
    highest = 0
    for entry in history:
        unit = str(entry.get("step", ""))
        if unit.startswith(f"{step_id}#") and "to" in entry:
            (out.add if entry["to"] == "in_progress" else out.discard)(unit)
            highest = max(highest, len(out))
    assert not out, "every item has ended"
    return highest
