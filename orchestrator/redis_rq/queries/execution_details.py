"""Details of listed executions: the step that failed and its error, and the active steps with their statuses.

The records of the executions that failed or are open are loaded, a few at a time. Of a very large record
nothing is loaded, so that a page with many of them stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import StoreError
from orchestrator.application.explain.root_cause import error_of
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.redis_rq.connection import Client, execute_pipeline
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.listing import Summary
from orchestrator.redis_rq.queued_units import read_status_views
from orchestrator.redis_rq.scripts import batches
from orchestrator.redis_rq.store import RedisStore

MAX_FIELDS = 2_000
"""A record with more fields is not loaded."""
LOAD_BATCH_SIZE = 20

_ERROR_FIELDS = ("kind", "type", "message", "step")


@dataclass(frozen=True, slots=True)
class ExecutionDetails:
    """The error with which an execution failed or will fail, with its step and without secrets, the active
    steps of an open execution with their statuses as they are shown, and the time, the reason and the
    requester of the pause of a paused one."""

    error: Mapping[str, Any] | None = None
    steps: Mapping[str, str] = field(default_factory=dict)
    paused: Mapping[str, Any] | None = None


class DetailReader:
    def __init__(self, client: Client, keys: Keys, store: RedisStore) -> None:
        self._client, self._keys, self._store = client, keys, store

    def read(self, executions: Sequence[Summary]) -> list[ExecutionDetails]:
        """The details of each execution; empty for one that has completed, is too large or cannot be read."""
        wanted = [one.workflow_execution_id for one in executions if _has_details(one)]
        found: dict[str, ExecutionDetails] = {}
        for batch in batches(self._small(wanted), LOAD_BATCH_SIZE):
            loaded = [one for one in self._store.load_many(batch) if not isinstance(one, StoreError)]
            for view in read_status_views(self._client, self._keys, loaded):
                found[view.record.workflow_execution_id] = _details(view)
        return [found.get(one.workflow_execution_id, ExecutionDetails()) for one in executions]

    def _small(self, executions: Sequence[str]) -> list[str]:
        """Those of some executions whose records are small enough to be loaded."""
        if not executions:
            return []
        with self._client.pipeline(transaction=False) as pipe:
            for one in executions:
                pipe.hlen(self._keys.workflow(one))
            sizes = execute_pipeline(pipe)
        return [
            one
            for one, size in zip(executions, sizes, strict=True)
            if not isinstance(size, Exception) and size <= MAX_FIELDS
        ]


def _has_details(one: Summary) -> bool:
    return one.status is WorkflowStatus.FAILED or one.status not in FINAL_WORKFLOW_STATUSES


def _details(view: StatusView) -> ExecutionDetails:
    record, error = view.record, error_of(view.record)
    active = {
        step_id: view.status_of(step_id, step)
        for step_id, step in record.steps.items()
        if step.is_active and not record.is_final
    }
    if not error:
        return ExecutionDetails(steps=active, paused=record.pause_details)
    redacted = make_record_view(record)(error)
    shown = {name: redacted[name] for name in _ERROR_FIELDS if redacted.get(name) is not None}
    return ExecutionDetails(shown, active, record.pause_details)
