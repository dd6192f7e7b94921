"""ExecutionDriver: runs an execution and its children in this process, and delivers the events between them.

Without Redis there is no coordinator: Workflow.run() does this work between two decisions of its execution.
Several processes and threads may run executions of one store. Each of them delivers any outgoing event, but
only the driver of an execution advances it and starts its children: the process that dispatches a step must
stay to receive its result.
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
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_inputs
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.backend import Backend
from orchestrator.backend.conflicts import ExecutionIdConflict, resolve_conflict
from orchestrator.backend.ports import Commit, Committed, Delivery, EventRef
from orchestrator.backend.results import as_results

MAX_TRIES = 100
SWEEPS_PER_LEASE = 4
"""How often lost dispatches are looked for while a lease lasts."""

_R = TypeVar("_R")
DecideFunction = Callable[[WorkflowRecord], tuple[Changes, _R]]
EventsOfRecord = Callable[[WorkflowRecord], Sequence[StepEvent]]


class ExecutionDriver:
    """Drives some executions and the children that it has found of them.

    `children` are those that have not ended. `pending_webhooks` are those that have ended, but whose webhook
    is not delivered yet. `records` are the driven executions as of their last commit here.
    """

    def __init__(self, backend: Backend, *driven: str) -> None:
        self.backend = backend
        self._members = {weid: weid for weid in driven}
        self.children: dict[str, None] = {}
        self.pending_webhooks: dict[str, None] = {}
        self._next_sweep_ms = 0
        self.records: dict[str, WorkflowRecord] = {}

    def drives(self, weid: str) -> bool:
        return weid in self._members

    def commit(self, weid: str, decide_upon: DecideFunction[_R], ref: EventRef | None = None) -> _R | None:
        """Decide and commit, and repeat when another process committed first. `ref` is the event that this
        handles; None when another process has handled it."""
        events = [] if ref is None else [ref]
        for _ in range(MAX_TRIES):
            record = self.backend.checkout(weid)
            changes, decision = decide_upon(record)
            [result] = self.backend.commit([Commit(record, changes, events=events, pending_refs=events)])
            if result is Committed.YES:
                if record.items or self.pending_webhooks:
                    self._dispatch_webhook(record, changes)
                if weid in self._members:
                    self.records[weid] = record
                return decision
            if result is Committed.GONE:
                return None
        raise RecordConflict(weid, record.version)

    def _dispatch_webhook(self, record: WorkflowRecord, changes: Changes) -> None:
        """Dispatch the webhook of an execution that has ended: no decision names this last job."""
        weid, webhook = record.workflow_execution_id, record.items.get(WEBHOOK_UNIT)
        if webhook is None or webhook.is_final or not record.is_final:
            self.pending_webhooks.pop(weid, None)
            return
        self.pending_webhooks[weid] = None
        results = as_results(weid, self.backend.dispatch(weid, changes.jobs)) if changes.jobs else ()
        if results:  # the runner has run the job at once
            self.commit(weid, self._decider(lambda _: results))

    def decide(self, weid: str, events_for: EventsOfRecord, ref: EventRef | None = None) -> Decision | None:
        """Apply events and advance, in one commit, and dispatch the jobs that follow."""
        return self._dispatch(weid, self.commit(weid, self._decider(events_for), ref))

    def _dispatch(self, weid: str, decision: Decision | None) -> Decision | None:
        while isinstance(decision, Dispatch):
            results = as_results(weid, self.backend.dispatch(weid, decision.jobs))
            if not results:
                break
            decision = self.commit(weid, self._decider(lambda _, results=results: results))  # type: ignore[misc]
        return decision

    def _decider(self, events_for: EventsOfRecord) -> DecideFunction[Decision]:
        moment = self.backend.moment("run")

        def apply_and_advance(record: WorkflowRecord) -> tuple[Changes, Decision]:
            decided = decide(record, events_for(record), moment)
            return decided.changes, decided.decision

        return apply_and_advance

    # ---- other executions

    def run_once(self) -> int:
        """Deliver events, and advance the children and webhooks; returns the number of events handled."""
        handled = self.deliver_events()
        for one in (*self.children, *self.pending_webhooks):
            handled += self.advance(one)
        return handled

    def deliver_events(self) -> int:
        """Deliver the outgoing events of all executions; returns the number of events handled."""
        handled = 0
        for delivery in self.backend.shared_state.outgoing_events():
            handled += self._deliver(delivery)
        return handled

    def _deliver(self, delivery: Delivery) -> bool:
        event = delivery.event
        if isinstance(event, StartEvent):
            return self._start_child(delivery, event)
        assert isinstance(event, ResultEvent | ControlEvent | SlotEvent), "executions send no other events"
        try:
            receiver = event.workflow_execution_id
            weid = self._members.get(receiver) or self.backend.find(receiver)
        except KeyError:  # a child that was cancelled before it started
            self.backend.shared_state.drop_outgoing_event(delivery.ref)
            return True
        if weid in self._members:
            self.decide(weid, lambda _: [event], delivery.ref)
        else:
            moment = self.backend.moment("run")
            self.commit(weid, lambda record: on_step_result(record, event, moment), delivery.ref)
            self._add_descendant(self.backend.load(weid))
        return True

    def _add_descendant(self, record: WorkflowRecord) -> None:
        """Drive an execution to its end if its parent is driven here, even if it was started elsewhere."""
        weid, parent = record.workflow_execution_id, record.parent
        if parent is not None and parent.execution in self._members:
            # Under both ids: a user's own store may find an execution only by its full id.
            self._members[weid] = self._members[record.execution_id] = weid
            if not record.is_final:
                self.children[weid] = None

    def _start_child(self, delivery: Delivery, event: StartEvent) -> bool:
        """Start a child, or send its parent the reason why not; False if another driver must do it."""
        assert event.parent is not None
        if event.parent.execution not in self._members:
            return self._drop_if_orphan(delivery, event.parent)
        try:
            loaded = self._find_child_spec(event.parent)
        except UnknownWorkflow as error:
            self._reject(delivery, event.parent, str(error))
            return True
        inputs, problems = check_inputs(loaded.spec, event.inputs)
        if problems:
            self._reject(delivery, event.parent, "; ".join(map(str, problems)))
            return True
        moment = self.backend.moment("run")
        record = new_record(loaded, event.execution_id or "", inputs, event, moment)
        self.backend.load_shared_values([record])
        decided = decide(record, [], moment)
        refs = [delivery.ref]
        commit = Commit(record, decided.changes, events=refs, pending_refs=refs, creates=True)
        try:
            result = self._create(commit, moment)
        except ExecutionIdConflict as error:
            self._reject(delivery, event.parent, str(error))
            return True
        match result:
            case Committed.YES:
                self._add_descendant(record)
                self._dispatch_webhook(record, decided.changes)
                self._dispatch(record.workflow_execution_id, decided.decision)
            case Committed.ORPHAN:
                self.backend.shared_state.drop_outgoing_event(delivery.ref)
            case Committed.SPEC_COLLISION:
                self._reject(delivery, event.parent, f"{result.value}: {record.execution_id}")
        return True

    def _create(self, commit: Commit, moment: Moment) -> Committed:
        """Create a child. It replaces a child that an earlier execution with the parent's id left behind."""
        for _ in range(MAX_TRIES):
            [result] = self.backend.commit([commit])
            if result is not Committed.EXISTS:
                return result
            resolved = resolve_conflict(self.backend, commit, "fail", moment)
            assert isinstance(resolved, Commit), "a child never uses an existing execution"
            commit = resolved
        raise ExecutionIdConflict(commit.record.execution_id, "")

    def _drop_if_orphan(self, delivery: Delivery, parent: Parent) -> bool:
        """Drop the start of a child that its parent no longer waits for; False if the parent waits for it."""
        try:
            if self.backend.load(parent.execution).steps[parent.step_id].token == parent.token:
                return False
        except KeyError:
            pass  # the parent was deleted or replaced
        self.backend.shared_state.drop_outgoing_event(delivery.ref)
        return True

    def _find_child_spec(self, parent: Parent) -> LoadedSpec:
        found = child_spec(self.backend.spec_of(parent.execution), parent.step_id)
        if found.loaded is not None:
            return found.loaded
        try:
            return self.backend.shared_state.load_definition(found.name or "")
        except KeyError:
            raise UnknownWorkflow(found.name or "") from None

    def _reject(self, delivery: Delivery, parent: Parent, reason: str) -> None:
        rejection = reject_child(parent, reason)
        self.decide(rejection.workflow_execution_id, lambda _: [rejection], delivery.ref)

    def advance(self, child: str) -> int:
        """Apply the results and the due timers of an execution; returns their number."""
        results = self.backend.results(child)
        due: list[StepEvent] = []

        def events_for(record: WorkflowRecord) -> list[StepEvent]:
            due[:] = due_timer_events(record, self.backend.clock)
            return [*results, *due]

        if isinstance(self.decide(child, events_for), Complete | Halt | Failed | Cancelled):
            self.children.pop(child, None)
        self.backend.acknowledge(results)
        return len(results) + len(due)

    def is_sweep_due(self) -> bool:
        """Whether leases must be checked again, and children looked for that another process has started."""
        interval_s, now_ms = self.sweep_interval_s, self.backend.clock()
        if interval_s is None or now_ms < self._next_sweep_ms:
            return False
        self._next_sweep_ms = now_ms + round(interval_s * 1000)
        return True

    @property
    def sweep_interval_s(self) -> float | None:
        """How long to wait between two sweeps; None if the runner has no leases."""
        runner = self.backend.leased_runner
        return None if runner is None else runner.lease_s / SWEEPS_PER_LEASE

    def take_over(self) -> None:
        """Continue where another process ended: with its children, undelivered events and lost jobs."""
        for one in list(self._members):
            self._add_children(one)
        self.deliver_events()
        for child in list(self.children):
            self.decide(child, self.find_lost_and_due)

    def find_lost_and_due(self, record: WorkflowRecord) -> list[StepEvent]:
        """The lost dispatches and the due timers of an execution. Its deadlines may have passed while no
        process ran it, so that these are applied before a job is taken."""
        lost = self.backend.find_lost_dispatches(record)
        return [*lost, *due_timer_events(record, self.backend.clock)]

    def _add_children(self, weid: str) -> None:
        """Find the children of an execution, also those of earlier runs: they may have to compensate."""
        with_child = [spec.id for spec in self.backend.spec_of(weid).spec.steps if spec.child is not None]
        if not with_child:
            return
        record = self.backend.load(weid)
        for step_id in with_child:
            for run_id in range(record.steps[step_id].run_id + 1):
                try:
                    child = self.backend.load(child_execution_id(record.execution_id, step_id, run_id))
                except KeyError:
                    continue  # it has not started, or never did
                self._add_descendant(child)
                self._add_children(child.workflow_execution_id)


def has_timers(record: WorkflowRecord) -> bool:
    return record.deadline_ms is not None or bool(record.readiness.timed)


def due_timer_events(record: WorkflowRecord, clock: Callable[[], int]) -> list[StepEvent]:
    """An event for each due timer of an execution. The clock is read only if there are timers."""
    if record.deadline_ms is None and not record.readiness.timed:
        return []
    weid, due = record.workflow_execution_id, find_due_timers(record, clock())
    return [TimerEvent(timer.kind, weid, timer.step_id, timer.token) for timer in due]
