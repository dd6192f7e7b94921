"""Wear: what the process of a worker has been through, and when another one is to take its place.

Steps that run one after the other in one process leave traces in it: memory that nobody gives back, threads
that go on, another directory, other variables. A process is replaced after so many steps, when it has grown
by so much, and whenever a step has left it otherwise than it was.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # not that of `signal`, which takes ten times as long
from dataclasses import dataclass
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGPIPE)
OUR_THREADS = frozenset({"commands", "lease", "lines", "overdue", "supervisor", "watch"})
"""Some of them may end a moment after the step that they were for."""


@dataclass(frozen=True, slots=True)
class RecyclingLimits:
    """When a process is replaced, if nothing else is the matter."""

    max_steps: int = 1_000
    max_growth_bytes: int = 256 << 20
    """In bytes."""


class RecyclingMonitor:
    """Of the process that makes one; to be asked after every step."""

    def __init__(self, recycling: RecyclingLimits) -> None:
        self._recycling, self._steps = recycling, 0
        self._peak, self._traces = _peak(), _traces()
        self._threads = set(threading.enumerate())

    def check_after_step(self) -> str | None:
        """Why this process should run no more steps; None if it may."""
        self._steps += 1
        if self._steps >= self._recycling.max_steps:
            return f"it has run {self._steps:,} steps"
        grown = _peak() - self._peak
        if grown > self._recycling.max_growth_bytes:
            return f"it has grown by {grown >> 20} MB"
        if any(one.name not in OUR_THREADS for one in {*threading.enumerate()} - self._threads):
            return "a step has left a thread behind"
        traces = _traces()
        if traces == self._traces:
            return None
        changed = [name for name, trace in traces.items() if trace != self._traces[name]]
        return f"a step has changed its {', '.join(changed)}"


def _peak() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _traces() -> dict[str, Any]:
    return {
        "directory": _directory(),
        "variables": os.environ._data.copy(),  # type: ignore[attr-defined]  # as bytes: every step pays for this
        "signal handlers": [*map(getsignal, SIGNALS)],
        "module path": sys.path.copy(),
        "streams": (sys.stdout, sys.stderr),
        "socket timeout": socket.getdefaulttimeout(),
    }


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # somebody has removed it
        return None
