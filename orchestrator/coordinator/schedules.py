"""Schedules: the coordinator loads a schedule, decides what to start, and commits that.

    a slot is due ──────▸ event ─┐
    an execution ends ──▸ event ─┼─▸ load ▸ fire ▸ commit (schedule, timer, starts, acknowledgement)
    a start is rejected ▸ event ─┘

An event is only a hint: what to start follows from the schedule, the clock and the open executions. So it may
arrive twice, late or without need. A commit is written whole, and only if its event is still pending and the
schedule has not changed. So a slot is never started twice, however many coordinators run, and a slot that was
not handled is found by the next event.
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
        """Start what a schedule has to start by now."""
        try:
            self._handle(delivery, cast("ScheduleEvent", delivery.event).name)
        except Unavailable:
            raise
        except Exception as error:
            logger.exception("cannot handle a schedule: %s", delivery.fields)
            self._log.reject(delivery, f"internal error: {type(error).__name__}: {error}")

    def _handle(self, delivery: Delivery, name: str) -> None:
        for _ in range(MAX_CONFLICTS):
            stored = self._store.find(name)
            if stored is None:
                self._log.drop(delivery)  # the schedule was removed while one of its executions was open
                return
            # An event that was published in time and handled late is in time; none is ahead of the clock.
            before, now_ms = stored.schedule, min(delivery.at_ms, stored.now_ms)
            after, starts = fire(before, now_ms, self._store.find_open(before.open))
            due_ms = wake_ms(after, now_ms)
            result = self._store.commit(stored, after, starts, due_ms, delivery.ref)
            if result is not Committed.CONFLICT:
                logger.info("schedule %s: %s", name, ", ".join(starts) or "nothing to start")
                return
        # Not acknowledged: the event is reclaimed, and handled again then.
        logger.warning("the schedule %r changed during every commit", name)
