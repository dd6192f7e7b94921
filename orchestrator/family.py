"""Executions that move in this process: what they say to each other is delivered, and children are driven.

Where there is a coordinator, it does this. Here it is done between two decisions of the one that is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.application.beginnings import UnknownWorkflow, child_spec, new_record, refused_child
from orchestrator.application.changes import Changes
from orchestrator.application.decisions import Cancelled, Complete, Decision, Dispatch, Failed, Halt
from orchestrator.application.errors import RecordConflict, RecordNotFound
from orchestrator.application.events import (
    ControlEvent,
    Parent,
    ResultEvent,
    SlotEvent,
    StartEvent,
    StepEvent,
    TimerEvent,
)
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.timers import timers_due
from orchestrator.application.transitions import decide
from orchestrator.application.validation import LoadedSpec, check_inputs
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Commit, Committed, Delivery, EventRef
from orchestrator.backend.results import as_results

TRIES = 100

_R = TypeVar("_R")
Decide = Callable[[WorkflowRecord], tuple[Changes, _R]]
EventsFor = Callable[[WorkflowRecord], Sequence[StepEvent]]


class Family:
    """`children` are the executions below those that this process runs, as far as it has met them."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.children: dict[str, None] = {}

    def commit(self, weid: str, decide_upon: Decide[_R], post: EventRef | None = None) -> _R | None:
        """Decide and commit, again when somebody else was first; None when a post was answered by others."""
        events = [] if post is None else [post]
        for _ in range(TRIES):
            record = self.backend.checkout(weid)
            changes, decision = decide_upon(record)
            [result] = self.backend.commit([Commit(record, changes, events=events, once=events)])
            if result is Committed.YES:
                return decision
            if result is Committed.GONE:
                return None
        raise RecordConflict(weid, record.version)

    def decide(self, weid: str, events_for: EventsFor, post: EventRef | None = None) -> Decision | None:
        """Apply events and advance, in one commit; what follows from it is dispatched."""
        decision = self.commit(weid, self._decider(events_for), post)
        while isinstance(decision, Dispatch):
            on_the_spot = as_results(weid, self.backend.dispatch(weid, decision.jobs))
            if not on_the_spot:
                break
            decision = self.commit(weid, self._decider(lambda _, results=on_the_spot: results))  # type: ignore[misc]
        return decision

    def _decider(self, events_for: EventsFor) -> Decide[Decision]:
        moment = self.backend.moment("run")

        def both(record: WorkflowRecord) -> tuple[Changes, Decision]:
            decided = decide(record, events_for(record), moment)
            return decided.changes, decided.decision

        return both

    # ---- the others

    def turn(self) -> int:
        """Deliver what was said, and move the children; returns how much happened."""
        happened = self.deliver()
        for child in list(self.children):
            happened += self._move(child)
        return happened

    def deliver(self) -> int:
        posts = self.backend.commons.posts()
        for delivery in posts:
            self._deliver(delivery)
        return len(posts)

    def _deliver(self, delivery: Delivery) -> None:
        event = delivery.event
        if isinstance(event, StartEvent):
            self._begin(delivery, event)
            return
        assert isinstance(event, ResultEvent | ControlEvent | SlotEvent), "nothing else is posted"
        try:
            weid = self.backend.find(event.workflow_execution_id)
            self.decide(weid, lambda _: [event], delivery.ref)
        except RecordNotFound:  # a child that was cancelled before it began
            self.backend.commons.drop_post(delivery.ref)

    def _begin(self, delivery: Delivery, event: StartEvent) -> None:
        """A child begins, or its parent hears why it cannot."""
        assert event.parent is not None
        try:
            loaded = self._child_of(event.parent)
        except UnknownWorkflow as error:
            self._refuse(delivery, event.parent, str(error))
            return
        inputs, problems = check_inputs(loaded.spec, event.inputs)
        if problems:
            self._refuse(delivery, event.parent, "; ".join(map(str, problems)))
            return
        moment = self.backend.moment("run")
        record = new_record(loaded, event.execution_id or "", inputs, event, moment)
        self.backend.look_around([record])
        changes = decide(record, [], moment).changes
        once = [delivery.ref]
        [result] = self.backend.commit([Commit(record, changes, events=once, once=once, creates=True)])
        match result:
            case Committed.YES:
                self.children[record.workflow_execution_id] = None
                self.backend.dispatch(record.workflow_execution_id, changes.jobs)
            case Committed.ORPHAN:
                self.backend.commons.drop_post(delivery.ref)
            case Committed.EXISTS | Committed.FORGED:
                self._refuse(delivery, event.parent, f"{result.value}: {record.execution_id}")

    def _child_of(self, parent: Parent) -> LoadedSpec:
        found = child_spec(self.backend.spec_of(parent.execution), parent.step_id)
        if found.loaded is not None:
            return found.loaded
        try:
            return self.backend.commons.definition(found.name or "")
        except KeyError:
            raise UnknownWorkflow(found.name or "") from None

    def _refuse(self, delivery: Delivery, parent: Parent, reason: str) -> None:
        refusal = refused_child(parent, reason)
        self.decide(refusal.workflow_execution_id, lambda _: [refusal], delivery.ref)

    def _move(self, child: str) -> int:
        """Give a child its results and what is due."""
        results: list[StepEvent] = list(self.backend.results(child))
        due: list[StepEvent] = []

        def events_for(record: WorkflowRecord) -> list[StepEvent]:
            due[:] = due_of(record, self.backend.clock())
            return [*results, *due]

        if isinstance(self.decide(child, events_for), Complete | Halt | Failed | Cancelled):
            del self.children[child]
        return len(results) + len(due)

    def adopt(self, weid: str) -> None:
        """Meet the children that others began for an execution, and send their lost jobs again."""
        if not any(step.child for step in self.backend.spec_of(weid).spec.steps):
            return
        for step in self.backend.load(weid).steps.values():
            if step.child is None or step.token is None:
                continue
            try:
                child = self.backend.find(step.child)
            except RecordNotFound:
                continue  # it has not begun: its start is still among the posts
            if child not in self.children:
                self.children[child] = None
                self.decide(child, self.backend.orphans)
            self.adopt(child)


def due_of(record: WorkflowRecord, at_ms: int) -> list[StepEvent]:
    """The timers of an execution whose time has come."""
    weid = record.workflow_execution_id
    return [TimerEvent(timer.kind, weid, timer.step_id, timer.token) for timer in timers_due(record, at_ms)]
