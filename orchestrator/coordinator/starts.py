"""Starts: the commits that create executions.

    build_all(starts, turn)    a creation for each start that is valid; the others are rejected
    waiting                    the events whose documents are checked outside of the loop first
    await_specs(events)        the events whose executions can be loaded now; the others wait
    hold_back(creations)       the creations whose first jobs have room in their queues; the others are held
    retry(creation, result)    a creation that was not written: the next one to try, or a reply or rejection

A start comes from a producer, or from a parent that starts its child. Nothing is created here: the
coordinator commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from orchestrator.application.engine.create import UnknownWorkflow, child_spec, new_record
from orchestrator.application.engine.transitions import decide
from orchestrator.application.engine.turn import Turn
from orchestrator.application.errors import (
    DocumentTooBig,
    InvalidEvent,
    InvalidSpec,
    NoRoute,
    StoreError,
    Unavailable,
)
from orchestrator.application.records.events import Moment, Parent, StartEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import ChildSpec, LoadedSpec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.spec.validation import check_inputs, load_spec
from orchestrator.application.values.document_limits import DocumentLimits
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.backend.backend import Backend
from orchestrator.backend.conflicts import ExecutionIdConflict, resolve_conflict
from orchestrator.backend.ports import Commit, Committed, Definitions, Delivery, EventLog, Queue
from orchestrator.backend.spec_cache import SpecCache
from orchestrator.coordinator.large_document import LargeDocument
from orchestrator.coordinator.options import CoordinatorOptions
from orchestrator.coordinator.pending_commit import PendingCommit, internal_error, log_fields
from orchestrator.coordinator.rejections import Rejections
from orchestrator.coordinator.waiting_events import CheckFailed, CheckPending, SpecChecker, WaitingEvents

logger = logging.getLogger(__name__)

SPEC_CACHE_SIZE = 256

Reply = dict[str, Any]
NamedWorkflows = Mapping[str, str | None]
"""Names of workflows, and the workflow_id that is registered under each, if any."""


class Starts:
    def __init__(
        self,
        backend: Backend,
        log: EventLog,
        definitions: Definitions,
        routes: TagRoutes,
        options: CoordinatorOptions,
        moment: Callable[[Delivery], Moment],
        checker: SpecChecker,
    ) -> None:
        self._backend, self._log, self._definitions = backend, log, definitions
        self._routes, self._options, self._moment = routes, options, moment
        self._rejections = Rejections(log)
        self._specs = SpecCache[str](SPEC_CACHE_SIZE)
        self.waiting = WaitingEvents(checker, log, options)
        self._small = _small_limits(options)

    # ---- creations

    def build_all(
        self, deliveries: Sequence[Delivery], turn: Turn
    ) -> tuple[list[PendingCommit], Sequence[Delivery]]:
        """The creations of some starts; a start that is invalid is rejected. When the turn is over, the
        remaining starts are returned for the next one."""
        named = self._find_named_workflows(deliveries)
        creations: list[PendingCommit] = []
        for position, delivery in enumerate(deliveries):
            if turn.is_over():
                return creations, deliveries[position:]
            creations += self._build_or_reject(delivery, named, turn)
        return creations, ()

    def _build_again(self, delivery: Delivery, has_signals: bool = False) -> PendingCommit | None:
        """The creation of a start for which another one was not written.

        Few executions have signals before they are created. So signals are only loaded with `has_signals`,
        after the store has found some (Committed.EARLY_SIGNAL).
        """
        named = self._find_named_workflows([delivery])
        return next(iter(self._build_or_reject(delivery, named, self._new_turn(), has_signals)), None)

    def _new_turn(self) -> Turn:
        return Turn(self._options.work_per_turn)

    def _find_named_workflows(self, deliveries: Sequence[Delivery]) -> NamedWorkflows:
        """The registered workflows that some starts name, in one round trip."""
        events = (cast("StartEvent", delivery.event) for delivery in deliveries)
        names = list({event.workflow: None for event in events if event.workflow is not None})
        try:
            return dict(zip(names, self._definitions.find_workflow_ids(names), strict=True)) if names else {}
        except Unavailable:
            raise
        except Exception:  # then each name is looked up by itself, and an error fails only its own start
            return {}

    def _build_or_reject(
        self, delivery: Delivery, named: NamedWorkflows, turn: Turn, has_signals: bool = False
    ) -> list[PendingCommit]:
        """The creation of a start; none if the start is rejected."""
        try:
            commit = self.build_creation(delivery, named, turn, has_signals)
            return [PendingCommit(commit, [delivery])]
        except Unavailable:
            raise
        except CheckPending as pending:
            self.waiting.add(delivery, pending.document)
        except InvalidSpec as error:
            problems = [problem.as_dict() for problem in error.problems]
            reply = {"ok": False, "reason": str(error), "problems": problems}
            self._rejections.dead_letter(delivery, f"invalid: {error}", reply, RejectionKind.INVALID)
        except (InvalidEvent, UnknownWorkflow, NoRoute, StoreError, CheckFailed) as error:
            self._rejections.dead_letter(delivery, str(error), kind=_rejection_kind(error))
        except Exception as error:
            logger.exception("cannot start an execution", extra=log_fields(delivery))
            self._rejections.dead_letter(delivery, internal_error(error), kind=RejectionKind.INTERNAL)
        return []

    def build_creation(
        self, delivery: Delivery, named: NamedWorkflows, turn: Turn, has_signals: bool = False
    ) -> Commit:
        """The commit that creates the execution of a start. Raises InvalidEvent, InvalidSpec,
        UnknownWorkflow, NoRoute or StoreError when it cannot be created."""
        event, moment = cast("StartEvent", delivery.event), self._moment(delivery)
        if event.spec is not None and self._specs.get(event.spec) is None:
            turn.count(document_bytes=min(len(event.spec), self._small.max_bytes))
        loaded = self._spec_of(event, named)
        self._routes.queues(loaded.spec)
        inputs, problems = check_inputs(loaded.spec, event.inputs)
        if problems:
            raise InvalidSpec(problems)
        execution_id = event.execution_id or execution_id_for_start(delivery)
        record = new_record(loaded, execution_id, inputs, event, moment)
        turn.count(created_steps=len(record.steps))
        if has_signals:
            record.signals = self._log.load_early_signals(execution_id)
        self._backend.load_shared_values([record])
        if record.parent is None:
            record.shared["global"] = {}  # any stored values belong to an earlier execution with this id
        changes = decide(record, [], moment, self._options.jobs_per_commit, turn).changes
        commit = Commit(record, changes, events=[delivery.ref], pending_refs=[delivery.ref], creates=True)
        if event.parent is None:
            commit.replies = {delivery.sent_as.entry_id: _accepted(record.workflow_execution_id)}
        if event.idempotency_root is not None:
            commit.idempotency_root = (event.idempotency_root, event.idempotency_window_s)
        return commit

    def _spec_of(self, event: StartEvent, named: NamedWorkflows) -> LoadedSpec:
        if event.spec is not None:
            return self._load_spec(event.spec)
        name = event.workflow or ""
        if event.parent is not None:
            child = self._child_of(event.parent)
            if child.loaded is not None:
                return child.loaded
            name = child.name or ""
        workflow_id = named[name] if name in named else self._definitions.find_workflow_ids([name])[0]
        if workflow_id is None:
            raise UnknownWorkflow(name)
        return self._registered_spec(workflow_id)

    def await_specs(self, grouped: dict[str, list[Delivery]]) -> dict[str, list[Delivery]]:
        """The events of executions that are in memory, or whose specs are loaded or small. The others wait
        while their specs are loaded outside of the loop. A spec that cannot be loaded there is loaded in the
        loop: the events of an execution are not rejected for that."""
        ready: dict[str, list[Delivery]] = {}
        for execution, deliveries in grouped.items():
            try:
                if not self._backend.is_cached(execution):
                    self._registered_spec(execution.partition("#")[0])
            except CheckPending as pending:
                for delivery in deliveries:
                    self.waiting.add(delivery, pending.document)
                continue
            except (InvalidSpec, StoreError, CheckFailed):
                pass  # the execution cannot be loaded either, or takes long
            ready[execution] = deliveries
        return ready

    def _registered_spec(self, workflow_id: str) -> LoadedSpec:
        """A spec that is stored. CheckPending for one that is not loaded yet and is too large for that."""
        found = self._definitions.find_spec(workflow_id, self._options.small_stored_bytes)
        if isinstance(found, LoadedSpec):
            return found
        loaded = self._find_checked(LargeDocument(found, is_stored=True))
        return self._definitions.add_loaded(workflow_id, loaded)

    def _child_of(self, parent: Parent) -> ChildSpec:
        """The child that the parent's step describes. The event may be forged, so the step is checked."""
        loaded = self._registered_spec(parent.execution.partition("#")[0])
        position = loaded.graph.index.get(parent.step_id)
        if position is None or loaded.spec.steps[position].child is None:
            raise InvalidEvent(f"workflow {parent.execution!r} has no step {parent.step_id!r} with a child")
        return child_spec(loaded, parent.step_id)

    def _load_spec(self, text: str) -> LoadedSpec:
        """Check a spec, or return the cached one: producers send the same text many times. CheckPending for
        a document that is too large to be checked here."""
        loaded = self._specs.get(text)
        if loaded is None:
            try:
                loaded = load_spec(text, with_warnings=False, limits=self._small)
            except DocumentTooBig:
                loaded = self._find_checked(LargeDocument(text))
            self._specs.put(text, loaded)
        return loaded

    def _find_checked(self, document: LargeDocument) -> LoadedSpec:
        loaded = self.waiting.find(document)
        if loaded is None:
            raise CheckPending(document)
        return loaded

    # ---- full queues

    def hold_back(self, creations: list[PendingCommit]) -> list[PendingCommit]:
        """Hold the starts whose first jobs need a full queue; returns the other creations. A held start is
        delivered again, and its creation is built afresh then."""
        if not creations or not self._log.has_full_queues:
            return creations
        starts = [(one.deliveries[0], self._first_queues(one.commit)) for one in creations]
        is_held = self._log.hold(starts)
        return [one for one, held in zip(creations, is_held, strict=True) if not held]

    def _first_queues(self, commit: Commit) -> list[Queue]:
        """The queues of the first jobs of a new execution. A child is never held: its parent runs already."""
        if commit.record.parent is not None:
            return []
        queue_of = self._routes.queue_of
        jobs = commit.changes.jobs
        return list({(queue_of(job.tags, job.queue, job.step_id), job.priority): None for job in jobs})

    # ---- creations that were not written

    def retry(self, pending: PendingCommit, result: Committed) -> PendingCommit | None:
        """The creation to try after one was not written; None when the start was answered or rejected."""
        if result is Committed.EARLY_SIGNAL:
            return self._build_again(pending.deliveries[0], has_signals=True)
        if result is Committed.REPEATED:
            return self._retry_repeated(pending)
        return self._resolve_conflict(pending)

    def _resolve_conflict(self, pending: PendingCommit) -> PendingCommit | None:
        """The execution id of a start is taken: replace that execution, reply with it, or reject the
        start."""
        delivery = pending.deliveries[0]
        policy = cast("StartEvent", delivery.event).conflict_policy
        try:
            if pending.conflicts >= self._options.max_conflicts:
                raise ExecutionIdConflict(
                    pending.commit.record.execution_id, ", and it keeps changing hands: start again"
                )
            resolved = resolve_conflict(self._backend, pending.commit, policy, self._moment(delivery))
        except ExecutionIdConflict as error:
            self._rejections.dead_letter(delivery, str(error), kind=RejectionKind.ID_TAKEN)
            return None
        if isinstance(resolved, WorkflowRecord):
            is_own = resolved.start_event == delivery.sent_as.entry_id
            weid = resolved.workflow_execution_id
            self._log.reply(delivery, _accepted(weid) if is_own else _existing_execution_reply(resolved))
            return None
        return PendingCommit(resolved, pending.deliveries, conflicts=pending.conflicts + 1)

    def _retry_repeated(self, pending: PendingCommit) -> PendingCommit | None:
        """Reply to a start whose idempotency root is in use; create it again if the window has just ended."""
        reply = self._reply_to_repeated(pending.commit)
        if reply is None:
            return self._build_again(pending.deliveries[0])
        self._log.reply(pending.deliveries[0], reply)
        return None

    def _reply_to_repeated(self, commit: Commit) -> Reply | None:
        """The first execution under the same idempotency root; None when its window has ended."""
        assert commit.idempotency_root is not None, "a start without a root cannot be a repeated one"
        first = self._backend.shared_state.find_by_root(commit.idempotency_root[0])
        if first is None:
            return None
        [record] = self._backend.checkout_many([first]).values()
        if isinstance(record, WorkflowRecord):
            return _existing_execution_reply(record)
        return {**_accepted(first), "existing": True}


