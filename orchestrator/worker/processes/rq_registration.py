"""Registers a worker with RQ, so that RQ's tools show it with its queues, state and heartbeats.

The rq.Worker object runs no jobs. The children of its supervisor take jobs from the same queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rq import Queue, Worker
from rq.serializers import JSONSerializer
from rq.utils import utcformat

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


def registration(worker: Worker) -> dict[Any, Any]:
    """The fields of a registered worker in RQ's registry."""
    if hasattr(worker, "serialize"):  # since rq 2.9
        fields: dict[Any, Any] = worker.serialize()
        return fields
    assert worker.birth_date is not None
    return {
        "birth": utcformat(worker.birth_date),
        "queues": ",".join(worker.queue_names()),
        "pid": worker.pid,
        "hostname": worker.hostname,
        "ip_address": worker.ip_address,
        "version": worker.version,
        "python_version": worker.python_version,
    }


def connect_for_rq(url: str) -> Client:
    return create_client(url, protocol=2, socket_connect_timeout=10)
