"""RecordCache: the open records that a backend keeps in memory between two decisions."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from orchestrator.application.records.record import WorkflowRecord

MAX_CACHED_STEPS = 200_000
MAX_CACHED_BYTES = 32 * 1024 * 1024
"""Of the values of all records and of their documents, as JSON. In memory they take several times as much."""


class RecordCache:
    """Bounded by the number of steps in its records, and by the bytes that were loaded and written for them;
    drops the least recently used record first. The newest record is always kept. Records with the same spec
    share it, so it counts once.

    A record that is popped belongs to the caller. Final records are not cached: no decision follows on them.
    """

    def __init__(
        self, max_cached_steps: int = MAX_CACHED_STEPS, max_cached_bytes: int = MAX_CACHED_BYTES
    ) -> None:
        self._max_cached_steps, self._max_cached_bytes = max_cached_steps, max_cached_bytes
        self._steps = self._bytes = 0
        self._records: OrderedDict[str, tuple[WorkflowRecord, int]] = OrderedDict()
        self._spec_users: dict[int, int] = {}
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        return self._bytes

    def pop(self, workflow_execution_id: str) -> WorkflowRecord | None:
        with self._lock:
            found = self._records.pop(workflow_execution_id, None)
            if found is None:
                return None
            self._subtract(*found)
            return found[0]

    def peek(self, workflow_execution_id: str) -> WorkflowRecord | None:
        """Return a record without removing it. The caller may read only what never changes."""
        with self._lock:
            found = self._records.get(workflow_execution_id)
            return None if found is None else found[0]

    def put(self, record: WorkflowRecord) -> None:
        weid = record.workflow_execution_id
        with self._lock:
            if weid in self._records:
                self._subtract(*self._records.pop(weid))
            if record.is_final:
                return
            self._records[weid] = (record, record.size)
            self._add(record)
            while len(self._records) > 1 and (
                self._steps > self._max_cached_steps or self._bytes > self._max_cached_bytes
            ):
                _, oldest = self._records.popitem(last=False)
                self._subtract(*oldest)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()
            self._spec_users.clear()
            self._steps = self._bytes = 0

    def _add(self, record: WorkflowRecord) -> None:
        loaded = record.loaded
        users = self._spec_users[id(loaded)] = self._spec_users.get(id(loaded), 0) + 1
        self._steps += len(record.steps) + 1
        self._bytes += record.size + (loaded.size if users == 1 else 0)

    def _subtract(self, record: WorkflowRecord, size: int) -> None:
        loaded = record.loaded
        users = self._spec_users.pop(id(loaded)) - 1
        if users:
            self._spec_users[id(loaded)] = users
        self._steps -= len(record.steps) + 1
        self._bytes -= size + (loaded.size if not users else 0)
