"""The standard output of executors in this process: their lines go to the progress, because the standard
output of the command is its result."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable


class ForwardedOutput(io.TextIOBase):
    """Passes on whole lines. Each thread has a line of its own, so that the texts of two do not mix."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._unfinished = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._unfinished, "text", "") + text).split("\n")
        self._unfinished.text = rest
        for line in lines:
            self._print_line(line)
        return len(text)
