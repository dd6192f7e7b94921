"""Queues, workers and coordinators: what runs and what waits."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from orchestrator.redis_rq.queries.rq_workers import rq_queues, rq_workers
from orchestrator.web.api.models import Reply, Time
from orchestrator.web.api.route import ApiRoute, Call


class Queue(Reply):
    name: str
    depth: int = Field(description="Its entries. The entry of a revoked job stays until a worker takes it.")
    waiting: int = Field(description="The jobs that wait for a worker.")
    oldest_at: Time | None = Field(description="Since when the oldest job waits.")
    failed: int = Field(description="The jobs that RQ lists as failed.")
    held: int = Field(description="The starts that are held until the queue has room.")


class Queues(Reply):
    queues: list[Queue]


class Worker(Reply):
    name: str
    hostname: str
    pid: int | None
    queues: list[str]
    state: str
    version: str
    late_s: int = Field(description="How long its heartbeat is overdue.")
    is_connected: bool
    is_alive: bool
    executors: list[str] | None = Field(description="Null for a worker that publishes no names.")


class Workers(Reply):
    workers: list[Worker]


class Coordinator(Reply):
    name: str
    age_ms: int = Field(description="The age of its last heartbeat.")
    is_alive: bool


class Stream(Reply):
    """An event stream, which coordinators read."""

    name: str
    length: int
    unread: int
    pending: int = Field(description="Read by a coordinator and not handled yet.")
    age_ms: int = Field(description="How long the oldest entry has waited.")


class Coordinators(Reply):
    coordinators: list[Coordinator]
    streams: list[Stream]


def list_queues(call: Call) -> Queues:
    """List every queue that ever had a job."""
    return Queues(queues=[Queue.model_validate(asdict(one)) for one in rq_queues(call.instance.inspection)])


def list_workers(call: Call) -> Workers:
    """List the workers of this Redis, whatever queues they serve."""
    found = rq_workers(call.instance.inspection)
    return Workers(
        workers=[
            Worker(
                name=one.name,
                hostname=one.hostname,
                pid=one.pid,
                queues=list(one.queues),
                state=one.state,
                version=one.version,
                late_s=one.late_s,
                is_connected=one.is_connected,
                is_alive=one.is_alive,
                executors=None if one.executors is None else list(one.executors),
            )
            for one in found
        ]
    )


def list_coordinators(call: Call) -> Coordinators:
    """List the coordinators, and the event streams with what waits in them."""
    inspection = call.instance.inspection
    now_ms = inspection.now_ms()
    beats, streams = inspection.coordinators(), inspection.streams()
    return Coordinators(
        coordinators=[
            Coordinator(name=one.name, age_ms=max(now_ms - one.at_ms, 0), is_alive=one.is_alive(now_ms))
            for one in beats
        ],
        streams=[
            Stream(
                name=one.name,
                length=one.length,
                unread=one.unread,
                pending=one.pending,
                age_ms=one.age_ms(now_ms),
            )
            for one in streams
        ],
    )


ROUTES = [
    ApiRoute("GET", "/queues", list_queues, problems={}),
    ApiRoute("GET", "/workers", list_workers, problems={}),
    ApiRoute("GET", "/coordinators", list_coordinators, problems={}),
]
