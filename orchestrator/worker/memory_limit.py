"""Limits the memory of a process that runs steps (ORCHESTRATOR_MAX_MEMORY).

A step that needs more gets a MemoryError and fails like any other step. Without a limit, the kernel kills
some process when the machine runs out of memory, and not always the one that used it.
"""

from __future__ import annotations

from orchestrator.processes import limit_resource


def limit_memory(max_bytes: int | None) -> None:
    """Limit the private memory of this process, and of the processes that it starts; None for no limit."""
    if max_bytes is None:
        return
    import resource

    limit_resource(resource.RLIMIT_DATA, max_bytes)


def describe_memory_limit() -> str:
    """What to do about a MemoryError in this process."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return "the machine has no more memory for the process of the step; let the step use less"
    return (
        f"the process of the step may use {limit >> 20:,} MB; raise ORCHESTRATOR_MAX_MEMORY of its"
        " worker, or let the step use less"
    )
