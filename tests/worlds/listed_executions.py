"""Executions to be listed: many of them, written straight into Redis; and what a list must say of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.application.records.events import iso
from orchestrator.client import ExecutionFilter
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import Keys
from worlds.redis_world import RedisWorld

START_MS = 1_790_000_000_000
PER_ROUND_TRIP = 5_000


@dataclass
class Known:
    """An execution as the oracle knows it."""

    execution_id: str
    began_ms: int
    number: int = 0
    status: str = "complete"
    name: str | None = None
    group: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    workflow_id: str = "w1"

    @property
    def id(self) -> str:
        return f"{self.workflow_id}#{self.execution_id}"

    @property
    def place(self) -> tuple[int, int, str]:
        """By which the newest is first."""
        return self.began_ms, self.number, self.id

    @property
    def told(self) -> tuple[Any, ...]:
        """What a list says of it."""
        return self.status, self.began_ms, self.name, self.group, self.labels, None

    def matches(self, wanted: ExecutionFilter) -> bool:
        return (
            (not wanted.statuses or self.status in [status.value for status in wanted.statuses])
            and wanted.name in (None, self.name)
            and wanted.group in (None, self.group)
            and all(self.labels.get(name) == value for name, value in wanted.labels.items())
            and (wanted.since_ms is None or self.began_ms >= wanted.since_ms)
            and (wanted.until_ms is None or self.began_ms < wanted.until_ms)
            and (wanted.text is None or self._has(wanted.text.lower()))
        )

    def _has(self, text: str) -> bool:
        """Whether its id, its name, its group or one of its labels contains a text in lower case."""
        labels = [f"{name}={value}" for name, value in self.labels.items()]
        parts = [self.execution_id, self.name or "", self.group or "", *labels]
        return "\n".join(parts).lower().count(text) > 0


def seed(client: Client, keys: Keys, executions: Iterable[Known], payload: str = "") -> None:
    """Records and index entries, so many in each round trip: as commits would have left them."""
    pipe = client.pipeline(transaction=False)
    for count, one in enumerate(executions, 1):
        score = one.began_ms + one.number / 4096
        record: dict[Any, Any] = {"status": one.status, "created_at": iso(one.began_ms), "inputs": payload}
        record["labels"] = json.dumps(dict(one.labels))
        record |= {name: value for name, value in (("name", one.name), ("group", one.group)) if value}
        pipe.hset(keys.workflow(one.id), mapping=record)
        for index in indexes_of(keys, one):
            pipe.zadd(index, {one.id: score})
        if count % PER_ROUND_TRIP == 0:
            pipe.execute()
    pipe.execute()


def indexes_of(keys: Keys, one: Known) -> list[str]:
    found = [keys.index(one.status)]
    found += [keys.index_of_label(name, value) for name, value in one.labels.items()]
    if one.name is not None:
        found.append(keys.index_of_name(one.name))
    if one.group is not None:
        found.append(keys.index_of_group(one.group))
    return found


def listed_in(world: RedisWorld) -> dict[str, dict[str, float]]:
    """Every index, by what stands behind its prefix, with the scores of its members."""
    prefix = world.keys.indexes
    return {
        str(key).removeprefix(prefix): dict(world.client.zrange(key, 0, -1, withscores=True))  # type: ignore[arg-type]
        for key in world.client.scan_iter(f"{prefix}*")
    }


def ms_of(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
