"""Runs an execution in this process: `orchestrator run --local`.

The steps run in threads. This thread shows the progress, and ends the command at a signal: what is in a
SQLite file can be continued then, as after a crash.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import InvalidEvent, RecordNotFound, StartRejected, StoreError
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.backend import Backend
from orchestrator.backend.sqlite.store import SqliteStore
from orchestrator.cli.errors import InterruptedBySignal, InvalidRequest
from orchestrator.cli.execution_lock import lock_execution
from orchestrator.cli.interruption import Interrupted
from orchestrator.cli.local_options import ONLY_UNFINISHED, LocalOptions
from orchestrator.cli.options import add_current_directory
from orchestrator.cli.output.formatting import format_error
from orchestrator.cli.output.forwarded_output import ForwardedOutput
from orchestrator.cli.output.progress import Progress
from orchestrator.cli.output.values import redact_value
from orchestrator.local.workflow import Workflow
from orchestrator.settings import Settings

POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class LocalStart:
    """A workflow to start; `options` are further arguments of Backend.create()."""

    loaded: LoadedSpec
    inputs: dict[str, Any]
    children: Mapping[str, LoadedSpec] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def run_local(
    local: LocalOptions, start: LocalStart | None, executors: Sequence[str], progress: Progress
) -> StatusView:
    """Start an execution, or without a start continue one, and run it to its end."""
    settings = Settings.from_environment()
    add_current_directory()
    with _open_store(local) as store:
        more: dict[str, Any] = {} if local.threads is None else {"threads": local.threads}
        modules = list(executors or settings.executors)
        backend = Backend(modules, store=store, settings=settings, **more)
        if start is not None:
            weid = _start(backend, start)
        else:
            assert store is not None, "check_other_options() asks for --db"
            weid = find_execution(store, str(local.db), local.resume or ONLY_UNFINISHED)
        execution_id = backend.load(weid).execution_id
        lock = nullcontext() if local.db is None else lock_execution(local.db, execution_id)
        with lock:
            return _run(Workflow(weid, backend), _Continuation(local.db, execution_id, executors), progress)


@contextmanager
def _open_store(local: LocalOptions) -> Iterator[SqliteStore | None]:
    if local.db is None:
        yield None
        return
    if local.resume is not None and not os.path.exists(local.db):
        raise InvalidRequest(f"there is no file {local.db!r}, so nothing can be continued")
    try:
        # As an absolute path: to SQLite, a name such as :memory: is not that of a file.
        store = SqliteStore(os.path.abspath(local.db))
    except StoreError as error:
        raise InvalidRequest(f"cannot use --db: {error}") from error
    try:
        yield store
    finally:
        store.close()


def _start(backend: Backend, start: LocalStart) -> str:
    for name, child in start.children.items():
        backend.register(name, child.document)
    options = {name: value for name, value in start.options.items() if value is not None}
    try:
        return backend.create(start.loaded.document, start.inputs, **options)
    except InvalidEvent as error:
        raise StartRejected(str(error)) from error


# ---- finding an execution to continue


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


# ---- running it


@dataclass(frozen=True, slots=True)
class _Continuation:
    """How an execution can be continued."""

    db: str | None
    execution_id: str
    executors: Sequence[str]

    @property
    def command(self) -> str:
        assert self.db is not None
        modules = [word for name in self.executors for word in ("--executors", name)]
        words = ["orchestrator", "run", "--local", "--db", self.db, "--resume", self.execution_id, *modules]
        return shlex.join(words)

    def describe(self) -> str:
        if self.db is None:
            return "nothing was kept; with --db FILE it could be continued"
        return f"continue it with: {self.command}"


def _run(workflow: Workflow, continuation: _Continuation, progress: Progress) -> StatusView:
    kept = "nothing is kept" if continuation.db is None else f"kept in {continuation.db}"
    progress.print_text(f"local: {continuation.execution_id} runs in this process; {kept}")
    try:
        with redirect_stdout(ForwardedOutput(progress.print_text)):
            view = _follow(workflow, progress)
    except Interrupted as error:
        raise InterruptedBySignal(error.number, continuation.describe()) from None
    webhook = view.record.items.get(WEBHOOK_UNIT)
    if webhook is not None and not webhook.is_final:
        problem = format_error(redact_value(view.record, webhook.error)) if webhook.error else "no reply"
        again = "" if continuation.db is None else f"; try again with: {continuation.command}"
        progress.print_text(f"the webhook was not delivered: {problem}{again}")
    return view


def _follow(workflow: Workflow, progress: Progress) -> StatusView:
    """Run the execution in another thread, and show its progress."""
    run, pause_s = _RunThread(workflow), POLL_INTERVAL_S
    run.start()
    while not run.has_ended(pause_s):
        began = time.monotonic()
        progress.show(_read_view(workflow), workflow.history)
        # A large workflow takes longer to read: spend at most a tenth of the time on it.
        pause_s = max(POLL_INTERVAL_S, 10 * (time.monotonic() - began))
    view = _read_view(workflow)
    progress.show(view, workflow.history)
    return view


def _read_view(workflow: Workflow) -> StatusView:
    jobs = workflow.backend.list_pending_jobs()
    queued = {job.step_id for job in jobs if job.workflow_execution_id == workflow.id}
    return StatusView(workflow.backend.load(workflow.id), queued)


class _RunThread(threading.Thread):
    """Runs an execution. The process does not wait for it at its end."""

    def __init__(self, workflow: Workflow) -> None:
        super().__init__(name="run", daemon=True)
        self._workflow = workflow
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._workflow.run()
        except BaseException as error:
            self._error = error

    def has_ended(self, timeout_s: float) -> bool:
        """Wait for its end; raises the exception that has ended it."""
        self.join(timeout_s)
        if self._error is not None:
            raise self._error
        return not self.is_alive()
