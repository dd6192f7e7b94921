"""The pipes between a supervisor and its child: one on which the child tells, and one that ends when it is to
leave.

The second carries nothing. Its other end is closed by a supervisor that wants the child to leave, and by the
kernel when the supervisor has died: either way the child finishes what it runs. No signal is needed for that,
and none is handled: what a step starts inherits the handlers of its process.
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
    """As the child has them. A step may close them, and its connections to Redis with them; their numbers may
    be those of other files by then."""

    def __init__(self, message_fd: int, leave_fd: int) -> None:
        self._telling, self._lasting = message_fd, leave_fd
        self._file = _file_of(message_fd)
        self._lock = threading.Lock()

    def on_leave(self, do: Callable[[], Any]) -> None:
        """Have this done, in a thread, when the supervisor wants us to leave, or is no more."""

        def wait() -> None:
            with suppress(OSError):
                os.read(self._lasting, 1)
            do()

        threading.Thread(target=wait, name="supervisor", daemon=True).start()

    def send(self, said: Mapping[str, Any]) -> None:
        line = json.dumps(said).encode() + b"\n"
        try:
            with self._lock:
                if _file_of(self._telling) != self._file:
                    raise OSError("it is another file")
                while line:
                    line = line[os.write(self._telling, line) :]
        except BrokenPipeError:
            pass  # the supervisor is no more, and the other pipe says so
        except OSError as error:
            logger.error("the pipe to the supervisor is gone, and with it who knows what else: %s", error)
            exit_immediately()


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def exit_immediately() -> NoReturn:
    """Who runs here is reported as lost by the supervisor, and runs again elsewhere."""
    os._exit(1)
