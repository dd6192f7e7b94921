"""Executions that move in this process: what they say to each other is delivered, and children are driven.

Where there is a coordinator, it does this. Here it is done between two decisions of the one that is run.
Several processes and threads may run executions of one store. Whoever comes first passes on what was said,
but only who drives an execution advances it and begins its children: who dispatches must be there to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.application.engine.create import UnknownWorkflow, child_spec, new_record, reject_child
from orchestrator.application.engine.dispatch import child_execution_id
from orchestrator.application.engine.transitions import decide, on_step_result
from orchestrator.application.errors import RecordConflict
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import Cancelled, Complete, Decision, Dispatch, Failed, Halt
from orchestrator.application.records.events import (
    ControlEvent,
    Moment,
    Parent,
    ResultEvent,
    SlotEvent,
    StartEvent,
    StepEvent,
    TimerEvent,
)
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.application.spec.model import WEBHOOK_UNIT, LoadedSpec
from orchestrator.application.spec.validation import check_inputs
from orchestrator.backend.backend import Backend
from orchestrator.backend.conflicts import ExecutionIdConflict, resolve_conflict
from orchestrator.backend.ports import Commit, Committed, Delivery, EventRef
from orchestrator.backend.results import as_results

MAX_TRIES = 100

_R = TypeVar("_R")
DecideFunction = Callable[[WorkflowRecord], tuple[Changes, _R]]
EventsOfRecord = Callable[[WorkflowRecord], Sequence[StepEvent]]


class ExecutionDriver:
    """The executions that are driven here, and those below them as far as they were met; `children` are the
    ones of them that are not at their end, `telling` those that are and whose webhook is not settled."""

    def __init__(self, backend: Backend, *driven: str) -> None:
        self.backend = backend
        self._members = {weid: weid for weid in driven}
        self.children: dict[str, None] = {}
        self.pending_webhooks: dict[str, None] = {}

    def commit(self, weid: str, decide_upon: DecideFunction[_R], post: EventRef | None = None) -> _R | None:
        """Decide and commit, again when somebody else was first; None when a post was answered by others."""
        events = [] if post is None else [post]
        for _ in range(MAX_TRIES):
            record = self.backend.checkout(weid)
            changes, decision = decide_upon(record)
            [result] = self.backend.commit([Commit(record, changes, events=events, require_pending=events)])
            if result is Committed.YES:
                self._tell(record, changes)
                return decision
            if result is Committed.GONE:
                return None
        raise RecordConflict(weid, record.version)

    def _tell(self, record: WorkflowRecord, changes: Changes) -> None:
        """At its end an execution has one thing left to dispatch, which no decision names: its webhook."""
        weid, webhook = record.workflow_execution_id, record.items.get(WEBHOOK_UNIT)
        if webhook is None or webhook.is_final or not record.is_final:
            self.pending_webhooks.pop(weid, None)
            return
        self.pending_webhooks[weid] = None
        on_the_spot = as_results(weid, self.backend.dispatch(weid, changes.jobs)) if changes.jobs else ()
        if on_the_spot:
            self.commit(weid, self._decider(lambda _: on_the_spot))

    def decide(self, weid: str, events_for: EventsOfRecord, post: EventRef | None = None) -> Decision | None:
        """Apply events and advance, in one commit; what follows from it is dispatched."""
        return self._dispatch(weid, self.commit(weid, self._decider(events_for), post))

    def _dispatch(self, weid: str, decision: Decision | None) -> Decision | None:
        while isinstance(decision, Dispatch):
            on_the_spot = as_results(weid, self.backend.dispatch(weid, decision.jobs))
            if not on_the_spot:
                break
            decision = self.commit(weid, self._decider(lambda _, results=on_the_spot: results))  # type: ignore[misc]
        return decision

    def _decider(self, events_for: EventsOfRecord) -> DecideFunction[Decision]:
        moment = self.backend.moment("run")

        def both(record: WorkflowRecord) -> tuple[Changes, Decision]:
            decided = decide(record, events_for(record), moment)
            return decided.changes, decided.decision

        return both

    # ---- the others

    def run_once(self) -> int:
        """Deliver what was said, and move the children and webhooks; returns how much happened."""
        happened = self.deliver_events()
        for one in [*self.children, *self.pending_webhooks]:
            happened += self._move(one)
        return happened

    def deliver_events(self) -> int:
        """Tell everybody what was said to them; returns how much that was."""
        return sum(self._deliver(delivery) for delivery in self.backend.shared_state.posts())

    def _deliver(self, delivery: Delivery) -> bool:
        event = delivery.event
        if isinstance(event, StartEvent):
            return self._begin(delivery, event)
        assert isinstance(event, ResultEvent | ControlEvent | SlotEvent), "nothing else is posted"
        try:
            said_to = event.workflow_execution_id
            weid = self._members.get(said_to) or self.backend.find(said_to)
        except KeyError:  # a child that was cancelled before it began
            self.backend.shared_state.drop_outgoing_event(delivery.ref)
            return True
        if weid in self._members:
            self.decide(weid, lambda _: [event], delivery.ref)
        else:
            moment = self.backend.moment("run")
            self.commit(weid, lambda record: on_step_result(record, event, moment), delivery.ref)
            self._meet(self.backend.load(weid))
        return True

    def _meet(self, record: WorkflowRecord) -> None:
        """One that we did not begin, but that is below us, is driven to its end all the same."""
        weid, parent = record.workflow_execution_id, record.parent
        if parent is not None and parent["execution"] in self._members:
            # By either id: a store of a user's own may know it by the full one only.
            self._members[weid] = self._members[record.execution_id] = weid
            if not record.is_final:
                self.children[weid] = None

    def _begin(self, delivery: Delivery, event: StartEvent) -> bool:
        """A child begins, or its parent hears why it cannot; False when others drive a parent that waits."""
        assert event.parent is not None
        if event.parent.execution not in self._members:
            return self._is_orphan(delivery, event.parent)
        try:
            loaded = self._child_of(event.parent)
        except UnknownWorkflow as error:
            self._refuse(delivery, event.parent, str(error))
            return True
        inputs, problems = check_inputs(loaded.spec, event.inputs)
        if problems:
            self._refuse(delivery, event.parent, "; ".join(map(str, problems)))
            return True
        moment = self.backend.moment("run")
        record = new_record(loaded, event.execution_id or "", inputs, event, moment)
        self.backend.load_shared_values([record])
        decided = decide(record, [], moment)
        require_pending = [delivery.ref]
        commit = Commit(
            record, decided.changes, events=require_pending, require_pending=require_pending, creates=True
        )
        try:
            result = self._create(commit, moment)
        except ExecutionIdConflict as error:
            self._refuse(delivery, event.parent, str(error))
            return True
        match result:
            case Committed.YES:
                self._meet(record)
                self._tell(record, decided.changes)
                self._dispatch(record.workflow_execution_id, decided.decision)
            case Committed.ORPHAN:
                self.backend.shared_state.drop_outgoing_event(delivery.ref)
            case Committed.SPEC_COLLISION:
                self._refuse(delivery, event.parent, f"{result.value}: {record.execution_id}")
        return True

    def _create(self, commit: Commit, moment: Moment) -> Committed:
        """Begin a child, in the place of what a parent of the same id may have left behind."""
        for _ in range(MAX_TRIES):
            [result] = self.backend.commit([commit])
            if result is not Committed.EXISTS:
                return result
            settled = resolve_conflict(self.backend, commit, "fail", moment)
            assert isinstance(settled, Commit), "a child is not answered with another"
            commit = settled
        raise ExecutionIdConflict(commit.record.execution_id, "")

    def _is_orphan(self, delivery: Delivery, parent: Parent) -> bool:
        """Whoever drives a parent may not know of it any more: what it does not wait for is dropped here."""
        try:
            if self.backend.load(parent.execution).steps[parent.step_id].token == parent.token:
                return False
        except KeyError:
            pass  # it was deleted, or another one has taken its place
        self.backend.shared_state.drop_outgoing_event(delivery.ref)
        return True

    def _child_of(self, parent: Parent) -> LoadedSpec:
        found = child_spec(self.backend.spec_of(parent.execution), parent.step_id)
        if found.loaded is not None:
            return found.loaded
        try:
            return self.backend.shared_state.definition(found.name or "")
        except KeyError:
            raise UnknownWorkflow(found.name or "") from None

    def _refuse(self, delivery: Delivery, parent: Parent, reason: str) -> None:
        refusal = reject_child(parent, reason)
        self.decide(refusal.workflow_execution_id, lambda _: [refusal], delivery.ref)

    def _move(self, child: str) -> int:
        """Give an execution its results and what is due."""
        results: list[StepEvent] = list(self.backend.results(child))
        due: list[StepEvent] = []

        def events_for(record: WorkflowRecord) -> list[StepEvent]:
            due[:] = due_timer_events(record, self.backend.clock())
            return [*results, *due]

        if isinstance(self.decide(child, events_for), Complete | Halt | Failed | Cancelled):
            self.children.pop(child, None)
        return len(results) + len(due)

    def take_over(self) -> None:
        """Go on where another process has ended: with its children, what nobody has heard, and lost jobs."""
        for one in list(self._members):
            self._adopt(one)
        self.deliver_events()
        for child in list(self.children):
            self.decide(child, self.backend.find_lost_dispatches)

    def _adopt(self, weid: str) -> None:
        """Meet the children of an execution, of earlier runs too: they may have something to undo."""
        with_child = [spec.id for spec in self.backend.spec_of(weid).spec.steps if spec.child is not None]
        if not with_child:
            return
        record = self.backend.load(weid)
        for step_id in with_child:
            for run_id in range(record.steps[step_id].run_id + 1):
                try:
                    child = self.backend.load(child_execution_id(record.execution_id, step_id, run_id))
                except KeyError:
                    continue  # it has not begun, or never did
                self._meet(child)
                self._adopt(child.workflow_execution_id)


def due_timer_events(record: WorkflowRecord, at_ms: int) -> list[StepEvent]:
    """The timers of an execution whose time has come."""
    weid = record.workflow_execution_id
    return [
        TimerEvent(timer.kind, weid, timer.step_id, timer.token) for timer in find_due_timers(record, at_ms)
    ]
