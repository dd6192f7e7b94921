"""Protects against an executor that forks and returns twice: in its own process and in the forked copy.

The copy has the connections and the result of the original process, but none of its other threads. It must
not publish the result a second time, so it exits where the executor returns to the harness. By then the copy
has done the work for which the executor forked it.
"""

from __future__ import annotations

import os


def exit_if_forked(process: int) -> None:
    """Exit if the current process is not `process`, but a fork of it."""
    if os.getpid() != process:
        os._exit(0)
