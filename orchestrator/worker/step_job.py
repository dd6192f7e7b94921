"""StepJob: the job class that lets an RQ worker run `run_step` and nothing else.

A client that can write to Redis can write a job: a stock worker runs a raw hash that names `os.system`, with
any serializer. `orchestrator worker` uses this class by default. A stock worker must be started with it:

    rq worker --serializer json --job-class orchestrator.worker.step_job.StepJob orchestrator.default
"""

from __future__ import annotations

from typing import Any

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ResponseError
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import as_text

import orchestrator.worker.harness  # noqa: F401  # imported before the fork, so that no work-horse has to
from orchestrator.redis_rq.job_codec import RUN_STEP, read_payload, unpack_data

ALLOWED_FIELDS = frozenset(
    {
        "created_at",
        "data",
        "description",
        "ended_at",
        "enqueued_at",
        "failure_ttl",
        "last_heartbeat",
        "origin",
        "result_ttl",
        "started_at",
        "status",
        "timeout",
        "worker_name",
    }
)
"""The fields of a job hash that RQ sees. Left out: callbacks, which name functions; webhooks, which name URLs
to call; meta and result, which are deserialized; dependencies, retries and repeats, which create jobs."""


class StepJob(Job):
    """A job that can only run a step, whatever its hash in Redis says."""

    def __init__(
        self, id: str | None = None, connection: Redis | None = None, serializer: Any = None
    ) -> None:
        """Always use JSON: with pickle, RQ's default serializer, reading a job can run code."""
        super().__init__(id, connection, JSONSerializer)

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Job:
        """Read a job. An invalid id or a key that is not a hash raises NoSuchJobError, which RQ handles."""
        try:
            return super().fetch(id, connection, serializer)
        except (ValueError, ResponseError) as error:
            raise NoSuchJobError(f"job {id} cannot be read: {error}") from error

    def restore(self, raw_data: Any) -> Any:
        """Read the allowed fields. An unreadable hash counts as missing; its step is dispatched again."""
        try:
            fields = {as_text(name): value for name, value in raw_data.items()}
            allowed = {name: value for name, value in fields.items() if name in ALLOWED_FIELDS}
            return super().restore({**allowed, "data": unpack_data(fields["data"])})
        except Exception as error:
            raise NoSuchJobError(f"job {self.id} cannot be read: {error}") from error

    def cleanup(
        self, ttl: int | None = None, pipeline: Pipeline | None = None, remove_from_queue: bool = True
    ) -> None:
        """Delete the job of a step that has run, without RQ's nine queries for its status and executions.

        A step's job has one execution, which the worker removes in the same transaction.
        """
        if ttl == 0 and pipeline is not None and not remove_from_queue:
            pipeline.delete(self.key, self.execution_registry.key)
        else:
            super().cleanup(ttl, pipeline, remove_from_queue)

    def perform(self) -> Any:
        if read_payload(self.data, self.description, job_id=self.id) is None:
            raise PermissionError(f"this worker runs only {RUN_STEP}; job {self.id} is not such a step")
        return super().perform()
