"""Finds the execution in a SQLite file that `orchestrator run --resume` continues."""

from __future__ import annotations

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.sqlite.store import SqliteStore
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.local_options import ONLY_UNFINISHED


def find_execution(store: SqliteStore, db: str, execution_id: str) -> str:
    """The full id of an execution; with ONLY_UNFINISHED, of the only one that has not ended."""
    if execution_id != ONLY_UNFINISHED:
        return _find_by_id(store, db, execution_id)
    found = _find_unfinished(store)
    if not found:
        raise InvalidRequest(
            f"{db} has no unfinished execution; --resume EXECUTION prints the result of a finished one again"
        )
    if len(found) > 1:
        lines = (f"  {_describe(record)}" for record in found)
        raise InvalidRequest(
            "\n".join([f"{db} has {len(found)} unfinished executions; name one with --resume:", *lines])
        )
    return found[0].workflow_execution_id


def _find_by_id(store: SqliteStore, db: str, execution_id: str) -> str:
    try:
        record = store.load(execution_id)
    except RecordNotFound:
        known = ", ".join(record.execution_id for record in _find_unfinished(store)) or "none"
        raise InvalidRequest(f"{db} has no execution {execution_id!r}; unfinished ones: {known}") from None
    root = _find_root(store, record)
    if root is not record:
        raise InvalidRequest(
            f"{execution_id!r} is a child of {root.execution_id!r}: continue that, and with it the child"
        )
    return record.workflow_execution_id


def _find_unfinished(store: SqliteStore) -> list[WorkflowRecord]:
    """The executions that have not ended, or have children that have not, the oldest first."""
    roots = (_find_root(store, store.load(weid)) for weid in store.list_open())
    by_id = {record.workflow_execution_id: record for record in roots}
    return sorted(by_id.values(), key=lambda record: record.created_at)


def _find_root(store: SqliteStore, record: WorkflowRecord) -> WorkflowRecord:
    while record.parent is not None:
        record = store.load(record.parent.execution)
    return record


def _describe(record: WorkflowRecord) -> str:
    return f"{record.execution_id}  {record.spec.name or 'workflow'}, started at {record.created_at}"
