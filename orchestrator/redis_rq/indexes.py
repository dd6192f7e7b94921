"""The indexes of an execution: by its status, its name, its group and each of its labels.

Every index is a sorted set of workflow_execution_ids by creation time, so that a page of one index, or of
several at once, continues where the last page ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.keys import Keys

SCORES_PER_MS = 4096
"""How many executions of one millisecond get different scores: the precision of a double."""


def score_of(record: WorkflowRecord) -> float:
    """The creation time in ms; the fraction orders executions of the same millisecond."""
    created_ms = parse_iso_ms(record.created_at)
    _, _, number = (record.start_event or "").partition("-")
    return created_ms + min(int(number) if number.isdigit() else 0, SCORES_PER_MS - 1) / SCORES_PER_MS


def permanent_indexes(record: WorkflowRecord, keys: Keys) -> Iterator[str]:
    """The indexes that an execution never leaves, whatever its status."""
    if record.spec.name is not None:
        yield keys.index_of_name(record.spec.name)
    if record.group is not None:
        yield keys.index_of_group(record.group)
    for name, value in record.labels.items():
        yield keys.index_of_label(name, value)


def ended_index_entry(record: WorkflowRecord, keys: Keys, ended_ms: int) -> tuple[str, int]:
    """The sorted set of an ended execution, and its score there. An execution with a retention of its own is
    listed by its deletion time, the others by their end: their retention is an option of the coordinators."""
    own_s = record.spec.retention_s
    return (keys.ended, ended_ms) if own_s is None else (keys.leaving, ended_ms + round(own_s * 1000))


def ended_member(record: WorkflowRecord, keys: Keys) -> str:
    """The member of an ended execution: enough to remove it from every index without reading another key. The
    record may be gone by then."""
    names = [index.removeprefix(keys.indexes) for index in permanent_indexes(record, keys)]
    return f"{record.workflow_execution_id}|{dumps(names)}"
