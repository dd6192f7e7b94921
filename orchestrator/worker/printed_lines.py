"""Keeps the lines that an executor prints in the step log of its run. They reach the standard output as well.

It sees what Python writes to sys.stdout: print(), also in threads of the executor if the run has the process
to itself, and in coroutines. It does not see the output of other programs, of processes that the executor
forks, or of os.write().
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from typing import Any

from orchestrator.application.records.step_log import MAX_LINE_LENGTH
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.worker.log_scrubbing import scrub_logs

_run: ContextVar[PrintedLines | None] = ContextVar("printed lines", default=None)
"""The run of the current thread, or of the current task of an event loop."""
_process_run: PrintedLines | None = None
"""The run that owns the whole process."""

_lock = threading.Lock()
_runs = 0
"""How many runs of this process are kept. They share one stream."""


class PrintedLines:
    """Within the block, keeps the printed lines of one run, without its secrets. `keep` takes a line."""

    def __init__(
        self, keep: Callable[[str], object], redactor: ValueRedactor, *, owns_process: bool = False
    ) -> None:
        self._keep, self._redactor, self._owns_process = keep, redactor, owns_process
        self._scrubbing = scrub_logs(redactor)
        self._lock = threading.Lock()
        self._rest = ""
        self._token: Token[PrintedLines | None] | None = None
        self.process = os.getpid()

    def __enter__(self) -> PrintedLines:
        global _process_run
        _install()
        self._token = _run.set(self)
        if self._owns_process:
            _process_run = self
        self._scrubbing.__enter__()  # its stream is above ours, so we get what it has scrubbed
        return self

    def __exit__(self, *problem: Any) -> None:
        global _process_run
        self._scrubbing.__exit__(*problem)
        if self._owns_process:
            _process_run = None
        if self._token is not None:
            _run.reset(self._token)
        _uninstall()
        if self._rest:
            self.add("\n")

    def add(self, text: str) -> None:
        """Keep the lines that this text ends. The rest waits for the end of its line, within a limit."""
        with self._lock:
            *lines, rest = (self._rest + text).split("\n")
            self._rest = rest[: MAX_LINE_LENGTH + 1]
        for line in lines:
            self._keep(self._redactor.redact_text(line) if self._redactor else line)


class KeptStream:
    """Passes on the text that is written, and adds it to the run that writes; every other attribute is that
    of the wrapped stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        written: int = self.stream.write(text)
        run = _run.get() or _process_run
        # A process that an executor has forked must not use the connections of this one.
        if run is not None and run.process == os.getpid():
            run.add(text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _install() -> None:
    global _runs
    with _lock:
        _runs += 1
        if _runs == 1:
            sys.stdout = KeptStream(sys.stdout)


def _uninstall() -> None:
    """Restore the stream, unless other code has replaced ours meanwhile."""
    global _runs
    with _lock:
        _runs -= 1
        if _runs == 0 and isinstance(sys.stdout, KeptStream):
            sys.stdout = sys.stdout.stream
