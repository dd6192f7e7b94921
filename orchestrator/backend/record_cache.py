"""RecordCache: the open records that a backend keeps in memory between two decisions."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from orchestrator.application.records.record import WorkflowRecord

MAX_CACHED_STEPS = 200_000


class RecordCache:
    """Bounded by the number of steps in its records; drops the least recently used record first.

    A record that is popped belongs to the caller. Final records are not cached: no decision follows on them.
    """

    def __init__(self, max_cached_steps: int = MAX_CACHED_STEPS) -> None:
        self._max_cached_steps, self._steps = max_cached_steps, 0
        self._records: OrderedDict[str, WorkflowRecord] = OrderedDict()
        self._lock = Lock()

    def pop(self, workflow_execution_id: str) -> WorkflowRecord | None:
        with self._lock:
            return self._pop(workflow_execution_id)

    def _pop(self, workflow_execution_id: str) -> WorkflowRecord | None:
        record = self._records.pop(workflow_execution_id, None)
        if record is not None:
            self._steps -= _weight(record)
        return record

    def peek(self, workflow_execution_id: str) -> WorkflowRecord | None:
        """Return a record without removing it. The caller may read only what never changes."""
        with self._lock:
            return self._records.get(workflow_execution_id)

    def put(self, record: WorkflowRecord) -> None:
        with self._lock:
            self._pop(record.workflow_execution_id)
            if record.is_final:
                return
            self._records[record.workflow_execution_id] = record
            self._steps += _weight(record)
            while self._steps > self._max_cached_steps and len(self._records) > 1:
                _, oldest = self._records.popitem(last=False)
                self._steps -= _weight(oldest)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()
            self._steps = 0


def _weight(record: WorkflowRecord) -> int:
    return len(record.steps) + 1
