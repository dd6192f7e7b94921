"""The pool: several workers under one parent, which starts them and restarts those that end.

A worker that exits with code 0 before the pool is asked to stop is restarted too, because a step may have
told its worker to stop. Only with `burst` does it count as finished.

The parent does nothing else and holds no connection. A worker whose parent has died stops as after SIGTERM:
it finishes its steps first.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from orchestrator.worker.processes.forking import RestartBackoff, fork

logger = logging.getLogger(__name__)

TICK_S = 0.2
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Pool:
    """Keeps `processes` workers running. Each calls `run_worker` in a process of its own."""

    def __init__(self, run_worker: Callable[[], Any], processes: int, burst: bool) -> None:
        self._run_worker, self._burst = run_worker, burst
        self._started_at: dict[int, float] = {}
        self._missing = processes
        self._is_stopping = False
        self._backoff = RestartBackoff()
        self._lifeline_reader, self._lifeline_writer = os.pipe()

    def serve(self) -> int:
        """Run until SIGTERM; with `burst`, until all workers have ended. Returns the exit code of the last
        worker that failed, or 0 after SIGTERM."""
        for number in SIGNALS:
            signal.signal(number, self._stop)
        exit_code = 0
        while self._started_at or (self._missing and not self._is_stopping):
            if self._missing and not self._is_stopping and self._backoff.is_over:
                self._start_worker()
            elif (worker_code := self._reap_worker()) is None:
                time.sleep(TICK_S)
            else:
                exit_code = worker_code or exit_code
        return exit_code if not self._is_stopping else 0

    def _start_worker(self) -> None:
        pid = fork(self._run_child)
        self._missing -= 1
        self._started_at[pid] = time.monotonic()
        if self._is_stopping:  # the signal arrived during the fork
            os.kill(pid, signal.SIGTERM)

    def _run_child(self) -> None:
        os.close(self._lifeline_writer)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=self._stop_with_parent, name="parent", daemon=True).start()
        self._run_worker()

    def _reap_worker(self) -> int | None:
        """The exit code of a worker that has ended, or None. A worker that must be restarted counts as 0."""
        pid, status = os.waitpid(-1, os.WNOHANG) if self._started_at else (0, 0)
        if pid not in self._started_at:
            return None
        started_at = self._started_at.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if self._is_stopping or (self._burst and code == 0):
            return code
        logger.warning("worker process %d ended (%d); starting another one", pid, code)
        self._missing += 1
        self._backoff.on_death(started_at)
        return 0

    def _stop(self, *_: object) -> None:
        """The signal handler: ask all workers to stop."""
        self._is_stopping = True
        for pid in self._started_at:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _stop_with_parent(self) -> None:
        """In a worker: stop when the parent has died. No data is ever written to the pipe; it ends then."""
        os.read(self._lifeline_reader, 1)
        os.kill(os.getpid(), signal.SIGTERM)
