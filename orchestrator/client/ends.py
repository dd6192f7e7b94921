"""Waits for the ends of executions, without polling, and reads how they ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.decisions import (
    Complete,
    Failed,
    FinalDecision,
    Halt,
    make_final_decision,
    replace_outcome,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.client.payloads import ClientPayloads
from orchestrator.redis_rq.connection import (
    BLOCK_MS,
    Client,
    execute_pipeline,
    retry_until_available,
    translate_errors,
)
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore

logger = logging.getLogger(__name__)

_FINAL = frozenset(status.value for status in FINAL_WORKFLOW_STATUSES)


class StillRunning(OrchestratorError):
    """The execution did not end within the timeout."""

    def __init__(self, workflow_execution_id: str, timeout_s: float) -> None:
        execution_id = workflow_execution_id.partition("#")[2]
        super().__init__(f"execution {execution_id!r} has not ended after {timeout_s:g} s")


class ExecutionFailed(OrchestratorError):
    """The execution has no result: it failed or was cancelled. `end` is its final decision."""

    def __init__(self, execution_id: str, end: FinalDecision) -> None:
        how = f"failed: {end.error.get('message')}" if isinstance(end, Failed) else "was cancelled"
        super().__init__(f"execution {execution_id!r} has no result: it {how}")
        self.end = end


def read_outcome(execution_id: str, end: FinalDecision) -> Any:
    """Return the outcome of an execution that has ended; raises ExecutionFailed if it has none."""
    match end:
        case Complete():
            return end.outcome
        case Halt():
            return end.result
    raise ExecutionFailed(execution_id, end)


class Ends:
    def __init__(self, client: Client, keys: Keys, store: RedisStore, payloads: ClientPayloads) -> None:
        self._client, self._keys, self._store, self._payloads = client, keys, store, payloads

    def wait(self, workflow_execution_id: str, timeout_s: float | None) -> FinalDecision:
        """Wait until an execution ends; during an outage of Redis too."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return retry_until_available(
            lambda: self._wait(workflow_execution_id, deadline, timeout_s or 0),
            timeout_s,
            on_wait=lambda error: logger.warning(
                "Redis is unavailable; still waiting for the execution %s: %s",
                workflow_execution_id.partition("#")[2],
                error,
            ),
        )

    def _wait(self, workflow_execution_id: str, deadline: float | None, timeout_s: float) -> FinalDecision:
        with translate_errors(), closing(self._channel()) as channel:
            channel.subscribe(self._keys.done(workflow_execution_id))
            while True:
                # Subscribe first, read second: an end between the two is seen by one of them.
                status = self._client.hget(self._keys.workflow(workflow_execution_id), "status")
                if status is None or status in _FINAL:
                    end = self.find(workflow_execution_id)
                    if end is not None:
                        return end
                if deadline is not None and time.monotonic() >= deadline:
                    raise StillRunning(workflow_execution_id, timeout_s)
                wait_s = BLOCK_MS / 1000
                if deadline is not None:
                    wait_s = min(deadline - time.monotonic(), wait_s)
                channel.get_message(timeout=max(wait_s, 0.01))

    def are_over(self, executions: Sequence[str]) -> list[bool]:
        """Return whether each of some executions has ended or does not exist, in one round trip."""
        with self._client.pipeline(transaction=False) as pipe:
            for one in executions:
                pipe.hget(self._keys.workflow(one), "status")
            statuses = execute_pipeline(pipe)
        return [status is None or status in _FINAL for status in statuses]

    def find(self, workflow_execution_id: str) -> FinalDecision | None:
        """Return how an execution ended, with large values loaded; None if it has not. Raises RecordNotFound
        for one that was deleted, has expired, or was lost with the last writes of a Redis that crashed."""
        record = self._store.load(workflow_execution_id)
        return self._decision(record) if record.is_final else None

    def _decision(self, record: WorkflowRecord) -> FinalDecision:
        reason = (record.cancelled or {}).get("reason")
        decision = make_final_decision(record.status, record.outcome, record.error, reason)
        return replace_outcome(decision, lambda one: self._payloads.load_references(one, "outcome"))

    def _channel(self) -> Any:
        return self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
