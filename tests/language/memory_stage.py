"""The stage in memory: what Workflow.run() does in its loop, done when the test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from language.execution import Json, Said
from language.stage import Place, Stage, places_of
from orchestrator.application.errors import InvalidSpec, RecordExists, StartRejected
from orchestrator.application.records.decisions import Dispatch, DispatchJob
from orchestrator.application.records.events import Control, ResultEvent, StartedEvent
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.application.values.durations import parse_ms
from orchestrator.backend import Backend, InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Commit, Committed
from orchestrator.local.driver import ExecutionDriver
from orchestrator.local.workflow import Workflow
from worlds.records import NOW_MS


class MemoryStage(Stage):
    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self._store, self._runner = self._make_parts()
        self._registered: dict[str, Json] = {}
        self._families: dict[str, ExecutionDriver] = {}
        self._begin_process()

    def _make_parts(self) -> tuple[Any, Any]:
        """The store, which counts what is counted, and the runner."""
        return CountingStore(), InProcessRunner()

    def _begin_process(self) -> None:
        self._backend = Backend(store=self._store, runner=self._runner, clock=lambda: self.now_ms)
        self._families = {
            execution: ExecutionDriver(self._backend, execution) for execution in self._families
        }
        for driver in self._families.values():
            driver.take_over()

    def register(self, name: str, document: Json) -> None:
        self._registered[name] = document  # the application keeps what it starts; children are looked up
        self._backend.register(name, document)

    def start(self, document: Json | str, inputs: Json | None = None, **start: Any) -> str:
        document = self._registered[document] if isinstance(document, str) else document
        try:
            self.execution = self._backend.create(document, inputs, **start)
        except InvalidSpec as error:
            raise StartRejected(str(error), [problem.as_dict() for problem in error.problems]) from error
        except RecordExists as error:
            raise StartRejected(str(error)) from error
        for replaced in self._families.keys() - set(self.executions):
            del self._families[replaced]
        if self.execution not in self._families:
            self._families[self.execution] = ExecutionDriver(self._backend, self.execution)
        self._decide(self.execution)
        self.settle()
        return self.execution

    def answered(self) -> Json:
        """A handle on an execution, by its id."""
        workflow = Workflow.resume(self.execution, self._backend)
        ended = {"status": str(workflow.status), "outcome": workflow.outcome, "error": workflow.error}
        is_final = self._backend.load(self.execution).is_final
        return {"workflow_execution_id": workflow.id, **(ended if is_final else {})}

    def bring(self, *said: Said) -> None:
        for execution in dict.fromkeys(one.workflow_execution_id for one in said):
            theirs = [one for one in said if one.workflow_execution_id == execution]
            for one in theirs:
                if isinstance(one, ResultEvent):
                    self._runner.submit(one)
            started = [one for one in theirs if isinstance(one, StartedEvent)]
            self._decide(execution, *started, *self._backend.results(execution))

    def settle(self) -> None:
        """What the loop of each execution would do, as long as there is something to do."""
        while self._turn():
            pass
        self._note_jobs(self._backend.list_pending_jobs())
        self._check()

    def _turn(self) -> int:
        happened = 0
        for execution, driver in self._families.items():
            due = find_due_timers(self._backend.load(execution), self.now_ms)
            happened += driver.run_once() + len(due)
            self._decide(execution)
        return happened

    def lose_job(self, job: DispatchJob, after: str) -> None:
        """Its process died; the one that comes after it, a millisecond later at the least, finds out."""
        self._drop_job(job)
        self.now_ms += max(parse_ms(after), 1)
        self._begin_process()
        if job.workflow_execution_id in self._families:
            workflow = Workflow.resume(job.workflow_execution_id, self._backend)
            self._dispatch(workflow, workflow._decide(self._backend.find_lost_dispatches))
        self.settle()

    def _drop_job(self, job: DispatchJob) -> None:
        self._runner.return_jobs([one for one in self._runner.take_pending_jobs() if one.token != job.token])

    def send_signal(self, execution: str, name: str, payload: Any) -> None:
        Workflow.resume(execution, self._backend).signal(name, payload)
        self.settle()

    def send_control(
        self, execution: str, action: Control, step: str | None, reason: str | None, by: str | None
    ) -> None:
        workflow = Workflow.resume(execution, self._backend)
        match action:
            case "cancel":
                workflow.cancel(reason, by)
            case "hold" | "release" | "rerun":
                getattr(workflow, action)(step)
            case _:
                getattr(workflow, action)()
        self.settle()

    def pass_time(self, duration: str) -> None:
        self.now_ms += parse_ms(duration)
        self.settle()

    def _decide(self, execution: str, *events: Said) -> None:
        workflow = Workflow.resume(execution, self._backend)
        self._dispatch(workflow, workflow._decide(lambda record: [*events, *workflow._due(record)]))

    def _dispatch(self, workflow: Workflow, decision: Any) -> None:
        if isinstance(decision, Dispatch):
            self._backend.dispatch(workflow.id, decision.jobs)
        self._note_jobs(self._backend.list_pending_jobs())

    # ---- looking

    def record_of(self, execution: str) -> WorkflowRecord:
        return self._backend.load(execution)

    def history_of(self, execution: str) -> list[Json]:
        return self._backend.history(execution)

    @property
    def executions(self) -> list[str]:
        return list(self._store._executions)

    def counter(self, name: str) -> int:
        return int(self._store.counted[name])

    def key_of(self, job: DispatchJob) -> str:
        return job.idempotency_key

    def queue_of(self, job: DispatchJob) -> str:
        return job.queue if job.priority == 3 else f"{job.queue}:{job.priority}"

    def shared(self, scope: str, owner: str) -> Json:
        [values] = self._backend.shared_state.load_values([(scope, owner)])
        return values

    def places(self, key: str) -> list[Place]:
        found = self._store.shared_state._slot_claims.get(key, [])
        line = [(one.workflow_execution_id, one.step_id, one.token, one.is_held) for one in found]
        return sorted(line, key=lambda place: not place[3])

    def _check(self) -> None:
        """Nothing that was said is left undelivered, and the places are those that the records know of."""
        assert self._backend.shared_state.outgoing_events() == []
        known = places_of(map(self._backend.load, self.executions))
        assert {key: set(self.places(key)) for key in self._slot_keys() if self.places(key)} == known

    def _slot_keys(self) -> list[str]:
        return list(self._store.shared_state._slot_claims)


class Counting:
    """Makes a store keep the counters too, as the one on Redis does."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counted: Counter[str] = Counter()

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        results: list[Committed] = super().commit(commits)  # type: ignore[misc]
        for commit, result in zip(commits, results, strict=True):
            if result is Committed.YES:
                self.counted.update(commit.changes.counter_increments)
        return results


class CountingStore(Counting, InMemoryStore):
    pass
