"""Cases: what a coordinator has decided upon events and not committed yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.application.changes import Changes
from orchestrator.application.events import ControlEvent, SignalEvent
from orchestrator.application.record import WorkflowRecord
from orchestrator.backend.ports import Commit, Delivery

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Case:
    """A commit, and the deliveries it was decided upon. Those that are `refused` are so only when it is
    written: then they were judged upon the record as it is, and not as somebody remembered it. `conflicts` is
    how often a creation has met its id taken."""

    commit: Commit
    deliveries: list[Delivery]
    refused: Sequence[tuple[Delivery, str]] = ()
    conflicts: int = 0

    @property
    def execution(self) -> str:
        return self.commit.record.workflow_execution_id

    def log(self) -> None:
        changes = self.commit.changes
        logger.info(
            "%s: %d events, %d steps changed, %d jobs%s",
            self.execution,
            len(self.deliveries) - len(self.refused),
            len(changes.steps),
            len(changes.jobs),
            f", {changes.fields['status']}" if "status" in changes.fields else "",
        )


def commit_of(
    record: WorkflowRecord,
    changes: Changes,
    deliveries: Sequence[Delivery],
    answers: Mapping[str, dict[str, Any]] | None = None,
) -> Commit:
    """Results are fenced by their tokens; a signal would count twice if two coordinators held it, and so
    would the word of an operator."""
    once = [one.ref for one in deliveries if isinstance(one.event, SignalEvent | ControlEvent)]
    events = [delivery.ref for delivery in deliveries]
    return Commit(record, changes, events=events, once=once, answers=dict(answers or {}))
