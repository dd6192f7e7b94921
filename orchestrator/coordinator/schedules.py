"""Schedules as a coordinator serves them: look, decide, commit, as often as somebody says that there is
something to see.

    a slot comes: timer ─▸ event ─┐
    an execution ends ────▸ event ─┼─▸ look ▸ fire ▸ commit (schedule, timer, starts, acknowledgement)
    a start is refused ───▸ event ─┘

An event is a hint and nothing more: what is done follows from the schedule, the clock and the executions
that are open. So it may come twice, late or for nothing. A commit is written whole, and only if its event is
still pending and nobody has changed the schedule: a slot is never started twice, by however many
coordinators, and one that was not handled is found by whoever looks next.
"""

from __future__ import annotations

import logging
from typing import cast

from orchestrator.application.engine.schedules import fire, wake_ms
from orchestrator.application.errors import Unavailable
from orchestrator.application.records.events import ScheduleEvent
from orchestrator.backend.ports import Committed, Delivery, EventLog, ScheduleStore

logger = logging.getLogger(__name__)

MAX_CONFLICTS = 20


class Schedules:
    def __init__(self, store: ScheduleStore, log: EventLog) -> None:
        self._store, self._log = store, log

    def handle(self, delivery: Delivery) -> None:
        """Do what a schedule has to do by now."""
        try:
            self._handle(delivery, cast("ScheduleEvent", delivery.event).name)
        except Unavailable:
            raise
        except Exception as error:
            logger.exception("cannot look at a schedule: %s", delivery.fields)
            self._log.reject(delivery, f"internal error: {type(error).__name__}: {error}")

    def _handle(self, delivery: Delivery, name: str) -> None:
        for _ in range(MAX_CONFLICTS):
            kept = self._store.find(name)
            if kept is None:
                self._log.drop(delivery)  # it was removed while one of its executions was open
                return
            # An event that was raised in time and handled late is in time; none is ahead of the clock.
            before, now_ms = kept.schedule, min(delivery.at_ms, kept.now_ms)
            after, starts = fire(before, now_ms, self._store.find_open(before.open))
            due_ms = wake_ms(after, now_ms)
            result = self._store.commit(kept, after, starts, due_ms, delivery.ref)
            if result is not Committed.CONFLICT:
                logger.info("schedule %s: %s", name, ", ".join(starts) or "nothing to start")
                return
        logger.warning("the schedule %r kept changing under us", name)  # whoever reclaims it begins afresh
