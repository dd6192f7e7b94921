"""Cases played in memory: in order by Workflow.run(), or by chance."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

from language.cases import Case, Start
from language.play import Play, Said, shuffled
from orchestrator.application.engine.transitions import decide
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import (
    ContinueEvent,
    Control,
    LostEvent,
    SignalEvent,
    StepEvent,
    TimerEvent,
)
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.backend import Backend, InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Commit, Committed
from orchestrator.local.driver import ExecutionDriver
from orchestrator.local.workflow import Workflow
from worlds.documents import Json
from worlds.engine_checks import check_readiness
from worlds.records import NOW_MS


class MemoryPlay(Play):
    """One process after the other; each decision is committed as a coordinator would, with a limit on its
    jobs, and posts are delivered in any order, some of them twice."""

    def __init__(self, case: Case, draw: Random) -> None:
        super().__init__(case, draw, NOW_MS)
        self._store, self._runner = InMemoryStore(), DistantRunner()
        self._unfinished: set[str] = set()
        self._families: dict[str, ExecutionDriver] = {}
        self._begin_process()
        for name, document in case.registered.items():
            self._backend.register(name, document)

    def _begin_process(self) -> None:
        self._backend = Backend(store=self._store, runner=self._runner, clock=lambda: self.now_ms)
        self._families = {weid: ExecutionDriver(self._backend, weid) for weid in self._families}
        for driver in self._families.values():
            driver.take_over()

    def start(self, start: Start) -> None:
        weid = self._backend.create(
            self.case.document,
            start.inputs,
            start.execution_id,
            group=start.group,
            priority=start.priority,
        )
        self._families[weid] = ExecutionDriver(self._backend, weid)
        early = [SignalEvent(weid, name, payload) for name, payload in self.early_signals()]
        self._commit(weid, shuffled(self.draw, early))

    def _commit(self, weid: str, events: Sequence[StepEvent]) -> None:
        limit = self.draw.choice([None, None, 1, 2])
        record = self._backend.checkout(weid)
        decided = decide(record, events, self._backend.moment(), limit)
        assert decided.rejected == []
        assert self._backend.commit([Commit(record, decided.changes)]) == [Committed.YES]
        if not record.is_final:
            check_readiness(record)
        self._backend.dispatch(weid, decided.changes.jobs)
        (self._unfinished.add if decided.changes.has_more_ready else self._unfinished.discard)(weid)

    def new_jobs(self) -> list[DispatchJob]:
        return self._runner.take_pending_jobs()

    def has_mail(self) -> bool:
        return bool(self._backend.shared_state.outgoing_events() or self._unfinished)

    def hear(self) -> None:
        draw = self.draw
        if self._unfinished and draw.random() < 0.5:
            weid = draw.choice(sorted(self._unfinished))
            self._commit(weid, [ContinueEvent(weid)])
            return
        posts = self._backend.shared_state.outgoing_events()
        for post in draw.sample(posts, draw.randint(min(1, len(posts)), len(posts))):
            for driver in shuffled(draw, list(self._families.values())):
                if driver._deliver(post):
                    break
            if draw.random() < 0.2:
                driver._deliver(post)
        self._nudge()

    def _nudge(self) -> None:
        """An event for another execution is delivered; the loop of that execution continues it."""
        self._unfinished |= {record.workflow_execution_id for record in self.open_records()}

    def bring(self, said: Sequence[Said]) -> None:
        for weid in dict.fromkeys(one.workflow_execution_id for one in said):
            self._commit(weid, [one for one in said if one.workflow_execution_id == weid])

    def signal(self, execution: str, name: str, payload: Any) -> None:
        self._commit(execution, [SignalEvent(execution, name, payload)])

    def control(self, execution: str, action: Control, step_id: str) -> None:
        workflow = Workflow.resume(execution, self._backend)
        with suppress(InvalidEvent):  # it may be too late for that
            getattr(workflow, action)(*([step_id] if step_id else []))
        self._nudge()

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for record in shuffled(self.draw, self.open_records()):
            weid = record.workflow_execution_id
            due = find_due_timers(record, self.now_ms)
            events = [TimerEvent(timer.kind, weid, timer.step_id, timer.token) for timer in due]
            if events:
                again = events if self.draw.random() < 0.1 else []
                self._commit(weid, [*shuffled(self.draw, events), *again])

    def lose(self, job: DispatchJob) -> None:
        ids = (job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token)
        self._commit(job.workflow_execution_id, [LostEvent(*ids)])

    def upset(self) -> None:
        if self.draw.random() < 0.5:
            self._backend.drop_cached_records()
        else:
            self._begin_process()
            self._nudge()

    def open_records(self) -> list[WorkflowRecord]:
        return [record for record in self.all_records() if not record.is_final]

    def all_records(self) -> list[WorkflowRecord]:
        return [self._store.load(weid) for weid in self._store._executions]

    def history(self, record: WorkflowRecord) -> list[Json]:
        return self._store.history(record.workflow_execution_id)

    def shared(self, owners: Sequence[tuple[str, str]]) -> list[Json]:
        return self._backend.shared_state.load_values(owners)

    def check_clean(self) -> None:
        assert self._backend.shared_state.outgoing_events() == []
        assert not any(self._store.shared_state._slot_claims.values())


class DistantRunner(InProcessRunner):
    """Its jobs are with workers elsewhere, which a process that comes after another cannot ask."""

    def held_tokens(self, workflow_execution_id: str) -> set[str] | None:  # type: ignore[override]
        return None


class OrderlyPlay(MemoryPlay):
    """The same cases by the loop of one process: every job in the order of its dispatch, every result at
    once, and time passes only when nothing else can happen."""

    def play(self) -> Json:
        self._backend = Backend(
            store=self._store, runner=self._runner, clock=lambda: self.now_ms, poll_interval=0
        )
        for start in self.case.starts:
            self.start(start)
            Workflow.resume(start.execution_id, self._backend).run(self)
        return self._end()

    def run(self, workflow_execution_id: str) -> None:
        """As the worker of that loop."""
        self._work()
        for one in self.undelivered:
            self._runner.submit(one)  # type: ignore[arg-type]
        self.undelivered = []
        if not self._backend.shared_state.outgoing_events() and not self._runner._results:
            records = self.open_records()
            signals, due_ms = self._signals(records), self._next_due(records)
            if signals:
                self._say(signals[0])
            elif due_ms is not None:
                self.now_ms = max(due_ms, self.now_ms)

    def signal(self, execution: str, name: str, payload: Any) -> None:
        Workflow(execution, self._backend).signal(name, payload)
