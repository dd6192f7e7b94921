"""The stage: the system in one process, with a clock that is told the time and processes that can die.

    jobs -> a worker performs them -> what they bring -> a coordinator decides and commits -> jobs

What is decided and written is decided and written by the same functions as everywhere. Here is only what the
world around them does: when a job is run, when its result arrives, what time it is, and who dies.
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
from orchestrator.application.spec.model import WEBHOOK_UNIT
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
"""How many of the results come twice, when they are shuffled."""

_T = TypeVar("_T")


class KillableStore(InMemoryStore):
    """A store whose writers can die. As on Redis, the jobs of a decision are part of its commit.

    `open` are the executions that have not ended, or still tell of their end, `superseded` the dispatches
    that nobody waits for any more, `counters` what was stale, late or lost.
    """

    def __init__(self, nonce: Callable[[], str], kills: KillPlan, runner: InProcessRunner) -> None:
        super().__init__(nonce)
        self.open: dict[str, None] = {}
        self.superseded: set[str] = set()
        self.counters: Counter[str] = Counter()
        self._kills, self._runner = kills, runner

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        if self._kills.trigger("coordinator.commit", _settled(commits)):
            raise CoordinatorKilled(is_committed=False)
        results = super().commit(commits)
        written = [one for one, result in zip(commits, results, strict=True) if result is Committed.YES]
        for commit in written:
            self._note(commit)
        if self._kills.trigger("coordinator.dispatch", _dispatched(written)):
            for commit in written:
                self._runner.dispatch(commit.record.workflow_execution_id, commit.changes.jobs)
            raise CoordinatorKilled(is_committed=True)
        return results

    def _note(self, commit: Commit) -> None:
        weid, status = commit.record.workflow_execution_id, commit.changes.fields.get("status")
        if commit.creates:
            self.open[weid] = None
        webhook = commit.changes.items.get(WEBHOOK_UNIT)
        if webhook is not None and not webhook.is_final:
            self.open[weid] = None
        elif webhook is not None or status in FINAL_WORKFLOW_STATUSES:
            self.open.pop(weid, None)
        self.counters.update(commit.changes.counted)
        self.superseded.update(record.token for _, record in commit.changes.revoked if record.token)


def _settled(commits: Sequence[Commit]) -> list[str]:
    return [unit for commit in commits for unit, _ in commit.changes.finished_dispatches]


def _dispatched(commits: Sequence[Commit]) -> list[str]:
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
        self._news: list[ArrivingEvent] = []
        self._under_way: list[tuple[int, int, DispatchJob, ArrivingEvent]] = []
        self._numbers, self._calls = count(1), 0

    # ---- time

    def reset_call_count(self) -> None:
        """The calls of executors are counted anew."""
        self._calls = 0

    def run_until_idle(self) -> None:
        """Everything happens that can happen now."""
        while self._turn():
            pass

    def advance_clock(self, until_ms: int) -> None:
        """What becomes due until then happens, in order, each at its own time."""
        self.run_until_idle()
        while (due_ms := self.next_due_ms()) is not None and due_ms <= until_ms:
            self.clock.at_ms = due_ms
            self.run_until_idle()
        self.clock.at_ms = until_ms

    def next_due_ms(self, kinds: Sequence[str] = ("deadline", "retry", "wake", "timeout")) -> int | None:
        """When something happens by the clock: a timer of one of these kinds, or a result."""
        due = [*self.result_due_ms.values(), *(one.due_ms for one in self._timers() if one.kind in kinds)]
        return min((one for one in due if one > self.clock.at_ms), default=None)

    @property
    def result_due_ms(self) -> dict[str, int]:
        """By token, when the results of those come who are at work."""
        return {
            job.token: due_ms
            for due_ms, _, job, _ in self._under_way
            if job.token not in self.store.superseded
        }

    def _timers(self) -> list[Timer]:
        records = (self.backend.load(weid) for weid in self.store.open)
        return [timer for record in records for timer in find_due_timers(record, END_OF_TIME_MS)]

    # ---- one turn

    def run_despite_kills(self, act: Callable[[], _T]) -> _T | None:
        """Do what a coordinator does; when it dies, the next one finds what is written, and goes on. None: it
        died after its commit."""
        while True:
            try:
                return act()
            except CoordinatorKilled as killed:
                self.backend.drop_cached_records()
                if killed.is_committed:
                    return None

    def _turn(self) -> bool:
        """Jobs and what they brought; when there is nothing of that left, what is due. False when nothing
        happened."""
        self._publish()
        happened = bool(self._jobs or self._news)
        if not happened:
            happened = self.run_despite_kills(self._move) is not False
        elif self._order == "shuffled":
            self._play_one()
        else:
            self._play_all()
        self._jobs.extend(self._runner.take_pending_jobs())
        return happened or bool(self._jobs)

    def _move(self) -> bool:
        """Deliver what executions say to each other, and give all of them what is due; False when nothing
        happened by that."""
        driver = ExecutionDriver(self.backend, *self.store.open)
        driver.children.update(self.store.open)
        return driver.run_once() > 0 or bool(self.backend.shared_state.posts())

    def _play_all(self) -> None:
        """All jobs in the order of their dispatch, then all that they brought, for each execution at once."""
        while self._jobs:
            self._perform(self._jobs[0])
            self._jobs.popleft()
        news, self._news = self._news, []
        for weid in dict.fromkeys(one.workflow_execution_id for one in news):
            self._tell(weid, [one for one in news if one.workflow_execution_id == weid])

    def _play_one(self) -> None:
        """One job, or one piece of news, whichever it may be; some results come twice."""
        chosen = self._random.randrange(len(self._jobs) + len(self._news))
        if chosen < len(self._jobs):
            before = len(self._news)
            self._perform(self._jobs[chosen])
            del self._jobs[chosen]
            brought = self._news[before:]
            self._news += [one for one in brought if self._random.random() < DUPLICATE_PROBABILITY]
        else:
            one = self._news.pop(chosen - len(self._jobs))
            self._tell(one.workflow_execution_id, [one])

    def _tell(self, weid: str, news: Sequence[ArrivingEvent]) -> None:
        driver = ExecutionDriver(self.backend, *self.store.open)
        self.run_despite_kills(lambda: driver.decide(weid, lambda _: news))
        self.run_despite_kills(driver.deliver_events)

    # ---- the worker

    def _perform(self, job: DispatchJob) -> None:
        if job.token in self.store.superseded:
            return
        if self.kills.trigger("worker.start", [job.step_id]):
            self._news.append(_lost(job))
            return
        self._count(job)
        takes_ms, result = self.call_router.call_executor(job, self.clock, self.backend.payloads)
        news = _lost(job) if self.kills.trigger("worker.result", [job.step_id]) else result
        if not takes_ms:
            self._news.append(news)
            return
        self._news.append(_started(job, result))
        heappush(self._under_way, (self.clock() + takes_ms, next(self._numbers), job, news))

    def _publish(self) -> None:
        """What is done by now. Who was superseded meanwhile publishes nothing."""
        while self._under_way and self._under_way[0][0] <= self.clock():
            _, _, job, news = heappop(self._under_way)
            if job.token not in self.store.superseded:
                self._news.append(news)

    def _count(self, job: DispatchJob) -> None:
        self._calls += 1
        if self._calls > self._max_calls:
            told = f"no end after {self._max_calls:,} calls of executors, and step {job.step_id} is next"
            raise CallLimitReached(
                f"{told}; if that is as it should be, allow more: rehearse(..., max_calls=...)"
            )


def _lost(job: DispatchJob) -> LostEvent:
    reason = "its worker was killed"
    return LostEvent(job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token, reason)


def _started(job: DispatchJob, result: ResultEvent) -> StartedEvent:
    weid, started_at = job.workflow_execution_id, result.started_at
    return StartedEvent(weid, job.step_id, job.run_id, job.attempt, job.token, WORKER_NAME, started_at)
