"""Decides when the process of a work-horse is recycled, that is, replaced by a new one.

Steps that run one after the other in one process leave traces: memory that is never freed, threads that keep
running, another working directory, other environment variables. A process is recycled after a number of
steps, when its memory has grown too much, and whenever a step has changed its state.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # ten times faster than signal.getsignal
from dataclasses import dataclass
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGPIPE)
OUR_THREADS = frozenset({"commands", "deadline", "lease", "step log", "supervisor", "watchdog"})
"""The threads of the worker itself. Some end a moment after their step."""


@dataclass(frozen=True, slots=True)
class RecyclingLimits:
    """When a process is recycled although no step has changed its state."""

    max_steps: int = 1_000
    max_growth_bytes: int = 256 << 20


class RecyclingMonitor:
    """Compares the process with its state when the monitor was created."""

    def __init__(self, limits: RecyclingLimits) -> None:
        self._limits, self._steps = limits, 0
        self._peak, self._state = _peak_memory(), _read_state()
        self._threads = set(threading.enumerate())

    def check_after_step(self) -> str | None:
        """The reason to recycle this process, or None. To be called after every step."""
        self._steps += 1
        if self._steps >= self._limits.max_steps:
            return f"it has run {self._steps:,} steps"
        growth = _peak_memory() - self._peak
        if growth > self._limits.max_growth_bytes:
            return f"it has grown by {growth >> 20} MB"
        if any(one.name not in OUR_THREADS for one in {*threading.enumerate()} - self._threads):
            return "a step has left a thread behind"
        state = _read_state()
        if state == self._state:
            return None
        changed = [name for name, value in state.items() if value != self._state[name]]
        return f"a step has changed its {', '.join(changed)}"


def _peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _read_state() -> dict[str, Any]:
    return {
        "directory": _working_directory(),
        "variables": os.environ._data.copy(),  # type: ignore[attr-defined]  # as bytes, which is faster; this runs after every step
        "signal handlers": [*map(getsignal, SIGNALS)],
        "module path": sys.path.copy(),
        "streams": (sys.stdout, sys.stderr),
        "socket timeout": socket.getdefaulttimeout(),
    }


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the directory was removed
        return None
