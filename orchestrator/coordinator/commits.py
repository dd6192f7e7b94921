"""Commits: writes decisions, retries what was not written, and gives up what cannot be written.

    commit(decisions) -> all in one round trip -> act on each result -> retry what conflicted

A commit that finds the record changed is decided again on the new record. A commit that was written is never
sent again. Events that could not share a commit are returned, to be handled alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from orchestrator.application.engine.transitions import fail_workflow
from orchestrator.application.engine.turn import Turn
from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.application.records.events import (
    ContinueEvent,
    LostEvent,
    Moment,
    ResultEvent,
    SlotEvent,
    TimerEvent,
    make_failure,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Commit, Committed, Delivery, EventLog
from orchestrator.coordinator.decider import Decider
from orchestrator.coordinator.options import CoordinatorOptions
from orchestrator.coordinator.pending_commit import PendingCommit, Retries, internal_error, log_fields
from orchestrator.coordinator.rejections import Rejections
from orchestrator.coordinator.starts import Starts

logger = logging.getLogger(__name__)


class Commits:
    """`expect_timer` is told in how many seconds a timer that was written is due."""

    def __init__(
        self,
        backend: Backend,
        log: EventLog,
        starts: Starts,
        decider: Decider,
        options: CoordinatorOptions,
        moment: Callable[[Delivery], Moment],
        expect_timer: Callable[[float], None],
    ) -> None:
        self._backend, self._log, self._rejections = backend, log, Rejections(log)
        self._starts, self._decider, self._options = starts, decider, options
        self._moment, self._expect_timer = moment, expect_timer

    def commit(self, pending: Sequence[PendingCommit]) -> list[Delivery]:
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
            pending, later = self._decide_again(retries.conflicts)
            separate += later
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

    def _decide_again(
        self, conflicts: dict[str, list[Delivery]]
    ) -> tuple[list[PendingCommit], list[Delivery]]:
        """Decide on events whose record was changed by another writer. Each execution that is decided again
        counts once as a conflict, when it is written."""
        if not conflicts:
            return [], []
        decided, later = self._decider.decide_all(conflicts, Turn(self._options.work_per_turn))
        for pending in decided:
            pending.commit.changes.counter_increments["conflicts"] = 1
        return decided, later

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
                    self._expect_timer((timer.due_ms - changes.at_ms) / 1000)
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
            case Committed.FAILED if pending.commit.creates and pending.commit.record.parent is None:
                self._give_up(pending, f"internal error: {pending.commit.failure}")
            case Committed.FAILED:  # the event stays pending; the key may be repaired before it is reclaimed
                logger.error("cannot commit: %s", pending.commit.failure, extra=log_fields(first))
            case Committed.SPEC_COLLISION:
                reason = "another document has the same workflow_id: change the spec, for instance its name"
                self._rejections.dead_letter(first, reason, kind=RejectionKind.ID_TAKEN)

    # ---- giving up

    def _give_up(self, pending: PendingCommit, reason: str) -> None:
        """Fail an execution whose commit cannot be written, and dead-letter the events: it must not wait for
        ever. The events stay pending if it cannot even be failed."""
        if pending.commit.creates or self._fail(pending.execution, reason, pending.deliveries[-1]):
            for delivery in pending.deliveries:
                self._rejections.dead_letter(delivery, reason, kind=RejectionKind.INTERNAL)

    def reject_undeliverable(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter an event that kills coordinators. An execution that waits for the event fails, so that
        it does not wait for ever; no execution waits for an event that was sent from outside."""
        event, is_failed = delivery.event, True
        if isinstance(event, ResultEvent | LostEvent | TimerEvent | SlotEvent | ContinueEvent):
            is_failed = self._fail(event.workflow_execution_id, reason, delivery)
        if is_failed:
            self._rejections.dead_letter(delivery, reason, kind=RejectionKind.UNDELIVERABLE)

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
