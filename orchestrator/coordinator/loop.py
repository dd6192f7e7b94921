"""The coordinator reads events, decides on them, and commits the decisions.

    run -> run_once -> handle(batch):  classify -> load -> decide -> commit -> retry what conflicted

An event may arrive twice, late or out of order, at one coordinator or at two, and the process may die between
any two arrows. A commit writes record, history, timers, jobs and acknowledgement at once, so there are two
cases:

    crashed before the commit    the event is still pending; another coordinator reclaims it
    crashed after the commit     nothing to repair

A commit that finds the record changed is decided again on the new record. An event that cannot be read, or
that was delivered too often, goes to the dead letters and blocks no other event.

An event may kill the coordinator that handles it, and must then be told apart from the events that were read
with it. Events that are reclaimed for the first time are handled as a batch. Events that are delivered again
after that are claimed and handled one by one, so that only the event that kills is delivered once more. A
slow coordinator keeps the events that it has read: between two batches it renews the rest.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from orchestrator.application.engine.transitions import fail_workflow
from orchestrator.application.errors import AccessDenied, RecordNotFound, StoreError, Unavailable
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
    make_failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Commit, Committed, Definitions, Delivery, EventLog
from orchestrator.coordinator.decider import Decider
from orchestrator.coordinator.options import CoordinatorOptions
from orchestrator.coordinator.pending_commit import PendingCommit, Retries, internal_error, log_fields
from orchestrator.coordinator.periodic import PeriodicTask
from orchestrator.coordinator.rejections import Rejections
from orchestrator.coordinator.schedules import Schedules
from orchestrator.coordinator.starts import Starts
from orchestrator.coordinator.sweeps import Sweeps

__all__ = ["Coordinator", "CoordinatorOptions", "Pace", "StopSignal"]

logger = logging.getLogger(__name__)

Pace = CoordinatorOptions
"""The former name, kept for one release."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 2.0


