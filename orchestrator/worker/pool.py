"""Several workers under one parent, which begins them, and begins those again that died.

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
from typing import Any, NoReturn

from orchestrator.redis_rq.connection import back_off

logger = logging.getLogger(__name__)

TICK_S = 0.2
QUICK_DEATH_S = 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Pool:
    def __init__(self, be_a_worker: Callable[[], Any], processes: int) -> None:
        self._be_a_worker, self._processes = be_a_worker, processes
        self._began_at: dict[int, float] = {}
        self._missing = processes
        self._asked = False
        self._pauses, self._not_before = back_off(0.1, 10.0), 0.0
        self._reading, self._lifeline = os.pipe()

    def serve(self) -> int:
        """Until SIGTERM, or until all have ended by themselves; the exit code is that of the last to fail."""
        for number in SIGNALS:
            signal.signal(number, self._ask)
        code = 0
        while self._began_at or (self._missing and not self._asked):
            if self._missing and not self._asked and time.monotonic() >= self._not_before:
                self._begin()
            elif (ended := self._ended()) is None:
                time.sleep(TICK_S)
            else:
                code = ended or code
        return code if not self._asked else 0

    def _begin(self) -> None:
        pid = os.fork()
        if pid == 0:
            os.close(self._lifeline)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            threading.Thread(target=self._wait_for_the_end, name="parent", daemon=True).start()
            _be(self._be_a_worker)
        self._missing -= 1
        self._began_at[pid] = time.monotonic()
        if self._asked:  # it came while we forked
            os.kill(pid, signal.SIGTERM)

    def _ended(self) -> int | None:
        """The exit code of a worker that has ended; one that fell is missed from now on."""
        pid, status = os.waitpid(-1, os.WNOHANG) if self._began_at else (0, 0)
        if pid not in self._began_at:
            return None
        lived_s = time.monotonic() - self._began_at.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == 0 or self._asked:
            return code
        logger.warning("worker process %d died (%d): another one begins", pid, code)
        self._missing += 1
        if lived_s < QUICK_DEATH_S:
            self._not_before = time.monotonic() + next(self._pauses)
        else:
            self._pauses = back_off(0.1, 10.0)
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


def _be(be_a_worker: Callable[[], Any]) -> NoReturn:
    """In the child: it never returns into the code of its parent."""
    code = 1
    try:
        be_a_worker()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        logger.exception("this worker ends")
    finally:
        logging.shutdown()
        os._exit(code)
