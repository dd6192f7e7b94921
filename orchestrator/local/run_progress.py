"""RunProgress: decides upon the execution of a run and upon its children, and dispatches their jobs.

Every method is called under the lock of the run loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from orchestrator.application.records.decisions import (
    Cancelled,
    Complete,
    Decision,
    Dispatch,
    Failed,
    Halt,
    Pending,
)
from orchestrator.application.records.events import ResultEvent, StepEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.backend import Backend
from orchestrator.backend.results import as_results
from orchestrator.local.driver import DecideFunction, EventsOfRecord, ExecutionDriver, due_timer_events

FINAL = (Complete, Halt, Failed, Cancelled)


class RunProgress:
    """`decision` is the last one upon the execution. `finished` are the executions whose results came in here
    and are not applied yet. `applied_at` is when results were applied last, and `poll_at` when another
    process may have written something."""

    def __init__(
        self,
        backend: Backend,
        weid: str,
        driver: ExecutionDriver,
        decider: Callable[[EventsOfRecord], DecideFunction[Decision]],
    ) -> None:
        """`decider` makes the function that applies events to the record of the execution and advances it."""
        self._backend, self._weid, self._driver, self._decider = backend, weid, driver, decider
        self.decision: Decision = Pending()
        self._is_final = False
        self.finished: dict[str, None] = {}
        self.applied_at = 0.0
        self.poll_at = float("inf")

    @property
    def has_ended(self) -> bool:
        return self._is_final and not self._driver.children

    def apply_all(self) -> bool:
        """Apply the results, timers and events of all driven executions; False if there were none."""
        self._note_applied()
        results = self._backend.results(self._weid)
        handled = self._driver.run_once()
        self._apply_results(results)
        return bool(handled or results)

    def apply_finished(self) -> None:
        """Apply the results that came in here, and what follows from them for other executions."""
        finished = list(self.finished)
        self._note_applied()
        for weid in finished:
            if weid == self._weid:
                self._apply_results(self._backend.results(weid))
            elif self._driver.drives(weid):
                self._driver.advance(weid)
        self.deliver_events()

    def _note_applied(self) -> None:
        self.finished.clear()
        self.applied_at = time.monotonic()
        self.poll_at = self.applied_at + self._backend.poll_interval

    def deliver_events(self) -> None:
        while self._driver.deliver_events():
            self._apply_results([])

    def _apply_results(self, results: Sequence[ResultEvent]) -> None:
        self.advance(partial(self._with_due, results))
        if results and self._backend.leased_runner is not None:
            self._backend.acknowledge(results)

    def _with_due(self, results: Sequence[StepEvent], record: WorkflowRecord) -> Sequence[StepEvent]:
        due = due_timer_events(record, self._backend.clock)
        return [*results, *due] if due else results

    def advance(self, events_for: EventsOfRecord) -> None:
        """Decide upon the execution, and dispatch its jobs."""
        while True:
            decision = self._driver.commit(self._weid, self._decider(events_for))
            if not isinstance(decision, Dispatch):
                break
            pairs = self._backend.dispatch(self._weid, decision.jobs)
            if not pairs:
                break
            events_for = partial(self._with_due, as_results(self._weid, pairs))
        assert decision is not None, "without an event to acknowledge, a commit is not obsolete"
        self.decision, self._is_final = decision, isinstance(decision, FINAL)
