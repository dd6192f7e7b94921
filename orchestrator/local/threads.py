"""Daemon threads of this process that are used again: an idle one waits a while for the next function.

A thread whose function hangs is never idle again; the next function gets another thread.

A function may return a lock, which its thread releases before it waits for the next function. A thread that
waits for this lock finds the interpreter free: if it were woken before, it would have to wait once more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count

IDLE_S = 5.0
"""How long a thread waits for the next function before it ends."""

_lock = threading.Lock()
_idle: list[_Thread] = []
_numbers = count(1)


Function = Callable[[], "threading.Lock | None"]


def run_in_thread(function: Function) -> None:
    """Call a function in an idle thread, or in a new one. The function must not raise."""
    with _lock:
        thread = _idle.pop() if _idle else None
    if thread is None:
        thread = _Thread(function)
        thread.start()
    else:
        thread.assign(function)


class _Thread(threading.Thread):
    def __init__(self, function: Function) -> None:
        super().__init__(name=f"orchestrator-{next(_numbers)}", daemon=True)
        self._function: Function | None = function
        self._assigned = threading.Lock()
        self._assigned.acquire()

    def assign(self, function: Function) -> None:
        self._function = function
        self._assigned.release()

    def run(self) -> None:
        while self._function is not None:
            awaited = self._function()
            self._function = None  # so that an idle thread keeps nothing alive
            with _lock:
                _idle.append(self)
            if awaited is not None:
                awaited.release()
                awaited = None
            if not self._assigned.acquire(timeout=IDLE_S):
                self._end()

    def _end(self) -> None:
        """End, unless a function was assigned at this moment."""
        with _lock:
            if self in _idle:
                _idle.remove(self)
                return
        self._assigned.acquire()


def _forget_threads() -> None:
    """In a forked child: its parent's threads do not exist here."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_threads)
