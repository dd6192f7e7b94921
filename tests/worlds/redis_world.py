"""A world in one process: a Redis, coordinators that turn when told to, and a worker that pops jobs by hand.

    one = world.coordinator("one")
    entry = world.start(document(step("a"), step("b", after="a")))
    world.settle(one)                      # turns and work until nothing is left to do
    world.answer(entry)["ok"]

Nothing here waits: a coordinator reads without blocking, and what must be old is made old (`age_leases`).
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.application.records.events import LostEvent, ResultEvent, StartedEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.backend.backend import Backend
from orchestrator.coordinator.loop import Coordinator, CoordinatorOptions
from orchestrator.coordinator.waiting_events import SpecChecker
from orchestrator.invocation.executors import Executor, Executors
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.job_codec import JOB_FIELDS, read_payload
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, GROUP, SEQUENCES_PER_QUEUE, Keys, OwnStreams
from orchestrator.redis_rq.runner import RqRunner
from orchestrator.redis_rq.store import RedisStore
from orchestrator.redis_rq.verify.partial_commits import PartialCommits
from orchestrator.settings import GRACE_MS, MAX_QUEUED, RETENTION_S
from orchestrator.worker.harness import Harness
from servers.redis_server import RedisServer, own_redis
from worlds.documents import Json
from worlds.waiting import in_thread

MAX_ROUNDS = 2_000
WHOLE_BATCH = 10_000


class RedisWorld:
    def __init__(
        self,
        connect: Callable[[], Client],
        keys: Keys | None = None,
        grace_ms: int = GRACE_MS,
        retention_s: int = RETENTION_S,
        routes: TagRoutes | None = None,
        max_queued: int = MAX_QUEUED,
        quiet_count: int = WHOLE_BATCH,
    ) -> None:
        """`quiet_count` is how many events a coordinator reads after a quiet time: here usually all, so that
        one turn of a test handles all that it has sent."""
        self.max_queued, self.quiet_count = max_queued, quiet_count
        self._connect, self._clients = connect, list[Client]()
        self.keys, self.grace_ms, self.retention_s = keys or Keys(), grace_ms, retention_s
        self.routes = routes or TagRoutes()
        self.client = self.connect()
        self.store = self.store_on(self.client)

    # ---- making parts

    def connect(self) -> Client:
        self._clients.append(self._connect())
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def store_on(self, client: Client, own_streams: OwnStreams | None = None) -> RedisStore:
        return RedisStore(client, self.keys, self.retention_s, self.routes, own_streams)

    def log(
        self,
        name: str = "one",
        client: Client | None = None,
        lease_recovery_s: float = 0,
        own_streams: OwnStreams | None = None,
    ) -> RedisEventLog:
        return RedisEventLog(
            client or self.client,
            name,
            self.keys,
            self.grace_ms,
            self.retention_s,
            lease_recovery_s,
            self.max_queued,
            own_streams,
            self.quiet_count,
        )

    def coordinator(
        self,
        name: str = "one",
        client: Client | None = None,
        checker: SpecChecker | None = None,
        make: Callable[..., Coordinator] = Coordinator,
        **pace: Any,
    ) -> Coordinator:
        """A coordinator that has begun. It does its chores in every turn and reads without blocking."""
        client, own_streams = client or self.client, OwnStreams(self.keys)
        store = self.store_on(client, own_streams)
        chores = dict.fromkeys(("sweep_every_s", "reclaim_every_s", "trim_every_s", "repair_every_s"), 0.0)
        coordinator = make(
            Backend(store=store, runner=RqRunner(client, self.keys)),
            self.log(name, client, own_streams=own_streams),
            store,
            CoordinatorOptions(**{"block_ms": 0, **chores, **pace}),
            routes=self.routes,
            repair=PartialCommits(client, self.keys, self.retention_s).repair,
            checker=checker,
        )
        coordinator.resume_unfinished()
        return coordinator

    def killed(self, name: str) -> None:
        """As if this coordinator had died and the others had noticed: it has no streams any more."""
        self.client.zrem(self.keys.coordinators, name)

    # ---- what producers and workers do

    def start(
        self, spec: Json | str, inputs: Json | None = None, execution_id: str | None = None, **others: str
    ) -> str:
        """XADD a start, as redis-cli would; a text is a registered name, `others` are further fields."""
        fields = {"workflow": spec} if isinstance(spec, str) else {"spec": json.dumps(spec)}
        if inputs is not None:
            fields["inputs"] = json.dumps(inputs)
        if execution_id is not None:
            fields["execution_id"] = execution_id
        return self.send(self.keys.starts, {**fields, **others})

    def send(self, stream: str, fields: Mapping[Any, Any], entry_id: str = "*") -> str:
        return str(self.client.xadd(stream, dict(fields), id=entry_id))

    def send_event(self, event: ResultEvent | StartedEvent | LostEvent) -> str:
        return self.send(self.keys.events_of(event.workflow_execution_id), event_fields(event))

    def answer(self, entry_id: str) -> Json:
        [found] = self.client.lrange(self.keys.reply(entry_id), 0, -1)
        answer: Json = json.loads(str(found))
        return answer

    def begin(self, coordinator: Coordinator, spec: Json | str, **start: Any) -> str:
        """Start an execution and have it accepted; returns its workflow_execution_id."""
        entry = self.start(spec, **start)
        for _ in range(3):  # a large document is checked between two turns
            if not self.client.exists(self.keys.reply(entry)):
                coordinator.run_once()
        return str(self.answer(entry)["workflow_execution_id"])

    def pop(self) -> Json | None:
        """Take the next job as RQ does: off its queue, and its hash with it."""
        for queue in self.queues():
            while job_id := self.client.lpop(self.keys.rq_queue(queue)):
                parts: Any = self.client.hmget(self.keys.rq_job(str(job_id)), JOB_FIELDS)
                self.client.delete(self.keys.rq_job(str(job_id)))
                if parts[0] is not None:
                    return read_payload(*parts, job_id=str(job_id))
        return None

    def work(self, executors: Mapping[str, Executor] | None = None, most: int | None = None) -> int:
        """Run waiting jobs through the harness; a function without an executor returns its inputs."""
        harness = Harness(self.client, AnyExecutor(mapping=executors), worker="tester")
        done = 0
        while (most is None or done < most) and (payload := self.pop()) is not None:
            harness.run(payload)
            done += 1
        return done

    def settle(self, *coordinators: Coordinator, executors: Mapping[str, Executor] | None = None) -> None:
        """Turn and work until nothing is left to do."""
        for _ in range(MAX_ROUNDS):
            events = [one.run_once() for one in coordinators]
            if not sum(events) + self.work(executors):
                return
        raise AssertionError(f"no end after {MAX_ROUNDS} rounds")

    # ---- looking

    def queues(self) -> list[str]:
        return sorted(self.client.hkeys(self.keys.sequences))  # type: ignore[arg-type]

    def waiting(self) -> list[str]:
        """The ids of the jobs on all queues, in order."""
        found: list[str] = []
        for queue in self.queues():
            found += self.client.lrange(self.keys.rq_queue(queue), 0, -1)  # type: ignore[arg-type]
        return found

    def payloads(self) -> list[Json]:
        """The jobs on all queues, in order; they stay there."""
        ids = self.waiting()
        jobs: Any = [self.client.hmget(self.keys.rq_job(job_id), JOB_FIELDS) for job_id in ids]
        found = [read_payload(*parts, job_id=job_id) for job_id, parts in zip(ids, jobs, strict=True)]
        return [payload for payload in found if payload is not None]

    def record(self, workflow_execution_id: str) -> WorkflowRecord:
        return self.store.load(workflow_execution_id)

    def status(self, workflow_execution_id: str) -> str:
        return str(self.client.hget(self.keys.workflow(workflow_execution_id), "status"))

    def streams(self) -> list[str]:
        return [self.keys.starts, *map(self.keys.events, range(self.keys.partitions))]

    def pending(self) -> list[str]:
        """Every entry that was read and not acknowledged."""
        found: list[str] = []
        for stream in self.streams():
            if self.client.exists(stream):
                rows: Any = self.client.xpending_range(stream, GROUP, "-", "+", 10_000)
                found += [row["message_id"] for row in rows]
        return found

    def events(self) -> list[tuple[str, dict[str, str]]]:
        """All entries of the event streams, acknowledged or not, except starts."""
        found: list[tuple[str, dict[str, str]]] = []
        for stream in self.streams()[1:]:
            entries: Any = self.client.xrange(stream)
            found += entries
        return sorted(found, key=lambda entry: [int(part) for part in entry[0].split("-")])

    def dead(self) -> list[dict[str, str]]:
        entries: Any = self.client.xrange(self.keys.dead_letters)
        return [fields for _, fields in entries]

    def counter(self, name: str) -> int:
        return int(str(self.client.hget(self.keys.counters, name) or 0))

    def leases(self) -> dict[str, float]:
        """All that are out, and until when; for ever while a job waits in its queue."""
        found: Any = self.client.zrange(self.keys.leases, 0, -1, withscores=True)
        return {member: score if score < FIRST_SEQUENCE else math.inf for member, score in found}

    def dispatched(self, queue: str = "default") -> dict[str, float]:
        """The members whose jobs wait in a queue, as far as the last sweep knows, as they were counted."""
        last = int(str(self.client.hget(self.keys.sequences, self.keys.queue(queue)) or 0))
        first = last - last % SEQUENCES_PER_QUEUE
        found: Any = self.client.zrange(self.keys.leases, first, last, byscore=True, withscores=True)
        return {member: score - first for member, score in found if first}

    def now_ms(self) -> int:
        """The time by Redis' own clock."""
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def is_leaving(self, weid: str) -> bool:
        """Whether an execution stands where it waits to be dropped."""
        members = [*self.client.zrange(self.keys.ended, 0, -1), *self.client.zrange(self.keys.leaving, 0, -1)]
        return any(str(member).startswith(f"{weid}|") for member in members)

    def timers(self) -> dict[str, float]:
        return dict(self.client.zrange(self.keys.timers, 0, -1, withscores=True))  # type: ignore[arg-type]

    def history(self, workflow_execution_id: str) -> list[Json]:
        return self.store.history(workflow_execution_id)

    def moves(self, workflow_execution_id: str, to: str) -> list[str]:
        """The steps that moved to a status, as often as they did."""
        return [one["step"] for one in self.history(workflow_execution_id) if one.get("to") == to]

    # ---- time

    def age_leases(self, ms: int) -> None:
        """As if this much time had passed for every dispatch that has a term; what waits has none."""
        self._age(self.keys.leases, ms)

    def age_timers(self, ms: int) -> None:
        self._age(self.keys.timers, ms)

    def _age(self, key: str, ms: int) -> None:
        for member in self.client.zrange(key, "-inf", f"({FIRST_SEQUENCE}", byscore=True):
            self.client.zincrby(key, -ms - 1, str(member))  # a time that comes in this millisecond has come

    def age_pending(self, ms: int, reader: str = "dead") -> None:
        """As if this much time had passed since every pending event was read, by a reader that is gone."""
        for stream in self.streams():
            rows: Any = self.client.xpending_range(stream, GROUP, "-", "+", 10_000)
            for row in rows:
                self.client.xclaim(
                    stream,
                    GROUP,
                    reader,
                    0,
                    [row["message_id"]],
                    idle=ms + 10,
                    retrycount=row["times_delivered"],
                    justid=True,
                )


class AnyExecutor(Executors):
    """Executors given by name; any other name is a function that returns its inputs."""

    def find(self, fn: str) -> Executor:
        return self._mapping.get(fn, lambda inputs: inputs)


def result_fields(payload: Json, output: Any = None) -> dict[str, str]:
    """The fields of a result event, as a worker in any language would write them."""
    return {
        "type": "result",
        "execution": payload["execution"],
        "step": payload["step"],
        "run_id": str(payload["run_id"]),
        "attempt": str(payload["attempt"]),
        "token": payload["token"],
        "output": json.dumps(output),
    }


@contextmanager
def running(coordinator: Coordinator) -> Iterator[threading.Event]:
    """A coordinator in its loop, beside the block, stopped at its end as by SIGTERM."""
    stop = threading.Event()
    with in_thread(lambda: coordinator.run(stop)):
        try:
            yield stop
        finally:
            stop.set()


@contextmanager
def durable_world(folder: Path) -> Iterator[tuple[RedisWorld, RedisServer]]:
    """A world whose Redis may be killed and comes back with all its data."""
    with own_redis(folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        world = RedisWorld(lambda: connect(server.url))
        try:
            yield world, server
        finally:
            world.close()
