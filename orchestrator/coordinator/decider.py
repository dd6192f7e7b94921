"""Decider: loads executions and decides on their events, as far as the work of a turn goes. Nothing is
written here: the coordinator commits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from orchestrator.application.engine.transitions import decide, fail_workflow
from orchestrator.application.engine.turn import Turn
from orchestrator.application.errors import RecordNotFound, StoreError
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import Moment, StepEvent, make_failure
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Commit, Delivery
from orchestrator.coordinator.pending_commit import PendingCommit, build_commit, internal_error
from orchestrator.coordinator.rejections import Rejections

logger = logging.getLogger(__name__)

MAX_LOADED_BYTES = 1_000_000
"""After this much, a turn loads no further executions. It is about 7,000 steps."""


class Decider:
    def __init__(
        self,
        backend: Backend,
        rejections: Rejections,
        jobs_per_commit: int,
        moment: Callable[[Delivery], Moment],
    ) -> None:
        self._backend, self._rejections = backend, rejections
        self._jobs_per_commit, self._moment = jobs_per_commit, moment

    def decide_all(
        self, grouped: dict[str, list[Delivery]], turn: Turn
    ) -> tuple[list[PendingCommit], list[Delivery]]:
        """Load the executions together, and decide on the events of each. When the turn is over, the events
        that remain are returned for the next one."""
        decided: list[PendingCommit] = []
        later: list[Delivery] = []
        records = self._backend.checkout_many(list(grouped), MAX_LOADED_BYTES)
        for workflow_execution_id, deliveries in grouped.items():
            record = records.get(workflow_execution_id)
            if record is None or turn.is_over():
                later += deliveries
                if isinstance(record, WorkflowRecord):
                    self._backend.check_in(record)
            elif isinstance(record, WorkflowRecord):
                pending = self._decide(record, deliveries, turn)
                decided.append(pending)
                later += deliveries[len(pending.deliveries) :]
            else:
                self._reject(record, deliveries)
        return decided, later

    def _reject(self, error: StoreError, deliveries: list[Delivery]) -> None:
        """Reject the events of an execution that does not exist or cannot be loaded."""
        is_missing = isinstance(error, RecordNotFound)
        reject = self._rejections.reject_missing if is_missing else self._rejections.dead_letter
        for delivery in deliveries:
            reject(delivery, str(error))

    def _decide(self, record: WorkflowRecord, deliveries: list[Delivery], turn: Turn) -> PendingCommit:
        # The latest time of all: streams are read one after the other, and a timer must not seem early.
        moment = self._moment(max(deliveries, key=lambda delivery: delivery.at_ms))
        events = cast("list[StepEvent]", [delivery.event for delivery in deliveries])
        try:
            decided = decide(record, events, moment, self._jobs_per_commit, turn)
        except Exception as error:
            # A defect of ours, or a damaged record. It must not stop other executions, and must be visible.
            logger.exception("cannot decide", extra={"execution": record.workflow_execution_id})
            return self._decide_to_fail(record, deliveries, internal_error(error))
        deliveries, rejected = deliveries[: decided.applied], dict(decided.rejected)
        accepted = [delivery for position, delivery in enumerate(deliveries) if position not in rejected]
        replies = {
            name: reply
            for position, reply in decided.replies.items()
            if (name := deliveries[position].reply_to) is not None
        }
        return PendingCommit(
            build_commit(record, decided.changes, accepted, replies),
            deliveries,
            [(deliveries[position], reason) for position, reason in rejected.items()],
        )

    def _decide_to_fail(
        self, record: WorkflowRecord, deliveries: list[Delivery], reason: str
    ) -> PendingCommit:
        """Fail an execution that cannot be decided on. If even that raises an error, reject its events."""
        try:
            changes = fail_workflow(record, make_failure("internal", reason), self._moment(deliveries[-1]))
        except Exception:
            logger.exception(
                "could not mark the execution failed", extra={"execution": record.workflow_execution_id}
            )
            no_change = Commit(record, Changes(deliveries[-1].at_ms))
            return PendingCommit(no_change, deliveries, [(delivery, reason) for delivery in deliveries])
        return PendingCommit(build_commit(record, changes, deliveries), deliveries)
