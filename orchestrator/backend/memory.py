"""InMemoryStore and InProcessRunner: for one process and for tests. The simplest implementations to read."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from threading import RLock
from typing import Any

from orchestrator.application.errors import RecordExists, RecordNotFound
from orchestrator.application.records.changes import apply_item_changes, drop_state_keys
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.delta import build_delta
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_log import MAX_LINES_PER_EXECUTION, LogLine
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.backend.copies import copy_json, dumps, isolate_job, isolate_record, to_plain_json
from orchestrator.backend.ids import next_version, random_nonce, step_run_key
from orchestrator.backend.payloads import MemoryPayloads
from orchestrator.backend.ports import Commit, Committed, check_version
from orchestrator.backend.results import ResultPairs, as_pairs, make_result
from orchestrator.backend.shared_state import MemorySharedState


@dataclass(slots=True)
class _StoredExecution:
    """One execution in the store. Its values are shared with the committed record, and never changed."""

    fields: dict[str, Any]
    steps: dict[str, StepRecord]
    items: dict[str, StepRecord]
    state: dict[str, Any]
    history: list[dict[str, Any]]

    def record(self) -> WorkflowRecord:
        return WorkflowRecord(**self.fields, steps=self.steps, items=self.items, state=self.state)


class InMemoryStore:
    """Keeps records in the memory of this process."""

    def __init__(self, nonce: Callable[[], str] = random_nonce) -> None:
        self._nonce = nonce
        self.shared_state = MemorySharedState()
        self.payloads = MemoryPayloads()
        self._executions: dict[str, _StoredExecution] = {}
        self._full_ids: dict[str, str] = {}
        self._lines: dict[str, deque[LogLine]] = {}
        self._lock = RLock()

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        with self._lock:
            return isolate_record(self._executions[self.full_id(workflow_execution_id)].record())

    def full_id(self, execution_id: str) -> str:
        """The workflow_execution_id for an execution id; a full id is returned as it is."""
        full_id = execution_id if execution_id in self._executions else self._full_ids.get(execution_id)
        if full_id is None:
            raise RecordNotFound(execution_id)
        return full_id

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]:
        with self._lock:
            return [
                copy_json(entry) for entry in self._executions[self.full_id(workflow_execution_id)].history
            ]

    def add_log_lines(self, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
        with self._lock:
            if workflow_execution_id in self._executions:
                log = self._lines.setdefault(workflow_execution_id, deque(maxlen=MAX_LINES_PER_EXECUTION))
                log.extend(lines)

    def log_lines(self, workflow_execution_id: str) -> list[LogLine]:
        with self._lock:
            return list(self._lines.get(self.full_id(workflow_execution_id), ()))

    def write(self, record: WorkflowRecord) -> None:
        weid = record.workflow_execution_id
        with self._lock:
            if self._full_ids.get(record.execution_id, weid) != weid:
                raise RecordExists(record.execution_id)
            copy = isolate_record(record, to_plain_json)
            before = self._executions.get(weid)
            check_version(record, before.fields["version"] if before else None)
            copy.version = next_version(record.version, self._nonce())
            self._put(copy, before.history if before else [])
            record.version = copy.version

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        with self._lock:
            results = []
            for commit in commits:  # a comprehension would cost a call, and most calls have one commit
                results.append(self._commit(commit))
            return results

    def _commit(self, commit: Commit) -> Committed:
        record, changes = commit.record, commit.changes
        stored = self._executions.get(record.workflow_execution_id)
        rejection = self._find_rejection(commit) if commit.creates or commit.pending_refs else None
        if rejection is not None:
            return rejection
        if commit.creates:
            stored = self._put(record, [])
        elif stored is None or stored.fields["version"] != record.version:
            return Committed.CONFLICT
        elif changes.is_empty:
            self.shared_state.apply(commit)
            return Committed.YES
        self.shared_state.apply(commit)
        if changes.deletes_execution:
            self._drop(record)
            return Committed.YES
        version = next_version(record.version, self._nonce())
        if commit.has_delta:
            commit.delta = build_delta(record, changes, version, dumps, creates=commit.creates)
            commit.delta.note_in(record)
        record.version = version
        stored.fields.update(changes.fields, version=version, delta=record.delta)
        stored.steps.update(changes.steps)
        if changes.items:
            apply_item_changes(stored.items, changes)
        stored.state.update(changes.state)
        if changes.dropped_state:
            drop_state_keys(stored.state, changes)
        stored.history.extend(changes.history)
        if commit.delta is not None and commit.delta.text:
            stored.history.append(json.loads(commit.delta.text))
        return Committed.YES

    def _find_rejection(self, commit: Commit) -> Committed | None:
        rejection = self.shared_state.find_rejection(commit)
        if rejection is not None or not commit.creates:
            return rejection
        record = commit.record
        if record.parent is not None:
            parent = self._executions.get(record.parent.execution)
            if parent is None or parent.steps[record.parent.step_id].token != record.parent.token:
                return Committed.ORPHAN
        existing = self._full_ids.get(record.execution_id)
        if existing is None:
            return None
        if commit.replaces is None or self._executions[existing].fields["version"] != commit.replaces.version:
            return Committed.EXISTS
        self._drop(commit.replaces)
        return None

    def _drop(self, record: WorkflowRecord) -> None:
        """Delete an execution; MemorySharedState deletes its shared data."""
        del self._executions[record.workflow_execution_id]
        self._lines.pop(record.workflow_execution_id, None)
        del self._full_ids[record.execution_id]

    def _put(self, record: WorkflowRecord, history: list[dict[str, Any]]) -> _StoredExecution:
        weid = record.workflow_execution_id
        values = {name: getattr(record, name) for name in _FIELDS}
        stored = _StoredExecution(values, dict(record.steps), dict(record.items), dict(record.state), history)
        self._executions[weid] = stored
        self._full_ids[record.execution_id] = weid
        return stored


_FIELDS = tuple(
    f.name for f in fields(WorkflowRecord) if f.init and f.name not in ("steps", "items", "state")
)


class InProcessRunner:
    """Jobs in the order of their dispatch and results in the order of their arrival, in two dictionaries.

    `payloads` is the payload store of the backend; workers of this runner use it too.
    """

    def __init__(self, payloads: PayloadStore | None = None) -> None:
        self.payloads = payloads
        self._pending: dict[str, DispatchJob] = {}
        self._results: dict[str, dict[str, ResultEvent]] = {}
        self._lock = RLock()

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        with self._lock:
            for job in jobs:
                key = step_run_key(job.workflow_execution_id, job.step_id, job.run_id)
                pending = self._pending.get(key)
                # Another token: the job of an earlier execution with the same id.
                if pending is None or pending.token != job.token:
                    self._pending[key] = isolate_job(job)
        return []

    def list_pending_jobs(self) -> list[DispatchJob]:
        with self._lock:
            return [isolate_job(job) for job in self._pending.values()]

    def take_pending_jobs(self) -> list[DispatchJob]:
        with self._lock:
            taken, self._pending = self._pending, {}
        return list(taken.values())

    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        with self._lock:
            self._pending = {**{_key(job): job for job in jobs}, **self._pending}

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        self.submit(make_result(workflow_execution_id, step_id, output, job))

    def submit(self, result: ResultEvent) -> None:
        key = step_run_key(result.workflow_execution_id, result.step_id, result.run_id)
        with self._lock:
            job = self._pending.get(key)
            if job is not None and result.token in (None, job.token):
                del self._pending[key]
            results = self._results.setdefault(result.workflow_execution_id, {})
            results.setdefault(f"{key}|{result.token}", result)

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        return as_pairs(self.results(workflow_execution_id))

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        with self._lock:
            return list(self._results.pop(workflow_execution_id, {}).values())

    def held_tokens(self, workflow_execution_id: str) -> set[str]:
        with self._lock:
            jobs = list(self._pending.values())
            results = list(self._results.get(workflow_execution_id, {}).values())
        pending = {job.token for job in jobs if job.workflow_execution_id == workflow_execution_id}
        return pending | {result.token for result in results if result.token is not None}


def _key(job: DispatchJob) -> str:
    return step_run_key(job.workflow_execution_id, job.step_id, job.run_id)
