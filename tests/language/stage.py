"""One execution on a stage, played step by step: the same words move it in memory and on Redis.

    stage.start(document(step("a"), step("b", after="a", retry=1)))
    stage.finish("a", {"n": 1})            # a worker brings a result; whatever follows has followed
    stage.fail("b")
    stage.pass_time("1s")                  # its timer rings
    stage.deliver(stage.result("b", {}))   # the same as finish; several at once are one batch

Results may be brought for any job, in any order and more than once. Nothing sleeps: time is the stage's own
(`now_ms`) and passes only in `pass_time`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from builders import NOW_MS
from integration.world import World
from orchestrator.application.decisions import Dispatch, DispatchJob
from orchestrator.application.durations import parse_ms
from orchestrator.application.errors import InvalidSpec, StartRefused
from orchestrator.application.events import LostEvent, ResultEvent, StartedEvent, failure, iso
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.timers import timers_due
from orchestrator.application.units import StepRecord
from orchestrator.backend import Backend, InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Commit, Committed
from orchestrator.client import Client
from orchestrator.redis_rq.codec import event_fields
from orchestrator.redis_rq.events import FUTURE_MS
from orchestrator.redis_rq.jobs import lease_of, lease_of_job, read_job
from orchestrator.redis_rq.keys import timer_member
from orchestrator.worker.lease import Lease, RedisClock
from orchestrator.workflow import Workflow
from specworld import all_timers

Json = dict[str, Any]
Said = ResultEvent | StartedEvent
"""What a worker says of its job."""

AHEAD_MS = 600_000
"""How far the clock of a stage on Redis is ahead of the real one, which must not overtake it."""


class Stage(ABC):
    """`execution` is the one that is played: the last one started. `jobs` are all jobs ever dispatched."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms, self.execution, self.jobs = now_ms, "", list[DispatchJob]()

    # ---- what happens from outside

    @abstractmethod
    def register(self, name: str, document: Json) -> None:
        """Make a document known under a name, in place of the one that had it."""

    @abstractmethod
    def start(self, document: Json | str, inputs: Json | None = None, **start: Any) -> str:
        """Start an execution of a document or a registered name; StartRefused with its problems."""

    @abstractmethod
    def deliver(self, *said: Said) -> None:
        """Bring what workers say as one batch, and let follow what follows."""

    @abstractmethod
    def lose(self, unit: str, after: str = "0s") -> None:
        """The worker of this unit dies; so much later it is noticed, with all that is due by then."""

    @abstractmethod
    def signal(self, name: str, payload: Any = None, execution: str | None = None) -> None: ...

    @abstractmethod
    def pass_time(self, duration: str) -> None:
        """Let time pass; then everything that has become due rings."""

    def finish(self, unit: str, output: Any = None, job: DispatchJob | None = None) -> ResultEvent:
        said = self.result(unit, output, job)
        self.deliver(said)
        return said

    def fail(
        self, unit: str, message: str = "boom", kind: str = "exception", job: DispatchJob | None = None
    ) -> ResultEvent:
        said = self.error_of(unit, message, kind, job)
        self.deliver(said)
        return said

    def report_started(self, unit: str, job: DispatchJob | None = None) -> StartedEvent:
        job = job or self.out[unit]
        said = StartedEvent(job.workflow_execution_id, unit, job.run_id, job.attempt, job.token, "tester")
        self.deliver(said)
        return said

    # ---- what a worker would say

    def result(self, unit: str, output: Any = None, job: DispatchJob | None = None) -> ResultEvent:
        """The result of a job: of the one that is out, unless it is given."""
        job = job or self.out[unit]
        return ResultEvent(
            job.workflow_execution_id, unit, output, None, job.run_id, job.attempt, job.token, "tester"
        )

    def error_of(
        self, unit: str, message: str = "boom", kind: str = "exception", job: DispatchJob | None = None
    ) -> ResultEvent:
        return replace(self.result(unit, None, job), error=failure(kind, message))

    # ---- looking

    @property
    @abstractmethod
    def record(self) -> WorkflowRecord: ...

    @property
    @abstractmethod
    def history(self) -> list[Json]: ...

    @abstractmethod
    def counter(self, name: str) -> int:
        """How many events were stale, late or lost so far."""

    @abstractmethod
    def key_of(self, job: DispatchJob) -> str:
        """The idempotency key that comes with a job."""

    @property
    def out(self) -> dict[str, DispatchJob]:
        """By unit, the jobs that somebody waits for."""
        by_token = {job.token: job for job in self.jobs}
        return {unit: by_token[one.token] for unit, one in self.record.units() if one.token is not None}

    def __getitem__(self, unit: str) -> StepRecord:
        record = self.record
        return record.items[unit] if "#" in unit else record.steps[unit]

    @property
    def statuses(self) -> dict[str, str]:
        return {step_id: str(step.status) for step_id, step in self.record.steps.items()}

    @property
    def run_ids(self) -> dict[str, int]:
        return {step_id: step.run_id for step_id, step in self.record.steps.items()}

    @property
    def status(self) -> str:
        return str(self.record.status)

    @property
    def outcome(self) -> Any:
        return self.record.outcome

    @property
    def error(self) -> Json:
        """The error of the workflow, which must have one."""
        error = self.record.error
        assert error is not None, f"the workflow is {self.status}, without an error"
        return error

    @property
    def state(self) -> Json:
        return self.record.state

    @property
    def now(self) -> str:
        return iso(self.now_ms)

    def moves(self, unit: str) -> list[str]:
        """The states that a unit has moved to, in order."""
        return [entry["to"] for entry in self.history if entry.get("step") == unit and "to" in entry]

    def executions_of(self, unit: str) -> int:
        """How often a unit was dispatched."""
        return sum(1 for job in self.jobs if job.step_id == unit)

    def error_kind(self, unit: str) -> str | None:
        error = self[unit].error
        return None if error is None else str(error["kind"])

    def deadline_in(self, unit: str) -> float | None:
        """How many seconds are left until the deadline of a unit, if it has one."""
        deadline_ms = self[unit].deadline_ms
        return None if deadline_ms is None else (deadline_ms - self.now_ms) / 1000

    # ---- within

    def _note_jobs(self, waiting: Sequence[DispatchJob]) -> None:
        known = {job.token for job in self.jobs}
        self.jobs += [job for job in waiting if job.token not in known]


