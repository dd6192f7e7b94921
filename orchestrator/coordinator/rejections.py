"""Refusals: events that lead to no commit, each acknowledged with a reason for whoever looks for one."""

from __future__ import annotations

import logging
from typing import Any

from orchestrator.application.records.events import ControlEvent, SignalEvent
from orchestrator.backend.ports import Delivery, EventLog
from orchestrator.coordinator.pending_commit import log_fields, rejection_text

logger = logging.getLogger(__name__)


class Rejections:
    def __init__(self, log: EventLog) -> None:
        self._log = log

    def reject_missing(self, delivery: Delivery, reason: str) -> None:
        """An execution is not there. One that was found by its short id a moment ago was forgotten: Redis was
        put back, its start comes again, and what is said to it is kept until then."""
        event = delivery.event
        if isinstance(event, SignalEvent) and "#" not in event.workflow_execution_id:
            self._log.keep_early_signal(delivery)
        else:
            self.refuse(delivery, reason)

    def refuse(self, delivery: Delivery, reason: str) -> None:
        """What cannot be done; a parent that cancels its child does not mind whether it could be, and whoever
        waits for an answer has it: nobody else need look into it."""
        if isinstance(delivery.event, ControlEvent) and delivery.event.is_from_parent:
            self._log.drop(delivery)
        elif delivery.reply is not None:
            logger.info("refused: %s", reason[:500], extra=log_fields(delivery))
            self._log.answer(delivery, {"ok": False, "reason": reason})
        else:
            self.reject(delivery, reason)

    def reject(self, delivery: Delivery, reason: str, answer: dict[str, Any] | None = None) -> None:
        words = rejection_text(reason, answer or {})
        logger.warning("rejected from %s: %s", delivery.ref.stream, words[:500], extra=log_fields(delivery))
        self._log.reject(delivery, reason, answer)
