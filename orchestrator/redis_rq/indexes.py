"""Where an execution is listed: under its status, its name, its group and each of its labels.

Every index is a sorted set of workflow_execution_ids by the time of their beginning, so that a page of any of
them, or of several at once, goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.redis_rq.event_codec import dumps
from orchestrator.redis_rq.keys import Keys

SCORES_PER_MS = 4096
"""How many executions that begin in one millisecond have scores of their own: as fine as a double is."""


def score_of(record: WorkflowRecord) -> float:
    """When an execution began, in ms; behind the point its number among those of the same millisecond."""
    began_ms = parse_iso_ms(record.created_at)
    _, _, number = (record.start_event or "").partition("-")
    return began_ms + min(int(number) if number.isdigit() else 0, SCORES_PER_MS - 1) / SCORES_PER_MS


def permanent_indexes(record: WorkflowRecord, keys: Keys) -> Iterator[str]:
    """The indexes that an execution stays in, whatever becomes of it."""
    if record.spec.name is not None:
        yield keys.index_of_name(record.spec.name)
    if record.group is not None:
        yield keys.index_of_group(record.group)
    for name, value in record.labels.items():
        yield keys.index_of_label(name, value)


def ended_index_entry(record: WorkflowRecord, keys: Keys, ended_ms: int) -> tuple[str, int]:
    """Where an execution that has ended waits for the end of its retention, and under which score: by its own
    retention it goes at a time that is known, else as long after its end as coordinators are told."""
    own_s = record.spec.retention_s
    return (keys.ended, ended_ms) if own_s is None else (keys.leaving, ended_ms + round(own_s * 1000))


def ended_member(record: WorkflowRecord, keys: Keys) -> str:
    """An execution among those that have ended: enough to take it from every index, without any other key.
    The record may be gone by then."""
    names = [index.removeprefix(keys.indexes) for index in permanent_indexes(record, keys)]
    return f"{record.workflow_execution_id}|{dumps(names)}"
