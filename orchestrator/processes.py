"""Names processes, and makes a child process exit with its parent.

Every process of ours imports this module first: it must not import anything heavy.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

REPEATED_SIGNAL_S = 1.0
"""A signal within this time after another one is the same signal, not a second request: one ^C arrives twice
if a parent passes it on."""


def make_process_name() -> str:
    """Make a unique name for a coordinator or a worker: <host>-<pid>-<nonce>."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


def write_whole_lines() -> None:
    """Write each line of standard output at once and as a whole, also to a file or a pipe.

    Otherwise lines that an executor prints are lost when its process is killed, or mixed with others.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def flush_output() -> None:
    """Write what has been printed, before os._exit(), which drops it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # it is closed, or its reader is gone
            stream.flush()


def limit_resource(kind: int, most: int) -> None:
    """Limit a resource of this process, such as `resource.RLIMIT_DATA`, and of the processes that it starts.
    A lower limit of the system stays."""
    import resource

    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, hard))


def exit_with_parent(lifeline: int) -> None:
    """In a child: exit at once, with all processes it forked, when the other end of this pipe is closed."""
    os.set_inheritable(lifeline, False)  # forks keep it; programs that an executor starts do not need it
    os.register_at_fork(after_in_child=lambda: _watch(lifeline))
    _watch(lifeline)


def _watch(lifeline: int) -> None:
    def wait() -> NoReturn:
        os.read(lifeline, 1)
        # A work-horse leads a process group of its own, so each group watches the pipe itself.
        os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
