"""The coordinators and workers of a simulated world: the real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from orchestrator.application.engine.turn import MAX_TURN_WORK
from orchestrator.application.errors import ExecutorNotFound, Unavailable
from orchestrator.backend import Backend
from orchestrator.coordinator.loop import Coordinator, CoordinatorOptions
from orchestrator.redis_rq.declined import ANY_EXECUTOR, Waker
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_job, read_payload
from orchestrator.redis_rq.job_taker import FinishedJob, JobTaker, WorkerQueues
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import Keys, OwnStreams
from orchestrator.redis_rq.runner import RqRunner
from orchestrator.redis_rq.store import RedisStore
from orchestrator.redis_rq.verify.partial_commits import PartialCommits
from orchestrator.settings import LEASE_S
from orchestrator.worker.harness import Harness
from orchestrator.worker.lease import Lease, RedisClock
from orchestrator.worker.step_log import StepLogWriter
from simulation.ledger import OF_TOKEN
from simulation.line import LineClient
from simulation.scheduler import Scheduler
from worlds.documents import Json

if TYPE_CHECKING:
    from simulation.world import World

MOST_DELIVERIES = 12
"""More than usual, because more faults happen: an event that kills no coordinator must not be given up."""
TAKES_MS = (*(0,) * 20, *(10, 300) * 4, *(1_500, 6_000, 40_000) * 2)
"""How long executors take: most no time, some longer than a lease."""
WAKES = 0.2
"""How often a worker that has nothing to do wakes the steps that others have declined, also those that no
longer wait."""


class StrictCoordinator(Coordinator):
    """Ends at an error that a coordinator does not expect, so that the simulation notices it."""

    def _report_unexpected(self, error: Exception) -> None:
        raise error


class Staff:
    def __init__(self, world: World) -> None:
        self._world = world

    # ---- coordinators

    def coordinate(self, name: str) -> None:
        client = self._world.line()
        own_streams = OwnStreams(self._world.keys)
        store = RedisStore(client, self._world.keys, own_streams=own_streams)
        log = RedisEventLog(
            client, name, self._world.keys, max_queued=self._world.max_queued, own_streams=own_streams
        )
        backend = Backend(
            store=store,
            runner=RqRunner(client, self._world.keys),
            clock=self._world.redis_ms,
            nonce=self._world.nonce,
            history=self._world.history_mode(name),
        )
        draw = self._world.draw
        is_hasty = draw.random() < 0.3  # it takes over what another one is still busy with
        pace = CoordinatorOptions(
            batch=draw.choice([1, 3, 50]),
            jobs_per_commit=draw.choice([1, 2, 500]),
            work_per_turn=draw.choice([1, 40, MAX_TURN_WORK]),  # most decisions are divided, or none is
            block_ms=1_000,
            sweep_every_s=1.0,
            reclaim_every_s=0.05 if is_hasty else 2.0,
            reclaim_after_ms=1 if is_hasty else CoordinatorOptions().reclaim_after_ms,
            trim_every_s=draw.choice([0.05, 0.05, 5.0, 30.0]),
            max_deliveries=MOST_DELIVERIES,
            small_document_bytes=draw.choice([0, 16 * 1024, 16 * 1024]),
            small_stored_bytes=draw.choice([0, 16 * 1024, 16 * 1024]),
            max_documents=draw.choice([1, 16]),
        )
        repair = PartialCommits(client, self._world.keys).repair
        coordinator = StrictCoordinator(backend, log, store, pace, self._world.nonce, repair=repair)
        coordinator.run(Never(self._world.scheduler))

    # ---- workers

    def work(self, name: str) -> None:
        if self._world.draw.random() < 0.5:
            self._work_as_rq_does(name)
        else:
            self._work_as_a_work_horse(name)

    def _work_as_rq_does(self, name: str) -> None:
        """Pop a job, read it, start it, and publish its result, as a stock RQ worker does."""
        client, bare = self._world.line(), self._world.line(decodes=False)
        while True:
            try:
                job_id = self._popped(bare)
                parts: Any = (None, None) if job_id is None else bare.hmget(Keys.rq_job(job_id), JOB_FIELDS)
                payload = read_payload(*parts, job_id=job_id or "")
                if job_id is not None and payload is not None:
                    self._run(name, client, payload, is_leased=False)
                    bare.delete(Keys.rq_job(job_id))
            except (Unavailable, RedisError):
                self._world.scheduler.sleep(500)
                continue
            if job_id is None:
                self._rest(client)

    def _popped(self, bare: LineClient) -> str | None:
        """As by one BLPOP of all queues: those that are empty are passed over without asking."""
        for queue in map(Keys.rq_queue, self._world.queues):
            job_id: Any = bare.lpop(queue) if self._world.server.execute("EXISTS", queue) else None
            if job_id is not None:
                return str(job_id.decode())
        return None

    def _work_as_a_work_horse(self, name: str) -> None:
        """The result of a step is published when the next job is taken."""
        client, keys = self._world.line(), self._world.keys
        clock, worker_queues = RedisClock(client), WorkerQueues(name, self._world.queues, keys)
        taker = JobTaker(
            self._world.line(decodes=False), worker_queues, lambda: clock.now_ms() + round(LEASE_S * 1000)
        )
        finished: list[FinishedJob] = []
        while True:
            try:
                taken = taker.take(1, finished=finished)
            except Unavailable:
                clock.forget()
                self._world.scheduler.sleep(500)
                continue
            finished = []
            for job_id, payload in taken:
                assert payload is not None, f"{job_id} is not one of our jobs"
                finished = [self._run(name, client, payload, is_leased=True)]
            if not taken:
                self._rest(client)

    def _rest(self, client: LineClient) -> None:
        if self._world.draw.random() < WAKES:
            with suppress(RedisError):
                Waker(client, self._world.keys, self._world.queues, [ANY_EXECUTOR]).wake()
        self._world.scheduler.wait(self._world.when_changed(self._world.has_jobs), 60_000, is_idle=True)

    def _run(self, name: str, client: LineClient, payload: Json, is_leased: bool) -> FinishedJob:
        brought = [FinishedJob(payload["job_id"])]
        harness = SimulatedHarness(
            client,
            NoExecutors(),
            worker=f"{name}{OF_TOKEN}{payload['token']}",
            stop=(lambda _: self._world.kill_current()) if self._world.draw.random() < 0.5 else None,
            has_own_process=False,
            on_result=(lambda job, event: brought.append(FinishedJob(job["job_id"], job["events"], event)))
            if is_leased
            else None,
            executes=self._execute,
        )
        run = (payload["job_id"], self._world.scheduler.current.process)
        self._world.running.add(run)  # when Redis was put back, two may run the same job
        try:
            harness.run(payload, is_leased=is_leased)
        finally:
            self._world.running.remove(run)
        return brought[-1]

    def _execute(self, payload: Json) -> tuple[Json | None, Json | None]:
        if self._world.faults.has_no_executor():
            raise ExecutorNotFound(payload["fn"], [])
        self._world.scheduler.sleep(self._world.draw.choice(TAKES_MS))
        self._world.faults.at_work()
        self._world.executed[payload["token"]] += 1
        return self._world.case.executes(read_job(payload, "default"))


class Never:
    """The signal to stop that never comes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        self._scheduler.sleep(timeout * 1000)
        return False


class NoExecutors:
    def find(self, fn: str) -> Any:
        raise AssertionError("nothing is looked up here")


def _nothing(payload: Json) -> tuple[Json | None, Json | None]:
    return None, None


@dataclass(frozen=True, slots=True)
class SimulatedHarness(Harness):
    """The real one, but for what is called: the result follows from the case."""

    executes: Callable[[Json], tuple[Json | None, Json | None]] = _nothing

    def _call(
        self, payload: Mapping[str, Any], lease: Lease, step_log: StepLogWriter
    ) -> tuple[str | None, Json | None]:
        output, error = self.executes(dict(payload))
        return None if output is None else dumps(output), error
