"""A coordinator in this process, so that everything can be counted without waiting.

Workers are simulated: one pipeline takes all queued jobs and another one publishes their results, with
commands that are not counted. Periodic tasks depend on the clock, so they do not run on their own; a
measurement calls them. Therefore the counts are always the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from orchestrator.application.records.events import ResultEvent
from orchestrator.backend.backend import Backend
from orchestrator.client import Client
from orchestrator.coordinator.loop import Coordinator, CoordinatorOptions
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.pinned_connection import PinnedConnection
from orchestrator.redis_rq.runner import RqRunner
from orchestrator.redis_rq.store import RedisStore
from scripts.benchmarks.measuring import Run, count_process, count_redis
from scripts.benchmarks.processes import Server

NEVER_S = 86_400.0
MAX_JOBS = 10_000
LARGEST_DOCUMENT = 2**30
"""Every document is checked in the loop, so that its cost counts."""
STARTED_AT = "2026-01-01T00:00:00.000Z"


class Rig:
    """A coordinator, a producer and simulated workers, each with its own connection to Redis. `others` counts
    the commands of the parts that are not measured."""

    def __init__(self, server: Server) -> None:
        self.redis, self.keys, self.others = server.client, Keys(), Counter[str]()
        line = PinnedConnection(connect(server.url))
        self.store = RedisStore(line, self.keys)
        self.log = RedisEventLog(line, "bench", self.keys)
        backend = Backend(store=self.store, runner=RqRunner(line, self.keys))
        pace = CoordinatorOptions(
            block_ms=1,
            sweep_every_s=NEVER_S,
            reclaim_every_s=NEVER_S,
            trim_every_s=NEVER_S,
            small_document_bytes=LARGEST_DOCUMENT,
            small_stored_bytes=LARGEST_DOCUMENT,
        )
        self.coordinator = Coordinator(backend, self.log, self.store, pace)
        self.coordinator.resume_unfinished()
        self.coordinator.run_once()  # every periodic task is due once at the start
        self.producer = Client(connect(server.url))
        self.handled = 0

    def start_many(self, name: str, count: int, prefix: str) -> None:
        """Start executions of a registered workflow, with this prefix in their ids."""
        ids = (f"{prefix}{n}" for n in range(count))
        self.producer.start_many([name] * count, ({"n": n} for n in range(count)), ids)

    def coordinate(self, run: Run) -> None:
        """Handle every event. Add the work of the coordinator, without Redis, to the run."""
        while self._has_events():
            with count_process(run, "coordinator"):
                self.handled += self.coordinator.run_once()

    def settle(self, run: Run) -> None:
        """Run until no work is left. Add the work of the coordinator and of Redis to the run."""
        with count_redis(run, self.redis, self.others):
            self.coordinate(run)
            while self.work():
                self.coordinate(run)

    def work(self) -> int:
        """Run all queued jobs as workers would. Return the number of jobs."""
        queue = self.keys.rq_queue(self.keys.queue("default"))
        ids: Any = self.redis.lpop(queue, MAX_JOBS) or []
        with self.redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hmget(self.keys.rq_job(job_id), JOB_FIELDS)
            found = zip(ids, pipe.execute(), strict=True)
            payloads = [read_payload(*parts, job_id=job_id) or {} for job_id, parts in found]
            for job_id, payload in zip(ids, payloads, strict=True):
                pipe.delete(self.keys.rq_job(job_id))
                pipe.xadd(payload["events"], dict[Any, Any](event_fields(_result_of(payload))))
            pipe.execute()
        self.others.update({"lpop": 1, "hmget": len(ids), "del": len(ids), "xadd": len(ids)})
        return len(ids)

    def _has_events(self) -> bool:
        """Whether there are more events than were handled. Streams are not trimmed meanwhile."""
        with self.redis.pipeline(transaction=False) as pipe:
            for stream in self.keys.streams(self.keys.partitions):
                pipe.xlen(stream)
            lengths: list[int] = pipe.execute()
        self.others["xlen"] += len(lengths)
        return sum(lengths) > self.handled


def _result_of(payload: dict[str, Any]) -> ResultEvent:
    names = {name: payload[name] for name in ("run_id", "attempt", "token")}
    return ResultEvent(
        payload["execution"], payload["step"], {"n": 1}, worker="bench", started_at=STARTED_AT, **names
    )
