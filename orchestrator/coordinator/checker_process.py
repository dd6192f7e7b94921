"""ProcessChecker: checks documents in a process of its own, which can be killed.

    coordinator ─ submit ─▸ thread ─ text ─▸ child process
                ◂ finished ─       ◂ spec ─

A document that is too large for a turn may take seconds to check, and much memory. The child pays for both. A
thread of the coordinator waits for the child, and reads the spec that it has made.

    the check takes too long         the child is killed; the document is rejected
    the child dies during a check    another child checks the document once more; if that one dies too, the
                                     document is rejected
    the coordinator stops or dies    the child dies with it; the starts are still pending, and another
                                     coordinator checks their documents again
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pickle import UnpicklingError
from queue import SimpleQueue
from typing import IO, cast

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.values.document_limits import TOO_BIG_HINT
from orchestrator.coordinator.checker_codec import (
    Reply,
    dump_request,
    load_reply,
    read_message,
    write_message,
)
from orchestrator.coordinator.large_document import LargeDocument
from orchestrator.coordinator.waiting_events import Checked, CheckFailed

logger = logging.getLogger(__name__)

DEADLINE_S = 60.0
MAX_MEMORY = 2 * 1024**3
MAX_DEATHS = 2
JOIN_S = 1.0
CHILD = (sys.executable, "-m", "orchestrator.coordinator.checker_child")
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONTZPATH", "SYSTEMROOT", "TZ")
"""The variables that the child gets. It reads the documents of strangers, and needs no password."""


class ProcessChecker:
    """Starts its child with the first document, and again after it has died."""

    def __init__(
        self,
        command: Sequence[str] = CHILD,
        deadline_s: float = DEADLINE_S,
        max_memory: int = MAX_MEMORY,
    ) -> None:
        self._command, self._deadline_s, self._max_memory = command, deadline_s, max_memory
        self._submitted: SimpleQueue[LargeDocument | None] = SimpleQueue()
        self._finished: SimpleQueue[tuple[LargeDocument, Checked]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._child: _Child | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, document: LargeDocument) -> None:
        self._submitted.put(document)
        if self._thread is None:
            self._thread = threading.Thread(target=self._check_all, name="document checks", daemon=True)
            self._thread.start()

    def finished(self) -> list[tuple[LargeDocument, Checked]]:
        return [self._finished.get() for _ in range(self._finished.qsize())]

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._submitted.put(None)
            if self._child is not None:
                self._child.kill()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    # ---- in the thread

    def _check_all(self) -> None:
        while (document := self._submitted.get()) is not None and not self._is_closed:
            try:
                result = self._check(document)
            except Exception as error:  # for instance, no process can be started
                logger.exception("cannot check a document")
                result = CheckFailed(f"the document could not be checked: {type(error).__name__}: {error}")
            if not self._is_closed:
                self._finished.put((document, result))
        if self._child is not None:
            self._end(self._child)

    def _check(self, document: LargeDocument) -> Checked:
        cause = ""
        for _ in range(MAX_DEATHS):
            child = self._living_child()
            deadline = _Deadline(child, self._deadline_s)
            try:
                return _checked(child.ask(document))
            except (OSError, EOFError, UnpicklingError) as error:
                cause = self._end(child) if not isinstance(error, UnpicklingError) else str(error)
            finally:
                deadline.cancel()
            if self._is_closed:
                break
            if deadline.is_over:
                logger.warning("a document was not checked within %g s", self._deadline_s)
                return _rejected(f"the document could not be checked within {self._deadline_s:g} s")
            logger.warning("the process that checks documents died (%s)", cause)
        return _rejected(f"the process that checks documents died {MAX_DEATHS} times on this one ({cause})")

    def _living_child(self) -> _Child:
        with self._lock:
            if self._child is None:
                self._child = _Child(self._command, self._deadline_s, self._max_memory)
            if self._is_closed:
                self._child.kill()
            return self._child

    def _end(self, child: _Child) -> str:
        """Forget a child that replies no more; returns how it ended."""
        with self._lock:
            self._child = None
        return child.end()


class _Child:
    """A process that checks documents. It leads a session of its own: Ctrl-C in a terminal does not reach it,
    and it may kill its process group."""

    def __init__(self, command: Sequence[str], deadline_s: float, max_memory: int) -> None:
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        lifeline, self._lifeline = os.pipe()
        self._process = subprocess.Popen(
            [*command, str(lifeline), str(deadline_s), str(max_memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[lifeline],
            start_new_session=True,
        )
        os.close(lifeline)

    def ask(self, document: LargeDocument) -> Reply:
        """The reply to a document; OSError or EOFError when the process is gone."""
        write_message(cast("IO[bytes]", self._process.stdin), dump_request(document))
        return load_reply(read_message(cast("IO[bytes]", self._process.stdout)))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """Kill the process and close its pipes; returns how it ended."""
        self.kill()
        code = self._process.wait()
        os.close(self._lifeline)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # a part of the document was not read
                    stream.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _Deadline:
    """Kills a child after a time, unless it is cancelled before."""

    def __init__(self, child: _Child, after_s: float) -> None:
        self.is_over, self._child = False, child
        self._timer = threading.Timer(after_s, self._kill)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _kill(self) -> None:
        self.is_over = True
        self._child.kill()


def _checked(reply: Reply) -> Checked:
    if isinstance(reply, str):
        return CheckFailed(f"internal error: {reply}")
    return InvalidSpec(reply) if isinstance(reply, tuple) else reply


def _rejected(message: str) -> InvalidSpec:
    return InvalidSpec([Problem("", "too_big", message, TOO_BIG_HINT)])
