"""Schedules of the torture run. Each one looks as if it was registered days ago, so that its slots are due.

A stored schedule continues where it was when it is registered again. `register` first writes a schedule whose
next slot was days ago, if there is none yet, and then registers its document. Therefore it can be repeated
until it is acknowledged, and every slot must start exactly one execution.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from orchestrator.application.engine.schedules import Schedule, slot_execution_id
from orchestrator.application.spec.validation import check_spec
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore
from torture.kinds import Json, Kind

KEYS = Keys()
DAY_MS = 86_400_000


@dataclass(slots=True)
class Timetable:
    """One schedule with slots in the past, a day apart. The next slot is about a day away."""

    name: str
    kind: Kind
    first_ms: int
    count: int

    @property
    def execution_ids(self) -> list[str]:
        return [slot_execution_id(self.name, self.first_ms + n * DAY_MS) for n in range(self.count)]

    @property
    def overlap(self) -> str:
        return str(self.document["schedule"]["overlap"])

    @property
    def document(self) -> Json:
        minutes = self.first_ms // 60_000
        times = {"cron": f"{minutes % 60} {minutes // 60 % 24} * * *", "catch_up": "all"}
        return {**self.kind.document, "schedule": {**self.kind.document["schedule"], **times}}

    def register(self, client: Client) -> None:
        loaded = check_spec(self.document)
        assert loaded.spec.schedule is not None
        schedule = Schedule(self.name, **asdict(loaded.spec.schedule), next_ms=self.first_ms)
        with translate_errors():
            client.hsetnx(KEYS.schedules, self.name, dumps(schedule.as_dict()))
        RedisStore(client, KEYS).register(self.name, loaded)


def timetable(name: str, kind: Kind, count: int, now_ms: int) -> Timetable:
    """Create a timetable whose last slot was minutes ago. On time or missed, it starts an execution."""
    last_ms = now_ms // 60_000 * 60_000 - 60_000
    return Timetable(name, kind, last_ms - (count - 1) * DAY_MS, count)
