"""What has changed in a record, for readers that follow it: new history entries, and the units they name.

Each function is one or two round trips, and reads no more than its limits: the records that it reads from may
have thousands of units, and outputs of many megabytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.redis_rq.connection import Client, execute_pipeline, translate_errors
from orchestrator.redis_rq.job_codec import lease_of_step
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys, is_untaken
from orchestrator.redis_rq.record_codec import unit_field

MAX_ENTRIES = 500
MAX_UNIT_BYTES = 64 * 1024
"""A unit with more, because of its output, is not read."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The fields of a record that tell whether it has changed, and whether it still is the same one."""

    version: str
    status: WorkflowStatus
    created_at: str
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """The heading of a record, the length of its history, and the entries after a position, at most
    MAX_ENTRIES. The heading is None if there is no such record."""

    heading: Heading | None
    length: int
    entries: list[str]


def read_changes(client: Client, keys: Keys, execution: str, position: int) -> RecordChanges:
    """Read what has changed since the history had `position` entries."""
    history = keys.history(execution)
    with client.pipeline(transaction=False) as pipe:
        pipe.hmget(keys.workflow(execution), ["version", "status", "created_at", "ended_at"])
        pipe.llen(history)
        pipe.lrange(history, position, position + MAX_ENTRIES - 1)
        fields, length, entries = _checked(execute_pipeline(pipe))
    version, status, created_at, ended_at = fields
    heading = None
    if version is not None:
        heading = Heading(version, WorkflowStatus(status), created_at, ended_at)
    return RecordChanges(heading, length, entries)


def read_units(
    client: Client, keys: Keys, execution: str, units: Collection[str]
) -> dict[str, StepRecord | None]:
    """Read units of a record. One larger than MAX_UNIT_BYTES is None; one that is gone is left out."""
    if not units:
        return {}
    record = keys.workflow(execution)
    with client.pipeline(transaction=False) as pipe:
        for unit in units:
            pipe.hstrlen(record, unit_field(unit))
        sizes = dict(zip(units, _checked(execute_pipeline(pipe)), strict=True))
    small = [unit for unit, size in sizes.items() if 0 < size <= MAX_UNIT_BYTES]
    found: dict[str, StepRecord | None] = {
        unit: None for unit, size in sizes.items() if size > MAX_UNIT_BYTES
    }
    if small:
        with translate_errors():
            texts: Any = client.hmget(record, list(map(unit_field, small)))
        stored = zip(small, texts, strict=True)
        found |= {unit: StepRecord.from_dict(loads(text)) for unit, text in stored if text is not None}
    return found


def find_untaken(client: Client, keys: Keys, execution: str, units: Mapping[str, StepRecord]) -> set[str]:
    """Find the units whose job no worker has taken, among units of which only their lease tells."""
    if not units:
        return set()
    leases = [lease_of_step(execution, unit, step) for unit, step in units.items()]
    with translate_errors():
        scores: Any = client.zmscore(keys.leases, leases)
    pairs = zip(units, scores, strict=True)
    return {unit for unit, score in pairs if score is not None and is_untaken(score)}


def _checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
