"""A coordinator in this process, so that everything can be counted and nothing waits.

Workers are simulated: all jobs that wait are taken in one pipeline and answered in another, by commands that
do not count. Housekeeping goes by the clock, so it is left out, and done where a measurement says so: counts
are always the same.
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
from scripts.benchmarks.measuring import Run, metered, tallied
from scripts.benchmarks.processes import Server

NEVER_S = 86_400.0
MOST_JOBS = 10_000
STARTED_AT = "2026-01-01T00:00:00.000Z"


class Rig:
    """Coordinator, producer and workers have lines of their own to Redis, as they would. `others` counts the
    commands of whoever is not measured."""

    def __init__(self, server: Server) -> None:
        self.redis, self.keys, self.others = server.client, Keys(), Counter[str]()
        line = PinnedConnection(connect(server.url))
        self.store = RedisStore(line, self.keys)
        self.log = RedisEventLog(line, "bench", self.keys)
        backend = Backend(store=self.store, runner=RqRunner(line, self.keys))
        pace = CoordinatorOptions(
            block_ms=1, tend_every_s=NEVER_S, reclaim_every_s=NEVER_S, trim_every_s=NEVER_S
        )
        self.coordinator = Coordinator(backend, self.log, self.store, pace)
        self.coordinator.begin()
        self.coordinator.turn()  # every chore is due once, at the beginning
        self.producer = Client(connect(server.url))
        self.handled = 0

    def start_many(self, name: str, count: int, prefix: str) -> None:
        """Executions of a registered workflow, with ids that begin so."""
        ids = (f"{prefix}{n}" for n in range(count))
        self.producer.start_many([name] * count, ({"n": n} for n in range(count)), ids)

    def coordinate(self, run: Run) -> None:
        """Handle every event that there is; what that takes is added to the run, but for Redis's part."""
        while self._is_behind():
            with metered(run, "coordinator"):
                self.handled += self.coordinator.turn()

    def settle(self, run: Run) -> None:
        """Until nobody has anything left to do; what the coordinator and Redis take is added to the run."""
        with tallied(run, self.redis, self.others):
            self.coordinate(run)
            while self.work():
                self.coordinate(run)

    def work(self) -> int:
        """What workers would do at once; returns how many jobs that were."""
        queue = self.keys.rq_queue(self.keys.queue("default"))
        tokens: Any = self.redis.lpop(queue, MOST_JOBS) or []
        with self.redis.pipeline(transaction=False) as pipe:
            for token in tokens:
                pipe.hmget(self.keys.rq_job(token), JOB_FIELDS)
            payloads = [read_payload(*parts) or {} for parts in pipe.execute()]
            for token, payload in zip(tokens, payloads, strict=True):
                pipe.delete(self.keys.rq_job(token))
                pipe.xadd(payload["events"], dict[Any, Any](event_fields(_result_of(payload))))
            pipe.execute()
        self.others.update({"lpop": 1, "hmget": len(tokens), "del": len(tokens), "xadd": len(tokens)})
        return len(tokens)

    def _is_behind(self) -> bool:
        """Whether there are more events than were handled; nothing is trimmed meanwhile."""
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
