"""Cases: what a coordinator has decided upon events and not committed yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import ControlEvent, SignalEvent, SlotEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.ports import Commit, Delivery

logger = logging.getLogger(__name__)

MAX_LOGGED_ID_CHARS = 300


def log_fields(delivery: Delivery) -> dict[str, str | int]:
    """What a line of the log says of an event: its entry, and of whom it speaks as far as it says so."""
    said, found = delivery.fields, dict[str, str | int](event=delivery.ref.entry_id)
    if execution := said.get("execution") or said.get("execution_id"):
        found["execution"] = execution[:MAX_LOGGED_ID_CHARS]
    if step := said.get("step"):
        found["step"] = step[:MAX_LOGGED_ID_CHARS]
    numbers = {name: said[name] for name in ("run_id", "attempt") if name in said}
    return found | {name: int(text) for name, text in numbers.items() if text.isdecimal() and len(text) < 16}


def rejection_text(reason: str, answer: Mapping[str, Any]) -> str:
    """Why something is refused, without values: problems by their places and codes, as their messages quote
    what stands there."""
    return ", ".join(f"{one['path']} [{one['code']}]" for one in answer.get("problems", ())) or reason


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit, and the deliveries it was decided upon. Those that are `refused` are so only when it is
    written: then they were judged upon the record as it is, and not as somebody remembered it. `conflicts` is
    how often a creation has met its id taken."""

    commit: Commit
    deliveries: list[Delivery]
    rejected: Sequence[tuple[Delivery, str]] = ()
    conflicts: int = 0

    @property
    def execution(self) -> str:
        return self.commit.record.workflow_execution_id

    def log(self) -> None:
        """A line for what was committed; who debugs gets one for each move of a step too, and nobody gets any
        values."""
        if not logger.isEnabledFor(logging.INFO):
            return
        changes = self.commit.changes
        whose = {"execution": self.execution, "event": self.deliveries[-1].ref.entry_id}
        status = {"status": str(changes.fields["status"])} if "status" in changes.fields else {}
        logger.info(
            "%d events, %d steps changed, %d jobs",
            len(self.deliveries) - len(self.rejected),
            len(changes.steps),
            len(changes.jobs),
            extra={**whose, **status},
        )
        if logger.isEnabledFor(logging.DEBUG):
            for move in changes.history:
                if "step" in move and "to" in move:
                    of_step = {name: move[name] for name in ("step", "run_id", "attempt")}
                    logger.debug("%s -> %s", move["from"], move["to"], extra={**whose, **of_step})


def build_commit(
    record: WorkflowRecord,
    changes: Changes,
    deliveries: Sequence[Delivery],
    replies: Mapping[str, dict[str, Any]] | None = None,
) -> Commit:
    """Results are fenced by their tokens; a signal would count twice if two coordinators held it, and so
    would the word of an operator. That a place was given is so only in a Redis that remembers having said it:
    one that was put back has perhaps another holder."""
    require_pending = [
        one.ref for one in deliveries if isinstance(one.event, SignalEvent | ControlEvent | SlotEvent)
    ]
    events = [delivery.ref for delivery in deliveries]
    return Commit(
        record, changes, events=events, require_pending=require_pending, replies=dict(replies or {})
    )