def _rejection_kind(error: Exception) -> RejectionKind:
    match error:
        case UnknownWorkflow():
            return RejectionKind.UNKNOWN_WORKFLOW
        case NoRoute():
            return RejectionKind.NO_ROUTE
        case CheckFailed():
            return RejectionKind.UNCHECKED
        case InvalidEvent():
            return RejectionKind.INVALID
    return RejectionKind.OTHER


def _small_limits(options: CoordinatorOptions) -> DocumentLimits:
    """The limits of a document that is checked in the loop. Aliases may expand a few bytes to many nodes."""
    size = options.small_document_bytes
    return DocumentLimits(max_bytes=size, max_nodes=size // 4)


def execution_id_for_start(delivery: Delivery) -> str:
    """An execution id derived from the start's entry id, so that the same start gets the same execution."""
    milliseconds, _, sequence = delivery.sent_as.entry_id.partition("-")
    at = datetime.fromtimestamp(delivery.at_ms // 1000, UTC)
    return f"{at:%Y%m%dT%H%M%S}-{int(milliseconds) % 1000:03x}{int(sequence):x}"


def _existing_execution_reply(record: WorkflowRecord) -> Reply:
    """The reply to a start that created nothing: the existing execution, and its result if it has one."""
    reply = {**_accepted(record.workflow_execution_id), "existing": True, "status": record.status.value}
    return reply | ({"outcome": record.outcome, "error": record.error} if record.is_final else {})


def _accepted(workflow_execution_id: str) -> Reply:
    execution_id = workflow_execution_id.partition("#")[2]
    return {"ok": True, "workflow_execution_id": workflow_execution_id, "execution_id": execution_id}
