"""Sends a control to all executions that match a filter, or that have the same failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

from orchestrator.application.records.events import ControlEvent
from orchestrator.client.controls import BulkResult, Controls
from orchestrator.redis_rq.queries.failures import Failures
from orchestrator.redis_rq.queries.listing import ExecutionFilter, Listing

BulkAction = Literal["cancel", "retry", "delete"]

MAX_BULK_EXECUTIONS = 100_000
"""A bulk control is sent to so many executions at most, the newest. Send it again for the rest."""


class BulkControls:
    def __init__(self, controls: Controls, listing: Listing, failures: Failures) -> None:
        self._controls, self._listing, self._failures = controls, listing, failures

    def select(
        self, action: BulkAction, wanted: ExecutionFilter, failure: str | None = None
    ) -> Iterator[str]:
        """Yield the full ids of the executions that send() would send to, page by page. Of a failure,
        `cancel` takes the executions that will try again, and the others those that failed."""
        return islice(self._select(action, wanted, failure), MAX_BULK_EXECUTIONS)

    def _select(self, action: BulkAction, wanted: ExecutionFilter, failure: str | None) -> Iterator[str]:
        if failure is not None:
            return self._failures.select(failure, wanted, is_retrying=action == "cancel")
        return (one.workflow_execution_id for one in self._listing.all(wanted))

    def send(
        self,
        action: BulkAction,
        wanted: ExecutionFilter,
        timeout_s: float,
        reason: str | None = None,
        by: str | None = None,
        failure: str | None = None,
    ) -> BulkResult:
        """Send a control to each selected execution. `timeout_s` is the limit for each next reply."""
        events = self.events(action, wanted, reason, by, failure)
        return self._controls.send_all_and_wait(events, timeout_s)

    def send_to(
        self,
        action: BulkAction,
        executions: Iterable[str],
        timeout_s: float,
        reason: str | None = None,
        by: str | None = None,
    ) -> BulkResult:
        """Send a control to each of these executions, by their full ids."""
        return self._controls.send_all_and_wait(make_events(action, executions, reason, by), timeout_s)

    def events(
        self,
        action: BulkAction,
        wanted: ExecutionFilter,
        reason: str | None = None,
        by: str | None = None,
        failure: str | None = None,
    ) -> Iterator[ControlEvent]:
        """Yield the control for each selected execution."""
        return make_events(action, self.select(action, wanted, failure), reason, by)


def make_events(
    action: BulkAction, executions: Iterable[str], reason: str | None = None, by: str | None = None
) -> Iterator[ControlEvent]:
    """Yield the control for each of these executions, by their full ids."""
    return (ControlEvent(weid, action, reason=reason, by=by) for weid in executions)
