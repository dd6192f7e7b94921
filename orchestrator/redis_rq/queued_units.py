"""Queued units: the dispatches whose job no worker has taken yet. Their leases tell, and no record does.

This costs one command for an execution with dispatches that no worker has reported, and none for any other,
so none for an execution that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.application.explain.status_view import StatusView, may_be_queued
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.redis_rq.connection import Client, execute_pipeline
from orchestrator.redis_rq.job_codec import lease_of_step
from orchestrator.redis_rq.keys import Keys, is_untaken


def read_status_view(client: Client, keys: Keys, record: WorkflowRecord) -> StatusView:
    """The record with its queued units."""
    return read_status_views(client, keys, [record])[0]


def read_status_views(client: Client, keys: Keys, records: Sequence[WorkflowRecord]) -> list[StatusView]:
    """The records with their queued units, in one round trip."""
    leases = [_leases(record) for record in records]
    asked = [one for one in leases if one]
    if not asked:
        return [StatusView(record) for record in records]
    with client.pipeline(transaction=False) as pipe:
        for one in asked:
            pipe.zmscore(keys.leases, list(one.values()))
        replies = iter(execute_pipeline(pipe))
    return [
        StatusView(record, _untaken(one, next(replies)) if one else frozenset())
        for record, one in zip(records, leases, strict=True)
    ]


def _leases(record: WorkflowRecord) -> dict[str, str]:
    """The leases of the units of which a record does not tell whether a worker has taken them."""
    execution = record.workflow_execution_id
    return {
        unit: lease_of_step(execution, unit, step) for unit, step in record.units() if may_be_queued(step)
    }


def _untaken(leases: dict[str, str], scores: Any) -> frozenset[str]:
    """The units that no worker has taken. One without a lease was taken: its result is on its way."""
    if isinstance(scores, Exception):  # the key has another type
        return frozenset()
    pairs = zip(leases, scores, strict=True)
    return frozenset(unit for unit, score in pairs if score is not None and is_untaken(score))
