"""RecordCache: the records that a backend keeps in memory between two decisions."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from orchestrator.application.records.record import WorkflowRecord

MAX_CACHED_STEPS = 200_000


class RecordCache:
    """Bounded by the steps they hold, the least recently used go first. A taken record is its taker's own.

    Final ones are not kept: nothing is decided upon them any more.
    """

    def __init__(self, max_cached_steps: int = MAX_CACHED_STEPS) -> None:
        self._steps_kept, self._steps = max_cached_steps, 0
        self._records: OrderedDict[str, WorkflowRecord] = OrderedDict()
        self._lock = Lock()

    def take(self, workflow_execution_id: str) -> WorkflowRecord | None:
        with self._lock:
            return self._taken(workflow_execution_id)

    def _taken(self, workflow_execution_id: str) -> WorkflowRecord | None:
        record = self._records.pop(workflow_execution_id, None)
        if record is not None:
            self._steps -= _weight(record)
        return record

    def peek(self, workflow_execution_id: str) -> WorkflowRecord | None:
        """For what never changes of it; the record stays where it is."""
        with self._lock:
            return self._records.get(workflow_execution_id)

    def keep(self, record: WorkflowRecord) -> None:
        with self._lock:
            self._taken(record.workflow_execution_id)
            if record.is_final:
                return
            self._records[record.workflow_execution_id] = record
            self._steps += _weight(record)
            while self._steps > self._steps_kept and len(self._records) > 1:
                _, oldest = self._records.popitem(last=False)
                self._steps -= _weight(oldest)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()
            self._steps = 0


def _weight(record: WorkflowRecord) -> int:
    return len(record.steps) + 1
