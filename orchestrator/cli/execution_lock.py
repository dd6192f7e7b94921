"""A lock on one execution in a SQLite file: two commands that ran its steps would run them twice.

The lock is a byte of a file beside the database, at a place that follows from the id. The kernel releases it
when the process ends, in whatever way. It must not be in the database itself: SQLite's own locks would be
lost when that file is closed.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from orchestrator.cli.errors import InvalidRequest

SUFFIX = "-lock"


@contextmanager
def lock_execution(db: str, execution_id: str) -> Iterator[None]:
    """Lock an execution of this file inside the block; InvalidRequest if another process has locked it."""
    place = int.from_bytes(sha256(execution_id.encode()).digest()[:7])
    with open(f"{db}{SUFFIX}", "ab") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            raise InvalidRequest(
                f"another process runs the execution {execution_id!r} of {db}: wait for it, or stop it"
            ) from None
        yield
