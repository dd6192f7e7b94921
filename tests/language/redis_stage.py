"""The stage on Redis: one coordinator that turns when told to; the test pops jobs and publishes results.

The time of a decision is that of the stream entry it answers, and Redis gives no entry an earlier id than the
last one had: an entry from the future, though deleted at once, sets the clock of its stream.
"""

from __future__ import annotations

import json
from typing import Any

from language.execution import Json, Said
from language.stage import Place, Stage, places_of
from orchestrator.application.errors import InvalidEvent, StartRejected
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Control, ControlEvent, ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.values.durations import parse_ms
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.client import Client
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.job_codec import lease_of_job, lease_of_step, read_job
from orchestrator.redis_rq.keys import timer_member
from orchestrator.redis_rq.stream_health import MAX_FUTURE_MS
from orchestrator.worker.lease import Lease, RedisClock
from worlds.engine_checks import all_timers
from worlds.redis_world import RedisWorld

AHEAD_MS = 600_000
"""How far the clock of a stage on Redis is ahead of the real one, which must not overtake it."""


class RedisStage(Stage):
    def __init__(self, world: RedisWorld) -> None:
        super().__init__(world.now_ms() + AHEAD_MS)
        self.world, self._client = world, Client(world.client, world.keys)
        self._coordinator = world.coordinator("one", reclaim_every_s=1e9, trim_every_s=1e9)
        self._coordinator.run_once()  # the only one in which it reclaims and trims
        self._refused, self._answer = 0, Json()
        self._keys_of_jobs, self._queues_of_jobs = dict[str, str](), dict[str, str]()
        self._ids_of_jobs: dict[str, str] = {}
        self._ended: set[str] = set()
        self._latest_ms = world.now_ms() + MAX_FUTURE_MS - AHEAD_MS
        self._set_clocks()

    def register(self, name: str, document: Json) -> None:
        self._client.register(name, document)

    def start(self, document: Json | str, inputs: Json | None = None, **start: Any) -> str:
        named = {"workflow": document} if isinstance(document, str) else {"spec": json.dumps(document)}
        given = {
            name: json.dumps(value) if isinstance(value, dict) else value
            for name, value in start.items()
            if value is not None
        }
        fields = {**named, "inputs": json.dumps(inputs or {}), **given}
        entry = self.world.send(self.world.keys.starts, fields)
        self._coordinator.run_once()
        self._answer = self.world.answer(entry)
        if not self._answer["ok"]:
            self._refused += 1
            raise StartRejected(self._answer["reason"], self._answer.get("problems", ()))
        self.execution = str(self._answer["workflow_execution_id"])
        if "conflict_policy" in start:
            self._ended.clear()  # it and its children may replace some that have ended
        self.settle()
        return self.execution

    def answered(self) -> Json:
        ended = ("status", "outcome", "error") if "outcome" in self._answer else ()
        return {name: self._answer[name] for name in ("workflow_execution_id", *ended)}

    def bring(self, *said: Said) -> None:
        for one in said:
            if isinstance(one, ResultEvent):
                self._leaves_the_queue(str(one.token))
                self.world.client.delete(self._key_of_rq(str(one.token)))
            self.world.send(self.world.keys.events_of(one.workflow_execution_id), event_fields(one))
        self._turn()

    def settle(self) -> None:
        while self._turn() or self._ring():
            pass
        self._check()

    def lose_job(self, job: DispatchJob, after: str) -> None:
        """Its worker took the job and beats no more: its lease runs out."""
        self._leaves_the_queue(job.token)
        self.world.client.zadd(self.world.keys.leases, {lease_of_job(job): 1})
        if parse_ms(after):
            self.pass_time(after)
        else:
            self.settle()

    def send_signal(self, execution: str, name: str, payload: Any) -> None:
        self._client.signal(execution, name, payload, reply_timeout_s=None)
        self.settle()

    def send_control(
        self, execution: str, action: Control, step: str | None, reason: str | None, by: str | None
    ) -> None:
        event = ControlEvent(execution, action, step or "", reason, by)
        self._ended.discard(execution)  # it may be opened again
        self.world.send(self.world.keys.events_of(execution), event_fields(event))
        self._turn()
        if len(self._refusals()) > self._refused:
            self._refused += 1
            self.settle()
            raise InvalidEvent(self._refusals()[-1])
        self.settle()

    def pass_time(self, duration: str) -> None:
        self.now_ms += parse_ms(duration)
        assert self.now_ms < self._latest_ms, "Redis believes in no entry that is a day ahead"
        self._set_clocks()
        self.settle()

    # ---- what only a queue has

    def take(self, unit: str) -> DispatchJob:
        """A worker takes the job of this unit and runs it."""
        job = self.out[unit]
        assert self._leaves_the_queue(job.token), f"the job of {unit} waits in no queue"
        self.world.client.hset(self._key_of_rq(job.token), "status", "started")
        return job

    def is_queued(self, job: DispatchJob) -> bool:
        """Whether a worker can still get this job: RQ passes over a job without a hash."""
        is_there = self.world.client.hget(self._key_of_rq(job.token), "status") == "queued"
        return is_there and self._ids_of_jobs[job.token] in self.world.waiting()

    def is_known(self, job: DispatchJob) -> bool:
        """Whether RQ still knows this job, queued or running."""
        return bool(self.world.client.exists(self._key_of_rq(job.token)))

    def may_go_on(self, job: DispatchJob) -> bool:
        """What a worker that runs this job learns at its next beat."""
        client = self.world.client
        return Lease(client, RedisClock(client), self.world.keys.leases, lease_of_job(job)).renew()

    # ---- looking

    def record_of(self, execution: str) -> WorkflowRecord:
        return self.world.record(execution)

    def history_of(self, execution: str) -> list[Json]:
        return self.world.history(execution)

    @property
    def executions(self) -> list[str]:
        prefix = self.world.keys.workflow("")
        return [str(key).removeprefix(prefix) for key in self.world.client.scan_iter(f"{prefix}*")]

    def counter(self, name: str) -> int:
        return self.world.counter(name)

    def key_of(self, job: DispatchJob) -> str:
        return self._keys_of_jobs[job.token]

    def queue_of(self, job: DispatchJob) -> str:
        return self._queues_of_jobs[self._ids_of_jobs[job.token]].removeprefix(f"{self.world.keys.prefix}.")

    def shared(self, scope: str, owner: str) -> Json:
        [values] = self.world.store.load_values([(scope, owner)])
        return values

    def places(self, key: str) -> list[Place]:
        found: list[Place] = []
        for name, is_held in (
            (self.world.keys.slot_holders(key), True),
            (self.world.keys.slot_waiters(key), False),
        ):
            for member in self.world.client.zrange(name, 0, -1):
                _, _, execution, step, token = str(member).split("|")
                found.append((execution, step, token, is_held))
        return found

    # ---- within

    def _set_clocks(self) -> None:
        for stream in self.world.streams():
            entry = self.world.send(stream, {"type": "clock"}, f"{self.now_ms}-0")
            self.world.client.xdel(stream, entry)

    def _turn(self) -> int:
        count = self._coordinator.run_once()
        payloads = self.world.payloads()
        self._note_jobs([read_job(payload, "default") for payload in payloads])
        self._keys_of_jobs.update((payload["token"], payload["key"]) for payload in payloads)
        self._ids_of_jobs.update((payload["token"], payload["job_id"]) for payload in payloads)
        for queue in self.world.queues():
            waiting = self.world.client.lrange(self.world.keys.rq_queue(queue), 0, -1)
            self._queues_of_jobs.update((str(job_id), queue) for job_id in waiting)
        return count

    def _ring(self) -> int:
        """What is due by the clock of the stage is due by that of Redis too."""
        due = [member for member, due_ms in self.world.timers().items() if due_ms <= self.now_ms]
        if due:
            self.world.client.zadd(self.world.keys.timers, dict.fromkeys(due, 1))
        return len(due)

    def _leaves_the_queue(self, token: str) -> bool:
        queues = [self.world.keys.rq_queue(queue) for queue in self.world.queues()]
        job_id = self._ids_of_jobs.get(token, token)
        return sum(int(str(self.world.client.lrem(queue, 0, job_id))) for queue in queues) > 0

    def _key_of_rq(self, token: str) -> str:
        return self.world.keys.rq_job(self._ids_of_jobs.get(token, token))

    def _check(self) -> None:
        """Nothing was refused or forgotten, and Redis waits for what the records wait for."""
        timers, leases = set[str](), set[str]()
        records = [self.world.record(one) for one in self.executions if one not in self._ended]
        for record in records:
            execution = record.workflow_execution_id
            timers |= {timer_member(t.kind, execution, t.step_id, t.token) for t in all_timers(record)}
            leases |= {
                lease_of_step(execution, unit, one)
                for unit, one in record.units()
                if one.token is not None and one.child is None
            }
            webhook = record.items.get(WEBHOOK_UNIT)
            if record.is_final and (webhook is None or webhook.is_final):
                self._ended.add(execution)
        assert set(self.world.timers()) == timers
        assert set(self.world.leases()) == leases
        assert (self.world.pending(), len(self._refusals())) == ([], self._refused)
        known = places_of(records)
        assert {key: set(self.places(key)) for key in self._keys_with_places()} == known

    def _refusals(self) -> list[str]:
        """Why events were refused; the start of a child aside, of which its parent is told."""
        letters = self.world.dead()
        return [one["reason"] for one in letters if json.loads(one["event"]).get("type") != "child"]

    def _keys_with_places(self) -> set[str]:
        names = (self.world.keys.slot_holders(""), self.world.keys.slot_waiters(""))
        found = [(str(key), name) for name in names for key in self.world.client.scan_iter(f"{name}*")]
        return {key.removeprefix(name) for key, name in found}
