"""SimulatedSystem: coordinator and worker in one process, with a simulated clock and simulated crashes.

    jobs -> a worker runs them -> results -> a coordinator decides and commits -> jobs

The functions that decide and write are those of production. This module only simulates what surrounds them:
when a job runs, when its result arrives, what time it is, and which process is killed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Literal, TypeVar

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import LostEvent, ResultEvent, StartedEvent
from orchestrator.application.records.record import find_due_timers
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.application.records.timers import Timer
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.backend import Backend
from orchestrator.backend.memory import InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Commit, Committed
from orchestrator.local.driver import ExecutionDriver
from orchestrator.testing.clock import Clock
from orchestrator.testing.errors import CallLimitReached
from orchestrator.testing.kill_points import CoordinatorKilled, KillPlan
from orchestrator.testing.mocks import WORKER_NAME, CallRouter

ResultOrder = Literal["dispatched", "shuffled"]
ArrivingEvent = ResultEvent | StartedEvent | LostEvent

END_OF_TIME_MS = 2**62
DUPLICATE_PROBABILITY = 0.25
"""The share of results that are delivered twice when they are shuffled."""

_T = TypeVar("_T")


class KillableStore(InMemoryStore):
    """A store whose writer can be killed. As on Redis, the jobs of a decision are part of its commit.

    `open` are the executions that have not ended, or whose webhook is not delivered yet. `superseded` are the
    tokens of dispatches whose result is no longer needed. `counters` count stale, late and lost results.
    """

    def __init__(self, nonce: Callable[[], str], kills: KillPlan, runner: InProcessRunner) -> None:
        super().__init__(nonce)
        self.open: dict[str, None] = {}
        self.superseded: set[str] = set()
        self.counters: Counter[str] = Counter()
        self._kills, self._runner = kills, runner

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        if self._kills.trigger("coordinator.commit", _finished_units(commits)):
            raise CoordinatorKilled(is_committed=False)
        results = super().commit(commits)
        written = [one for one, result in zip(commits, results, strict=True) if result is Committed.YES]
        for commit in written:
            self._track(commit)
        if self._kills.trigger("coordinator.dispatch", _dispatched_units(written)):
            for commit in written:
                self._runner.dispatch(commit.record.workflow_execution_id, commit.changes.jobs)
            raise CoordinatorKilled(is_committed=True)
        return results

    def _track(self, commit: Commit) -> None:
        """Update `open`, `superseded` and `counters`."""
        weid, status = commit.record.workflow_execution_id, commit.changes.fields.get("status")
        if commit.creates:
            self.open[weid] = None
        webhook = commit.changes.items.get(WEBHOOK_UNIT)
        if webhook is not None and not webhook.is_final:
            self.open[weid] = None
        elif webhook is not None or status in FINAL_WORKFLOW_STATUSES:
            self.open.pop(weid, None)
        self.counters.update(commit.changes.counter_increments)
        self.superseded.update(record.token for _, record in commit.changes.revoked if record.token)


def _finished_units(commits: Sequence[Commit]) -> list[str]:
    return [unit for commit in commits for unit, _ in commit.changes.finished_dispatches]


def _dispatched_units(commits: Sequence[Commit]) -> list[str]:
    return [job.step_id for commit in commits for job in commit.changes.jobs]


class SimulatedSystem:
    def __init__(
        self, call_router: CallRouter, starts_ms: int, order: ResultOrder, seed: int, max_calls: int
    ) -> None:
        self.call_router, self.kills, self.clock = call_router, KillPlan(), Clock(starts_ms)
        self._order, self._random, self._max_calls = order, Random(seed), max_calls
        numbers = count(1)
        self._runner = InProcessRunner()
        self.store = KillableStore(lambda: f"{next(numbers):x}", self.kills, self._runner)
        self.backend = Backend(
            store=self.store, runner=self._runner, clock=self.clock, nonce=lambda: f"{next(numbers):x}"
        )
        self._jobs: deque[DispatchJob] = deque()
        self._arriving: list[ArrivingEvent] = []
        self._running: list[tuple[int, int, DispatchJob, ArrivingEvent]] = []
        self._numbers, self._calls = count(1), 0

    # ---- time

    def reset_call_count(self) -> None:
        """Start to count the calls of executors again."""
        self._calls = 0

    def run_until_idle(self) -> None:
        """Do everything that can be done at the current time."""
        while self._run_once():
            pass

    def advance_clock(self, until_ms: int) -> None:
        """Advance the clock and do what becomes due, in order, each at its own time."""
        self.run_until_idle()
        while (due_ms := self.next_due_ms()) is not None and due_ms <= until_ms:
            self.clock.at_ms = due_ms
            self.run_until_idle()
        self.clock.at_ms = until_ms

    def next_due_ms(self, kinds: Sequence[str] = ("deadline", "retry", "wake", "timeout")) -> int | None:
        """The time of the next timer of one of these kinds, or of the next result; None if there is none."""
        due = [*self.result_due_ms.values(), *(one.due_ms for one in self._timers() if one.kind in kinds)]
        return min((one for one in due if one > self.clock.at_ms), default=None)

    @property
    def result_due_ms(self) -> dict[str, int]:
        """The times at which the results of running jobs arrive, by token."""
        return {
            job.token: due_ms for due_ms, _, job, _ in self._running if job.token not in self.store.superseded
        }

    def _timers(self) -> list[Timer]:
        records = (self.backend.load(weid) for weid in self.store.open)
        return [timer for record in records for timer in find_due_timers(record, END_OF_TIME_MS)]

    # ---- one round

    def run_despite_kills(self, act: Callable[[], _T]) -> _T | None:
        """Do the work of a coordinator. If it is killed, the next one continues with the stored records. None
        if it was killed after its commit."""
        while True:
            try:
                return act()
            except CoordinatorKilled as killed:
                self.backend.drop_cached_records()
                if killed.is_committed:
                    return None

    def _run_once(self) -> bool:
        """Handle jobs and their results or, if there are none, due timers. False when nothing was due."""
        self._publish_finished()
        is_busy = bool(self._jobs or self._arriving)
        if not is_busy:
            is_busy = self.run_despite_kills(self._advance_all) is not False
        elif self._order == "shuffled":
            self._handle_one()
        else:
            self._handle_all()
        self._jobs.extend(self._runner.take_pending_jobs())
        return is_busy or bool(self._jobs)

    def _advance_all(self) -> bool:
        """Deliver the events between executions, and the due timers of all; False when there were none."""
        driver = ExecutionDriver(self.backend, *self.store.open)
        driver.children.update(self.store.open)
        return driver.run_once() > 0 or bool(self.backend.shared_state.outgoing_events())

    def _handle_all(self) -> None:
        """Run all jobs in the order of their dispatch, then apply all results of each execution."""
        while self._jobs:
            self._run_job(self._jobs[0])
            self._jobs.popleft()
        events, self._arriving = self._arriving, []
        for weid in dict.fromkeys(one.workflow_execution_id for one in events):
            self._apply(weid, [one for one in events if one.workflow_execution_id == weid])

    def _handle_one(self) -> None:
        """Run one job or apply one event, chosen at random; some results are delivered twice."""
        chosen = self._random.randrange(len(self._jobs) + len(self._arriving))
        if chosen < len(self._jobs):
            before = len(self._arriving)
            self._run_job(self._jobs[chosen])
            del self._jobs[chosen]
            new = self._arriving[before:]
            self._arriving += [one for one in new if self._random.random() < DUPLICATE_PROBABILITY]
        else:
            one = self._arriving.pop(chosen - len(self._jobs))
            self._apply(one.workflow_execution_id, [one])

    def _apply(self, weid: str, events: Sequence[ArrivingEvent]) -> None:
        driver = ExecutionDriver(self.backend, *self.store.open)
        self.run_despite_kills(lambda: driver.decide(weid, lambda _: events))
        self.run_despite_kills(driver.deliver_events)

    # ---- the worker

    def _run_job(self, job: DispatchJob) -> None:
        if job.token in self.store.superseded:
            return
        if self.kills.trigger("worker.start", [job.step_id]):
            self._arriving.append(_lost(job))
            return
        self._count_call(job)
        takes_ms, result = self.call_router.call_executor(job, self.clock, self.backend.payloads)
        event = _lost(job) if self.kills.trigger("worker.result", [job.step_id]) else result
        if not takes_ms:
            self._arriving.append(event)
            return
        self._arriving.append(_started(job, result))
        heappush(self._running, (self.clock() + takes_ms, next(self._numbers), job, event))

    def _publish_finished(self) -> None:
        """Publish the results that are due. A superseded job publishes nothing."""
        while self._running and self._running[0][0] <= self.clock():
            _, _, job, event = heappop(self._running)
            if job.token not in self.store.superseded:
                self._arriving.append(event)

    def _count_call(self, job: DispatchJob) -> None:
        self._calls += 1
        if self._calls > self._max_calls:
            raise CallLimitReached(
                f"the workflow did not end after {self._max_calls:,} calls of executors; the next step is"
                f" {job.step_id}. If it needs more calls, raise the limit: workflow_test(..., max_calls=...)"
            )


def _lost(job: DispatchJob) -> LostEvent:
    reason = "its worker was killed"
    return LostEvent(job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token, reason)


def _started(job: DispatchJob, result: ResultEvent) -> StartedEvent:
    weid, started_at = job.workflow_execution_id, result.started_at
    return StartedEvent(weid, job.step_id, job.run_id, job.attempt, job.token, WORKER_NAME, started_at)
