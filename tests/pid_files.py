"""A file in which a step says in which process it runs."""

from __future__ import annotations

import os
from pathlib import Path


def note_pid(file: str) -> None:
    """Write the id of this process to a file, whole or not at all: the process may be killed at any time."""
    written = Path(f"{file}.{os.getpid()}")
    written.write_text(str(os.getpid()))
    written.replace(file)
