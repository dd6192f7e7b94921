"""StepJob: the class that lets an RQ worker run the one function of ours, and nothing else.

Whoever can write to Redis can write a job: a raw hash that names `os.system` runs under a stock worker, with
any serializer. `orchestrator worker` uses this class by itself; a stock one is told to:

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

import orchestrator.worker.harness  # noqa: F401  # now, so that the process that is forked for a step need not
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
"""What RQ is told of a job. Not among them: callbacks, which name functions; webhooks, which name whom a
worker calls; meta and result, which are unpacked; dependencies, retries and repeats, which make more jobs."""


class StepJob(Job):
    """A job that can only be a step of ours: whoever can write to Redis must not be able to run more."""

    def __init__(
        self, id: str | None = None, connection: Redis | None = None, serializer: Any = None
    ) -> None:
        """JSON, whatever a worker was told: with pickle, RQ's default, reading a job can run code."""
        super().__init__(id, connection, JSONSerializer)

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None, serializer: Any = None) -> Job:
        """What has no id that a job can have, or no hash, is no job either, and ends no worker."""
        try:
            return super().fetch(id, connection, serializer)
        except (ValueError, ResponseError) as error:
            raise NoSuchJobError(f"job {id} cannot be read: {error}") from error

    def restore(self, raw_data: Any) -> Any:
        """A hash that cannot be read is no job; the step it stood for is found missing and sent again."""
        try:
            known = {as_text(name): value for name, value in raw_data.items()}
            told = {name: value for name, value in known.items() if name in ALLOWED_FIELDS}
            return super().restore({**told, "data": unpack_data(known["data"])})
        except Exception as error:
            raise NoSuchJobError(f"job {self.id} cannot be read: {error}") from error

    def cleanup(
        self, ttl: int | None = None, pipeline: Pipeline | None = None, remove_from_queue: bool = True
    ) -> None:
        """A step that has run leaves nothing behind. RQ would ask for its status and for its executions, nine
        questions: there is one execution, and the worker itself cleans that up in this transaction."""
        if ttl == 0 and pipeline is not None and not remove_from_queue:
            pipeline.delete(self.key, self.execution_registry.key)
        else:
            super().cleanup(ttl, pipeline, remove_from_queue)

    def perform(self) -> Any:
        if read_payload(self.data, self.description) is None:
            raise PermissionError(
                f"this worker runs {RUN_STEP} and nothing else; job {self.id} is no such step"
            )
        return super().perform()
