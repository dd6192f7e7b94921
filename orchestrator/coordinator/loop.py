"""The coordinator: events in, committed decisions out.

    read a batch -> fold it by execution -> load -> decide -> commit

An event may come twice, late or out of order, to one coordinator or to two; the process may die between any
two arrows. A commit writes record, history, timers, jobs and acknowledgement at once, so there is one crash
to think of:

    died          what is left                     who repairs it
    before it     the event, unacknowledged        whoever reclaims it decides again
    after it      nothing                          nobody needs to

A commit that finds the record changed is decided again on the new one. An event that cannot be understood,
or that has failed its handler too often, goes to the dead letters and blocks nobody.

An event that kills whoever handles it must be found among those that were read with it. What is taken over
for the first time is handled as any batch; what comes again after that is claimed and handled alone, so
that only the one that kills is delivered once more by its victim. A coordinator that is merely slow keeps
what it has read: between two batches it renews the rest.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from orchestrator.application.engine.create import UnknownWorkflow
from orchestrator.application.engine.transitions import decide, fail_workflow
from orchestrator.application.errors import (
    InvalidEvent,
    InvalidSpec,
    NoRoute,
    RecordNotFound,
    StoreError,
    Unavailable,
)
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import (
    ContinueEvent,
    ControlEvent,
    LostEvent,
    Moment,
    ResultEvent,
    ScheduleEvent,
    SignalEvent,
    SlotEvent,
    StartEvent,
    StepEvent,
    TimerEvent,
    failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.backend.backend import Backend
from orchestrator.backend.conflicts import ExecutionIdConflict, resolve_conflict
from orchestrator.backend.ports import Commit, Committed, Definitions, Delivery, EventLog
from orchestrator.coordinator.pending_commit import PendingCommit, build_commit, log_fields
from orchestrator.coordinator.periodic import PeriodicTask
from orchestrator.coordinator.rejections import Rejections
from orchestrator.coordinator.schedules import Schedules
from orchestrator.coordinator.starts import NamedWorkflows, Starts, existing_execution_reply

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """How often and how much."""

    batch: int = 200
    jobs_per_commit: int = 500
    block_ms: int = 500
    tend_every_s: float = 0.5
    reclaim_every_s: float = 1.0
    reclaim_after_ms: int = 5_000
    reclaim_for_s: float = 1.0
    renew_every_s: float = 1.0
    trim_every_s: float = 10.0
    max_deliveries: int = 5
    max_conflicts: int = 20


class Coordinator:
    def __init__(
        self,
        backend: Backend,
        log: EventLog,
        definitions: Definitions,
        options: CoordinatorOptions | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(8),
        routes: TagRoutes | None = None,
    ) -> None:
        self._backend, self._log, self._refusals = backend, log, Rejections(log)
        self._options, self._nonce = options or CoordinatorOptions(), nonce
        self._starts = Starts(backend, log, definitions, routes or TagRoutes(), self._options.jobs_per_commit)
        self._schedules = Schedules(definitions.schedules, log)
        self._chores = [
            PeriodicTask(self._options.tend_every_s, self._log.sweep),
            PeriodicTask(self._options.reclaim_every_s, self._reclaim),
            PeriodicTask(self._options.trim_every_s, self._log.trim),
        ]
        self._is_told_to_stop: Callable[[], bool] = lambda: False

    # ---- the loop

    def run(self, stop: StopSignal) -> None:
        """Serve until told to stop; what was read by then is finished, the rest is left to others."""
        self._is_told_to_stop = stop.is_set
        is_fresh, pause = True, FIRST_PAUSE_S
        while not stop.is_set():
            try:
                if is_fresh:
                    self.begin()
                    logger.info("serving")
                    is_fresh, pause = False, FIRST_PAUSE_S
                self.turn()
            except Unavailable as error:
                if pause == FIRST_PAUSE_S:
                    logger.warning("the store is away, waiting for it: %s", error)
                is_fresh = True
                stop.wait(pause)
                pause = min(pause * 2, MAX_PAUSE_S)
        self._end()

    def turn(self) -> int:
        """Do what is due, then handle what has come; returns how many events it were."""
        for chore in self._chores:
            chore.run_if_due()
        deliveries = self._log.read(self._options.batch, self._options.block_ms)
        self._handle_all(deliveries)
        return len(deliveries)

    def _handle_all(self, deliveries: Sequence[Delivery]) -> None:
        """Every stream may bring a batch. Between two of them we say that we live and are still at the rest:
        others would take us for dead, and do our work besides their own."""
        batch, renew_every_s = self._options.batch, self._options.renew_every_s
        renewed = time.monotonic()
        for at in range(0, len(deliveries), batch):
            if time.monotonic() - renewed >= renew_every_s:
                self._log.sweep()
                self._log.renew(deliveries[at:], round(renew_every_s * 1000))
                renewed = time.monotonic()
            self.handle(deliveries[at : at + batch])

    def begin(self) -> None:
        """After a start or an outage nothing that we remember is sure: begin with what we had read."""
        self._backend.drop_cached_records()
        self._log.open()
        self._log.sweep()
        self._take_up(self._log.read_unfinished(self._options.batch))

    def _end(self) -> None:
        try:
            self._log.close()
        except Unavailable as error:
            logger.warning("the store is away at the end: %s", error)

    def _reclaim(self) -> None:
        self._take_up(self._log.reclaim(self._options.reclaim_after_ms, self._options.batch))

    def _take_up(self, batches: Iterable[Sequence[Delivery]]) -> None:
        """Events of a coordinator that died, for a while: new ones wait behind them. What is left was claimed
        by nobody yet, and comes when it is looked for again."""
        until = time.monotonic() + self._options.reclaim_for_s
        for batch in batches:
            self.handle(batch)
            if self._is_told_to_stop() or time.monotonic() >= until:
                return

    # ---- one batch

    def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Decide upon every event of a batch and commit it all in one round trip; conflicts go again."""
        starts, others = self._understood(deliveries)
        cases = self._begun(starts)
        if cases and any(isinstance(one.event, SignalEvent | ControlEvent) for one in others):
            self._settle(cases)  # somebody may mean an execution that begins in this very batch
            cases = []
        self._settle(cases + self._decide(self._fold(others)))

    def _settle(self, cases: Sequence[PendingCommit]) -> None:
        """Commit, and decide again upon what somebody else has changed meanwhile."""
        for _ in range(self._options.max_conflicts):
            conflicts = self._commit_all(cases)
            if not conflicts:
                return
            cases = self._decide({case.execution: case.deliveries for case in conflicts})
            for case in cases:  # each that is decided again counts once, when it is written
                case.commit.changes.counted["conflicts"] = 1
        # Left unacknowledged on purpose: whoever reclaims these events begins afresh.
        logger.warning("%d executions kept changing under us", len(cases))

    def _understood(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Starts, and all other events; what cannot be understood or handled is refused."""
        starts: list[Delivery] = []
        others: list[Delivery] = []
        for delivery in deliveries:
            if delivery.deliveries > self._options.max_deliveries:
                self._bury(delivery, f"delivered {delivery.deliveries} times and never handled to the end")
            elif delivery.event is None:
                self._refusals.reject(delivery, delivery.problem or "not understood")
            elif isinstance(delivery.event, ScheduleEvent):
                self._schedules.handle(delivery)
            else:
                (starts if isinstance(delivery.event, StartEvent) else others).append(delivery)
        return starts, others

    def _fold(self, deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
        """Events by the execution that they are for."""
        folded: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            event = cast("StepEvent", delivery.event)
            found: str | None = event.workflow_execution_id
            if isinstance(event, SignalEvent | ControlEvent):
                found = self._addressed(delivery, event)
            if found is not None:
                folded.setdefault(found, []).append(delivery)
        return folded

    def _addressed(self, delivery: Delivery, event: SignalEvent | ControlEvent) -> str | None:
        """The execution that somebody means, by either of its ids; a signal for one that is yet to come is
        kept for it, and a child that its parent cancels before it begins will not begin."""
        wanted = event.workflow_execution_id
        for _ in range(self._options.max_conflicts):
            try:
                return self._backend.find(wanted)
            except RecordNotFound as error:
                if isinstance(event, ControlEvent):
                    self._refusals.refuse(delivery, str(error))
                    return None
                if self._log.keep_early_signal(delivery):
                    return None
        return None

    def _commit_all(self, cases: Sequence[PendingCommit]) -> list[PendingCommit]:
        """Commit together; returns those that met another writer and must be decided again. What cannot be
        written is found one by one, and harms nobody else; what was written is not sent again, whatever comes
        of the answers to the others."""
        if not cases:
            return []
        try:
            results = self._backend.commit([case.commit for case in cases])
        except Unavailable:
            raise
        except Exception as error:
            if len(cases) > 1:
                return [conflict for case in cases for conflict in self._commit_all([case])]
            logger.exception("cannot commit", extra={"execution": cases[0].execution})
            self._give_up(cases[0], f"internal error: {type(error).__name__}: {error}")
            return []
        answered = zip(cases, results, strict=True)
        return [case for case, result in answered if self._is_to_be_decided_again(case, result)]

    def _is_to_be_decided_again(self, case: PendingCommit, result: Committed) -> bool:
        try:
            return self._follow(case, result)
        except Unavailable:
            raise
        except Exception as error:
            logger.exception("cannot follow up on a commit", extra={"execution": case.execution})
            if result is not Committed.YES:
                self._give_up(case, f"internal error: {type(error).__name__}: {error}")
            return False

    def _give_up(self, case: PendingCommit, reason: str) -> None:
        """An event whose decision cannot be written is dead; its execution fails rather than hangs."""
        for delivery in case.deliveries:
            self._refusals.reject(delivery, reason)
        if not case.commit.creates:
            self._fail(case.execution, reason, case.deliveries[-1])

    def _bury(self, delivery: Delivery, reason: str) -> None:
        """An event that nobody survives is dead; what somebody outside said is missed by nobody, but an
        execution that waits for it fails rather than hangs."""
        self._refusals.reject(delivery, reason)
        if isinstance(delivery.event, ResultEvent | LostEvent | TimerEvent | SlotEvent | ContinueEvent):
            self._fail(delivery.event.workflow_execution_id, reason, delivery)

    def _fail(self, workflow_execution_id: str, reason: str, delivery: Delivery) -> None:
        try:
            for _ in range(self._options.max_conflicts):
                [record] = self._backend.checkout_many([workflow_execution_id]).values()
                if not isinstance(record, WorkflowRecord):
                    return
                changes = fail_workflow(record, failure("internal", reason), self._moment(delivery))
                if self._backend.commit([Commit(record, changes)]) == [Committed.YES]:
                    return
        except Unavailable:
            raise
        except Exception:
            logger.exception("cannot even fail", extra={"execution": workflow_execution_id})

    def _follow(self, case: PendingCommit, result: Committed) -> bool:
        """Do what the answer to a commit asks for; True when another writer was first, and it must be decided
        again."""
        match result:
            case Committed.YES:
                case.log()
                for delivery, reason in case.rejected:
                    self._refusals.refuse(delivery, reason)
            case Committed.CONFLICT if not case.commit.creates:
                return True
            case Committed.GONE if len(case.deliveries) > 1:
                for delivery in case.deliveries:  # whoever is still pending counts by itself
                    self.handle([delivery])
            case Committed.GONE:
                logger.info("answered by another coordinator", extra=log_fields(case.deliveries[0]))
            case Committed.EXISTS if case.commit.record.schedule is not None:
                self._log.drop(case.deliveries[0])  # it is the execution of that very slot
            case Committed.EXISTS | Committed.CONFLICT:
                self._settle_conflict(case)
            case Committed.EARLY_SIGNAL:
                self._settle(self._begun(case.deliveries, has_signals=True))
            case Committed.ORPHAN:
                self._log.drop(case.deliveries[0])
            case Committed.REPEATED:
                self._repeat(case)
            case Committed.SPEC_COLLISION:
                reason = "another document has the same workflow_id: change the spec, for instance its name"
                self._refusals.reject(case.deliveries[0], reason)
        return False

    def _decide(self, folded: dict[str, list[Delivery]]) -> list[PendingCommit]:
        cases = []
        records = self._backend.checkout_many(list(folded))
        for workflow_execution_id, deliveries in folded.items():
            record = records[workflow_execution_id]
            if isinstance(record, StoreError):
                dismiss = (
                    self._refusals.reject_missing
                    if isinstance(record, RecordNotFound)
                    else self._refusals.reject
                )
                for delivery in deliveries:
                    dismiss(delivery, str(record))
            else:
                cases.append(self._decide_one(record, deliveries))
        return cases

    def _decide_one(self, record: WorkflowRecord, deliveries: list[Delivery]) -> PendingCommit:
        # The latest of them: streams are read one after the other, and a timer must not seem early.
        moment = self._moment(max(deliveries, key=lambda delivery: delivery.at_ms))
        events = cast("list[StepEvent]", [delivery.event for delivery in deliveries])
        try:
            decided = decide(record, events, moment, self._options.jobs_per_commit)
        except Exception as error:
            # A defect of ours, or a record that somebody broke. It must stop neither the others nor hide.
            logger.exception("cannot decide", extra={"execution": record.workflow_execution_id})
            return self._failed(record, deliveries, f"internal error: {type(error).__name__}: {error}")
        rejected = dict(decided.rejected)
        kept = [delivery for position, delivery in enumerate(deliveries) if position not in rejected]
        replies = {
            name: answer
            for position, answer in decided.replies.items()
            if (name := deliveries[position].reply) is not None
        }
        return PendingCommit(
            build_commit(record, decided.changes, kept, replies),
            deliveries,
            [(deliveries[position], reason) for position, reason in rejected.items()],
        )

    def _failed(self, record: WorkflowRecord, deliveries: list[Delivery], message: str) -> PendingCommit:
        """The end of an execution that cannot be decided upon; of one that cannot even be ended, its events
        are refused."""
        try:
            changes = fail_workflow(record, failure("internal", message), self._moment(deliveries[-1]))
        except Exception:
            logger.exception("cannot even fail", extra={"execution": record.workflow_execution_id})
            nothing = Commit(record, Changes(deliveries[-1].at_ms))
            return PendingCommit(nothing, deliveries, [(delivery, message) for delivery in deliveries])
        return PendingCommit(build_commit(record, changes, deliveries), deliveries)

    # ---- starts

    def _begun(self, deliveries: Sequence[Delivery], has_signals: bool = False) -> list[PendingCommit]:
        named = self._starts.find_named_workflows(deliveries)
        cases = (self._start(delivery, named, has_signals) for delivery in deliveries)
        return [case for case in cases if case is not None]

    def _start(self, delivery: Delivery, named: NamedWorkflows, has_signals: bool) -> PendingCommit | None:
        try:
            commit = self._starts.build_creation(delivery, self._moment(delivery), named, has_signals)
            return PendingCommit(commit, [delivery])
        except Unavailable:
            raise
        except InvalidSpec as error:
            details = [problem.as_dict() for problem in error.problems]
            self._refusals.reject(
                delivery, f"invalid: {error}", {"ok": False, "reason": str(error), "problems": details}
            )
        except (InvalidEvent, UnknownWorkflow, NoRoute, StoreError) as error:
            self._refusals.reject(delivery, str(error))
        except Exception as error:
            logger.exception("cannot start", extra=log_fields(delivery))
            self._refusals.reject(delivery, f"internal error: {type(error).__name__}: {error}")
        return None

    def _repeat(self, case: PendingCommit) -> None:
        """A start that came before is answered with what came of it: once is enough."""
        answer = self._starts.reply_to_repeated(case.commit)
        if answer is None:
            self.handle(case.deliveries)  # its window has just ended
        else:
            self._log.answer(case.deliveries[0], answer)

    def _settle_conflict(self, case: PendingCommit) -> None:
        """The id that a start asks for is taken: its policy says what then."""
        delivery = case.deliveries[0]
        policy = cast("StartEvent", delivery.event).conflict_policy
        try:
            if case.conflicts >= self._options.max_conflicts:
                raise ExecutionIdConflict(
                    case.commit.record.execution_id, ", and it keeps changing hands: start again"
                )
            settled = resolve_conflict(self._backend, case.commit, policy, self._moment(delivery))
        except ExecutionIdConflict as error:
            self._refusals.reject(delivery, str(error))
            return
        if isinstance(settled, WorkflowRecord):
            self._log.answer(delivery, existing_execution_reply(settled))
        else:
            self._settle([PendingCommit(settled, case.deliveries, conflicts=case.conflicts + 1)])

    def _moment(self, delivery: Delivery) -> Moment:
        return Moment(delivery.at_ms, self._nonce(), delivery.ref.entry_id)


class StopSignal(Protocol):
    """As threading.Event."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...
