"""Declined attempts: the worker that took an attempt does not have its executor.

    on_declined    the attempt waits, and is dispatched again: same attempt, new token
    on_available   a worker with the executor has started: dispatch the attempt now

The step did not fail, since another worker may have the executor. So a decline uses neither an attempt nor
`limits.max_lost`, and the step stays in progress. While it waits it has no dispatch and no concurrency slot:
other steps pass it. The wait doubles with each worker in a row that declines. It follows from the count in
the record, so it is the same after a restart.
"""

from __future__ import annotations

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.results import return_item
from orchestrator.application.records.decisions import Pending
from orchestrator.application.records.events import AvailableEvent, DeclinedEvent
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import UnitId

FIRST_WAIT_MS = 100
MAX_WAIT_MS = 5_000
_MAX_DOUBLINGS = 6


def declined_wait_ms(count: int) -> int:
    """How long an attempt waits after `count` workers in a row have declined it."""
    return min(FIRST_WAIT_MS << min(count - 1, _MAX_DOUBLINGS), MAX_WAIT_MS)


def on_declined(draft: Draft, event: DeclinedEvent, record: StepRecord) -> Pending:
    """Let a declined attempt wait until it is dispatched again.

    Only the first decline in a row is in the history, and no dispatch after it: a step may wait for days, and
    would add two entries every few seconds.
    """
    unit, count = event.step_id, record.declined + 1
    draft.count("declined")
    draft.finish_dispatch(
        unit,
        declined=count,
        not_before_ms=draft.moment.at_ms + declined_wait_ms(count),
        reason=f"worker {event.worker or 'unknown'} has no executor {event.executor!r}",
        slot=None,
        worker=None,
        started_at=None,
        deadline_ms=None,
    )
    if count == 1:
        draft.move(unit, StepStatus.IN_PROGRESS)
    if UnitId(unit).is_item:
        return_item(draft, unit)
    return Pending()


def on_available(draft: Draft, event: AvailableEvent, record: StepRecord | None) -> None:
    """End the wait of a declined attempt. If it is already dispatched again, its next wait is short: a worker
    without the executor may still take it."""
    unit = event.step_id
    is_waiting = record is not None and record.status is StepStatus.IN_PROGRESS and record.declined > 0
    if not is_waiting or draft.spec(unit).fn != event.executor:
        draft.count("stale")
        return
    draft.amend(unit, declined=1, not_before_ms=None)
