"""A worker of ours as RQ and its tools see it: registered, with its queues, its state and its beats.

It runs nothing itself: its supervisor does, by children that take jobs from the same queues.
"""

from __future__ import annotations

from collections.abc import Sequence

from rq import Queue, Worker
from rq.serializers import JSONSerializer

from orchestrator.redis_rq.connection import Client, create_client
from orchestrator.worker.step_job import StepJob


def make_worker(client: Client, queues: Sequence[str], name: str | None = None) -> Worker:
    """A worker for these RQ queues, on a client that does not decode replies: RQ wants bytes."""
    made = [Queue(queue, connection=client, serializer=JSONSerializer, job_class=StepJob) for queue in queues]
    return Worker(
        made, name=name, connection=client, serializer=JSONSerializer, job_class=StepJob, worker_ttl=60
    )


def connect_for_rq(url: str) -> Client:
    return create_client(url, protocol=2, socket_connect_timeout=10)
