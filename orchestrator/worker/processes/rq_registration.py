"""Registers a worker with RQ, so that RQ's tools show it with its queues, state and heartbeats.

The rq.Worker object runs no jobs. The children of its supervisor take jobs from the same queues.
"""

from __future__ import annotations

from collections.abc import Sequence

from rq import Queue, Worker
from rq.serializers import JSONSerializer

from orchestrator.redis_rq.connection import Client, create_client
from orchestrator.worker.step_job import StepJob


def make_worker(client: Client, queues: Sequence[str], name: str | None = None) -> Worker:
    """An rq.Worker for these queues. The client must not decode replies, because RQ expects bytes."""
    rq_queues = [
        Queue(queue, connection=client, serializer=JSONSerializer, job_class=StepJob) for queue in queues
    ]
    return Worker(
        rq_queues, name=name, connection=client, serializer=JSONSerializer, job_class=StepJob, worker_ttl=60
    )


def connect_for_rq(url: str) -> Client:
    return create_client(url, protocol=2, socket_connect_timeout=10)
