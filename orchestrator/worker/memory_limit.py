"""How much memory the process of a step may have.

    ORCHESTRATOR_MAX_MEMORY   512MB, 2GB or a number of bytes; unset, as much as there is

Whoever wants more gets a MemoryError, which is a failure of its step like any other. The kernel's own answer
to a machine without memory is to kill somebody, who need not be the one that took it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from orchestrator.application.errors import OrchestratorError

VARIABLE = "ORCHESTRATOR_MAX_MEMORY"
UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


class BadMemoryLimit(OrchestratorError):
    """The variable holds no amount of memory."""


def limit_memory(environment: Mapping[str, str] = os.environ) -> None:
    """From now on this process, and all that it starts, has so much private memory at the most."""
    most = memory_limit(environment)
    if most is None:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def memory_limit(environment: Mapping[str, str] = os.environ) -> int | None:
    """In bytes; None for no limit."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    found = re.fullmatch(r"(\d+)\s*([KMG]B)?", text, re.IGNORECASE | re.ASCII)
    if found is None or not int(found[1]):
        raise BadMemoryLimit(f"{VARIABLE} is {text!r}: write 512MB, 2GB or a number of bytes")
    return int(found[1]) * UNITS[(found[2] or "").upper()]
