"""RQ's workers and queues as RQ stores them, both stock `rq worker`s and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.redis_rq.connection import Client, execute_pipeline, translate_errors
from orchestrator.redis_rq.declined import has_executor
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_payload
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import EXECUTORS_FIELD, Keys, sequence_range
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.jobs import find_job
from orchestrator.redis_rq.record_codec import unit_field

WORKERS = "rq:workers"
HEARTBEAT_MARGIN_S = 60
"""With every heartbeat an RQ worker sets its key to expire this much later than the next one is due."""
DEAD_AFTER_LATE_S = 15
"""A worker whose heartbeat is overdue by more than this is taken for dead."""
MAX_OLDEST_CHECKED = 10
MAX_QUEUE_SEARCH = 100_000


@dataclass(frozen=True, slots=True)
class RqWorker:
    """A worker that is registered with RQ.

    `late_s` is how long its heartbeat is overdue, by the clock of Redis. `is_connected` is False when no
    client subscribes to its command channel: then its process is gone, and only the registration is left. A
    work-horse keeps the connection of its worker open, so a worker that was killed while it was busy is only
    detected by its heartbeats. `executors` are the names that it publishes; None for a worker that publishes
    none, such as a stock one. `job_id` is the job that it runs; None if it is idle, or runs several at once.
    """

    name: str
    hostname: str = ""
    pid: int | None = None
    queues: tuple[str, ...] = ()
    state: str = "?"
    version: str = ""
    late_s: int = 0
    is_connected: bool = True
    executors: tuple[str, ...] | None = None
    job_id: str | None = None

    def has_executor(self, name: str) -> bool | None:
        """Whether it has an executor; None if it does not publish its names."""
        return None if self.executors is None else has_executor(self.executors, name)

    @property
    def is_busy(self) -> bool:
        return self.state == "busy"

    @property
    def is_alive(self) -> bool:
        return self.is_connected and self.late_s <= DEAD_AFTER_LATE_S


@dataclass(frozen=True, slots=True)
class RqQueue:
    """One of our queues: how many entries it has, how many of them are jobs that still wait, since when the
    oldest waits, how many RQ lists as failed, and how many starts are held until it has room. The entry of a
    revoked job stays until a worker takes it."""

    name: str
    depth: int
    waiting: int
    oldest_at: str | None
    failed: int
    held: int = 0


def rq_workers(inspection: Inspection) -> list[RqWorker]:
    """All workers of this Redis, whatever queues they serve."""
    client = inspection.client
    with translate_errors():
        known: Any = client.smembers(WORKERS)
        names = sorted(str(key).removeprefix("rq:worker:") for key in known)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hgetall(f"rq:worker:{name}")
            pipe.ttl(f"rq:worker:{name}")
            pipe.pubsub_numsub(f"rq:pubsub:{name}")
        found = execute_pipeline(pipe)
    triples = zip(names, found[0::3], found[1::3], found[2::3], strict=True)
    return [_worker(*triple) for triple in triples if isinstance(triple[1], dict) and triple[1]]


def _worker(name: str, stored: dict[str, str], ttl_s: Any, numsub: Any) -> RqWorker:
    pid = stored.get("pid", "")
    queues = tuple(queue for queue in stored.get("queues", "").split(",") if queue)
    # -1: a key without a TTL is not renewed by RQ, so it says nothing about heartbeats.
    late_s = HEARTBEAT_MARGIN_S - ttl_s if isinstance(ttl_s, int) and ttl_s >= 0 else 0
    return RqWorker(
        name,
        stored.get("hostname", ""),
        int(pid) if pid.isdigit() else None,
        queues,
        stored.get("state", "?"),
        stored.get("version", ""),
        max(late_s, 0),
        _listeners(numsub) > 0 and "death" not in stored,
        _parse_names(stored.get(EXECUTORS_FIELD, "")),
        stored.get("current_step") or stored.get("current_job") or None,
    )


@dataclass(frozen=True, slots=True)
class CurrentStep:
    """The step that a worker runs."""

    workflow_execution_id: str
    step: str

    @property
    def execution_id(self) -> str:
        return self.workflow_execution_id.partition("#")[2]


def find_current_steps(inspection: Inspection, workers: Sequence[RqWorker]) -> dict[str, CurrentStep]:
    """The steps that workers run, by the names of the workers, in one round trip. Inputs are not read."""
    busy = [one for one in workers if one.job_id is not None]
    if not busy:
        return {}
    with inspection.client.pipeline(transaction=False) as pipe:
        for one in busy:
            pipe.hmget(inspection.keys.rq_job(one.job_id or ""), "description", "worker_name")
        found = execute_pipeline(pipe)
    steps = {one.name: _parse_step(reply, one.name) for one, reply in zip(busy, found, strict=True)}
    return {name: step for name, step in steps.items() if step is not None}


def _parse_step(reply: Any, worker: str) -> CurrentStep | None:
    """The step in the lease of a job; None if the job is not ours, has ended, or runs in another worker."""
    if isinstance(reply, Exception) or reply[0] is None or reply[1] not in (None, worker):
        return None
    parts = str(reply[0]).split("|")
    return CurrentStep(parts[0], parts[1]) if len(parts) == 5 and "#" in parts[0] else None


def _parse_names(text: str) -> tuple[str, ...] | None:
    """The published names of executors; None for anything else."""
    try:
        names = loads(text)
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list else None


def _listeners(numsub: Any) -> int:
    """The number of subscribers of the one channel that was queried."""
    if isinstance(numsub, Exception):
        return 1  # without the right to query it, only the heartbeats count
    return int(numsub[0][1])


def rq_queues(inspection: Inspection, max_queues: int | None = None) -> list[RqQueue]:
    """Every queue of ours that ever had a job, sorted; at most `max_queues`, those that were used first."""
    client, keys = inspection.client, inspection.keys
    with translate_errors():
        sequences: dict[str, str] = client.hgetall(keys.sequences)  # type: ignore[assignment]
    names = sorted(sorted(sequences, key=lambda name: (len(sequences[name]), sequences[name]))[:max_queues])
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(keys.rq_queue(name))
            pipe.lrange(keys.rq_queue(name), 0, MAX_OLDEST_CHECKED - 1)
            pipe.zcard(keys.rq_failed(name))
            pipe.zcount(keys.leases, *sequence_range(sequences[name]))
            pipe.xlen(keys.held(name))
        found = execute_pipeline(pipe)
    replies = zip(names, *(found[n::5] for n in range(5)), strict=True)
    return [
        RqQueue(
            name,
            _count(depth),
            min(_count(depth), _count(leased)),
            _oldest(client, keys, ids),
            _count(failed),
            _count(held),
        )
        for name, depth, ids, failed, leased, held in replies
    ]


def _oldest(client: Client, keys: Keys, ids: Any) -> str | None:
    """When the first job that was not revoked was dispatched."""
    for job_id in [] if isinstance(ids, Exception) else ids:
        with translate_errors():
            fields: Any = client.hmget(keys.rq_job(job_id), JOB_FIELDS)
            payload = read_payload(*fields, job_id=job_id)
            if payload is not None:
                return _dispatched_at(client, keys, payload)
    return None


def _dispatched_at(client: Client, keys: Keys, payload: Mapping[str, Any]) -> str | None:
    """The dispatch time of a job, which is in the record only."""
    stored: Any = client.hget(keys.workflow(payload["execution"]), unit_field(payload["step"]))
    at = None if stored is None else loads(stored).get("dispatched_at")
    return None if at is None else str(at)


def queue_position(inspection: Inspection, token: str) -> tuple[str, int | None] | None:
    """The queue of the job of a dispatch, and how many jobs are ahead of it, or None when it has left the
    queue. None when the job does not exist."""
    client, keys = inspection.client, inspection.keys
    found = find_job(client, keys, token, ["origin"])
    if found is None:
        return None
    job_id, [queue] = found
    with translate_errors():
        before: Any = client.lpos(keys.rq_queue(queue), job_id, maxlen=MAX_QUEUE_SEARCH)
    return queue, None if before is None else int(before)


def _count(reply: Any) -> int:
    return 0 if isinstance(reply, Exception) else int(reply)
