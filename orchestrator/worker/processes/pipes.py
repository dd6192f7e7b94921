"""The two pipes between a supervisor and its child: the message pipe and the leave pipe.

The child writes messages into the message pipe. The leave pipe carries no data: its end of file tells the
child to leave. The supervisor closes its end to make the child leave, and the kernel closes it when the
supervisor dies. Either way the child finishes its steps first (worker/leaving.py). This needs no signal
handler, which the processes that a step starts would inherit.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

logger = logging.getLogger(__name__)


class Pipes:
    """The child's ends of the pipes.

    A step may close every file descriptor, the pipes and the connections to Redis too. The same numbers may
    then belong to other files, so `send` checks that the descriptor is still the pipe.
    """

    def __init__(self, message_fd: int, leave_fd: int) -> None:
        self._message_fd, self._leave_fd = message_fd, leave_fd
        self._file = _file_of(message_fd)
        self._lock = threading.Lock()

    def on_leave(self, call: Callable[[], Any]) -> None:
        """Call a function, in a thread, when the supervisor wants this child to leave or has died."""

        def wait() -> None:
            with suppress(OSError):
                os.read(self._leave_fd, 1)
            call()

        threading.Thread(target=wait, name="supervisor", daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the supervisor. Exits when the pipe is broken: the runs here are unknown then."""
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                if _file_of(self._message_fd) != self._file:
                    raise OSError("its descriptor belongs to another file")
                while line:
                    line = line[os.write(self._message_fd, line) :]
        except BrokenPipeError:
            pass  # the supervisor has died, and the leave pipe ends too
        except OSError as error:
            logger.error("the pipe to the supervisor is broken; this process exits: %s", error)
            exit_immediately()


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def exit_immediately() -> NoReturn:
    """Exit without cleanup. The supervisor reports the runs of this process as lost, and they run again."""
    os._exit(1)