class Coordinator:
    def __init__(
        self,
        backend: Backend,
        log: EventLog,
        definitions: Definitions,
        options: CoordinatorOptions | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(8),
        routes: TagRoutes | None = None,
        repair: Callable[[], object] = lambda: None,
    ) -> None:
        """`repair` is called now and then, to repair executions that were written in part."""
        self._backend, self._log, self._rejections = backend, log, Rejections(log)
        self._options, self._nonce = options or CoordinatorOptions(), nonce
        self._starts = Starts(backend, log, definitions, routes or TagRoutes(), self._options, self._moment)
        self._decider = Decider(backend, self._rejections, self._options.jobs_per_commit, self._moment)
        self._schedules = Schedules(definitions.schedules, log)
        self._sweeps = Sweeps(log, self._options.sweep_every_s)
        self._periodic_tasks: list[Callable[[], object]] = [
            self._sweeps.run_if_due,
            PeriodicTask(self._options.reclaim_every_s, self._reclaim).run_if_due,
            PeriodicTask(self._options.trim_every_s, self._log.trim).run_if_due,
            PeriodicTask(self._options.repair_every_s, repair).run_if_due,
        ]
        self._task_problems: dict[int, str] = {}
        self._is_stopping: Callable[[], bool] = lambda: False

    # ---- the loop

    def run(self, stop: StopSignal) -> None:
        """Serve until `stop` is set. The batch that was read by then is finished.

        Once it serves, no event and no reply of the store ends the coordinator. An error that it does not
        expect is logged, and it goes on after a pause.
        """
        self._is_stopping = stop.is_set
        has_served, must_resume, pause_s = False, True, FIRST_PAUSE_S
        while not stop.is_set():
            try:
                if must_resume:
                    self.resume_unfinished()
                    logger.info("serving")
                    has_served, must_resume = True, False
                self.run_once()
                pause_s = FIRST_PAUSE_S
            except Unavailable as error:
                if pause_s == FIRST_PAUSE_S:
                    logger.warning("the store is unavailable; retrying: %s", error)
                must_resume = True
            except Exception as error:
                if not has_served or isinstance(error, AccessDenied):
                    raise
                self._report_unexpected(error)
                must_resume = True
            if must_resume:
                stop.wait(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
        self._close()

    def _report_unexpected(self, error: Exception) -> None:
        logger.error("an unexpected error; going on", exc_info=error)

    def run_once(self) -> int:
        """Run the periodic tasks that are due, then read and handle new events; returns their number."""
        for position, run_if_due in enumerate(self._periodic_tasks):
            self._run_task(position, run_if_due)
        deliveries = self._sweeps.read(self._options.batch, self._options.block_ms)
        self._handle_in_batches(deliveries)
        return len(deliveries)

    def _run_task(self, position: int, run_if_due: Callable[[], object]) -> None:
        """Run a periodic task. An unexpected error of one must not stop the others, nor the events; the same
        error is logged once in a row."""
        try:
            run_if_due()
        except (Unavailable, AccessDenied):
            raise
        except Exception as error:
            if self._task_problems.get(position) != str(error):
                self._report_unexpected(error)
            self._task_problems[position] = str(error)
        else:
            self._task_problems.pop(position, None)

    def _handle_in_batches(self, deliveries: Sequence[Delivery]) -> None:
        """Handle what was read; each stream may have returned a whole batch. Between two batches the
        coordinator renews its heartbeat and the remaining events: else others would take it for dead, and
        handle them too."""
        batch, renew_every_s = self._options.batch, self._options.renew_every_s
        renewed_at = time.monotonic()
        for at in range(0, len(deliveries), batch):
            if time.monotonic() - renewed_at >= renew_every_s:
                self._sweeps.run()
                self._log.renew(deliveries[at:], round(renew_every_s * 1000))
                renewed_at = time.monotonic()
            self.handle(deliveries[at : at + batch])

    def resume_unfinished(self) -> None:
        """Start, or go on after an outage: cached records may be stale, and events that were read before are
        handled first."""
        self._backend.drop_cached_records()
        self._log.open()
        self._sweeps.run()
        self._handle_for_a_while(self._log.read_unfinished(self._options.batch))

    def _close(self) -> None:
        try:
            self._log.close()
        except Unavailable as error:
            logger.warning("the store is unavailable at shutdown: %s", error)

    def _reclaim(self) -> None:
        """Take over events of a coordinator that died."""
        self._handle_for_a_while(self._log.reclaim(self._options.reclaim_after_ms, self._options.batch))

    def _handle_for_a_while(self, batches: Iterable[Sequence[Delivery]]) -> None:
        """Handle batches of old events for a limited time, because new events wait meanwhile. A batch that is
        not reached was not claimed yet, and is found again the next time."""
        until = time.monotonic() + self._options.reclaim_for_s
        for batch in batches:
            self.handle(batch)
            if self._is_stopping() or time.monotonic() >= until:
                return

    # ---- one batch

    def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Decide on the events of a batch and commit; events that could not share a commit follow alone."""
        for delivery in self._handle_safely(deliveries):
            self._handle_safely([delivery])

    def _handle_safely(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Handle events. After an unexpected error each of them is handled alone. One that is alone is
        rejected, or stays pending if even that is impossible."""
        try:
            return self._handle_together(deliveries)
        except (Unavailable, AccessDenied):
            raise
        except Exception as error:
            self._report_unexpected(error)
            if len(deliveries) > 1:
                return list(deliveries)
            self._reject_after(error, deliveries[0])
            return []

    def _reject_after(self, error: Exception, delivery: Delivery) -> None:
        try:
            self._rejections.dead_letter(delivery, internal_error(error))
        except (Unavailable, AccessDenied):
            raise
        except Exception as second:
            self._report_unexpected(second)

    def _handle_together(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Decide on all events and commit in one round trip. Returns the events to be handled alone, which
        a single event never is."""
        starts, others = self._classify(deliveries)
        creations = self._starts.hold_back(self._starts.build_all(starts)) if starts else []
        if creations and any(isinstance(one.event, SignalEvent | ControlEvent) for one in others):
            # A signal or control may be for an execution that is created by this very batch.
            self._commit_with_retries(creations)
            creations = []
        decided = self._decider.decide_all(self._group_by_execution(others))
        return self._commit_with_retries(creations + decided)

    def _classify(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Starts, and all other events. Unreadable and undeliverable events are rejected, and schedule events
        are handled."""
        starts: list[Delivery] = []
        others: list[Delivery] = []
        for delivery in deliveries:
            if delivery.delivery_count > self._options.max_deliveries:
                self._reject_undeliverable(
                    delivery, f"delivered {delivery.delivery_count} times and never completed"
                )
            elif delivery.event is None:
                self._rejections.dead_letter(delivery, delivery.problem or "the event cannot be read")
            elif isinstance(delivery.event, ScheduleEvent):
                self._schedules.handle(delivery)
            else:
                (starts if isinstance(delivery.event, StartEvent) else others).append(delivery)
        return starts, others

    def _group_by_execution(self, deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
        grouped: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            event = cast("StepEvent", delivery.event)
            execution: str | None = event.workflow_execution_id
            if isinstance(event, SignalEvent | ControlEvent):
                execution = self._resolve_execution(delivery, event)
            if execution is not None:
                grouped.setdefault(execution, []).append(delivery)
        return grouped

    def _resolve_execution(self, delivery: Delivery, event: SignalEvent | ControlEvent) -> str | None:
        """The full id of the execution that a signal or control names by either of its ids; None when there
        is no such execution. Then a signal is kept for an execution that may start later, and a control is
        rejected."""
        for _ in range(self._options.max_conflicts):
            try:
                return self._backend.find(event.workflow_execution_id)
            except RecordNotFound as error:
                if isinstance(event, ControlEvent):
                    self._rejections.reply_or_reject(delivery, str(error))
                    return None
                if self._log.keep_early_signal(delivery):
                    return None
        return None

    # ---- committing

    def _commit_with_retries(self, pending: Sequence[PendingCommit]) -> list[Delivery]:
        """Commit, and retry what was not written, at most `max_conflicts` times. Returns the events to be
        handled alone."""
        separate: list[Delivery] = []
        for _ in range(self._options.max_conflicts + 1):
            if not pending:
                return separate
            retries = self._commit_all(pending)
            for creation, result in retries.creations:
                self._retry_creation(creation, result)
            separate += retries.separate
            pending = self._decide_again(retries.conflicts)
        if pending:
            self._leave(pending)
        return separate

    def _retry_creation(self, creation: PendingCommit, result: Committed) -> None:
        """Retry one creation until it is written or its start is answered, at most `max_conflicts` times.
        Alone, because the next creation of a batch may be for the same execution id."""
        for _ in range(self._options.max_conflicts + 1):
            try:
                retry = self._starts.retry(creation, result)
            except Unavailable:
                raise
            except Exception as error:
                logger.exception("cannot retry a start", extra={"execution": creation.execution})
                self._give_up(creation, internal_error(error))
                return
            if retry is None:
                return
            retries = self._commit_all([retry])
            if not retries.creations:
                return
            [(creation, result)] = retries.creations
        self._leave([creation])

    def _leave(self, pending: Sequence[PendingCommit]) -> None:
        """Leave events unacknowledged on purpose: they are reclaimed later, and decided on afresh."""
        logger.warning("%d executions changed during every commit", len(pending))

    def _decide_again(self, conflicts: dict[str, list[Delivery]]) -> list[PendingCommit]:
        """Decide on events whose record was changed by another writer. Each execution that is decided again
        counts once as a conflict, when it is written."""
        if not conflicts:
            return []
        decided = self._decider.decide_all(conflicts)
        for pending in decided:
            pending.commit.changes.counter_increments["conflicts"] = 1
        return decided

    def _commit_all(self, pending: Sequence[PendingCommit]) -> Retries:
        """Commit in one round trip, and act on each result. A commit that was written is never sent again,
        whatever error the results of the others lead to."""
        retries = Retries()
        results = self._try_commit(pending)
        if results is not None:
            for one, result in zip(pending, results, strict=True):
                self._act_on_result(one, result, retries)
        elif len(pending) > 1:
            # One of them cannot be written. The others can, one by one.
            for one in pending:
                for result in self._try_commit([one]) or ():
                    self._act_on_result(one, result, retries)
        return retries

    def _try_commit(self, pending: Sequence[PendingCommit]) -> list[Committed] | None:
        """Commit together; None after an error. A commit that fails alone is given up."""
        try:
            return self._backend.commit([one.commit for one in pending])
        except Unavailable:
            raise
        except Exception as error:
            if len(pending) == 1:
                logger.exception("cannot commit", extra={"execution": pending[0].execution})
                self._give_up(pending[0], internal_error(error))
            return None

    def _act_on_result(self, pending: PendingCommit, result: Committed, retries: Retries) -> None:
        try:
            self._follow_up(pending, result, retries)
        except Unavailable:
            raise
        except Exception as error:
            logger.exception("cannot act on the result of a commit", extra={"execution": pending.execution})
            if result is not Committed.YES:
                self._give_up(pending, internal_error(error))

    def _follow_up(self, pending: PendingCommit, result: Committed, retries: Retries) -> None:
        """Complete a commit that was written, or add what to do next to `retries`."""
        first = pending.deliveries[0]
        match result:
            case Committed.YES:
                pending.log()
                changes = pending.commit.changes
                for timer in changes.timers_by_name_to_arm.values():
                    self._sweeps.expect_timer((timer.due_ms - changes.at_ms) / 1000)
                for delivery, reason in pending.rejected:
                    self._rejections.reply_or_reject(delivery, reason)
            case Committed.CONFLICT if not pending.commit.creates:
                retries.conflicts[pending.execution] = pending.deliveries
            case Committed.GONE if len(pending.deliveries) > 1:
                retries.separate += pending.deliveries  # each that is still pending counts alone
            case Committed.GONE:
                logger.info("handled by another coordinator", extra=log_fields(first))
            case Committed.EXISTS if pending.commit.record.schedule is not None:
                self._log.drop(first)  # this slot of the schedule was already started
            case Committed.EXISTS | Committed.CONFLICT | Committed.EARLY_SIGNAL | Committed.REPEATED:
                retries.creations.append((pending, result))
            case Committed.ORPHAN:
                self._log.drop(first)
            case Committed.FAILED if pending.commit.creates:
                self._give_up(pending, f"internal error: {pending.commit.failure}")
            case Committed.FAILED:  # the event stays pending; the key may be repaired before it is reclaimed
                logger.error("cannot commit: %s", pending.commit.failure, extra=log_fields(first))
            case Committed.SPEC_COLLISION:
                reason = "another document has the same workflow_id: change the spec, for instance its name"
                self._rejections.dead_letter(first, reason)

    # ---- giving up

    def _give_up(self, pending: PendingCommit, reason: str) -> None:
        """Fail an execution whose commit cannot be written, and dead-letter the events: it must not wait for
        ever. The events stay pending if it cannot even be failed."""
        if pending.commit.creates or self._fail(pending.execution, reason, pending.deliveries[-1]):
            for delivery in pending.deliveries:
                self._rejections.dead_letter(delivery, reason)

    def _reject_undeliverable(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter an event that kills coordinators. An execution that waits for the event fails, so that
        it does not wait for ever; no execution waits for an event that was sent from outside."""
        event, is_failed = delivery.event, True
        if isinstance(event, ResultEvent | LostEvent | TimerEvent | SlotEvent | ContinueEvent):
            is_failed = self._fail(event.workflow_execution_id, reason, delivery)
        if is_failed:
            self._rejections.dead_letter(delivery, reason)

    def _fail(self, workflow_execution_id: str, reason: str, delivery: Delivery) -> bool:
        """Fail an execution; False when that cannot be written."""
        try:
            for _ in range(self._options.max_conflicts):
                [record] = self._backend.checkout_many([workflow_execution_id]).values()
                if not isinstance(record, WorkflowRecord):
                    return True
                changes = fail_workflow(record, make_failure("internal", reason), self._moment(delivery))
                commit = Commit(record, changes)
                [result] = self._backend.commit([commit])
                if result is Committed.YES:
                    return True
                if result is Committed.FAILED:
                    raise StoreError(commit.failure)
        except Unavailable:
            raise
        except Exception:
            logger.exception(
                "could not mark the execution failed", extra={"execution": workflow_execution_id}
            )
        return False

    def _moment(self, delivery: Delivery) -> Moment:
        return Moment(delivery.at_ms, self._nonce(), delivery.sent_as.entry_id)


class StopSignal(Protocol):
    """As threading.Event."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...