class MemoryStage(Stage):
    """A Backend of one process: what Workflow.run() does in its loop, done when the test says so."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self._store, self._runner = CountingStore(), InProcessRunner()
        self._registered: dict[str, Json] = {}
        self._backend = self._begun()

    def _begun(self) -> Backend:
        return Backend(store=self._store, runner=self._runner, clock=lambda: self.now_ms)

    def register(self, name: str, document: Json) -> None:
        self._registered[name] = document  # in one process the application keeps its documents itself

    def start(self, document: Json | str, inputs: Json | None = None, **start: Any) -> str:
        document = self._registered[document] if isinstance(document, str) else document
        try:
            self.execution = self._backend.create(document, inputs, **start)
        except InvalidSpec as error:
            raise StartRefused(str(error), [problem.as_dict() for problem in error.problems]) from error
        self._decide(self.execution)
        return self.execution

    def deliver(self, *said: Said) -> None:
        [execution] = {one.workflow_execution_id for one in said}
        for one in said:
            if isinstance(one, ResultEvent):
                self._runner.submit(one)
        started = [one for one in said if isinstance(one, StartedEvent)]
        self._decide(execution, *started, *self._backend.results(execution))

    def lose(self, unit: str, after: str = "0s") -> None:
        """Its process died; the one that comes after it, a millisecond later at the least, finds out."""
        job = self.out[unit]
        self._runner.give_back([one for one in self._runner.take_pending_jobs() if one.token != job.token])
        self.now_ms += max(parse_ms(after), 1)
        self._backend = self._begun()
        workflow = Workflow.resume(job.workflow_execution_id, self._backend)
        self._dispatch(workflow, workflow._decide(self._backend.orphans))
        self._decide(job.workflow_execution_id)

    def signal(self, name: str, payload: Any = None, execution: str | None = None) -> None:
        Workflow.resume(execution or self.execution, self._backend).signal(name, payload)
        self._note_jobs(self._backend.list_pending_jobs())

    def pass_time(self, duration: str) -> None:
        self.now_ms += parse_ms(duration)
        self._decide(self.execution)

    def _decide(self, execution: str, *events: LostEvent | Said) -> None:
        workflow = Workflow.resume(execution, self._backend)
        self._dispatch(workflow, workflow._decide(lambda record: [*events, *workflow._due(record)]))
        while timers_due(self._backend.load(execution), self.now_ms):
            self._dispatch(workflow, workflow._decide(workflow._due))

    def _dispatch(self, workflow: Workflow, decision: Any) -> None:
        if isinstance(decision, Dispatch):
            self._backend.dispatch(workflow.id, decision.jobs)
        self._note_jobs(self._backend.list_pending_jobs())

    @property
    def record(self) -> WorkflowRecord:
        return self._backend.load(self.execution)

    @property
    def history(self) -> list[Json]:
        return self._backend.history(self.execution)

    def counter(self, name: str) -> int:
        return self._store.counted[name]

    def key_of(self, job: DispatchJob) -> str:
        return job.idempotency_key


class CountingStore(InMemoryStore):
    """A store in memory that keeps the counters too, as the one on Redis does."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        results = super().commit(commits)
        for commit, result in zip(commits, results, strict=True):
            if result is Committed.YES:
                self.counted.update(commit.changes.counted)
        return results


