"""Limits the memory of a process that runs steps (ORCHESTRATOR_MAX_MEMORY).

A step that needs more gets a MemoryError and fails like any other step. Without a limit, the kernel kills
some process when the machine runs out of memory, and not always the one that used it.
"""

from __future__ import annotations


def limit_memory(max_bytes: int | None) -> None:
    """Limit the private memory of this process, and of the processes that it starts; None for no limit."""
    if max_bytes is None:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        max_bytes = min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, hard))
