"""What a coordinator or a worker is among the others: its name, and the pipe that its life may hang on.

Every process of ours begins with this: nothing heavy may be needed here.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
from typing import NoReturn


def make_process_name() -> str:
    """A name for a consumer or a worker: who it is, and never the same twice."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


def exit_with_parent(lifeline: int) -> None:
    """In a child: end at once, and all that we forked too, when the other end of this pipe is closed."""
    os.set_inheritable(lifeline, False)  # forks keep it, programs that an executor starts need not see it
    os.register_at_fork(after_in_child=lambda: _watch(lifeline))
    _watch(lifeline)


def _watch(lifeline: int) -> None:
    def wait() -> NoReturn:
        os.read(lifeline, 1)
        # A work-horse leads a process group of its own: each group sees the end of the pipe by itself.
        os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
