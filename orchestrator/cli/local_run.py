"""Runs an execution in this process: `orchestrator run --local`.

The steps run in threads. This thread shows the progress, and ends the command at a signal: what is in a
SQLite file can be continued then, as after a crash.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import ExecutorNotFound, InvalidEvent, StartRejected, StoreError
from orchestrator.application.explain.formatting import format_error
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.backend import Backend
from orchestrator.backend.memory import InMemoryStore
from orchestrator.backend.sqlite.store import SqliteStore
from orchestrator.cli.errors import InterruptedBySignal, InvalidRequest
from orchestrator.cli.execution_lock import lock_execution
from orchestrator.cli.interruption import Interrupted
from orchestrator.cli.kept_executions import find_execution
from orchestrator.cli.local_options import ONLY_UNFINISHED, LocalOptions
from orchestrator.cli.options import add_current_directory
from orchestrator.cli.output.forwarded_output import ForwardedOutput
from orchestrator.cli.output.progress import Progress
from orchestrator.cli.output.values import redact_value
from orchestrator.invocation.executors import Executors, find_executor, resolve_executors
from orchestrator.local.workflow import Workflow
from orchestrator.settings import THREADS, Settings

POLL_INTERVAL_S = 0.1
EXECUTORS_ADVICE = "name its module with --executors, as at the start"


@dataclass(frozen=True, slots=True)
class LocalStart:
    """A workflow to start; `options` are further arguments of Backend.create()."""

    loaded: LoadedSpec
    inputs: dict[str, Any]
    children: Mapping[str, LoadedSpec] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def run_local(
    local: LocalOptions, start: LocalStart | None, modules: Sequence[str], progress: Progress
) -> StatusView:
    """Start an execution, or without a start continue one, and run it to its end."""
    settings = Settings.from_environment()
    add_current_directory()
    executors = resolve_executors(list(modules or settings.executors))
    with _open_store(local) as store:
        if start is not None:
            weid = _start(Backend(store=store, settings=settings), start)
        else:
            assert isinstance(store, SqliteStore), "check_other_options() asks for --db"
            weid = find_execution(store, str(local.db), local.resume or ONLY_UNFINISHED)
            _check_executors(executors, store.load(weid))
        execution_id = store.load(weid).execution_id
        with lock_execution(local.db, execution_id) if local.db is not None else nullcontext():
            # A backend takes the dispatches for lost that are older than itself. While another process has
            # the lock it may dispatch, so the backend is made after that.
            threads = local.threads or THREADS
            backend = Backend(executors, store=store, settings=settings, threads=threads)
            return _run(Workflow(weid, backend), _Continuation(local.db, execution_id, modules), progress)


@contextmanager
def _open_store(local: LocalOptions) -> Iterator[SqliteStore | InMemoryStore]:
    if local.db is None:
        yield InMemoryStore()
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


def _check_executors(executors: Callable[..., Any] | Executors, record: WorkflowRecord) -> None:
    """Reject a continuation that lacks an executor: its step would fail, and the execution with it."""
    if record.is_final:
        return
    for step in record.spec.steps:
        if step.fn and not record.steps[step.id].is_final:
            try:
                find_executor(executors, step.fn)
            except ExecutorNotFound as error:
                raise InvalidRequest(f"step {step.id!r}: {error}; {EXECUTORS_ADVICE}") from None


@dataclass(frozen=True, slots=True)
class _Continuation:
    """How an execution can be continued."""

    db: str | None
    execution_id: str
    modules: Sequence[str]

    @property
    def command(self) -> str:
        assert self.db is not None
        options = [word for name in self.modules for word in ("--executors", name)]
        words = ["orchestrator", "run", "--local", "--db", self.db, "--resume", self.execution_id, *options]
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
        progress.show(workflow.backend.status_view(workflow.id), workflow.history)
        # A large workflow takes longer to read: spend at most a tenth of the time on it.
        pause_s = max(POLL_INTERVAL_S, 10 * (time.monotonic() - began))
    view = workflow.backend.status_view(workflow.id)
    progress.show(view, workflow.history)
    return view


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
