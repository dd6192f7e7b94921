"""PendingCommit: a decision of the coordinator that is not written yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import ControlEvent, SignalEvent, SlotEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.application.values.trace_context import context_of_attempt, context_of_execution
from orchestrator.backend.ports import Commit, Committed, Delivery
from orchestrator.logs import failure_logger

logger = logging.getLogger(__name__)

MAX_LOGGED_ID_CHARS = 300


def log_fields(delivery: Delivery) -> dict[str, str | int]:
    """The fields of a log line about an event: its entry id, and the execution and step that it names."""
    fields, found = delivery.fields, dict[str, str | int](event=delivery.sent_as.entry_id)
    if execution := fields.get("execution") or fields.get("execution_id"):
        found["execution"] = execution[:MAX_LOGGED_ID_CHARS]
    if step := fields.get("step"):
        found["step"] = step[:MAX_LOGGED_ID_CHARS]
    numbers = {name: fields[name] for name in ("run_id", "attempt") if name in fields}
    return found | {name: int(text) for name, text in numbers.items() if text.isdecimal() and len(text) < 16}


def rejection_text(reason: str, reply: Mapping[str, Any]) -> str:
    """The reason of a rejection without values, for the log. The messages of problems quote values, so their
    paths and codes are used instead."""
    return ", ".join(f"{one['path']} [{one['code']}]" for one in reply.get("problems", ())) or reason


def internal_error(error: Exception) -> str:
    """The reason of a rejection or failure that a defect of ours, or damaged data, has caused."""
    return f"internal error: {type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit, and the deliveries that it was decided on.

    Events in `rejected` are rejected only after the commit is written: then they were checked against the
    record as it is, and not against a stale copy. `conflicts` counts how often a creation found its
    execution id taken.
    """

    commit: Commit
    deliveries: list[Delivery]
    rejected: Sequence[tuple[Delivery, str]] = ()
    conflicts: int = 0

    @property
    def execution(self) -> str:
        return self.commit.record.workflow_execution_id

    def log(self) -> None:
        """Log what was committed, without values: an INFO line, a WARNING for each step that has failed, and
        a DEBUG line per step transition."""
        changes, record = self.commit.changes, self.commit.record
        subject = {"execution": self.execution, "event": self.deliveries[-1].sent_as.entry_id}
        for entry in changes.history:
            if entry.get("to") == StepStatus.FAILED:
                _log_failure(entry, subject, record.traceparent)
        if not logger.isEnabledFor(logging.INFO):
            return
        span = context_of_execution(self.execution, record.traceparent)
        subject |= {"trace_id": span.trace_id, "span_id": span.span_id}
        status = {"status": str(changes.fields["status"])} if "status" in changes.fields else {}
        logger.info(
            "%d events, %d steps changed, %d jobs",
            len(self.deliveries) - len(self.rejected),
            len(changes.steps),
            len(changes.jobs),
            extra={**subject, **status},
        )
        if logger.isEnabledFor(logging.DEBUG):
            for entry in changes.history:
                if "step" in entry and "to" in entry:
                    step = {name: entry[name] for name in ("step", "run_id", "attempt")}
                    logger.debug("%s -> %s", entry["from"], entry["to"], extra={**subject, **step})


def _log_failure(entry: Mapping[str, Any], subject: Mapping[str, str], traceparent: str | None) -> None:
    step = {name: entry[name] for name in ("step", "run_id", "attempt")}
    span = context_of_attempt(subject["execution"], *step.values(), traceparent)
    ids = {"trace_id": span.trace_id, "span_id": span.span_id}
    kind = entry.get("error", {}).get("kind", "unknown")
    failure_logger.warning("step failed", extra={**subject, **step, **ids, "kind": kind})


@dataclass(slots=True)
class Retries:
    """What a round of commits did not write.

    `conflicts` are events to decide again on the changed record, by execution. `creations` were not written,
    with a result after which they are tried again. `separate` are events to handle one by one, because
    another coordinator has already handled one of the events that they shared a commit with.
    """

    conflicts: dict[str, list[Delivery]] = field(default_factory=dict)
    creations: list[tuple[PendingCommit, Committed]] = field(default_factory=list)
    separate: list[Delivery] = field(default_factory=list)


def build_commit(
    record: WorkflowRecord,
    changes: Changes,
    deliveries: Sequence[Delivery],
    replies: Mapping[str, dict[str, Any]] | None = None,
) -> Commit:
    """A commit that acknowledges these events.

    Results are fenced by their tokens. A signal or a control must still be pending: it would count twice if
    two coordinators held it. A slot event must be too: after a rollback of Redis the slot may have another
    holder, and only a Redis that still has the event has granted it.
    """
    pending_refs = [
        one.ref for one in deliveries if isinstance(one.event, SignalEvent | ControlEvent | SlotEvent)
    ]
    events = [delivery.ref for delivery in deliveries]
    return Commit(record, changes, events=events, pending_refs=pending_refs, replies=dict(replies or {}))