class RedisStage(Stage):
    """One coordinator that turns when told to; the test pops the jobs and publishes their results.

    The time of a decision is that of the stream entry it answers, and Redis gives no entry an earlier id than
    the last one had: an entry from the future, though deleted at once, sets the clock of its stream. After
    every turn the timers and leases in Redis must be those that follow from the records.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.now_ms() + AHEAD_MS)
        self.world, self._client = world, Client(world.client, world.keys)
        self._coordinator = world.coordinator("one", reclaim_every_s=1e9, trim_every_s=1e9)
        self._coordinator.turn()  # the only one in which it reclaims and trims
        self._open, self._refused, self._keys_of_jobs = list[str](), 0, dict[str, str]()
        self._latest_ms = world.now_ms() + FUTURE_MS - AHEAD_MS
        self._set_clocks()

    def register(self, name: str, document: Json) -> None:
        self._client.register(name, document)

    def start(self, document: Json | str, inputs: Json | None = None, **start: Any) -> str:
        named = {"workflow": document} if isinstance(document, str) else {"spec": json.dumps(document)}
        fields = {**named, "inputs": json.dumps(inputs or {}), **start}
        entry = self.world.send(self.world.keys.starts, fields)
        self._coordinator.turn()
        answer = self.world.answer(entry)
        if not answer["ok"]:
            self._refused += 1
            raise StartRefused(answer["reason"], answer.get("problems", ()))
        self.execution = str(answer["workflow_execution_id"])
        self._open.append(self.execution)
        self._turn()
        return self.execution

    def deliver(self, *said: Said) -> None:
        for one in said:
            if isinstance(one, ResultEvent):
                self._leaves_the_queue(str(one.token))
                self.world.client.delete(self.world.keys.rq_job(str(one.token)))
            self.world.send(self.world.keys.events_of(one.workflow_execution_id), event_fields(one))
        self._turn()

    def lose(self, unit: str, after: str = "0s") -> None:
        """Its worker took the job and beats no more: its lease runs out."""
        job = self.out[unit]
        self._leaves_the_queue(job.token)
        self.world.client.zadd(self.world.keys.leases, {lease_of_job(job): 1})
        if parse_ms(after):
            self.pass_time(after)
        else:
            self._turn()

    def signal(self, name: str, payload: Any = None, execution: str | None = None) -> None:
        self._client.signal(execution or self.execution, name, payload)
        self._turn()

    def pass_time(self, duration: str) -> None:
        self.now_ms += parse_ms(duration)
        assert self.now_ms < self._latest_ms, "Redis believes in no entry that is a day ahead"
        self._set_clocks()
        for member, due_ms in self.world.timers().items():
            if due_ms <= self.now_ms:
                self.world.client.zadd(self.world.keys.timers, {member: 1})  # due by the clock of Redis too
        self._turn()

    # ---- what only a queue has

    def take(self, unit: str) -> DispatchJob:
        """A worker takes the job of this unit and runs it."""
        job = self.out[unit]
        assert self._leaves_the_queue(job.token), f"the job of {unit} waits in no queue"
        self.world.client.hset(self.world.keys.rq_job(job.token), "status", "started")
        return job

    def is_queued(self, job: DispatchJob) -> bool:
        """Whether a worker can still get this job: RQ passes over a job without a hash."""
        keys, client = self.world.keys, self.world.client
        is_there = client.hget(keys.rq_job(job.token), "status") == "queued"
        return is_there and job.token in self.world.waiting()

    def is_known(self, job: DispatchJob) -> bool:
        """Whether RQ still knows this job, queued or running."""
        return bool(self.world.client.exists(self.world.keys.rq_job(job.token)))

    def may_go_on(self, job: DispatchJob) -> bool:
        """What a worker that runs this job learns at its next beat."""
        client = self.world.client
        return Lease(client, RedisClock(client), self.world.keys.leases, lease_of_job(job)).beat()

    # ---- looking

    @property
    def record(self) -> WorkflowRecord:
        return self.world.record(self.execution)

    @property
    def history(self) -> list[Json]:
        return self.world.history(self.execution)

    def counter(self, name: str) -> int:
        return self.world.counter(name)

    def key_of(self, job: DispatchJob) -> str:
        return self._keys_of_jobs[job.token]

    # ---- within

    def _set_clocks(self) -> None:
        for stream in self.world.streams():
            entry = self.world.send(stream, {"type": "clock"}, f"{self.now_ms}-0")
            self.world.client.xdel(stream, entry)

    def _turn(self) -> None:
        while self._coordinator.turn():
            pass
        payloads = self.world.payloads()
        self._note_jobs([read_job(payload, "default") for payload in payloads])
        self._keys_of_jobs.update((payload["token"], payload["key"]) for payload in payloads)
        self._check()

    def _leaves_the_queue(self, token: str) -> bool:
        queues = [self.world.keys.rq_queue(queue) for queue in self.world.queues()]
        return sum(int(str(self.world.client.lrem(queue, 0, token))) for queue in queues) > 0

    def _check(self) -> None:
        """Nothing was refused or forgotten, and Redis waits for what the records wait for."""
        timers, leases = set[str](), set[str]()
        for execution in tuple(self._open):
            record = self.world.record(execution)
            timers |= {timer_member(t.kind, execution, t.step_id, t.token) for t in all_timers(record)}
            leases |= {
                lease_of(execution, unit, one) for unit, one in record.units() if one.token is not None
            }
            if record.is_final and execution != self.execution:
                self._open.remove(execution)
        assert set(self.world.timers()) == timers
        assert set(self.world.leases()) == leases
        assert (self.world.pending(), len(self.world.dead())) == ([], self._refused)
