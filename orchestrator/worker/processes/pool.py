"""Several workers under one parent, which begins them, and begins those again that died.

Who ends without having been asked is begun again too, unless all is over when the queues are empty: a step
may have told its worker to stop.

The parent does nothing else and holds no connection. A worker whose parent is gone stops as if it had been
asked to: it finishes what it runs.
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
    def __init__(self, run_worker: Callable[[], Any], processes: int, burst: bool) -> None:
        self._run_worker, self._burst = run_worker, burst
        self._began_at: dict[int, float] = {}
        self._missing = processes
        self._asked = False
        self._backoff = RestartBackoff()
        self._reading, self._lifeline = os.pipe()

    def serve(self) -> int:
        """Until SIGTERM, or in a burst until all have ended; the exit code is that of the last to fail."""
        for number in SIGNALS:
            signal.signal(number, self._ask)
        code = 0
        while self._began_at or (self._missing and not self._asked):
            if self._missing and not self._asked and self._backoff.is_over:
                self._begin()
            elif (ended := self._ended()) is None:
                time.sleep(TICK_S)
            else:
                code = ended or code
        return code if not self._asked else 0

    def _begin(self) -> None:
        pid = fork(self._run_child)
        self._missing -= 1
        self._began_at[pid] = time.monotonic()
        if self._asked:  # it came while we forked
            os.kill(pid, signal.SIGTERM)

    def _run_child(self) -> None:
        os.close(self._lifeline)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=self._wait_for_the_end, name="parent", daemon=True).start()
        self._run_worker()

    def _ended(self) -> int | None:
        """The exit code of a worker that has ended; one that was to go on is missed from now on."""
        pid, status = os.waitpid(-1, os.WNOHANG) if self._began_at else (0, 0)
        if pid not in self._began_at:
            return None
        began_at = self._began_at.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if self._asked or (self._burst and code == 0):
            return code
        logger.warning("worker process %d ended (%d): another one begins", pid, code)
        self._missing += 1
        self._backoff.on_death(began_at)
        return 0

    def _ask(self, *_: object) -> None:
        self._asked = True
        self._stop()

    def _stop(self) -> None:
        for pid in self._began_at:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _wait_for_the_end(self) -> None:
        """In a child: nothing is ever written; the pipe ends with the parent."""
        os.read(self._reading, 1)
        os.kill(os.getpid(), signal.SIGTERM)
