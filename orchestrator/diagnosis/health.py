"""Whether a process is well, for probes: its loop comes round, not only that it exists or that Redis answers.

A coordinator beats between two batches, inside its loop, so one that hangs in a decision or is stopped falls
silent. An RQ worker beats as often as it has promised: the term of its key in Redis says by when.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from orchestrator.application.errors import Unavailable
from orchestrator.application.explain.text import format_duration, join_names
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.rq_workers import rq_workers

ProcessKind = Literal["coordinator", "worker", "redis"]
PROCESSES: tuple[str, ...] = get_args(ProcessKind)
MAX_AGE_MS = 10_000


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """One process that was looked at; `late_ms` says how long it has been silent beyond what is usual."""

    name: str
    late_ms: int
    is_healthy: bool


@dataclass(frozen=True, slots=True)
class Health:
    process: str
    is_healthy: bool
    words: str
    pulses: tuple[ProcessHealth, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ProcessFilter:
    """Which processes are meant: those of a host, the one of a name (or of a name without its last part), or
    all of them."""

    host: str | None = None
    name: str | None = None

    def matches(self, name: str, hostname: str | None = None) -> bool:
        """Ours are called <host>-<pid>-<nonce>; RQ writes down the host of every worker."""
        if self.name is not None:
            return name == self.name or name.startswith(f"{self.name}-")
        if self.host is None:
            return True
        return hostname == self.host or bool(re.fullmatch(rf"{re.escape(self.host)}-\d+-[0-9a-f]+", name))

    def __str__(self) -> str:
        if self.name is not None:
            return f"called {self.name}"
        return "anywhere" if self.host is None else f"on {self.host}"


def health(
    client: Client,
    keys: Keys,
    process: ProcessKind,
    process_filter: ProcessFilter | None = None,
    max_age_ms: int = MAX_AGE_MS,
) -> Health:
    """How the processes that are meant are: all of them must have come round within `max_age_ms`."""
    process_filter, inspection = process_filter or ProcessFilter(), Inspection(client, keys)
    try:
        if process == "redis":
            return _redis(client)
        look: Callable[..., Iterable[ProcessHealth]] = _coordinators if process == "coordinator" else _workers
        pulses = tuple(look(inspection, process_filter, max_age_ms))
    except Unavailable as error:
        return Health(process, False, f"cannot use Redis: {str(error).removeprefix('Redis: ')}")
    if not pulses:
        return Health(process, False, f"there is no {process} {process_filter}")
    silent = [pulse for pulse in pulses if not pulse.is_healthy]
    if silent:
        names = join_names(f"{pulse.name} (late by {format_duration(pulse.late_ms)})" for pulse in silent)
        return Health(process, False, f"{process} silent: {names}", pulses)
    return Health(
        process, True, f"{len(pulses)} {process}{'s' * (len(pulses) > 1)} {process_filter} well", pulses
    )


def _redis(client: Client) -> Health:
    with translate_errors():
        client.ping()
    return Health("redis", True, "Redis answers")


def _coordinators(
    inspection: Inspection, process_filter: ProcessFilter, max_age_ms: int
) -> Iterable[ProcessHealth]:
    now_ms = inspection.now_ms()
    for beat in inspection.coordinators():
        if process_filter.matches(beat.name):
            age_ms = max(now_ms - beat.at_ms, 0)
            yield ProcessHealth(beat.name, age_ms, age_ms <= max_age_ms)


def _workers(
    inspection: Inspection, process_filter: ProcessFilter, max_age_ms: int
) -> Iterable[ProcessHealth]:
    """The workers of our queues. One that has lost its connection is gone: what is left of it in Redis says
    nothing of the one that was started in its place."""
    ours = f"{inspection.keys.prefix}."
    for worker in rq_workers(inspection):
        is_ours = any(name.startswith(ours) for name in worker.queues)
        if is_ours and worker.is_connected and process_filter.matches(worker.name, worker.hostname):
            late_ms = worker.late_s * 1000
            yield ProcessHealth(worker.name, late_ms, late_ms <= max_age_ms)
