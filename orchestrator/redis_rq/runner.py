"""RqRunner: the Runner port on RQ queues.

On Redis a commit writes its jobs, so `dispatch` does nothing. Results go through the event streams to a
coordinator, so `gather` and `results` return nothing: Workflow.run() finds them in the record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import LostEvent, ResultEvent
from orchestrator.backend.results import make_result
from orchestrator.redis_rq.connection import Client, clock_ms, connect, translate_errors
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.event_log import DEAD_AFTER_MS
from orchestrator.redis_rq.job_codec import JOB_FIELDS, lease_of_job, read_job, read_payload
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys, job_id_of
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.redis_rq.record_codec import unit_field
from orchestrator.settings import PREFIX

logger = logging.getLogger(__name__)

DAY_S = 86_400
COORDINATOR_CHECK_S = 10.0
"""How often a caller that waits for results checks that a coordinator is alive."""


class RqRunner:
    def __init__(self, client: Client, keys: Keys | None = None) -> None:
        self._client, self._keys = client, keys or Keys()
        self.payloads = RedisPayloads(client, self._keys)
        self._next_check_s = time.monotonic() + COORDINATOR_CHECK_S

    @classmethod
    def from_url(cls, url: str, prefix: str = PREFIX) -> RqRunner:
        """The runner on this Redis. `prefix` is ORCHESTRATOR_PREFIX of the coordinators and workers."""
        return cls(connect(url), Keys.with_prefix(prefix))

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> list[tuple[str, Any]]:
        return []

    def gather(self, workflow_execution_id: str) -> list[tuple[str, Any]]:
        return []

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        """Nothing: a coordinator applies the results. Logs a warning while none is alive."""
        if time.monotonic() >= self._next_check_s:
            self._next_check_s = time.monotonic() + COORDINATOR_CHECK_S
            self._check_coordinators()
        return []

    def _check_coordinators(self) -> None:
        with translate_errors():
            since_ms = clock_ms(self._client) - DEAD_AFTER_MS
            if not self._client.zcount(self._keys.coordinators, since_ms, "+inf"):
                logger.warning(
                    "no coordinator is alive, so the results of steps are not applied;"
                    " start one with: orchestrator coordinator"
                )

    def held_tokens(self, workflow_execution_id: str) -> None:
        """Unknown here: the sweep of a coordinator finds lost jobs."""
        return

    def list_pending_jobs(self) -> list[DispatchJob]:
        with translate_errors():
            ids = {queue: self._client.lrange(self._keys.rq_queue(queue), 0, -1) for queue in self._queues()}
            return [job for queue, found in ids.items() for job in self._jobs(queue, found)]  # type: ignore[arg-type]

    def take_pending_jobs(self) -> list[DispatchJob]:
        """Take all jobs off their queues, for a worker that is not RQ's.

        Such a worker sends no heartbeats, so a job counts as lost after its timeout, or after a day.
        """
        taken: list[DispatchJob] = []
        with translate_errors():
            for queue in self._queues():
                while found := self._client.lpop(self._keys.rq_queue(queue), 100):
                    taken += self._jobs(queue, found)  # type: ignore[arg-type]
            self._lease(taken)
        return taken

    def _lease(self, jobs: Sequence[DispatchJob]) -> None:
        now_ms = clock_ms(self._client)
        with self._client.pipeline(transaction=False) as pipe:
            for job in jobs:
                due_ms = now_ms + round((job.timeout_s or DAY_S) * 1000)
                pipe.zadd(self._keys.leases, {lease_of_job(job): due_ms}, xx=True)
                pipe.delete(self._keys.rq_job(job_id_of(self._keys.queue(job.queue), job.token)))
            pipe.execute()

    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        """Publish that these jobs are lost: a coordinator dispatches their steps again."""
        for job in jobs:
            ids = (job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token)
            self._publish(LostEvent(*ids, "its worker stopped before it ran the job"))

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        """Publish a result; without a job, as the result of the current dispatch."""
        if job is None:
            with translate_errors():
                job = self._current(workflow_execution_id, step_id)
        self.submit(make_result(workflow_execution_id, step_id, output, job))

    def submit(self, result: ResultEvent) -> None:
        self._publish(result)

    def _publish(self, event: ResultEvent | LostEvent) -> None:
        fields: dict[Any, Any] = dict(event_fields(event))
        with translate_errors():
            self._client.xadd(self._keys.events_of(event.workflow_execution_id), fields)

    def _queues(self) -> list[str]:
        return sorted(self._client.hkeys(self._keys.sequences))  # type: ignore[arg-type]

    def _jobs(self, queue: str, ids: Sequence[str]) -> list[DispatchJob]:
        with self._client.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hmget(self._keys.rq_job(job_id), JOB_FIELDS)
            found = zip(ids, pipe.execute(), strict=True)
            payloads = [read_payload(*fields, job_id=job_id) for job_id, fields in found]
        name = queue.removeprefix(f"{self._keys.prefix}.")
        return [read_job(payload, name) for payload in payloads if payload is not None]

    def _current(self, workflow_execution_id: str, step_id: str) -> DispatchJob:
        stored = self._client.hget(self._keys.workflow(workflow_execution_id), unit_field(step_id))
        if stored is None:
            raise RecordNotFound(workflow_execution_id)
        step = loads(str(stored))
        return DispatchJob(
            workflow_execution_id,
            step_id,
            fn="",
            inputs={},
            run_id=step.get("run_id", 0),
            attempt=step.get("attempt", 1),
            token=step.get("token") or "none",
        )
