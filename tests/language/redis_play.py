"""Cases played on Redis, by two coordinators that take turns and may be killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from language.cases import Case, Start
from language.play import Play, Said
from language.redis_stage import AHEAD_MS
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Control, ControlEvent, SignalEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend import Backend
from orchestrator.coordinator.loop import Coordinator, CoordinatorOptions
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.event_log import RedisEventLog
from orchestrator.redis_rq.job_codec import lease_of_job
from orchestrator.redis_rq.runner import RqRunner
from worlds.documents import Json
from worlds.redis_world import RedisWorld

CREW = 2
MOST_KILLS = 3
"""An event that is delivered more often than five times goes to the dead letters."""


class RedisPlay(Play):
    """Coordinators read as much as is drawn, and handle it; or die with it; or another one has it too. The
    clock of the streams is set as in RedisStage."""

    def __init__(self, case: Case, draw: Random, world: RedisWorld) -> None:
        super().__init__(case, draw, world.now_ms() + AHEAD_MS)
        self.world, self._runner = world, RqRunner(world.client, world.keys)
        self._kills, self._names = 0, 0
        self._crew: dict[str, tuple[Coordinator, RedisEventLog]] = {}
        for _ in range(CREW):
            self._hire()
        for name, document in case.registered.items():
            world.store.register(name, check_spec(document))
        self._set_clocks()

    def _hire(self) -> None:
        self._names += 1
        name, world = f"c{self._names}", self.world
        store, log = world.store_on(world.client), world.log(f"c{self._names}")
        pace = CoordinatorOptions(block_ms=0, jobs_per_commit=self.draw.choice([1, 2, 500]))
        backend = Backend(store=store, runner=RqRunner(world.client, world.keys))
        coordinator = Coordinator(backend, log, store, pace)
        coordinator.resume_unfinished()
        self._crew[name] = coordinator, log

    def _kill(self, name: str) -> None:
        """What it has read is pending until another one reclaims it."""
        self._kills += 1
        del self._crew[name]
        self.world.killed(name)
        self._hire()
        for _, log in self._crew.values():
            log.sweep()

    def start(self, start: Start) -> None:
        for name, payload in self.early_signals():
            self.signal(start.execution_id, name, payload)
        while self.has_mail():
            self.hear()
        fields = {
            "spec": json.dumps(self.case.document),
            "inputs": json.dumps(start.inputs),
            "execution_id": start.execution_id,
            "group": start.group,
            **({} if start.priority is None else {"priority": start.priority}),
        }
        self.world.send(self.world.keys.starts, fields)

    def new_jobs(self) -> list[DispatchJob]:
        return self._runner.take_pending_jobs()

    def has_mail(self) -> bool:
        with self.world.client.pipeline(transaction=False) as pipe:
            for stream in self.world.streams():
                pipe.xinfo_groups(stream)
                pipe.xrevrange(stream, count=1)
            found = pipe.execute()
        for groups, last in zip(found[::2], found[1::2], strict=True):
            [group] = groups
            if group["pending"] or (last and _number(last[0][0]) > _number(group["last-delivered-id"])):
                return True
        return False

    def hear(self) -> None:
        draw = self.draw
        name = draw.choice(sorted(self._crew))
        coordinator, log = self._crew[name]
        deliveries = log.read(draw.randint(1, 5), 0)
        if not deliveries:
            log.sweep()  # it may fall to it to read other streams
            for batch in log.reclaim(0, 50):
                coordinator.handle(batch)
        elif self._kills < MOST_KILLS and draw.random() < 0.1:
            self._kill(name)
        else:
            coordinator.handle(deliveries)
            if draw.random() < 0.15:
                other, _ = self._crew[draw.choice(sorted(self._crew))]
                other.handle(deliveries)

    def bring(self, said: Sequence[Said]) -> None:
        for one in said:
            self.world.send(self.world.keys.events_of(one.workflow_execution_id), event_fields(one))

    def signal(self, execution: str, name: str, payload: Any) -> None:
        event = SignalEvent(execution, name, payload)
        self.world.send(self.world.keys.events_of(execution), event_fields(event))

    def control(self, execution: str, action: Control, step_id: str) -> None:
        event = ControlEvent(execution, action, step_id)
        self.world.send(self.world.keys.events_of(execution), event_fields(event))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        if ms:
            self._set_clocks()
        due = [member for member, due_ms in self.world.timers().items() if due_ms <= self.now_ms]
        if due:
            self.world.client.zadd(self.world.keys.timers, dict.fromkeys(due, 1))
            self._tend()

    def _set_clocks(self) -> None:
        for stream in self.world.streams():
            entry = self.world.send(stream, {"type": "clock"}, f"{self.now_ms}-0")
            self.world.client.xdel(stream, entry)

    def _tend(self) -> None:
        _, log = self._crew[self.draw.choice(sorted(self._crew))]
        log.sweep()

    def lose(self, job: DispatchJob) -> None:
        self.world.client.zadd(self.world.keys.leases, {lease_of_job(job): 1}, xx=True)
        self._tend()

    def upset(self) -> None:
        name = self.draw.choice(sorted(self._crew))
        coordinator, log = self._crew[name]
        match self.draw.choice(["forget", "trim", "kill"]):
            case "forget":
                coordinator._backend.drop_cached_records()
            case "trim":
                log.trim()
            case _:
                self._kill(name)

    def open_records(self) -> list[WorkflowRecord]:
        return self._records(*(status for status in WorkflowStatus if status not in FINAL_WORKFLOW_STATUSES))

    def all_records(self) -> list[WorkflowRecord]:
        return self._records(*WorkflowStatus)

    def _records(self, *statuses: WorkflowStatus) -> list[WorkflowRecord]:
        with self.world.client.pipeline(transaction=False) as pipe:
            for status in statuses:
                pipe.zrange(self.world.keys.index(status), 0, -1)
            ids = [weid for found in pipe.execute() for weid in found]
        return [found for found in self.world.store.load_many(ids) if isinstance(found, WorkflowRecord)]

    def history(self, record: WorkflowRecord) -> list[Json]:
        return self.world.history(record.workflow_execution_id)

    def shared(self, owners: Sequence[tuple[str, str]]) -> list[Json]:
        return self.world.store.load_values(owners)

    def check_clean(self) -> None:
        world, keys = self.world, self.world.keys
        assert (world.timers(), world.leases(), world.pending()) == ({}, {}, [])
        left = [f"{keys.prefix}:concurrency:*", keys.groups, "rq:job:*"]
        found = [key for pattern in left for key in world.client.scan_iter(pattern)]
        assert not found, f"left are {[(key, world.client.type(key)) for key in found]}"
        letters = [json.loads(letter["event"])["type"] for letter in world.dead()]
        assert set(letters) <= (set() if self.case.is_quiet else {"control"}), world.dead()


def _number(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))
