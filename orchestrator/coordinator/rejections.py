"""Rejections: events that lead to no commit. Each is acknowledged, with a reply or a dead letter."""

from __future__ import annotations

import logging
from typing import Any

from orchestrator.application.records.events import ControlEvent, SignalEvent
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.backend.ports import Delivery, EventLog
from orchestrator.coordinator.pending_commit import log_fields, rejection_text

logger = logging.getLogger(__name__)

MAX_LOGGED_REASON_CHARS = 500


class Rejections:
    def __init__(self, log: EventLog) -> None:
        self._log = log

    def reject_missing(self, delivery: Delivery, reason: str) -> None:
        """Reject an event of an execution that does not exist.

        A signal by the short id is kept instead: the execution existed a moment ago, so Redis was rolled
        back, and its start is delivered again.
        """
        event = delivery.event
        if isinstance(event, SignalEvent) and "#" not in event.workflow_execution_id:
            self._log.keep_early_signal(delivery)
        else:
            self.reply_or_reject(delivery, reason)

    def reply_or_reject(self, delivery: Delivery, reason: str) -> None:
        """Reject an event: its sender gets a reply if it waits for one, else the event becomes a dead letter.
        A parent that cancels its child does not need to know whether that was possible: a child that does not
        exist yet will not be created, because its parent no longer waits for it."""
        if isinstance(delivery.event, ControlEvent) and delivery.event.is_from_parent:
            self._log.drop(delivery)
        elif delivery.reply_to is not None:
            logger.info("rejected: %s", reason[:MAX_LOGGED_REASON_CHARS], extra=log_fields(delivery))
            self._log.reply(delivery, {"ok": False, "reason": reason})
        else:
            self.dead_letter(delivery, reason)

    def dead_letter(
        self,
        delivery: Delivery,
        reason: str,
        reply: dict[str, Any] | None = None,
        kind: RejectionKind = RejectionKind.OTHER,
    ) -> None:
        """Move an event to the dead letters."""
        text = rejection_text(reason, reply or {})[:MAX_LOGGED_REASON_CHARS]
        logger.warning("rejected from %s: %s", delivery.ref.stream, text, extra=log_fields(delivery))
        self._log.reject(delivery, reason, reply, kind)
