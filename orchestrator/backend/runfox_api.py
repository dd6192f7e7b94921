"""Compatibility with programs written for runfox: its Backend methods, and stores that only load and write.

Each method loads a record, changes it and writes it as a whole. Decisions never use these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from orchestrator.application.errors import StoreError
from orchestrator.application.records.decisions import DispatchJob, StateChangeEvent
from orchestrator.application.records.events import Parent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.backend.copies import to_plain_json
from orchestrator.backend.ids import next_version, random_nonce
from orchestrator.backend.ports import Commit, Committed, Store
from orchestrator.backend.shared_state import MemorySharedState


class RunfoxHost(Protocol):
    """What the class must have that RunfoxMethods is mixed into."""

    clock: Callable[[], int]
    nonce: Callable[[], str]

    def load(self, workflow_execution_id: str) -> WorkflowRecord: ...

    def write(self, record: WorkflowRecord) -> None: ...

    def list_pending_jobs(self) -> list[DispatchJob]: ...

    def take_pending_jobs(self) -> list[DispatchJob]: ...

    def submit_work_result(self, workflow_execution_id: str, step_id: str, output: Any) -> None: ...

    def report_state_change(
        self, weid: str, before: dict[str, Any], after: dict[str, Any], event: StateChangeEvent | None
    ) -> None: ...


class RunfoxMethods:
    """The methods of runfox's Backend, under its names."""

    def pending_tasks(self: RunfoxHost) -> list[DispatchJob]:
        return self.list_pending_jobs()

    def take_tasks(self: RunfoxHost) -> list[DispatchJob]:
        return self.take_pending_jobs()

    def submit_result(self: RunfoxHost, workflow_execution_id: str, step_id: str, output: Any) -> None:
        self.submit_work_result(workflow_execution_id, step_id, output)

    def mark_in_progress(self: RunfoxHost, workflow_execution_id: str, step_id: str) -> None:
        record = self.load(workflow_execution_id)
        record.status = WorkflowStatus.IN_PROGRESS
        claimed = {"token": self.nonce(), "dispatched_at": iso(self.clock()), "ended_at": None}
        _put(self, record, step_id, status=StepStatus.IN_PROGRESS, **claimed)

    def mark_complete(self: RunfoxHost, workflow_execution_id: str, step_id: str) -> None:
        ended = {"token": None, "ended_at": iso(self.clock())}
        _put(self, self.load(workflow_execution_id), step_id, status=StepStatus.COMPLETE, **ended)

    def mark_halted(self: RunfoxHost, workflow_execution_id: str, step_id: str) -> None:
        record = self.load(workflow_execution_id)
        record.status = WorkflowStatus.HALTED
        _put(self, record, step_id, status=StepStatus.HALTED, token=None, ended_at=iso(self.clock()))

    def write_step_output(self: RunfoxHost, workflow_execution_id: str, step_id: str, output: Any) -> None:
        _put(self, self.load(workflow_execution_id), step_id, output=to_plain_json(output))

    def merge_workflow_state(
        self: RunfoxHost,
        workflow_execution_id: str,
        output: dict[str, Any] | None,
        event: StateChangeEvent | None = None,
    ) -> None:
        if output:
            record = self.load(workflow_execution_id)
            before, record.state = record.state, {**record.state, **to_plain_json(output)}
            self.write(record)
            self.report_state_change(workflow_execution_id, before, record.state, event)

    def write_workflow_outcome(self: RunfoxHost, workflow_execution_id: str, outcome: Any) -> None:
        record = self.load(workflow_execution_id)
        record.outcome, record.ended_at = to_plain_json(outcome), iso(self.clock())
        if record.status is not WorkflowStatus.HALTED:
            record.status = WorkflowStatus.COMPLETE
        self.write(record)

    def reset_step(self: RunfoxHost, workflow_execution_id: str, step_id: str) -> None:
        record = self.load(workflow_execution_id)
        step = record.steps[step_id]
        record.steps[step_id] = StepRecord(dispatches=step.dispatches)
        _put(self, record, step_id, run_id=step.run_id + 1, round=step.round + 1)

    def reset_for_retry(self: RunfoxHost, workflow_execution_id: str, step_id: str) -> None:
        record = self.load(workflow_execution_id)
        step = record.steps[step_id]
        unstarted = {"token": None, "dispatched_at": None, "started_at": None, "ended_at": None}
        counted = {"run_id": step.run_id + 1, "attempt": step.attempt + 1}
        _put(self, record, step_id, status=StepStatus.RETRY, **unstarted, **counted)


def _put(backend: RunfoxHost, record: WorkflowRecord, step_id: str, **changes: Any) -> None:
    record.steps[step_id] = record.steps[step_id].with_changes(**changes)
    backend.write(record)


def ensure_commit(store: Store) -> Store:
    """The store itself, or an adapter that commits by loading and writing if the store has no commit()."""
    has_commit = getattr(type(store), "commit", Store.commit) is not Store.commit
    return store if has_commit else LoadWriteStore(store)


class SharedStateAdapter:
    """Adds shared state, in memory, to a store that only keeps records."""

    def __init__(self, store: Store) -> None:
        self._store, self.shared_state = store, MemorySharedState()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        return self._store.load(workflow_execution_id)

    def write(self, record: WorkflowRecord) -> None:
        self._store.write(record)

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        return [self._commit(commit) for commit in commits]

    def _commit(self, commit: Commit) -> Committed:
        rejection = self.shared_state.find_rejection(commit)
        if rejection is not None:
            return rejection
        if commit.creates and not self._is_awaited(commit.record.parent):
            return Committed.ORPHAN
        [result] = self._store.commit([commit])
        if result is Committed.YES:
            self.shared_state.apply(commit)
        return result

    def _is_awaited(self, parent: Parent | None) -> bool:
        if parent is None:
            return True
        step = self._store.load(parent.execution).steps[parent.step_id]
        return step.token == parent.token


class LoadWriteStore:
    """Commits by a load, a version check and a write. Not atomic: only for a single process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        return self._store.load(workflow_execution_id)

    def write(self, record: WorkflowRecord) -> None:
        self._store.write(record)

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        return [self._commit(commit) for commit in commits]

    def _commit(self, commit: Commit) -> Committed:
        record, changes = commit.record, commit.changes
        stored = self._find(record.workflow_execution_id)
        if changes.deletes_execution:
            raise StoreError(f"{type(self._store).__name__} cannot delete executions")
        if commit.creates:
            if stored is not None and (commit.replaces is None or stored.version != commit.replaces.version):
                return Committed.EXISTS
            stored = replace(record, steps=dict(record.steps), state=dict(record.state))
        elif stored is None or stored.version != record.version:
            return Committed.CONFLICT
        elif changes.is_empty:
            return Committed.YES
        stored.version = next_version(record.version, random_nonce())
        stored.apply(replace(changes, readiness=None))
        self._store.write(stored)
        record.version = stored.version
        return Committed.YES

    def _find(self, workflow_execution_id: str) -> WorkflowRecord | None:
        try:
            return self._store.load(workflow_execution_id)
        except KeyError:
            return None
